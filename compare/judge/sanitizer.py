"""An op's kernels under the checker: races, bad accesses and deadlocks, without a GPU.

The checker (csrc/emulator/checker) sees every access of a kernel in the emulator. The
cases are the smallest ones that launch every kernel instance of the op.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import math
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from bindings.backends import cuda_inline, native
from bindings.errors import BuildError, UnsupportedError
from bindings.op import DTYPES, Argument, Op, as_tuple
from bindings.registry import OPS
from bindings.trials import TRIALS
from compare.code.architectures import ARCHITECTURES
from compare.errors import BuildFailedError
from compare.judge.cases import LAYOUTS, Case, in_dtype, lay_out_all, make_arguments

# Threads and blocks in these orders: correct kernels do not care.
ORDERS = ("forward", "reverse", "random:1", "random:2", "random:3")

_ARCHITECTURE = 90  # what the emulator stands for
_N_SMS = ARCHITECTURES[_ARCHITECTURE].multiprocessors  # in every plan
_VECTOR_SIZE = 8  # elements of the smallest dtype in 16 bytes
# Several blocks of the elementwise kernels, and still quick.
_SMALL = 10_000

# As in csrc/emulator/emulator_checker.h.
_INPUT, _OUTPUT, _WORKSPACE = range(3)


@dataclass
class Finding:
    """A fault, however often it was found."""

    message: str  # what is said of it the first time
    first: str  # in which launch, or by which tool, that was
    count: int = 0  # of launches, or by a tool


@dataclass(frozen=True)
class Run:
    """One thing that is run: an op, perhaps on a rung of its ladder, in a case."""

    op: Op
    case: Case


@dataclass
class Report:
    """The faults that were found in an op, and where they were looked for."""

    op: str
    # "emulator", the name of a GPU, or what compiled code is for, and that it is
    # simulated.
    device: str
    findings: list[Finding] = field(default_factory=list)  # in the order of discovery
    kernels: list[str] = field(default_factory=list)  # the instances that ran
    runs: list[Run] = field(default_factory=list)  # what they ran on
    passes: tuple[str, ...] = ORDERS  # of threads and blocks, or tools, for each case
    seconds: float = 0.0  # that it took
    language: str = "CUDA"  # of the kernels
    missing: str = ""  # why nothing was run

    @property
    def launches(self) -> int:
        """How many launches it took."""
        return len(self.runs) * len(self.passes)


def sanitize(name: str, progress: Callable[[str], None]) -> Report:
    """Runs an op under the checker, and tells `progress` what is going on.

    Raises:
        BuildFailedError: The kernels do not compile.
    """
    op = OPS[name]
    progress(f"compiling {name} for the checker")
    try:
        module = cuda_inline.load(op, "_checked")
    except BuildError as error:
        raise BuildFailedError(str(error)) from error
    progress("choosing cases")
    chosen = choose_runs(op, module, _ARCHITECTURE)
    report = Report(
        name, "emulator", kernels=sorted(chosen), runs=distinct_runs(chosen)
    )
    found: dict[str, Finding] = {}
    begin = time.perf_counter()
    for number, (run, order) in enumerate(itertools.product(report.runs, ORDERS)):
        if number % 10 == 0:
            progress(f"launch {number} of {report.launches}")
        if message := Checker(module, run.op).run(run.case, order):
            finding = Finding(message, f"{describe(run)}, order {order}")
            found.setdefault(identity(message), finding).count += 1
    report.seconds = time.perf_counter() - begin
    report.findings = list(found.values())
    return report


def describe(run: Run) -> str:
    """The case in words, and the rung where it is of one."""
    case = run.case
    parts = [
        f"rung {run.op.rung}" if run.op.rung else "",
        case.shape_name or "0-d",
        case.dtype_name,
        case.layout,
        *(f"{name}={value}" for name, value in case.params.items()),
    ]
    return " ".join(filter(None, parts))


# ---- Cases ---------------------------------------------------------------------------


def choose_runs(op: Op, module: ModuleType, arch: int) -> dict[str, list[Run]]:
    """By kernel instance, as few runs as will do on an architecture, small ones first.

    A call takes most of the kernels; the others are those of the rungs. Any native
    module of the op will do.
    """
    chosen: dict[str, list[Run]] = {}
    for rung in ("", *op.rungs):
        on_rung = op.on_rung(rung)
        for kernel, launched in _launched(on_rung, module, arch).items():
            runs = [Run(on_rung, case) for case in _most_different(launched)]
            chosen.setdefault(kernel, runs)
    return chosen


def distinct_runs(chosen: dict[str, list[Run]]) -> list[Run]:
    """Each run once, which may launch several kernels or be chosen twice for one."""
    runs = itertools.chain.from_iterable(chosen.values())
    return list({describe(run): run for run in runs}.values())


def _launched(
    op: Op, module: ModuleType, arch: int
) -> dict[str, list[tuple[Case, int]]]:
    """By kernel instance all cases that launch it, small first, and its blocks there.

    A case that the op's rung has no kernel for is left out.
    """
    by_kernel: dict[str, list[tuple[Case, int]]] = {}
    for case, arguments in candidates(op):
        with contextlib.suppress(UnsupportedError):
            for plan in native.plan(module, op, arguments, arch):
                launched = case, math.prod(plan["grid"])
                by_kernel.setdefault(plan["signature"], []).append(launched)
    return by_kernel


def candidates(op: Op) -> Iterator[tuple[Case, tuple[Argument, ...]]]:
    """All cases with something to compute, on tensors without memory, small first."""
    trial, generator = TRIALS[op.name], torch.Generator()
    for shape in sorted(_shapes(op), key=math.prod):
        inputs = [x.to("meta") for x in trial.inputs(shape, generator)]
        alone = {f"offset {number}": number for number in range(len(inputs))}
        if len(inputs) == 1 or math.prod(shape[-1:]) % _VECTOR_SIZE > 0:
            alone = {}  # the others would have no vectors either
        layouts = (*LAYOUTS, *alone)
        for dtype, layout, params in itertools.product(DTYPES, layouts, trial.variants):
            typed = [in_dtype(x, dtype) for x in inputs]
            laid_out = lay_out_all(typed, layout, "meta")
            arguments = trial.bind(trial.complete(*laid_out), params, dtype)
            if layout in alone:
                offset = laid_out[alone[layout]]
                if not any(x is offset for x in arguments):
                    continue  # it has no part in the call
            outputs = as_tuple(op.allocate(*arguments))
            case = Case(shape, dtype, layout, params)
            yield case, op.arguments(*outputs, *arguments)


def _shapes(op: Op) -> set[tuple[int, ...]]:
    """The edge shapes, and for each the next one whose rows are whole vectors."""
    shapes = {shape for shape in TRIALS[op.name].edge_shapes if math.prod(shape) > 0}
    rounded = {
        (*shape[:-1], -(-shape[-1] // _VECTOR_SIZE) * _VECTOR_SIZE)
        for shape in shapes
        if shape
    }
    return shapes | rounded


def _most_different(launched: list[tuple[Case, int]]) -> list[Case]:
    """A few cases of a kernel: small, large, with a tail, of each layout and parameter.

    And one whose blocks, the number beside it, fill the multiprocessors: a persistent
    kernel never has more, and finds in its next tile what it has left itself.
    """
    cases = [case for case, _ in launched]
    limit = max(_SMALL, math.prod(cases[0].shape))
    small = [case for case in cases if math.prod(case.shape) <= limit]
    odd = [case for case in small if math.prod(case.shape) > 1 and case.shape[-1] % 2]
    persistent = [case for case, n_blocks in launched if n_blocks == _N_SMS]
    chosen = [cases[0], *odd[:1], *small[-1:], *persistent[:1]]
    firsts: dict[str, Case] = {}
    for case in small:
        firsts.setdefault(case.layout, case)
        firsts.setdefault(str(case.params), case)
    return [*chosen, *firsts.values()]


# ---- Runs ----------------------------------------------------------------------------


class Checker:
    """The checker that a `_checked` module of an op holds."""

    def __init__(self, module: ModuleType, op: Op) -> None:
        """Finds the checker's functions in the module."""
        self._module = module
        self._op = op
        self._names = native.parameters(module, op)
        self._library = ctypes.CDLL(str(module.__file__))
        self._library.emulator_register_tensor.argtypes = [
            ctypes.c_char_p,
            ctypes.c_void_p,
            ctypes.c_size_t,
            ctypes.c_int,
        ]
        self._library.emulator_unwritten_outputs.restype = ctypes.c_char_p

    def run(self, case: Case, order: str) -> str:
        """Launches the op once, and returns the fault that was found; empty if none."""
        arguments = make_arguments(self._op, case)
        outputs = as_tuple(self._op.allocate(*arguments))
        for out in outputs:
            out.fill_(math.nan)
        launched = self._op.arguments(*outputs, *arguments)
        self._register(launched, len(outputs))
        try:
            with patch.dict(os.environ, TWIN_EMULATOR_ORDER=order):
                native.launch(self._module, self._op, launched, 0)
            unwritten = self._library.emulator_unwritten_outputs()
            return unwritten.decode() if unwritten else ""
        except RuntimeError as error:
            return str(error).removeprefix(f"{self._op.name}: ")
        finally:
            self._library.emulator_clear_tensors()

    def _register(self, arguments: tuple[Argument, ...], n_outputs: int) -> None:
        for number, argument in enumerate(arguments):
            if not isinstance(argument, Tensor) or argument.numel() == 0:
                continue
            name, is_written = self._names[number]
            use = _INPUT
            if is_written:  # what follows the outputs is memory to work in
                use = _OUTPUT if number < n_outputs else _WORKSPACE
            for piece in pieces(argument):
                self._library.emulator_register_tensor(name.encode(), *piece, use)


