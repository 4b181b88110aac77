"""The needs of a case before it is run: native modules and memory."""

from __future__ import annotations

import math
import os

import torch

from bindings.backends import prebuilt
from bindings.errors import UnsupportedError
from bindings.op import Op
from bindings.sources import ModuleName
from bindings.trials import TRIALS
from compare.errors import UnavailableError
from compare.judge.cases import Case

# Generous: tensors, copies, and the float64 ones that the errors of three results are
# taken from at the same time.
_BYTES_PER_ELEMENT = 200


def require_module(name: ModuleName) -> None:
    """Makes sure of a native module.

    Elsewhere a backend that cannot serve is skipped; without this one, everything is.

    Raises:
        UnavailableError: It is not there.
    """
    try:
        prebuilt.load(name)
    except UnsupportedError as error:
        raise UnavailableError(str(error)) from error


def check_memory(op: Op, case: Case, device: torch.device) -> None:
    """Asks beforehand: the system ends a process that takes more than there is.

    Raises:
        UnavailableError: The device has too little.
    """
    if shortage := memory_shortage(op, case, device):
        raise UnavailableError(f"--shape {shortage}: choose a smaller one")


def memory_shortage(op: Op, case: Case, device: torch.device) -> str:
    """Tells how much memory a case lacks on the device; empty if none."""
    trial, n_elements = TRIALS[op.name], math.prod(case.shape)
    if trial.shape_names:  # no tensor has this shape
        n_elements = trial.traffic(case.shape, 1).total_bytes
    needed = n_elements * _BYTES_PER_ELEMENT
    if device.type == "cuda":
        owner, (available, _) = "the GPU", torch.cuda.mem_get_info(device)
    else:
        owner = "this machine"
        available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed <= available:
        return ""
    return (
        f"{'x'.join(map(str, case.shape))} takes about {needed / 1e9:,.0f} GB of"
        f" memory, and {owner} has {available / 1e9:,.0f}"
    )
