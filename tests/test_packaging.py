"""The native code: found, built, and reported where it is stale or missing."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from bindings import sources, toolchain
from bindings.backends import prebuilt
from bindings.errors import UnsupportedError


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the native sources, which a test may edit."""
    for name in ("csrc", "bindings/native"):
        shutil.copytree(sources.ROOT / name, tmp_path / name)
    monkeypatch.setattr(sources, "ROOT", tmp_path)
    monkeypatch.setattr(sources, "CSRC", tmp_path / "csrc")
    monkeypatch.setattr(sources, "EMULATOR", tmp_path / "csrc/emulator")
    monkeypatch.setattr(sources, "NATIVE", tmp_path / "bindings/native")
    return tmp_path


CUBE = """\
// cudaError_t old(const Launcher& launch, DType dtype, int rung) {}
namespace {

cudaError_t part(const Launcher& launch, DType dtype, int n) {
    return cudaSuccess;
}

}  // namespace

cudaError_t cube(
    const Launcher& launch, DType dtype, void* out,
    const void* x,  // (n)
    int64_t n, int rung
) {
    return part(launch, dtype, n);
}
"""


@pytest.mark.parametrize("module", ["_cpu", "_cuda"])
def test_a_new_op_is_compiled_without_an_edit(
    module: sources.ModuleName, tree: Path
) -> None:
    (tree / "csrc/cube").mkdir()
    (tree / "csrc/cube/cube.cu").write_text(CUBE)
    compiled = sources.write_sources(module, tree / "build")
    assert any(path.name.startswith("cube.cu") for path in compiled)
    assert sources.bindings_of("cube") in (tree / "build/bindings.cpp").read_text()


def test_the_launchers_of_a_file_are_bound(tree: Path) -> None:
    (tree / "csrc/cube").mkdir()
    (tree / "csrc/cube/cube.cu").write_text(CUBE)
    assert sources.bindings_of("cube").splitlines() == [
        "cudaError_t cube(const Launcher& launch, DType dtype, void* out, "
        "const void* x, int64_t n, int rung);",
        "static const native::Binding cube_binding("
        '"cube", &cube, {"out", "x", "n", "rung"});',
    ]


def test_generated_files_are_not_touched_without_need(tree: Path) -> None:
    paths = sources.write_sources("_cpu", tree / "build")
    before = [path.stat().st_mtime_ns for path in paths]
    sources.write_sources("_cpu", tree / "build")
    assert [path.stat().st_mtime_ns for path in paths] == before


@pytest.mark.parametrize("record", ["", '{"csrc/add'])
def test_record_of_a_build_that_was_killed(record: str, tree: Path) -> None:
    sources.write_sources("_cpu", tree / "build")
    (tree / "build/contents.json").write_text(record)
    assert sources.write_sources("_cpu", tree / "build")
    assert json.loads((tree / "build/contents.json").read_text())


def test_file_put_back_with_its_old_time_is_compiled_again(tree: Path) -> None:
    edited, untouched = tree / "csrc/add/add.cu", tree / "csrc/gelu/gelu.cu"
    for path in (edited, untouched):
        os.utime(path, (1, 1))
    sources.write_sources("_cpu", tree / "build")
    edited.write_text("// edited")
    os.utime(edited, (1, 1))
    sources.write_sources("_cpu", tree / "build")
    assert edited.stat().st_mtime > 1
    assert untouched.stat().st_mtime == 1


@pytest.mark.parametrize(
    ("edited", "makes_stale"),
    [
        ("csrc/add/add.cu", ["_cpu", "_cuda"]),
        ("csrc/common/launch.cuh", ["_cpu", "_cuda"]),
        ("csrc/matmul/tiled.cuh", ["_cpu", "_cuda"]),
        ("csrc/emulator/runtime/block.cpp", ["_cpu"]),
        ("bindings/native/module.cpp", ["_cpu", "_cuda"]),
    ],
)
def test_an_edit_changes_the_fingerprint(
    edited: str, makes_stale: list[str], tree: Path
) -> None:
    modules: list[sources.ModuleName] = ["_cpu", "_cuda"]
    before = {module: sources.source_hash(module) for module in modules}
    with (tree / edited).open("a") as file:
        file.write("\n")
    changed = [
        module for module in modules if sources.source_hash(module) != before[module]
    ]
    assert changed == makes_stale


def test_a_rename_changes_the_fingerprint(tree: Path) -> None:
    before = sources.source_hash("_cpu")
    (tree / "csrc/add/add.cu").rename(tree / "csrc/sum/add.cu")
    assert sources.source_hash("_cpu") != before


def test_no_flag_trades_accuracy_for_speed() -> None:
    flags = " ".join(sources.NVCC_FLAGS + sources.CXX_FLAGS)
    assert "fast" not in flags
    assert "march" not in flags


def test_prebuilt_module_does_not_depend_on_torch() -> None:
    module = prebuilt.load("_cpu")
    assert module.__file__ is not None
    assert b"libtorch" not in Path(module.__file__).read_bytes()


@pytest.fixture
def fresh_load(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[sources.ModuleName], object]:
    """`prebuilt.load` without what it remembers."""
    return prebuilt.load.__wrapped__


