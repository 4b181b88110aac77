"""What the simulation of the PTX adds to a page: counts, and tables that point back."""

from __future__ import annotations

import itertools

from compare.assembly.places import in_sources
from compare.code import launch, trace, who_does_what
from compare.code.kernel_code import KernelCode
from compare.code.memory import movements
from compare.report.comparison import CaseReport
from compare.report.page.panels import Cell, Column, Extras, Panel, fragment
from compare.report.tables import (
    MOVEMENT_COLUMNS,
    codes_of,
    movement_figures,
    step_of,
)
from compare.timing.names import NAMES


def extras_of(case: CaseReport) -> Extras:
    """All that the simulation of a case's kernels tells."""
    codes = codes_of(case)
    if not codes:
        return Extras()
    panels = [_launches(codes), _traces(codes), _movements(case)]
    sides = {each.side: each for each in codes}
    if len(sides) > 1:
        panels.insert(0, _who(sides["cuda"], sides["triton"]))
    return Extras(
        executed={each.side: _executions(each) for each in codes},
        panels=tuple(panels),
    )


def _executions(code: KernelCode) -> list[float]:
    """By instruction, how often a thread executes it on average."""
    simulation = code.simulation
    threads = simulation.blocks * simulation.threads
    return [count / threads for count in simulation.executed]


def _who(cuda: KernelCode, triton: KernelCode) -> Panel:
    def cell(answer: who_does_what.Answer) -> Cell:
        return Cell(f"{answer.how}: {answer.what}", places=answer.places)

    return Panel(
        name="who",
        title="Who does what",
        columns=(Column(""), Column(NAMES["cuda"]), Column(NAMES["triton"])),
        rows=tuple(
            (Cell(row.topic), cell(row.cuda), cell(row.triton))
            for row in who_does_what.table(cuda, triton)
        ),
    )


def _launches(codes: list[KernelCode]) -> Panel:
    rows = tuple(
        (Cell(NAMES[code.side]), Cell(" ".join(launch.sentences(code))))
        for code in codes
    )
    columns = (Column(""), Column(""))
    return Panel("launch", "The launch", columns, rows)


def _traces(codes: list[KernelCode]) -> Panel:
    columns = [
        [
            Cell(step_of(row), is_code=True)
            for row in trace.rows_of(each.ptx, each.simulation.traces)
        ]
        for each in codes
    ]
    note = "The first warp of the first block; what repeats is folded into loops."
    if any(len(each.simulation.traces) > 1 for each in codes):
        note += " Where warps have different work, the first of each kind."
    if not all(each.simulation.is_exact for each in codes):
        note += " Branches that depend on loaded data are taken as not taken."
    return Panel(
        name="trace",
        title="What a warp does",
        columns=tuple(Column(NAMES[each.side]) for each in codes),
        rows=tuple(itertools.zip_longest(*columns, fillvalue=Cell(""))),
        note=note,
    )


def _movements(case: CaseReport) -> Panel:
    rows = []
    for code in codes_of(case):
        for each in movements(code.simulation):
            verb = "stores to" if each.is_store else "loads of"
            target = fragment(
                instructions=f"{code.side}:ptx:{','.join(map(str, each.instructions))}"
            )
            instructions = [code.ptx.instructions[i] for i in each.instructions]
            rows.append(
                (
                    Cell(
                        f"{NAMES[code.side]}: {verb} {each.argument or 'the unknown'}",
                        target=target,
                        places=in_sources(instructions),
                    ),
                    *map(Cell, movement_figures(case, code, each)),
                )
            )
    return Panel(
        name="memory",
        title="Memory",
        columns=(
            Column(""),
            *(Column(name, is_number=True) for name in MOVEMENT_COLUMNS),
        ),
        rows=tuple(rows),
        note=(
            "From simulating the PTX of some blocks, for each element of the largest "
            "tensor. A sector is 32 bytes."
        ),
    )
