"""The one Markdown dialect of the bridge: CommonMark with tables and strikethrough, in which maths is left alone."""

from __future__ import annotations

from functools import cache

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from channels.markdown.maths import maths_at


@cache
def parser() -> MarkdownIt:
    """The shared parser. It is stateless between calls; nobody adds rules to it."""
    return keeping_maths(MarkdownIt("commonmark").enable(["table", "strikethrough"]))


def parse(text: str) -> list[Token]:
    """The block tokens of `text`, inline tokens as their children."""
    return parser().parse(text)


def keeping_maths(parser: MarkdownIt) -> MarkdownIt:
    """Make `parser` take maths for text, in which no mark means anything."""
    parser.inline.ruler.before("escape", "maths", _maths)
    return parser


def _maths(state: StateInline, silent: bool) -> bool:
    found = maths_at(state.src, state.pos, state.posMax)
    if found is None:
        return False
    if not silent:
        state.pending += state.src[found.start : found.end]
    state.pos = found.end
    return True
