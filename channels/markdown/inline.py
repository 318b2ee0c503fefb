"""The inline constructs of one paragraph, as far as they are decided.

One pass from left to right. Every decision depends only on the text up to a bounded distance after it, so that a
decision made on a growing text is never unmade:

- what opens and is not closed within `HOLD` characters is literal text;
- a run of marks that touches the end of a growing text is undecided, because the run may grow.

Emphasis follows CommonMark's delimiter rules, with two departures that suit text from models. `*` between two ASCII
letters or digits opens nothing (`2**3`). And a run that follows neither white space nor an opening bracket closes what
is open (`**重点：**内容`): renderers may or may not see strong text there, but nothing waits for the end of it.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from enum import Enum

from channels.markdown.blocks import HOLD
from channels.markdown.maths import maths_at, missing_end


class Edge(Enum):
    """What the end of the scanned text means."""

    GROWING = "more may follow, and must not change what was decided"
    CUT = "more will follow, but the text is to be shown as it is"
    CLOSED = "the paragraph ends here"


class Kind(Enum):
    """What an undecided construct would be."""

    CODE = "code span"
    LINK = "link"
    TAG = "autolink or tag"
    MARKS = "run of emphasis marks"
    MATHS = "maths"


@dataclass(slots=True)
class Delimiter:
    """An open run of emphasis marks."""

    at: int
    char: str
    count: int
    length: int
    both: bool


@dataclass(slots=True)
class Bracket:
    """An open `[` or `![`, which is not a link's any more when `active` is False."""

    at: int
    text_at: int
    is_image: bool
    active: bool = True


@dataclass(frozen=True, slots=True)
class Pending:
    """The construct at which the scan had to stop: everything after `at` may still become part of it.

    `inner` is the text shown if it is what it seems: a code span's content, a link's text.
    """

    kind: Kind
    at: int
    inner: tuple[int, int]


@dataclass(slots=True)
class Inline:
    """What a scan found."""

    end: int
    spans: list[tuple[int, int]] = field(default_factory=list)
    """Closed constructs: code, links, tags, emphasis, maths."""
    code: list[tuple[int, int]] = field(default_factory=list)
    targets: list[tuple[int, int]] = field(default_factory=list)
    """Link destinations and autolinks."""
    openers: list[Delimiter] = field(default_factory=list)
    brackets: list[Bracket] = field(default_factory=list)
    pending: Pending | None = None

    def settled(self) -> int:
        """Up to where nothing is open or undecided."""
        settled = self.end if self.pending is None else self.pending.at
        first_open = [found[0].at for found in (self.openers, self.brackets) if found]
        return min([settled, *first_open])


_SPECIAL = re.compile(r"[\\`*_~\[\]<$]")
_RUN = {char: re.compile(re.escape(char) + "+") for char in "`*_~"}
_NAME = "[A-Za-z][A-Za-z0-9-]*"
_VALUED = r"""\s+[A-Za-z_:][\w:.-]*\s*=\s*(?:"[^"]*"|'[^']*'|[^\s"'=<>`]+)"""
_LOCAL = r"[A-Za-z][\w.!#$%&'*+/=?^`{|}~-]*"
# What stands in angle brackets. Each whole form has all its beginnings among the unfinished forms, so that a text
# found to be none of them stays none of them. (Attributes without a value are therefore known only as the last one.)
_TAG = re.compile(
    rf"(?P<link><(?:[A-Za-z][A-Za-z0-9+.-]{{1,31}}:[^\s<>]*|{_LOCAL}@[A-Za-z0-9.-]+)>)"
    rf"|</{_NAME}\s*>|<{_NAME}(?:{_VALUED})*(?:\s+[A-Za-z_:][\w:.-]*)?\s*/?>|<[!?@\#][^<>]*>"
)
_UNFINISHED_TAG = re.compile(
    rf"<(?:|[A-Za-z][A-Za-z0-9+.-]{{1,31}}:[^\s<>]*|{_LOCAL}(?:@[A-Za-z0-9.-]*)?|/(?:{_NAME}\s*)?"
    rf"|{_NAME}(?:{_VALUED})*(?:\s+(?:[A-Za-z_:][\w:.-]*\s*(?:=\s*(?:\"[^\"]*|'[^']*|[^\s\"'=<>`]*))?)?)?/?"
    rf"|[!?@\#][^<>]*)"
)
_LABEL = re.compile(r"\[[^\[\]]*\]")
_UNFINISHED_LABEL = re.compile(r"\[[^\[\]]*")
_TARGET_STOP = re.compile(r"[\\()\s]")
_ANGLED_TARGET = re.compile(r"<[^<>\n]*>")
_DEEPEST_TARGET = 32
"""Brackets in brackets in a link's target; CommonMark lets parsers stop here, and the bridge's does."""
_TITLE = {'"': '"', "'": "'", "(": ")"}


