"""The mirror of csrc and triton_kernels, which would not last unchecked."""

from __future__ import annotations

import ast
import contextlib
import functools
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import pytest
import torch
from mirror import Kernel, kernels_of, problems_of
from together import in_one_test

from bindings.backends import native, prebuilt, triton
from bindings.errors import UnsupportedError
from bindings.op import Op
from bindings.registry import OPS
from bindings.sources import kernel_sources
from bindings.trials import TRIALS
from compare.code import kernel_code, rungs
from compare.code.architectures import ARCHITECTURES
from compare.judge.cases import Case, launcher_arguments

ROOT = Path(__file__).resolve().parents[1]
CUDA = kernel_sources()
FOLDERS = {"cuda": ROOT / "csrc", "triton": ROOT / "triton_kernels"}
SUFFIXES = {"cuda": (".cu", ".cuh"), "triton": (".py",)}
HEADER_KEYS = ["Layout", "Traffic", "Limits", "Mirror", "Source"]


def _triton(cuda: Path) -> Path:
    folder = cuda.parent.relative_to(ROOT / "csrc")
    return ROOT / "triton_kernels" / folder / f"{cuda.stem}.py"


def _header(path: Path) -> str:
    text = path.read_text()
    if path.suffix == ".py":
        return ast.get_docstring(ast.parse(text)) or ""
    lines = []
    for line in text.splitlines():
        if not line.startswith("//"):
            break
        lines.append(line.removeprefix("//").removeprefix(" "))
    return "\n".join(lines)


def _kernels(side: str, folders: Iterable[str]) -> dict[str, Kernel]:
    """All kernels of some folders, by name."""
    return {
        name: kernel
        for folder in folders
        for path in sorted((FOLDERS[side] / folder).glob("*"))
        if path.suffix in SUFFIXES[side]
        for name, kernel in kernels_of(path).items()
    }


@functools.cache
def _launched(name: str, rung: str, dtype: torch.dtype) -> frozenset[str]:
    """The kernels that an op launches on a rung, in either language."""
    op = OPS[name].on_rung(rung)
    case = Case(TRIALS[op.name].large_shape, dtype, direction=op.direction)
    found: set[str] = set()
    for side in rungs.SIDES:
        with contextlib.suppress(UnsupportedError):  # tensor cores have no float32
            titles = kernel_code.planned_kernels(
                side, op, launcher_arguments(op, case), ARCHITECTURES[90]
            )
            found |= set(map(rungs.name_of, titles))
    return frozenset(found)


def _on_rungs(ops: Iterable[Op]) -> set[str]:
    """The kernels of all rungs, at the shapes that these are made for."""
    return {
        kernel
        for op in ops
        for rung in op.rungs
        for dtype in (torch.float32, torch.bfloat16)
        for kernel in _launched(op.name, rung, dtype)
    }


def _families() -> dict[str, list[Op]]:
    """Ops by the folder of their sources, forward and backward."""
    found: dict[str, list[Op]] = {}
    for op in OPS.values():
        found.setdefault(op.source, []).append(op)
    return found


def _shared_folders() -> list[str]:
    """The folders whose kernels several ops launch."""
    own = {path.parent.name for path in CUDA}
    folders = {path.parent.name for path in FOLDERS["cuda"].glob("*/*.cuh")}
    return sorted(folders - own - {"emulator"})


def test_the_folders_hold_the_same_ops() -> None:
    stems = {path.stem for path in CUDA}
    there = {path.parent.name for path in FOLDERS["triton"].glob("*/*.py")}
    assert there - stems == {*_shared_folders()}
    for folder in ("ops", "trials"):
        files = (ROOT / "bindings" / folder).glob("*.py")
        assert {p.stem for p in files if p.stem[0] != "_"} == stems


@in_one_test("op")
def test_launchers_name_what_they_take_alike(op: Op) -> None:
    cuda = [name for name, _ in native.parameters(prebuilt.load("_cpu"), op)]
    of_triton = triton.parameters(op, len(cuda))
    assert len(of_triton) == len(cuda)
    for name, other in zip(cuda, of_triton, strict=True):
        assert name == other or (other == "strides" and "_stride_" in name)


