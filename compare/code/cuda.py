"""Kernel instances of a .cu file, compiled for a GPU that need not be there."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bindings.sources import CSRC, EMULATOR, NVCC_FLAGS
from bindings.toolchain import find_cuda_home
from compare.code import cache, tools
from compare.code.architectures import Architecture
from compare.errors import CodegenUnavailable, CompilationFailed

_REMEDY = "install a CUDA toolkit, or nvcc by pip: pip install -e '.[nvcc]'"
_OUTPUTS = ("ptx", "cubin", "log")
_NEWER_REMEDY = "install CUDA 13.0 or newer, or choose another --arch"


@dataclass(frozen=True)
class CudaBuild:
    """One kernel as nvcc compiled it."""

    kernel: str  # its symbol
    compiler: str
    ptx: str
    cubin: bytes
    log: str  # of the run of nvcc, with what `ptxas -v` says


def compile_kernels(
    op_name: str, signatures: Mapping[str, str], architecture: Architecture
) -> dict[str, CudaBuild]:
    """Compiles kernels of an op's .cu, with the flags of the build that runs.

    Those that no earlier call has compiled take one run of nvcc together: most of the
    time of a run goes into CUDA's headers. Then they share PTX and cubin.

    Args:
        op_name: the stem of the file.
        signatures: by the symbols of the kernel instances, the same demangled:
            `void f<float, 4>(float*, float const*, long)`.
        architecture: what to compile for.

    Raises:
        CodegenUnavailable: there is no nvcc, or it does not know the architecture.
        CompilationFailed: nvcc refused the source.
    """
    nvcc = _find_nvcc()
    options = (
        *NVCC_FLAGS,
        "-DTWIN_SINGLE_KERNEL",
        f"-arch={architecture.target}",
        f"-I{CSRC}",
        "-Xptxas=-v",
        "-cubin",
    )
    version = tools.version_of(nvcc)
    inputs = (version, *options, op_name, _all_sources())
    keys = {each: cache.key_of(*inputs, text) for each, text in signatures.items()}
    stored = {each: cache.read(key, _OUTPUTS) for each, key in keys.items()}
    if missing := [each for each, files in stored.items() if files is None]:
        wanted = [signatures[each] for each in missing]
        files = _compile(nvcc, options, op_name, wanted, architecture)
        for each in missing:
            cache.write(keys[each], files)
            stored[each] = files
    return {
        symbol: CudaBuild(
            symbol,
            f"nvcc {version}",
            files["ptx"].decode(),
            files["cubin"],
            files["log"].decode(),
        )
        for symbol, files in stored.items()
        if files is not None
    }


def find_ptxas(architecture: Architecture) -> Path:
    """The assembler that nvcc runs.

    Raises:
        CodegenUnavailable: there is no nvcc, or no assembler beside it that can be run
            and knows the architecture.
    """
    ptxas = _find_nvcc().with_name("ptxas")
    if not ptxas.is_file():
        raise CodegenUnavailable(
            f"nvcc has no assembler, there is no {ptxas}", tools.REMEDY_OF_TOOLKIT
        )
    tools.version_of(ptxas)  # raises if it cannot be run
    try:
        # Asked beforehand: where PTX is too old for an architecture, LLVM, which Triton
        # has in its own process, ends that.
        tools.run([str(ptxas), f"--gpu-name={architecture.target}", "--version"], "")
    except CompilationFailed as error:
        raise CodegenUnavailable(
            f"nvcc's assembler does not know {architecture.target} ({ptxas})",
            _NEWER_REMEDY,
        ) from error
    return ptxas


def title_of(signature: str) -> str:
    """The kernel's name and template arguments, without return type and parameters."""
    depth = 0
    for place, character in enumerate(signature):
        depth += {"<": 1, ">": -1}.get(character, 0)
        if character == "(" and depth == 0:
            return signature[:place].removeprefix("void ")
    return signature


def _compile(
    nvcc: Path,
    options: tuple[str, ...],
    op_name: str,
    signatures: list[str],
    architecture: Architecture,
) -> dict[str, bytes]:
    # With what a symbol does not tell: how kernels here take tensor maps.
    declared = (
        each.replace("TensorMap", "const __grid_constant__ TensorMap")
        for each in signatures
        if "<" in each  # a plain function is compiled without being asked for
    )
    instances = (f"template __global__ {each};\n" for each in declared)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = f'#include "{op_name}/{op_name}.cu"\n' + "".join(instances)
        (folder / "kernel.cu").write_text(source)
        try:
            done = tools.run(
                [str(nvcc), *options, "--keep", "kernel.cu", "-o", "kernel.cubin"],
                f"nvcc cannot compile {', '.join(signatures)} for"
                f" {architecture.target}",
                folder=folder,
            )
        except CompilationFailed as error:
            if "gpu-architecture" in error.log or "gpu architecture" in error.log:
                raise CodegenUnavailable(
                    f"this nvcc does not know {architecture.target} ({nvcc})",
                    _NEWER_REMEDY,
                ) from error
            raise
        try:
            ptx = (folder / "kernel.ptx").read_bytes()
            cubin = (folder / "kernel.cubin").read_bytes()
        except FileNotFoundError as error:
            raise CodegenUnavailable(
                f"{nvcc} ends without an error and writes nothing",
                tools.REMEDY_OF_TOOLKIT,
            ) from error
        log = (done.stdout + done.stderr).encode()
        return {"ptx": ptx, "cubin": cubin, "log": log}


def _find_nvcc() -> Path:
    home = find_cuda_home()
    if home is None:
        raise CodegenUnavailable("there is no nvcc here", _REMEDY)
    return home / "bin/nvcc"


def _all_sources() -> bytes:
    """Every file that a .cu can include, with its name."""
    return b"".join(
        str(path.relative_to(CSRC)).encode() + b"\0" + path.read_bytes() + b"\0"
        for path in sorted(CSRC.rglob("*.cu*"))
        if not path.is_relative_to(EMULATOR)
    )
