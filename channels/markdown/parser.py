"""The one Markdown dialect of the bridge: CommonMark with tables and strikethrough."""

from __future__ import annotations

from functools import cache

from markdown_it import MarkdownIt
from markdown_it.token import Token


@cache
def parser() -> MarkdownIt:
    """The shared parser. It is stateless between calls; nobody adds rules to it."""
    return MarkdownIt("commonmark").enable(["table", "strikethrough"])


def parse(text: str) -> list[Token]:
    """The block tokens of `text`, inline tokens as their children."""
    return parser().parse(text)
