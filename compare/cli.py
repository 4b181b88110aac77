"""The command line: `python -m compare softmax`.

Torch takes seconds to import. So it is imported, by way of compare.run, only when a
command line makes sense and needs it.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import io
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compare import options as command_line
from compare.code.architectures import parse_architecture
from compare.errors import BuildFailedError, CompareError, UnavailableError
from compare.options import DEFAULT_ARCHITECTURE, DEFAULT_BACKENDS, params_of
from compare.parameters import OpSummary, read_ops
from compare.records import check, repository

if TYPE_CHECKING:
    from compare.report.comparison import Report

EXIT_OK = 0
EXIT_PARITY_FAILED = 1
EXIT_FOUND = 1
EXIT_UNAVAILABLE = UnavailableError.exit_code
EXIT_BUILD_FAILED = BuildFailedError.exit_code
EXIT_INTERNAL_ERROR = 70
EXIT_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line and returns its exit code."""
    _mend_streams()
    try:
        exit_code = _run(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
        return exit_code
    except CompareError as error:
        sys.stderr.write(f"compare: {error}\n")
        return error.exit_code
    except BrokenPipeError:
        # Whoever read the output has seen enough, as `head` does.
        _discard_stdout()
        return EXIT_OK
    except SyntaxError as error:
        sys.stderr.write(f"compare: {error.filename}:{error.lineno}: {error.msg}\n")
        return EXIT_BUILD_FAILED
    except KeyboardInterrupt:
        sys.stderr.write("compare: interrupted\n")
        return EXIT_INTERRUPTED
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            _discard_stdout()
            sys.stderr.write(f"compare: a disk is full: {error}\n")
            return EXIT_UNAVAILABLE
        traceback.print_exc()
        return EXIT_INTERNAL_ERROR


def _mend_streams() -> None:
    """Makes writing possible where a stream is closed, or knows few characters."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (until the end)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (until the end)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _discard_stdout() -> None:
    # Without this, Python would complain when it flushes at its end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(arguments: Sequence[str]) -> int:
    ops = read_ops()
    options = command_line.parse(arguments, ops)
    if options.command == "list":
        return _list(ops)
    if run := _COMMANDS.get(options.command):
        return run(options)
    if getattr(options, "ladder", False):
        return _ladder(options)
    return _compare(options, ops)


def _ladder(options: argparse.Namespace) -> int:
    with contextlib.redirect_stdout(sys.stderr), _progress() as progress:
        progress("importing torch")
        with _saying_what_mends_it():
            from compare import ladder
        result = ladder.climb(
            options.op,
            options.shape,
            options.dtype,
            options.arch or parse_architecture(DEFAULT_ARCHITECTURE),
            progress,
        )
    from compare.report import ladder as report
    from compare.report import terminal

    if not _write_json(options, ladder.ladder_to_json(result)):
        report.show(result, terminal.make_console())
    return EXIT_OK


def _list(ops: Mapping[str, OpSummary]) -> int:
    forward = [op for op in ops.values() if not op.forward]
    width = max(len(op.name) for op in forward)
    for op in forward:
        directions = "forward, backward" if op.has_gradient else "forward"
        sys.stdout.write(f"{op.name:<{width}}  {directions:<17}  {op.summary}\n")
    return EXIT_OK


def _doctor(options: argparse.Namespace) -> int:
    from compare import doctor

    if sys.stderr.isatty():
        sys.stderr.write("trying what works here, which takes some seconds\n")

    doctor.show(doctor.examine(), as_json=options.json)
    return EXIT_OK


def _sanitize(options: argparse.Namespace) -> int:
    with contextlib.redirect_stdout(sys.stderr), _progress() as progress:
        progress("importing torch")
        with _saying_what_mends_it():
            from compare.judge import sanitize, sanitize_gpu
        run = sanitize_gpu.sanitize if options.gpu else sanitize.sanitize
        report = run(options.op, progress)
    from compare.report import sanitizer, terminal

    if not _write_json(options, sanitize.to_json(report)):
        sanitizer.show(report, terminal.make_console())
    return EXIT_FOUND if report.findings else EXIT_OK


def _study(options: argparse.Namespace) -> int:
    chosen = [name for name in command_line.VIEWS if getattr(options, name)]
    writes_tables = bool(options.markdown or options.csv)
    with contextlib.redirect_stdout(sys.stderr), _progress() as progress:
        progress("importing torch")
        with _saying_what_mends_it():
            from compare import study
        request = study.Request(
            op=options.op,
            shape=options.shape,
            dtype=options.dtype,
            params=params_of(read_ops()[options.op], options.param),
            architecture=options.arch or parse_architecture(DEFAULT_ARCHITECTURE),
            same_ptxas=options.same_ptxas,
            kernel=options.kernel - 1,
            rung=options.rung,
            shows_sass=writes_tables or "mix" in chosen or "sass" in chosen,
        )
        report = study.study(request, progress)
    from compare.report import study as views
    from compare.report import tables, terminal

    if writes_tables:
        kinds = (tables.resources, tables.mix, tables.moved, tables.traces)
        grids = [make(report.cases[0]) for make in kinds]
        if options.markdown:
            _write_text(options, "markdown", tables.to_markdown(grids))
        if options.csv:
            _write_text(options, "csv", tables.to_csv(grids))
    if chosen or not writes_tables:
        views.show(report, chosen, terminal.make_console())
    return EXIT_OK


def _bench(options: argparse.Namespace) -> int:
    with contextlib.redirect_stdout(sys.stderr), _progress() as progress:
        progress("importing torch")
        with _saying_what_mends_it():
            from compare import bench
        request = bench.Request(
            op=options.op,
            shapes=tuple(options.shape) if options.shape else None,
            dtypes=tuple(dict.fromkeys(options.dtype)),
            params=_given_params(options),
            backends=_backends(options),
            peers=tuple(dict.fromkeys(options.peers)),
            sweep=options.sweep,
        )
        bench.compile_ahead([request], progress)
        result = bench.bench(request, progress)
    from compare.report import bench as report
    from compare.report import terminal
    from compare.timing import times

    if not _write_json(options, times.to_json(result)):
        report.show(result, terminal.make_console())
    return EXIT_PARITY_FAILED if bench.failures(result, request.backends) else EXIT_OK


def _plot(options: argparse.Namespace) -> int:
    with contextlib.redirect_stdout(sys.stderr), _progress() as progress:
        progress("importing torch")
        with _saying_what_mends_it():
            from compare import plot
            from compare.records import store
        progress("drawing")
        files = [
            file
            for each in store.choose(options.ops, options.source)
            for file in plot.draw(each, options.output)
        ]
    sys.stdout.writelines(f"{file}\n" for file in files)
    return EXIT_OK


def _profile(options: argparse.Namespace) -> int:
    with contextlib.redirect_stdout(sys.stderr), _progress() as progress:
        progress("importing torch")
        with _saying_what_mends_it():
            from compare import profile
        request = profile.ProfileRequest(
            op=options.op,
            shape=options.shape,
            dtype=options.dtype,
            params=params_of(read_ops()[options.op], options.param),
            backends=_backends(options),
            peers=tuple(dict.fromkeys(options.peers)),
            nvtx_only=options.nvtx_only,
        )
        result = profile.profile(request, options.output, progress)
    from compare.report import profile as report
    from compare.report import terminal

    report.show(result, terminal.make_console())
    return EXIT_OK


def _routes(options: argparse.Namespace) -> int:
    with contextlib.redirect_stdout(sys.stderr), _progress() as progress:
        progress("importing torch")
        with _saying_what_mends_it():
            from compare import routes
        result = routes.compare_routes(options.op, progress)
    from compare.report import routes as report
    from compare.report import terminal

    if not _write_json(options, routes.to_json(result)):
        report.show(result, terminal.make_console())
    return EXIT_OK


def _record(options: argparse.Namespace) -> int:
    if options.check:
        return _check_records(options)
    with contextlib.redirect_stdout(sys.stderr), _progress() as progress:
        progress("importing torch")
        with _saying_what_mends_it():
            from compare import record
        files = (
            record.redraw(progress)
            if options.redraw
            else record.record(options.ops or list(read_ops()), progress)
        )
    sys.stdout.writelines(f"{file}\n" for file in files)
    if not options.redraw and repository.commit() is None:
        sys.stderr.write("compare: git knows no commit here, so none is recorded\n")
    return EXIT_OK


def _check_records(options: argparse.Namespace) -> int:
    found = check.check(options.ops)
    if not _write_json(options, check.to_json(found)):
        sys.stdout.write(check.text(found))
    return EXIT_FOUND if any(each.older for each in found) else EXIT_OK


def _given_params(options: argparse.Namespace) -> dict[str, Any] | None:
    """The op's parameters, if any was given."""
    return params_of(read_ops()[options.op], options.param) if options.param else None


def _backends(options: argparse.Namespace) -> tuple[str, ...]:
    return tuple(dict.fromkeys(options.backend or DEFAULT_BACKENDS))


def _compare(options: argparse.Namespace, ops: Mapping[str, OpSummary]) -> int:
    # Whatever a library or a compiler prints is not part of the report.
    with contextlib.redirect_stdout(sys.stderr), _progress() as progress:
        reports = _reports(options, ops, progress)
    _write(options, reports)
    passed = all(report.passed for report in reports)
    return EXIT_OK if passed else EXIT_PARITY_FAILED


def _reports(
    options: argparse.Namespace,
    ops: Mapping[str, OpSummary],
    progress: Callable[[str], None],
) -> list[Report]:
    progress("importing torch")
    with _saying_what_mends_it():
        from compare import run

    reports = []
    for name in ops if options.command == "all" else [options.op]:
        request = run.Request(
            op=name,
            shape=getattr(options, "shape", None),
            dtype=options.dtype,
            params=params_of(ops[name], getattr(options, "param", [])),
            backends=_backends(options),
            architecture=options.arch,
            same_ptxas=options.same_ptxas,
            kernel=getattr(options, "kernel", 1) - 1,
            rung=getattr(options, "rung", None),
        )
        reports.append(run.compare(request, progress))
    return reports


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Shows on stderr, if that is a terminal, what is going on."""
    with _saying_what_mends_it():
        from rich.console import Console

        from compare.report.text import plain

    with Console(stderr=True).status("") as status:
        yield lambda what: status.update(plain(what))


@contextlib.contextmanager
def _saying_what_mends_it() -> Iterator[None]:
    try:
        yield
    except SyntaxError:
        raise
    except Exception as error:  # packages raise all kinds
        raise UnavailableError(
            f"a package cannot be imported ({type(error).__name__}: {error}): "
            "python -m compare doctor says what mends it"
        ) from error


def _write_json(options: argparse.Namespace, document: dict[str, Any]) -> bool:
    """Writes it to where --json says; whether that is stdout."""
    if not options.json:
        return False
    text = json.dumps(document, indent=2, allow_nan=False) + "\n"
    return _write_text(options, "json", text)


def _write_text(options: argparse.Namespace, name: str, text: str) -> bool:
    """Writes it to where the option of this name says; whether that is stdout."""
    file = getattr(options, name)
    if file == "-":
        sys.stdout.write(text)
        return True
    try:
        Path(file).write_text(text, encoding="utf-8")
    except BrokenPipeError:
        raise
    except OSError as error:
        raise command_line.unwritable(f"--{name}", file, error) from error
    return False


def _write(options: argparse.Namespace, reports: list[Report]) -> None:
    from compare.report import comparison, terminal

    is_one = options.command != "all"
    is_stdout_taken = False
    if options.json:
        document = (
            comparison.to_json(reports[0])
            if is_one
            else comparison.all_to_json(reports)
        )
        is_stdout_taken = _write_json(options, document)
    if getattr(options, "html", None):
        from compare.report import page
        from compare.report.page.simulated import extras_of

        html = page.render(reports[0], extras_of(reports[0].cases[0]))
        is_stdout_taken |= _write_text(options, "html", html)
    if is_stdout_taken:
        return
    console = terminal.make_console()
    if not is_one:
        terminal.show_all(reports, console)
        return
    terminal.show(reports[0], console)
    if options.diff:
        terminal.show_diff(reports[0], console)
    if options.ptx:
        terminal.show_listings(reports[0], "ptx", console)
    if options.sass:
        terminal.show_listings(reports[0], "sass", console)


# What is neither an op nor the list of them.
_COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "doctor": _doctor,
    "sanitize": _sanitize,
    "study": _study,
    "bench": _bench,
    "plot": _plot,
    "profile": _profile,
    "routes": _routes,
    "record": _record,
}
