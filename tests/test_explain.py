"""The glossary: an entry for each rule and for each line of the first screen."""

from __future__ import annotations

import re

import pytest

from compare.cli import main
from compare.code.findings import RULES
from compare.report import glossary


def test_every_rule_is_explained() -> None:
    assert {each.name for each in RULES} <= glossary.read().keys()


def test_every_line_of_figures_is_explained(
    beside_other_tests: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["softmax", "--shape", "4x8", "--backend", "cuda"]) == 0
    _, figures, *_ = capsys.readouterr().out.split("\n\n")
    rows = [line.strip().partition("  ")[0] for line in figures.splitlines()[1:]]
    names = {each.removesuffix(", bytes") for each in rows}
    assert {"ran on", "at most", "shared memory"} <= names
    assert names - glossary.read().keys() == set()


def test_entries_stand_in_the_order_of_their_names() -> None:
    names = [each.lower() for each in glossary.read()]
    assert names == sorted(names)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("executed", "executed"),
        ("Coalescing", "coalescing"),
        ("sectors of fewest", "bytes / sectors of fewest"),
        ("relative to row", "max error, relative to row"),
    ],
)
def test_an_entry(line: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *line.split()]) == 0
    first, _, entry = capsys.readouterr().out.partition("\n\n")
    assert first == name
    assert entry.strip() == glossary.read()[name]


def test_all_entries(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain"]) == 0
    assert capsys.readouterr().out.splitlines() == list(glossary.read())


@pytest.mark.parametrize(
    ("term", "says"),
    [
        ("vecto width", "did you mean vector width?"),
        ("xyzzy", "without one it lists all"),
        ("TMA", "it is told of under asynchronous copies"),  # and not in "softmax"
    ],
)
def test_what_is_no_term(
    term: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", term]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("sentence", "rule", "terms"),
    [
        ("Both move 8 bytes. A loop turns 4 times, loops.", "loops", ["loops"]),
        ("It stores 16 bytes (st.global.v4.f32).", "vector width", ["vector width"]),
        ("Bank conflicts of shared memory.", "", ["bank conflicts", "shared memory"]),
        ("exp(x), by ex2; twindow; some.tanh.f32; at most 4.", "", ["exp"]),
        ("Nothing of all that.", "unknown", []),
    ],
)
def test_terms_of_a_sentence(sentence: str, rule: str, terms: list[str]) -> None:
    parts = glossary.parts(sentence, rule, glossary.explanations())
    assert [each.term for each in parts if each.term] == terms
    text = "".join(each.text for each in parts)
    assert text == sentence or text == f"{sentence} {rule}"


def test_no_entry_is_left_without_an_anchor() -> None:
    anchors = {glossary.anchor(each) for each in glossary.read()}
    assert len(anchors) == len(glossary.read())
    assert all(re.fullmatch(r"[\w-]+", each) for each in anchors)
