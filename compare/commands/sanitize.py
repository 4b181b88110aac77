"""`compare sanitize`: races, bad accesses and deadlocks in an op's CUDA kernels."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from compare.errors import EXIT_FOUND, EXIT_OK
from compare.options import add_json, add_op
from compare.output import saying_what_mends_it, working, write_json
from compare.parameters import OpSummary

SUMMARY = "Look for races, bad accesses and deadlocks in an op's CUDA kernels."


def add_options(parser: argparse.ArgumentParser, ops: Mapping[str, OpSummary]) -> None:
    """The op, and where it runs."""
    add_op(parser, ops)
    parser.add_argument(
        "--gpu",
        action="store_true",
        help="by compute-sanitizer on a GPU; by default by the emulator's own checker",
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Runs every kernel instance under the checker, and reports what it found."""
    with working() as progress:
        with saying_what_mends_it():
            from compare.judge import gpu_sanitizers, sanitizer
        sanitize = gpu_sanitizers.sanitize if options.gpu else sanitizer.sanitize
        report = sanitize(options.op, progress)
    from compare.report import reported_faults, terminal

    if not write_json(options, sanitizer.to_json(report)):
        reported_faults.show(report, terminal.make_console())
    return EXIT_FOUND if report.findings else EXIT_OK
