"""How a reply is shown in Telegram: a message that is edited while it grows, and further ones when it gets too long.

Pure but for `perform`. A message is finished when the reply goes on in another one; from then on it is only touched
if the text it shows turns out to have been wrong.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from adapters.telegram.digests import digest_of, mark_of, text_digest
from adapters.telegram.keyboard import Buttons
from adapters.telegram.layout import Layout, Piece
from adapters.telegram.limits import DRAFT_KEEP_ALIVE, PHOTO_BYTES, UPLOAD_BYTES
from adapters.telegram.marks import Styled, joined
from adapters.telegram.ops import (
    DRAFT_ALIAS,
    Content,
    Delete,
    Draft,
    Edit,
    FileForm,
    Plainness,
    Send,
    SendFile,
    ShownFile,
    ShownMessage,
    Start,
    TelegramShown,
    Where,
)
from adapters.telegram.outcomes import advanced, unsure
from channels.adapter import Draw, Op, Outcome, Receipt, Shown, Urgency
from channels.model import File, TurnId, View

_MOST_LOST = 3  # messages that vanish while the answer grows; then only the finished answer is sent
_PHOTOS = frozenset({"image/png", "image/jpeg", "image/webp"})
_BEAT = "⏳"


@dataclass(frozen=True, slots=True)
class ReplySettings:
    """Where a reply goes and how: fixed for its whole life. `reply_to` is the message that its first one answers."""

    turn: TurnId
    where: Where
    reply_to: int | None
    buttons: Buttons
    size: int
    grows: bool
    drafts: bool
    rich: bool
    previews: bool


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What one message of the reply should be."""

    index: int
    start: Start
    piece: Piece
    content: Content
    digest: str


