"""A growing text as it can be shown now by a surface that replaces what it shows."""

from __future__ import annotations

import html.entities
import re
from functools import cache

from channels.markdown.blocks import HOLD, Blocks, Containers, Leaf, split_row
from channels.markdown.containers import line_prefix
from channels.markdown.inline import Delimiter, Edge, Inline, Kind, scan_inline
from channels.markdown.maths import missing_end

_PASSES = 32
_WINDOW = 8_000
"""How far from the end of a paragraph healing looks again, in each step, for what is open."""
_LONE_MARK = re.compile(
    r"""(?P<quotes>[ \t>]*)
    (?P<items>(?:(?:[-+*]|\d{1,9}[.)])[ \t]+)*)
    (?P<mark>
        | [-+*]
        | \d{1,9}[.)]?
        | \#{1,6}[ \t]*
        | `{1,2} | ~{1,2} | [-_*]{2} | ={1,2}
        | \[[ xX]?\]?[ \t]*
    )""",
    re.VERBOSE,
)
_NUMBER = re.compile(r"(\d+)[.)]?[ \t]*\Z")
_DELIMITER_BEGINNING = re.compile(r"[ \t>]*(?P<row>[|:-][|:\- \t]*)")
_DELIMITER_CELL = re.compile(r":?-*:?")
_PIPE = re.compile(r"(?<!\\)\|")
_UNFINISHED_HTML = re.compile(r"<(?:[A-Za-z/!?][^<>]*)?\Z")
_UNFINISHED_ENTITY = re.compile(r"&(?:#[xX]?[0-9a-fA-F]*|[A-Za-z][A-Za-z0-9]*)\Z")
# Not after a letter or colon: `C:\\` may be all there is.
_LONE_ESCAPE = re.compile(r"(?<![\w:\\])\\\Z")
_LONGEST_ENTITY = 40
# Inside a word only these are taken for the beginning of an entity: "R&D" is none.
_COMMON_ENTITIES = ("amp;", "lt;", "gt;", "quot;", "apos;", "nbsp;", "copy;", "mdash;", "ndash;", "hellip;")


def heal(text: str) -> str:
    """`text`, the beginning of a document, as it can be shown now.

    What is open is closed (fences, emphasis, code), what is half there is completed or held back (a link shows its
    text; a table's header waits for the row after it; lone markers, half entities and half tags are dropped). A
    document that is complete and well formed comes back as it is, and so does a healed one.

    For a text that is still growing or was cut off. A final text needs no healing; a last line such as `Use *args`
    would be taken for unfinished emphasis.
    """
    blocks = Blocks(text).run()
    base, containers = blocks.calm_at, blocks.calm_containers
    tail = text[base:]
    calm: dict[int, int] = {}
    for _ in range(_PASSES):
        healed = _heal_step(tail, containers, calm)
        if healed == tail:
            break
        tail = healed
    return text[:base] + tail


def _heal_step(text: str, containers: Containers, calm: dict[int, int]) -> str:
    """One step of healing; `text` starts between two blocks, inside `containers`. `calm` is kept from step to step."""
    blocks = Blocks(text, containers).run()
    tail = blocks.at
    line = text[tail:]
    after = blocks.with_tail() if line.strip() else blocks
    if after.leaf is Leaf.FENCE:
        return _close_fence(text, blocks, after)
    if blocks.leaf is Leaf.FENCE and after.leaf is Leaf.NONE:
        return text
    if line and _is_lone_mark(line, blocks, after):
        return text[:tail]
    if line and (completed := _completed_delimiter_row(text, blocks, after)) is not None:
        return completed
    if after.leaf is Leaf.HTML and line:
        return _UNFINISHED_HTML.sub("", text)
    if after.leaf is Leaf.PARAGRAPH:
        if _is_held_header(text, after):
            return text[: after.last_line]
        return _heal_inline(text, _calm_start(text, after.leaf_start, calm))
    if after.leaf is Leaf.HEADING and line:
        return _heal_inline(text, _calm_start(text, after.leaf_start, calm))
    if after.leaf is Leaf.TABLE and line and after.last_line > after.header[1]:
        if not line.strip(" \t>|") and line.count("|") < 2:
            return text[:tail]
        cells = [pipe.end() for pipe in _PIPE.finditer(text, after.last_content)]
        return _heal_inline(text, _calm_start(text, cells[-1] if cells else after.last_content, calm))
    return text


