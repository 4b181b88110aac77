"""Calls of a kind that is known: memory, addresses, and the launch.

What an op checks, allocates and gives to its launcher follows from the kind of a call:
its tensors' types, shapes, strides and dtypes, and its other arguments. What a GPU's
tensors hold has no part in it, for to look there would be to wait. So a kind that comes
a second time is recorded, and from then on replayed: PyTorch's dispatcher, the checks
and the layout of tensors take a host several times as long as a launch.

A call that something in PyTorch takes part in, such as autograd or a mode, is not: it
goes through the dispatcher, as all do under torch.compile. Where that comes to compute,
nothing takes part any more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bindings import backends, check, torch_internals
from bindings.backends import Launch
from bindings.op import Op, Outputs, as_tuple

# On the CPU an op may look at what its tensors hold.
DEVICE_TYPE = "cuda"

# Of every address, in bytes. Triton compiles another kernel for tensors that begin
# elsewhere.
ALIGNMENT = 16

# Kinds that are remembered: by shape, and of one shape by strides, dtype and the like.
MOST_SHAPES = 4096
MOST_OF_A_SHAPE = 16


@dataclass(frozen=True)
class _Recording:
    """What the calls of a kind have in common.

    Attributes:
        is_alike: Takes a call's tensors and tells whether it is of this kind.
        device: The index of the GPU.
        allocate: Makes the outputs and, after them, the memory that kernels work in.
        n_outputs: How many outputs there are; None where it is one and no tuple.
        launch: Does what the op's launcher did; None where that cannot be replayed.
    """

    is_alike: Callable[..., bool]
    device: int
    allocate: tuple[Callable[[], Tensor], ...]
    n_outputs: int | None
    launch: Launch | None


_recordings: dict[Hashable, list[_Recording]] = {}


def call(op: Op, backend: str, overload: str, args: Sequence[Any]) -> Outputs | None:
    """The outputs of a call; None if something in PyTorch takes part in it."""
    if torch_internals.is_watched():
        return None
    tensors = []
    kind = [op.name, backend, overload, torch.is_grad_enabled()]
    for x in args:
        if isinstance(x, Tensor):
            tensors.append(x)
            kind.append(x.shape)
        else:  # to a dictionary True is 1, but not to an op
            kind.append((type(x), x))
    key = tuple(kind)
    try:
        known = _recordings.get(key)
    except TypeError:  # a list
        return None
    for recording in known or ():
        if recording.is_alike(*tensors):
            return _replay(recording, op, backend, args, tensors)
    if not torch_internals.are_plain(tensors, DEVICE_TYPE):
        return None
    check.one_of(op.name, "backend", backend, backends.NAMES)
    if known is None:
        _remember(key)
        return compute(op, backend, args)
    return _record(known, op, backend, args, tensors)


def forget() -> None:
    """Has every kind of call recorded anew."""
    _recordings.clear()


def compute(op: Op, backend: str, args: Sequence[Any]) -> Outputs:
    """The outputs of a call, whatever its kind."""
    outputs = op.allocate(*args)
    if any(out.numel() > 0 for out in as_tuple(outputs)):
        backends.run(backend, op, outputs, *args)
    return outputs


def _replay(
    recording: _Recording,
    op: Op,
    backend: str,
    args: Sequence[Any],
    tensors: Sequence[Tensor],
) -> Outputs:
    addresses = [x.data_ptr() for x in tensors]
    if recording.launch is None or not _can_replay(addresses, recording.device):
        return compute(op, backend, args)
    memory = [allocate() for allocate in recording.allocate]
    recording.launch(
        [x.data_ptr() for x in memory] + addresses,
        torch_internals.current_stream(recording.device),
    )
    n_outputs = recording.n_outputs
    return memory[0] if n_outputs is None else tuple(memory[:n_outputs])


def _can_replay(addresses: Sequence[int], device: int) -> bool:
    is_aligned = math.gcd(ALIGNMENT, *addresses) == ALIGNMENT
    return is_aligned and torch_internals.current_device() == device


def _record(
    known: list[_Recording],
    op: Op,
    backend: str,
    args: Sequence[Any],
    tensors: Sequence[Tensor],
) -> Outputs:
    device = tensors[0].device.index
    is_given_once = len(set(map(id, tensors))) == len(tensors)
    if not is_given_once or not _can_replay([x.data_ptr() for x in tensors], device):
        return compute(op, backend, args)
    outputs = op.allocate(*args)
    results = as_tuple(outputs)
    if all(out.numel() == 0 for out in results):
        return outputs
    with torch_internals.Allocations() as allocations:
        arguments = op.arguments(*results, *args)
    workspaces = (x for x in allocations.untouched if any(x is y for y in arguments))
    memory = (*results, *(x for x in workspaces if x.numel() > 0))
    stream = torch_internals.current_stream(device)
    launch = backends.record(backend, op, arguments, (*memory, *tensors), stream)
    if launch is None:
        backends.run(backend, op, outputs, *args)
    recording = _Recording(
        is_alike=torch_internals.guard_of(tensors),
        device=device,
        allocate=tuple(map(torch_internals.allocator_of, memory)),
        n_outputs=len(results) if isinstance(outputs, tuple) else None,
        launch=launch,
    )
    known.append(recording)
    del known[:-MOST_OF_A_SHAPE]
    return outputs


def _remember(key: Hashable) -> None:
    if len(_recordings) >= MOST_SHAPES:
        _recordings.clear()
    _recordings[key] = []
