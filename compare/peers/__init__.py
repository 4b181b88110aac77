"""What others have made of the same ops, to be timed beside ours.

None of them is needed: a peer whose package is missing is left out, and the report says
so. A new op may bring its peers along as compare/peers/<op>.py, with a tuple PEERS.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass

import torch

from bindings.op import Outputs


@dataclass(frozen=True)
class Peer:
    """Another implementation of an op.

    Attributes:
        name: One of compare.timing.names.PEERS. "torch" and "torch.compile" are the
            op's reference where no peer has that name.
        load: Imports what it needs, and returns what takes the op's own arguments and
            returns what the op returns.
        package: What pip knows it as; empty if it is PyTorch.
        note: What it overwrites or skips, and how it differs; one sentence or none.
        n_outputs: How many of the outputs it returns, from the first on; None where
            it returns all.
        is_random: Whether it draws other random numbers than the op is defined by, so
            that the values of its results cannot be judged. The note has to say so.
    """

    name: str
    load: Callable[[], Callable[..., Outputs]]
    package: str = ""
    note: str = ""
    n_outputs: int | None = None
    is_random: bool = False


def compiled(function: Callable[..., Outputs]) -> Callable[..., Outputs]:
    """What torch.compile makes of a function, for each shape anew."""
    # Shapes of one case after the other must not make it compile for any shape.
    torch.compiler.reset()
    result: Callable[..., Outputs] = torch.compile(
        function,
        fullgraph=True,
        dynamic=False,
        # It times its configurations in every process, also where the code is cached:
        # compile_ahead's choice was made while others used the GPU.
        options={"autotune_local_cache": False},
    )
    return result


def of(op: str) -> tuple[Peer, ...]:
    """The peers of an op."""
    name = f"compare.peers.{op}"
    if importlib.util.find_spec(name) is None:
        return ()
    peers: tuple[Peer, ...] = importlib.import_module(name).PEERS
    return peers


def packages() -> list[str]:
    """The packages of all peers, as pip knows them."""
    ops = (module.name for module in pkgutil.iter_modules(__path__))
    return sorted({peer.package for op in ops for peer in of(op) if peer.package})
