"""What `compare profile` found, on a terminal."""

from __future__ import annotations

import math

from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from compare.judge.parity import Skipped
from compare.report.terminal import case_name, environment_line
from compare.report.text import plain, print_table
from compare.timing.gpu_trace import short_name
from compare.timing.names import NAMES
from compare.timing.profiler import ImplementationProfile, KernelUse, ProfileReport

_NONE = "-"
_MAX_NAME = 80
_OPENED_BY = {
    ".trace.json": "open it at https://ui.perfetto.dev or in chrome://tracing",
    ".table.txt": "torch.profiler's own table, of all calls together",
    ".stacks.txt": "a flame graph; open it at https://www.speedscope.app",
}


def show(report: ProfileReport, console: Console) -> None:
    """The kernels of each implementation, then the files and how to see more."""
    console.print(plain(f"{report.op}  ", "bold") + plain(case_name(report.case)))
    console.print(plain(environment_line(report.environment), "dim"))
    console.print()
    profiles = {
        name: each
        for name, each in report.profiles.items()
        if isinstance(each, ImplementationProfile)
    }
    if profiles:
        print_table(console, _table(profiles))
    for name, skipped in report.profiles.items():
        if isinstance(skipped, Skipped):
            note = plain(f"no profile of {NAMES[name]}: {skipped.reason}", "yellow")
            console.print(Padding(note, (0, 0, 0, 2)))
    ranges = [name for name, each in report.profiles.items() if each is None]
    if ranges:
        console.print(plain(f"ran in the NVTX ranges {', '.join(ranges)}"))
    console.print()
    for file in report.files:
        use = next(use for end, use in _OPENED_BY.items() if file.name.endswith(end))
        console.print(plain(f"{file}: {use}"), soft_wrap=True)
    if report.commands:
        console.print(plain("for Nsight Systems and Nsight Compute:", "dim"))
    for command in report.commands:
        console.print(plain(f"  {command}"), soft_wrap=True)


def _table(profiles: dict[str, ImplementationProfile]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("of one call", overflow="fold")
    for header in (
        *("launches", "GPU us", "host us"),
        *("blocks x threads", "registers", "shared bytes"),
    ):
        table.add_column(header, justify="right")
    for name, each in profiles.items():
        launches = sum(kernel.launches for kernel in each.kernels)
        cells = (f"{launches:g}", f"{each.gpu_us:,.2f}", f"{each.host_us:,.1f}")
        table.add_row(*(plain(cell, "bold") for cell in (NAMES[name], *cells)))
        for kernel in each.kernels:
            kernel_name = Padding(plain(_name(kernel)), (0, 0, 0, 2))
            table.add_row(kernel_name, *map(plain, _cells(kernel)))
    return table


def _name(kernel: KernelUse) -> str:
    name = short_name(kernel.name)
    return name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…"


def _cells(kernel: KernelUse) -> tuple[str, ...]:
    launch = _NONE
    if kernel.grid and kernel.block:
        launch = f"{math.prod(kernel.grid)} x {math.prod(kernel.block)}"
    return (
        f"{kernel.launches:g}",
        f"{kernel.us:,.2f}",
        "",
        launch,
        _NONE if kernel.registers is None else str(kernel.registers),
        _NONE if kernel.shared_bytes is None else f"{kernel.shared_bytes:g}",
    )
