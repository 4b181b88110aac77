"""The times of `compare bench` on a terminal."""

from __future__ import annotations

from rich.console import Console, RenderableType

from bindings.trials import TRIALS
from compare.judge.parity import Skipped
from compare.report.comparison import case_name
from compare.report.terminal import environment_line
from compare.report.text import (
    NONE,
    plain,
    print_head,
    print_note,
    print_rows,
    size_name,
)
from compare.timing import rates
from compare.timing.names import BACKENDS, NAMES
from compare.timing.times import Bench, CaseTimes, Comparison, GpuState, Timing


def show(bench: Bench, console: Console) -> None:
    """Every case, then what it takes until the first result is there."""
    console.print(plain(environment_line(bench.environment), "dim"))
    for times in (*bench.cases, *bench.sweep):
        console.print()
        _show_case(bench, times, console)
    if bench.start:
        console.print()
        _show_starts(bench, console)
    for dtype, rate in bench.matmul.items():
        name = f"{rates.product_of(bench.op)} {dtype}"
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
    what = (
        case_name(times.case),
        size_name(times.traffic.total_bytes),
        f"ceiling of {ceiling.mix}: {ceiling.gb_per_s:,.0f} GB/s",
    )
    print_head(console, bench.op, "  ".join(what))
    timed = {
        name: each for name, each in times.timings.items() if isinstance(each, Timing)
    }
    ours = [name for name in BACKENDS if name in timed]
    has_flops = TRIALS[bench.op].flops is not None
    header = (
        *("", "median us", "20 % to 80 %"),
        *(("TFLOP/s", "of matmul") if has_flops else ()),
        *("GB/s", "of ceiling", "host us", "launcher us"),
        *(f"{NAMES[name]} is" for name in ours),
    )
    rows = []
    for name, each in timed.items():
        row = (
            NAMES[name] + (" (events)" if each.method == "events" else ""),
            f"{each.median_us:,.2f}",
            f"{each.p20_us:,.2f} to {each.p80_us:,.2f}",
            *(_rates(bench, times, each) if has_flops else ()),
            f"{each.gb_per_s:,.0f}",
            f"{100 * each.fraction:.1f} %",
            f"{each.host_us:.1f}",
            _figure(each.launcher_us),
            *(_verdict(times.comparison(own, name)) for own in ours),
        )
        rows.append(row)
    print_rows(console, header, rows)
    for name, skipped in times.timings.items():
        if isinstance(skipped, Skipped):
            print_note(console, f"no time of {NAMES[name]}: {skipped.reason}")
    if times.gpu_state:
        console.print(plain(_state(times.gpu_state), "dim"))


def _rates(bench: Bench, times: CaseTimes, timing: Timing) -> tuple[str, str]:
    share = rates.share_of_matmul(bench, times, timing)
    return (
        _figure(rates.tflops(bench.op, times, timing)),
        NONE if share is None else f"{100 * share:.1f} %",
    )


def _figure(value: float | None) -> str:
    return NONE if value is None else f"{value:,.1f}"


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


def _show_starts(bench: Bench, console: Console) -> None:
    header = ("until the first result", "first call ms", "compile s", "build s")
    rows: list[tuple[RenderableType, ...]] = []
    for name, each in bench.start.items():
        if isinstance(each, Skipped):
            rows.append((NAMES[name], plain(each.reason, "yellow")))
            continue
        figures = (each.first_call_ms, each.compile_s, each.build_s)
        rows.append((NAMES[name], *map(_figure, figures)))
    print_rows(console, header, rows)
