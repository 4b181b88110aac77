"""What the PTX simulator computes, beside what a GPU does with the same compiled code.

`python tests/simulated_outputs.py` runs one case of every kernel on the GPU at hand and
in the simulator, and writes how far they agree to records/<gpu>/simulated-outputs.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bindings import backends
from bindings.backends import native, prebuilt
from bindings.errors import UnsupportedError
from bindings.op import Op, as_tuple
from bindings.registry import OPS
from bindings.trials import TRIALS
from compare.code import cuda, simulated_calls
from compare.code.architectures import Architecture, parse_architecture
from compare.code.kernel_code import Side, planned_kernels
from compare.judge import acceptance
from compare.judge.cases import Case, make_arguments
from compare.judge.sanitizer import candidates
from compare.records import source_hash, store
from compare.timing import environment

SIDES: tuple[Side, ...] = ("cuda", "triton")

# Elements of a case; more would take long in the simulator.
_MOST_ELEMENTS = 10_000
_MOST_PRODUCTS = 1_000_000  # of a matmul

# What a GPU computes by tables or in an order of its own: the manual bounds the errors.
_INEXACT = re.compile(r"\.approx|\.full\b|^tanh|^w?g?mma|^tcgen05")


@dataclass(frozen=True)
class Agreement:
    """One case of a kernel, on a GPU and in the simulator.

    Attributes:
        op: The op.
        side: "cuda" or "triton".
        kernel: The function.
        case: In words.
        is_exact: Whether PTX defines every bit of its results.
        elements: Of all outputs.
        equal: Those that have the same bits, or are NaN in both.
        share: The largest difference, as a part of the error that the op may have.
    """

    op: str
    side: str
    kernel: str
    case: str
    is_exact: bool
    elements: int
    equal: int
    share: float


def function_of(title: str) -> str:
    """The function that a kernel's title is of, without its constants."""
    return re.split(r"[<\[]", title)[0].rpartition("::")[2]


def subjects(op: Op, side: Side, architecture: Architecture) -> dict[Any, Case]:
    """A case for each kernel function and dtype, the largest small one, by both."""
    found: dict[Any, Case] = {}
    most = _MOST_PRODUCTS if TRIALS[op.name].flops else _MOST_ELEMENTS
    for case, arguments in candidates(op):
        is_small = prod(case.shape) <= most
        try:
            titles = planned_kernels(side, op, arguments, architecture)
        except UnsupportedError:
            assert op.rung  # another one serves the case
            continue
        for title in titles:
            key = function_of(title), case.dtype
            if key not in found or is_small:
                found[key] = case
    return found


def measure() -> list[Agreement]:
    """Compares all kernels, several ops at a time."""
    tasks = [(name, side) for name in OPS for side in SIDES]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=spawn) as pool:
        results = pool.map(_measure_op, *zip(*tasks, strict=True))
        return [each for result in results for each in result]


def _measure_op(name: str, side: Side) -> list[Agreement]:
    major, minor = torch.cuda.get_device_capability()
    architecture = parse_architecture(f"sm_{major}{minor}")
    compared: list[Agreement] = []
    known: set[Any] = set()
    # Kernels that a call takes, and those of the twin, which it takes for larger cases.
    for rung in ("", "twin") if "twin" in OPS[name].rungs else ("",):
        op = OPS[name].on_rung(rung)
        found = subjects(op, side, architecture)
        new = {key: case for key, case in found.items() if key not in known}
        known |= found.keys()
        if side == "cuda":
            _compile_at_once(op, new.values(), architecture)
        compared += [
            agreement(op, side, kernel, case, architecture, "cuda")
            for (kernel, _), case in new.items()
        ]
    return compared


def _compile_at_once(op: Op, cases: Any, architecture: Architecture) -> None:
    """One run of nvcc for all: most of its time goes into headers."""
    module = prebuilt.load("_cpu")
    signatures = {}
    for case in cases:
        arguments = make_arguments(op, case, "meta")
        outputs = as_tuple(op.allocate(*arguments))
        launched = op.arguments(*outputs, *arguments)
        for plan in native.plan(module, op, launched, architecture.number):
            signatures[plan["kernel"]] = plan["signature"]
    cuda.compile_kernels(op.source, signatures, architecture)


def agreement(
    op: Op, side: Side, kernel: str, case: Case, architecture: Architecture, device: str
) -> Agreement:
    """How far both agree in a case; the device is the GPU, or the CPU for a test."""
    arguments = make_arguments(op, case)
    expected = acceptance.expect(op, arguments)
    outputs = as_tuple(op.allocate(*arguments))
    launched = op.arguments(*outputs, *arguments)
    simulated_calls.run(side, op, launched, architecture.target, unwritten=outputs)
    _, launches = simulated_calls.launches_of(side, op, launched, architecture)
    of_gpu = [x.cpu() for x in _outputs_on(device, op, side, arguments)]
    pairs = list(zip(outputs, of_gpu, strict=True))
    share = 0.0
    for (simulated, real), each in zip(pairs, expected, strict=True):
        allowed = acceptance.judge(real, each).allowed.max
        difference = acceptance.errors_of(simulated, real.double(), real.dtype).max
        share = max(share, difference / allowed if allowed else difference)
    return Agreement(
        op=op.name,
        side=side,
        kernel=kernel,
        case=_words(case),
        is_exact=not any(
            _INEXACT.search(instruction.opcode)
            for launch in launches
            for instruction in launch.listing.instructions
        ),
        elements=sum(x.numel() for x in outputs),
        equal=sum(map(_equal, *zip(*pairs, strict=True))),
        share=share,
    )


def _outputs_on(
    device: str, op: Op, side: Side, arguments: tuple[Any, ...]
) -> Sequence[Tensor]:
    there = [_moved(x, device) if isinstance(x, Tensor) else x for x in arguments]
    outputs = op.allocate(*there)
    backends.run(side, op, outputs, *there)
    return as_tuple(outputs)


def _moved(x: Tensor, device: str) -> Tensor:
    """A copy of a tensor with all the memory that it is a view of."""
    n_elements = x.untyped_storage().nbytes() // x.element_size()
    memory = x.as_strided((n_elements,), (1,), 0).to(device, copy=True)
    return memory.as_strided(x.shape, x.stride(), x.storage_offset())


def _equal(x: Tensor, y: Tensor) -> int:
    is_same = acceptance.bits(x.contiguous()) == acceptance.bits(y.contiguous())
    return int((is_same | (x.isnan() & y.isnan())).sum())


def _words(case: Case) -> str:
    params = (f"{name}={value}" for name, value in case.params.items())
    return " ".join([case.shape_name, case.dtype_name, case.layout, *params])


# ---- Files ---------------------------------------------------------------------------


def file_of(gpu_name: str) -> Path:
    """The file of a GPU."""
    return store.folder_of(gpu_name) / "simulated-outputs" / "agreement.json"


def read(file: Path) -> list[Agreement]:
    """Reads what is recorded of a GPU."""
    return [Agreement(**each) for each in json.loads(file.read_text())["kernels"]]


def write(found: Sequence[Agreement]) -> Path:
    """Writes what was found on the GPU at hand."""
    content = {
        "ops": sorted(OPS),
        "environment": {
            **environment.collect(),
            source_hash.KEY: source_hash.hashes(*OPS),
        },
        "kernels": [asdict(each) for each in found],
    }
    file = file_of(torch.cuda.get_device_name())
    file.parent.mkdir(parents=True, exist_ok=True)
    store.replace(file, (json.dumps(content, indent=1) + "\n").encode())
    return file


if __name__ == "__main__":
    sys.stdout.write(f"{write(measure())}\n")