class TelegramSurface:
    """Shows one reply. `perform` makes one call."""

    def __init__(self, settings: ReplySettings, layout: Layout, perform: Callable[[Op], Awaitable[Receipt]]) -> None:
        self._settings = settings
        self._layout = layout
        self._perform = perform

    @property
    def shown_type(self) -> type[TelegramShown]:
        return TelegramShown

    async def perform(self, op: Op) -> Receipt:
        return await self._perform(op)

    def advance(self, shown: Shown, op: Op, outcome: Outcome, now: float) -> TelegramShown:
        assert isinstance(shown, TelegramShown)
        return advanced(shown, op, outcome, now)

    def restore(self, shown: Shown) -> TelegramShown:
        """The last message may have been edited, and what was about to be sent may have been, since it was stored."""
        assert isinstance(shown, TelegramShown)
        messages = [
            message.model_copy(update={"unknowns": max(1, message.unknowns)}) if message.id is None else message
            for message in shown.messages
        ]
        # One in a group that has got another id since can only be left as it is.
        if messages and messages[-1].id is not None and messages[-1].chat == self._where(shown).chat:
            messages[-1] = messages[-1].model_copy(update={"digest": ""})
        files = [unsure(file) if file.sending else file.model_copy(update={"away_since": None}) for file in shown.files]
        draft = shown.draft.model_copy(update={"digest": "", "text": ""}) if shown.draft is not None else None
        return shown.model_copy(update={"messages": tuple(messages), "files": tuple(files), "draft": draft})

    def messages(self, shown: Shown) -> Sequence[str]:
        assert isinstance(shown, TelegramShown)
        ids = [message.id for message in shown.messages] + [file.message for file in shown.files]
        drafts = range(len(shown.messages) + shown.lost + 1) if self._settings.drafts else ()
        named = [f"{DRAFT_ALIAS}{_draft_id(self._settings.turn, index)}" for index in drafts]
        return [*(str(number) for number in ids if number is not None), *named]

    # ---------------------------------------------------------------- planning

    def plan(self, view: View, shown: Shown, now: float) -> Sequence[Op]:
        assert isinstance(shown, TelegramShown)
        if shown.given_up or not (view.is_final or self._settings.grows):
            return ()
        text = self._text(view, shown)
        if not view.is_final and len(text) < max((message.covers for message in shown.messages), default=0):
            return ()  # after a restart the text is heard again from its beginning; what is shown does not go back
        index, start = _finished(shown.messages, text)
        while (piece := self._piece(view, shown, start)) is not None:
            if ops := self._towards(piece, view, shown, index, start):
                return ops
            index += 1
            if piece.next is None:
                break
            start = piece.next
        if not view.is_final:
            return ()
        return self._surplus(shown, index) or self._files(view, shown)

    def _text(self, view: View, shown: TelegramShown) -> str:
        return self._layout.text(view, buttons=_has_buttons(shown))

    def _piece(self, view: View, shown: TelegramShown, start: Start) -> Piece | None:
        return self._layout.piece(
            view,
            start,
            size=shown.size,
            styled=shown.plainness is Plainness.STYLED,
            buttons=_has_buttons(shown),
            allow_rich=self._settings.rich and view.is_final and not shown.rich_refused,
        )

    def _towards(self, piece: Piece, view: View, shown: TelegramShown, index: int, start: Start) -> Sequence[Op]:
        """What brings message `index` to its piece."""
        is_last = piece.next is None
        keyboard = self._settings.buttons.under(view) if is_last and _has_buttons(shown) else ()
        content = Content(piece.body, keyboard, piece.rich, self._settings.previews)
        known = shown.messages[index] if index < len(shown.messages) else None
        wanted = _Wanted(index, start, piece, content, digest_of(content))
        if known is not None and known.id is not None:
            return () if known.digest == wanted.digest else (self._edit(wanted, view, shown, known.chat, known.id),)
        if not view.is_final and shown.lost >= _MOST_LOST:
            return ()
        if known is None and is_last and not view.is_final and self._drafts(shown):
            return self._growing_draft(piece.body, shown, index)
        send = self._send(wanted, view, shown)
        frame = self._last_frame(piece, shown, index) if known is None else None
        return (send,) if frame is None else (frame, send)

    def _edit(self, wanted: _Wanted, view: View, shown: TelegramShown, chat: str, message: int) -> Edit:
        return Edit(
            urgency=Urgency.FINAL if view.is_final else Urgency.GROWTH,
            draws=self._draws,
            keeps=view.is_final or wanted.piece.next is not None,
            index=wanted.index,
            where=Where(chat, self._settings.where.thread),
            content=wanted.content,
            digest=wanted.digest,
            start=wanted.start,
            covers=wanted.piece.covers,
            mark=mark_of(self._text(view, shown), wanted.start.offset, wanted.piece.covers),
            next=wanted.piece.next,
            size=shown.size or self._settings.size,
            id=message,
        )

    def _send(self, wanted: _Wanted, view: View, shown: TelegramShown) -> Send:
        is_first = wanted.index == 0
        growth = Urgency.FIRST if is_first else Urgency.GROWTH
        return Send(
            urgency=Urgency.FINAL if view.is_final else growth,
            draws=self._draws,
            creates=True,
            index=wanted.index,
            where=self._where(shown),
            content=wanted.content,
            digest=wanted.digest,
            start=wanted.start,
            covers=wanted.piece.covers,
            mark=mark_of(self._text(view, shown), wanted.start.offset, wanted.piece.covers),
            next=wanted.piece.next,
            size=shown.size or self._settings.size,
            reply_to=self._settings.reply_to if is_first and shown.plainness is not Plainness.BARE else None,
            silent=not is_first,
        )

    def _where(self, shown: TelegramShown) -> Where:
        return Where(shown.chat or self._settings.where.chat, self._settings.where.thread)

    @property
    def _draws(self) -> tuple[Draw, ...]:
        return (chat_draw(self._settings.where.chat), Draw("bot"))

    def _surplus(self, shown: TelegramShown, index: int) -> Sequence[Op]:
        """The answer needs fewer messages than there are."""
        for at in range(len(shown.messages) - 1, index - 1, -1):
            message = shown.messages[at]
            if message.id is not None:
                where = Where(message.chat)
                delete = Delete(
                    urgency=Urgency.FINAL, draws=self._draws, keeps=True, index=at, where=where, id=message.id
                )
                return (delete,)
        return ()

    # ---------------------------------------------------------------- drafts

    def _drafts(self, shown: TelegramShown) -> bool:
        return self._settings.drafts and not shown.drafts_refused

    def _growing_draft(self, body: Styled, shown: TelegramShown, index: int) -> Sequence[Op]:
        """The next frame, or the same one again with a small change before it vanishes."""
        draft = shown.draft if shown.draft is not None and shown.draft.index == index else None
        if draft is None or draft.digest != digest_of(body):
            return (self._frame(body, digest_of(body), index, Urgency.GROWTH if draft else Urgency.FIRST, shown),)
        beating = body if draft.beats % 2 else joined((body, Styled(_BEAT)), "\n")
        if beating.units > self._settings.size:
            beating = body
        due = draft.at + DRAFT_KEEP_ALIVE
        return (self._frame(beating, draft.digest, index, Urgency.UPKEEP, shown, not_before=due),)

    def _last_frame(self, piece: Piece, shown: TelegramShown, index: int) -> Draft | None:
        """A frame that the message begins with, if the draft on the screen is none: then the one becomes the other.

        It is always urgent: left behind by growth's spacing, it would come too late for its message.
        """
        draft, body = shown.draft, piece.body
        if not self._drafts(shown) or draft is None or draft.index != index or draft.is_done or piece.rich is not None:
            return None
        if text_digest(body.text[: draft.length]) == draft.text:
            return None
        return self._frame(body, digest_of(body), index, Urgency.FINAL, shown, is_last=True)

    def _frame(
        self,
        body: Styled,
        digest: str,
        index: int,
        urgency: Urgency,
        shown: TelegramShown,
        *,
        not_before: float = 0.0,
        is_last: bool = False,
    ) -> Draft:
        return Draft(
            urgency=urgency,
            draws=(Draw("draft", self._settings.where.chat), Draw("bot")),
            not_before=not_before,
            index=index,
            where=self._where(shown),
            id=_draft_id(self._settings.turn, index + shown.lost),
            body=body,
            digest=digest,
            size=shown.size or self._settings.size,
            is_last=is_last,
        )

    # ---------------------------------------------------------------- files

    def _files(self, view: View, shown: TelegramShown) -> Sequence[Op]:
        known = {file.id: file for file in shown.files}
        for file in view.files:
            state = known.get(file.id) or ShownFile(id=file.id, form=_first_form(file))
            if not state.sent and state.form is not FileForm.NOTHING:
                return (
                    SendFile(
                        urgency=Urgency.FINAL,
                        draws=self._draws,
                        creates=True,
                        where=self._where(shown),
                        file=file,
                        form=state.form,
                        in_doubt=state.in_doubt,
                    ),
                )
        return ()


