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

from torch import Tensor


@dataclass(frozen=True)
class Peer:
    """Another implementation of an op.

    Attributes:
        name: One of compare.options.PEERS.
        load: Imports what it needs, and returns what takes the op's own arguments and
            returns the output.
        package: What pip knows it as; empty if it is PyTorch.
        note: What it overwrites or skips, and how it differs; one sentence or none.
    """

    name: str
    load: Callable[[], Callable[..., Tensor]]
    package: str = ""
    note: str = ""


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
