"""The language of the command line: commands, options, and what is wrong with one.

Nothing here imports torch, which takes seconds.
"""

from __future__ import annotations

import argparse
import difflib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from compare.code.architectures import ARCHITECTURES, parse_architecture
from compare.errors import UnavailableError, UsageError
from compare.parameters import OpSummary, backward_of, parse_parameter

DTYPES = ("float32", "float16", "bfloat16")
BACKENDS = ("cuda", "cuda_inline", "triton")
DEFAULT_ARCHITECTURE = "sm_90"
DEFAULT_BACKENDS = ("cuda", "triton")
PEERS = (
    *("torch", "torch.compile", "unfused", "cublaslt", "liger", "quack", "flash-attn"),
)
COMMANDS = (
    "all",
    "list",
    "doctor",
    "sanitize",
    "study",
    "bench",
    "plot",
    "profile",
    "routes",
    "record",
)

_LISTINGS = {
    "diff": "the PTX of both sides, aligned by what the instructions do",
    "ptx": "the PTX of both sides, with names made comparable",
    "sass": "the machine code of both sides, with names made comparable",
}
VIEWS = {
    "trace": "what a warp does, folded into loops",
    "mix": "instructions by what they are for, and what the launch takes",
    "memory": "what is loaded and stored, tensor by tensor",
    "who": "what the programmer sees to by hand, and what the compiler",
} | _LISTINGS

_DESCRIPTION = """\
Puts the CUDA C++ and the Triton implementation of an op under a microscope: are they
right, how fast are they, and what code did the two compilers make of them?
"""
_EPILOG = """\
Exit codes: 0 all is well (what was skipped is said), 1 parity failed, sanitize found
something or a record is of older code, 2 the command line makes no sense, 3 the
environment cannot do it, 4 a build failed, 70 an error of compare itself (with a
traceback), 130 interrupted.
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Says what is wrong, in one sentence."""
        raise UsageError(message.removeprefix("argument "))


def parse(arguments: Sequence[str], ops: Mapping[str, OpSummary]) -> argparse.Namespace:
    """The options of a command line.

    Raises:
        UsageError: It makes no sense.
        UnavailableError: What it asks for cannot be written.
    """
    parser = _parser(ops)
    commands = [*_forward(ops), *COMMANDS]
    if not arguments:
        raise UsageError(f"say what to compare: one of {', '.join(commands)}")
    if not arguments[0].startswith("-") and arguments[0] not in commands:
        close = difflib.get_close_matches(arguments[0], commands, n=1)
        guess = (
            f"did you mean {close[0]}?" if close else f"it has {', '.join(commands)}"
        )
        raise UsageError(f"there is no op or command {arguments[0]!r}; {guess}")
    options = parser.parse_args(arguments)
    for name in getattr(options, "ops", []):
        if name not in ops:
            raise UsageError(f"there is no op {name!r}; it has {', '.join(ops)}")
    if options.command in ops:
        options.op = options.command
    if getattr(options, "backward", False):
        if backward_of(options.op) not in ops:
            raise UsageError(
                f"--backward: that of {options.op} has no kernel of its own"
            )
        options.op = backward_of(options.op)
    if hasattr(options, "op") and hasattr(options, "param"):
        params_of(ops[options.op], options.param)  # raises for what makes no sense
    if getattr(options, "dtype", "") is None:
        # A ladder's last rungs are for tensor cores, which float32 has no use for.
        is_ladder = getattr(options, "ladder", False)
        for_tensor_cores = is_ladder and ops[options.op].has_flops
        options.dtype = "bfloat16" if for_tensor_cores else "float32"
    if options.command == "record" and options.json and not options.check:
        raise UsageError("--json: it is --check whose list can be written as JSON")
    _check_output(options)
    return options


def params_of(op: OpSummary, texts: list[str]) -> dict[str, Any]:
    """All parameters of the op: as given, or their defaults.

    Raises:
        UsageError: It has no such parameter, or it is of another type.
    """
    params = {each.name: each.default for each in op.parameters.values()}
    try:
        return params | dict(parse_parameter(op, text) for text in texts)
    except ValueError as error:
        raise UsageError(f"--param: {error}") from error


