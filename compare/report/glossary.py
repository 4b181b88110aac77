"""The glossary, docs/glossary.md, and where its terms occur in a sentence."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from markdown_it import MarkdownIt

from compare.errors import UnavailableError
from compare.repository import ROOT

FILE = "docs/glossary.md"

# Lines of figures whose names are common words: a sentence that has them means no term.
_COMMON = ("at most", "ran on")


@dataclass(frozen=True)
class Part:
    """A part of a sentence."""

    text: str  # as it stands there
    term: str = ""  # the entry of the glossary that it is about; empty for none


def read() -> dict[str, str]:
    """The entries by name, in Markdown.

    Raises:
        UnavailableError: There is no glossary.
    """
    file = ROOT / FILE
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise UnavailableError(
            f"{file} cannot be read ({error.strerror}): a checkout has it"
        ) from error
    _, *sections = text.split("\n## ")
    pairs = (each.partition("\n") for each in sections)
    return {name: entry.strip() for name, _, entry in pairs}


def explanations() -> dict[str, str]:
    """The entries by name, as plain text; none where there is no glossary."""
    if not (ROOT / FILE).exists():  # an installed package has no docs
        return {}
    return {name: _plain(entry) for name, entry in read().items()}


def anchor(heading: str) -> str:
    """The fragment of a link to a heading, the same as on GitHub."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def parts(sentence: str, rule: str, terms: Mapping[str, str]) -> list[Part]:
    """A finding's sentence, each term marked where it occurs first.

    The name of the finding's rule follows at the end if it does not occur.
    """
    names = {_stem(name): name for name in terms if name not in _COMMON}
    found = list(_parts(sentence, names)) if names else [Part(sentence)]
    if rule in terms and rule not in {each.term for each in found}:
        found += [Part(" "), Part(rule, rule)]
    return found


def _parts(sentence: str, names: Mapping[str, str]) -> Iterator[Part]:
    seen: set[str] = set()
    end = 0
    for match in _pattern(tuple(names)).finditer(sentence):
        term = names[_stem(match[0])]
        if term not in seen:
            seen.add(term)
            yield Part(sentence[end : match.start()])
            yield Part(match[0], term)
            end = match.end()
    yield Part(sentence[end:])


@functools.cache
def _pattern(stems: tuple[str, ...]) -> re.Pattern[str]:
    """Any of the stems, the longest first, as a word that is no part of an opcode."""
    longest = "|".join(map(re.escape, sorted(stems, key=len, reverse=True)))
    return re.compile(rf"(?<![\w.])(?:{longest})s?(?!\.?\w)", re.IGNORECASE)


def _stem(name: str) -> str:
    """The part of a name that singular and plural share."""
    return name.lower().removesuffix("s")


def _plain(markdown: str) -> str:
    (inline,) = MarkdownIt().parseInline(" ".join(markdown.split()))
    return "".join(each.content for each in inline.children or ())
