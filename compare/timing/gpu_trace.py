"""The work of a GPU and who asked for it, from the trace that torch.profiler exports.

That is the Chrome trace of Kineto, whose format is public. A kernel bears the number
(its correlation) of the call of the CUDA runtime or driver that launched it; and that
call lies, in time, within the operations of the host that led to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compare.printable import printable

Dimensions = tuple[int, ...]

_HOST_WORK = ("user_annotation", "cpu_op")
_LAUNCHES = ("cuda_runtime", "cuda_driver")
_GPU_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
_GPU_SPAN = "gpu_user_annotation"

_SCOPE = re.compile(r"\b[A-Za-z_]\w*::")
_PARENTHESES = re.compile(r"\([^()]*\)")
# The rest of `f()::{lambda()#1}::operator()() const` without its parentheses.
_LAMBDA = re.compile(r"::(?:\{lambda[^{}]*\}|operator\b)(?: const)?")


@dataclass(frozen=True)
class Launched:
    """A kernel and how it was launched; a copy or fill of memory has a name alone."""

    name: str  # demangled
    grid: Dimensions | None  # blocks in x, y and z
    block: Dimensions | None  # threads of a block in x, y and z
    registers: int | None  # of a thread
    shared_bytes: int | None  # of a block


@dataclass(frozen=True)
class Work:
    """Something that the GPU did."""

    launched: Launched
    us: float
    # The host's, from the outside in: the implementation, its operations, and the call
    # that launched the work.
    stack: tuple[str, ...]


@dataclass(frozen=True)
class Span:
    """The time and the GPU's work within one annotation."""

    host_us: float
    work: tuple[Work, ...]  # of the GPU, in the order of its start


def read(trace: Mapping[str, Any], names: Sequence[str]) -> dict[str, Span]:
    """The spans of the annotations that have these names.

    Args:
        trace: The exported file, read as JSON.
        names: Those of the annotations, which follow each other.

    Raises:
        ValueError: One of them is not in the trace.
    """
    events = sorted(
        (each for each in trace["traceEvents"] if each.get("ph") == "X"),
        key=lambda each: (each["ts"], -each["dur"]),
    )
    launches: dict[int, Mapping[str, Any]] = {}
    for each in _of(events, _LAUNCHES):
        # A call of the runtime begins before that of the driver which it leads to.
        launches.setdefault(each["args"].get("correlation"), each)
    annotations = {name: _annotation(events, name) for name in names}
    work: dict[str, list[Work]] = {name: [] for name in names}
    for each in _of(events, _GPU_WORK):
        launch = launches.get(each["args"]["correlation"])
        name = _owner(each, launch, annotations, events)
        if name is not None:
            stack = _stack(annotations[name], launch, events)
            work[name].append(Work(_launched(each), float(each["dur"]), stack))
    return {
        name: Span(float(annotation["dur"]), tuple(work[name]))
        for name, annotation in annotations.items()
    }


def _launched(event: Mapping[str, Any]) -> Launched:
    facts = event["args"]
    grid, block = (
        tuple(facts[name]) if name in facts else None for name in ("grid", "block")
    )
    return Launched(
        event["name"],
        grid,
        block,
        registers=facts.get("registers per thread"),
        shared_bytes=facts.get("shared memory"),
    )


def short_name(kernel: str) -> str:
    """A kernel's name without return type, parameters and namespaces."""
    name = kernel.removeprefix("void ").replace("(anonymous namespace)::", "")
    while (shorter := _PARENTHESES.sub("", name)) != name:
        name = shorter
    name = _SCOPE.sub("", _LAMBDA.sub("", name))
    return " ".join(name.replace(" >", ">").split())


def collapsed(stacks: Iterable[tuple[Sequence[str], float]]) -> str:
    """Stacks as flame graph viewers read them: "outer;inner 1500", a line for each.

    Args:
        stacks: From the outside in, each with the microseconds spent at its end. The
            lines have nanoseconds, which are whole numbers.
    """
    ns: dict[str, float] = {}
    for stack, us in stacks:
        frames = (printable(name).replace(";", ",").split() for name in stack)
        line = ";".join(map(" ".join, frames))
        ns[line] = ns.get(line, 0.0) + 1000 * us
    return "".join(f"{line} {spent:.0f}\n" for line, spent in ns.items())


def _of(
    events: Iterable[Mapping[str, Any]], categories: Sequence[str]
) -> Iterable[Mapping[str, Any]]:
    return (each for each in events if each.get("cat") in categories)


def _annotation(events: Sequence[Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    for each in _of(events, ("user_annotation",)):
        if each["name"] == name:
            return each  # the outermost: it begins first
    raise ValueError(f"the trace has no annotation {name!r}")


def _owner(
    work: Mapping[str, Any],
    launch: Mapping[str, Any] | None,
    annotations: Mapping[str, Mapping[str, Any]],
    events: Sequence[Mapping[str, Any]],
) -> str | None:
    """The annotation that asked for the work; None if none did."""
    if launch is not None:
        owners = (name for name, each in annotations.items() if _contains(each, launch))
        return next(owners, None)
    # Not every call that launches is traced; Kineto's own spans on the GPU tell then.
    spans = (each for each in _of(events, (_GPU_SPAN,)) if _contains(each, work))
    return next((each["name"] for each in spans if each["name"] in annotations), None)


def _contains(outer: Mapping[str, Any], inner: Mapping[str, Any]) -> bool:
    return bool(outer["ts"] <= inner["ts"] < outer["ts"] + outer["dur"])


def _stack(
    annotation: Mapping[str, Any],
    launch: Mapping[str, Any] | None,
    events: Sequence[Mapping[str, Any]],
) -> tuple[str, ...]:
    if launch is None:
        return (annotation["name"],)
    within = (
        each["name"]
        for each in _of(events, _HOST_WORK)
        if each is not annotation
        and each["tid"] == annotation["tid"]
        and _contains(annotation, each)
        and _contains(each, launch)
    )
    return (annotation["name"], *within, launch["name"])
