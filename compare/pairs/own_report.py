"""The report on one's own files, for Python: in a test, and in a notebook."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from compare.assembly import places
from compare.code.kernel_code import Side
from compare.judge.parity import Parity, Skipped
from compare.report.comparison import NOT_ASKED_FOR, Report
from compare.report.figures import notes
from compare.report.own_pair import OwnPair
from compare.timing import environment

SLOTS: tuple[Side, Side] = ("cuda", "triton")  # left and right


@dataclass(frozen=True)
class OwnReport(Report):
    """A report on a user's own files."""

    @property
    def was_tried(self) -> bool:
        """Whether every file has been run, in whatever respect."""
        checked = {name for row in self.checks.values() for name in row}
        return all(
            name in checked or isinstance(self.parity[name], Parity)
            for name in self.backends
        )

    def assert_parity(self) -> None:
        """Raises if anything is wrong: results, races, bounds, other inputs.

        What could not be tried, such as a file that the emulator refuses, is wrong too.

        Raises:
            AssertionError: With the sentences that the terminal would show.
        """
        if not (self.passed and self.was_tried):
            raise AssertionError("\n".join(notes(self)))

    def _repr_html_(self) -> str:
        """The page, as a notebook shows it: in a frame, so that styles stay apart."""
        from compare.report import page
        from compare.report.page.simulated import extras_of

        text = html.escape(page.render(self, extras_of(self)))
        style = "width: 100%; height: 800px; border: 1px solid #8888"
        return f'<iframe srcdoc="{text}" style="{style}"></iframe>'


def why_no_times() -> Skipped:
    """Why a report has no times."""
    is_here = torch.cuda.is_available()
    return NOT_ASKED_FOR if is_here else Skipped("times need a GPU")


def failed(paths: Sequence[Path], reason: Parity | Skipped) -> OwnReport:
    """A report that says why there is none, for a table of many; it reads no file.

    Args:
        paths: The files that could not be compared, one or two.
        reason: What is wrong with them, or why they cannot be tried here.
    """
    shown = places.distinct_names(paths)
    languages: list[Side] = ["triton" if e.suffix == ".py" else "cuda" for e in paths]
    slots = SLOTS if len(paths) > 1 else languages[:1]
    files = dict(zip(slots, (shown[path] for path in paths), strict=True))
    return OwnReport(
        op=" and ".join(files.values()),
        environment=environment.collect(),
        case=None,
        backends=tuple(slots),
        parity={each: reason if each in slots else NOT_ASKED_FOR for each in SLOTS},
        times=why_no_times(),
        codegen=dict.fromkeys(SLOTS, NOT_ASKED_FOR),
        findings=(),
        names=dict(zip(slots, files.values(), strict=True)),
        own=OwnPair("", files, dict(zip(slots, languages, strict=True)), texts={}),
    )
