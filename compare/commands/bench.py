"""`compare bench`: an op's times beside those of its peers, on a GPU."""

from __future__ import annotations

import argparse

from compare.errors import EXIT_FOUND, EXIT_OK
from compare.options import (
    DTYPES,
    add_json,
    add_op,
    add_params,
    add_peers,
    backends_of,
    params_of,
    shape,
)
from compare.output import saying_what_mends_it, working, write_json

SUMMARY = "Time an op and its peers on a GPU."


def add_options(parser: argparse.ArgumentParser) -> None:
    """The cases, and what is timed in each."""
    add_op(parser)
    parser.add_argument(
        "--shape",
        type=shape,
        nargs="+",
        help="such as 16384x4096; by default those that the op is judged by",
    )
    parser.add_argument(
        "--dtype", choices=DTYPES, nargs="+", default=["float32", "bfloat16"]
    )
    parser.add_argument(
        "--sweep",
        action="store_true",
        help="also from sizes that are all launch to sizes that are all memory",
    )
    add_params(parser)
    add_peers(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Measures, and shows the times."""
    with working() as progress:
        with saying_what_mends_it():
            from compare.timing import benchmark
        request = benchmark.Request(
            op=options.op,
            shapes=tuple(options.shape) if options.shape else None,
            dtypes=tuple(dict.fromkeys(options.dtype)),
            params=params_of(options.op, options.param) if options.param else None,
            backends=backends_of(options),
            peers=tuple(dict.fromkeys(options.peers)),
            sweep=options.sweep,
        )
        benchmark.compile_ahead([request], progress)
        result = benchmark.bench(request, progress)
    from compare.report import terminal, timings
    from compare.timing import times

    if not write_json(options, times.to_json(result)):
        timings.show(result, terminal.make_console())
    return EXIT_FOUND if benchmark.failures(result, request.backends) else EXIT_OK
