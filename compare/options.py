"""Options that several commands have. Nothing here imports torch."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from compare.code.architectures import ARCHITECTURES, parse_architecture
from compare.errors import UsageError
from compare.parameters import parse_parameter, read_ops
from compare.timing.names import BACKENDS, DEFAULT_BACKENDS, PEERS

DTYPES = ("float32", "float16", "bfloat16")
LISTINGS = {
    "diff": "the PTX of both sides, aligned by what the instructions do",
    "ptx": "the PTX of both sides, with names made comparable",
    "sass": "the machine code of both sides, with names made comparable",
}


def forward() -> list[str]:
    """The names of the ops that are no backward."""
    return [op.name for op in read_ops().values() if not op.forward]


def params_of(op: str, texts: Sequence[str]) -> dict[str, Any]:
    """All parameters of the op: as given, or their defaults.

    Raises:
        UsageError: It has no such parameter, or it is of another type.
    """
    summary = read_ops()[op]
    params = {name: each.default for name, each in summary.parameters.items()}
    try:
        return params | dict(parse_parameter(summary, text) for text in texts)
    except ValueError as error:
        raise UsageError(f"--param: {error}") from error


def check_shapes(op: str, shapes: Sequence[tuple[int, ...]]) -> None:
    """Raises UsageError for a shape that has too few or too many sizes for the op."""
    names = read_ops()[op].shape_names
    for each in shapes:
        if names and len(each) not in (len(names), len(names) + 1):
            raise UsageError(
                f"--shape: {op} takes {'x'.join(names)}, or a batch of them as "
                f"Bx{'x'.join(names)}; {'x'.join(map(str, each))} is neither"
            )


def backends_of(options: argparse.Namespace) -> tuple[str, ...]:
    """Our implementations that were asked for, once each."""
    return tuple(dict.fromkeys(options.backend or DEFAULT_BACKENDS))


def add_op(parser: argparse.ArgumentParser, *others: str) -> None:
    """The op, or one of the other words, and its direction."""
    parser.add_argument("op", choices=[*forward(), *others])
    add_backward(parser)


def add_backward(parser: argparse.ArgumentParser) -> None:
    """The direction."""
    parser.add_argument(
        "--backward", action="store_true", help="the op's backward in its place"
    )


def add_case(parser: argparse.ArgumentParser) -> None:
    """The op and one case of it."""
    add_op(parser)
    parser.add_argument("--shape", type=shape, help="by default the large one")
    parser.add_argument("--dtype", choices=DTYPES, default="float32")
    add_params(parser)


def add_params(parser: argparse.ArgumentParser, known: str = "") -> None:
    """The op's own parameters, and those that are known."""
    parser.add_argument(
        "--param",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter of the op" + known,
    )


def add_peers(parser: argparse.ArgumentParser) -> None:
    """The implementations to measure, ours and the peers'."""
    add_backends(parser)
    parser.add_argument(
        "--peers",
        nargs="*",
        choices=PEERS,
        default=list(PEERS),
        help="what else to measure; by default all that can be imported",
    )


def add_folder(parser: argparse.ArgumentParser, default: str) -> None:
    """Where the files go."""
    parser.add_argument(
        "--output",
        type=Path,
        default=Path(default),
        metavar="FOLDER",
        help=f"where the files go, by default {default}",
    )


def add_kernel(parser: argparse.ArgumentParser) -> None:
    """The rung and the kernel that are shown."""
    parser.add_argument(
        "--rung",
        metavar="NAME",
        help="which rung of the ladder to show and run, such as first; by default the "
        "code is that of the twin, and what runs is what a call takes",
    )
    add_kernel_number(parser)


def add_kernel_number(parser: argparse.ArgumentParser) -> None:
    """The kernel that is shown."""
    parser.add_argument(
        "--kernel",
        type=_argument(_number),
        default=1,
        metavar="N",
        help="which kernel to show, where a call launches several; by default 1, "
        "the first",
    )


def add_code(parser: argparse.ArgumentParser, default: str) -> None:
    """The generated code: the architecture, and the assembler."""
    add_arch(parser, default)
    parser.add_argument(
        "--same-ptxas",
        action="store_true",
        help="assemble Triton's PTX by nvcc's ptxas as well, instead of Triton's own",
    )


def add_arch(parser: argparse.ArgumentParser, default: str) -> None:
    """The architecture of the generated code."""
    parser.add_argument(
        "--arch",
        type=_argument(parse_architecture),
        metavar="SM",
        help=f"the architecture to generate code for, by default {default}: one of "
        f"{', '.join(each.name for each in ARCHITECTURES.values())}",
    )


def add_backends(parser: argparse.ArgumentParser) -> None:
    """Our implementations."""
    parser.add_argument(
        "--backend",
        action="extend",
        nargs="+",
        choices=BACKENDS,
        help="which implementations, by default cuda and triton",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """The report as JSON."""
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
def seconds(text: str) -> float:
    """A time limit."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ValueError(f"{text!r} is no number of seconds")
    return value


@_argument
def shape(text: str) -> tuple[int, ...]:
    """Sizes joined by x."""
    sizes = text.lower().split("x")
    if not all(size.isascii() and size.isdigit() for size in sizes):
        raise ValueError(f"{text!r} is no shape: join sizes by x, such as 1823x781")
    shape = tuple(map(int, sizes))
    if 0 in shape:
        raise ValueError(f"a tensor of shape {text} is empty, with nothing to compare")
    return shape
