"""The mirror of csrc and triton_kernels: one that nobody checks is soon gone."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from bindings.registry import OPS

ROOT = Path(__file__).resolve().parents[1]
CUDA = sorted((ROOT / "csrc").glob("*.cu"))
HEADER_KEYS = ["Layout", "Traffic", "Limits", "Mirror", "Source"]


def _triton(cuda: Path) -> Path:
    return ROOT / "triton_kernels" / f"{cuda.stem}.py"


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
                run_time = [
                    a.arg
                    for a in node.args.args
                    if a.annotation is None or "constexpr" not in ast.dump(a.annotation)
                ]
                kernels[node.name] = (run_time, re.findall(r"# -- (\w+):", source))
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
    mirror = re.search(r"^Mirror\s+\S+ differs in (.+?), because", _header(path), re.M)
    return set(re.findall(r"\w+_kernel", mirror[1])) if mirror else set()


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


@pytest.mark.parametrize("cuda", CUDA, ids=lambda path: path.stem)
def test_kernels_have_the_same_parameters_and_sections(cuda: Path) -> None:
    in_cuda, in_triton = _kernels(cuda), _kernels(_triton(cuda))
    assert list(in_cuda) == list(in_triton) != []
    for name, (parameters, sections) in in_cuda.items():
        triton_parameters, triton_sections = in_triton[name]
        assert parameters == triton_parameters
        assert sections[0] == "tile"
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


@pytest.mark.parametrize("folder", ["math"])
def test_shared_helpers_have_the_same_names(folder: str) -> None:
    cuda = (ROOT / f"csrc/common/{folder}.cuh").read_text()
    triton = (ROOT / f"triton_kernels/common/{folder}.py").read_text()
    in_cuda = re.findall(r"__device__ __forceinline__ float (\w+)\(", cuda)
    assert in_cuda == re.findall(r"^def (\w+)\(", triton, re.M) != []


def test_inline_ptx_has_one_home() -> None:
    homes = {"csrc/common/ptx.cuh"}
    files = [p for p in (ROOT / "csrc").rglob("*.cu*") if "emulator" not in p.parts]
    with_ptx = {
        str(p.relative_to(ROOT)) for p in files if re.search(r"\basm\b", p.read_text())
    }
    assert with_ptx <= homes
