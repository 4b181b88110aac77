"""Folded traces: they lose nothing, and repetitions are loops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare.assembly.fold import Loop, fold
from compare.assembly.listing import parse_ptx
from compare.code import trace


def _unfolded(nodes: Sequence[str | Loop[str]]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, Loop):
            for _ in range(node.count):
                yield from _unfolded(node.body)
        else:
            yield node


def _has_repetition(nodes: Sequence[str | Loop[str]]) -> bool:
    n = len(nodes)
    return any(
        nodes[i : i + p] == nodes[i + p : i + 2 * p]
        for p in range(1, n // 2 + 1)
        for i in range(n - 2 * p + 1)
    ) or any(isinstance(each, Loop) and _has_repetition(each.body) for each in nodes)


@given(st.lists(st.sampled_from("abc"), max_size=60))
def test_nothing_is_lost_and_nothing_repeats(events: list[str]) -> None:
    folded = fold(events)
    assert list(_unfolded(folded)) == events
    assert not _has_repetition(folded)


@pytest.mark.parametrize(
    ("events", "folded"),
    [
        ("", ()),
        ("a", ("a",)),
        ("aaaa", (Loop(4, ("a",)),)),
        ("abab", (Loop(2, ("a", "b")),)),
        ("xababx", ("x", Loop(2, ("a", "b")), "x")),
        ("aabaab", (Loop(2, (Loop(2, ("a",)), "b")),)),
        ("abcabcabd", (Loop(2, ("a", "b", "c")), "a", "b", "d")),
    ],
)
def test_fold(events: str, folded: tuple[str | Loop[str], ...]) -> None:
    assert fold(events) == folded


def test_a_matmul_is_short() -> None:
    step = [*["copy"] * 8, "barrier", *(["load a", "load b", "mma", "mma"] * 4)]
    events = [*["copy"] * 16, *(step * 128), *["store"] * 32]
    folded = fold(events)
    assert list(_unfolded(folded)) == events
    assert len(folded) == 5  # the first copies and the last step differ


PTX = """
.visible .entry k(
    .param .u64 k_param_0
)
{
    ld.param.u64 %rd1, [k_param_0];
    mov.u32 %r9, 0;
$L:
    ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1];
    ex2.approx.ftz.f32 %f5, %f1;
    ex2.approx.ftz.f32 %f6, %f2;
    shfl.sync.bfly.b32 %r1, %r2, 16, 31, -1;
    bar.sync 0;
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1}, {%r1}, {%r2}, {%f1};
    st.shared.b16 [%r3], %rs1;
    add.s32 %r9, %r9, 1;
    setp.lt.s32 %p1, %r9, 3;
    @%p1 bra $L;
    ret;
}
"""


def test_rows_of_a_kernel() -> None:
    ptx = parse_ptx(PTX)
    body = list(range(2, 12))
    rows = trace.rows_of(ptx, {0: [0, 1, *(body * 3), 12]})
    assert [(row.depth, row.text, row.count, row.is_loop) for row in rows] == [
        (0, "", 3, True),
        (1, "global load 16 B", 1, False),
        (1, "2^x", 2, False),
        (1, "shfl sync", 1, False),
        (1, "barrier", 1, False),
        (1, "mma m16n8k16", 1, False),
        (1, "shared store 2 B", 1, False),
    ]


@pytest.mark.parametrize(
    ("statement", "event"),
    [
        (
            "cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes"
            " [%r1], [%rd1, {%r2, %r3}], [%r4]",
            "tensor copy in",
        ),
        (
            "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group"
            " [%rd1, {%r2, %r3}], [%r1]",
            "tensor copy out",
        ),
        ("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], 8", "mbarrier arrive"),
        ("wgmma.wait_group.sync.aligned 0", "wgmma wait_group"),
        ("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%f1}", "wgmma m64n64k16"),
        ("cp.async.bulk.wait_group.read 0", "copies wait_group"),
        ("cp.async.commit_group", "copies commit_group"),
        ("prefetch.tensormap [%rd1]", None),
    ],
)
def test_events_of_hopper(statement: str, event: str | None) -> None:
    (instruction,) = parse_ptx(f".entry k(\n)\n{{\n{statement};\n}}").instructions
    assert trace.event_of(instruction) == event


def test_rows_of_several_warps() -> None:
    ptx = parse_ptx(PTX)
    load, barrier = 2, 6
    found = trace.rows_of(ptx, {0: [load, load], 8: [barrier]})
    assert [(row.depth, row.text, row.count) for row in found] == [
        (0, "warp 0:", 1),
        (1, "global load 16 B", 2),
        (0, "warp 8:", 1),
        (1, "barrier", 1),
    ]
