"""What the timing lab finds out, and the JSON of it, which records are written in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, TypeVar, get_args, get_origin

import cattrs
import torch
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from bindings.trial import Traffic
from compare.judge.cases import Case
from compare.judge.parity import Skipped

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
        timings: By implementation.
        traffic: The fewest bytes that the op has to move in it.
        ceiling: What the memory can do.
        comparisons: Of every two implementations that were timed.
        gpu_state: Meanwhile; None where nvidia-smi cannot say.
    """

    case: Case
    timings: Mapping[str, Timing | Skipped]
    traffic: Traffic
    ceiling: Ceiling
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

    SCHEMA_VERSION: ClassVar[int] = 1

    op: str
    environment: dict[str, Any]
    cases: tuple[CaseTimes, ...]
    sweep: tuple[CaseTimes, ...]
    start: Mapping[str, StartTime | Skipped]
    matmul: Mapping[str, MatmulRate | Skipped]
    omitted: tuple[str, ...]
    notes: Mapping[str, str]


# ---- JSON ---------------------------------------------------------------------------


def as_json(value: Any) -> Any:
    """A value of this module or beside it, in plain values for json.dump."""
    return _converter.unstructure(value)


class Document(Protocol):
    """A dataclass that is written to a file of its own."""

    SCHEMA_VERSION: ClassVar[int]


Kept = TypeVar("Kept", bound=Document)


def to_json(kept: Document) -> dict[str, Any]:
    """The same of a whole document, which names its schema."""
    return {"schema_version": kept.SCHEMA_VERSION, **as_json(kept)}


def from_json(document: Mapping[str, Any], made: type[Kept]) -> Kept:
    """What to_json has made plain.

    Args:
        document: Plain values.
        made: The class of which it is.

    Raises:
        ValueError: It is of another schema, or a value is none that can stand there.
        AttributeError, KeyError, TypeError: It is no such document.
    """
    version = document.get("schema_version")
    if version != made.SCHEMA_VERSION:
        raise ValueError(
            f"expected schema_version {made.SCHEMA_VERSION}, got {version!r}"
        )
    kept: Kept = _converter.structure(document, made)
    return kept


def limits_to_json(times: CaseTimes | Skipped) -> dict[str, Any]:
    """What holds for all implementations of a case, in plain values."""
    if isinstance(times, Skipped):
        return {}
    names = ("traffic", "ceiling", "comparisons", "gpu_state")
    return {name: as_json(getattr(times, name)) for name in names}


def _number(value: Any, _type: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} stands where a number should be")
    return value


def _is_literal(annotation: Any) -> bool:
    return get_origin(annotation) in (Literal,)


def _one_of(value: Any, literal: Any) -> Any:
    if value not in get_args(literal):
        raise ValueError(f"{value!r} is none of {get_args(literal)}")
    return value


def _timing_to_json(timing: Timing) -> dict[str, Any]:
    return {
        **as_json(timing.kernel),
        "host_us": timing.host.call_us,
        "launcher_us": timing.host.launcher_us,
        "gb_per_s": timing.gb_per_s,
        "fraction": timing.fraction,
    }


def _timing_from_json(document: Mapping[str, Any], _type: Any) -> Timing:
    host = {"call_us": document["host_us"], "launcher_us": document["launcher_us"]}
    nested = {**document, "kernel": document, "host": host}
    timing: Timing = _structure_timing(nested, Timing)
    return timing


def _has_timings(made: Any) -> bool:
    return "timings" in getattr(made, "__dataclass_fields__", ())


def _may_be_skipped(annotation: Any) -> bool:
    return Skipped in get_args(annotation)


def _skipped_or(document: Mapping[str, Any], union: Any) -> Any:
    if "skipped" in document:
        return Skipped(document["skipped"])
    (done,) = (each for each in get_args(union) if each is not Skipped)
    return _converter.structure(document, done)


_converter = cattrs.Converter(
    detailed_validation=False, unstruct_collection_overrides={tuple: list}
)
for _type in (float, int):
    _converter.register_structure_hook(_type, _number)
_converter.register_structure_hook_func(_is_literal, _one_of)
_converter.register_structure_hook_func(_may_be_skipped, _skipped_or)
_converter.register_structure_hook(
    torch.dtype, lambda name, _type: getattr(torch, name)
)
_converter.register_unstructure_hook(
    torch.dtype, lambda dtype: str(dtype).removeprefix("torch.")
)
_converter.register_unstructure_hook(Skipped, lambda each: {"skipped": each.reason})
_RENAMED = override(rename="timing")
_converter.register_structure_hook_factory(
    _has_timings,
    lambda made: make_dict_structure_fn(made, _converter, timings=_RENAMED),
)
_converter.register_unstructure_hook_factory(
    _has_timings,
    lambda made: make_dict_unstructure_fn(made, _converter, timings=_RENAMED),
)
_structure_timing = make_dict_structure_fn(Timing, _converter)
_converter.register_structure_hook(Timing, _timing_from_json)
_converter.register_unstructure_hook(Timing, _timing_to_json)
