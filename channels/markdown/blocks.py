"""The block structure of Markdown, found line by line.

A streamed answer is looked at many times while it grows, so the hot functions read lines with this scanner and leave
full parses to the renderers. It follows CommonMark with GFM tables (containers, lazy lines, tabs, what may interrupt
what); inline text is not its business.
"""

from __future__ import annotations

import re
from copy import copy
from dataclasses import dataclass
from enum import Enum

HOLD = 300
"""Characters after which an opener that nothing has closed counts as literal text."""


class Leaf(Enum):
    """The kind of block that the last line belongs to."""

    NONE = "none"
    PARAGRAPH = "paragraph"
    HEADING = "heading"
    TABLE = "table"
    FENCE = "fence"
    INDENTED = "indented code"
    HTML = "html"


@dataclass(frozen=True, slots=True)
class Container:
    """A block quote (width 0) or a list item, whose content starts `width` columns after its parent's content."""

    width: int
    number: int | None = None
    """The number of an item in an ordered list."""


Containers = tuple[Container, ...]
QUOTE = Container(0)


@dataclass(frozen=True, slots=True)
class Fence:
    """The opening of a fenced code block; `indent` columns stand before it in its container."""

    char: str
    length: int
    indent: int
    info: str

    @property
    def marks(self) -> str:
        return self.char * self.length


_HTML_NAMES = (
    "address article aside base basefont blockquote body caption center col colgroup dd details dialog dir div dl dt "
    "fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hr html iframe legend li link "
    "main menu menuitem nav noframes ol optgroup option p param search section summary table tbody td tfoot th thead "
    "title tr track ul"
).replace(" ", "|")
_BLANK_LINE = re.compile(r"(?!)")
# How an HTML block starts and what its last line holds (a pattern that never matches: it ends at a blank line).
_HTML_STARTS = (
    (
        re.compile(r"<(?:script|pre|style|textarea)(?=\s|>|$)", re.I),
        re.compile(r"</(?:script|pre|style|textarea)>", re.I),
    ),
    (re.compile(r"<!--"), re.compile(r"-->")),
    (re.compile(r"<\?"), re.compile(r"\?>")),
    (re.compile(r"<![A-Za-z]"), re.compile(r">")),
    (re.compile(r"<!\[CDATA\["), re.compile(r"\]\]>")),
    (re.compile(rf"</?(?:{_HTML_NAMES})(?=\s|/?>|$)", re.I), _BLANK_LINE),
)
_ATTRIBUTE = r"""\s+[A-Za-z_:][\w:.-]*(?:\s*=\s*(?:"[^"]*"|'[^']*'|[^\s"'=<>`]+))?"""
_HTML_TAG_LINE = re.compile(rf"(?:<[A-Za-z][A-Za-z0-9-]*(?:{_ATTRIBUTE})*\s*/?>|</[A-Za-z][A-Za-z0-9-]*\s*>)\s*")

_FENCE = re.compile(r"(`{3,})([^`]*)|(~{3,})(.*)")
_HEADING = re.compile(r"#{1,6}(?:[ \t]+|$)")
_SETEXT = re.compile(r"(?:=+|-+)[ \t]*")
_RULE = re.compile(r"([-_*])[ \t]*+(?:\1[ \t]*+){2,}+")
_ITEM = re.compile(r"(?:[-+*]|(\d{1,9})[.)])(?=[ \t]|$)")
_DELIMITER = re.compile(r"\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*")
_UNESCAPED_PIPE = re.compile(r"(?<!\\)\|")
_CAN_START = frozenset(" \t\r\n>-+*#`~<_=|:0123456789")


def split_row(line: str) -> list[str]:
    """The cells of a table row, trimmed, as Markdown."""
    cells = _UNESCAPED_PIPE.split(line.strip())
    if cells and not cells[0]:
        del cells[0]
    if cells and not cells[-1]:
        del cells[-1]
    return [cell.strip().replace("\\|", "|") for cell in cells]


