"""`compare explain`: what a term of a report means."""

from __future__ import annotations

import argparse
import difflib
import re
import sys

from compare.errors import EXIT_OK, UsageError

SUMMARY = "Say what a term of a report means."


def add_options(parser: argparse.ArgumentParser) -> None:
    """The term."""
    parser.add_argument(
        "term", nargs="*", help="such as executed; by default all are listed"
    )


def run(options: argparse.Namespace) -> int:
    """Prints the entry, or the names of all."""
    from compare.report import glossary

    entries = glossary.read()
    if not options.term:
        sys.stdout.writelines(f"{each}\n" for each in entries)
        return EXIT_OK
    term = " ".join(options.term)
    by_name = {each.lower(): each for each in entries}
    # What a reader has seen is often a part of a name, as in "sectors of fewest".
    whole = re.compile(rf"\b{re.escape(term.lower())}\b")
    parts = [each for each in by_name if whole.search(each)]
    name = term.lower() if term.lower() in by_name else (parts or [""])[0]
    if not name:
        close = difflib.get_close_matches(term.lower(), by_name, n=1)
        guess = f"did you mean {close[0]}?" if close else "without one it lists all"
        told = [each for each in entries if whole.search(entries[each].lower())]
        if told:
            guess = f"it is told of under {', '.join(told[:3])}"
        raise UsageError(f"there is no term {term!r}; {guess}")
    sys.stdout.write(f"{by_name[name]}\n\n{entries[by_name[name]]}\n")
    return EXIT_OK
