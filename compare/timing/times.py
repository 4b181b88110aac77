"""The results of the timing lab, and their JSON, in which records are written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_origin

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
    """Time of a call on the GPU, launch excluded."""

    median_us: float
    p20_us: float  # a fifth of the replays took less
    p80_us: float  # a fifth took longer
    low_us: float  # from here to high_us lies the median, with 95 % confidence
    high_us: float
    calls: int  # that were timed
    # "graph", replays of a CUDA graph; or "events", around calls that the host had
    # queued before the GPU came to them.
    method: Method


@dataclass(frozen=True)
class Timing(KernelTime):
    """Times of one implementation in one case."""

    host_us: float  # of the public call, which does not wait for the GPU
    launcher_us: float | None  # of the bare launcher, on the host; None without one
    gb_per_s: float  # the fewest bytes that the op has to move, by the median
    fraction: float  # of the ceiling; 1 is as fast as the memory can be


@dataclass(frozen=True)
class Ceiling:
    """The fastest that kernels read and wrote as many bytes, which did nothing else."""

    mix: str  # bytes read to bytes written, such as "2:1"
    median_us: float
    gb_per_s: float  # of read and written bytes
    kernel: str  # the fastest one


@dataclass(frozen=True)
class Comparison:
    """Two implementations that took turns."""

    first: str
    second: str
    ratio: float  # the first's time by the second's
    low: float  # from here to high lies the ratio, with 95 % confidence
    high: float
    # The first's: "same" within 1.5 %, "unclear" where the interval allows two others.
    outcome: Outcome

    def reversed(self) -> Comparison:
        """The comparison as the second sees it."""
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
    """The GPU while it was measured: medians of its own readings."""

    sm_mhz: float
    memory_mhz: float
    power_w: float
    temperature_c: float
    throttled_by: tuple[str, ...]  # what held the clocks down, such as "power cap"
    samples: int


@dataclass(frozen=True)
class StartTime:
    """The time until the first result is there, in a process of its own."""

    first_call_ms: float  # when every cache on disk is filled
    compile_s: float | None  # by how much empty caches delay it; None if none are used
    build_s: float | None  # nvcc over the op's source for this GPU, if it has one


@dataclass(frozen=True)
class MatmulRate:
    """The rate of PyTorch's own product, 8192 x 8192 x 8192."""

    tflops: float  # 10^12 multiplications and additions in a second
    gpu_state: GpuState | None  # meanwhile; None where nvidia-smi cannot say


@dataclass(frozen=True)
class CaseTimes:
    """All implementations of an op in one case."""

    case: Case
    timings: Mapping[str, Timing | Skipped]
    traffic: Traffic  # the fewest bytes that the op has to move
    ceiling: Ceiling
    comparisons: tuple[Comparison, ...]  # of every two that were timed
    gpu_state: GpuState | None  # meanwhile; None where nvidia-smi cannot say

    def comparison(self, first: str, second: str) -> Comparison | None:
        """How the first of two implementations does beside the second."""
        for each in self.comparisons:
            if (each.first, each.second) == (first, second):
                return each
            if (each.first, each.second) == (second, first):
                return each.reversed()
        return None


@dataclass(frozen=True)
class Document:
    """Anything that is measured of an op and written to a file of its own."""

    SCHEMA_VERSION: ClassVar[int]
    KIND: ClassVar[str] = ""  # a record's folder within the GPU's, where benches lie

    op: str
    environment: dict[str, Any]  # from compare.timing.environment


@dataclass(frozen=True)
class Bench(Document):
    """The times of one op, measured by `compare bench`, kept by `compare record`."""

    SCHEMA_VERSION = 1

    cases: tuple[CaseTimes, ...]  # at the shapes that it is judged by
    sweep: tuple[CaseTimes, ...]  # from sizes that are all launch to all memory
    start: Mapping[str, StartTime | Skipped]  # by implementation
    matmul: Mapping[str, MatmulRate | Skipped]  # by dtype
    omitted: tuple[str, ...]  # for want of memory, a sentence each
    notes: Mapping[str, str]  # what a peer overwrites or skips, by implementation


# ---- JSON ---------------------------------------------------------------------------


def as_json(value: Any) -> Any:
    """A dataclass, or several, in plain values for json.dump."""
    return _converter.unstructure(value)


Kept = TypeVar("Kept", bound=Document)


def to_json(kept: Document) -> dict[str, Any]:
    """A whole document in plain values, which name its schema."""
    return {"schema_version": kept.SCHEMA_VERSION, **as_json(kept)}


def from_json(document: Mapping[str, Any], made: type[Kept]) -> Kept:
    """The document of a class from its plain values.

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


Part = TypeVar("Part")


def part_from_json(document: Mapping[str, Any], made: type[Part]) -> Part:
    """What as_json has made of a part of a document."""
    part: Part = _converter.structure(document, made)
    return part


def limits_to_json(times: CaseTimes | Skipped) -> dict[str, Any]:
    """The figures that all implementations of a case share, in plain values."""
    if isinstance(times, Skipped):
        return {}
    names = ("traffic", "ceiling", "comparisons", "gpu_state")
    return {name: as_json(getattr(times, name)) for name in names}


def _number(value: Any, _type: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} stands where a number should be")
    return value


def _is_literal(annotation: Any) -> bool:
    return get_origin(annotation) is Literal


def _one_of(value: Any, literal: Any) -> Any:
    if value not in get_args(literal):
        raise ValueError(f"{value!r} is none of {get_args(literal)}")
    return value


def _has_timings(made: Any) -> bool:
    return "timings" in getattr(made, "__dataclass_fields__", ())


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
_converter.register_structure_hook_func(lambda t: Skipped in get_args(t), _skipped_or)
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
