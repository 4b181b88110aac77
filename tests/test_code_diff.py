"""Putting two listings side by side."""

from __future__ import annotations

from compare.assembly.diff import DiffRow, align
from compare.assembly.listing import Listing, parse_ptx
from compare.assembly.sections import BACKGROUND, LOOP


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


def shown(rows: tuple[DiffRow, ...]) -> list[tuple[str, str, str]]:
    return [
        (each.left, each.marker, each.right)
        for each in rows
        if each.category != BACKGROUND
    ]


def test_rows_of_two_listings() -> None:
    rows = [(each.left, each.marker, each.right) for each in align(LEFT, RIGHT)]
    assert rows == [
        ("move x1", " ", "move x1, integer x1"),
        (
            "ld.global.nc.f32 %r1, [%rd0]",
            "|",
            "ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd0]",
        ),
        ("shfl.sync.bfly.b32 x2", "<", ""),
        ("max.f32 x2", "<", ""),
        ("", ">", "bar.sync 0"),
        ("ex2.approx.f32 %r4, %r1", " ", "ex2.approx.f32 %r5, %r1"),
        ("st.global.f32 [%rd1], %r4", " ", "st.global.b32 [%rd1], %r5"),
        ("branch x1", " ", "branch x1"),
    ]


def test_rows_stand_for_every_instruction_once() -> None:
    rows = align(LEFT, RIGHT)
    for side, listing in (("left", LEFT), ("right", RIGHT)):
        indices = [i for row in rows for i in getattr(row, f"{side}_indices")]
        assert sorted(indices) == list(range(len(listing.instructions)))


def test_what_is_computed_is_the_same_in_any_order() -> None:
    turns = ptx_of(*["sub.f32 %f1, %f1, %f2", "mul.f32 %f1, %f1, %f3"] * 4)
    runs = ptx_of(*["mul.f32 %f1, %f1, %f3"] * 4, *["sub.f32 %f1, %f1, %f2"] * 4)
    assert shown(align(turns, runs)) == [
        ("sub.f32 x4", " ", "sub.f32 x4"),
        ("mul.f32 x4", " ", "mul.f32 x4"),
    ]


def test_a_barrier_keeps_its_place_and_the_arithmetic_around_it_its_partners() -> None:
    late = ptx_of(
        "bar.sync 0",
        *["sub.f32 %f1, %f1, %f2", "ex2.approx.f32 %f1, %f1", "add.f32 %f3, %f3, %f1"]
        * 4,
    )
    early = ptx_of(
        *["sub.f32 %f1, %f1, %f2"] * 4,
        *["ex2.approx.f32 %f1, %f1"] * 4,
        "bar.sync 0",
        *["add.f32 %f3, %f3, %f1"] * 3,
    )
    assert shown(align(late, early)) == [
        ("bar.sync 0", "<", ""),
        ("sub.f32 x4", " ", "sub.f32 x4"),
        ("ex2.approx.f32 x4", " ", "ex2.approx.f32 x4"),
        ("", ">", "bar.sync 0"),
        ("add.f32 x4", "|", "add.f32 x3"),
    ]


def test_exchanges_are_the_same_wherever_their_turns_begin() -> None:
    shuffle, add = "shfl.sync.bfly.b32 %r2, %r1, 16, 31, -1", "add.f32 %f1, %f1, %f2"
    rows = align(ptx_of(*[shuffle, add] * 5), ptx_of(add, *[shuffle, add] * 5))
    assert shown(rows) == [
        ("", ">", "add.f32 %r0, %r0, %r1"),
        ("shfl.sync.bfly.b32 x5", " ", "shfl.sync.bfly.b32 x5"),
        ("add.f32 x5", " ", "add.f32 x5"),
    ]


def test_two_reductions_stay_apart() -> None:
    shuffle = "shfl.sync.bfly.b32 %r2, %r1, 16, 31, -1"
    reductions = ptx_of(
        *[shuffle, "max.f32 %f1, %f1, %f2"] * 5,
        *["ex2.approx.f32 %f1, %f1"] * 4,
        *[shuffle, "add.f32 %f1, %f1, %f2"] * 5,
    )
    assert [left for left, _, _ in shown(align(reductions, reductions))] == [
        "shfl.sync.bfly.b32 x5",
        "max.f32 x5",
        "ex2.approx.f32 x4",
        "shfl.sync.bfly.b32 x5",
        "add.f32 x5",
    ]


def test_what_is_stored_is_computed_before() -> None:
    multiply, store = "mul.f32 %f1, %f1, %f2", "st.global.f32 [%rd1], %f1"
    turns, runs = ptx_of(*[multiply, store] * 4), ptx_of(*[multiply] * 4, *[store] * 4)
    assert shown(align(turns, runs)) == [
        ("mul.f32 x4", " ", "mul.f32 x4"),
        ("st.global.f32 x4", " ", "st.global.f32 x4"),
    ]


def test_accesses_of_one_width_stand_side_by_side() -> None:
    mixed = ptx_of(
        "ld.global.nc.f32 %f1, [%rd1]", *["ld.global.v4.f32 {%f1}, [%rd1]"] * 2
    )
    wide = ptx_of("ld.global.v4.b32 {%r1}, [%rd1]")
    assert shown(align(mixed, wide)) == [
        ("ld.global.nc.f32 %r0, [%rd0]", "<", ""),
        ("ld.global.v4.f32 x2", "|", "ld.global.v4.b32 x1"),
    ]


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
