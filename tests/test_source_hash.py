"""A record's hash covers the sources it was made from, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from together import in_one_test

from bindings import sources
from bindings.registry import OPS
from compare.records import source_hash
from compare.records.source_hash import KEY, SIDES, hashes, older_sides

ROOT = sources.ROOT


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the sources, to be edited."""
    ignore = shutil.ignore_patterns("emulator", "__pycache__", "*.so")
    for folder in ("csrc", "triton_kernels"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignore)
    (tmp_path / "bindings").mkdir()
    shutil.copy(ROOT / "bindings/sources.py", tmp_path / "bindings")
    return tmp_path


def append(tree: Path, file: str, text: str) -> None:
    path = tree / file
    path.write_text(f"{path.read_text()}\n{text}\n")


def changed_sides(op: str, tree: Path) -> list[str]:
    before, after = hashes(op), hashes(op, root=tree)
    return [side for side in SIDES if before[side] != after[side]]


def test_every_op_has_a_hash_for_each_side() -> None:
    for name, op in OPS.items():
        found = hashes(name)
        assert tuple(found) == SIDES
        assert all(len(each) == 16 for each in found.values())
        assert found == hashes(op.source)


def test_a_copy_elsewhere_has_the_same_hash(tree: Path) -> None:
    for name in OPS:
        assert hashes(name, root=tree) == hashes(name)


def test_it_covers_what_is_included_and_imported() -> None:
    cuda = source_hash._cuda_files(ROOT, "softmax")
    triton = source_hash._triton_files(ROOT, "softmax")
    assert {each.relative_to(ROOT).as_posix() for each in (*cuda, *triton)} >= {
        "csrc/softmax/softmax.cu",
        "csrc/softmax/first.cuh",
        "csrc/common/reduce.cuh",
        "csrc/common/dtype.cuh",  # of common/vec.cuh
        "triton_kernels/softmax/softmax.py",
        "triton_kernels/softmax/first.py",
        "triton_kernels/common/rows.py",
        "triton_kernels/common/device.py",  # of common/table.py
    }
    assert not any(each.is_relative_to(sources.EMULATOR) for each in cuda)
    names = {each.name for each in (*cuda, *triton)}
    assert not names & {"add.cu", "add.py", "philox.cuh", "philox.py"}


@pytest.mark.parametrize(
    ("file", "text", "changed"),
    [
        ("csrc/softmax/softmax.cu", "int x;", ["cuda"]),
        ("csrc/softmax/first.cuh", "int x;", ["cuda"]),
        ("csrc/common/dtype.cuh", "int x;", ["cuda"]),
        ("csrc/softmax/softmax.cu", "// Why.\n\n  /* How. */", []),
        ("csrc/common/dtype.cuh", "// Why.", []),
        ("triton_kernels/softmax/softmax.py", "x = 1", ["triton"]),
        ("triton_kernels/softmax/first.py", "x = 1", ["triton"]),
        ("triton_kernels/common/device.py", "x = 1", ["triton"]),
        ("triton_kernels/softmax/first.py", "# Why.", []),
        ("csrc/add/add.cu", "int x;", []),
        ("csrc/common/philox.cuh", "int x;", []),
        ("triton_kernels/add/add.py", "x = 1", []),
        ("triton_kernels/common/philox.py", "x = 1", []),
        ("bindings/sources.py", "x = 1", []),
    ],
)
def test_an_edit_changes_the_hash_of_what_is_made_from_it(
    file: str, text: str, changed: list[str], tree: Path
) -> None:
    append(tree, file, text)
    assert changed_sides("softmax", tree) == changed


@pytest.mark.parametrize("file", ["csrc/softmax/x.cuh", "triton_kernels/softmax/x.py"])
def test_a_new_file_of_the_op_changes_it(file: str, tree: Path) -> None:
    (tree / file).touch()
    assert len(changed_sides("softmax", tree)) == 1
    assert changed_sides("add", tree) == []


def test_a_file_that_includes_itself_is_read_once(tree: Path) -> None:
    append(tree, "csrc/common/dtype.cuh", '#include "common/vec.cuh"')
    assert changed_sides("softmax", tree) == ["cuda"]


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("from triton_kernels.common import philox", True),
        ("import triton_kernels.common.philox", True),
        ("from ..common.philox import random_words", True),
        (
            "def f():\n    from triton_kernels.common.philox import random_words",
            True,
        ),
        ("# from triton_kernels.common.philox import random_words", False),
    ],
)
def test_imports_of_every_form_count(line: str, counts: bool, tree: Path) -> None:
    append(tree, "triton_kernels/add/add.py", line)
    found = source_hash._triton_files(tree, "add")
    assert (tree / "triton_kernels/common/philox.py" in found) == counts


