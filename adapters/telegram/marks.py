"""Text with marks, as Telegram takes it: plain text and entities, measured in UTF-16 units.

Which mark may lie within which is Telegram's rule (core.telegram.org/bots/api#formatting-options): nothing within
code, no code within a style or a link, no quote within a quote. Telegram repairs what breaks it silently and in its
own way, so it is put right here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from channels.markdown import utf16_units

CODE = "code"
PRE = "pre"
LINK = "text_link"
ITALIC = "italic"
QUOTE = "blockquote"
FOLDED_QUOTE = "expandable_blockquote"

_VERBATIM = frozenset({CODE, PRE})
_QUOTES = frozenset({QUOTE, FOLDED_QUOTE})
_SPACE = " \n\t\r\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
_UNSEEN = _SPACE + "\u200b\u200c\u200d\u200e\u200f\u2028\u2029\u2060\ufeff"
# Half of a surrogate pair cannot be sent, control characters would become spaces, and noncharacters are ours: the
# renderer lets text travel under them.
_UNSENDABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff\ufdd0-\ufdef]")
_LINE_END = re.compile("\r\n?")


@dataclass(frozen=True, slots=True)
class Mark:
    """An entity: a kind of the Bot API and the stretch of text it covers, in UTF-16 units."""

    kind: str
    start: int
    end: int
    url: str | None = None
    language: str | None = None

    def moved(self, units: int) -> Mark:
        """The mark so much further on."""
        return Mark(self.kind, self.start + units, self.end + units, self.url, self.language)


@dataclass(frozen=True, slots=True)
class Styled:
    """A text and its marks."""

    text: str = ""
    marks: tuple[Mark, ...] = ()

    @property
    def units(self) -> int:
        return utf16_units(self.text)

    @property
    def is_blank(self) -> bool:
        """Whether there is nothing to see, so that Telegram would take it for empty."""
        return is_blank(self.text)

    def plain(self) -> Styled:
        """The same text without marks."""
        return trimmed(Styled(self.text))


def is_blank(text: str) -> bool:
    """Whether Telegram would take the text for empty."""
    return not text.strip(_UNSEEN)


def sendable(text: str) -> str:
    """The text with what Telegram cannot take replaced; of a tab it would leave one space."""
    return _UNSENDABLE.sub("\ufffd", _LINE_END.sub("\n", text).expandtabs(4))


def styled(text: str, kind: str) -> Styled:
    """A text under one mark."""
    units = utf16_units(text)
    return Styled(text, (Mark(kind, 0, units),) if units else ())


def joined(parts: Iterable[Styled], separator: str) -> Styled:
    """The parts one after the other; empty ones are left out."""
    text = ""
    units = 0
    marks: list[Mark] = []
    for part in parts:
        if not part.text:
            continue
        if text:
            text += separator
            units += utf16_units(separator)
        marks += part.marks if not units else (mark.moved(units) for mark in part.marks)
        text += part.text
        units += part.units
    return Styled(text, tuple(marks))


def trimmed(value: Styled) -> Styled:
    """Without the white space around it, which Telegram removes; at the beginning as far as no mark covers it."""
    text = value.text.rstrip(_UNSEEN)
    end = utf16_units(text)
    marks = [replace(mark, end=end) if mark.end > end else mark for mark in value.marks if mark.start < end]
    first = min((mark.start for mark in marks), default=end)
    lead = min(len(text) - len(text.lstrip(_UNSEEN)), first)  # white space is one unit a character
    return Styled(text[lead:], tuple(mark.moved(-lead) for mark in marks if mark.end > mark.start))


def legal(marks: Sequence[Mark]) -> tuple[Mark, ...]:
    """The marks as Telegram allows them: quotes not within quotes, styles and links cut around code."""
    links = [mark for mark in marks if mark.kind == LINK]
    code = _apart(m for m in marks if m.kind in _VERBATIM and not any(_meet(m, link) for link in links))
    quotes = _apart(mark for mark in marks if mark.kind in _QUOTES)
    others = {piece for mark in marks if mark.kind not in _VERBATIM | _QUOTES for piece in _around(mark, code)}
    return tuple(_without_crossing([*quotes, *code, *others]))


def _meet(one: Mark, other: Mark) -> bool:
    return one.start < other.end and other.start < one.end


def _apart(marks: Iterable[Mark]) -> list[Mark]:
    """The outermost of marks that share text."""
    kept: list[Mark] = []
    for mark in sorted(marks, key=lambda mark: (mark.start, -mark.end)):
        if mark.end > mark.start and (not kept or kept[-1].end <= mark.start):
            kept.append(mark)
    return kept


def _around(mark: Mark, code: Sequence[Mark]) -> Iterable[Mark]:
    """The mark in pieces between the stretches of code."""
    start = mark.start
    for hole in code:
        if hole.end <= start or hole.start >= mark.end:
            continue
        if hole.start > start:
            yield replace(mark, start=start, end=hole.start)
        start = hole.end
    if start < mark.end:
        yield replace(mark, start=start)


_ORDER = {QUOTE: 0, FOLDED_QUOTE: 0, PRE: 1, CODE: 1}


def _without_crossing(marks: Iterable[Mark]) -> Iterable[Mark]:
    """In Telegram's order, without what shares only a part of its text with an earlier mark."""
    open_marks: list[Mark] = []
    for mark in sorted(marks, key=lambda mark: (mark.start, -mark.end, _ORDER.get(mark.kind, 2), mark.kind)):
        while open_marks and open_marks[-1].end <= mark.start:
            open_marks.pop()
        if open_marks and mark.end > open_marks[-1].end:
            continue
        open_marks.append(mark)
        yield mark
