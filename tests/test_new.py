"""`compare new` writes an op that works, or nothing."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import shared
from common import needs_interpreter

from bindings.registry import OPS
from bindings.sources import ROOT
from compare.cli import main
from compare.code import rungs
from compare.code.architectures import ARCHITECTURES
from compare.commands import new
from compare.errors import UnavailableError, UsageError
from compare.judge.cases import Case, launcher_arguments


def _copy(place: Path) -> None:
    ignore = shutil.ignore_patterns("__pycache__", "*.so")
    for folder in ("bindings", "compare", "csrc", "triton_kernels"):
        shutil.copytree(ROOT / folder, place / folder, ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", place)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the folders with ops, to which a test adds some."""
    _copy(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def untouched() -> Path:
    """A copy of the same that no test changes."""
    return shared.once("checkout", _copy)


# Of an op that the copy has, so that this runs there. Each .cu is compiled by itself,
# and all are one module: most of a build goes to the import of torch.
_COMPUTES = """
import sys
from dataclasses import replace
import bindings
from bindings import build_cache, sources
from bindings.backends import cuda_inline
from bindings.trials import TRIALS
from compare.cli import main
from compare.judge import acceptance
from compare.judge.cases import Case, make_arguments
folder, *names = sys.argv[1:]
assert bindings.__file__.startswith(folder)
assert main(["list"]) == 0
recipes = [cuda_inline._recipe(name, "_cpu", ()) for name in names]
kernels = [
    build_cache.Part(
        name, f'#include "{name}/{name}.cu"', each.cxx_flags, each.include_folders,
        each.files,
    )
    for name, each in zip(names, recipes, strict=True)
]
bound = "".join(map(sources.bindings_of, names))
together = replace(
    recipes[0],
    cpp_source=f'#include "entry.cpp"\\n{bound}',
    parts=(*recipes[0].parts, *kernels),
)
module = build_cache.load(together)
cuda_inline._modules.update({(name, "_cpu", ()): module for name in names})
for name in names:
    trial = TRIALS[name]
    for shape in ((3, 1025), (2, 0), (5, 1)):
        for layout in ("contiguous", "transposed"):
            arguments = make_arguments(trial.op, Case(shape, layout=layout))
            expected = acceptance.expect(trial.op, arguments)
            for backend in ("cuda_inline", "triton"):
                result = getattr(bindings, name)(*arguments, backend=backend)
                verdict = acceptance.judge_all((result,), expected)
                assert verdict.passed, (name, backend, shape, layout, verdict.problem)
"""


@needs_interpreter
def test_new_ops_work_at_once(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(new, "write", functools.partial(new.write, root=checkout))
    names = {kind: f"tested_{kind}" for kind in new.KINDS}
    for kind, name in names.items():
        assert main(["new", name, "--kind", kind]) == 0
    files = re.findall(r"^\w+/\S+$", capsys.readouterr().out, re.MULTILINE)
    assert [each for each in files if not (checkout / each).is_file()] == []
    assert {f"bindings/trials/{name}.py" for name in names.values()} <= {*files}
    listed = subprocess.run(
        [sys.executable, "-c", _COMPUTES, str(checkout), *names.values()],
        cwd=checkout,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    assert all(re.search(rf"\b{name} +forward ", listed) for name in names.values())


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Cube", "'Cube' is no name for an op"),
        ("2cubes", "'2cubes' is no name for an op"),
        ("a-cube", "'a-cube' is no name for an op"),
        ("../cube", "'../cube' is no name for an op"),
        ("cube_", "'cube_' is no name for an op"),
        ("", "'' is no name for an op"),
        ("lambda", "lambda is a word of Python's or of C++'s own"),
        ("double", "double is a word of Python's or of C++'s own"),
        ("softmax", "there is an op softmax already"),
        ("cube_backward", "cube_backward: a backward belongs to the files of its"),
        ("list", "compare list is a command"),
        ("norm", "the name norm is taken by csrc/norm, triton_kernels/norm"),
        ("layout", "the name layout is taken by bindings/layout.py"),
        ("torch", "the name torch is taken by an import of the op's own file"),
    ],
)
def test_a_name_that_no_op_can_have(
    name: str, says: str, untouched: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(untouched.rglob("*"))
    with pytest.raises(UsageError) as refused:
        new.write(name, "rows", untouched)
    assert str(refused.value).startswith(says)
    assert sorted(untouched.rglob("*")) == before
    assert main(["new", name, "--kind", "rows"]) == UsageError.exit_code
    assert capsys.readouterr().err.startswith(f"compare: {says}")


def test_an_installed_package_gets_no_op(checkout: Path) -> None:
    (checkout / "pyproject.toml").unlink()
    before = sorted(checkout.rglob("*"))
    with pytest.raises(UnavailableError, match="is no checkout"):
        new.write("tested_cubes", "rows", checkout)
    assert sorted(checkout.rglob("*")) == before


def test_where_there_is_no_twin_the_last_rung_is_shown() -> None:
    op = replace(OPS["gelu"], rungs=("first",))
    shown = rungs.choose(
        op,
        None,
        lambda on_rung: launcher_arguments(on_rung, Case((1000,))),
        ARCHITECTURES[90],
    )
    assert {each.op.rung for each in shown.values()} == {"first"}