@in_one_test("text", "kept")
@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a //b\n  c", "a\nc"),
        ("a / b /**/ c", "a / b c"),
        ("// a\n\n\n  b;  // c", "b;"),
        ('"a // b" /* c */', '"a // b"'),
        (r'"\" // a" // b', r'"\" // a"'),
        ("'\"' // \"", "'\"'"),
        ("1'000 /* ' */ + 2'000", "1'000 + 2'000"),
        ('R"(a " // b)" // c', 'R"(a " // b)"'),
        ("a // b \\\n c\nd", "a\nd"),
        ("// /* a\nb // */", "b"),
        ("#define A /* b\n */ c\n  d", "#define A c\nd"),
        ("#define A \\\n    b\nc", "#define A b\nc"),
        ('asm("a;  // b\\n")', 'asm("a;  // b\\n")'),
    ],
)
def test_what_counts_of_a_source_in_cuda(text: str, kept: str) -> None:
    assert source_hash._kept_of_cuda(text) == kept


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("x = 1\n", "# a\n\nx  =  1  # b\n"),
        ("def f():\n    x = 1\n", 'def f():\n  """A."""\n\n  x = 1\n'),
        ("import a\n", "'''A.\n\nB.'''\n\nimport a\n"),
        ("f(a, b)\n", "f(\n    a,  # a\n    b\n)\n"),
    ],
)
def test_what_does_not_count_of_a_module(text: str, same: str) -> None:
    assert source_hash._kept_of_python(text) == source_hash._kept_of_python(same)


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("x = 1\n", "x = 2\n"),
        ("x = '# a'\n", "x = '# b'\n"),
        ("x = '''a\n\nb'''\n", "x = '''a\nb'''\n"),
        ("f('''a''')\n", "f('''b''')\n"),
        ("x = f'{a} b'\n", "x = f'{a}  b'\n"),
        ("f'{a()}'\n", ""),
        ("if a:\n    b\nc\n", "if a:\n    b\n    c\n"),
    ],
)
def test_what_counts_of_a_module(text: str, other: str) -> None:
    assert source_hash._kept_of_python(text) != source_hash._kept_of_python(other)


def test_older_sides(tree: Path) -> None:
    environment = {KEY: hashes("softmax")}
    assert older_sides(environment, "softmax") == ()
    assert older_sides(environment, "softmax_backward") == ()
    assert older_sides(environment, "add") == SIDES
    append(tree, "csrc/common/reduce.cuh", "int x;")
    assert older_sides(environment, "softmax", root=tree) == ("cuda",)
    append(tree, "triton_kernels/softmax/first.py", "x = 1")
    assert older_sides(environment, "softmax", root=tree) == SIDES


@pytest.mark.parametrize(
    "environment", [{}, {KEY: None}, {KEY: "abc"}, {KEY: {}}, {KEY: {"cuda": 1}}]
)
def test_without_a_hash_it_is_of_older_code(environment: dict[str, object]) -> None:
    assert older_sides(environment, "softmax") == SIDES


@pytest.mark.parametrize("name", ["of_long_ago", "../csrc/add", "", "add/"])
def test_what_is_no_op_has_no_hash(name: str) -> None:
    assert hashes(name) == {}
    assert older_sides({KEY: {}}, name) == SIDES


def test_a_hash_of_several_ops(tree: Path) -> None:
    before = hashes("add", "softmax")
    assert before == hashes("softmax", "add")
    append(tree, "csrc/add/add.cu", "int x;")
    after = hashes("add", "softmax", root=tree)
    assert after["cuda"] != before["cuda"]
    assert after["triton"] == before["triton"]


def test_flags_are_those_of_the_build(tree: Path) -> None:
    assert source_hash._nvcc_flags(ROOT) == repr(sources.NVCC_FLAGS)
    file = tree / "bindings/sources.py"
    file.write_text(file.read_text().replace('"-O3"', '"-O0"'))
    assert changed_sides("softmax", tree) == ["cuda"]
