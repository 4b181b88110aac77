"""Takes C++ and CUDA source text apart into tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Literal, NamedTuple, NoReturn

from compare.errors import BuildFailedError

Kind = Literal[
    "space",
    "comment",
    "directive",  # a whole preprocessor directive, without its last newline
    "skipped",  # what lies behind `#if 0`
    "identifier",
    "number",
    "string",
    "character",
    "launch",  # the `<<<` or `>>>` of a kernel's launch
    "punctuation",
]

_LITERAL = r"(?:u8|[uUL])?"
_SUFFIX = r"(?:[^\W\d]\w*)?"
_PATTERNS: tuple[tuple[Kind, str], ...] = (
    ("space", r"(?:\s|\\\n)+"),
    ("comment", r"//(?:\\\n|[^\n])*|/\*[\s\S]*?\*/"),
    (
        "string",
        rf'{_LITERAL}R"(?P<fence>[^()\\\s]{{0,16}})\([\s\S]*?\)(?P=fence)"{_SUFFIX}'
        rf'|{_LITERAL}"(?:[^"\\\n]|\\[\s\S])*"{_SUFFIX}',
    ),
    ("character", rf"{_LITERAL}'(?:[^'\\\n]|\\[\s\S])+'{_SUFFIX}"),
    ("number", r"\.?\d(?:[eEpP][+-]|'\w|[\w.])*"),
    ("identifier", r"(?:[^\W\d]|\$)[\w$]*"),
    # `>>` is two tokens, because it may close two templates.
    (
        "punctuation",
        r"<<<|>>>|<=>|<<=|\.\.\.|->\*?|::|<<|<=|>=|==|!=|&&|\|\||\+\+|--"
        r"|[-+*/%&|^]=|##|[\s\S]",
    ),
)
_TOKEN = re.compile("|".join(f"(?P<{kind}>{text})" for kind, text in _PATTERNS))
_DIRECTIVE = re.compile(
    r'#(?:\\\n|/\*[\s\S]*?\*/|//(?:\\\n|[^\n])*|"(?:\\[\s\S]|[^"\\\n])*"|[^\n])*'
)
_CONDITION = re.compile(r"#\s*(if|ifdef|ifndef|else|elif|elifdef|elifndef|endif)\b")
_CONDITION_LINE = re.compile(rf"^[ \t]*{_CONDITION.pattern}", re.MULTILINE)
_NEVER = re.compile(r"#\s*if\s+(?:0|false)\s*(?://.*|/\*.*)?$")
_DEFINE = re.compile(r"#\s*define\s+(?P<name>\w+)(?P<parameters>\([^)]*\))?")
_INCLUDE = re.compile(r'#\s*include\s*(?:"(?P<local>[^"\n]+)"|<(?P<system>[^>\n]+)>)')
_BLANK: frozenset[Kind] = frozenset({"space", "comment", "directive", "skipped"})
_CLOSING = {"(": ")", "[": "]", "{": "}"}


class CudaSourceError(BuildFailedError):
    """A file is no C++; the message names the file and the line."""


class Token(NamedTuple):
    """A piece of a source text.

    Attributes:
        kind: What it is.
        text: As it is written.
        start: The offset of its first character in the text.
        line: The line of its first character.
    """

    kind: Kind
    text: str
    start: int
    line: int

    @property
    def end(self) -> int:
        """The offset behind its last character."""
        return self.start + len(self.text)

    @property
    def is_code(self) -> bool:
        """Whether the compiler proper sees it."""
        return self.kind not in _BLANK

    @property
    def condition(self) -> str:
        """The name of a conditional directive, such as "ifdef", or ""."""
        found = _CONDITION.match(self.text) if self.kind == "directive" else None
        return found[1] if found else ""

    @property
    def include(self) -> tuple[str, str]:
        """The names of an `#include`, in quotes and in angle brackets; one is ""."""
        found = _INCLUDE.match(self.text) if self.kind == "directive" else None
        return (found["local"] or "", found["system"] or "") if found else ("", "")


@dataclass(frozen=True)
class Macro:
    """A `#define`."""

    name: str
    has_parameters: bool
    body: tuple[Token, ...]  # with spaces and comments; offsets are those of the file


def read_tokens(text: str, file: Path, first_line: int = 1) -> list[Token]:
    """Returns the tokens of a text, which joined are the text.

    Args:
        text: The source; a line feed alone ends a line.
        file: Where it stands, for messages.
        first_line: The number of the first line.

    Raises:
        CudaSourceError: A comment, a string or an `#if 0` does not end.
    """
    tokens: list[Token] = []
    at, line = 0, first_line
    begins_line = True
    while at < len(text):
        if tokens and tokens[-1].kind == "directive" and _NEVER.match(tokens[-1].text):
            end = _end_of_skipped(text, at)
            if end is None:
                stop(file, tokens[-1].line, "an #if that never ends")
            token = Token("skipped", text[at:end], at, line)
        elif begins_line and text[at] == "#":
            found = _DIRECTIVE.match(text, at)
            assert found
            token = Token("directive", found[0], at, line)
        else:
            token = _next(text, at, line)
            _refuse_endless(token, text, file)
        tokens.append(token)
        at, line = token.end, line + token.text.count("\n")
        if token.kind == "space":
            begins_line |= "\n" in token.text.replace("\\\n", "")
        elif token.kind != "comment":
            begins_line = token.kind == "skipped"
    return _with_launches(tokens)


def macro(directive: Token) -> Macro | None:
    """Returns what a directive defines, or None."""
    found = _DEFINE.match(directive.text)
    if directive.kind != "directive" or not found:
        return None
    tokens = []
    at, text = found.end(), directive.text
    while at < len(text):
        token = _next(text, at, directive.line + text.count("\n", 0, at))
        tokens.append(token)
        at = token.end
    body = _with_launches([t._replace(start=directive.start + t.start) for t in tokens])
    return Macro(found["name"], found["parameters"] is not None, tuple(body))


def code_of(tokens: Sequence[Token]) -> list[Token]:
    """Returns the tokens that the compiler proper sees, of all branches of an #if."""
    return [token for token in tokens if token.is_code]


