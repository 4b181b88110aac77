"""The rungs of an op's ladder on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from bindings.registry import OPS
from compare.judge.parity import Skipped
from compare.ladder import Ladder, Step
from compare.report.recorded import age, with_article
from compare.report.terminal import case_name
from compare.report.text import plain
from compare.timing.names import NAMES
from compare.timing.times import Timing


def show(ladder: Ladder, console: Console) -> None:
    """What each rung changes, then a line for each in both languages."""
    console.print(
        plain(f"{ladder.op}  ", "bold")
        + plain(f"{case_name(ladder.case)}  code for {ladder.architecture}")
    )
    for number, rung in enumerate(ladder.rungs, 1):
        console.print()
        console.print(plain(f"{number}  {rung.name}", "bold"))
        console.print(Padding(plain(rung.what), (0, 0, 0, 3)))
    console.print()
    console.print(_table(ladder))
    for rung in ladder.rungs:
        for side, step in rung.steps.items():
            if isinstance(step, Skipped):
                note = f"no code of {rung.name} in {NAMES[side]}: {step.reason}"
                console.print(Padding(plain(note, "yellow"), (0, 0, 0, 2)))
    if ladder.times and ladder.is_recorded:
        gpu = str(ladder.times.environment["gpus"][0])
        date = str(ladder.times.environment["date"])[:10]
        older = age(ladder.times.environment, ladder.op)
        where = ", ".join(
            filter(None, (f"recorded on {with_article(gpu)}", date, older))
        )
        console.print(plain(f"Times of {case_name(ladder.times.case)}, {where}", "dim"))


def _table(ladder: Ladder) -> Table:
    flops = OPS[ladder.op].flops
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for header in ("", "", "kernel", *(["multiplies by"] if flops else [])):
        table.add_column(header, overflow="fold")
    for header in (
        *("lines", "registers", "shared\nbytes"),
        "instructions\nper FLOP" if flops else "instructions\nper element",
        *("global\nMiB", "shared\nMiB", "median us", "TFLOP/s" if flops else "gain"),
    ):
        table.add_column(header, justify="right", overflow="fold")
    for rung in ladder.rungs:
        for side, step in rung.steps.items():
            figures = _figures(step) if isinstance(step, Step) else ("-",) * 8
            kernel, multiplies, *cells = figures
            table.add_row(
                plain(rung.name),
                plain(NAMES[side]),
                plain(kernel),
                *([plain(multiplies)] if flops else []),
                *map(plain, cells),
                *_times(ladder, rung.name, side),
            )
    return table


def _figures(step: Step) -> tuple[str, ...]:
    return (
        ", ".join(step.kernels),
        ".".join(step.instruction.split(".")[:2]),  # and not the types
        str(step.lines),
        str(step.registers),
        f"{step.shared_bytes:,}",
        f"{step.instructions:.3f}",
        "-" if step.global_bytes is None else f"{step.global_bytes / 2**20:,.2f}",
        f"{step.shared_memory_bytes / 2**20:,.2f}",
    )


def _times(ladder: Ladder, rung: str, side: str) -> tuple[Text, Text]:
    """The time, and the rate, or how many times as fast as the first rung it is."""
    if ladder.times is None:
        return plain("needs a GPU", "dim"), plain("")
    timings = ladder.times.timings
    timing, first = timings.get(rung, {}).get(side), timings["first"].get(side)
    if not isinstance(timing, Timing):
        return plain("-", "dim"), plain("-", "dim")
    median_us = timing.kernel.median_us
    if flops := OPS[ladder.op].flops:
        rate = f"{flops(ladder.times.case.shape) / median_us / 1e6:,.1f}"
    elif isinstance(first, Timing):
        rate = f"{first.kernel.median_us / median_us:.2f}x"
    else:
        rate = "-"
    return plain(f"{median_us:,.1f}"), plain(rate)