@in_one_test("cuda")
@pytest.mark.parametrize("cuda", CUDA, ids=lambda path: path.stem)
def test_headers_have_the_same_keys_and_point_at_each_other(cuda: Path) -> None:
    for path, other in ((cuda, _triton(cuda)), (_triton(cuda), cuda)):
        header = _header(path)
        assert re.findall(r"^([A-Z]\w+)\s{2,}", header, re.M) == HEADER_KEYS, path
        assert f"Mirror   {other.relative_to(ROOT)}" in header
    assert _header(cuda).split("\n\n")[:2] == _header(_triton(cuda)).split("\n\n")[:2]


@pytest.mark.parametrize("source", sorted(_families()))
def test_kernels_are_mirrored_or_declared(source: str) -> None:
    ops = _families()[source]
    on_rungs = _on_rungs(ops)
    declared = {name for op in ops for name in TRIALS[op.name].other_kernels}
    cuda, triton = (_kernels(side, [source]) for side in FOLDERS)
    for side, kernels in (("cuda", cuda), ("triton", triton)):
        # Kernels that it launches from shared folders count, too.
        shared = _kernels(side, _shared_folders())
        used = on_rungs | declared
        kernels.update({name: each for name, each in shared.items() if name in used})
    assert problems_of(cuda, triton, on_rungs, declared) == []


def test_shared_kernels_are_launched_by_some_op() -> None:
    used = _on_rungs(OPS.values())
    used |= {name for op in OPS.values() for name in TRIALS[op.name].other_kernels}
    for side in FOLDERS:
        assert _kernels(side, _shared_folders()).keys() <= used


@in_one_test("each_op")
@pytest.mark.parametrize("each_op", OPS.values(), ids=lambda op: op.name)
def test_a_rung_is_a_file_that_says_what_it_changes(each_op: Op) -> None:
    on_rungs = _on_rungs([each_op])
    for name in each_op.rungs:
        stems = (f"{each_op.direction}_{name}", name)
        # In a folder of its own, or in one that several ops share.
        (cuda,) = [
            path
            for folder in (each_op.source, *_shared_folders())
            for stem in stems
            if (path := FOLDERS["cuda"] / folder / f"{stem}.cuh").exists()
            and set(kernels_of(path)) <= on_rungs
        ][:1]
        for path in (cuda, _triton(cuda)):
            header = _header(path)
            assert re.match(r"The \w+( rung)?: ", header), path
            assert len(header.splitlines()) <= 12, path


@in_one_test("cuda")
@pytest.mark.parametrize("cuda", sorted((ROOT / "csrc").glob("*/*first.cuh")))
def test_a_first_rung_fits_a_screen(cuda: Path) -> None:
    for path in (cuda, _triton(cuda)):
        most = 61 if path == cuda else 72  # Triton's parameters take a line each
        # One that takes several launches has a screen for each.
        lines = len(path.read_text().splitlines())
        assert lines <= most * len(kernels_of(path)), path


def test_no_file_is_longer_than_one_can_hold_in_mind() -> None:
    for side, folder in FOLDERS.items():
        for path in folder.rglob("*"):
            if path.suffix in SUFFIXES[side] and "emulator" not in path.parts:
                assert len(path.read_text().splitlines()) <= 250, path


# ---- Differences that it must find ---------------------------------------------------

TWINS = {
    "csrc/toy/twin.cuh": """// The twin: an example.
template <typename T>
__global__ void toy_kernel(
    T* out_ptr,      // (n)
    const T* x_ptr,  // (n)
    int64_t n
) {
    // -- tile: a thread owns an element
    const int64_t i = blockIdx.x;

    // -- load: one element
    const T x = x_ptr[i];

    // -- store: the same
    out_ptr[i] = x;
}
""",
    "triton_kernels/toy/twin.py": """
def toy_kernel(
    out_ptr,  # (n)
    x_ptr,  # (n)
    n,
    BLOCK: tl.constexpr,
):
    # -- tile: a program owns a block
    i = tl.program_id(0)

    # -- load: one element
    x = tl.load(x_ptr + i)

    # -- store: the same
    tl.store(out_ptr + i, x)
""",
}


