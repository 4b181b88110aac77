"""`compare sanitize`: races, bad accesses and deadlocks in an op's kernels."""

from __future__ import annotations

import argparse

from compare.errors import EXIT_FOUND, EXIT_OK
from compare.options import add_json, add_op
from compare.output import saying_what_mends_it, working, write_json
from compare.parameters import read_ops

SUMMARY = "Look for races, bad accesses and deadlocks in an op's kernels."


def add_options(parser: argparse.ArgumentParser) -> None:
    """The op or all, and where it runs."""
    add_op(parser, "all")
    parser.add_argument(
        "--gpu",
        action="store_true",
        help="CUDA's by compute-sanitizer on a GPU; by default CUDA's in the emulator, "
        "and the compiled code of both languages in the simulator",
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Runs every kernel instance under the checker, and reports what it found."""
    with working() as progress:
        with saying_what_mends_it():
            from compare.judge import compiled_sanitizer, gpu_sanitizers, sanitizer
        names = list(read_ops()) if options.op == "all" else [options.op]
        by_op = [
            [gpu_sanitizers.sanitize(name, progress)]
            if options.gpu
            else [
                sanitizer.sanitize(name, progress),
                compiled_sanitizer.sanitize(name, "cuda", progress),
                compiled_sanitizer.sanitize(name, "triton", progress),
            ]
            for name in names
        ]
    from compare.report import reported_faults, terminal

    documents = [sanitizer.to_json(each) for each in by_op]
    document = {"ops": documents} if options.op == "all" else documents[0]
    reports = [each for of_op in by_op for each in of_op]
    if not write_json(options, document):
        for each in reports:
            reported_faults.show(each, terminal.make_console())
    return EXIT_FOUND if any(each.findings for each in reports) else EXIT_OK
