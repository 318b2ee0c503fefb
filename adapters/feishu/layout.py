"""Which stretch of the reply's text a message shows, and what it looks like there. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from adapters.feishu import render
from adapters.feishu.cards import below_question, digest
from adapters.feishu.ops import (
    CARD_BYTES,
    FRAME_BYTES,
    NARROW_PANEL_BYTES,
    POST_BYTES,
    SMALLEST_TEXT,
    TEXT_BYTES,
    Detail,
    FeishuShown,
    Format,
    Sheet,
)
from channels.markdown import Cut, split_at, stable_prefix
from channels.markdown.blocks import Blocks, Leaf
from channels.model import Phase, View

_MOVABLE = 1_500
"""Characters at the end of a growing text that may move on to the next message for the sake of a better cut."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of the text as Markdown of its own. `ends` is where it ends; None: with the text."""

    source: str
    ends: int | None = None
    digest: str = ""
    opening: str = ""  # of what follows


@dataclass(frozen=True, slots=True)
class Drawn:
    """A rendered text and how many characters of the reply's text it shows."""

    text: str
    covered: int

    def extends(self, sheet: Sheet) -> bool:
        """Whether it begins with what the sheet shows, so that a reader only sees it grow."""
        return len(self.text) >= sheet.length and digest(self.text[: sheet.length]) == sheet.text


def flow_of(view: View, form: Format) -> str:
    """The text of a reply whose last message has this form: what the assistant said, then what it asks."""
    text = view.text
    if view.question is not None:
        asked = view.question.text.strip()
        below = below_question(view.question, buttons=form in (Format.CARD, Format.PATCH))
        is_said = text.rstrip().endswith(asked)
        text = "\n\n".join(part for part in (text, "" if is_said else asked, below) if part)
    return render.encodable(text)


def room_for(shown: FeishuShown, form: Format, card_bytes: int | None) -> int:
    """Bytes of text in one message of this form."""
    match form:
        case Format.CARD | Format.PATCH:
            room = (card_bytes or CARD_BYTES) - FRAME_BYTES - 2 * NARROW_PANEL_BYTES
        case Format.POST:
            room = POST_BYTES - FRAME_BYTES
        case Format.TEXT | Format.NOTE:
            room = TEXT_BYTES // 4  # nobody wants to read more in one message
    return room if shown.room is None else max(SMALLEST_TEXT, min(room, shown.room))


def piece_of(flow: str, sheet: Sheet, room: int) -> Piece:
    """The stretch that starts where the sheet starts and fits into it."""
    rest = sheet.opening + flow[sheet.start :]
    if render.measure(rest) <= room:
        return Piece(rest)
    opened = len(sheet.opening)
    shown = opened + sheet.covered if sheet.covered <= len(rest) - opened else 0
    cut, base = _cut(rest, room, max(opened + 1, shown - _MOVABLE, _half_full(rest, room)))
    if cut.is_whole:
        return Piece(rest)
    ends = sheet.start + max(1, base + cut.offset - opened)
    return Piece(rest[:base] + cut.head, ends, digest(flow[sheet.start : ends]), cut.opening)


def _cut(text: str, room: int, floor: int) -> tuple[Cut, int]:
    """Cut `text` at or after `floor`; also tells where the text begins that was looked at for it.

    A long text is looked at from a place near the floor where nothing is open: the work is for what follows only.
    """
    base = stable_prefix(text[:floor])
    blocks = Blocks(text[:base]).run().with_tail()
    if blocks.leaf not in (Leaf.NONE, Leaf.PARAGRAPH):
        base = 0
    elif blocks.containers:
        base = text.rfind("\n", 0, base) + 1  # a list's next item stands as well alone
        base = 0 if text[base : base + 1] in (" ", "\t", ">") else base
    left = room - render.measure(text[:base])
    return split_at(text[base:], left, render.measure, floor=max(1, floor - base)), base


def _half_full(text: str, room: int) -> int:
    """Characters that fill a good part of the room, but less than what borders are looked for in."""
    size = min(len(text) - 1, room // 2)
    while render.measure(text[:size]) > room // 2:
        size = size * 2 // 3
    return size


def is_being_written(view: View) -> bool:
    """Whether the last assistant message may still grow in its middle: its end may be half a construct."""
    return not view.is_final and view.phase is not Phase.WORKING and bool(view.body) and view.body[-1].is_answer


def drawn_whole(piece: Piece, sheet: Sheet, detail: Detail, tables: int, *, aligned: bool) -> Drawn:
    """All of the piece."""
    covered = len(piece.source) - len(sheet.opening) if piece.ends is None else piece.ends - sheet.start
    return Drawn(_rendered(piece.source, detail, tables, aligned=aligned), max(0, covered))


def drawn_growing(piece: Piece, sheet: Sheet, detail: Detail, tables: int) -> Drawn:
    """What of a growing piece stays right whatever follows."""
    source = piece.source if detail is Detail.BARE else render.growing(piece.source)
    covered = max(0, len(source) - len(sheet.opening))
    if covered == 0:
        return Drawn("", 0)
    return Drawn(_rendered(source, detail, tables, aligned=False), covered)


def drawn_healed(piece: Piece, sheet: Sheet, detail: Detail, tables: int) -> Drawn:
    """A growing piece for a message that is replaced with every change."""
    healed = Piece(piece.source if detail is Detail.BARE else render.healed(piece.source))
    return drawn_whole(healed, sheet, detail, tables, aligned=False)


def _rendered(source: str, detail: Detail, tables: int, *, aligned: bool) -> str:
    match detail:
        case Detail.FULL:
            return render.markdown(source, tables=tables, aligned=aligned)
        case Detail.FENCED:
            return render.markdown(source, tables=0, aligned=aligned)
        case Detail.BARE:
            return source