def scan_inline(text: str, start: int, end: int, edge: Edge) -> Inline:
    """The constructs in `text[start:end]`, which is (the beginning of) one paragraph, heading or table cell.

    With `Edge.GROWING` and `Edge.CUT`, `openers` and `brackets` are those that may still be closed.
    """
    return _Scan(text, start, end, edge).run()


class _Scan:
    def __init__(self, text: str, start: int, end: int, edge: Edge) -> None:
        self.text = text
        self.start = start
        self.end = end
        self.edge = edge
        self.found = Inline(end)

    def run(self) -> Inline:
        text, end, found = self.text, self.end, self.found
        at = self.start
        while found.pending is None and (mark := _SPECIAL.search(text, at, end)):
            here = mark.start()
            char = mark[0]
            if char in "\\$":
                at = self._maths(here) or here + (2 if char == "\\" else 1)
            elif char == "`":
                at = self._code(here)
            elif char == "[":
                at = self._open_bracket(here, at)
            elif char == "]":
                at = self._close_bracket(here)
            elif char == "<":
                at = self._tag(here)
            else:
                at = self._marks(here, char)
        self._expire(end)
        if self.edge is Edge.CLOSED:
            found.openers.clear()
            found.brackets.clear()
        return found

    def _is_undecided(self, at: int) -> bool:
        """Whether what opened at `at` may still be closed by text that has not come yet."""
        return self.edge is not Edge.CLOSED and self.end <= at + HOLD

    def _expire(self, at: int) -> None:
        """Forget what opened too long before `at`."""
        _drop_before(self.found.openers, at - HOLD)
        _drop_before(self.found.brackets, at - HOLD)

    def _code(self, at: int) -> int:
        text, end = self.text, self.end
        ticks = _RUN["`"]
        stop = ticks.match(text, at, end).end()  # type: ignore[union-attr]
        limit = min(end, at + HOLD)
        for run in ticks.finditer(text, stop, limit):
            if run.end() - run.start() != stop - at:
                continue
            is_complete = text[run.end()] != "`" if run.end() < end else self.edge is not Edge.GROWING
            if is_complete:
                self.found.spans.append((at, run.end()))
                self.found.code.append((at, run.end()))
                return run.end()
        if self._is_undecided(at):
            self.found.pending = Pending(Kind.CODE, at, (stop, end))
        return stop

    def _tag(self, at: int) -> int:
        text, end = self.text, self.end
        if tag := _TAG.match(text, at, min(end, at + HOLD)):
            self.found.spans.append(tag.span())
            if tag["link"]:
                self.found.targets.append(tag.span())
            return tag.end()
        if self._is_undecided(at) and _UNFINISHED_TAG.fullmatch(text, at, end):
            self.found.pending = Pending(Kind.TAG, at, (at, at))
        return at + 1

    def _maths(self, at: int) -> int | None:
        """The end of the maths that opens at `at`. Only a surface that replaces what it shows may look for it: maths
        is known by its end, and until then what is in it counts as text."""
        if self.edge is not Edge.CUT:
            return None
        if maths := maths_at(self.text, at, self.end):
            self.found.spans.append((at, maths.end))
            return maths.end
        if missing_end(self.text, at, self.end):
            self.found.pending = Pending(Kind.MATHS, at, (at + 2, self.end))
        return None

    def _open_bracket(self, at: int, since: int) -> int:
        is_image = at > since and self.text[at - 1] == "!"
        self._expire(at)
        self.found.brackets.append(Bracket(at - 1 if is_image else at, at + 1, is_image))
        return at + 1

    def _close_bracket(self, at: int) -> int:
        text, end, found = self.text, self.end, self.found
        self._expire(at + 1)
        after = at + 1
        if not found.brackets:
            return after
        bracket = found.brackets.pop()
        if not bracket.active:
            return after
        pending = Pending(Kind.LINK, bracket.at, (bracket.text_at, at))
        if after == end:
            # Brackets at the end of what is shown may be all there is: `[1]`.
            if self.edge is Edge.GROWING or (self.edge is Edge.CUT and bracket.is_image):
                found.pending = pending
            return after
        if text[after] == "(":
            stop = _target_end(text, after, end)
        elif text[after] == "[":
            stop = _label_end(text, after, end)
        else:
            return after
        if stop is None:
            return after
        if stop > end:
            if self.edge is not Edge.CLOSED:
                found.pending = pending
            return after
        found.spans.append((bracket.at, stop))
        found.targets.append((after, stop))
        while found.openers and found.openers[-1].at > bracket.at:
            found.openers.pop()
        if not bracket.is_image:
            for outer in found.brackets:
                outer.active = outer.is_image
        return stop

    def _marks(self, at: int, char: str) -> int:
        text, end = self.text, self.end
        stop = _RUN[char].match(text, at, end).end()  # type: ignore[union-attr]
        length = stop - at
        if stop == end and self.edge is Edge.GROWING:
            if self._is_undecided(at):
                self.found.pending = Pending(Kind.MARKS, at, (at, at))
            return stop
        if char == "~" and length != 2:
            return stop
        before = text[at - 1] if at > self.start else " "
        after = text[stop] if stop < end else " "
        can_open, can_close, both = _flanking(char, before, after)
        self._expire(stop)
        count = self._close(at, char, length, both) if can_close else length
        if count and can_open:
            self.found.openers.append(Delimiter(stop - count, char, count, length, both))
        return stop

    def _close(self, at: int, char: str, length: int, both: bool) -> int:
        """Close openers with the run of `length` marks at `at`; how many marks are left."""
        openers = self.found.openers
        count = length
        index = len(openers) - 1
        while count and index >= 0:
            opener = openers[index]
            if opener.char != char or (
                (both or opener.both) and (opener.length + length) % 3 == 0 and (opener.length % 3 or length % 3)
            ):
                index -= 1
                continue
            used = 2 if count >= 2 and opener.count >= 2 else 1
            if char == "~" and used != 2:
                index -= 1
                continue
            del openers[index + 1 :]
            count -= used
            opener.count -= used
            self.found.spans.append((opener.at + opener.count, at + length - count))
            if not opener.count:
                openers.pop()
                index -= 1
        return count