@pytest.mark.parametrize(
    ("file", "old", "new", "declared", "problem"),
    [
        ("twin.py", "", "", (), None),
        # A swapped pair of sections.
        ("twin.py", "# -- load", "# -- store", (), r"its sections differ"),
        ("twin.cuh", "// -- load: one", "// -- sum: one", (), r"its sections differ"),
        # A missing marker, and one that no reader of markers would find.
        ("twin.py", "    # -- load: one element\n", "", (), r"its sections differ"),
        ("twin.cuh", "// -- load: one", "// -- load one", (), r"'load' has no colon"),
        ("twin.cuh", "// -- tile: a", "// -- own: a", (), r"its first section is no t"),
        # An undeclared deviation, in parameters, in sections, in a kernel more.
        ("twin.py", "    n,\n", "    n,\n    m,\n", (), r"its parameters differ"),
        ("twin.cuh", "toy_kernel", "toy_long_kernel", (), r"on no rung, and is not de"),
        ("twin.py", "# -- load", "# -- sum", ("toy_kernel",), None),
        # A declaration of nothing.
        ("twin.py", "", "", ("toy_wide_kernel",), r"declared, but is in no source"),
    ],
)
def test_the_mirror_notices(
    file: str,
    old: str,
    new: str,
    declared: tuple[str, ...],
    problem: str | None,
    tmp_path: Path,
) -> None:
    sides: list[dict[str, Kernel]] = []
    for name, text in TWINS.items():
        path = tmp_path / name.replace("/", "-") / name.rpartition("/")[2]
        path.parent.mkdir()
        path.write_text(text.replace(old, new) if path.name == file else text)
        sides.append(kernels_of(path))
    cuda, triton = sides
    found = problems_of(cuda, triton, ("toy_kernel",), declared)
    if problem is None:
        assert found == []
    else:
        assert any(re.search(problem, each) for each in found), found


# ---- Launchers and helpers -----------------------------------------------------------


def _parameters(launcher: ast.FunctionDef, native: list[str]) -> list[str]:
    """The parameters of a launcher in Python; its `*strides` are CUDA's strides."""
    arguments = launcher.args
    before = [each.arg for each in arguments.args]
    behind = [each.arg for each in arguments.kwonlyargs]
    if arguments.vararg:
        start = 2 + len(before)  # behind the launcher and the dtype
        strides = native[start : len(native) - len(behind)]
        assert all("_stride_" in each for each in strides), strides
        before += strides
    return before + behind


def _functions(path: Path, names: Collection[str]) -> Iterator[ast.FunctionDef]:
    """Functions of these names in a module, and those that it imports."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name in names:
            yield node
        if isinstance(node, ast.ImportFrom) and node.module:
            imported = {each.name for each in node.names} & {*names}
            if imported:
                other = ROOT / f"{node.module.replace('.', '/')}.py"
                yield from _functions(other, imported)


@in_one_test("cuda")
@pytest.mark.parametrize("cuda", CUDA, ids=lambda path: path.stem)
def test_launchers_have_the_same_parameters(cuda: Path) -> None:
    native = {
        name: [p.split()[-1].lstrip("*&") for p in parameters.split(",")]
        for name, parameters in re.findall(
            r"^cudaError_t (\w+)\((.*?)\) \{",
            cuda.read_text(),
            re.DOTALL | re.MULTILINE,
        )
        if name in OPS  # the others are helpers of one language
    }
    launchers = {
        node.name: ["launch", "dtype", *_parameters(node, native[node.name])]
        for node in _functions(_triton(cuda), native)
    }
    assert launchers == native
    assert cuda.stem in native


@pytest.mark.parametrize("folder", ["math", "epilogue"])
def test_shared_helpers_have_the_same_names(folder: str) -> None:
    cuda = (ROOT / f"csrc/common/{folder}.cuh").read_text()
    triton = (ROOT / f"triton_kernels/common/{folder}.py").read_text()
    in_cuda = re.findall(r"__device__ __forceinline__ float (\w+)\(", cuda)
    assert in_cuda == re.findall(r"^def (\w+)\(", triton, re.M) != []


def test_inline_ptx_has_one_home() -> None:
    files = [p for p in (ROOT / "csrc").rglob("*.cu*") if "emulator" not in p.parts]
    with_ptx = {p.parent for p in files if re.search(r"\basm\b", p.read_text())}
    assert with_ptx == {ROOT / "csrc/common/ptx"}
