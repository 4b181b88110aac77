"""Implementations of the same ops by others, to be timed beside ours.

None of them is needed: a peer whose package is missing is left out, and the report says
so. A new op may bring its peers along as compare/peers/<op>.py, with a tuple PEERS, and
a tuple BACKWARD of those of its backward.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass

import torch

from bindings.op import Outputs

# By pip's names; the other peers come with PyTorch.
PACKAGES = {
    "liger": "liger-kernel",
    "quack": "quack-kernels",
    "flash-attn": "flash-attn",
    "flash-attn-4": "flash-attn-4",
}
FORMULA = "the formula in float32, each operation a kernel"


@dataclass(frozen=True)
class Peer:
    """Another implementation of an op."""

    # One of compare.timing.names.PEERS. "torch" and "torch.compile" are the op's
    # reference where no peer has that name.
    name: str
    # Imports what it needs, and returns what takes the op's own arguments and returns
    # what the op returns.
    load: Callable[[], Callable[..., Outputs]]
    note: str = ""  # what it overwrites or skips, and how it differs; one sentence
    n_outputs: int | None = None  # if it returns the first of the op's outputs only
    # Draws other random numbers than the op is defined by, so that nobody can judge the
    # values of its results. The note has to say so.
    is_random: bool = False


def using(
    function: Callable[..., Outputs], *names: str
) -> Callable[[], Callable[..., Outputs]]:
    """A loader of a function whose first arguments are taken from a package.

    Args:
        function: Takes them, and then the op's own arguments.
        names: Such as "quack.softmax:softmax".
    """
    return lambda: functools.partial(function, *map(pkgutil.resolve_name, names))


def compiled(function: Callable[..., Outputs]) -> Callable[..., Outputs]:
    """A function as torch.compile compiles it, for each shape anew."""
    # Shapes of one case after the other must not make it compile for any shape.
    torch.compiler.reset()
    result: Callable[..., Outputs] = torch.compile(
        function,
        fullgraph=True,
        dynamic=False,
        # Inductor times its configurations in every process, even if the code is in the
        # cache: compile_ahead's choice was made while others used the GPU.
        options={"autotune_local_cache": False},
    )
    return result


def of(op: str) -> tuple[Peer, ...]:
    """The peers of an op."""
    forward = op.removesuffix("_backward")
    name = f"compare.peers.{forward}"
    if importlib.util.find_spec(name) is None:
        return ()
    kind = "PEERS" if op == forward else "BACKWARD"
    peers: tuple[Peer, ...] = getattr(importlib.import_module(name), kind, ())
    return peers
