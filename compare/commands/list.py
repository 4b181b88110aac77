"""`compare list`: the ops."""

from __future__ import annotations

import argparse
import sys

from compare.errors import EXIT_OK
from compare.parameters import read_ops

SUMMARY = "List the ops."


def add_options(parser: argparse.ArgumentParser) -> None:
    """There are none."""


def run(options: argparse.Namespace) -> int:
    """A line for each op."""
    forward = [op for op in read_ops().values() if not op.forward]
    width = max(len(op.name) for op in forward)
    for op in forward:
        directions = "forward, backward" if op.has_gradient else "forward"
        sys.stdout.write(f"{op.name:<{width}}  {directions:<17}  {op.summary}\n")
    return EXIT_OK
