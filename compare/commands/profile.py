"""`compare profile`: an op and its peers under torch.profiler."""

from __future__ import annotations

import argparse

from compare.errors import EXIT_OK
from compare.options import add_case, add_folder, add_peers, backends_of, params_of
from compare.output import saying_what_mends_it, working

SUMMARY = "Look into an op and its peers with torch.profiler."


def add_options(parser: argparse.ArgumentParser) -> None:
    """The case, what is looked into, and where the files go."""
    add_case(parser)
    add_peers(parser)
    parser.add_argument(
        "--nvtx-only",
        action="store_true",
        help="only run them in NVTX ranges, under Nsight Systems or Nsight Compute",
    )
    add_folder(parser, "profile")


def run(options: argparse.Namespace) -> int:
    """Profiles, and shows what each implementation launches."""
    with working() as progress:
        with saying_what_mends_it():
            from compare.timing import profiler
        request = profiler.ProfileRequest(
            op=options.op,
            shape=options.shape,
            dtype=options.dtype,
            params=params_of(options.op, options.param),
            backends=backends_of(options),
            peers=tuple(dict.fromkeys(options.peers)),
            nvtx_only=options.nvtx_only,
        )
        result = profiler.profile(request, options.output, progress)
    from compare.report import profiles, terminal

    profiles.show(result, terminal.make_console())
    return EXIT_OK