def pieces(x: Tensor) -> Iterator[tuple[int, int]]:
    """Address and bytes of every part of a tensor that has no gap."""
    dims = [(x.stride(d), x.shape[d]) for d in range(x.dim())]
    dims = sorted((stride, size) for stride, size in dims if stride > 0 and size > 1)
    n_elements = 1
    while dims and dims[0][0] == n_elements:
        n_elements *= dims.pop(0)[1]
    steps = [range(0, stride * size, stride) for stride, size in reversed(dims)]
    for offsets in itertools.product(*steps):
        address = x.data_ptr() + sum(offsets) * x.element_size()
        yield address, n_elements * x.element_size()


def identity(message: str) -> str:
    """The part that all messages of one fault have in common: its kind, and the places.

    Of a function that is inlined into several kernels, the place is its own line.
    """
    sentence = message.partition("\n")[0]
    problem = sentence.partition(": ")[2] or sentence
    kind = re.sub(r"\d+", "", problem.partition(":")[0])
    places = re.findall(r"[^\s()]+:\d+", re.sub(r"\(from [^)]*\)", "", message))
    names = re.findall(r"'[^']*'", sentence)
    return "\n".join([kind, *names, *sorted(set(places))])


# ---- For --json ----------------------------------------------------------------------


def to_json(reports: Sequence[Report]) -> dict[str, Any]:
    """The reports of an op as JSON types."""
    return {
        "schema_version": 2,
        "op": reports[0].op,
        "reports": [_as_json(each) for each in reports],
    }


def _as_json(report: Report) -> dict[str, Any]:
    return {
        "language": report.language,
        "device": report.device,
        "missing": report.missing or None,
        "findings": [asdict(finding) for finding in report.findings],
        "covered": {
            "kernels": report.kernels,
            "cases": [describe(run) for run in report.runs],
            "passes": list(report.passes),
            "launches": report.launches,
            "seconds": report.seconds,
        },
    }
