"""The launches of `compare profile` on a terminal."""

from __future__ import annotations

import math

from rich.console import Console, RenderableType
from rich.padding import Padding

from compare.judge.parity import Skipped
from compare.report.comparison import case_name
from compare.report.terminal import environment_line
from compare.report.text import NONE, plain, print_head, print_note, print_rows
from compare.timing.gpu_trace import short_name
from compare.timing.names import NAMES
from compare.timing.profiler import ImplementationProfile, KernelUse, ProfileReport

_MAX_NAME = 80
_OPENED_BY = {
    ".trace.json": "open it at https://ui.perfetto.dev or in chrome://tracing",
    ".table.txt": "torch.profiler's own table, of all calls together",
    ".stacks.txt": "a flame graph; open it at https://www.speedscope.app",
}


def show(report: ProfileReport, console: Console) -> None:
    """The kernels of each implementation, then the files and how to see more."""
    print_head(console, report.op, case_name(report.case))
    console.print(plain(environment_line(report.environment), "dim"))
    console.print()
    profiles = {
        name: each
        for name, each in report.profiles.items()
        if isinstance(each, ImplementationProfile)
    }
    if profiles:
        _show_launches(profiles, console)
    for name, skipped in report.profiles.items():
        if isinstance(skipped, Skipped):
            print_note(console, f"no profile of {NAMES[name]}: {skipped.reason}")
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


def _show_launches(
    profiles: dict[str, ImplementationProfile], console: Console
) -> None:
    header = (
        *("of one call", "launches", "GPU us", "host us"),
        *("blocks x threads", "registers", "shared bytes"),
    )
    rows: list[tuple[RenderableType, ...]] = []
    for name, each in profiles.items():
        launches = sum(kernel.launches for kernel in each.kernels)
        cells = (f"{launches:g}", f"{each.gpu_us:,.2f}", f"{each.host_us:,.1f}")
        rows.append(tuple(plain(cell, "bold") for cell in (NAMES[name], *cells)))
        for kernel in each.kernels:
            kernel_name = Padding(plain(_name(kernel)), (0, 0, 0, 2))
            rows.append((kernel_name, *_cells(kernel)))
    print_rows(console, header, rows)


def _name(kernel: KernelUse) -> str:
    name = short_name(kernel.launched.name)
    return name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…"


def _cells(kernel: KernelUse) -> tuple[str, ...]:
    launch, launched = NONE, kernel.launched
    if launched.grid and launched.block:
        launch = f"{math.prod(launched.grid)} x {math.prod(launched.block)}"
    return (
        f"{kernel.launches:g}",
        f"{kernel.us:,.2f}",
        "",
        launch,
        NONE if launched.registers is None else str(launched.registers),
        NONE if launched.shared_bytes is None else f"{launched.shared_bytes:g}",
    )
