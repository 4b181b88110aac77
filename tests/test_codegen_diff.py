"""Folding repetitions, and putting two listings side by side."""

from __future__ import annotations

from compare.codegen.diff import BACKGROUND, LOOP, align
from compare.codegen.fold import Node, Repeat, Step, fold
from compare.codegen.listing import Listing, parse_ptx


def steps(text: str) -> list[Step]:
    return [Step(letter, (index,)) for index, letter in enumerate(text)]


def written(nodes: list[Node] | tuple[Node, ...]) -> str:
    return "".join(
        each.key if isinstance(each, Step) else f"{each.count}({written(each.pattern)})"
        for each in nodes
    )


def test_fold_writes_repetitions_once() -> None:
    assert written(fold(steps("abc"))) == "abc"
    assert written(fold(steps("aaab"))) == "3(a)b"
    assert written(fold(steps("xababab"))) == "x3(ab)"
    assert written(fold(steps("aabaabaab"))) == "3(2(a)b)"
    assert written(fold([])) == ""


def test_fold_keeps_every_place() -> None:
    (repeat,) = fold(steps("aabaab"))
    assert isinstance(repeat, Repeat)
    assert sorted(repeat.indices) == [0, 1, 2, 3, 4, 5]
    assert repeat.pattern[1].indices == (2, 5)


def ptx_of(*statements: str) -> Listing:
    lines = "\n".join(f"{each};" if each[-1] != ":" else each for each in statements)
    return parse_ptx(f".entry k(\n)\n{{\n{lines}\nret;\n}}")


LEFT = ptx_of(
    "mov.u32 %r1, %tid.x",
    "ld.global.nc.f32 %f1, [%rd1]",
    "shfl.sync.bfly.b32 %r2, %r1, 16, 31, -1",
    "max.f32 %f1, %f1, %f2",
    "shfl.sync.bfly.b32 %r2, %r1, 8, 31, -1",
    "max.f32 %f1, %f1, %f2",
    "ex2.approx.f32 %f3, %f1",
    "st.global.f32 [%rd2], %f3",
)
RIGHT = ptx_of(
    "mov.u32 %r1, %ctaid.x",
    "mul.wide.s32 %rd1, %r1, 4",
    "ld.global.v4.b32 {%r2, %r3, %r4, %r5}, [%rd1]",
    "bar.sync 0",
    "ex2.approx.f32 %r6, %r2",
    "st.global.b32 [%rd2], %r6",
)


def test_rows_of_two_listings() -> None:
    rows = [(each.left, each.marker, each.right) for each in align(LEFT, RIGHT)]
    assert rows == [
        ("move x1", " ", "move x1, integer / address x1"),
        (
            "ld.global.nc.f32 %r1, [%rd0]",
            "|",
            "ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd0]",
        ),
        ("2x \u250c shfl.sync.bfly.b32", "<", ""),
        ("   \u2514 max.f32", "<", ""),
        ("", ">", "bar.sync 0"),
        ("ex2.approx.f32 %r4, %r1", " ", "ex2.approx.f32 %r5, %r1"),
        ("st.global.f32 [%rd1], %r4", " ", "st.global.b32 [%rd1], %r5"),
        ("branch / control x1", " ", "branch / control x1"),
    ]


def test_rows_stand_for_every_instruction_once() -> None:
    rows = align(LEFT, RIGHT)
    for side, listing in (("left", LEFT), ("right", RIGHT)):
        indices = [i for row in rows for i in getattr(row, f"{side}_indices")]
        assert sorted(indices) == list(range(len(listing.instructions)))


def test_a_pattern_counts_as_the_same_however_it_is_arranged() -> None:
    turns = ptx_of(*["sub.f32 %f1, %f1, %f2", "mul.f32 %f1, %f1, %f3"] * 4)
    runs = ptx_of(*["sub.f32 %f1, %f1, %f2"] * 4, *["mul.f32 %f1, %f1, %f3"] * 4)
    events = [row for row in align(turns, runs) if row.category != BACKGROUND]
    assert [row.kind for row in events] == ["same", "same"]
    assert [row.right for row in events] == ["sub.f32 x4", "mul.f32 x4"]


def test_loops_are_rows_of_their_own() -> None:
    looping = ptx_of(
        "$LOOP:", "ld.global.f32 %f1, [%rd1]", "@%p1 bra $LOOP", "bar.sync 0"
    )
    straight = ptx_of("ld.global.f32 %f1, [%rd1]", "bar.sync 0")
    rows = align(looping, straight)
    loops = [row for row in rows if row.category == LOOP]
    assert [(row.left, row.kind) for row in loops] == [
        ("loop {", "left"),
        ("}", "left"),
    ]
    load = next(row for row in rows if row.category == "global load")
    assert (load.left, load.kind) == ("  ld.global.f32 %r0, [%rd0]", "same")


def test_equal_listings_differ_nowhere() -> None:
    assert {row.kind for row in align(LEFT, LEFT)} == {"same"}


def test_an_empty_side() -> None:
    empty = parse_ptx(".entry k(\n)\n{\n}")
    assert align(empty, empty) == ()
    assert {row.kind for row in align(LEFT, empty)} == {"left"}
