"""The ceilings: memory bandwidth at an op's own mix of reads and writes, and matmul.

A copy, which reads as much as it writes, is no measure for an op that only reads: an
H200 reads 4.6 TB/s and copies 4.3. So the ceiling has the op's mix, and its size.
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics

import torch
from torch import Tensor

from bindings.ops.scaled_matmul import product_of_torch
from bindings.trial import Traffic
from compare.judge.parity import Skipped
from compare.timing import gpu_state, turns
from compare.timing.times import Ceiling, MatmulRate
from compare.timing.turns import Launch, Times, TimingError, Turn

# Elements of 4 bytes to a block, and warps: two, four and eight 16-byte accesses per
# thread and array. Which is fastest depends on size and mix.
_CONFIGURATIONS = ((1024, 4), (2048, 4), (4096, 4), (8192, 8))

# Read or written: five arrays in all come as close to a mix as any op's own do.
_MOST_ARRAYS = 4

# Where size no longer matters.
_PEAK_BYTES = 2 * 1024**3

_MATMUL_SIZE = 8192
# Matmul draws so much power that the clocks take longer to settle.
_MATMUL_WARM_UP_MS = 1500.0


def mix_of(traffic: Traffic) -> tuple[int, int]:
    """How many arrays a kernel reads and writes that moves bytes in this proportion."""
    share = traffic.read_bytes / traffic.total_bytes
    numbers = range(_MOST_ARRAYS + 1)
    pairs = itertools.product(numbers, numbers)
    mixes = [mix for mix in pairs if math.gcd(*mix) == 1]
    return min(mixes, key=lambda mix: abs(mix[0] / sum(mix) - share))


def contestants(traffic: Traffic, n_sets: int) -> dict[str, Launch]:
    """Kernels that move as many bytes as the op and do nothing with them, by name."""
    reads, writes = mix_of(traffic)
    # Whole 64 bytes, so that every array begins where 16-byte accesses can.
    n = 16 * max(1, round(traffic.total_bytes / (reads + writes) / 64))
    read = [_numbers(max(reads, 1), n) for _ in range(n_sets)]
    written = [_numbers(max(writes, 1), n) for _ in range(n_sets)]

    def stream(block_size: int, warps: int, index: int) -> None:
        # Triton takes a second to import, and is not there on every machine.
        from compare.timing.stream_kernel import stream_kernel

        stream_kernel[(-(-n // block_size),)](
            read[index],
            written[index],
            n,
            READS=reads,
            WRITES=writes,
            BLOCK_SIZE=block_size,
            num_warps=warps,
        )

    found: dict[str, Launch] = {
        f"{block_size} elements to a block of {warps} warps": functools.partial(
            stream, block_size, warps
        )
        for block_size, warps in _CONFIGURATIONS
    }
    if (reads, writes) == (1, 1):
        found["cudaMemcpy"] = lambda index: written[index].copy_(read[index])
    return found


def prepare(traffic: Traffic) -> dict[str, Turn]:
    """The contestants, ready for their turns.

    Raises:
        TimingError: One of them cannot be timed.
    """
    n_sets = turns.n_sets_of(traffic.total_bytes)
    try:
        return {
            name: Turn(launch, n_sets)
            for name, launch in contestants(traffic, n_sets).items()
        }
    except TimingError as error:
        raise TimingError(f"the ceiling cannot be measured: {error}") from error


def _numbers(n_arrays: int, n: int) -> Tensor:
    # Random, because zeros take less power; and not negative, as the kernel expects.
    return torch.randint(
        2**20, (n_arrays, n), generator=_generator(), dtype=torch.int32, device="cuda"
    )


def _generator() -> torch.Generator:
    # Not PyTorch's own: a capture that failed leaves that unusable.
    return torch.Generator("cuda").manual_seed(0)


def best_of(traffic: Traffic, times: dict[str, Times | TimingError]) -> Ceiling:
    """The fastest of the contestants.

    Raises:
        TimingError: One of them has no time: it might have been the fastest.
    """
    medians = {}
    for name, each in times.items():
        if isinstance(each, TimingError):
            raise TimingError(f"the ceiling cannot be measured: {each}")
        medians[name] = statistics.median(each.call_us)
    name = min(medians, key=medians.__getitem__)
    return Ceiling(
        mix="{}:{}".format(*mix_of(traffic)),
        median_us=medians[name],
        gb_per_s=traffic.total_bytes / medians[name] / 1e3,
        kernel=name,
    )


@functools.cache
def peak(reads: int, writes: int) -> Ceiling:
    """The ceiling of a mix where size no longer matters, measured once in a process."""
    unit = _PEAK_BYTES // (reads + writes)
    traffic = Traffic(reads * unit, writes * unit)
    return best_of(traffic, turns.take_turns(prepare(traffic)))


def matmul_rate(dtype: torch.dtype) -> MatmulRate | Skipped:
    """The rate of torch.matmul, which is cuBLAS, with random numbers."""
    n = _MATMUL_SIZE
    generator = _generator()
    a, b = (
        torch.randn(n, n, generator=generator, device="cuda", dtype=dtype)
        for _ in range(2)
    )
    out = torch.empty_like(a)
    return _rate_of(lambda index: torch.matmul(a, b, out=out))


def float8_matmul_rate(dtype: torch.dtype) -> MatmulRate | Skipped:
    """The rate of torch._scaled_mm, with random 8-bit floats and results of a dtype."""
    n = _MATMUL_SIZE
    generator = _generator()
    a, b = (
        torch.randn(n, n, generator=generator, device="cuda").to(torch.float8_e4m3fn)
        for _ in range(2)
    )
    one = torch.ones((), device="cuda")

    def multiply(_: int) -> None:
        product_of_torch(a, b.T, one, one, dtype)

    try:
        return _rate_of(multiply)
    except RuntimeError as error:  # of a GPU without 8-bit floats
        return Skipped(str(error))


def _rate_of(multiply: Launch) -> MatmulRate | Skipped:
    n, turn = _MATMUL_SIZE, Turn(multiply, 1)
    with gpu_state.sampled() as sampler:
        own = turns.take_turns({"matmul": turn}, _MATMUL_WARM_UP_MS)["matmul"]
    if isinstance(own, TimingError):
        return Skipped(str(own))
    tflops = 2 * n**3 / statistics.median(own.call_us) / 1e6
    return MatmulRate(tflops, sampler.state)
