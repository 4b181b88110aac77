"""What several test files compile for GPUs that are not there.

Most of the time of a run of nvcc goes into CUDA's headers. So the kernels of one source
are compiled in one run for each GPU, by whichever test comes first: a file of tests
announces what they will ask for. Where any GPU but the usual one will do, they take the
same.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator
from itertools import chain

import torch

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
    """One that is not Hopper; it changes from op to op, so that all have their turn."""
    others = [each for each in ARCHITECTURES.values() if each is not HOPPER]
    names = list(dict.fromkeys(each.source for each in OPS.values()))
    return others[names.index(op.source) % len(others)]


def of_contract(op: Op) -> Iterator[Launch]:
    """What a contract speaks of; of forwards some on another architecture as well."""
    of_float32 = cases(op, torch.float32)
    for case in (*of_float32, cases(op, torch.bfloat16)[0]):
        yield op, case, HOPPER
    if not op.forward:
        yield op, of_float32[0], another_architecture(op)


def _odd_shape(op: Op) -> tuple[int, ...]:
    """Of few enough blocks to run them all, and rows that end within a vector."""
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
# On each architecture: on some, Triton takes other instructions for it.
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


def announce(launches: Iterable[Launch]) -> None:
    """Has launches compiled together with the others of their source."""
    _announced.extend(launches)


def arguments_of(launch: Launch) -> tuple[Argument, ...]:
    """What both launchers take."""
    return launcher_arguments(*launch[:2])


@functools.cache
def compile_with_nvcc(source: str, architecture: Architecture) -> None:
    """Compiles all that was announced of one file of CUDA on an architecture."""
    module = prebuilt.load("_cpu")
    signatures = {
        each["kernel"]: each["signature"]
        for launch in _announced
        if launch[0].source == source and launch[2] == architecture
        for each in native.plan(
            module, launch[0], arguments_of(launch), architecture.number
        )
    }
    cuda.compile_kernels(source, signatures, architecture)
