"""Kernel instances of a .cu file, compiled for a GPU that need not be there."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bindings.sources import CSRC, EMULATOR, NVCC_FLAGS
from bindings.toolchain import find_cuda_home
from compare.assembly.listing import separate_entries
from compare.code import cache, tools
from compare.code.architectures import Architecture
from compare.errors import CodegenUnavailable, CompilationFailed

_REMEDY = "install a CUDA toolkit, or nvcc by pip: pip install -e '.[nvcc]'"
_OUTPUTS = ("entry.ptx", "cubin", "log")
_NEWER_REMEDY = "install CUDA 13.0 or newer, or choose another --arch"


@dataclass(frozen=True)
class CudaBuild:
    """One kernel as nvcc compiled it."""

    kernel: str  # its symbol
    compiler: str
    ptx: str  # without the other kernels of the run
    cubin: bytes  # with them
    log: str  # of the run of nvcc, with what `ptxas -v` says


@dataclass(frozen=True)
class _Kernel:
    """A kernel to compile."""

    symbol: str
    signature: str
    facts: tuple[str | bytes, ...]  # that it depends on, besides nvcc and its options


def compile_kernels(
    op_name: str, signatures: Mapping[str, str], architecture: Architecture
) -> dict[str, CudaBuild]:
    """Compiles kernels of an op's .cu, with the flags of the build that runs.

    Those that no earlier call has compiled take one run of nvcc together: most of the
    time of a run goes into CUDA's headers. Then they share a cubin.

    Args:
        op_name: the stem of the file.
        signatures: by the symbols of the kernel instances, the same demangled:
            `void f<float, 4>(float*, float const*, long)`.
        architecture: what to compile for.

    Raises:
        CodegenUnavailable: there is no nvcc, or it does not know the architecture.
        CompilationFailed: nvcc refused the source.
    """
    return compile_together({op_name: signatures}, architecture)


def compile_together(
    signatures: Mapping[str, Mapping[str, str]], architecture: Architecture
) -> dict[str, CudaBuild]:
    """Compiles kernels of several ops' .cu, as `compile_kernels` does those of one.

    No two of the files may define the same name.

    Args:
        signatures: by the stems of the files, as `compile_kernels`.
        architecture: As `compile_kernels`.

    Raises:
        CodegenUnavailable: As `compile_kernels`.
        CompilationFailed: As `compile_kernels`.
    """
    source = "".join(f'#include "{each}/{each}.cu"\n' for each in signatures)
    options = (*NVCC_FLAGS, "-DTWIN_SINGLE_KERNEL")
    sources = _all_sources()
    kernels = [
        _Kernel(symbol, text, (op_name, sources))
        for op_name, of_op in signatures.items()
        for symbol, text in of_op.items()
    ]
    # What an op includes is among the facts, so that it does not matter where it lies:
    # places in other checkouts' files are read as places in these.
    where = (f"-I{CSRC}",)
    return _compiled(source, {}, options, kernels, architecture, where)


def compile_files(
    files: Mapping[str, str],
    main: str,
    folders: Sequence[Path],
    signatures: Mapping[str, str],
    architecture: Architecture,
) -> dict[str, CudaBuild]:
    """Compiles kernels of somebody's files, as `compile_kernels` does an op's.

    Args:
        files: Texts by name.
        main: The name of the one with the kernels, which may include the others.
        folders: Where it finds other headers.
        signatures: As `compile_kernels`.
        architecture: As `compile_kernels`.

    Raises:
        CodegenUnavailable: As `compile_kernels`.
        CompilationFailed: As `compile_kernels`.
    """
    options = (
        *("-std=c++20", "-O3", "-lineinfo", "-w", "--expt-relaxed-constexpr"),
        *(f"-I{each}" for each in folders),
    )
    facts = tuple(part for each in sorted(files.items()) for part in each)
    kernels = [_Kernel(symbol, text, facts) for symbol, text in signatures.items()]
    return _compiled(f'#include "{main}"\n', files, options, kernels, architecture)


def _compiled(
    source: str,
    files: Mapping[str, str],
    options: tuple[str, ...],
    kernels: Sequence[_Kernel],
    architecture: Architecture,
    other_options: tuple[str, ...] = (),
) -> dict[str, CudaBuild]:
    """Compiles what no earlier call has, with whatever other options."""
    nvcc = _find_nvcc()
    options = (*options, f"-arch={architecture.target}", "-Xptxas=-v", "-cubin")
    version = tools.version_of(nvcc)
    keys = {
        each: cache.key_of(version, *options, *each.facts, each.signature)
        for each in kernels
    }
    stored = {each: cache.read(key, _OUTPUTS) for each, key in keys.items()}
    if missing := [each for each, found in stored.items() if found is None]:
        # Two files may have the same kernel, by way of a header.
        wanted = list(dict.fromkeys(each.signature for each in missing))
        options = (*options, *other_options)
        ptx, cubin, log = _compile(nvcc, options, source, files, wanted, architecture)
        separate = separate_entries(ptx)
        for each in missing:
            # What has no such kernel is refused where its code is read.
            entry = separate.get(each.symbol, ptx).encode()
            found = dict(zip(_OUTPUTS, (entry, cubin, log), strict=True))
            cache.write(keys[each], found)
            stored[each] = found
    return {
        kernel.symbol: CudaBuild(
            kernel.symbol,
            f"nvcc {version}",
            found["entry.ptx"].decode(),
            found["cubin"],
            found["log"].decode(),
        )
        for kernel, found in stored.items()
        if found is not None
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
    source: str,
    files: Mapping[str, str],
    signatures: list[str],
    architecture: Architecture,
) -> tuple[str, bytes, bytes]:
    # With what a symbol does not tell: how kernels here take tensor maps.
    declared = (
        each.replace("TensorMap", "const __grid_constant__ TensorMap")
        for each in signatures
        # A plain function, of which no type is told, is compiled without being asked.
        if each.startswith("void ")
    )
    instances = (f"template __global__ {each};\n" for each in declared)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in files.items():
            (folder / file).write_text(text, encoding="utf-8")
        (folder / "kernel.cu").write_text(source + "".join(instances))
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
            ptx = (folder / "kernel.ptx").read_text(encoding="utf-8")
            cubin = (folder / "kernel.cubin").read_bytes()
        except FileNotFoundError as error:
            raise CodegenUnavailable(
                f"{nvcc} ends without an error and writes nothing",
                tools.REMEDY_OF_TOOLKIT,
            ) from error
        log = (done.stdout + done.stderr).encode()
        return ptx, cubin, log


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
