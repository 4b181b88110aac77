"""The simulator computes what a GPU does: recorded of an H200, and here of the CPU."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import simulated_outputs
import torch
from common import needs_gpu
from simulated_outputs import SIDES, Agreement, agreement

from bindings.op import DTYPES
from bindings.registry import OPS
from bindings.sources import ROOT
from compare.code.architectures import parse_architecture
from compare.judge.cases import Case
from compare.records import store

RECORDS = sorted(store.FOLDER.glob("*/simulated-outputs/agreement.json"))


def assert_agrees(found: Agreement) -> None:
    """The same bits where PTX defines all of them, else as near as the op must be.

    Products and sums of float32 that PTX rounds apart, but does not say so, may be
    fused by the assembler of the GPU: one rounding less.
    """
    assert found.share <= 1, found
    if found.is_exact and "float32" not in found.case:
        assert found.equal == found.elements, found


@pytest.mark.parametrize("file", RECORDS, ids=lambda path: path.parts[-3])
def test_recorded_outputs_agree(file: Path) -> None:
    found = simulated_outputs.read(file)
    for each in found:
        assert_agrees(each)
    kinds = {(each.op, each.side, each.case.split()[1]) for each in found}
    names = [str(dtype).removeprefix("torch.") for dtype in DTYPES]
    assert kinds == set(itertools.product(OPS, SIDES, names))
    # Matrix products and exchanges between blocks are among them.
    kernels = {each.kernel for each in found}
    products = {"matmul_kernel", "matmul_tf32_kernel", "scaled_matmul_kernel"}
    assert {*products, "norm_backward_cluster_kernel"} < kernels


def test_docs_say_what_is_recorded() -> None:
    text = " ".join((ROOT / "docs/without-a-gpu.md").read_text().split())
    for file in RECORDS:
        found = simulated_outputs.read(file)
        n_equal = sum(each.equal == each.elements for each in found)
        share = max(each.share for each in found)
        assert f"In {n_equal} of {len(found)} cases" in text
        assert f"at most {share:.2f} of the error" in text
        assert f"(../{file.relative_to(ROOT)})" in text
    assert RECORDS


def test_a_case_is_compared() -> None:
    """Here with the emulator, which computes sums of two as exactly."""
    case = Case((33, 7), torch.bfloat16, "offset")
    architecture = parse_architecture("sm_90")
    found = agreement(OPS["add"], "cuda", "add_kernel", case, architecture, "cpu")
    assert found.is_exact
    assert (found.elements, found.equal, found.share) == (231, 231, 0.0)
    assert_agrees(found)


@needs_gpu
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", ["rotary", "cross_entropy"])
def test_outputs_agree_on_this_gpu(name: str, side: str) -> None:
    found = simulated_outputs._measure_op(name, side)  # type: ignore[arg-type]
    assert found
    for each in found:
        assert_agrees(each)
