"""The rooms of compare: arrows point one way, and no two modules share a name."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from bindings.sources import ROOT

# From the ground floor up: a room imports from those below it, and from its own.
FLOORS = (
    ("background", "errors", "printable", "parameters", "repository"),
    ("assembly",),
    ("ptx_simulator",),
    ("code",),
    ("judge",),
    ("peers",),
    ("timing",),
    ("records",),
    ("report",),
    ("pairs",),
    ("options", "output"),
    ("commands",),
    ("cli",),
    ("__main__",),
)
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}


def _modules(root: Path) -> dict[str, Path]:
    """The modules of compare, by name without "compare."."""
    folder = root / "compare"
    found = {}
    for path in folder.rglob("*.py"):
        parts = path.relative_to(folder).with_suffix("").parts
        found[".".join(parts).removesuffix("__init__").removesuffix(".")] = path
    return found


def _arrows(root: Path) -> Iterator[tuple[str, str]]:
    """The imports within compare."""
    modules = _modules(root)
    for name, path in modules.items():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom):
                package = node.module or ""
                imported = [f"{package}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                package, imported = "", [alias.name for alias in node.names]
            else:
                continue
            for each in imported:
                whole, parent = (
                    text.removeprefix("compare").removeprefix(".")
                    for text in (each, package)
                )
                if each.split(".")[0] == "compare":
                    yield name, whole if whole in modules else parent


def backward_arrows(root: Path) -> list[str]:
    """The imports from a room into one that does not lie below it."""
    found = set()
    for name, imported in _arrows(root):
        rooms = [each.partition(".")[0] for each in (name, imported)]
        if "" in rooms or rooms[0] == rooms[1]:
            continue
        if FLOOR_OF[rooms[0]] <= FLOOR_OF[rooms[1]]:
            found.add(f"{name} imports {imported}")
    return sorted(found)


def test_every_room_is_known() -> None:
    rooms = {name.partition(".")[0] for name in _modules(ROOT)} - {""}
    assert rooms == FLOOR_OF.keys()


def test_arrows_point_down() -> None:
    assert backward_arrows(ROOT) == []


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("judge/cases.py", "from compare.timing import turns"),
        ("report/text.py", "from compare.commands import bench"),
        ("assembly/listing.py", "import compare.code.cuda"),
    ],
)
def test_an_arrow_that_runs_back_is_found(
    module: str, line: str, tmp_path: Path
) -> None:
    for path in _modules(ROOT).values():
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text("utf-8")
        if copy == tmp_path / "compare" / module:
            text += f"\n\ndef _late() -> None:\n    {line}\n"
        copy.write_text(text, "utf-8")
    importer = module.removesuffix(".py").replace("/", ".")
    (found,) = backward_arrows(tmp_path)
    assert found.startswith(f"{importer} imports ")


def test_no_two_modules_share_a_name() -> None:
    # A peer has the name of its op, and a package its own.
    names = [
        name.rpartition(".")[2]
        for name, path in _modules(ROOT).items()
        if path.stem != "__init__" and not name.startswith("peers.")
    ]
    assert [name for name, count in Counter(names).items() if count > 1] == []


def test_nothing_is_too_long_to_read() -> None:
    too_long = []
    for name, path in _modules(ROOT).items():
        text = path.read_text("utf-8")
        if (n_lines := len(text.splitlines())) > 400:
            too_long.append(f"{name} has {n_lines} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                assert node.end_lineno
                if (n_lines := node.end_lineno - node.lineno + 1) > 60:
                    too_long.append(f"{name}.{node.name} has {n_lines} lines")
    assert too_long == []
