"""Counts and tables that the simulation of the PTX adds to a page."""

from __future__ import annotations

from compare.code import launch, who_does_what
from compare.code.kernel_code import KernelCode
from compare.code.memory import movements
from compare.report.comparison import Report
from compare.report.page.panels import Extras, Panel, fragment
from compare.report.tables import (
    MOVEMENT_COLUMNS,
    Cell,
    movement_figures,
    name_of_movement,
    places_of,
    traces,
)


def extras_of(report: Report) -> Extras:
    """Counts and tables from the simulation of a report's kernels."""
    codes = report.codes
    if not codes:
        return Extras()
    panels = [_launches(codes), _traces(report), _movements(report)]
    if len(codes) > 1 and (who := _who(*codes)).rows:
        panels.insert(0, who)
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
        header=("", cuda.name, triton.name),
        rows=tuple(
            (Cell(row.topic), cell(row.cuda), cell(row.triton))
            for row in who_does_what.table(cuda, triton)
        ),
    )


def _launches(codes: list[KernelCode]) -> Panel:
    rows = tuple(
        (Cell(code.name), Cell(" ".join(launch.sentences(code)))) for code in codes
    )
    return Panel("launch", "The launch", ("", ""), rows)


def _traces(report: Report) -> Panel:
    grid = traces(report)
    note = "The first warp of the first block; what repeats is folded into loops."
    if any(len(each.simulation.traces) > 1 for each in report.codes):
        note += " Where warps have different work, the first of each kind."
    if not all(each.simulation.is_exact for each in report.codes):
        note += " Branches that depend on loaded data are taken as not taken."
    rows = (tuple(Cell(e, is_code=bool(e)) for e in row[1:]) for row in grid.rows)
    return Panel("trace", "What a warp does", grid.header[1:], tuple(rows), note)


def _movements(report: Report) -> Panel:
    rows = []
    for code in report.codes:
        for each in movements(code.simulation):
            indices = ",".join(map(str, each.instructions))
            name = Cell(
                name_of_movement(code, each),
                target=fragment(instructions=f"{code.side}:ptx:{indices}"),
                places=places_of(code, each),
            )
            rows.append((name, *map(Cell, movement_figures(report, code, each))))
    return Panel(
        name="memory",
        title="Memory",
        header=("", *MOVEMENT_COLUMNS),
        rows=tuple(rows),
        note=(
            "From simulating the PTX of some blocks, for each element of the largest "
            "tensor. A sector is 32 bytes."
        ),
        has_numbers=True,
    )
