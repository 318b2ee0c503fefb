"""The ops that bring one message of a reply nearer to the view. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from adapters.feishu import render
from adapters.feishu.cards import Frame, Json, Role, Style, digest, frame
from adapters.feishu.contents import card_content, post_content, text_content
from adapters.feishu.layout import (
    Drawn,
    Piece,
    drawn_growing,
    drawn_healed,
    drawn_whole,
    is_being_written,
    piece_of,
    room_for,
)
from adapters.feishu.ops import (
    MESSAGE_EDITS,
    NARROW_PANEL_BYTES,
    PANEL_BYTES,
    CreateCard,
    Detail,
    EditMessage,
    Face,
    FeishuShown,
    Format,
    OpenStreaming,
    PatchCard,
    Send,
    Sheet,
    UpdateCard,
    WriteText,
)
from channels.adapter import Draw, Op, ReplyTarget, Urgency
from channels.model import Phase, View
from config.channel import Streaming

_FRAME_EVERY = 1.0
"""Seconds between two changes of what surrounds a growing text; text alone is faster."""
_HELD_FOR = 3.0
"""Seconds after which the held end of a text is shown as it is, when the model falls silent in the middle of it."""
_STORE_EVERY = 10.0
"""Seconds after which what a growing message shows is stored again, so that a crash sets a reader back by no more."""
_MOST_CLOSINGS = 3
"""So many times in a row streaming may turn out to be closed before a card goes on without."""

_CARDS = (Draw("cards"), Draw("cards_minute"))


@dataclass(frozen=True, slots=True)
class Manner:
    """How a channel shows replies. `first` is the form of new messages while nothing says otherwise."""

    style: Style
    streaming: Streaming = Streaming.AUTO
    first: Format = Format.CARD
    in_thread: bool = False
    tables: int = 5
    card_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """What all messages of one reply have in common. `context` travels with every button."""

    manner: Manner
    style: Style
    target: ReplyTarget
    context: Json

    @property
    def in_thread(self) -> bool:
        return self.manner.in_thread and not self.target.place.private


def card_draws(card: str) -> tuple[Draw, ...]:
    return (Draw("card", card), *_CARDS)


def message_draws(chat: str) -> tuple[Draw, ...]:
    return (Draw("chat", chat), Draw("messages"), Draw("messages_minute"))


def edit_draws(message: str) -> tuple[Draw, ...]:
    return (Draw("message", message), Draw("edits"), Draw("edits_minute"))


class Bringing:
    """What brings single messages of a reply nearer to the view."""

    def __init__(self, setting: Setting, view: View, shown: FeishuShown, flow: str) -> None:
        self._setting = setting
        self._manner = setting.manner
        self._target = setting.target
        self._view = view
        self._shown = shown
        self._flow = flow
        self._urgency = Urgency.FINAL if view.is_final else Urgency.GROWTH

    def ops(self, index: int, sheet: Sheet) -> Sequence[Op]:
        """The calls for the message `index` of the row, best first."""
        if sheet.format is Format.NOTE:
            return self._note(index, sheet)
        room = room_for(self._shown, sheet.format, self._manner.card_bytes)
        piece = piece_of(self._flow, sheet, room)
        is_complete = self._view.is_final or piece.ends is not None
        if sheet.format in (Format.POST, Format.TEXT):
            return self._plain_message(index, sheet, piece) if is_complete else ()
        around = self._frame(piece, room)
        whole = drawn_whole(piece, sheet, self._detail, self._manner.tables, aligned=is_complete)
        if is_complete:
            return self._complete(index, sheet, piece, around, whole)
        if sheet.format is Format.PATCH or (sheet.sent and sheet.closings >= _MOST_CLOSINGS):
            healed = drawn_healed(piece, sheet, self._detail, self._manner.tables)
            return self._replaced(index, sheet, piece, around, healed)
        growing = whole
        if is_being_written(self._view):
            growing = drawn_growing(piece, sheet, self._detail, self._manner.tables)
        return self._streamed(index, sheet, piece, around, growing, whole)

    # ------------------------------------------------------------ cards

    def _complete(self, index: int, sheet: Sheet, piece: Piece, around: Frame, drawn: Drawn) -> Sequence[Op]:
        """The last state of a message."""
        face = self._face(drawn, around, piece, complete=True)
        if not sheet.sent and not drawn.text.strip() and around.is_empty:
            return ()
        data = self._card(around, drawn, piece, streaming=False)
        if sheet.format is Format.PATCH and not sheet.sent:
            if sheet.placeheld:  # the message may be there already: its key belongs to what was sent first
                return (self._send(index, sheet, "interactive", self._beginning()),)
            return (self._send(index, sheet, "interactive", data, face),)
        if sheet.format is Format.CARD and not sheet.card:
            return (self._create(index, sheet, face, data, streaming=False),)
        if not sheet.sent:
            return (self._send(index, sheet, "interactive", card_content(sheet.card)),)
        if _is_shown(sheet, face):
            return ()
        if sheet.format is Format.PATCH:
            return (self._patch(index, sheet, face, data),)
        return (self._update(index, sheet, face, data, streaming=False),)

    def _streamed(
        self, index: int, sheet: Sheet, piece: Piece, around: Frame, growing: Drawn, whole: Drawn
    ) -> Sequence[Op]:
        """A card whose text grows by streaming. `whole` is the text with an end that may be half a construct."""
        if not sheet.card:
            drawn = growing if growing.text.strip() else whole
            if not drawn.text.strip() and not self._has_other_content(around):
                return ()
            data = self._card(around, drawn, piece, streaming=True)
            return (self._create(index, sheet, self._face(drawn, around, piece), data, streaming=True),)
        if not sheet.sent:
            return (self._send(index, sheet, "interactive", card_content(sheet.card)),)
        rewrites = not (growing.extends(sheet) or whole.extends(sheet))
        drawn = growing if growing.text.strip() else whole
        is_without = not (sheet.streaming or sheet.length) and bool(drawn.text.strip())
        if sheet.torn or rewrites or is_without or sheet.detail is not self._detail:
            # Streamed text is never rewritten while it streams: it is replaced with streaming closed. Nor is it
            # streamed into a card that has no element for it, because it had no text when it was replaced last.
            data = self._card(around, drawn, piece, streaming=False)
            return (self._update(index, sheet, self._face(drawn, around, piece), data, streaming=False),)
        drawn = growing
        if len(drawn.text) < sheet.length:  # the end was held for long and is shown already
            drawn = Drawn(whole.text[: sheet.length], sheet.covered)
        face = self._face(drawn, around, piece)
        grows = bool(drawn.text) and (len(drawn.text) > sheet.length or sheet.uncertain)
        is_reframed = face.frame != sheet.frame or (sheet.uncertain and not drawn.text)
        if not sheet.streaming and (grows or is_reframed):
            draws = card_draws(sheet.card)
            again = OpenStreaming(
                urgency=self._urgency, draws=draws, creates=sheet.leapt, keeps=True, index=index, sheet=sheet
            )
            return (again,)
        ops: list[Op] = []
        if is_reframed:
            data = self._card(around, drawn, piece, streaming=True)
            ops.append(self._update(index, sheet, face, data, streaming=True, not_before=sheet.frame_at + _FRAME_EVERY))
        if grows:
            ops.append(self._write(index, sheet, drawn))
        elif sheet.streaming and len(whole.text) > len(drawn.text) and whole.extends(sheet):
            ops.append(self._write(index, sheet, whole, not_before=sheet.text_at + _HELD_FOR))
        return ops

    def _replaced(self, index: int, sheet: Sheet, piece: Piece, around: Frame, drawn: Drawn) -> Sequence[Op]:
        """A card that is replaced as a whole while it grows."""
        face = self._face(drawn, around, piece)
        if not sheet.sent:
            if not drawn.text.strip() and not self._has_other_content(around):
                return ()
            # What is sent first may have to be sent once more, exactly as it was: it depends on nothing.
            return (self._send(index, sheet, "interactive", self._beginning()),)
        if _is_shown(sheet, face):
            return ()
        data = self._card(around, drawn, piece, streaming=False)
        if sheet.format is Format.PATCH:
            return (self._patch(index, sheet, face, data),)
        return (self._update(index, sheet, face, data, streaming=False, not_before=sheet.text_at + _FRAME_EVERY),)

    def _has_other_content(self, around: Frame) -> bool:
        return bool(around.above or self._view.notice)

    # ------------------------------------------------------------ posts and texts

    def _plain_message(self, index: int, sheet: Sheet, piece: Piece) -> Sequence[Op]:
        """Messages that are sent when their text is complete: they can be edited a few times only."""
        source = piece.source
        if piece.ends is None and self._view.notice:
            source = f"{source}\n\n*{self._view.notice}*" if source.strip() else self._view.notice
        if not source.strip():
            return ()
        if sheet.format is Format.TEXT:
            text = render.as_text(source)
            content = text_content(text)
        else:
            text = render.markdown(source, tables=0, aligned=True)
            content = post_content(text)
        covered = len(piece.source) - len(sheet.opening) if piece.ends is None else piece.ends - sheet.start
        face = self._face(Drawn(text, covered), None, piece, complete=True)
        kind = sheet.format.value
        if not sheet.sent:
            return (self._send(index, sheet, kind, content, face),)
        if _is_shown(sheet, face) or sheet.edits >= MESSAGE_EDITS:
            return ()
        edit = EditMessage(
            urgency=self._urgency,
            draws=edit_draws(sheet.message),
            keeps=True,
            index=index,
            sheet=sheet,
            face=face,
            kind=kind,
            content=content,
        )
        return (edit,)

    def _note(self, index: int, sheet: Sheet) -> Sequence[Op]:
        """In place of all that is left of an answer that is refused in every form."""
        if sheet.sent or not self._view.is_final:
            return ()
        text = f"Feishu refuses {'the rest of this' if sheet.start else 'this'} answer, so it cannot be shown here."
        face = self._face(Drawn(text, len(self._flow) - sheet.start), None, Piece(""), complete=True)
        return (self._send(index, sheet, Format.TEXT.value, text_content(text), face),)

    # ------------------------------------------------------------ parts

    @property
    def _detail(self) -> Detail:
        return self._shown.detail

    def _frame(self, piece: Piece, room: int) -> Frame:
        last = Role.LAST if self._view.is_final else Role.LIVE
        role = last if piece.ends is None else Role.FULL
        narrow = render.measure(piece.source) > room - 2 * (PANEL_BYTES - NARROW_PANEL_BYTES)
        return self._around(self._view, role, bare=self._detail is Detail.BARE, narrow=narrow)

    def _beginning(self) -> str:
        around = self._around(View(phase=Phase.WAITING), Role.LIVE, bare=True, narrow=True)
        return around.card("…", bare=True, streaming=False)

    def _around(self, view: View, role: Role, *, bare: bool, narrow: bool) -> Frame:
        setting = self._setting
        return frame(view, role, self._target.turn, setting.style, setting.context, bare=bare, narrow=narrow)

    def _card(self, around: Frame, drawn: Drawn, piece: Piece, *, streaming: bool) -> str:
        bare = self._detail is Detail.BARE
        return around.card(drawn.text, bare=bare, streaming=streaming, summarised=piece.source)

    def _face(self, drawn: Drawn, around: Frame | None, piece: Piece, *, complete: bool = False) -> Face:
        return Face(
            text=digest(drawn.text),
            length=len(drawn.text),
            covered=drawn.covered,
            frame="" if around is None else around.digest,
            detail=self._detail,
            complete=complete,
            ends=piece.ends,
            source=piece.digest,
            opening=piece.opening,
        )

    def _create(self, index: int, sheet: Sheet, face: Face, data: str, *, streaming: bool) -> CreateCard:
        return CreateCard(
            urgency=Urgency.FINAL if self._view.is_final else Urgency.FIRST,
            draws=_CARDS,
            keeps=True,
            index=index,
            sheet=sheet,
            face=face,
            data=data,
            streaming=streaming,
        )

    def _send(self, index: int, sheet: Sheet, kind: str, content: str, face: Face | None = None) -> Send:
        return Send(
            urgency=Urgency.FINAL if self._view.is_final else Urgency.FIRST,
            draws=message_draws(self._target.place.chat),
            creates=True,
            index=index,
            sheet=sheet,
            kind=kind,
            content=content,
            answers=None if self._shown.detached else self._target.question.message_id,
            chat=self._target.place.chat,
            in_thread=self._setting.in_thread and not self._shown.without_topic,
            face=face,
        )

    def _write(self, index: int, sheet: Sheet, drawn: Drawn, *, not_before: float = 0.0) -> WriteText:
        face = Face(
            text=digest(drawn.text),
            length=len(drawn.text),
            covered=drawn.covered,
            frame=sheet.frame,  # only the text is written: what surrounds it stays what it was
            detail=sheet.detail,
            complete=False,
        )
        return WriteText(
            urgency=self._urgency,
            draws=card_draws(sheet.card),
            creates=sheet.leapt,
            keeps=_is_due(sheet),
            not_before=not_before,
            index=index,
            sheet=sheet,
            face=face,
            content=drawn.text,
        )

    def _update(
        self, index: int, sheet: Sheet, face: Face, data: str, *, streaming: bool, not_before: float = 0.0
    ) -> UpdateCard:
        return UpdateCard(
            urgency=self._urgency,
            draws=card_draws(sheet.card),
            creates=sheet.leapt,
            keeps=face.complete or _is_due(sheet),
            not_before=not_before,
            index=index,
            sheet=sheet,
            face=face,
            data=data,
            streaming=streaming,
        )

    def _patch(self, index: int, sheet: Sheet, face: Face, content: str) -> PatchCard:
        return PatchCard(
            urgency=self._urgency,
            draws=edit_draws(sheet.message),
            keeps=face.complete or _is_due(sheet),
            index=index,
            sheet=sheet,
            face=face,
            content=content,
        )


def _is_due(sheet: Sheet) -> bool:
    """Whether what is shown should be stored again."""
    return sheet.text_at - sheet.stored_at > _STORE_EVERY


def _is_shown(sheet: Sheet, face: Face) -> bool:
    if sheet.uncertain or sheet.torn or sheet.streaming:
        return False
    same = sheet.text == face.text and sheet.length == face.length and sheet.frame == face.frame
    return same and sheet.complete == face.complete and sheet.end == face.ends
