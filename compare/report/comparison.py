"""The report on an op, and its JSON, which is schema 1."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from compare.assembly.listing import Instruction
from compare.assembly.mix import Mix
from compare.assembly.places import in_sources
from compare.code import memory, trace
from compare.code.findings import Finding
from compare.code.kernel_code import KernelCode, Side
from compare.code.rungs import SIDES, Shown, name_of
from compare.judge.cases import Case
from compare.judge.checks import Check
from compare.judge.parity import Parity, Skipped
from compare.report import recorded
from compare.report.own_pair import OwnPair
from compare.timing.names import NAMES
from compare.timing.times import Bench, CaseTimes, Timing, as_json, limits_to_json

SCHEMA_VERSION = 1

NOT_ASKED_FOR = Skipped("not asked for by --backend")


@dataclass(frozen=True)
class Report:
    """An op in one case, or a user's own files on one call."""

    op: str  # its name; of own files a title
    environment: dict[str, Any]  # from compare.timing.environment
    case: Case | None  # None for own files
    backends: tuple[str, ...]
    parity: Mapping[str, Parity | Skipped]  # by backend; PyTorch's own under "torch"
    times: CaseTimes | Skipped
    codegen: Mapping[str, KernelCode | Skipped]  # by side
    findings: tuple[Finding, ...] = ()  # where there is code of both sides
    violations: tuple[str, ...] = ()  # what breaks the op's contract on code
    # By side, the titles of kernels that are known though there is no code of them.
    planned: Mapping[str, str] = field(default_factory=dict)
    # By side, the rung that the code is of, where that is known.
    shown: Mapping[Side, Shown] = field(default_factory=dict)
    # By side, how many times as fast as the twin a call is, where that is known.
    gains: Mapping[Side, float] = field(default_factory=dict)
    recorded: Bench | Skipped | None = None  # where no times can be measured
    # What implementations are called, where that is not their usual name.
    names: Mapping[str, str] = field(default_factory=dict)
    # Besides parity: by the name of a row, and then by implementation.
    checks: Mapping[str, Mapping[str, Check]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # sentences below the figures
    parity_row: str = "parity with float64"  # what parity is called there
    own: OwnPair | None = None  # the user's files, where there is no op

    @property
    def passed(self) -> bool:
        """Whether no backend that ran failed, and no check."""
        tried = (each for each in self.parity.values() if isinstance(each, Parity))
        checks = (each for row in self.checks.values() for each in row.values())
        return all(each.passed for each in tried) and all(e.passed for e in checks)

    @property
    def implementations(self) -> tuple[str, ...]:
        """The columns of figures: the backends, then PyTorch if it was run."""
        others = (each for each in ("torch", "torch.compile") if each in self.parity)
        return (*self.backends, *others)

    @property
    def what(self) -> str:
        """What the implementations were given: shape, dtype, layout, parameters."""
        if self.own:
            return self.own.what
        assert self.case
        return case_name(self.case)

    @property
    def element_bytes(self) -> int:
        """Of an element of the largest tensor."""
        if self.own:
            return self.own.element_bytes
        assert self.case
        return self.case.dtype.itemsize

    def called(self, implementation: str) -> str:
        """What an implementation is called."""
        return self.names.get(implementation) or NAMES[implementation]

    @property
    def codes(self) -> list[KernelCode]:
        """The code of each side that has some."""
        return [each for each in self.codegen.values() if isinstance(each, KernelCode)]

    @property
    def kernels(self) -> dict[Side, str]:
        """By side the name of its kernel, where that is known, code or not."""
        titles = {each.side: each.title for each in self.codes}
        return {
            side: name_of(title)
            for side in SIDES
            if (title := titles.get(side) or self.planned.get(side))
        }

    def code_of(self, implementation: str) -> KernelCode | None:
        """The generated code of an implementation, if there is some."""
        # Both ways of building the CUDA side compile the same sources.
        side = "cuda" if implementation == "cuda_inline" else implementation
        code = self.codegen.get(side)
        return code if isinstance(code, KernelCode) else None

    def timing(self, implementation: str) -> Timing | Skipped:
        """The times of an implementation."""
        if isinstance(self.times, Skipped):
            return self.times
        return self.times.timings.get(implementation, NOT_ASKED_FOR)


def case_name(case: Case) -> str:
    """Shape, dtype, layout and parameters."""
    params = (f"{name}={value}" for name, value in case.params.items())
    return " ".join((case.shape_name, case.dtype_name, case.layout, *params))


def to_json(report: Report) -> dict[str, Any]:
    """The report of one op."""
    return {
        "schema_version": SCHEMA_VERSION,
        "environment": report.environment,
        **_op(report),
    }


def all_to_json(reports: list[Report]) -> dict[str, Any]:
    """The reports of several ops, made in the same environment."""
    return {
        "schema_version": SCHEMA_VERSION,
        "environment": reports[0].environment,
        "ops": [_op(each) for each in reports],
    }


def _op(report: Report) -> dict[str, Any]:
    return {
        "op": report.op,
        **_own(report),
        "cases": [_case(report) | _recorded(report)],
    }


def _own(report: Report) -> dict[str, Any]:
    if not report.own:
        return {}
    return {
        "files": dict(report.own.files),
        "checks": {
            row: {
                name: as_json(each) | {"passed": each.passed}
                for name, each in checks.items()
            }
            for row, checks in report.checks.items()
        },
        "notes": list(report.notes),
    }


def _recorded(report: Report) -> dict[str, Any]:
    if isinstance(report.recorded, Bench) and report.case:
        return {"recorded": recorded.to_json(report.recorded, report.case)}
    return {"recorded": as_json(report.recorded)} if report.recorded else {}


def _case(report: Report) -> dict[str, Any]:
    return {
        "case": as_json(report.case) if report.case else report.what,
        "parity": {name: _parity(each) for name, each in report.parity.items()},
        "timing": {name: as_json(report.timing(name)) for name in report.parity},
        **limits_to_json(report.times),
        "rungs": {
            side: {
                "shown": each.op.rung,
                "taken": each.taken,
                "gain": report.gains.get(side),
                "choice": each.choice,
            }
            for side, each in report.shown.items()
        },
        "codegen": {name: _codegen(each) for name, each in report.codegen.items()},
        "findings": [_finding(each, report) for each in report.findings],
        "violations": list(report.violations),
    }


def _parity(parity: Parity | Skipped) -> Any:
    if isinstance(parity, Skipped):
        return as_json(parity)
    return {
        "passed": parity.passed,
        "max_error": _number(parity.error.max),
        "allowed": _number(parity.allowed.max),
        "rms_error": _number(parity.error.rms),
        "rms_allowed": _number(parity.allowed.rms),
        "ran_on": parity.ran_on,
        "problem": parity.problem,
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None  # JSON has no NaN


def _codegen(code: KernelCode | Skipped) -> Any:
    if isinstance(code, Skipped):
        return as_json(code)
    simulation, totals = code.simulation, memory.totals(code.simulation)
    return {
        **_selected(code, "arch", "kernel", "title", "kernels", "compiler"),
        **_selected(code.launch, "grid", "block"),
        **_selected(code, "registers", "spill_bytes", "stack_bytes", "shared_bytes"),
        "occupancy": _selected(
            code.occupancy, "fraction", "blocks_per_sm", "warps_per_sm", "limited_by"
        ),
        "executed_per_thread": simulation.executed_per_thread,
        "emulated_blocks": simulation.blocks,
        "is_exact": simulation.is_exact,
        **_selected(totals, "global_bytes", "sectors", "fewest_sectors"),
        "bank_conflicts": totals.bank_conflicts,
        "memory": [
            {**as_json(each), "places": _places(code, each.instructions)}
            for each in memory.movements(simulation)
        ],
        "out_of_bounds": [
            {**as_json(each), "places": _places(code, [each.index])}
            for each in simulation.out_of_bounds
        ],
        "trace": as_json(list(trace.rows_of(code.ptx, simulation.traces))),
        "ptx_instructions": code.ptx_mix.total,
        "sass_instructions": code.sass_mix.total,
        "mix": {"ptx": _mix(code.ptx_mix), "sass": _mix(code.sass_mix)},
    }


def _selected(value: object, *names: str) -> dict[str, Any]:
    return {name: as_json(getattr(value, name)) for name in names}


def _places(code: KernelCode, indices: Sequence[int]) -> list[str]:
    return list(in_sources(code.ptx.instructions[index] for index in indices))


def _mix(mix: Mix) -> dict[str, Any]:
    return {
        category: {
            "count": count,
            "by_access_bytes": {
                str(width): number
                for width, number in mix.widths.get(category, {}).items()
            },
        }
        for category, count in mix.counts.items()
    }


def _finding(finding: Finding, report: Report) -> dict[str, Any]:
    return {
        **_selected(finding, "rule", "topic", "text", "side", "weight", "language"),
        "evidence": [
            {
                "side": side,
                "place": next(iter(in_sources([each])), None),
                "index": each.index,
                "instruction": each.text,
            }
            for side, each in _evidence(finding, report)
        ],
    }


def _evidence(finding: Finding, report: Report) -> Iterator[tuple[str, Instruction]]:
    for side, indices in (("cuda", finding.cuda), ("triton", finding.triton)):
        code = report.codegen[side]
        assert isinstance(code, KernelCode)  # else there are no findings
        listing = code.ptx if finding.language == "ptx" else code.sass
        for index in indices:
            yield side, listing.instructions[index]