def _drop_before(opened: list[Delimiter] | list[Bracket], limit: int) -> None:
    old = 0
    while old < len(opened) and opened[old].at < limit:
        old += 1
    del opened[:old]


def _flanking(char: str, before: str, after: str) -> tuple[bool, bool, bool]:
    """Whether a run of `char` between these two may open, may close, and by CommonMark may do both."""
    space_before, space_after = before.isspace(), after.isspace()
    mark_before, mark_after = _is_punctuation(before), _is_punctuation(after)
    left = not space_after and (not mark_after or space_before or mark_before)
    right = not space_before and (not mark_before or space_after or mark_after)
    if char == "_":
        return left and (not right or mark_before), right and (not left or mark_after), left and right
    in_word = before.isascii() and before.isalnum() and after.isascii() and after.isalnum()
    closes = right or not (space_before or unicodedata.category(before) in ("Ps", "Pi"))
    return left and not in_word, closes, left and right


def _is_punctuation(char: str) -> bool:
    return unicodedata.category(char)[0] in "PS"


def _target_end(text: str, at: int, end: int) -> int | None:
    """Where the link target that opens with the bracket at `at` ends: `end` + 1 if it may still end later, None if
    there is none."""
    limit = min(end, at + HOLD)
    open_end = end + 1 if limit == end else None
    if open_end is None and text.find(")", at, limit) < 0:
        return None
    at = _skip_space(text, at + 1, limit)
    if at < limit and text[at] == "<":
        if angled := _ANGLED_TARGET.match(text, at, limit):
            at = angled.end()
        else:
            return open_end
    else:
        depth = 0
        while True:
            stop = _TARGET_STOP.search(text, at, limit)
            if stop is None:
                return open_end
            at = stop.end()
            if stop[0] == "\\":
                at += 1
            elif stop[0] == "(":
                depth += 1
                if depth > _DEEPEST_TARGET:
                    return None
            elif stop[0] == ")":
                if depth == 0:
                    return at
                depth -= 1
            elif depth:
                return None
            else:
                break
    at = _skip_space(text, at, limit)
    if at < limit and text[at] in _TITLE:
        closing = text.find(_TITLE[text[at]], at + 1, limit)
        if closing < 0:
            return open_end
        at = _skip_space(text, closing + 1, limit)
    if at >= limit:
        return open_end
    return at + 1 if text[at] == ")" else None


def _skip_space(text: str, at: int, end: int) -> int:
    while at < end and text[at].isspace():
        at += 1
    return at


def _label_end(text: str, at: int, end: int) -> int | None:
    """Like `_target_end`, for the label of a reference."""
    limit = min(end, at + HOLD)
    if label := _LABEL.match(text, at, limit):
        return label.end()
    return end + 1 if limit == end and _UNFINISHED_LABEL.fullmatch(text, at, end) else None