def _close_fence(text: str, blocks: Blocks, after: Blocks) -> str:
    fence = after.fence
    assert fence is not None
    if blocks.leaf is not Leaf.FENCE or after.leaf_line != blocks.leaf_line:
        return text[: after.leaf_line]
    is_half_closing = after is not blocks and not text[after.content :].strip(fence.char + " \t")
    body = text[: blocks.at] if after is blocks or is_half_closing else text
    code = body[body.index("\n", after.leaf_line) :]
    if not code.strip(" \t\r\n>"):
        return text[: after.leaf_line]
    line_end = "" if body.endswith("\n") else "\n"
    return f"{body}{line_end}{line_prefix(after.containers)}{' ' * fence.indent}{fence.marks}"


def _is_lone_mark(line: str, blocks: Blocks, after: Blocks) -> bool:
    """Whether the unfinished line holds only the beginning of a mark."""
    found = _LONE_MARK.fullmatch(line)
    if found is None or after.leaf is Leaf.INDENTED:
        return False
    mark = found["mark"]
    if mark.startswith("="):
        return blocks.leaf is Leaf.PARAGRAPH
    if mark.startswith("["):
        return bool(found["items"])
    if number := _NUMBER.search(found["items"] + mark):
        # "42" and "42." may be answers; the next number of a list is a marker.
        value = int(number[1])
        goes_on = any(container.number == value - 1 for container in blocks.containers)
        return goes_on or (value <= 1 and not mark.isdigit())
    return bool(mark or found["items"] or ">" in found["quotes"])


def _completed_delimiter_row(text: str, blocks: Blocks, after: Blocks) -> str | None:
    """`text` with the row under a table's header completed, if its last line is the beginning of one."""
    row = _DELIMITER_BEGINNING.fullmatch(text, blocks.at)
    if blocks.leaf is not Leaf.PARAGRAPH or after.leaf is Leaf.TABLE or row is None:
        return None
    header = text[blocks.last_content : blocks.at].rstrip("\r\n")
    if "|" not in header or not set("|:") & set(row["row"]):
        return None
    columns = len(split_row(header))
    cells = [cell.strip() for cell in row["row"].strip().removeprefix("|").split("|")]
    if not cells[-1]:
        cells.pop()
    if len(cells) > columns or not all(_DELIMITER_CELL.fullmatch(cell) for cell in cells):
        return None
    cells += [""] * (columns - len(cells))
    whole = [cell if "-" in cell else f"{cell[:1]}---" for cell in cells]
    return f"{text[: row.start('row')]}| {' | '.join(whole)} |"


def _is_held_header(text: str, after: Blocks) -> bool:
    """Whether the paragraph's last line looks like a table's header whose next row has not come."""
    line = text[after.last_content :]
    if not line.startswith("|") or len(line) > HOLD:
        return False
    return "\n" not in line or line.rstrip().endswith("|")


def _calm_start(text: str, start: int, calm: dict[int, int]) -> int:
    """Where the inline text from `start` on may be scanned from instead: near the end, and inside no construct.

    Found with one look at all of it, and kept: steps change only what is nearer to the end, and a hostile paragraph
    must not be read whole in each of them.
    """
    if len(text) - start <= _WINDOW:
        return start
    place = calm.get(start, len(text))
    if place > len(text) - 3 * HOLD:
        place = _before_marks(text, start, len(text) - _WINDOW)
        for first, end in sorted(scan_inline(text, start, len(text), Edge.CUT).spans, reverse=True):
            if first < place <= end:
                place = _before_marks(text, start, first)
        calm[start] = place
    return place


def _before_marks(text: str, start: int, at: int) -> int:
    """Before the escapes and runs of marks, if any, that end at `at`."""
    while at > start and text[at - 1] in "\\`*_~":
        at -= 1
    return at


