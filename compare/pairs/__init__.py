"""One's own kernels under the microscope, run where they can do no harm."""
