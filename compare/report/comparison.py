"""What was found out about an op, and the JSON of it, which is schema 1."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from compare.assembly.classify import Language
from compare.assembly.mix import Mix
from compare.assembly.places import in_sources
from compare.code import memory, trace
from compare.code.findings import Finding
from compare.code.kernel_code import KernelCode, Side
from compare.code.occupancy import Occupancy
from compare.code.rungs import Shown
from compare.judge.cases import Case
from compare.judge.parity import Parity, Skipped
from compare.report import recorded
from compare.timing.times import (
    Bench,
    CaseTimes,
    Timing,
    as_json,
    limits_to_json,
)

SCHEMA_VERSION = 1

NOT_ASKED_FOR = Skipped("not asked for by --backend")


@dataclass(frozen=True)
class CaseReport:
    """An op in one case.

    Attributes:
        case: What it was tried on.
        backends: What was compared.
        parity: By backend, PyTorch's own errors under "torch".
        times: Of the backends and of PyTorch.
        codegen: "cuda" and "triton".
        findings: How the two differ, where that is shown and there is code of both.
        violations: What in the code breaks the op's contract, if that speaks of the
            case.
        planned: The titles of kernels that are known though there is no code of them,
            "cuda" or none.
        shown: By side, the rung that the code is of; nothing where that is unknown.
        gains: By side, how many times as fast as the twin a call is; those known.
    """

    case: Case
    backends: tuple[str, ...]
    parity: Mapping[str, Parity | Skipped]
    times: CaseTimes | Skipped
    codegen: Mapping[str, KernelCode | Skipped]
    findings: tuple[Finding, ...]
    violations: tuple[str, ...] = ()
    planned: Mapping[str, str] = field(default_factory=dict)
    shown: Mapping[Side, Shown] = field(default_factory=dict)
    gains: Mapping[Side, float] = field(default_factory=dict)

    def timing(self, backend: str) -> Timing | Skipped:
        """The times of a backend."""
        if isinstance(self.times, Skipped):
            return self.times
        return self.times.timings.get(backend, NOT_ASKED_FOR)


@dataclass(frozen=True)
class Report:
    """An op in its cases.

    Attributes:
        op: Its name.
        environment: Versions and devices, from compare.timing.environment.
        cases: The cases.
        recorded: Times from a GPU, for where there is none; or why there are none.
    """

    op: str
    environment: dict[str, Any]
    cases: tuple[CaseReport, ...]
    recorded: Bench | Skipped | None = None

    @property
    def passed(self) -> bool:
        """Whether no backend that ran failed."""
        return all(
            each.passed
            for case in self.cases
            for each in case.parity.values()
            if isinstance(each, Parity)
        )


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
        "cases": [_case(each) | _recorded(report, each) for each in report.cases],
    }


def _recorded(report: Report, each: CaseReport) -> dict[str, Any]:
    if report.recorded is None:
        return {}
    if isinstance(report.recorded, Skipped):
        return {"recorded": {"skipped": report.recorded.reason}}
    case = each.case
    dtype_name = str(case.dtype).removeprefix("torch.")
    return {"recorded": recorded.to_json(report.recorded, dtype_name, case.params)}


def _case(report: CaseReport) -> dict[str, Any]:
    return {
        "case": as_json(report.case),
        "parity": {name: _parity(each) for name, each in report.parity.items()},
        "timing": {name: as_json(report.timing(name)) for name in report.parity},
        **limits_to_json(report.times),
        "rungs": {
            side: {
                "shown": each.rung,
                "taken": each.taken,
                "gain": report.gains.get(side),
            }
            for side, each in report.shown.items()
        },
        "codegen": {name: _codegen(each) for name, each in report.codegen.items()},
        "findings": [_finding(each, report.codegen) for each in report.findings],
        "violations": list(report.violations),
    }


def _parity(parity: Parity | Skipped) -> dict[str, Any]:
    if isinstance(parity, Skipped):
        return {"skipped": parity.reason}
    return {
        "passed": parity.passed,
        "max_error": _number(parity.error.max),
        "allowed": _number(parity.allowed.max),
        "rms_error": _number(parity.error.rms),
        "rms_allowed": _number(parity.allowed.rms),
        "ran_on": parity.ran_on,
        "problem": parity.problem,
    }


def _codegen(code: KernelCode | Skipped) -> dict[str, Any]:
    if isinstance(code, Skipped):
        return {"skipped": code.reason}
    return {
        "arch": code.arch,
        "kernel": code.kernel,
        "title": code.title,
        "kernels": list(code.kernels),
        "compiler": code.compiler,
        "grid": list(code.launch.grid),
        "block": list(code.launch.block),
        "registers": code.registers,
        "spill_bytes": code.spill_bytes,
        "stack_bytes": code.stack_bytes,
        "shared_bytes": code.shared_bytes,
        "occupancy": _occupancy(code.occupancy),
        "executed_per_thread": code.simulation.executed_per_thread,
        **_movements(code),
        "trace": [
            asdict(row) for row in trace.rows_of(code.ptx, code.simulation.traces)
        ],
        "ptx_instructions": code.ptx_mix.total,
        "sass_instructions": code.sass_mix.total,
        "mix": {"ptx": _mix(code.ptx_mix), "sass": _mix(code.sass_mix)},
    }


def _movements(code: KernelCode) -> dict[str, Any]:
    simulation = code.simulation
    totals = memory.totals(simulation)
    return {
        "emulated_blocks": simulation.blocks,
        "is_exact": simulation.is_exact,
        "global_bytes": totals.global_bytes,
        "sectors": totals.sectors,
        "fewest_sectors": totals.fewest_sectors,
        "bank_conflicts": totals.bank_conflicts,
        "memory": [
            {**asdict(each), "places": _places(code, each)}
            for each in memory.movements(simulation)
        ],
        "out_of_bounds": [
            {
                **asdict(each),
                "places": list(in_sources([code.ptx.instructions[each.index]])),
            }
            for each in simulation.out_of_bounds
        ],
    }


def _places(code: KernelCode, movement: memory.Movement) -> list[str]:
    return list(in_sources(code.ptx.instructions[i] for i in movement.instructions))


def _occupancy(occupancy: Occupancy) -> dict[str, Any]:
    return {
        "fraction": occupancy.fraction,
        "blocks_per_sm": occupancy.blocks_per_sm,
        "warps_per_sm": occupancy.warps_per_sm,
        "limited_by": list(occupancy.limited_by),
    }


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


def _finding(
    finding: Finding, codegen: Mapping[str, KernelCode | Skipped]
) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "topic": finding.topic,
        "text": finding.text,
        "side": finding.side,
        "weight": finding.weight,
        "language": finding.language,
        "evidence": [
            *_evidence("cuda", finding.cuda, finding.language, codegen),
            *_evidence("triton", finding.triton, finding.language, codegen),
        ],
    }


def _evidence(
    side: str,
    indices: tuple[int, ...],
    language: Language,
    codegen: Mapping[str, KernelCode | Skipped],
) -> list[dict[str, Any]]:
    code = codegen[side]
    assert isinstance(code, KernelCode)  # else there are no findings
    listing = code.ptx if language == "ptx" else code.sass
    instructions = [listing.instructions[index] for index in indices]
    return [
        {
            "side": side,
            "place": next(iter(in_sources([each])), None),
            "index": each.index,
            "instruction": each.text,
        }
        for each in instructions
    ]


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None  # JSON has no NaN
