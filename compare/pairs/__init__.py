"""One's own kernels under the microscope, run where they can do no harm."""

# Of files that hold CUDA; here, where nothing is imported that takes long.
CUDA_SUFFIXES = (".cu", ".cuh", ".cpp", ".cc")
