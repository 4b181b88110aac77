"""Plots of a sweep, a line for each implementation.

Of ops that are bound by memory it is bandwidth over size, and of others the rate of
arithmetic over the number that the sweep is about.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bindings.trials import TRIALS
from compare.errors import UnavailableError, UsageError
from compare.printable import printable
from compare.records import store
from compare.report.text import size_name
from compare.timing import rates
from compare.timing.names import NAMES
from compare.timing.times import Bench, CaseTimes, MatmulRate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("svg", "png")

# Okabe and Ito's colours, which nobody confuses (their yellow is too light on white;
# a grey and an indigo are added). Markers and dashes tell the lines apart without any
# colour.
STYLES = {
    "cuda": ("#0072B2", "o", "solid"),
    "cuda_inline": ("#000000", "x", "solid"),
    "triton": ("#D55E00", "s", "solid"),
    "torch": ("#009E73", "^", "dashdot"),
    "torch.compile": ("#E69F00", "v", "dashdot"),
    "unfused": ("#999999", "P", "dotted"),
    "cublaslt": ("#117733", "<", "dashdot"),
    "liger": ("#CC79A7", "D", (0, (5, 1))),
    "quack": ("#56B4E9", "X", (0, (5, 1))),
    "flash-attn": ("#332288", "*", (0, (5, 1))),
    "flash-attn-4": ("#882255", "d", (0, (5, 1))),
    "cudnn": ("#44AA99", "h", "dashdot"),
}
_CEILING_COLOUR = "#333333"

_SETTINGS: dict[Any, Any] = {
    "font.size": 10,
    "legend.fontsize": 9,
    "axes.titlesize": 11,
    "lines.markersize": 5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "compare",  # or every run would invent other ids
    "text.parse_math": False,  # no name of a GPU is a formula
}
_INCHES = (6.4, 4.2)
_DOTS_PER_INCH = 150
_MAX_TICKS = 7


@dataclass(frozen=True)
class Line:
    """How fast an implementation is, by position; None where it was not timed."""

    implementation: str
    medians: tuple[float | None, ...]
    lows: tuple[float | None, ...]  # a fifth of the replays was slower
    highs: tuple[float | None, ...]  # a fifth was faster


@dataclass(frozen=True)
class Scales:
    """What a plot shows over what."""

    shown: str  # in a word or two
    unit: str
    over: str  # in a word
    axis: str  # in full


_BANDWIDTH = Scales("bandwidth", "GB/s", "size", "fewest bytes that the op has to move")


@dataclass(frozen=True)
class Plot:
    """The content of a figure."""

    name: str  # its files', without a suffix
    what: str  # the op, its unusual parameters and the dtype
    where: str  # the GPU and the day
    scales: Scales
    positions: tuple[int, ...]  # ascending
    lines: tuple[Line, ...]
    ceiling: tuple[float, ...]  # by position
    ceiling_name: str

    @property
    def digest(self) -> str:
        """A hash of all of it, which each file that was drawn from it holds."""
        text = json.dumps(asdict(self), sort_keys=True)
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def plots(bench: Bench) -> list[Plot]:
    """A plot for each dtype and each choice of parameters in the sweep.

    Raises:
        UsageError: There is no sweep.
    """
    if not bench.sweep:
        raise UsageError(
            f"there is no sweep of {bench.op} on {store.gpu(bench)} to draw: "
            f"python -m compare bench {bench.op} --sweep --json FILE measures one"
        )
    groups: dict[tuple[str, ...], list[CaseTimes]] = {}
    for each in bench.sweep:
        unusual = store.unusual_params(bench.op, each.case.params)
        key = (*unusual, each.case.dtype_name)
        groups.setdefault(key, []).append(each)
    return [_plot(bench, *key, cases=cases) for key, cases in groups.items()]


def draw(bench: Bench, folder: Path) -> list[Path]:
    """Draws every plot, as SVG and as PNG, and returns the files.

    Raises:
        UsageError: There is no sweep.
        UnavailableError: There is no matplotlib, or a file cannot be written.
    """
    files = []
    for plot in plots(bench):
        fill = functools.partial(_fill, plot)
        for suffix, content in contents(fill, plot.what, plot.digest).items():
            file = folder / f"{plot.name}.{suffix}"
            store.replace(file, content)
            files.append(file)
    return files


def require_matplotlib() -> None:
    """Makes sure of it before something is done that ends in a plot.

    Raises:
        UnavailableError: It cannot be imported.
    """
    with _matplotlib():
        pass


def _plot(bench: Bench, *words: str, cases: list[CaseTimes]) -> Plot:
    *params, dtype = words
    trial = TRIALS.get(bench.op)
    if trial is None or trial.flops is None:
        scales, position_of = _BANDWIDTH, _bytes
        name_of_ceiling = f"ceiling, reads to writes {cases[0].ceiling.mix}"
    else:
        over = trial.sweep_over
        scales = Scales("rate of arithmetic", "TFLOP/s", over, over)
        index = trial.shape_names.index(over)

        def position_of(times: CaseTimes) -> int:
            return times.case.shape[index]

        name_of_ceiling = rates.product_of(bench.op)
    cases = sorted(cases, key=position_of)
    work = [_work(bench.op, each) for each in cases]
    name = "-".join((bench.op, dtype, *(each.replace("=", "-") for each in params)))
    lines = (_line(implementation, cases, work) for implementation in NAMES)
    return Plot(
        name=re.sub(r"[^\w.+-]", "_", name),
        what=" ".join((bench.op, *words)),
        where=f"{store.gpu(bench)}, {store.date(bench)}",
        scales=scales,
        positions=tuple(map(position_of, cases)),
        lines=tuple(line for line in lines if any(line.medians)),
        ceiling=_ceiling(bench, dtype, scales, cases),
        ceiling_name=name_of_ceiling,
    )


def _bytes(times: CaseTimes) -> int:
    return times.traffic.total_bytes


def _work(op: str, times: CaseTimes) -> float:
    """What is done by the microsecond in the unit of a plot: in GB/s, or TFLOP/s."""
    trial = TRIALS.get(op)
    if trial is None or trial.flops is None:
        return times.traffic.total_bytes / 1e3
    return trial.flops(times.case.shape, times.case.params) / 1e6


def _ceiling(
    bench: Bench, dtype: str, scales: Scales, cases: Sequence[CaseTimes]
) -> tuple[float, ...]:
    if scales == _BANDWIDTH:
        return tuple(each.ceiling.gb_per_s for each in cases)
    rate = bench.matmul.get(dtype)
    return (rate.tflops,) * len(cases) if isinstance(rate, MatmulRate) else ()


def _line(
    implementation: str, cases: Sequence[CaseTimes], work: Sequence[float]
) -> Line:
    timings = [store.timing(each, implementation) for each in cases]
    medians, lows, highs = (
        tuple(
            None if timing is None else done / getattr(timing, quantile)
            for timing, done in zip(timings, work, strict=True)
        )
        for quantile in ("median_us", "p80_us", "p20_us")
    )
    return Line(implementation, medians, lows, highs)


def contents(
    fill: Callable[[Figure], None], what: str, digest: str
) -> dict[str, bytes]:
    """The content of the files of a figure, by suffix.

    Args:
        fill: Draws it.
        what: Its title, in which files hold it.
        digest: A hash of what it shows, which they hold too.

    Raises:
        UnavailableError: There is no matplotlib.
    """
    with _matplotlib():
        from matplotlib.figure import Figure

        figure = Figure(figsize=_INCHES, layout="constrained")
        fill(figure)
        return {suffix: _content(figure, what, digest, suffix) for suffix in FORMATS}


@contextlib.contextmanager
def _matplotlib() -> Iterator[None]:
    """Settings that are the same for every user, and gone afterwards."""
    try:
        import matplotlib
    except ImportError as error:
        raise UnavailableError(
            f"plots need matplotlib, which cannot be imported ({error}): "
            "pip install -e '.[plots]'"
        ) from error
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        yield


def _fill(plot: Plot, figure: Figure) -> None:
    axes = figure.add_subplot()
    axes.set_title(printable(f"{plot.what}\n{plot.where}"), loc="left")
    axes.set_xlabel(plot.scales.axis)
    axes.set_ylabel(f"{plot.scales.unit}: median, and p20 to p80")
    axes.grid(color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)
    if plot.ceiling:
        axes.plot(
            plot.positions,
            plot.ceiling,
            color=_CEILING_COLOUR,
            linestyle="dashed",
            label=printable(plot.ceiling_name),
        )
    for index, line in enumerate(plot.lines):
        colour, marker, dashes = STYLES[line.implementation]
        axes.fill_between(
            plot.positions,
            _gaps(line.lows),
            _gaps(line.highs),
            color=colour,
            alpha=0.2,
            linewidth=0,
        )
        axes.plot(
            plot.positions,
            _gaps(line.medians),
            color=colour,
            marker=marker,
            linestyle=dashes,
            zorder=3 - index / len(plot.lines),  # the first, ours, on top
            label=NAMES[line.implementation],
        )
    _scale(axes, plot)
    axes.legend()


def _scale(axes: Axes, plot: Plot) -> None:
    from matplotlib.ticker import NullFormatter

    axes.set_ylim(0, 1.05 * max(axes.get_ylim()))
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_xscale("log", base=2)
    first = math.floor(math.log2(plot.positions[0]))
    last = math.ceil(math.log2(plot.positions[-1]))
    step = math.ceil((last - first + 1) / _MAX_TICKS)
    powers = [2**n for n in range(first, last + 1)]
    named = powers[-first % step :: step]
    name_of = size_name if plot.scales == _BANDWIDTH else "{:,}".format
    axes.set_xticks(named, [name_of(each) for each in named])
    axes.set_xticks(powers, minor=True)
    axes.xaxis.set_minor_formatter(NullFormatter())


def _gaps(values: Sequence[float | None]) -> list[float]:
    """The values as matplotlib takes them: it draws nothing where there is NaN."""
    return [math.nan if each is None else each for each in values]


def _content(figure: Figure, what: str, digest: str, suffix: str) -> bytes:
    own = {"Title": printable(what), "Description": digest}
    # Neither a date nor a version: what is drawn again is the same, byte for byte.
    absent = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}
    buffer = io.BytesIO()
    figure.savefig(
        buffer,
        format=suffix,
        dpi=_DOTS_PER_INCH,
        metadata=own | absent[suffix],
    )
    content = buffer.getvalue()
    if suffix == "svg":  # a file of text like others, without spaces at a line's end
        content = re.sub(rb"[ \t]+$", b"", content, flags=re.MULTILINE)
    return content
