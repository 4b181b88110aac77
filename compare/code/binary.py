"""The machine code of one kernel, from a library or a cubin that somebody built."""

import difflib
import tempfile
from pathlib import Path

from compare.assembly.listing import Listing, parse_sass
from compare.assembly.normalize import normalize
from compare.code import tools
from compare.errors import CodegenUnavailable


def read_kernel(binary: Path, kernel: str, target: str) -> Listing:
    """Reads the instructions of one kernel.

    Args:
        binary: the file; the end of its name says whether it is a cubin.
        kernel: the kernel's symbol.
        target: which of the architectures in the file, such as `sm_90a`.

    Raises:
        CodegenUnavailable: the file has no such code, or a tool is missing here.
        CompilationFailed: a tool cannot read the file.
    """
    nvdisasm = tools.triton_tool("nvdisasm").path
    with tempfile.TemporaryDirectory() as folder:
        is_cubin = binary.suffix == ".cubin"
        for cubin in [binary] if is_cubin else _extract(binary, target, Path(folder)):
            if kernel.encode() not in cubin.read_bytes():
                continue  # nvdisasm takes seconds
            failure = f"nvdisasm cannot read {binary.name}"
            text = tools.run([nvdisasm, "-c", str(cubin)], failure).stdout
            if section := tools.section_of(text, kernel):
                return parse_sass(section)
    raise CodegenUnavailable(
        f"{binary.name} has no machine code of {kernel} for {target}",
        "TORCH_CUDA_ARCH_LIST names the architectures to build for",
    )


def count_differing(first: Listing, second: Listing) -> int:
    """How many instructions of the longer one have no equal in the other.

    Registers, labels and the kernel's own name may differ, in one way throughout.
    """
    ours, theirs = _lines(first), _lines(second)
    matcher = difflib.SequenceMatcher(None, ours, theirs, autojunk=False)
    alike = sum(block.size for block in matcher.get_matching_blocks())
    return max(len(ours), len(theirs)) - alike


def _extract(library: Path, target: str, folder: Path) -> list[Path]:
    cuobjdump = tools.triton_tool("cuobjdump").path
    command = [cuobjdump, "-xelf", "all", str(library.resolve())]
    tools.run(command, f"cuobjdump cannot read {library.name}", folder)
    # The cuobjdump of CUDA 12.8, which Triton 3.6 has, calls sm_90a sm_90.
    for name in (target, target.removesuffix("a")):
        if cubins := sorted(folder.glob(f"*.{name}.cubin")):
            return cubins
    return []


def _lines(listing: Listing) -> list[str]:
    return [
        " ".join((*(f"{label}:" for label in line.labels), line.text))
        for line in normalize(listing)
    ]