def first_branches(tokens: Sequence[Token]) -> list[Token]:
    """Returns the code, where each #if opens and closes the same brackets.

    Of an #if whose branches leave different brackets open, such as two heads of one
    function, only the first branch is kept.
    """
    dropped: set[int] = set()
    groups: list[list[int]] = []  # of each open #if, where its branches begin
    for i, token in enumerate(tokens):
        if token.condition.startswith("if"):
            groups.append([i])
        elif token.condition.startswith("el") and groups:
            groups[-1].append(i)
        elif token.condition == "endif" and groups:
            begins = [*groups.pop(), i]
            branches = [range(a, b) for a, b in pairwise(begins)]
            balances = [
                sum(_balance(tokens[j]) for j in branch if j not in dropped)
                for branch in branches
            ]
            if len(branches) > 1 and any(balances):
                dropped.update(range(begins[1], i))
    return [t for i, t in enumerate(tokens) if t.is_code and i not in dropped]


def partners(code: Sequence[Token], file: Path) -> list[int]:
    """Returns for every bracket the index of the one that it belongs to, else -1.

    Raises:
        CudaSourceError: A bracket is not closed, or not opened.
    """
    partner = [-1] * len(code)
    opened: list[int] = []
    for i, token in enumerate(code):
        if token.kind != "punctuation":
            continue
        if token.text in _CLOSING:
            opened.append(i)
        elif token.text in _CLOSING.values():
            if not opened:
                stop(file, token.line, f"a {token.text} that nothing opens")
            begin = opened.pop()
            if _CLOSING[code[begin].text] != token.text:
                stop(file, code[begin].line, f"a {code[begin].text} that never closes")
            partner[begin], partner[i] = i, begin
    if opened:
        begin = opened[-1]
        stop(file, code[begin].line, f"a {code[begin].text} that never closes")
    return partner


def spaced(tokens: Sequence[Token]) -> str:
    """Returns code on one line, with a blank where tokens were apart."""
    text = ""
    for i, token in enumerate(tokens):
        text += " " if i and token.start > tokens[i - 1].end else ""
        text += token.text.replace("\\\n", "")
    return text


def stop(file: Path, line: int, what: str) -> NoReturn:
    """Raises a CudaSourceError that names the place."""
    raise CudaSourceError(f"{file.name}:{line}: {what}")


def _next(text: str, at: int, line: int) -> Token:
    found = _TOKEN.match(text, at)
    assert found
    kind: Kind = next(kind for kind, _ in _PATTERNS if found[kind] is not None)
    return Token(kind, found[0], at, line)


def _refuse_endless(token: Token, text: str, file: Path) -> None:
    """Raises an error at what begins as a comment or literal, and does not end."""
    if token.text == "/" and text.startswith("/*", token.start):
        stop(file, token.line, "a comment that never ends")
    if token.text in ('"', "'"):
        name = "string" if token.text == '"' else "character"
        stop(file, token.line, f"a {name} that never ends")


def _end_of_skipped(text: str, at: int) -> int | None:
    """Returns where the #else or #endif begins that ends an `#if 0`."""
    depth = 0
    for found in _CONDITION_LINE.finditer(text, at):
        if found[1].startswith("if"):
            depth += 1
        elif depth == 0:
            return found.start()
        elif found[1] == "endif":
            depth -= 1
    return None


def _balance(token: Token) -> int:
    """Counts brackets, the round ones apart from the others."""
    if token.kind != "punctuation":
        return 0
    return {"{": 1, "}": -1, "(": 1 << 20, ")": -(1 << 20)}.get(token.text, 0)


def _with_launches(tokens: list[Token]) -> list[Token]:
    """Tells a launch's `<<<` and `>>>` from those that close templates."""
    code = [i for i, token in enumerate(tokens) if token.is_code]
    launches: set[int] = set()
    for at, i in enumerate(code):
        # `operator<<<int>(...)` calls a template.
        if tokens[i].text == "<<<" and at and tokens[code[at - 1]].text != "operator":
            close = _end_of_configuration(tokens, code, at)
            launches |= {i, close} if close is not None else set()
    pieces = (_split(token, i in launches) for i, token in enumerate(tokens))
    return [*chain.from_iterable(pieces)]


def _end_of_configuration(
    tokens: Sequence[Token], code: Sequence[int], at: int
) -> int | None:
    """Returns the index of the `>>>` of a launch, or None.

    It is the last one before the statement ends: an earlier one closes templates.
    """
    depth, close = 0, None
    for j in range(at + 1, len(code)):
        text = tokens[code[j]].text
        if text in _CLOSING:
            depth += 1
        elif text in _CLOSING.values():
            depth -= 1
        elif text == ">>>" and depth == 0:
            if j + 1 < len(code) and tokens[code[j + 1]].text == "(":
                close = code[j]
        elif depth == 0 and text in (";", "<<<"):
            break
        if depth < 0:
            break
    return close


def _split(token: Token, is_launch: bool) -> Iterator[Token]:
    """Yields a `<<<` or `>>>` as the tokens that it is; any other token as it is."""
    if token.kind != "punctuation" or token.text not in ("<<<", ">>>"):
        yield token
    elif is_launch:
        yield token._replace(kind="launch")
    else:
        at = token.start
        for text in ("<<", "<") if token.text == "<<<" else (">", ">", ">"):
            yield token._replace(text=text, start=at)
            at += len(text)