def is_delimiter_row(line: str, columns: int) -> bool:
    """Whether `line` turns a header line of `columns` cells before it into a table."""
    line = line.strip()
    if len(line) < 2 or (line[0] == "-" and line[1] in " \t") or not _DELIMITER.fullmatch(line):
        return False
    return len(split_row(line)) == columns


class Blocks:
    """A scanner over one text. Attributes tell the state after the last line taken."""

    __slots__ = (
        "_empty_item",
        "_html_end",
        "_last_is_deep",
        "_marks_start",
        "at",
        "calm_at",
        "calm_containers",
        "columns",
        "containers",
        "content",
        "fence",
        "header",
        "kept",
        "kept_at",
        "last_content",
        "last_line",
        "leaf",
        "leaf_line",
        "leaf_start",
        "text",
    )

    def __init__(self, text: str, containers: Containers = ()) -> None:
        self.text = text
        self.at = 0
        """Where the next line starts."""
        self.containers = containers
        """What the last line is inside of."""
        self.kept = 0
        """How many of the containers before the last line go on in it."""
        self.kept_at = 0
        """Where the last line's content starts after the marks of the containers that go on."""
        self.content = 0
        """Where the last line's own text starts, after all container marks."""
        self.leaf = Leaf.NONE
        self.leaf_line = 0
        """Where the first line of the leaf starts."""
        self.leaf_start = 0
        """Where the text of the leaf starts."""
        self.last_line = 0
        """Where the last line of an open paragraph or table starts."""
        self.last_content = 0
        """Where the text of that line starts."""
        self.fence: Fence | None = None
        self.columns = 0
        """Of the table."""
        self.header = (0, 0)
        """The table's header and delimiter lines: from the header's text to the end of the delimiter row."""
        self.calm_at = 0
        """A place, after the last blank line outside code, where no leaf is open: a scan may be started again there
        with `calm_containers`."""
        self.calm_containers = containers
        self._html_end = _BLANK_LINE
        self._empty_item = False
        self._last_is_deep = False
        self._marks_start: int | None = None
        """Where the part of the line begins that could be a rule, once somebody has looked."""

    def run(self) -> Blocks:
        """Take all complete lines (those with a line end)."""
        text = self.text
        find = text.find
        while (stop := find("\n", self.at)) >= 0:
            start = self.at
            if not self.containers:
                if self.leaf is Leaf.FENCE:
                    start, stop = self._seek_closing(start, stop)
                elif text[start] not in _CAN_START:
                    self._take_plain(start)
                    self.at = stop + 1
                    continue
            self.take(start, stop)
        return self

    def with_tail(self) -> Blocks:
        """A copy that has also taken the unfinished last line, as if it were complete."""
        blocks = copy(self)
        if blocks.at < len(blocks.text):
            blocks.take(blocks.at, len(blocks.text))
        return blocks

    def take(self, start: int, stop: int) -> None:
        """Take the line `text[start:stop]` (without its line end)."""
        text = self.text
        self.at = stop + 1
        if stop > start and text[stop - 1] == "\r":
            stop -= 1
        at, column, base, kept = self._match_containers(start, stop)
        containers = self.containers
        whole = kept == len(containers)
        self._empty_item = False
        self._marks_start = None
        self.kept = kept
        self.content = at
        self.kept_at = max(start, at - max(0, column - base))
        if self.leaf is Leaf.FENCE and whole:
            if at < stop and column - base < 4 and self._closes_fence(at, stop):
                self.leaf = Leaf.NONE
            return
        if self.leaf is Leaf.HTML and whole and self._html_goes_on(at, stop):
            return
        if at == stop:
            self._take_blank(kept)
            return
        if self.leaf is not Leaf.PARAGRAPH and not (self.leaf is Leaf.TABLE and whole):
            self.leaf = Leaf.NONE
        self._take_text(start, stop, at, column, base, whole)

    def _take_plain(self, start: int) -> None:
        """Take a line that starts with an ordinary character, outside all containers."""
        leaf = self.leaf
        self.kept = 0
        self.kept_at = self.content = start
        if leaf is Leaf.HTML:
            if self._html_end is not _BLANK_LINE and self._html_end.search(self.text, start, self._line_end(start)):
                self.leaf = Leaf.NONE
            return
        if leaf is not Leaf.PARAGRAPH and leaf is not Leaf.TABLE:
            self.leaf = Leaf.PARAGRAPH
            self.leaf_line = self.leaf_start = start
        self.last_line = self.last_content = start
        self._last_is_deep = False

    def _line_end(self, start: int) -> int:
        end = self.text.find("\n", start)
        return len(self.text) if end < 0 else end

    def _seek_closing(self, start: int, stop: int) -> tuple[int, int]:
        """The next line that may close the fence, or else the last complete line."""
        assert self.fence is not None
        text = self.text
        found = text.find(self.fence.marks, start)
        last = text.rfind("\n")
        if found < 0 or found > last:
            return max(start, text.rfind("\n", start, last) + 1), last
        begin = max(start, text.rfind("\n", start, found) + 1)
        return begin, text.find("\n", found)

    def _match_containers(self, start: int, stop: int) -> tuple[int, int, int, int]:
        """Skip the marks of the containers that go on: (index, its column, content column, how many go on)."""
        text = self.text
        at, column = _skip_blanks(text, start, stop, 0)
        base = kept = 0
        for container in self.containers:
            if container.width:
                if at == stop:
                    if self._empty_item and kept == len(self.containers) - 1:
                        break
                elif column - base >= container.width:
                    base += container.width
                else:
                    break
            elif at < stop and text[at] == ">" and column - base <= 3:
                at, column, base = _skip_quote_mark(text, at, stop, column)
            else:
                break
            kept += 1
        return at, column, base, kept

    def _closes_fence(self, at: int, stop: int) -> bool:
        assert self.fence is not None
        line = self.text[at:stop]
        rest = line.lstrip(self.fence.char)
        return len(line) - len(rest) >= self.fence.length and not rest.strip(" \t")

    def _html_goes_on(self, at: int, stop: int) -> bool:
        if self._html_end is _BLANK_LINE:
            return at < stop
        if self._html_end.search(self.text, at, stop):
            self.leaf = Leaf.NONE
        return True

    def _take_blank(self, kept: int) -> None:
        self.containers = self.calm_containers = self.containers[:kept]
        self.leaf = Leaf.NONE
        self.calm_at = self.at

    def _take_text(self, start: int, stop: int, at: int, column: int, base: int, whole: bool) -> None:
        """Find what a line that is not blank starts or continues, once its containers are known."""
        text = self.text
        goes_on = self.leaf is not Leaf.NONE
        opened = list(self.containers[: self.kept])
        while True:
            if column - base >= 4:
                if not (goes_on and self.leaf is Leaf.PARAGRAPH):
                    self._begin(Leaf.INDENTED, start, at, tuple(opened))
                break
            char = text[at]
            if char not in _CAN_START:
                break
            if goes_on and whole and self._ends_paragraph(start, at, stop):
                return
            if char == ">":
                at, column, base = _skip_quote_mark(text, at, stop, column)
                opened.append(QUOTE)
            elif item := self._item(at, stop, column, base, goes_on and whole and self.leaf is Leaf.PARAGRAPH):
                container, at, column, base = item
                opened.append(container)
                self._empty_item = at == stop
            elif self._take_leaf(start, stop, at, column - base, goes_on, tuple(opened)):
                return
            else:
                break
            goes_on = False
            self.content = at
            if at == stop:
                self._begin(Leaf.NONE, start, at, tuple(opened))
                return
        if self.leaf is Leaf.INDENTED:
            return
        if not goes_on:
            self._begin(Leaf.PARAGRAPH, start, at, tuple(opened))
        self.last_line = start
        self.last_content = at
        self._last_is_deep = column - base >= 4

    def _begin(self, leaf: Leaf, start: int, at: int, containers: Containers) -> None:
        self.leaf = leaf
        self.leaf_line = start
        self.leaf_start = self.content = at
        self.containers = containers

    def _ends_paragraph(self, start: int, at: int, stop: int) -> bool:
        """Whether the line makes a table or a heading of the paragraph before it."""
        if self.leaf is not Leaf.PARAGRAPH or self.text[at] not in "|:-=":
            return False
        line = self.text[at:stop]
        header = self.text[self.last_content : self._line_end(self.last_content)]
        if "|" in header and not self._last_is_deep and is_delimiter_row(line, columns := len(split_row(header))):
            self.leaf = Leaf.TABLE
            self.columns = columns
            self.header = (self.last_content, stop)
            self.leaf_line, self.leaf_start = self.last_line, self.last_content
            self.last_line, self.last_content = start, at
            return True
        if _SETEXT.fullmatch(line):
            self.leaf = Leaf.NONE
            return True
        return False

    def _item(
        self, at: int, stop: int, column: int, base: int, in_paragraph: bool
    ) -> tuple[Container, int, int, int] | None:
        """The list item that starts at `at`: (container, index of its content, its column, content column)."""
        text = self.text
        mark = _ITEM.match(text, at, stop)
        if mark is None or self._is_rule(at, stop):
            return None
        number = int(mark[1]) if mark[1] else None
        end = mark.end()
        after = column + end - at
        content, content_column = _skip_blanks(text, end, stop, after)
        if in_paragraph and (content == stop or number not in (None, 1)):
            return None
        gap = content_column - after
        width = after - base + (gap if content < stop and gap < 5 else 1)
        return Container(width, number), content, content_column, base + width

    def _is_rule(self, at: int, stop: int) -> bool:
        """Whether the rest of the line is a rule. A line may hold thousands of item marks: it is looked at once."""
        if self._marks_start is None:
            self._marks_start = at + len(self.text[at:stop].rstrip("-*_ \t"))
        return at >= self._marks_start and _RULE.fullmatch(self.text, at, stop) is not None

    def _take_leaf(self, start: int, stop: int, at: int, indent: int, goes_on: bool, containers: Containers) -> bool:
        """Take the line if it starts a leaf other than a paragraph."""
        text = self.text
        char = text[at]
        if char in "`~":
            if mark := _FENCE.fullmatch(text, at, stop):
                marks, info = mark[1] or mark[3], mark[2] if mark[1] else mark[4]
                self.fence = Fence(char, len(marks), indent, info.strip())
                self._begin(Leaf.FENCE, start, at, containers)
                return True
        elif char == "#":
            if mark := _HEADING.match(text, at, stop):
                self._begin(Leaf.HEADING, start, mark.end(), containers)
                return True
        elif char in "-_*":
            if _RULE.fullmatch(text, at, stop):
                self._begin(Leaf.NONE, start, at, containers)
                return True
        elif char == "<":
            return self._take_html(start, stop, at, goes_on, containers)
        return False

    def _take_html(self, start: int, stop: int, at: int, goes_on: bool, containers: Containers) -> bool:
        text = self.text
        for opening, ending in _HTML_STARTS:
            if mark := opening.match(text, at, stop):
                self._begin(Leaf.HTML, start, at, containers)
                self._html_end = ending
                if ending is not _BLANK_LINE and ending.search(text, mark.end(), stop):
                    self.leaf = Leaf.NONE
                return True
        # A lone tag of another name also starts HTML; beyond HOLD the line has been shown as text already.
        if not goes_on and stop - at <= HOLD and _HTML_TAG_LINE.fullmatch(text, at, stop):
            self._begin(Leaf.HTML, start, at, containers)
            self._html_end = _BLANK_LINE
            return True
        return False


def _skip_blanks(text: str, at: int, stop: int, column: int) -> tuple[int, int]:
    while at < stop:
        char = text[at]
        if char == " ":
            column += 1
        elif char == "\t":
            column += 4 - column % 4
        else:
            break
        at += 1
    return at, column


def _skip_quote_mark(text: str, at: int, stop: int, column: int) -> tuple[int, int, int]:
    """Skip `>` at `at` and the blanks after it: (index, its column, column where the quote's content starts)."""
    base = column + 1
    has_space = at + 1 < stop and text[at + 1] in " \t"
    at, column = _skip_blanks(text, at + 1, stop, base)
    return at, column, base + 1 if has_space else base