def _check_output(options: argparse.Namespace) -> None:
    names = ("json", "html", "markdown", "csv")
    files = {name: getattr(options, name, None) for name in names}
    to_stdout = [
        *(f"--{name}" for name in VIEWS if getattr(options, name, False)),
        *(f"--{name} -" for name, file in files.items() if file == "-"),
    ]
    is_document = any(file == "-" for file in files.values())
    if is_document and len(to_stdout) > 1:
        first, *_, last = to_stdout
        option = last.removesuffix(" -")
        raise UsageError(
            f"{first} and {last} would both write to stdout: give {option} a file"
        )
    # Asked now rather than when the work is done.
    for name, file in files.items():
        if isinstance(file, str) and file != "-":
            _check_file(f"--{name}", file)


def _check_file(option: str, file: str) -> None:
    path = Path(file)
    if not file:
        raise UsageError(f"{option}: an empty name; give it a file, or - for stdout")
    if path.is_dir():
        raise UsageError(f"{option}: {file} is a folder")
    if not path.parent.is_dir():
        raise UsageError(f"{option}: there is no folder {path.parent}")
    try:
        if path.is_file():
            path.open("ab").close()
        elif not path.exists():  # else a pipe, whose reader would see it close
            tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise unwritable(option, file, error) from error


def unwritable(option: str, file: str, error: OSError) -> UnavailableError:
    """What to say of a file that cannot be written."""
    return UnavailableError(f"{option}: {file} cannot be written ({error.strerror})")


def _parser(ops: Mapping[str, OpSummary]) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m compare",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(
        dest="command", metavar="op | command", required=True, parser_class=_Parser
    )

    def add(name: str, summary: str) -> argparse.ArgumentParser:
        return commands.add_parser(
            name, help=summary, description=summary, allow_abbrev=False
        )

    forward = _forward(ops)
    for name in forward:
        _add_op_options(add(name, ops[name].summary), ops[name])
    _add_shared_options(add("all", "Compare every op."))
    add("list", "List the ops.")
    doctor = add("doctor", "Say what works here, what cannot, and what mends it.")
    doctor.add_argument("--json", action="store_true", help="as JSON on stdout")
    sanitize = add(
        "sanitize",
        "Look for races, bad accesses and deadlocks in an op's CUDA kernels.",
    )
    _add_op_argument(sanitize, forward)
    sanitize.add_argument(
        "--gpu",
        action="store_true",
        help="by compute-sanitizer on a GPU; by default by the emulator's own checker",
    )
    _add_json_option(sanitize)
    study = add("study", "Study an op's two sources, and their code.")
    _add_op_argument(study, forward)
    _add_study_options(study)
    bench = add("bench", "Time an op and its peers on a GPU.")
    _add_op_argument(bench, forward)
    _add_bench_options(bench)
    plot = add("plot", "Draw bandwidth over size, from the records.")
    plot.add_argument("ops", nargs="*", metavar="op", help="by default all recorded")
    plot.add_argument(
        "--from",
        dest="source",
        metavar="FILE",
        help="draw this file, of bench --sweep --json FILE, instead of the records",
    )
    _add_folder_option(plot, "plots")
    profile = add("profile", "Look into an op and its peers with torch.profiler.")
    _add_op_argument(profile, forward)
    profile.add_argument("--shape", type=_shape, help="by default the large one")
    profile.add_argument("--dtype", choices=DTYPES, default="float32")
    _add_param_option(profile)
    _add_peers_options(profile)
    profile.add_argument(
        "--nvtx-only",
        action="store_true",
        help="only run them in NVTX ranges, under Nsight Systems or Nsight Compute",
    )
    _add_folder_option(profile, "profile")
    routes = add(
        "routes", "Compare the ways to build an op's .cu: prebuilt, load_inline, NVRTC."
    )
    _add_op_argument(routes, forward)
    _add_json_option(routes)
    record = add("record", "Measure on a GPU, and write it into records and README.")
    record.add_argument("ops", nargs="*", metavar="op", help="by default all")
    instead = record.add_mutually_exclusive_group()
    instead.add_argument(
        "--redraw",
        action="store_true",
        help="measure nothing: write plots and README from what is recorded",
    )
    instead.add_argument(
        "--check",
        action="store_true",
        help="measure nothing: list the records, and which are of older code than this",
    )
    record.add_argument(
        "--json", metavar="FILE", help="write the list there as JSON; - is stdout"
    )
    return parser


def _forward(ops: Mapping[str, OpSummary]) -> list[str]:
    return [op.name for op in ops.values() if not op.forward]