def test_stale_module_is_refused(
    fresh_load: Callable[[sources.ModuleName], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "source_hash", lambda module: "of an edited source")
    with pytest.raises(UnsupportedError, match="built from other sources") as caught:
        fresh_load("_cpu")
    assert f"--no-build-isolation --no-deps -e {sources.ROOT}" in str(caught.value)


@pytest.mark.parametrize(
    "file", ["softmax/softmax.cu", "softmax/twin.cuh", "unary/twin.cuh"]
)
def test_sources_that_do_not_compile_are_named(
    file: str,
    tree: Path,
    fresh_load: Callable[[sources.ModuleName], object],
) -> None:
    path = tree / "csrc" / file
    line = path.read_text().count("\n") + 1
    with path.open("a") as source:
        source.write("int broken = ;\n")
    with pytest.raises(UnsupportedError) as caught:
        fresh_load("_cpu")
    assert f"(csrc/{file}:{line}: expected" in str(caught.value)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            ModuleNotFoundError("no such module"),
            "bindings._cpu is not built for Python 3.",
        ),
        (
            ImportError("libstdc++.so.6: too old"),
            "cannot be loaded (libstdc++.so.6: too old)",
        ),
    ],
)
def test_module_that_cannot_be_imported_is_refused(
    error: ImportError,
    says: str,
    fresh_load: Callable[[sources.ModuleName], object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def import_module(name: str) -> None:
        raise error

    monkeypatch.setattr(importlib, "import_module", import_module)
    with pytest.raises(UnsupportedError) as caught:
        fresh_load("_cpu")
    assert says in str(caught.value)
    assert prebuilt.REBUILD_COMMAND in str(caught.value)


def test_missing_gpu_module_says_what_it_lacks(
    fresh_load: Callable[[sources.ModuleName], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "bindings._cuda", None)
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(UnsupportedError, match="is a CPU build"):
        fresh_load("_cuda")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(toolchain, "find_cuda_home", lambda: None)
    with pytest.raises(UnsupportedError, match=r"no nvcc is found.*\.\[nvcc\]"):
        fresh_load("_cuda")


def make_toolkit(home: Path, release: str = "13.0") -> Path:
    """Makes a stand-in for a CUDA toolkit, whose nvcc prints its place and release."""
    (home / "bin").mkdir(parents=True)
    (home / "include").mkdir()
    (home / "include/cuda_runtime.h").touch()
    nvcc = home / "bin/nvcc"
    nvcc.write_text(
        f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{release}.1'\n"
        f"echo '#$ _HERE_={home}/bin' >&2\n"
    )
    nvcc.chmod(0o755)
    return home


@pytest.fixture
def no_toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment without CUDA, whatever this machine has."""
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(
        "sysconfig.get_path", lambda name: str(tmp_path / "site-packages")
    )
    monkeypatch.setattr(toolchain, "USUAL_CUDA_HOME", tmp_path / "usual")


@pytest.mark.usefixtures("no_toolkit")
def test_toolkits_are_tried_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert toolchain.find_cuda_home() is None

    # A wrapper script: the toolkit is where nvcc says, not where the script lies.
    on_path = make_toolkit(tmp_path / "elsewhere")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/nvcc").write_text(f'#!/bin/sh\nexec {on_path}/bin/nvcc "$@"\n')
    (tmp_path / "bin/nvcc").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}/bin")
    assert toolchain.find_cuda_home() == on_path

    usual = make_toolkit(tmp_path / "usual")
    assert toolchain.find_cuda_home() == usual

    by_pip = make_toolkit(tmp_path / "site-packages/nvidia/cu13")
    assert toolchain.find_cuda_home() == by_pip

    named = make_toolkit(tmp_path / "named")
    monkeypatch.setenv("CUDA_HOME", str(named))
    assert toolchain.find_cuda_home() == named

    (named / "include/cuda_runtime.h").unlink()
    assert toolchain.find_cuda_home() == by_pip


@pytest.mark.usefixtures("no_toolkit")
def test_toolkit_of_another_release_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = make_toolkit(tmp_path / "toolkit", release="12.9")
    monkeypatch.setenv("CUDA_HOME", str(home))
    obstacle = toolchain.cuda_obstacle("2.11.0", "13.0")
    assert obstacle is not None
    assert "is CUDA 12.9, torch 2.11.0 is built for CUDA 13.0" in obstacle

    obstacle = toolchain.cuda_obstacle("2.11.0", "12.8")
    assert obstacle is not None
    assert "has no libcudart_static.a" in obstacle

    (home / "lib64").mkdir()
    (home / "lib64/libcudart_static.a").touch()
    assert toolchain.cuda_obstacle("2.11.0", "12.8") is None


def test_architectures_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0;9.0a 12.0+PTX")
    assert toolchain.gencode_flags() == [
        "-gencode=arch=compute_80,code=sm_80",
        "-gencode=arch=compute_90a,code=sm_90a",
        "-gencode=arch=compute_120,code=sm_120",
        "-gencode=arch=compute_120,code=compute_120",
    ]
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "sm_90")
    with pytest.raises(ValueError, match="'sm_90' is not an architecture"):
        toolchain.gencode_flags()


def test_ninja_is_found_without_activating_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    toolchain.put_ninja_on_path()
    assert shutil.which("ninja") is not None
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(RuntimeError, match="pip install ninja"):
        toolchain.put_ninja_on_path()


def test_build_asks_only_for_what_the_environment_lacks() -> None:
    # pip cuts the environment's packages out of sys.path in just this way.
    script = """
import sys, sysconfig, setuptools.build_meta
sys.path.remove(sysconfig.get_path("purelib"))
import build_backend
print(build_backend.get_requires_for_build_editable())
build_backend.REQUIREMENTS = {"no_such_module": "no-such-module>=1"}
print(build_backend.get_requires_for_build_editable())
"""
    output = subprocess.check_output(
        [sys.executable, "-c", script], text=True, cwd=sources.ROOT
    )
    assert output == "[]\n['no-such-module>=1']\n"


def test_a_launcher_counts_its_arguments() -> None:
    module = prebuilt.load("_cpu")
    with pytest.raises(TypeError, match=r"^softmax takes \d+ arguments, got 1$"):
        module.softmax(0)
    with pytest.raises(RuntimeError, match="cast"):
        module.softmax_plan(*["0"] * 10)
