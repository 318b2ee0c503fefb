"""Maths on lines of its own: a block, whatever its lines begin with (`=` and `-` are no marks of Markdown there)."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from channels.markdown import keeping_maths, maths_at

DISPLAY = "maths"
"""The class of a paragraph that is nothing but maths."""

_CLOSING = {"$$": re.compile(r"(?<!\\)(?:\\\\)*\$\$"), "\\[": re.compile(r"(?<!\\)(?:\\\\)*\\\]")}


def with_maths(parser: MarkdownIt) -> MarkdownIt:
    """Make `parser` show maths as it was written."""
    parser.block.ruler.before("fence", "maths", _display, {"alt": ["paragraph", "reference", "blockquote", "list"]})
    parser.add_render_rule("maths", _paragraph)
    return keeping_maths(parser)


def _display(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Take a paragraph that opens with displayed maths up to the line that closes it, or to a blank line or a fence.

    The first line alone decides whether there is one, so that a text that grows never takes it back.
    """
    first = _line(state, start)
    closing = _CLOSING.get(first[:2])
    if closing is None or first.startswith("$$$") or state.is_code_block(start):
        return False
    is_closed = closing.search(first, 2) is not None
    if not (_is_maths(first) if is_closed else _begins_maths(first)):
        return False
    if silent:
        return True
    stop = start + 1
    while not is_closed and stop < end and not _ends_paragraph(state, stop):
        is_closed = closing.search(_line(state, stop)) is not None
        stop += 1
    state.line = stop
    content = state.getLines(start, stop, state.blkIndent, False).strip()
    if _is_maths(content) or first.strip() in _CLOSING:
        maths = state.push("maths", "p", 0)
        maths.content, maths.map = content, [start, stop]
        return True
    opening = state.push("paragraph_open", "p", 1)
    inline = state.push("inline", "", 0)
    state.push("paragraph_close", "p", -1)
    opening.map = inline.map = [start, stop]
    inline.content, inline.children = content, []
    return True


def _paragraph(_self: RendererHTML, tokens: Sequence[Token], index: int, _options: OptionsDict, _env: EnvType) -> str:
    return f'<p class="{DISPLAY}">{html.escape(tokens[index].content)}</p>\n'


def _ends_paragraph(state: StateBlock, number: int) -> bool:
    is_outside = state.isEmpty(number) or state.sCount[number] < state.blkIndent
    return is_outside or _line(state, number).startswith(("```", "~~~"))


def _line(state: StateBlock, number: int) -> str:
    return state.src[state.bMarks[number] + state.tShift[number] : state.eMarks[number]]


def _begins_maths(first: str) -> bool:
    """Whether a line that opens displayed maths without closing it can mean it: `$$` is also a shell's number."""
    return first.strip() in _CLOSING or re.search(r"[\\^_=]", first[2:]) is not None


def _is_maths(text: str) -> bool:
    """Whether the text is maths and nothing else."""
    maths = maths_at(text)
    return maths is not None and not text[maths.end :].strip()
