"""Kernels that several test files compile, for GPUs that are not there.

nvcc spends most of a run on CUDA's headers. So the first test compiles all kernels of a
source for a GPU in one run, or of several small sources: a file of tests announces the
kernels that it needs. Tests that need any GPU but the usual one take the same.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import shared
import torch
from filelock import FileLock

from bindings.backends import native, prebuilt
from bindings.op import Argument, Op
from bindings.registry import OPS
from bindings.trials import TRIALS
from compare.code import cuda
from compare.code.architectures import ARCHITECTURES, Architecture
from compare.judge.cases import Case, launcher_arguments
from compare.judge.contracts import cases

HOPPER = ARCHITECTURES[90]

Launch = tuple[Op, Case, Architecture]

# Nothing is asked of the code of the others.
TWINS = [op for op in OPS.values() if TRIALS[op.name].code_contract]


def another_architecture(op: Op) -> Architecture:
    """An architecture other than Hopper, a different one from op to op."""
    others = [each for each in ARCHITECTURES.values() if each is not HOPPER]
    names = list(dict.fromkeys(each.source for each in OPS.values()))
    return others[names.index(op.source) % len(others)]


def of_contract(op: Op) -> Iterator[Launch]:
    """The launches of an op's contract; some forwards on another architecture, too."""
    of_float32 = cases(op, torch.float32)
    for case in (*of_float32, cases(op, torch.bfloat16)[0]):
        yield op, case, HOPPER
    if not op.forward:
        yield op, of_float32[0], another_architecture(op)


def _odd_shape(op: Op) -> tuple[int, ...]:
    """A shape of few blocks, so that all are run; its rows end within a vector."""
    rows = (33, 781)
    has_rows = op.source in ("softmax", "rotary")
    is_flat = () in TRIALS[op.name].edge_shapes and not has_rows
    return (math.prod(rows),) if is_flat else rows


# Most backwards read and write as their forward does; what the indices of cross_entropy
# point to is read once more.
ODD: list[Launch] = [
    (op, Case(_odd_shape(op)), another_architecture(op))
    for op in TWINS
    if not op.forward or op.name in ("softmax_backward", "layer_norm_backward")
    if op.source != "cross_entropy"
]
# On each architecture, since Triton chooses other instructions on some.
SOFTMAX: list[Launch] = [
    (OPS["softmax"], Case((16384, 4096)), architecture)
    for architecture in ARCHITECTURES.values()
]
# In a warp, and in rows that end within a vector.
SHORT_SOFTMAX: list[Launch] = [
    (OPS["softmax"], Case(shape), HOPPER) for shape in ((4096, 1000), (1823, 781))
]


_announced: list[Launch] = [*ODD, *SOFTMAX, *SHORT_SOFTMAX]
_announced += chain.from_iterable(map(of_contract, TWINS))


# What can only be told once launches are planned, which takes longer.
_announcing: list[Callable[[str], Iterable[Launch]]] = []


def announce(launches: Iterable[Launch]) -> None:
    """Has launches compiled together with the others of their source."""
    _announced.extend(launches)


def announce_of_source(launches_of: Callable[[str], Iterable[Launch]]) -> None:
    """The same, of launches that are asked for once their source is compiled."""
    _announcing.append(launches_of)


def arguments_of(launch: Launch) -> tuple[Argument, ...]:
    """The arguments of both launchers."""
    return launcher_arguments(*launch[:2])


# Sources of few and small kernels, no two of which define the same name.
_SMALL = (
    *("activation", "add", "dropout", "geglu", "gelu"),
    *("rotary", "softmax", "swiglu"),
)
_MANY_KERNELS = ("softmax", HOPPER)


def compile_with_nvcc(source: str, architecture: Architecture) -> None:
    """Compiles all announced kernels of a .cu file for an architecture.

    With those of other small files. One process does it, and others wait: then they
    find them in the cache.
    """
    is_alone = source not in _SMALL or (source, architecture) == _MANY_KERNELS
    small = (each for each in _SMALL if (each, architecture) != _MANY_KERNELS)
    _compile((source,) if is_alone else tuple(small), architecture)


@functools.cache
def _compile(sources: tuple[str, ...], architecture: Architecture) -> None:
    module = prebuilt.load("_cpu")
    signatures: dict[str, dict[str, str]] = {}
    announcements = (each(source) for each in _announcing for source in sources)
    for launch in chain(_announced, chain.from_iterable(announcements)):
        op, _, asked = launch
        if op.source in sources and asked == architecture:
            for each in native.plan(
                module, op, arguments_of(launch), architecture.number
            ):
                of_source = signatures.setdefault(op.source, {})
                of_source[each["kernel"]] = each["signature"]
    name = f"nvcc-{'-'.join(sources)}-{architecture.target}.lock"
    with FileLock(shared.folder / name):
        cuda.compile_together(signatures, architecture)
