"""How much of a growing text may be shown by a surface that can only append."""

from __future__ import annotations

import re

from channels.markdown.blocks import HOLD, Blocks, Leaf
from channels.markdown.graphemes import is_grapheme_border, last_grapheme_border
from channels.markdown.inline import Edge, Inline, scan_inline

# An unfinished line of which nobody can say yet what it is: container marks and then the beginning of a mark.
_UNDECIDED_LINE = re.compile(
    r"""[ \t>]*
    (?:(?:[-+*]|\d{1,9}[.)])[ \t]+)*
    (?:
        | \d{1,9}[.)]?
        | \#{1,6}[ \t]*
        | [-+*_=|:~ \t]+
        | `{1,2} | `{3,}[^`]* | ~{3,}.*
        | <.*
    )""",
    re.VERBOSE,
)
_DEFINITION = re.compile(r"[ \t>]*\[[^\]]*\](?::.*)?")
_UNFINISHED_URL = re.compile(r"(?:https?://|www\.)[^\s<>|*`\"'\u3000-\u303f\uff00-\uff65]*\Z")
# Scripts written without spaces, whose every character is a place to stop.
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u312f\u31a0-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uff9d"
    r"\U00020000-\U0003ffff]"
)
_PIPE = re.compile(r"(?<!\\)\|")
_UNFINISHED_MENTION = re.compile(r"[@<][!/@#&]?\w*\Z")
_STRIDE = 256
"""A run of more than HOLD characters without a border may be cut at multiples of this."""


def stable_prefix(text: str, *, final: bool = False) -> int:
    """How many characters of `text` may be committed now and stay right whatever follows.

    The answer is a border between words (or characters of an unspaced script), also inside a line. It is never inside
    an inline mark, link, autolink, entity, marker or fence line that is not closed, nor inside a line that may become a
    table's header; a table's rows come one by one. What opens and stays open for more than `HOLD` characters, or past
    the end of its paragraph, is literal and no longer held. It never falls while the text grows. `final`: all of it.
    """
    if final or not text:
        return len(text)
    blocks = Blocks(text).run()
    end = len(text)
    if tail := text[blocks.at :]:
        after = blocks.with_tail()
        if len(tail) <= HOLD and _is_undecided(tail, blocks, after):
            end = blocks.at
        else:
            blocks = after
    limit, spans = _settled(text, blocks, end)
    border = _last_border(text, limit)
    while covering := [start for start, stop in spans if start < border < stop]:
        border = _last_border(text, min(covering))
    # Marks of containers and headings come with the text after them.
    return blocks.leaf_line if blocks.leaf_line < border <= blocks.leaf_start else border


def _settled(text: str, blocks: Blocks, end: int) -> tuple[int, list[tuple[int, int]]]:
    """Up to where the leaf that `text[:end]` ends in is decided, and what must not be parted before that."""
    is_unfinished = blocks.at > len(text)
    if blocks.leaf is Leaf.PARAGRAPH:
        found = scan_inline(text, blocks.leaf_start, end, Edge.GROWING)
        settled = _settled_inline(text, found)
        # The last line may be a table's header until the line after it shows.
        pipe = _header_pipe(text, blocks, found.code + found.targets)
        return settled if pipe is None or len(text) - pipe > HOLD else min(settled, pipe), found.spans
    if blocks.leaf is Leaf.HEADING and is_unfinished:
        found = scan_inline(text, blocks.leaf_start, end, Edge.GROWING)
        return _settled_inline(text, found), found.spans
    if blocks.leaf is Leaf.TABLE and is_unfinished:
        if len(text) - blocks.last_line <= HOLD:
            return blocks.last_line, []
        cells = [pipe.end() for pipe in _PIPE.finditer(text, blocks.last_content)]
        found = scan_inline(text, cells[-1] if cells else blocks.last_line, end, Edge.GROWING)
        return _settled_inline(text, found), found.spans
    return end, []


def _is_undecided(line: str, blocks: Blocks, after: Blocks) -> bool:
    """Whether more of the unfinished `line` may make it something else; `after` has taken it as it is."""
    if blocks.leaf in (Leaf.FENCE, Leaf.HTML) and after.leaf_line == blocks.leaf_line:
        closing = blocks.fence.char if blocks.leaf is Leaf.FENCE and blocks.fence else ""
        return not line.strip(" \t>" + closing)
    if _UNDECIDED_LINE.fullmatch(line):
        return True
    begins_paragraph = after.leaf is Leaf.PARAGRAPH and blocks.leaf is not Leaf.PARAGRAPH
    return begins_paragraph and _DEFINITION.fullmatch(line) is not None


def _settled_inline(text: str, found: Inline) -> int:
    settled = found.settled()
    url = _UNFINISHED_URL.search(text, max(0, found.end - HOLD), found.end)
    return min(settled, url.start()) if url else settled


def _header_pipe(text: str, blocks: Blocks, hidden: list[tuple[int, int]]) -> int | None:
    """The first pipe of the paragraph's last line that would part cells, as far as models write tables."""
    line_end = text.find("\n", blocks.last_line)
    for pipe in _PIPE.finditer(text, blocks.last_content, len(text) if line_end < 0 else line_end):
        at = pipe.start()
        if at == blocks.last_content:
            return blocks.last_line
        if not any(start < at < end for start, end in hidden):
            return at
    return None


def _last_border(text: str, limit: int) -> int:
    """The last place at or before `limit` where an append may end."""
    reach = max(0, limit - HOLD - _STRIDE)
    border = limit
    while border > reach and not _is_word_border(text, border):
        border -= 1
    found = border if border > reach or not border else -1
    stride = limit - limit % _STRIDE
    while stride > 0 and (found < 0 or stride - found >= HOLD):
        cut = _cut_in_word(text, stride)
        if cut is not None:
            return cut
        stride -= _STRIDE
    return max(found, 0)


def _cut_in_word(text: str, at: int) -> int | None:
    """A fixed place near `at` where a very long word may be cut."""
    cut = last_grapheme_border(text, at, at - 64)
    if cut <= at - 64 or cut >= len(text):
        return None
    mention = _UNFINISHED_MENTION.search(text, max(0, cut - 32), cut)
    return mention.start() if mention else cut


def _is_word_border(text: str, at: int) -> bool:
    if at <= 0:
        return True
    before = text[at - 1]
    if before.isspace():
        return before != "\r"
    if at >= len(text):
        return False
    after = text[at]
    return (_UNSPACED.match(before) or _UNSPACED.match(after)) is not None and is_grapheme_border(text, at)