def _has_buttons(shown: TelegramShown) -> bool:
    return shown.plainness is not Plainness.BARE


def _first_form(file: File) -> FileForm:
    if file.size is not None and file.size > UPLOAD_BYTES:
        return FileForm.SENTENCE
    is_photo = file.mime in _PHOTOS and (file.size is None or file.size <= PHOTO_BYTES)
    return FileForm.PHOTO if is_photo else FileForm.DOCUMENT


def _finished(messages: Sequence[ShownMessage], text: str) -> tuple[int, Start]:
    """How many messages are finished and still right, and where the next one starts."""
    start = Start()
    for index, message in enumerate(messages):
        if message.next is None or message.start != start:
            return index, start
        if mark_of(text, start.offset, message.covers) != message.mark:
            return index, start
        if message.id is not None and not text[message.covers :].strip():
            return index, start  # it turned out to be the last one
        start = message.next
    return len(messages), start


def chat_draw(chat: str) -> Draw:
    """The budget of sends and edits in a chat. Ids of groups are negative."""
    return Draw("group" if chat.startswith("-") else "private", chat)


def _draft_id(turn: TurnId, index: int) -> int:
    """Not 0, another one for every message of every turn."""
    return int.from_bytes(hashlib.blake2b(f"{turn}:{index}".encode(), digest_size=4).digest()) // 2 + 1
