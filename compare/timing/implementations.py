"""The implementations that can be timed: our own, PyTorch's, and the peers'."""

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
from bindings.op import Op, Outputs
from compare import peers
from compare.judge.parity import Skipped
from compare.timing.names import BACKENDS

# They need no compiler when they are called.
COMPILED_BEFORE = ("cuda", "torch", "unfused")


@dataclass(frozen=True)
class Implementation:
    """An implementation of an op."""

    name: str  # such as "cuda" or "torch.compile"
    # Takes the op's arguments and returns the outputs, which it allocates.
    call: Callable[..., Outputs]
    # Takes all outputs and the op's arguments, and returns what launches the kernel and
    # does nothing else; None where there is no such thing.
    bare_launcher: Callable[..., Callable[[], object]] | None = None
    n_outputs: int | None = None  # as in Peer
    is_random: bool = False


def find(
    op: Op, backends: Sequence[str], peer_names: Sequence[str]
) -> dict[str, Implementation | Skipped]:
    """Implementations by name, in the order asked for.

    Args:
        op: What they implement.
        backends: Names of ours.
        peer_names: Names of the others; those that have no such op are left out.
    """
    found = {name: _of_ours(op, name) for name in backends}
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
        return Implementation(
            backend, call, functools.partial(_bind, op, triton.record)
        )
    try:
        module = (
            prebuilt.load("_cuda")
            if backend == "cuda"
            else cuda_inline.load(op, "_cuda")
        )
    except UnsupportedError as error:
        return Skipped(str(error))
    record = functools.partial(native.record, module)
    return Implementation(backend, call, functools.partial(_bind, op, record))


def _bind(
    op: Op, record: Callable[..., Launch | None], *arguments: Any
) -> Callable[[], object]:
    """A launch on these arguments, as cheap as that of a call that is repeated."""
    bare = op.arguments(*arguments)
    tensors = [x for x in bare if isinstance(x, Tensor)]
    device = torch_internals.current_device()
    launch = record(op, bare, tensors, torch_internals.current_stream(device))
    if launch is None:  # Triton has launches that cannot be repeated
        return functools.partial(triton.launcher(op), *bare)
    return lambda: launch(
        [x.data_ptr() for x in tensors], torch_internals.current_stream(device)
    )


def _of_a_peer(peer: peers.Peer) -> Implementation | Skipped:
    package = peers.PACKAGES.get(peer.name, peer.name)
    try:
        return Implementation(
            peer.name, peer.load(), None, peer.n_outputs, peer.is_random
        )
    except ModuleNotFoundError as error:
        return Skipped(f"needs {error.name}: pip install {package}")
    except Exception as error:  # what a package of others raises when it is imported
        return Skipped(f"{package} cannot be imported: {error!r}")
