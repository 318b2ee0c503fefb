"""How one reply is shown: which call brings its messages nearer to the view, and what is shown after it.

A reply is a row of sheets (messages). Each shows a stretch of the reply's text; only the last one grows. A full sheet
gets its last state, without buttons, and is not touched again unless the text it shows changes afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from adapters.feishu.cards import Frame, Json, Style, digest
from adapters.feishu.contents import file_content, text_content
from adapters.feishu.layout import flow_of, room_for
from adapters.feishu.ops import (
    STREAMING_SECONDS,
    FeishuShown,
    Format,
    LookFor,
    OpenStreaming,
    SendFile,
    SentFile,
    Sheet,
    SheetOp,
    TakeBack,
    UploadFile,
)
from adapters.feishu.outcomes import advanced, new_sheet, restored
from adapters.feishu.sheets import Bringing, Manner, Setting, card_draws, edit_draws, message_draws
from channels.adapter import Draw, Op, Outcome, Receipt, ReplyTarget, Shown, Urgency
from channels.model import File, InboundKind, View
from config.channel import Streaming

_LOOK_AFTER = 3.0
"""Seconds that a message must have been in sight before it is looked for: it takes people some time to delete it."""

_MOVED = "⤵"
"""What stands in a message whose text has moved to another one."""


class Performer(Protocol):
    """Makes the calls."""

    async def perform(self, op: Op, turn: str) -> Receipt:
        """Raises a `Failure` and nothing else."""
        ...


class FeishuSurface:
    """One reply on Feishu."""

    def __init__(self, performer: Performer, target: ReplyTarget, manner: Manner) -> None:
        self._performer = performer
        self._target = target
        self._first = manner.first
        self._is_silent = manner.streaming is Streaming.OFF
        style = manner.style
        if target.question.kind is InboundKind.COMMAND:
            style = Style(style.reasoning_expanded, feedback=False, retry=False)
        if target.question.kind is InboundKind.COMMAND or self._is_silent:
            self._first = max(manner.first, Format.PATCH, key=list(Format).index)  # one call for all there is to show
        place = target.place
        context: Json = {"thread": target.question.place.thread or "", "private": place.private}
        self._setting = Setting(manner, style, target, context)

    @property
    def shown_type(self) -> type[FeishuShown]:
        return FeishuShown

    async def perform(self, op: Op) -> Receipt:
        return await self._performer.perform(op, self._target.turn)

    def advance(self, shown: Shown, op: Op, outcome: Outcome, now: float) -> FeishuShown:
        shown = self._begun(shown)
        form = op.sheet.format if isinstance(op, SheetOp) else shown.format
        return advanced(shown, op, outcome, now, room=room_for(shown, form, self._setting.manner.card_bytes))

    def restore(self, shown: Shown) -> FeishuShown:
        assert isinstance(shown, FeishuShown)
        return restored(shown)

    def messages(self, shown: Shown) -> Sequence[str]:
        assert isinstance(shown, FeishuShown)
        sent = [*(sheet.message for sheet in shown.sheets), *(file.message for file in shown.files)]
        return [message for message in sent if message]

    def plan(self, view: View, shown: Shown, now: float) -> Sequence[Op]:
        shown = self._begun(shown)
        if shown.given_up:
            return ()
        if not view.is_final and (self._is_silent or not view.has_content):
            return _upkeep(shown)
        if view.is_final and not shown.sheets and not view.has_content:
            return ()
        flow = flow_of(view, shown.format)
        if not view.is_final and shown.sheets and len(flow) < shown.sheets[-1].start + shown.sheets[-1].covered:
            # A process that has just started hears the text again from its beginning: nothing is taken back for that.
            return _upkeep(shown)
        bringing = Bringing(self._setting, view, shown, flow)
        for index, sheet in enumerate(shown.sheets or (new_sheet(shown),)):
            if not _stays(sheet, flow) and (ops := bringing.ops(index, sheet)):
                return ops if view.is_final else (*ops, *_upkeep(shown))
        if shown.leftovers:
            return (self._take_back(view, shown),)
        if view.is_final:
            return self._files(view, shown) or _looks(shown)
        return _upkeep(shown)

    def _begun(self, shown: Shown) -> FeishuShown:
        """What is shown; before anything is, with the form of messages that this reply begins with."""
        assert isinstance(shown, FeishuShown)
        if shown.made or shown.format is not Format.CARD:
            return shown
        return shown.model_copy(update={"format": self._first}) if self._first is not Format.CARD else shown

    def _take_back(self, view: View, shown: FeishuShown) -> TakeBack:
        left = shown.leftovers[0]
        return TakeBack(
            urgency=Urgency.FINAL if view.is_final else Urgency.QUESTION,
            draws=card_draws(left.card) if left.kept and left.card else edit_draws(left.message),
            creates=left.kept,
            keeps=True,
            leftover=left,
            data=Frame(None, (), (), _MOVED).card(_MOVED, bare=True, streaming=False),
        )

    # ------------------------------------------------------------ files

    def _files(self, view: View, shown: FeishuShown) -> Sequence[Op]:
        known = {file.id: file for file in shown.files}
        for number, file in enumerate(view.files):
            sent = known.get(file.id, SentFile(id=file.id))
            if sent.done:
                continue
            if not sent.key and not sent.trouble:
                return (UploadFile(urgency=Urgency.FINAL, draws=(Draw("uploads"),), keeps=True, file=file),)
            return (self._send_file(number, file, sent, shown),)
        return ()

    def _send_file(self, number: int, file: File, sent: SentFile, shown: FeishuShown) -> SendFile:
        kind, content = sent.kind, file_content(sent.kind, sent.key)
        if sent.trouble:
            kind, content = "text", text_content(f"{file.name}: {sent.trouble}.")
        way = f"{'word' if sent.trouble else 'file'}{'-moved' if sent.moved else ''}"
        return SendFile(
            urgency=Urgency.FINAL,
            draws=message_draws(self._target.place.chat),
            creates=True,
            file=sent,
            kind=kind,
            content=content,
            answers=None if shown.detached else self._target.question.message_id,
            chat=self._target.place.chat,
            in_thread=self._setting.in_thread and not shown.without_topic,
            uuid=f"{self._target.turn}-{way}{number}",
        )


def _stays(sheet: Sheet, flow: str) -> bool:
    """Whether the sheet is full, shown as it is meant to be, and its text is still what it was."""
    if sheet.end is None or not sheet.sent or not sheet.complete or sheet.uncertain:
        return False
    return digest(flow[sheet.start : sheet.end]) == sheet.source


def _upkeep(shown: FeishuShown) -> Sequence[Op]:
    """Streaming is opened anew before the platform closes it, whatever the model does."""
    last = shown.sheets[-1] if shown.sheets else None
    if last is None or not (last.sent and last.streaming):
        return ()
    again = OpenStreaming(
        urgency=Urgency.UPKEEP,
        draws=card_draws(last.card),
        creates=last.leapt,
        keeps=True,
        not_before=last.opened_at + STREAMING_SECONDS,
        index=len(shown.sheets) - 1,
        sheet=last,
    )
    return (again,)


def _looks(shown: FeishuShown) -> Sequence[Op]:
    """Card entities live on when somebody deletes their message: whoever was in sight for a while is looked for."""
    for index, sheet in enumerate(shown.sheets):
        was_in_sight = sheet.frame_at - sheet.sent_at > _LOOK_AFTER
        if sheet.message and sheet.complete and was_in_sight and not sheet.found:
            draws = (Draw("reads"),)
            return (LookFor(urgency=Urgency.UPKEEP, draws=draws, keeps=True, index=index, sheet=sheet),)
    return ()
