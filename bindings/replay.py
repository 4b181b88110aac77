"""Replays calls of a known kind: memory, addresses, and the launch.

An op's checks, allocations and launcher arguments follow from the kind of a call: its
tensors' types, shapes, strides and dtypes, and its other arguments. The contents of a
GPU's tensors have no part in them, since reading those would mean waiting. So a kind
that comes a second time is recorded, and replayed from then on: PyTorch's dispatcher,
the checks and the layout of tensors take the host several times as long as a launch.

A call in which a part of PyTorch such as autograd or a mode is involved goes through
the dispatcher instead, as all calls do under torch.compile. Once the dispatcher reaches
the op's implementation, nothing else is involved any more, and the call can be replayed
there.
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

# No other: on the CPU an op may read the contents of its tensors.
DEVICE_TYPE = "cuda"

# Alignment of every address, in bytes. Triton compiles another kernel for tensors that
# are aligned to less.
ALIGNMENT = 16

# The most shapes remembered, and for each shape the most kinds, which differ in
# strides, dtype and the like.
MOST_SHAPES = 4096
MOST_OF_A_SHAPE = 16


@dataclass(frozen=True)
class _Recording:
    """The facts that the calls of a kind have in common.

    Attributes:
        is_alike: Takes a call's tensors and returns whether the call is of this kind.
        device: The index of the GPU.
        allocate: Functions that make the outputs and, after them, the workspaces.
        n_outputs: Number of outputs; None for one that is not in a tuple.
        launch: Repeats the op's launch; None where that cannot be replayed.
    """

    is_alike: Callable[..., bool]
    device: int
    allocate: tuple[Callable[[], Tensor], ...]
    n_outputs: int | None
    launch: Launch | None


_recordings: dict[Hashable, list[_Recording]] = {}


def call(op: Op, backend: str, overload: str, args: Sequence[Any]) -> Outputs | None:
    """Returns a call's outputs; None if another part of PyTorch is involved in it."""
    if torch_internals.is_watched():
        return None
    tensors = []
    kind = [op.name, backend, overload, torch.is_grad_enabled()]
    for x in args:
        if isinstance(x, Tensor):
            tensors.append(x)
            kind.append(x.shape)
        else:  # True and 1 are one key in a dictionary, but not the same to an op
            kind.append((type(x), x))
    key = tuple(kind)
    try:
        known = _recordings.get(key)
    except TypeError:  # a list is not hashable
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
    """Forgets all recordings, so that every kind of call is recorded anew."""
    _recordings.clear()


def compute(op: Op, backend: str, args: Sequence[Any]) -> Outputs:
    """Computes the outputs of a call of any kind."""
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
