"""What the timing lab finds out, and the JSON of it, which records are written in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

import torch

from bindings.trial import Traffic
from compare.judge.cases import Case
from compare.judge.parity import Skipped

SCHEMA_VERSION = 1

Method = Literal["graph", "events"]
Outcome = Literal["faster", "slower", "same", "unclear"]

_SEEN_FROM_THE_OTHER: dict[Outcome, Outcome] = {"faster": "slower", "slower": "faster"}


@dataclass(frozen=True)
class KernelTime:
    """Time of a call on the GPU, launch excluded.

    Attributes:
        median_us: Of all replays.
        p20_us: A fifth of the replays took less.
        p80_us: A fifth took longer.
        low_us: From here to high_us lies the median, with 95 % confidence.
        high_us: See low_us.
        calls: How many calls were timed.
        method: "graph", replays of a CUDA graph; or "events", around calls that the
            host had queued before the GPU came to them.
    """

    median_us: float
    p20_us: float
    p80_us: float
    low_us: float
    high_us: float
    calls: int
    method: Method


@dataclass(frozen=True)
class HostTime:
    """Time that a call takes the host, which does not wait for the GPU.

    Attributes:
        call_us: Of the public call, which allocates its output.
        launcher_us: Of the bare launcher; None for those that have none.
    """

    call_us: float
    launcher_us: float | None


@dataclass(frozen=True)
class Timing:
    """Times of one implementation in one case.

    Attributes:
        kernel: On the GPU.
        host: On the host.
        gb_per_s: The fewest bytes that the op has to move, by the kernel's median.
        fraction: Of the ceiling; 1 is as fast as the memory can be.
    """

    kernel: KernelTime
    host: HostTime
    gb_per_s: float
    fraction: float


@dataclass(frozen=True)
class Ceiling:
    """The fastest that as many bytes were read and written, by kernels that do no more.

    Attributes:
        mix: Bytes read to bytes written, such as "2:1".
        median_us: The best kernel's.
        gb_per_s: Of read and written bytes.
        kernel: Which kernel it was.
    """

    mix: str
    median_us: float
    gb_per_s: float
    kernel: str


@dataclass(frozen=True)
class Comparison:
    """Two implementations that took turns.

    Attributes:
        first: The name of one.
        second: The name of the other.
        ratio: The first's time by the second's.
        low: From here to high lies the ratio, with 95 % confidence.
        high: See low.
        outcome: What the first is: "faster", "slower", "same" (within 1.5 %), or
            "unclear" where the interval allows two of these.
    """

    first: str
    second: str
    ratio: float
    low: float
    high: float
    outcome: Outcome

    def reversed(self) -> Comparison:
        """The same, seen from the second."""
        return Comparison(
            first=self.second,
            second=self.first,
            ratio=1 / self.ratio,
            low=1 / self.high,
            high=1 / self.low,
            outcome=_SEEN_FROM_THE_OTHER.get(self.outcome, self.outcome),
        )


@dataclass(frozen=True)
class GpuState:
    """What the GPU was like while it was measured: medians of its own readings.

    Attributes:
        sm_mhz: The clock of the multiprocessors.
        memory_mhz: The clock of the memory.
        power_w: The power drawn.
        temperature_c: Of the chip.
        throttled_by: What held the clocks down, such as "power cap".
        samples: How many readings there were.
    """

    sm_mhz: float
    memory_mhz: float
    power_w: float
    temperature_c: float
    throttled_by: tuple[str, ...]
    samples: int


@dataclass(frozen=True)
class StartTime:
    """What it takes until the first result is there, in a process of its own.

    Attributes:
        first_call_ms: The first call, when every cache on disk is filled.
        compile_s: How much longer it takes with empty caches; None if nothing is
            compiled at run time.
        build_s: nvcc over the op's source for this GPU; None if there is no such step.
    """

    first_call_ms: float
    compile_s: float | None
    build_s: float | None


@dataclass(frozen=True)
class MatmulRate:
    """What torch.matmul reaches, 8192 x 8192 x 8192.

    Attributes:
        tflops: 10^12 multiplications and additions in a second.
        gpu_state: Meanwhile; None where nvidia-smi cannot say.
    """

    tflops: float
    gpu_state: GpuState | None


@dataclass(frozen=True)
class CaseTimes:
    """All implementations of an op in one case.

    Attributes:
        case: The case.
        traffic: The fewest bytes that the op has to move in it.
        ceiling: What the memory can do.
        timings: By implementation.
        comparisons: Of every two implementations that were timed.
        gpu_state: Meanwhile; None where nvidia-smi cannot say.
    """

    case: Case
    traffic: Traffic
    ceiling: Ceiling
    timings: Mapping[str, Timing | Skipped]
    comparisons: tuple[Comparison, ...]
    gpu_state: GpuState | None

    def comparison(self, first: str, second: str) -> Comparison | None:
        """How the first of two implementations does beside the second."""
        for each in self.comparisons:
            if (each.first, each.second) == (first, second):
                return each
            if (each.first, each.second) == (second, first):
                return each.reversed()
        return None


@dataclass(frozen=True)
class Bench:
    """What `compare bench` measures of one op, and `compare record` keeps.

    Attributes:
        op: Its name.
        environment: Versions and devices, from compare.timing.environment.
        cases: At the shapes that it is judged by.
        sweep: From sizes that are all launch to sizes that are all memory.
        start: By implementation, what it takes until the first result is there.
        matmul: By dtype.
        omitted: What was left out for want of memory, a sentence each.
        notes: What a peer overwrites or skips, by implementation.
    """

    op: str
    environment: dict[str, Any]
    cases: tuple[CaseTimes, ...]
    sweep: tuple[CaseTimes, ...]
    start: Mapping[str, StartTime | Skipped]
    matmul: Mapping[str, MatmulRate | Skipped]
    omitted: tuple[str, ...]
    notes: Mapping[str, str]


def to_json(bench: Bench) -> dict[str, Any]:
    """Plain values, for json.dump."""
    return {
        "schema_version": SCHEMA_VERSION,
        "op": bench.op,
        "environment": bench.environment,
        "cases": [_case_to_json(each) for each in bench.cases],
        "sweep": [_case_to_json(each) for each in bench.sweep],
        "start": {name: _to_json(each) for name, each in bench.start.items()},
        "matmul": {name: _to_json(each) for name, each in bench.matmul.items()},
        "omitted": list(bench.omitted),
        "notes": dict(bench.notes),
    }


def from_json(document: Mapping[str, Any]) -> Bench:
    """What to_json has made plain.

    Raises:
        ValueError: It is of another schema.
    """
    if document.get("schema_version") != SCHEMA_VERSION:
        raise ValueError(
            f"expected schema_version {SCHEMA_VERSION}, "
            f"got {document.get('schema_version')!r}"
        )
    return Bench(
        op=document["op"],
        environment=document["environment"],
        cases=tuple(map(_case_from_json, document["cases"])),
        sweep=tuple(map(_case_from_json, document["sweep"])),
        start={
            name: _from_json(each, lambda each: StartTime(**each))
            for name, each in document["start"].items()
        },
        matmul={
            name: _from_json(each, _matmul_from_json)
            for name, each in document["matmul"].items()
        },
        omitted=tuple(document["omitted"]),
        notes=dict(document["notes"]),
    )


def case_to_json(case: Case) -> dict[str, Any]:
    """A case in plain values."""
    return {
        "shape": list(case.shape),
        "dtype": str(case.dtype).removeprefix("torch."),
        "layout": case.layout,
        "params": dict(case.params),
        "direction": case.direction,
    }


def case_from_json(document: Mapping[str, Any]) -> Case:
    """What case_to_json has made plain."""
    return Case(
        shape=tuple(document["shape"]),
        dtype=getattr(torch, document["dtype"]),
        layout=document["layout"],
        params=document["params"],
        direction=document["direction"],
    )


def timing_to_json(timing: Timing | Skipped) -> dict[str, Any]:
    """A timing in plain values."""
    if isinstance(timing, Skipped):
        return {"skipped": timing.reason}
    return {
        **asdict(timing.kernel),
        "host_us": timing.host.call_us,
        "launcher_us": timing.host.launcher_us,
        "gb_per_s": timing.gb_per_s,
        "fraction": timing.fraction,
    }


def timing_from_json(document: Mapping[str, Any]) -> Timing | Skipped:
    """What timing_to_json has made plain."""
    timing: Timing | Skipped = _from_json(document, _timing_from_json)
    return timing


def limits_to_json(times: CaseTimes | Skipped) -> dict[str, Any]:
    """What holds for all implementations of a case, in plain values."""
    if isinstance(times, Skipped):
        return {}
    return {
        "traffic": asdict(times.traffic),
        "ceiling": asdict(times.ceiling),
        "comparisons": [asdict(each) for each in times.comparisons],
        "gpu_state": times.gpu_state and asdict(times.gpu_state),
    }


def _to_json(value: Any) -> dict[str, Any]:
    if isinstance(value, Skipped):
        return {"skipped": value.reason}
    return asdict(value)


def _from_json(document: Any, make: Any) -> Any:
    if "skipped" in document:
        return Skipped(document["skipped"])
    return make(document)


def _case_to_json(times: CaseTimes) -> dict[str, Any]:
    return {
        "case": case_to_json(times.case),
        "timing": {name: timing_to_json(each) for name, each in times.timings.items()},
        **limits_to_json(times),
    }


def _case_from_json(document: Mapping[str, Any]) -> CaseTimes:
    return CaseTimes(
        case=case_from_json(document["case"]),
        traffic=Traffic(**document["traffic"]),
        ceiling=Ceiling(**document["ceiling"]),
        timings={
            name: timing_from_json(each) for name, each in document["timing"].items()
        },
        comparisons=tuple(Comparison(**each) for each in document["comparisons"]),
        gpu_state=_state_from_json(document["gpu_state"]),
    )


def _matmul_from_json(document: Mapping[str, Any]) -> MatmulRate:
    return MatmulRate(
        _number(document["tflops"]), _state_from_json(document["gpu_state"])
    )


def _state_from_json(document: Mapping[str, Any] | None) -> GpuState | None:
    if document is None:
        return None
    return GpuState(**{**document, "throttled_by": tuple(document["throttled_by"])})


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} stands where a number should be")
    return value


def _timing_from_json(document: Mapping[str, Any]) -> Timing:
    *numbers, method = (document[each.name] for each in fields(KernelTime))
    median_us, p20_us, p80_us, low_us, high_us = map(_number, numbers[:5])
    launcher_us = document["launcher_us"]
    return Timing(
        kernel=KernelTime(
            median_us, p20_us, p80_us, low_us, high_us, numbers[5], method
        ),
        host=HostTime(
            _number(document["host_us"]),
            None if launcher_us is None else _number(launcher_us),
        ),
        gb_per_s=_number(document["gb_per_s"]),
        fraction=_number(document["fraction"]),
    )
