"""The load_inline route: its builds, and obstacles that must not stop them."""

import ctypes
import json
import os
import re
import resource
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pybind11
import pytest
import torch
from emulated import object_of

import bindings
from bindings import build_cache, sources, toolchain
from bindings.backends import cuda_inline
from bindings.build_cache import Part, Recipe
from bindings.errors import BuildError
from bindings.registry import OPS

# A Python module that compiles in half a second: answer() returns what answer.h says.
MODULE = """
#include <Python.h>
#include "answer.h"
#define CONCATENATE(a, b) a##b
#define INITIALIZER(name) CONCATENATE(PyInit_, name)
static PyObject* answer(PyObject*, PyObject*) { return PyLong_FromLong(ANSWER); }
static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, nullptr}, {}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "tiny", nullptr, -1, methods};
PyMODINIT_FUNC INITIALIZER(TORCH_EXTENSION_NAME)() {
    return PyModule_Create(&definition);
}
"""

# Notes every compilation, and obeys the files beside it.
COMPILER = """#!/bin/sh
here=$(dirname "$0")
case "$*" in *main.cpp*)
    echo compiled >> "$here/log"
    while [ -e "$here/block" ]; do sleep 0.05; done
    if [ -e "$here/edit" ]; then mv "$here/edit" "$here/answer.h"; fi
esac
exec c++ "$@"
"""

