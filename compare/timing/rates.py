"""Operations in a second, of ops that have more of them than memory keeps waiting."""

from __future__ import annotations

from bindings.trials import TRIALS
from compare.timing.times import Bench, CaseTimes, MatmulRate, Timing


def tflops(op: str, times: CaseTimes, timing: Timing) -> float | None:
    """10^12 multiplications and additions in a second; None where they do not count."""
    flops = TRIALS[op].flops
    if flops is None:
        return None
    return flops(times.case.shape, times.case.params) / timing.median_us / 1e6


def product_of(op: str) -> str:
    """PyTorch's product that an op's rate is compared with: of 8-bit floats, or not."""
    trial = TRIALS.get(op)
    name = "_scaled_mm" if trial and trial.dtype_parameter else "matmul"
    return f"torch.{name}, 8192 x 8192 x 8192"


def share_of_matmul(bench: Bench, times: CaseTimes, timing: Timing) -> float | None:
    """The share of the rate of PyTorch's product in this dtype, measured in IEEE's."""
    rate = bench.matmul.get(str(times.case.dtype).removeprefix("torch."))
    own = tflops(bench.op, times, timing)
    is_ieee = times.case.params.get("precision", "ieee") == "ieee"
    if own is None or not isinstance(rate, MatmulRate) or not is_ieee:
        return None
    return own / rate.tflops


def share_of_ceiling(bench: Bench, times: CaseTimes, timing: Timing) -> float:
    """The share of the nearer ceiling, memory or matmul."""
    return max(timing.fraction, share_of_matmul(bench, times, timing) or 0.0)
