"""Long rows that Triton's programs share, which wait for each other."""

from __future__ import annotations

import math

import pytest
import torch

from bindings import backends
from bindings.backends.triton import launcher
from bindings.op import as_tuple
from bindings.registry import OPS
from compare.code import tools
from compare.code.architectures import ARCHITECTURES, Architecture
from compare.code.findings.evidence import Subject
from compare.code.kernel_code import inspect_triton
from compare.code.occupancy import occupancy
from compare.code.triton_offline import record_launches
from compare.judge.cases import Case, launcher_arguments, make_arguments

SHARED = (
    ("softmax_backward", 131072),
    ("rms_norm_backward", 12288),
    ("layer_norm_backward", 12288),
    ("layer_norm_backward", 50257),
)


# Each architecture has one of these, and Hopper all of them.
@pytest.mark.parametrize(
    ("name", "n_cols", "architecture"),
    [
        pytest.param(
            *shared,
            each,
            id=f"{each.name}-{shared[0]}-{shared[1]}",
        )
        for i, each in enumerate(ARCHITECTURES.values())
        for j, shared in enumerate(SHARED)
        if each.number == 90 or (i + j) % len(SHARED) == 0
    ],
)
def test_programs_that_wait_for_each_other_run_at_once(
    name: str, n_cols: int, architecture: Architecture
) -> None:
    # The dtypes take turns, since none is the harder one.
    number = [*ARCHITECTURES].index(architecture.number) + n_cols
    dtype = (torch.float32, torch.bfloat16)[number % 2]
    case = Case((4096, n_cols), dtype, direction="backward")
    arguments = launcher_arguments(OPS[name], case)
    launch, *_ = record_launches(launcher(OPS[name]), arguments, architecture)
    assert "shared" in launch.kernel
    resources = tools.resources_of(launch.cubin, launch.kernel, architecture)
    threads, shared_bytes = launch.block[0], launch.dynamic_shared_bytes
    on_each_sm = occupancy(
        architecture, resources.registers, threads, shared_bytes
    ).blocks_per_sm
    assert math.prod(launch.grid) <= on_each_sm * architecture.multiprocessors


@pytest.mark.parametrize("name", ["softmax_backward", "rms_norm_backward"])
def test_programs_that_wait_for_each_other_are_simulated(name: str) -> None:
    case = Case((16, 131072), direction="backward")
    arguments = launcher_arguments(OPS[name], case)
    code = inspect_triton(OPS[name], arguments, ARCHITECTURES[90])
    (sums,) = (each for each in code.launch.tensors if each.name == "sums_ptr")
    assert sums.bytes == 16 * code.launch.grid[0] * 8
    assert code.simulation.is_complete
    assert code.simulation.out_of_bounds == ()
    waiting = [
        each
        for each in code.ptx.instructions
        if each.opcode.startswith("ld.relaxed.gpu")
    ]
    triton = Subject(code)
    # In the first round there is no row to store yet, so no program waits.
    assert triton.per_warp(waiting) == 16 // code.launch.grid[1]


@pytest.mark.parametrize(
    ("name", "n_cols"), [("softmax_backward", 131072), ("rms_norm_backward", 12288)]
)
def test_nobody_waits_for_sums_of_zero(name: str, n_cols: int, device: str) -> None:
    """Zeros are what is there before: where a loss is masked, all sums are."""
    op = OPS[name]
    case = Case((2, n_cols), torch.bfloat16, direction="backward")
    grad, *others = make_arguments(op, case, device)
    arguments = (torch.zeros_like(grad), *others)
    outputs = op.allocate(*arguments)
    backends.run("triton", op, outputs, *arguments)
    assert all(not each.any() for each in as_tuple(outputs))
