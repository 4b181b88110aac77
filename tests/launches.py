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
from common import triton_version
from filelock import FileLock

from bindings.backends import native, prebuilt
from bindings.op import Argument, Op
from bindings.registry import OPS
from bindings.toolchain import find_cuda_home
from bindings.trials import TRIALS
from compare.code import cuda
from compare.code.architectures import ARCHITECTURES, Architecture
from compare.judge.cases import Case, launcher_arguments
from compare.judge.contracts import cases

HOPPER = ARCHITECTURES[90]

Launch = tuple[Op, Case, Architecture]

# Sources whose kernels one run compiles, since no two define the same name: of few and
# small kernels, and of rows.
_SMALL = (
    *("activation", "add", "dropout", "geglu", "gelu"),
    *("rotary", "softmax", "swiglu"),
)
_ROWS = ("layer_norm", "rms_norm", "sum")
_TOGETHER: tuple[tuple[str, ...], ...] = (_SMALL, _ROWS)
_MANY_KERNELS = ("softmax", HOPPER)

# Nothing is asked of the code of the others.
TWINS = [op for op in OPS.values() if TRIALS[op.name].code_contract]


def another_architecture(op: Op) -> Architecture:
    """An architecture other than Hopper, a different one from source to source."""
    others = [each for each in ARCHITECTURES.values() if each is not HOPPER]
    names = list(dict.fromkeys(_name_for_all(each) for each in OPS.values()))
    return others[names.index(_name_for_all(op)) % len(others)]


def _name_for_all(op: Op) -> str:
    # The small sources take all architectures anyway, for softmax.
    return _ROWS[0] if op.source in _ROWS else op.source


def of_contract(op: Op) -> Iterator[Launch]:
    """The launches of an op's contract, the first of float32 on Hopper.

    Every case is there. Forwards have one on another architecture: the second, where
    cases differ in an element's arithmetic or dtype and not in their shapes.
    """
    tried = _in_both_dtypes(op)
    contract = TRIALS[op.name].code_contract
    has_shapes = contract is not None and len(contract.shapes) > 1
    elsewhere = 0 if has_shapes else 1
    for number, case in enumerate(tried):
        if op.forward or has_shapes or number != elsewhere:
            yield op, case, HOPPER
    if not op.forward:
        yield op, tried[elsewhere], another_architecture(op)


def _in_both_dtypes(op: Op) -> list[Case]:
    """The cases of a contract, some in float32 and the others in bfloat16."""
    of_float32, of_bfloat16 = cases(op, torch.float32), cases(op, torch.bfloat16)
    trial, n_cases = TRIALS[op.name], len(of_float32)
    if n_cases == 1 or trial.flops:
        # A product has other kernels for either, and parameters for one alone.
        return [*of_float32, of_bfloat16[0]]
    if len(trial.variants) == 1 and not op.forward:
        # The pages show kernels of long rows in bfloat16, which are compiled anyway.
        return [*of_float32[: n_cases // 2], *of_bfloat16[n_cases // 2 :]]
    pairs = zip(of_float32, of_bfloat16, strict=True)
    return [each[number % 2] for number, each in enumerate(pairs)]


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
# Short and long rows, and the first rung, as commands show them.
_SHOWN: list[Launch] = [
    *((OPS["softmax"], Case(e), HOPPER) for e in ((5, 67), (64, 781), (2, 100000))),
    (OPS["softmax"].on_rung("first"), Case(TRIALS["softmax"].large_shape), HOPPER),
]


_announced: list[Launch] = [*ODD, *SOFTMAX, *SHORT_SOFTMAX, *_SHOWN]
_announced += chain.from_iterable(map(of_contract, TWINS))


# What can only be told once launches are planned, which takes longer.
_announcing: list[Callable[[str], Iterable[Launch]]] = []


def spills_in_triton(launch: Launch) -> bool:
    """Whether Triton's kernel is known to spill: two numbers, by the ptxas of 3.6."""
    op, _, architecture = launch
    is_known = op.name == "cross_entropy" and architecture.number == 100
    return is_known and triton_version() < (3, 7)


def announce(launches: Iterable[Launch]) -> None:
    """Has launches compiled together with the others of their source."""
    _announced.extend(launches)


def announce_of_source(launches_of: Callable[[str], Iterable[Launch]]) -> None:
    """The same, of launches that are asked for once their source is compiled."""
    _announcing.append(launches_of)


def arguments_of(launch: Launch) -> tuple[Argument, ...]:
    """The arguments of both launchers."""
    return launcher_arguments(*launch[:2])


def compile_with_nvcc(source: str, architecture: Architecture) -> None:
    """Compiles all announced kernels of a .cu file for an architecture.

    With those of other files. One process does it, and others wait: then they find them
    in the cache.
    """
    together = next((each for each in _TOGETHER if source in each), (source,))
    is_alone = (source, architecture) == _MANY_KERNELS
    others = (each for each in together if (each, architecture) != _MANY_KERNELS)
    _compile((source,) if is_alone else tuple(others), architecture)


def compile_what_commands_show() -> None:
    """Compiles softmax as commands show it, if there is nvcc."""
    if find_cuda_home() is not None:
        compile_with_nvcc("softmax", HOPPER)


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
