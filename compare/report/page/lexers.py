"""Colours for sources and listings: a few kinds of token, each a class of base.css."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence

import pygments
from markupsafe import Markup
from pygments.filter import Filter
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer, RegexLexer
from pygments.lexers import CudaLexer, PythonLexer
from pygments.token import Comment, Keyword, Name, Number, String, Text, _TokenType

from compare.assembly.classify import Language
from compare.printable import printable

# Coarse on purpose: what is not told apart costs no bytes either. The first that
# contains a token's own kind is what it counts as; all others are plain text.
_KINDS = (
    (Comment.Preproc, Comment.Preproc),
    (Comment.PreprocFile, String),
    (Comment, Comment),
    (String.Doc, Comment),
    (String, String),
    (Keyword, Keyword),
    (Number, Number),
    (Name.Function, Name.Function),
    (Name.Class, Name.Function),
    (Name.Decorator, Name.Decorator),
    (Name.Label, Name.Label),
    (Name.Builtin, Name.Builtin),
)


class PtxLexer(RegexLexer):
    """Normalised PTX. The one of pygments takes `@` and `::` for errors."""

    name = "PTX instructions"
    tokens = {  # noqa: RUF012 (as pygments wants it)
        "root": [
            (r"\s+", Text),
            (r"[\w$]+:$", Name.Label),
            (r"@\S+", Name.Decorator),
            (r"[A-Za-z][\w.:]*", Keyword, "operands"),
            (r".", Text),
        ],
        "operands": [
            (r"\n", Text, "#pop"),
            (r"%(?:n?tid|n?ctaid|laneid|warpid|clock\w*)\b(?:\.[xyz])?", Name.Builtin),
            (r"%\w+", Text),
            (r"\bL\d+\b", Name.Label),
            (r"-?\b(?:0[dfx][0-9A-Fa-f]+|\d+(?:\.\d+)?)\b", Number),
            (r"[\w$]+", Text),
            (r".", Text),
        ],
    }


class SassLexer(PtxLexer):
    """Normalised SASS, which pygments does not know: its "sass" is a style sheet."""

    name = "SASS instructions"
    tokens = {  # noqa: RUF012 (as pygments wants it)
        "operands": [
            (r"\n", Text, "#pop"),
            (r"\bSR_[\w.]+|\bc(?=\[)", Name.Builtin),
            (r"\bL\d+\b", Name.Label),
            (r"[-+]?(?:\b0x[0-9a-f]+|\b\d+(?:\.\d+)?(?:e[-+]?\d+)?)\b", Number),
            (r"[\w$]+(?:\.\w+)*", Text),
            (r".", Text),
        ],
    }


class _Coarse(Filter):
    def filter(
        self, lexer: Lexer, stream: Iterable[tuple[_TokenType, str]]
    ) -> Iterator[tuple[_TokenType, str]]:
        for kind, text in stream:
            yield _coarse(kind), text


@functools.cache  # there are some dozens of kinds, and a site has half a million tokens
def _coarse(kind: _TokenType) -> _TokenType:
    return next((coarse for fine, coarse in _KINDS if kind in fine), Text)


# By the suffix of a file, or by the name of a language as in Markdown.
LEXERS = {
    **dict.fromkeys((".cpp", ".cu", ".cuh", ".h", "cpp", "cuda"), CudaLexer),
    **dict.fromkeys((".py", "python"), PythonLexer),
    "ptx": PtxLexer,
    "sass": SassLexer,
}


def highlight_source(text: str, language: str) -> list[Markup]:
    """The lines of a source, without a tab or a control character."""
    return _highlight(printable(text.expandtabs()).removesuffix("\n"), language)


def highlight_listing(lines: Sequence[str], language: Language) -> list[Markup]:
    """The lines of a normalised listing."""
    one_by_one = (printable(line).replace("\n", " ") for line in lines)
    return _highlight("\n".join(one_by_one), language)


def _highlight(text: str, language: str) -> list[Markup]:
    # Empty lines at both ends count, or all numbers would shift.
    lexer = LEXERS[language](stripnl=False, ensurenl=False)
    lexer.add_filter(_Coarse())
    formatter = HtmlFormatter(nowrap=True, classprefix="h-")
    html = pygments.highlight(f"{text}\n", lexer, formatter)
    return [Markup(line) for line in html.removesuffix("\n").split("\n")]
