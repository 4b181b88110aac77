"""`compare sanitize`: races, bad accesses and deadlocks in an op's CUDA kernels."""

from __future__ import annotations

import argparse

from compare.errors import EXIT_FOUND, EXIT_OK
from compare.options import add_json, add_op
from compare.output import saying_what_mends_it, working, write_json
from compare.parameters import read_ops

SUMMARY = "Look for races, bad accesses and deadlocks in an op's CUDA kernels."


def add_options(parser: argparse.ArgumentParser) -> None:
    """The op or all, and where it runs."""
    add_op(parser, "all")
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
        names = list(read_ops()) if options.op == "all" else [options.op]
        reports = [sanitize(name, progress) for name in names]
    from compare.report import reported_faults, terminal

    documents = [sanitizer.to_json(each) for each in reports]
    document = {"ops": documents} if options.op == "all" else documents[0]
    if not write_json(options, document):
        for each in reports:
            reported_faults.show(each, terminal.make_console())
    return EXIT_FOUND if any(each.findings for each in reports) else EXIT_OK