# Builds a recipe and prints its answer, in a process of its own.
SCRIPT = """
import json, sys
from pathlib import Path
from typing import Any
from bindings import build_cache
fields = json.load(sys.stdin)
for name in ("include_folders", "files"):
    fields[name] = tuple(map(Path, fields[name]))
print(build_cache.load(build_cache.Recipe(**fields)).answer())
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an awkward name: the sources, a compiler, and the cache."""
    folder = tmp_path / "with space, 'quotes' and ü"
    folder.mkdir()
    compiler = folder / "g++"
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    # Not every torch takes a compiler whose path has a space.
    link = tmp_path / "link"
    link.symlink_to(folder)
    monkeypatch.setenv("CXX", str(link / "g++"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    # As it is where the virtual environment is not activated: ninja is not on PATH.
    binaries = str(Path(sys.executable).parent)
    paths = os.environ["PATH"].split(os.pathsep)
    monkeypatch.setenv("PATH", os.pathsep.join(p for p in paths if p != binaries))
    return folder


@pytest.fixture
def compiled_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves out load_inline, whose process is no part of the test.

    It imports torch for each build, which takes five times as long as the compiler.
    """

    def compile_alone(recipe: Recipe, hash_: str, path: Path) -> None:
        source = path.parent / "main.cpp"
        source.write_text(recipe.cpp_source)
        includes = [*recipe.include_folders, sysconfig.get_path("include")]
        command = [os.environ.get("CXX", "c++"), *recipe.cxx_flags, "-shared", "-fPIC"]
        command += [str(source), *(f"-I{each}" for each in includes)]
        command += map(str, map(build_cache.object_file, recipe.parts))
        command += [f"-DTORCH_EXTENSION_NAME={path.stem}", "-o", str(path)]
        build_cache._run(command, "", recipe.name, path.parent.parent)

    monkeypatch.setattr(build_cache, "_compile_module", compile_alone)


def recipe(folder: Path, answer: int) -> Recipe:
    header = folder / "answer.h"
    header.write_text(f"#define ANSWER {answer}\n")
    return Recipe(
        name="tiny",
        cpp_source=MODULE,
        cuda_source="",
        cxx_flags=("-std=c++20",),
        nvcc_flags=(),
        include_folders=(folder,),
        files=(header,),
        cuda_home=None,
    )


def in_another_process(recipe: Recipe) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        cwd=sources.ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin
    process.stdin.write(json.dumps(vars(recipe), default=str))
    process.stdin.close()
    process.stdin = None
    return process


def n_compilations(folder: Path) -> int:
    return len((folder / "log").read_text().split())


def modules(folder: Path) -> list[Path]:
    return list((folder / "cache").rglob("*.so"))


@pytest.mark.usefixtures("compiled_alone")
def test_processes_with_different_sources_at_once_get_their_own(folder: Path) -> None:
    other = folder / "other"
    other.mkdir()
    recipes = [recipe(folder, 1), recipe(other, 2)]
    forks = [_answer_of_a_fork(r) for r in recipes]
    # This one shares a build with the one of the same sources.
    assert build_cache.load(recipes[0]).answer() == 1
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in forks] == [1, 2]
    assert [build_cache.load(r).answer() for r in recipes] == [1, 2]
    assert n_compilations(folder) == 2


def _answer_of_a_fork(recipe: Recipe) -> int:
    """Starts a process that builds a recipe, and ends with its answer as its status."""
    pid = os.fork()
    if pid:
        return pid
    status = 100
    try:
        status = build_cache.load(recipe).answer()
    finally:
        os._exit(status)


def test_killed_build_does_not_block_the_next(folder: Path) -> None:
    environment = dict(os.environ)
    (folder / "block").touch()
    process = in_another_process(recipe(folder, 1))
    deadline = time.monotonic() + 60
    while not (folder / "log").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.communicate()
    (folder / "block").unlink()
    (lock,) = (folder / "cache").rglob("*.lock")
    lock.write_text("999999")  # as if a process that is gone had left it

    assert build_cache.load(recipe(folder, 1)).answer() == 1
    assert dict(os.environ) == environment
    assert [path.suffix for path in sorted(lock.parent.iterdir())] == [".lock", ".so"]


@pytest.mark.usefixtures("compiled_alone")
def test_changed_header_is_compiled_and_an_old_one_is_still_there(folder: Path) -> None:
    # Whether the clock was wrong when it was written, or is now.
    for answer, modified in ((1, 4e9), (2, 0), (1, 4e9)):
        changed = recipe(folder, answer)
        os.utime(folder / "answer.h", (modified, modified))
        assert build_cache.load(changed).answer() == answer
    assert n_compilations(folder) == 2


@pytest.mark.usefixtures("compiled_alone")
def test_header_edited_during_the_build_is_compiled_again(folder: Path) -> None:
    (folder / "edit").write_text("#define ANSWER 2\n")
    assert build_cache.load(recipe(folder, 1)).answer() == 2
    assert len(modules(folder)) == 1


@pytest.mark.usefixtures("compiled_alone")
def test_threads_share_one_build_and_are_told_of_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build_cache, "PATIENCE_S", 0.01)
    tiny = recipe(folder, 1)
    answers = []
    threads = [
        threading.Thread(target=lambda: answers.append(build_cache.load(tiny).answer()))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [1, 1, 1]
    assert n_compilations(folder) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count(f"compiling tiny, to be kept in {folder}") == 1
    assert "waiting for another process that compiles tiny" in captured.err


@pytest.mark.parametrize(
    "change",
    [
        {"cxx_flags": ("-std=c++20", "-O1")},
        {"cpp_source": MODULE + "// more"},
        {"include_folders": (Path("elsewhere"),)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_fingerprint_covers_the_recipe(folder: Path, change: dict[str, Any]) -> None:
    tiny = recipe(folder, 1)
    changed = replace(tiny, **change)
    assert build_cache._fingerprint(changed) != build_cache._fingerprint(tiny)


@pytest.mark.parametrize(
    ("target", "name", "value"),
    [
        (torch, "__version__", "9.9.9"),
        (torch.version, "cuda", "99.9"),
        (pybind11, "__version__", "9.9.9"),
        (build_cache, "_version_of", lambda command: "c++ 99"),
        (os, "environ", {**os.environ, "CPATH": "/elsewhere"}),
    ],
    ids=["torch", "cuda", "pybind11", "compiler", "environment"],
)
def test_fingerprint_covers_the_environment(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    target: object,
    name: str,
    value: object,
) -> None:
    tiny = recipe(folder, 1)
    before = build_cache._fingerprint(tiny)
    monkeypatch.setattr(target, name, value)
    assert build_cache._fingerprint(tiny) != before


def test_only_what_python_calls_is_made_for_its_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = (cuda_inline.for_python(), cuda_inline.emulator())
    before = list(map(build_cache._fingerprint, parts))
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: f"another {name}")
    of_another = list(map(build_cache._fingerprint, parts))
    assert [x == y for x, y in zip(before, of_another, strict=True)] == [False, True]


def test_checkouts_share_parts_that_name_no_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fingerprint(checkout: str, names_no_file: bool) -> str:
        monkeypatch.setattr(build_cache, "ROOT", Path(checkout))
        folders = (Path(checkout, "csrc"),)
        part = Part("part", "int x;", (), folders, (), names_no_file)
        return build_cache._fingerprint(part)

    assert fingerprint("/here", True) == fingerprint("/there", True)
    assert fingerprint("/here", False) != fingerprint("/there", False)


def test_parts_name_the_files_that_they_may_name() -> None:
    parts = (cuda_inline.for_python(), cuda_inline.emulator(), cuda_inline.checker())
    names = [
        any(
            name in object_of(part).read_bytes()
            for name in (b"/emulator/", b"/include/")
        )
        for part in parts
    ]
    assert names == [False, False, True]
    assert [part.names_no_file for part in parts] == [True, True, False]


def test_compile_error_shows_what_the_compiler_said(folder: Path) -> None:
    tiny = recipe(folder, 1)
    (folder / "answer.h").write_text("#error not today\n")
    with pytest.raises(BuildError) as error:
        build_cache.load(tiny)
    text = str(error.value)
    assert text.startswith("tiny cannot be built:\n")
    assert "answer.h:1:2: error: #error not today" in text
    assert "-DTORCH_EXTENSION_NAME" not in text
    assert modules(folder) == []


def test_missing_compiler_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(BuildError, match="no C\\+\\+ compiler: 'no-such-compiler'"):
        build_cache.load(recipe(folder, 1))


def test_missing_python_headers_are_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(folder))
    with pytest.raises(BuildError, match=r"headers are missing .*Python\.h"):
        build_cache.load(recipe(folder, 1))


def test_cache_folder_is_private(folder: Path) -> None:
    assert build_cache.cache_folder().stat().st_mode & 0o777 == 0o700


def test_cache_folder_that_cannot_be_made_is_named(folder: Path) -> None:
    (folder / "cache").touch()
    with pytest.raises(
        BuildError, match=f"{folder}/cache/.* cannot be used.*XDG_CACHE"
    ):
        build_cache.cache_folder()


def test_cache_folder_that_others_can_write_to_is_refused(folder: Path) -> None:
    build_cache.cache_folder().chmod(0o770)
    with pytest.raises(BuildError, match="others can write to it"):
        build_cache.cache_folder()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_cache_folder_of_somebody_else_is_refused(folder: Path) -> None:
    os.chown(build_cache.cache_folder(), 12345, -1)
    with pytest.raises(BuildError, match="belongs to user 12345"):
        build_cache.cache_folder()


def test_cache_folder_that_ninja_would_misread_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "$HOME"))
    with pytest.raises(BuildError, match=r"\$HOME.* cannot be used: ninja takes a \$"):
        build_cache.load(recipe(folder, 1))


@contextmanager
def without_privileges() -> Iterator[None]:
    """Opens files as an ordinary user, since root could write anywhere."""
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None)
    libc.setfsuid(65534)
    try:
        yield
    finally:
        libc.setfsuid(0)


@pytest.mark.usefixtures("compiled_alone")
def test_read_only_cache_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    # Not where pytest puts temporary files: root keeps those to itself.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        monkeypatch.setenv("XDG_CACHE_HOME", name)
        built = recipe(folder, 1)
        assert build_cache.load(built).answer() == 1
        (other := folder / "other").mkdir()
        new = recipe(other, 2)
        cache = build_cache.cache_folder()
        for path in (cache.parent, cache):
            path.chmod(0o555)
        with without_privileges():
            assert build_cache.load(built).answer() == 1
            with pytest.raises(
                BuildError, match=r"cannot be used: .*Permission denied"
            ):
                build_cache.load(new)
        # As where a build had begun before.
        lock = f"tiny_{build_cache._fingerprint(new)[:20]}.lock"
        (cache / lock).touch()
        (cache / lock).chmod(0o666)
        with (
            without_privileges(),
            pytest.raises(BuildError, match=r"cannot be used: .*denied.*\.tmp"),
        ):
            build_cache.load(new)


# While it writes ninja's input, and in the middle of compiling.
@pytest.mark.parametrize("n_bytes", [600, 3000])
def test_full_disk_is_named_and_nothing_is_left_there(
    folder: Path, n_bytes: int
) -> None:
    cache = build_cache.cache_folder()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, limits[1]))
    try:
        with pytest.raises(BuildError) as error:
            build_cache.load(recipe(folder, 1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert str(error.value).startswith("tiny cannot be built:\n")
    assert re.search("ile (too large|size limit exceeded)", str(error.value))
    assert "Traceback" not in str(error.value)
    assert [path.suffix for path in cache.iterdir()] == [".lock"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left")])
def test_interrupted_end_of_a_build_leaves_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def compile_nothing(recipe: Recipe, hash_: str, path: Path) -> None:
        path.touch()

    def replace_nothing(source: Path, target: Path) -> None:
        raise error

    monkeypatch.setattr(build_cache, "_compile_module", compile_nothing)
    monkeypatch.setattr(os, "replace", replace_nothing)
    expected = BuildError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(expected):
        build_cache.load(recipe(folder, 1))
    cache = build_cache.cache_folder()
    assert [path.suffix for path in cache.iterdir()] == [".lock"]


@pytest.mark.usefixtures("compiled_alone")
def test_module_that_lost_data_is_built_again(folder: Path) -> None:
    tiny = recipe(folder, 1)
    assert build_cache.load(tiny).answer() == 1
    (path,) = modules(folder)
    content = path.read_bytes()
    path.unlink()  # this process has it open
    path.write_bytes(content[: len(content) // 2])
    # Loading that would end this process.
    assert build_cache.load(tiny).answer() == 1
    assert n_compilations(folder) == 2


def test_module_that_does_not_load_is_named(folder: Path) -> None:
    tiny = recipe(folder, 1)
    path = build_cache.cache_folder() / f"tiny_{build_cache._fingerprint(tiny)[:20]}.so"
    path.write_text("not a library")
    build_cache._seal(path)
    with pytest.raises(BuildError, match=rf"{path.name} was built but cannot be load"):
        build_cache.load(tiny)


@pytest.mark.parametrize("module", ["_cpu", "_cuda"])
def test_sources_are_included_not_copied(module: sources.ModuleName) -> None:
    obstacle = toolchain.cuda_obstacle(torch.__version__, torch.version.cuda)
    if module == "_cuda" and obstacle:
        pytest.skip(obstacle)
    made = cuda_inline._recipe("add", module, ())
    included = made.cpp_source.removesuffix(sources.bindings_of("add"))
    assert set((included + made.cuda_source).splitlines()) == {
        f'#include "{name}"' for name in ("add/add.cu", "entry.cpp")
    }


def test_fingerprint_covers_all_that_is_included() -> None:
    cpu, checked = (cuda_inline._recipe("matmul", m, ()) for m in ("_cpu", "_checked"))
    assert [each.name for each in cpu.parts] == ["for_python", "emulator"]
    made: list[tuple[Recipe | Part, str]] = [(cpu, cpu.cpp_source)]
    made += [(part, part.source) for part in checked.parts]
    for each, text in made:
        folders = (*each.include_folders, sysconfig.get_path("include"))
        command = ["c++", "-std=c++20", "-M", *(f"-I{folder}" for folder in folders)]
        done = subprocess.run(
            [*command, "-x", "c++", "-"],
            input=text,
            text=True,
            capture_output=True,
            check=True,
        )
        included = {Path(word).resolve() for word in done.stdout.split()}
        folders = (sources.CSRC, sources.NATIVE)
        ours = {path for path in included if any(map(path.is_relative_to, folders))}
        assert ours
        assert ours <= {path.resolve() for path in each.files}


@pytest.mark.usefixtures("compiled_alone")
def test_part_is_compiled_once_for_all_modules(folder: Path) -> None:
    header = folder / "answer.h"
    part = Part(
        name="half",
        source='#include "answer.h"\nint half() { return ANSWER / 2; }',
        flags=("-std=c++20",),
        include_folders=(folder,),
        files=(header,),
    )
    module = f"int half();{MODULE.replace('ANSWER', 'half()')}"
    tiny = replace(recipe(folder, 84), cpp_source=module, parts=(part,))
    kept = build_cache.object_file(part)
    assert kept.parent == build_cache.cache_folder()
    before = kept.stat().st_mtime_ns
    assert build_cache.load(tiny).answer() == 42
    assert build_cache.object_file(part) == kept
    assert kept.stat().st_mtime_ns == before
    # And again, if what it is made from has changed; so have its modules.
    fingerprint = build_cache._fingerprint(tiny)
    header.write_text("#define ANSWER 86\n")
    assert build_cache.object_file(part) != kept
    assert build_cache._fingerprint(tiny) != fingerprint


def test_part_that_does_not_compile(folder: Path) -> None:
    part = Part("half", "int half() { return }", (), (), ())
    with pytest.raises(BuildError, match="expected primary-expression") as error:
        build_cache.object_file(part)
    assert str(error.value).startswith("half cannot be built:\n")
    assert list(build_cache.cache_folder().glob("*.o")) == []


def test_op_in_the_emulator() -> None:
    op = OPS["swiglu"]
    gate, up, out = torch.randn(37), torch.randn(37), torch.empty(37)
    module = cuda_inline.load(op, "_cpu")
    cuda_inline.run(op, out, gate, up)
    assert torch.equal(out, bindings.swiglu(gate, up, backend="cuda"))
    assert module.__name__.startswith("swiglu_cpu_")
    assert module.__name__.endswith(module.source_hash[:20])
    assert cuda_inline.load(op, "_cpu") is module


@pytest.mark.skipif(torch.version.cuda is not None, reason="needs a CPU build of torch")
def test_gpu_module_under_a_cpu_build_of_torch_is_refused() -> None:
    with pytest.raises(BuildError, match=r"add cannot be built for a GPU: .*CPU build"):
        cuda_inline.load(OPS["add"], "_cuda")


def test_gpu_module_of_one_architecture(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if obstacle := toolchain.cuda_obstacle(torch.__version__, torch.version.cuda):
        pytest.skip(obstacle)
    monkeypatch.delenv("CXX")  # nvcc has no use for the wrapper
    # A path with these letters makes torch forget every -gencode.
    monarch = folder / "monarch"
    monarch.mkdir()
    # torch takes away the operators of half.
    kernel = """
        #include <cuda_fp16.h>
        __global__ void double_kernel(__half* x) { *x = *x + *x; }
        int architecture() { return __CUDA_ARCH_LIST__; }
    """
    tiny = replace(
        recipe(monarch, 1),
        cpp_source=f"int architecture();\n{MODULE}",
        cuda_source=kernel,
        nvcc_flags=("-std=c++20", "-gencode=arch=compute_80,code=sm_80"),
        cuda_home=toolchain.find_cuda_home(),
    )
    (monarch / "answer.h").write_text("#define ANSWER architecture()\n")
    assert build_cache.load(tiny).answer() == 800
