"""A made-up bench, for tests of the tables and plots that are made from one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import torch

from bindings.trial import Traffic
from compare.judge.cases import Case
from compare.judge.parity import Skipped
from compare.records import source_hash
from compare.timing.names import BACKENDS
from compare.timing.statistics import verdict
from compare.timing.times import (
    Bench,
    CaseTimes,
    Ceiling,
    Comparison,
    GpuState,
    MatmulRate,
    StartTime,
    Timing,
)

GPU = "NVIDIA H200"
PEAK_GB_PER_S = 4300.0
LAUNCH_US = 2.0

# The share of the ceiling that each reaches.
SHARES = {
    "cuda": 0.96,
    "triton": 0.95,
    "torch": 0.6,
    "torch.compile": 0.9,
    "unfused": 0.3,
    "liger": 0.94,
}
NOT_INSTALLED = Skipped("quack is not installed: pip install quack-kernels")
TOO_LONG = Skipped("rows of 262144 bytes are too long for it")


def make_bench(
    op: str = "softmax", gpu: str = GPU, date: str = "2026-11-20T08:14:24+00:00"
) -> Bench:
    """Two dtypes; six implementations and one that is not installed; a sweep.

    Of the code that is there.
    """
    dtypes = (torch.float32, torch.bfloat16)
    shapes = ((16384, 4096), (8192, 32768))
    sweep = tuple((4**n, 4096) for n in range(9))
    starts = dict.fromkeys(SHARES, StartTime(101.5, None, None))
    return Bench(
        op=op,
        environment={
            "python": "3.12.3",
            "torch": "2.11.0+cu130",
            "triton": "3.6.0",
            "nvcc": "13.0",
            "gpus": [gpu],
            "driver": "580.159.04",
            "date": date,
            "commit": "53ae9a6c90f7",
            "packages": {"liger-kernel": "0.8.5"},
            source_hash.KEY: source_hash.hashes(op),
        },
        cases=tuple(
            make_case(shape, dtype, params=params_of(op))
            for dtype in dtypes
            for shape in shapes
        ),
        sweep=tuple(
            make_case(shape, dtype, params=params_of(op))
            for dtype in dtypes
            for shape in sweep
        ),
        start={
            **starts,
            "cuda": StartTime(12.25, None, 31.5),
            "triton": StartTime(203.0, 1.75, None),
            "quack": NOT_INSTALLED,
        },
        matmul={"float32": MatmulRate(51.0, None), "bfloat16": Skipped("no time")},
        omitted=("float32: --shape 65536x4096 takes too much",),
        notes={"liger": "allocates its output itself"},
    )


def params_of(op: str) -> dict[str, Any]:
    """All parameters of an op, with their defaults."""
    known: dict[str, dict[str, Any]] = {
        "gelu": {"approximate": "none"},
        "softmax": {"dim": -1},
    }
    return known.get(op, {})


def make_case(
    shape: tuple[int, ...],
    dtype: torch.dtype = torch.float32,
    *,
    params: Mapping[str, Any] | None = None,
    skipped: Mapping[str, Skipped] | None = None,
    shares: Mapping[str, float] = SHARES,
) -> CaseTimes:
    """Times of implementations that each reach their share of the ceiling."""
    n_bytes = math.prod(shape) * dtype.itemsize
    ceiling_us = LAUNCH_US + 2 * n_bytes / PEAK_GB_PER_S / 1e3
    medians = {
        name: ceiling_us / share
        for name, share in shares.items()
        if name not in (skipped or {})
    }
    timings: dict[str, Timing | Skipped] = {
        name: _timing(name, median, 2 * n_bytes, shares[name])
        for name, median in medians.items()
    }
    return CaseTimes(
        case=Case(shape, dtype, params=params or {}),
        traffic=Traffic(n_bytes, n_bytes),
        ceiling=Ceiling("1:1", ceiling_us, 2 * n_bytes / ceiling_us / 1e3, "copy"),
        timings={"quack": NOT_INSTALLED, **timings, **(skipped or {})},
        comparisons=tuple(
            _comparison(first, second, medians[first] / medians[second])
            for first, second in itertools.permutations(medians, 2)
        ),
        gpu_state=GpuState(1980.0, 3201.0, 412.5, 41.0, ("power cap",), 12),
    )


def _timing(name: str, median_us: float, n_bytes: int, share: float) -> Timing:
    return Timing(
        median_us=median_us,
        p20_us=0.99 * median_us,
        p80_us=1.02 * median_us,
        low_us=0.998 * median_us,
        high_us=1.001 * median_us,
        calls=200,
        method="graph",
        host_us=6.5,
        launcher_us=4.25 if name in BACKENDS else None,
        gb_per_s=n_bytes / median_us / 1e3,
        fraction=share,
    )


def _comparison(first: str, second: str, ratio: float) -> Comparison:
    low, high = ratio - 0.002, ratio + 0.002
    return Comparison(first, second, ratio, low, high, verdict(low, high))
