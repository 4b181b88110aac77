"""The mirror of csrc and triton_kernels: one that nobody checks is soon gone."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from bindings.registry import OPS

ROOT = Path(__file__).resolve().parents[1]
CUDA = sorted((ROOT / "csrc").glob("*.cu"))
# The kernels that lead to an op: a file for each rung, and the op is the last.
RUNGS = sorted((ROOT / "csrc").glob("*_ladder/*.cuh"))
# The same kernels once more, in Gluon.
VARIANTS = [
    path
    for cuda in CUDA
    if (path := ROOT / f"triton_kernels/gluon/{cuda.stem}.py").exists()
]
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


def _kernels(path: Path) -> dict[str, tuple[list[str], list[str]]]:
    """The parameters and the sections of every kernel of a file, in order."""
    text = path.read_text()
    if path.suffix == ".py":
        kernels = {}
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef) and node.name.endswith("_kernel"):
                source = ast.get_source_segment(text, node) or ""
                # Of a parameter in small letters Triton may make a constant as well, to
                # know its value when it compiles: it is one of CUDA's all the same.
                names = [
                    a.arg
                    for a in node.args.args
                    if a.arg.islower()
                    or a.annotation is None
                    or "constexpr" not in ast.dump(a.annotation)
                ]
                kernels[node.name] = (names, re.findall(r"# -- (\w+):", source))
        return kernels
    kernels = {}
    pattern = r"__global__.*?(\w+_kernel)\(\n(.*?)\n\) \{\n(.*?)\n\}\n"
    for name, parameters, body in re.findall(pattern, text, re.DOTALL):
        names = [
            re.sub(r"//.*", "", line).strip().rstrip(",").split()[-1]
            for line in parameters.splitlines()
        ]
        kernels[name] = (names, re.findall(r"// -- (\w+):", body))
    return kernels


def _declared_differences(path: Path) -> set[str]:
    """The kernels in which a header says that the mirror differs."""
    pattern = r"^Mirror\s+\S+ differs in (.+?),\s+because"
    mirror = re.search(pattern, _header(path), re.M | re.DOTALL)
    return set(re.findall(r"\w+_kernel", mirror[1])) if mirror else set()


def _is_part(words: list[str], of: list[str]) -> bool:
    """Whether `of` has all the words in their order, and others between them."""
    rest = iter(of)
    return all(word in rest for word in words)


def test_the_folders_hold_the_same_ops() -> None:
    stems = {path.stem for path in CUDA}
    for folder in ("triton_kernels", "bindings/ops"):
        there = {p.stem for p in (ROOT / folder).glob("*.py") if p.stem != "__init__"}
        assert there == stems, folder
    assert {p.stem for p in (ROOT / "bindings/native").glob("*.cpp")} - {
        "module"
    } == stems


@pytest.mark.parametrize("cuda", CUDA, ids=lambda path: path.stem)
def test_headers_have_the_same_keys_and_point_at_each_other(cuda: Path) -> None:
    for path, other in ((cuda, _triton(cuda)), (_triton(cuda), cuda)):
        header = _header(path)
        assert re.findall(r"^([A-Z]\w+)\s{2,}", header, re.M) == HEADER_KEYS, path
        assert f"Mirror   {other.relative_to(ROOT)}" in header
    assert _header(cuda).split("\n\n")[:2] == _header(_triton(cuda)).split("\n\n")[:2]
    assert _declared_differences(cuda) == _declared_differences(_triton(cuda))


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda path: path.stem)
def test_a_variant_in_gluon_and_its_mirrors_point_at_each_other(variant: Path) -> None:
    header = _header(variant)
    assert re.findall(r"^([A-Z]\w+)\s{2,}", header, re.M) == HEADER_KEYS
    cuda = ROOT / f"csrc/{variant.stem}.cu"
    name = next(iter(_kernels(variant)))
    assert f"Mirror   csrc/{cuda.name}, {name}" in header
    assert name in _kernels(cuda)
    for path in (cuda, _triton(cuda)):
        assert str(variant.relative_to(ROOT)) in _header(path)


def test_a_ladder_has_the_same_rungs_in_both_languages() -> None:
    for op in (op for op in OPS.values() if op.rungs):
        in_cuda = {p.stem for p in RUNGS if p.parent.name == f"{op.source}_ladder"}
        folder = ROOT / f"triton_kernels/{op.source}_ladder"
        in_triton = {p.stem for p in folder.glob("*.py") if p.stem != "__init__"}
        assert in_cuda == in_triton == set(op.rungs[:-1])
    assert {p.parent.name for p in RUNGS} == {
        f"{op.source}_ladder" for op in OPS.values() if op.rungs
    }


@pytest.mark.parametrize("cuda", RUNGS, ids=lambda path: path.stem)
def test_a_rung_says_what_it_changes(cuda: Path) -> None:
    number = ("first", "second", "third", "fourth")
    for path in (cuda, _triton(cuda)):
        header = _header(path)
        assert re.match(rf"The ({'|'.join(number)}) rung: ", header), path
        assert 3 <= len(header.splitlines()) <= 12, path


@pytest.mark.parametrize("cuda", RUNGS, ids=lambda path: path.stem)
def test_the_host_functions_of_a_rung_have_the_same_parameters(cuda: Path) -> None:
    name = f"{cuda.parent.name.removesuffix('_ladder')}_{cuda.stem}"
    native = re.search(rf"cudaError_t {name}\((.*?)\) \{{", cuda.read_text(), re.DOTALL)
    assert native
    parameters = [p.split()[-1].lstrip("*&") for p in native[1].split(",")]
    (launcher,) = (
        node
        for node in ast.parse(_triton(cuda).read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name == name
    )
    own = ["launch", *(a.arg for a in launcher.args.args)]
    # What Triton's compiler has to be told of tensor cores, CUDA's source says itself.
    assert [each for each in own if each != "tf32"] == parameters


@pytest.mark.parametrize("cuda", [*CUDA, *RUNGS], ids=lambda path: path.stem)
def test_kernels_have_the_same_parameters_and_sections(cuda: Path) -> None:
    in_cuda, in_triton = _kernels(cuda), _kernels(_triton(cuda))
    assert list(in_cuda) == list(in_triton) != []
    for name, (parameters, sections) in in_cuda.items():
        triton_parameters, triton_sections = in_triton[name]
        assert sections[0] == "tile"
        if name in _declared_differences(cuda):
            # One of them does more itself, for which it has words of its own.
            assert _is_part(triton_parameters, parameters)
            assert _is_part(triton_sections, sections)
        else:
            assert parameters == triton_parameters
            assert sections == triton_sections, name


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
        node.name: ["launch", "dtype", *(a.arg for a in node.args.args)]
        for node in ast.parse(_triton(cuda).read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name in native
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
