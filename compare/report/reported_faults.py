"""The faults of `compare sanitize` on a terminal."""

from __future__ import annotations

from rich.console import Console

from bindings.sources import ROOT
from compare.judge.sanitizer import Report
from compare.report.text import plain


def show(report: Report, console: Console) -> None:
    """Prints each fault once, then what was covered."""
    head = f"{report.op}  {report.language} kernels: {report.device}"
    console.print(plain(head, "bold"))
    console.print()
    if report.missing:
        console.print(plain(f"not run: {report.missing}"), soft_wrap=True)
        return
    for finding in report.findings:
        text = finding.message.replace(f"{ROOT}/", "")
        console.print(plain(text, "red"), soft_wrap=True)
        times = "once" if finding.count == 1 else f"{finding.count} times"
        console.print(plain(f"  found {times}, first with {finding.first}"))
        console.print()
    n_found = len(report.findings)
    if n_found:
        console.print(plain(f"FOUND {n_found}", "bold red"))
    else:
        console.print(plain("found nothing", "green"))
    for name, value in (
        ("kernels", f"{len(report.kernels)} instances"),
        ("cases", str(len(report.runs))),
        ("each with", ", ".join(report.passes)),
        ("launches", f"{report.launches} in {report.seconds:.1f} s"),
    ):
        console.print(plain(f"{name:<10} {value}"), soft_wrap=True)