def _heal_inline(text: str, start: int) -> str:
    """One step of healing the inline text from `start` on."""
    last_word = max(start, len(text) - _LONGEST_ENTITY)
    if (entity := _UNFINISHED_ENTITY.search(text, last_word)) and _begins_entity(text, start, entity.start()):
        return text[: entity.start()]
    if escape := _LONE_ESCAPE.search(text, last_word):
        return text[: escape.start()]
    found = scan_inline(text, start, len(text), Edge.CUT)
    code_closing = ""
    if (pending := found.pending) and pending.kind is Kind.MATHS:
        if not text[pending.inner[0] :].strip(" \t\r\n>"):
            return text[: pending.at]
        return _closed(text + missing_end(text, pending.at, len(text)), start, "", found.openers)
    if pending:
        inner = text[slice(*pending.inner)]
        if pending.kind is Kind.TAG or (pending.kind is Kind.CODE and not inner.strip()):
            return text[: pending.at]
        if pending.kind is Kind.LINK:
            return text[: pending.at] + inner
        code_closing = _code_closing(inner, pending.inner[0] - pending.at)
    if found.brackets:
        for bracket in reversed(found.brackets):
            text = text[: bracket.at] + text[bracket.text_at :]
        return text
    if not code_closing:
        body = text.rstrip() if found.openers else text
        marks = _trailing_marks(body, start)
        if marks and not _closes_something(len(body) - len(marks), found):
            return _without_trailing_marks(body, marks, start, found)
    return _closed(text, start, code_closing, found.openers)


def _closed(text: str, start: int, code_closing: str, openers: list[Delimiter]) -> str:
    if not code_closing and not openers:
        return text
    body = text.rstrip()
    space = text[len(body) :]
    if not code_closing and (len(body) - len(body.rstrip("\\"))) % 2:
        body = body[:-1]
    closed = body + code_closing + "".join(opener.char * opener.count for opener in reversed(openers))
    # Odd runs (`****x`) may not be closed by what should close them: then they are literal.
    if scan_inline(closed, start, len(closed), Edge.CUT).openers:
        return text
    return closed + space


def _code_closing(inner: str, length: int) -> str:
    """The marks that close a code span of `length` backticks; some may be there already."""
    body = inner.rstrip()
    there = len(body) - len(body.rstrip("`"))
    if there < length and body == inner:
        return "`" * (length - there)
    return (" " if there else "") + "`" * length


def _trailing_marks(text: str, start: int) -> str:
    """The run of emphasis marks that the text ends in, if it is not escaped."""
    for char in "*_~":
        if text.endswith(char, start):
            body = text[start:].rstrip(char)
            marks = text[start + len(body) :]
            is_escaped = (len(body) - len(body.rstrip("\\"))) % 2
            return marks[is_escaped:]
    return ""


def _closes_something(at: int, found: Inline) -> bool:
    return any(start < at < end for start, end in found.spans if end > at)


def _without_trailing_marks(text: str, marks: str, start: int, found: Inline) -> str:
    """`text` without half a closing run (it is put back whole) or a lone opening one."""
    body = text[: -len(marks)]
    opened = any(opener.char == marks[0] and opener.count > len(marks) for opener in found.openers)
    if opened:
        return body
    before = body[-1:] if len(body) > start else " "
    if len(marks) == 1 and (marks in "~_" or (before.isascii() and before.isalnum())) and not before.isspace():
        return _closed(text, start, "", found.openers)
    return body


def _begins_entity(text: str, start: int, at: int) -> bool:
    name = text[at + 1 :]
    if name.startswith("#"):
        return True
    before = text[at - 1] if at > start else " "
    if before.isascii() and before.isalnum():
        return len(name) > 1 and any(entity.startswith(name) for entity in _COMMON_ENTITIES)
    return name in _entity_beginnings()


@cache
def _entity_beginnings() -> frozenset[str]:
    names = (name for name in html.entities.html5 if name.endswith(";"))
    return frozenset(name[:length] for name in names for length in range(1, len(name)))
