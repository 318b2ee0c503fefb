"""Tables found in Markdown, and shown as aligned monospace text where a platform has none."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from channels.markdown.blocks import Blocks, Containers, Leaf, split_row
from channels.markdown.containers import line_prefix
from channels.markdown.measure import display_width
from channels.markdown.plain import noted_inline

Row = tuple[str, ...]

_BACKTICKS = re.compile("`{3,}")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{1,31}:[^\s<>]*")


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a text: where it stands, and its cells as Markdown, the header row first."""

    start_line: int
    """Of the header, counted from 0."""
    end_line: int
    """After the last row."""
    start: int
    """Where the header's text starts, after container marks."""
    end: int
    """Where the last row ends, without its line end."""
    rows: tuple[Row, ...]
    """All as long as the header."""
    containers: Containers
    """The block quotes and list items that it is inside of."""
    is_open: bool
    """Whether the text ends in it, so that rows may follow."""


@dataclass(slots=True)
class _Growing:
    start_line: int
    start: int
    containers: Containers
    rows: list[Row]
    end_line: int = 0
    end: int = 0

    def table(self, *, is_open: bool) -> Table:
        return Table(
            self.start_line, self.end_line, self.start, self.end, tuple(self.rows), self.containers, is_open=is_open
        )


def find_tables(text: str) -> list[Table]:
    """The tables of `text`, in order. A table is one as soon as its delimiter row is there."""
    if "|" not in text:
        return []
    tables: list[Table] = []
    growing: _Growing | None = None
    blocks = Blocks(text)
    start = line = 0
    while start < len(text):
        stop = text.find("\n", start)
        stop = len(text) if stop < 0 else stop
        leaf_line = blocks.leaf_line
        blocks.take(start, stop)
        is_table = blocks.leaf is Leaf.TABLE
        if growing and not (is_table and blocks.leaf_line == leaf_line):
            tables.append(growing.table(is_open=False))
            growing = None
        if is_table:
            if growing:
                growing.rows.append(_fitted(split_row(text[blocks.content : stop]), blocks.columns))
            else:
                header = text[blocks.leaf_start : text.index("\n", blocks.leaf_start)]
                growing = _Growing(line - 1, blocks.leaf_start, blocks.containers, [tuple(split_row(header))])
            growing.end_line, growing.end = line + 1, stop
        start = stop + 1
        line += 1
    if growing:
        tables.append(growing.table(is_open=True))
    return tables


def _fitted(cells: list[str], columns: int) -> Row:
    """The cells as a row of so many columns. What a pipe in a text has made one cell too many stays in the last."""
    if len(cells) > columns:
        cells = [*cells[: columns - 1], " | ".join(cells[columns - 1 :])]
    return tuple(cells + [""] * (columns - len(cells)))


def table_as_code(rows: Sequence[Row], width: Callable[[str], int] = display_width) -> tuple[str, Sequence[str]]:
    """A table as lines for a code block, and the addresses of its links: cells without marks, padded so that columns
    align by `width` (columns of a monospace font), the header underlined, behind a link the number of its address."""
    numbers: dict[str, int] = {}

    def note(address: str) -> str:
        return f"({numbers.setdefault(address, len(numbers) + 1)})" if address else ""

    texts = [[noted_inline(cell, note) for cell in row] for row in rows]
    widths = [max(1, *(width(row[column]) for row in texts)) for column in range(len(texts[0]))]
    lines = [
        " | ".join(cell + " " * (column - width(cell)) for cell, column in zip(row, widths, strict=True)).rstrip()
        for row in texts
    ]
    lines.insert(1, "-|-".join("-" * column for column in widths))
    return "\n".join(lines), tuple(numbers)


def fence_tables(text: str, keep: int, *, width: Callable[[str], int] = display_width, aligned: bool = True) -> str:
    """`text` with all tables after the first `keep` as code blocks, the addresses of their links listed below.

    Which tables these are does not change while the text grows. `aligned` rows are padded anew when a wider cell
    comes. Without it the rows stay as written and an unfinished table's block is left open: for a text that grows by
    stable prefixes, with header lines that start with a pipe, the result then only grows at its end.
    """
    parts: list[str] = []
    at = 0
    for table in find_tables(text)[keep:]:
        source = text[table.start : table.end]
        prefix = line_prefix(table.containers)
        marks = "`" * max(3, *(len(run) + 1 for run in ["", *_BACKTICKS.findall(source)]))
        parts += [text[at : table.start], marks, "\n"]
        if aligned:
            code, addresses = table_as_code(table.rows, width)
            parts += [prefix + line + "\n" for line in code.split("\n")]
            parts += [prefix, marks]
            for number, address in enumerate(addresses, 1):
                shown = f"<{address}>" if _ADDRESS.fullmatch(address) else f"`{address}`"
                parts += ["\n", prefix, f"({number}) {shown}"]
            if addresses and table.end < len(text):
                parts += ["\n", prefix.rstrip()]  # what follows is no part of the list
        else:
            parts += [prefix, source]
            if not table.is_open:
                parts += ["\n", prefix, marks]
        at = table.end
    return "".join(parts) + text[at:]
