"""Markdown of the project as pages, whose links lead to pages of the site."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape

from compare.report.glossary import anchor
from compare.report.page.lexers import LEXERS, highlight_source
from compare.report.site.files import Files, relative

_ADDRESSES = re.compile(r'\b(src|srcset|href)="([^"]*)"')
_TABLE = '<div class="scroll" role="group" aria-label="table" tabindex="0"><table>\n'
_COMMENT = re.compile(r"<!--.*?-->\s*", re.DOTALL)


def title(text: str) -> str:
    """The heading of a file in Markdown, which is its first line."""
    return text.partition("\n")[0].removeprefix("# ").replace("`", "")


def render(text: str, path: str, page: str, files: Files) -> Markup:
    """A file in Markdown, or a part of one.

    Args:
        text: In Markdown, with tables.
        path: The file's, from the project's root, where its links start.
        page: The address of the page that it becomes, from the site's root.
        files: Is told what it links to.

    Raises:
        FileNotFoundError: A link leads nowhere.
    """

    def link(address: str) -> str:
        if re.match(r"[a-z]+:|#", address):
            return address
        target, hash_, fragment = address.partition("#")
        found = files.address(posixpath.join(posixpath.dirname(path), target))
        return relative(found, page) + hash_ + fragment

    parser = MarkdownIt("commonmark")  # with HTML, as in the README
    parser.enable("table")
    # Whatever may be wider than a phone is scrolled by itself, also by the keyboard.
    parser.add_render_rule("table_open", lambda *_: _TABLE)
    parser.add_render_rule("table_close", lambda *_: "</table></div>\n")
    parser.add_render_rule("fence", _fence)
    tokens = parser.parse(text)
    for opening, inside, closing in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if opening.type == "th_open" and not inside.content:
            opening.tag = closing.tag = "td"  # a heading that says nothing is none
        if opening.type == "heading_open":
            heading = "".join(each.content for each in inside.children or ())
            opening.attrSet("id", anchor(heading))
    for token in tokens:
        for each in (token, *(token.children or ())):
            _relink(each, link)
    return Markup(parser.renderer.render(tokens, parser.options, {}))


def source_lines(text: str, path: str) -> list[Markup]:
    """A file's lines, with the colours of its language where that is known."""
    suffix = PurePosixPath(path).suffix
    if suffix in LEXERS:
        return highlight_source(text, suffix)
    return [escape(line) for line in text.splitlines()]


def _relink(token: Token, link: Callable[[str], str]) -> None:
    for name in ("href", "src"):
        if name in token.attrs:
            token.attrSet(name, link(str(token.attrs[name])))
    if token.type in ("html_block", "html_inline"):
        token.content = _ADDRESSES.sub(
            lambda found: f'{found[1]}="{link(found[2])}"',
            _COMMENT.sub("", token.content),
        )


def _fence(
    renderer: Any, tokens: Sequence[Token], index: int, options: Any, env: Any
) -> str:
    token = tokens[index]
    code: str = escape(token.content)
    if (language := token.info.strip()) in LEXERS:
        code = "\n".join(highlight_source(token.content, language))
    return f'<pre tabindex="0"><code>{code}</code></pre>\n'
