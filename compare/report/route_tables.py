"""The ways to build of `compare routes` on a terminal."""

from __future__ import annotations

from rich.console import Console

from compare.judge.parity import Skipped
from compare.report.comparison import case_name
from compare.report.terminal import environment_line
from compare.report.text import NONE, plain, print_head, print_note, print_rows
from compare.timing.build_routes import DeviceCode, Route, RoutesReport

_NAMES = {"prebuilt": "prebuilt", "load_inline": "load_inline", "nvrtc": "NVRTC"}


def show(report: RoutesReport, console: Console) -> None:
    """The routes side by side, then what each does and what is missing."""
    print_head(console, report.op, case_name(report.case))
    console.print(plain(environment_line(report.environment), "dim"))
    console.print(plain(f"{report.kernel} for {report.arch}"))
    console.print()
    routes = {
        name: each for name, each in report.routes.items() if isinstance(each, Route)
    }
    _show_table(routes, console)
    console.print()
    for name, route in routes.items():
        console.print(plain(f"{_NAMES[name]}: {route.how}", "dim"))
    for text in _notes(report):
        print_note(console, text)


def _show_table(routes: dict[str, Route], console: Console) -> None:
    all_of = routes.values()
    first = next((each for each in all_of if isinstance(each.code, DeviceCode)), None)
    rows = (
        ("seconds until it can be called",),
        ("  nothing built before", *(f"{each.cold_s:.3g}" for each in all_of)),
        ("  in a second process", *(f"{each.warm_s:.3g}" for each in all_of)),
        ("call on the host, us", *map(_call, all_of)),
        ("binary, kB", *(f"{each.binary_bytes / 1e3:,.0f}" for each in all_of)),
        ("machine code", *(_code(each, is_first=each is first) for each in all_of)),
    )
    print_rows(console, ("", *(_NAMES[name] for name in routes)), rows)


def _call(route: Route) -> str:
    return NONE if isinstance(route.call_us, Skipped) else f"{route.call_us:.2f}"


def _code(route: Route, is_first: bool) -> str:
    code = route.code
    if isinstance(code, Skipped):
        return NONE
    if is_first:
        return f"{code.instructions} instructions"
    if code.differing == 0:
        return "the same"
    return f"differs in {code.differing} of {code.instructions}"


def _notes(report: RoutesReport) -> list[str]:
    """Why figures are missing; a reason of several routes is given once."""
    missing: dict[str, list[str]] = {}
    for name, route in report.routes.items():
        if isinstance(route, Skipped):
            missing.setdefault(f"skipped: {route.reason}", []).append(_NAMES[name])
            continue
        for what, value in (("call", route.call_us), ("machine code", route.code)):
            if isinstance(value, Skipped):
                note = f"no {what}: {value.reason}"
                missing.setdefault(note, []).append(_NAMES[name])
    return [f"{', '.join(names)}: {note}" for note, names in missing.items()]
