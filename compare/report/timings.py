"""What `compare bench` found, on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from bindings.trials import TRIALS
from compare.judge.parity import Skipped
from compare.report.terminal import case_name, environment_line
from compare.report.text import plain, print_table
from compare.timing import rates
from compare.timing.names import BACKENDS, NAMES
from compare.timing.times import Bench, CaseTimes, Comparison, GpuState, Timing

_NONE = "-"


def show(bench: Bench, console: Console) -> None:
    """Every case, then what it takes until the first result is there."""
    console.print(plain(environment_line(bench.environment), "dim"))
    for times in (*bench.cases, *bench.sweep):
        console.print()
        _show_case(bench, times, console)
    if bench.start:
        console.print()
        print_table(console, _start_table(bench))
    for dtype, rate in bench.matmul.items():
        name = f"torch.matmul, 8192 x 8192 x 8192 {dtype}"
        if isinstance(rate, Skipped):
            console.print(plain(f"no rate of {name}: {rate.reason}", "yellow"))
            continue
        state = f"; {_state(rate.gpu_state)}" if rate.gpu_state else ""
        console.print(plain(f"{name}: {rate.tflops:,.0f} TFLOP/s{state}", "dim"))
    for sentence in bench.omitted:
        console.print(plain(f"left out: {sentence}", "yellow"))
    for name, note in bench.notes.items():
        console.print(plain(f"{NAMES[name]}: {note}", "dim"))


def _show_case(bench: Bench, times: CaseTimes, console: Console) -> None:
    ceiling = times.ceiling
    console.print(
        plain(f"{bench.op}  ", "bold")
        + plain(
            f"{case_name(times.case)}  {_size(times.traffic.total_bytes)}  "
            f"ceiling of {ceiling.mix}: {ceiling.gb_per_s:,.0f} GB/s"
        )
    )
    timed = {
        name: each for name, each in times.timings.items() if isinstance(each, Timing)
    }
    ours = [name for name in BACKENDS if name in timed]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    has_flops = TRIALS[bench.op].flops is not None
    for header in (
        *("median us", "20 % to 80 %"),
        *(("TFLOP/s", "of matmul") if has_flops else ()),
        *("GB/s", "of ceiling", "host us", "launcher us"),
        *(f"{NAMES[name]} is" for name in ours),
    ):
        table.add_column(header, justify="right")
    for name, each in timed.items():
        cells = (
            f"{each.median_us:,.2f}",
            f"{each.p20_us:,.2f} to {each.p80_us:,.2f}",
            *(_rates(bench, times, each) if has_flops else ()),
            f"{each.gb_per_s:,.0f}",
            f"{100 * each.fraction:.1f} %",
            f"{each.host_us:.1f}",
            _NONE if each.launcher_us is None else f"{each.launcher_us:.1f}",
            *(_verdict(times.comparison(own, name)) for own in ours),
        )
        marker = " (events)" if each.method == "events" else ""
        table.add_row(plain(NAMES[name] + marker), *map(plain, cells))
    print_table(console, table)
    for name, skipped in times.timings.items():
        if isinstance(skipped, Skipped):
            note = plain(f"no time of {NAMES[name]}: {skipped.reason}", "yellow")
            console.print(Padding(note, (0, 0, 0, 2)))
    if times.gpu_state:
        console.print(plain(_state(times.gpu_state), "dim"))


def _rates(bench: Bench, times: CaseTimes, timing: Timing) -> tuple[str, str]:
    rate = rates.tflops(bench.op, times, timing)
    share = rates.share_of_matmul(bench, times, timing)
    return (
        _NONE if rate is None else f"{rate:,.1f}",
        _NONE if share is None else f"{100 * share:.1f} %",
    )


def _verdict(comparison: Comparison | None) -> str:
    if comparison is None:
        return ""
    if comparison.outcome in ("same", "unclear"):
        return comparison.outcome
    ratio = comparison.ratio
    factor = 1 / ratio if comparison.outcome == "faster" else ratio
    return f"{factor:.2f}x {comparison.outcome}"


def _state(state: GpuState) -> str:
    slowed = ", ".join(state.throttled_by) or "nothing"
    return (
        f"SM clock {state.sm_mhz:,.0f} MHz, memory {state.memory_mhz:,.0f} MHz, "
        f"{state.power_w:.0f} W, {state.temperature_c:.0f} °C; held down by {slowed}"
    )


def _size(n_bytes: int) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if n_bytes >= factor:
            return f"{n_bytes / factor:,.4g} {unit}"
    return f"{n_bytes} bytes"


def _start_table(bench: Bench) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("until the first result")
    for header in ("first call ms", "compile s", "build s"):
        table.add_column(header, justify="right")
    for name, each in bench.start.items():
        if isinstance(each, Skipped):
            table.add_row(plain(NAMES[name]), plain(each.reason, "yellow"))
            continue
        figures = (each.first_call_ms, each.compile_s, each.build_s)
        cells = (_NONE if figure is None else f"{figure:.1f}" for figure in figures)
        table.add_row(plain(NAMES[name]), *map(plain, cells))
    return table