def _add_op_argument(parser: argparse.ArgumentParser, choices: list[str]) -> None:
    parser.add_argument("op", choices=choices)
    _add_backward_option(parser)


def _add_backward_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--backward", action="store_true", help="the op's backward in its place"
    )


def _add_study_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shape", type=_shape, help="by default the large one")
    parser.add_argument("--dtype", choices=DTYPES, default="float32")
    _add_param_option(parser)
    _add_code_options(parser, DEFAULT_ARCHITECTURE)
    _add_kernel_option(parser)
    _add_view_options(parser)
    for name, what in (("markdown", "as markdown"), ("csv", "a line for each cell")):
        parser.add_argument(
            f"--{name}", metavar="FILE", help=f"write the tables there, {what}"
        )


def _add_bench_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--shape",
        type=_shape,
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
    _add_param_option(parser)
    _add_peers_options(parser)
    _add_json_option(parser)


def _add_param_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--param",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter of the op",
    )


def _add_peers_options(parser: argparse.ArgumentParser) -> None:
    _add_backend_option(parser)
    parser.add_argument(
        "--peers",
        nargs="*",
        choices=PEERS,
        default=list(PEERS),
        help="what else to measure; by default all that can be imported",
    )


def _add_folder_option(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--output",
        type=Path,
        default=Path(default),
        metavar="FOLDER",
        help=f"where the files go, by default {default}",
    )


def _add_op_options(parser: argparse.ArgumentParser, op: OpSummary) -> None:
    _add_backward_option(parser)
    parser.add_argument(
        "--shape",
        type=_shape,
        help="sizes joined by x, such as 1823x781; by default what suits the device",
    )
    known = ", ".join(
        f"{each.name}={each.default} ({each.type})" for each in op.parameters.values()
    )
    parser.add_argument(
        "--param",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"a parameter of the op: {known or 'it has none'}",
    )
    _add_shared_options(parser)
    _add_kernel_option(parser)
    parser.add_argument(
        "--html",
        metavar="FILE",
        help="write a page there that links sources, PTX and machine code",
    )
    for name, what in _LISTINGS.items():
        parser.add_argument(f"--{name}", action="store_true", help=f"also show {what}")
    parser.add_argument(
        "--ladder",
        action="store_true",
        help="instead: the kernels that lead to this one, and what each step gains",
    )


def _add_kernel_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rung",
        metavar="NAME",
        help="which rung of the ladder to show and run, such as first; by default the "
        "code is that of the twin, and what runs is what a call takes",
    )
    parser.add_argument(
        "--kernel",
        type=_argument(_number),
        default=1,
        metavar="N",
        help="which kernel to show, where an op launches several; by default 1, "
        "the first",
    )


def _add_view_options(parser: argparse.ArgumentParser) -> None:
    for name, what in VIEWS.items():
        parser.add_argument(
            f"--{name}", action="store_true", help=f"instead of the sources: {what}"
        )


def _add_shared_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dtype", choices=DTYPES, help="by default float32")
    _add_backend_option(parser)
    _add_code_options(parser, f"that of the GPU, or {DEFAULT_ARCHITECTURE}")
    _add_json_option(parser)


def _add_code_options(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--arch",
        type=_argument(parse_architecture),
        metavar="SM",
        help=f"the architecture to generate code for, by default {default}: one of "
        f"{', '.join(each.name for each in ARCHITECTURES.values())}",
    )
    parser.add_argument(
        "--same-ptxas",
        action="store_true",
        help="assemble Triton's PTX by nvcc's ptxas as well, instead of Triton's own",
    )


def _add_backend_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--backend",
        action="extend",
        nargs="+",
        choices=BACKENDS,
        help="which implementations, by default cuda and triton",
    )


def _add_json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", metavar="FILE", help="write the report there as JSON; - is stdout"
    )


def _argument(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """A parser whose ValueErrors argparse shows as they are."""

    def checked(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return checked


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ValueError(f"{text!r} is no number of a kernel: they count from 1")
    return int(text)


@_argument
def _shape(text: str) -> tuple[int, ...]:
    sizes = text.lower().split("x")
    if not all(size.isascii() and size.isdigit() for size in sizes):
        raise ValueError(f"{text!r} is no shape: join sizes by x, such as 1823x781")
    shape = tuple(map(int, sizes))
    if 0 in shape:
        raise ValueError(f"a tensor of shape {text} is empty, with nothing to compare")
    return shape
