"""The borders at which a long text may be cut, and what each needs on both sides of the cut."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum

from channels.markdown.blocks import Blocks, Fence, Leaf
from channels.markdown.containers import line_prefix, needs_opening, opening_prefix
from channels.markdown.graphemes import is_grapheme_border
from channels.markdown.inline import Edge, Inline, scan_inline


class Rank(IntEnum):
    """Kinds of borders, the better ones first."""

    HEADING = 0
    BLANK = 1
    BLOCK = 2
    ITEM = 3
    CODE_BLANK = 4
    LINE = 5
    NESTED = 6
    SENTENCE = 7
    WORD = 8
    MARKED_WORD = 9
    """Inside emphasis, a link, code."""
    DANGLING = 10
    """After a heading."""


@dataclass(frozen=True, slots=True)
class Border:
    """`text[:end]` + `closing` may be the head, `opening` + `text[start:]` the rest."""

    end: int
    start: int
    rank: Rank
    closing: str = ""
    opening: str = ""


_SENTENCE_END = re.compile(r"[.!?…][\"')\]*_”’]*(?=\s)|[。！？][”’」』）*_]*")
_INK = re.compile(r"\S")
_SPACE = re.compile(r"[^\S\n]+")
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uf900-\ufaff\uff00-\uff9d]")
_SPACE_OR_UNSPACED = re.compile(f"{_SPACE.pattern}|{_UNSPACED.pattern}")
# What reads as a block's mark at the start of a line, or as the beginning of one where the visible text ends.
_MARK = re.compile(
    r"[-+*](?:\s|\Z)|\d{1,9}(?:[.)](?:\s|\Z)|\Z)|#{1,6}(?:\s|\Z)|>|`{1,2}\Z|`{3}|~{1,2}\Z|~{3}|<(?:[A-Za-z/!?]|\Z)"
    r"|([-*_])[ \t]*(?:\1[ \t]*)*(?:\n|\Z)|\[[^\]\n]*\]:"
)
_DELIMITER_BEGINNING = re.compile(r"[|: \t-]*")
_WORDS_BACK = 1024
"""How far from the end, at least, borders inside lines are looked for."""


class Borders:
    """All borders in `text`, the part of a longer text that fits into a message.

    Attributes: `found`; `floor`, where the text proper starts after what opens it (container marks, a fence's line, a
    table's header); and the state at the end, for a cut at any character (`anywhere`).
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.found: list[Border] = []
        self.floor = 0
        self._blocks = Blocks(text)
        self._last_line = 0
        self._marked_fence: Fence | None = None
        self._marks = ("", "")
        self._scan_lines()
        if self.floor >= len(text):
            self.floor = 0
        self.found += self._inside_lines()

    def _scan_lines(self) -> None:
        text, blocks = self.text, self._blocks
        start = 0
        after_blank = after_heading = False
        while start < len(text):
            stop = text.find("\n", start)
            stop = len(text) if stop < 0 else stop
            leaf, leaf_line = blocks.leaf, blocks.leaf_line
            blocks.take(start, stop)
            is_blank = not text[blocks.content : stop].strip()
            if not start:
                self.floor = stop + 1 if blocks.leaf is Leaf.FENCE else blocks.content
            elif blocks.leaf is Leaf.TABLE and leaf is Leaf.PARAGRAPH and blocks.leaf_line == 0:
                self.floor = stop + 1
            elif not is_blank and (border := self._before_line(start, stop, leaf, leaf_line, after_blank)):
                self.found.append(replace(border, rank=Rank.DANGLING) if after_heading else border)
            if not is_blank:
                after_heading = blocks.leaf is Leaf.HEADING
            after_blank = is_blank
            self._last_line = start
            start = stop + 1

    def _before_line(self, start: int, stop: int, leaf: Leaf, leaf_line: int, after_blank: bool) -> Border | None:
        """The border before the line just taken; `leaf` and `leaf_line` are of the line before it."""
        blocks = self._blocks
        goes_on = blocks.leaf_line == leaf_line
        if leaf is Leaf.FENCE and goes_on:
            code = self.text.index("\n", leaf_line)
            if blocks.leaf is not Leaf.FENCE or not _INK.search(self.text, code, start):
                return None
            if stop == len(self.text) and not self.text[blocks.content :].strip("`~"):
                return None
            return self._in_fence(start, Rank.CODE_BLANK if after_blank else Rank.LINE, "")
        if leaf is Leaf.TABLE and goes_on:
            if not _INK.search(self.text, blocks.header[1], start):
                return None
            return Border(self._trimmed(start), start, Rank.LINE, opening=self._table_opening())
        if leaf is Leaf.PARAGRAPH and (goes_on or blocks.leaf is Leaf.TABLE):
            return self._inside_paragraph(start, stop)
        rank = self._rank_of_block(after_blank)
        if leaf is blocks.leaf and (leaf is Leaf.INDENTED or (leaf is Leaf.HTML and goes_on)):
            rank = Rank.CODE_BLANK if after_blank else Rank.LINE
        kept = blocks.containers[: blocks.kept]
        end = self._trimmed(start)
        is_text = blocks.leaf is Leaf.PARAGRAPH and len(blocks.containers) == blocks.kept
        if needs_opening(kept, is_text=is_text):
            return Border(end, blocks.kept_at, rank, opening=opening_prefix(kept, is_text=is_text))
        return Border(end, start, rank)

    def _rank_of_block(self, after_blank: bool) -> Rank:
        blocks = self._blocks
        if blocks.kept:
            return Rank.NESTED
        if blocks.leaf is Leaf.HEADING:
            return Rank.HEADING
        if blocks.containers and blocks.containers[0].width:
            return Rank.ITEM
        return Rank.BLANK if after_blank else Rank.BLOCK

    def _inside_paragraph(self, start: int, stop: int) -> Border | None:
        """The border before a line that goes on with a paragraph, or makes a heading or table of it."""
        blocks, text = self._blocks, self.text
        if blocks.leaf is not Leaf.PARAGRAPH or _MARK.match(text, blocks.content):
            return None
        before = text[text.rfind("\n", 0, start - 1) + 1 : start]
        if stop == len(text) and "|" in before and _DELIMITER_BEGINNING.fullmatch(text, blocks.content):
            return None
        return Border(self._trimmed(start), blocks.content, Rank.LINE, opening=self._paragraph_opening())

    def _trimmed(self, end: int) -> int:
        while end and self.text[end - 1].isspace():
            end -= 1
        return end

    def _paragraph_opening(self) -> str:
        containers = self._blocks.containers
        return opening_prefix(containers, is_text=True) if needs_opening(containers, is_text=True) else ""

    def _table_opening(self) -> str:
        blocks = self._blocks
        header = self.text[slice(*blocks.header)]
        return f"{opening_prefix(blocks.containers)}{header}\n"

    def _in_fence(self, at: int, rank: Rank, line_end: str) -> Border:
        closing, opening = self._fence_marks()
        inside = line_prefix(self._blocks.containers) if line_end else ""  # the rest of a torn line has none of its own
        return Border(at, at, rank, line_end + closing, opening + inside)

    def _fence_marks(self) -> tuple[str, str]:
        """What closes the code block at the end of a head, and opens it again."""
        blocks = self._blocks
        fence = blocks.fence
        assert fence is not None
        if fence is not self._marked_fence:
            marks = " " * fence.indent + fence.marks
            prefix = opening_prefix(blocks.containers, indent=fence.indent)
            self._marked_fence = fence
            self._marks = (line_prefix(blocks.containers) + marks, f"{prefix}{marks}{fence.info}\n")
        return self._marks

    def anywhere(self, at: int) -> Border | None:
        """A border at `at`, which is inside the last line's own text; None if it is not."""
        blocks = self._blocks
        if at <= self._inside_start():
            return None
        if blocks.leaf is Leaf.FENCE:
            return self._in_fence(at, Rank.MARKED_WORD, "\n")
        return Border(at, at, Rank.MARKED_WORD, opening=self._inside_opening())

    def at_end(self) -> Border:
        """The border at the end of the text, whatever it tears."""
        end = len(self.text)
        if self._blocks.leaf is Leaf.FENCE:
            return self._in_fence(end, Rank.MARKED_WORD, "" if self.text.endswith("\n") else "\n")
        return self.anywhere(end) or Border(end, end, Rank.MARKED_WORD)

    def _inside_opening(self) -> str:
        if self._blocks.leaf is Leaf.TABLE:
            return self._table_opening() + line_prefix(self._blocks.containers)
        return self._paragraph_opening()

    def _inside_start(self) -> int:
        """Where the text starts in which borders inside lines make sense; the end if nowhere."""
        blocks = self._blocks
        if blocks.leaf is Leaf.PARAGRAPH:
            return blocks.leaf_start
        if blocks.leaf is Leaf.NONE or (blocks.leaf is Leaf.FENCE and blocks.leaf_line == self._last_line):
            return len(self.text)
        if blocks.leaf is Leaf.TABLE and blocks.last_line < blocks.header[1]:
            return len(self.text)
        return blocks.content

    def _inside_lines(self) -> Iterator[Border]:
        """Borders between sentences and words near the end."""
        text, blocks = self.text, self._blocks
        end = len(text)
        start = self._inside_start()
        back = max(start, min(end - _WORDS_BACK, end // 2))
        if blocks.leaf is Leaf.FENCE:
            for space in _SPACE.finditer(text, back):
                at = space.end()
                if start < at < end and text[at] not in "`~":
                    yield self._in_fence(at, Rank.WORD, "\n")
            return
        marked = _Marked(scan_inline(text, start, end, Edge.GROWING))
        opening = self._inside_opening()
        for at, resume, rank in _word_borders(text, back):
            if at <= start or resume >= end or _MARK.match(text, resume):
                continue
            yield Border(at, resume, Rank.MARKED_WORD if marked.covers(resume) else rank, opening=opening)


class _Marked:
    """The parts of a text that are inside inline constructs, or may become so."""

    def __init__(self, inline: Inline) -> None:
        self._settled = inline.settled()
        self._spans: list[tuple[int, int]] = []
        for start, end in sorted(inline.spans):
            if not self._spans or start >= self._spans[-1][1]:
                self._spans.append((start, end))
        self._next = 0

    def covers(self, at: int) -> bool:
        """Whether `at` is inside. To be asked with rising `at`."""
        while self._next < len(self._spans) and self._spans[self._next][1] <= at:
            self._next += 1
        if at > self._settled:
            return True
        return self._next < len(self._spans) and self._spans[self._next][0] < at


def _word_borders(text: str, start: int) -> Iterator[tuple[int, int, Rank]]:
    """Borders in rising order: where the head ends, where the rest starts, sentence or word."""
    sentence_ends = {found.end() for found in _SENTENCE_END.finditer(text, start)}
    for found in _SPACE_OR_UNSPACED.finditer(text, start):
        if found[0].isspace():
            at = found.start()
            rank = Rank.SENTENCE if at in sentence_ends else Rank.WORD
            if text[found.end() : found.end() + 1] != "\n":
                yield at, found.end(), rank
            continue
        at = found.end()
        if is_grapheme_border(text, at) and text[at : at + 1].strip():
            yield at, at, Rank.SENTENCE if at in sentence_ends else Rank.WORD
