"""What can be timed: our own implementations, PyTorch's, and those of the peers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

import bindings
from bindings import torch_internals
from bindings.backends import Launch, cuda_inline, native, prebuilt, triton
from bindings.errors import UnsupportedError
from bindings.op import Argument, Op, Outputs
from compare import peers
from compare.judge.parity import Skipped
from compare.timing.names import BACKENDS

# What needs no compiler when it is called, of ours and of others.
COMPILED_BEFORE = ("cuda", "torch", "unfused")


@dataclass(frozen=True)
class Implementation:
    """An implementation of an op.

    Attributes:
        name: Such as "cuda" or "torch.compile".
        call: Takes the op's arguments and returns the outputs, which it allocates.
        bare_launcher: Takes all outputs and the op's arguments, and returns what
            launches the kernel and does nothing else; None where there is no such
            thing.
        note: What a peer overwrites or skips.
        n_outputs: How many of the op's outputs it returns; None where it returns all.
        is_random: Whether the values of its results cannot be judged.
    """

    name: str
    call: Callable[..., Outputs]
    bare_launcher: Callable[..., Callable[[], None]] | None = None
    note: str = ""
    n_outputs: int | None = None
    is_random: bool = False


def find(
    op: Op, backends: Sequence[str], peer_names: Sequence[str]
) -> dict[str, Implementation | Skipped]:
    """Implementations by name, in the order asked for.

    Args:
        op: What they implement.
        backends: Of ours.
        peer_names: Of the others; those that have no such op are left out.
    """
    found: dict[str, Implementation | Skipped] = {}
    for name in backends:
        found[name] = _of_ours(op, name)
    theirs = {each.name: each for each in peers.of(op.name)}
    for name in peer_names:
        if name in theirs:
            found[name] = _of_a_peer(theirs[name])
        elif name == "torch":
            found[name] = Implementation(name, op.reference)
        elif name == "torch.compile":
            found[name] = Implementation(name, peers.compiled(op.reference))
    return found


def find_one(op: Op, name: str) -> Implementation | Skipped | None:
    """The implementation of this name, ours or another's; None if there is none."""
    is_ours = name in BACKENDS
    return find(op, [name] if is_ours else [], [] if is_ours else [name]).get(name)


def _of_ours(op: Op, backend: str) -> Implementation | Skipped:
    call = functools.partial(getattr(bindings, op.name), backend=backend)
    if backend == "triton":
        return Implementation(backend, call, functools.partial(_triton, op))
    try:
        module = (
            prebuilt.load("_cuda")
            if backend == "cuda"
            else cuda_inline.load(op, "_cuda")
        )
    except UnsupportedError as error:
        return Skipped(str(error))
    return Implementation(backend, call, functools.partial(_native, op, module))


def _triton(op: Op, *arguments: Any) -> Callable[[], None]:
    bare = op.arguments(*arguments)
    again = _again(triton.record, op, bare)
    return again or functools.partial(triton.launcher(op), *bare)


def _native(op: Op, module: Any, *arguments: Any) -> Callable[[], None]:
    again = _again(
        functools.partial(native.record, module), op, op.arguments(*arguments)
    )
    assert again
    return again


def _again(
    record: Callable[..., Launch | None], op: Op, bare: tuple[Argument, ...]
) -> Callable[[], None] | None:
    """What launches as a call does whose kind is known; None if it cannot be."""
    tensors = [x for x in bare if isinstance(x, Tensor)]
    device = torch_internals.current_device()
    launch = record(op, bare, tensors, torch_internals.current_stream(device))
    if launch is None:
        return None

    def again() -> None:
        addresses = [x.data_ptr() for x in tensors]
        launch(addresses, torch_internals.current_stream(device))

    return again


def _of_a_peer(peer: peers.Peer) -> Implementation | Skipped:
    try:
        return Implementation(
            peer.name,
            peer.load(),
            note=peer.note,
            n_outputs=peer.n_outputs,
            is_random=peer.is_random,
        )
    except ModuleNotFoundError as error:
        return Skipped(f"needs {error.name}: pip install {peers.PACKAGES[peer.name]}")
    except Exception as error:  # what a package of others raises when it is imported
        return Skipped(f"{peers.PACKAGES[peer.name]} cannot be imported: {error!r}")
