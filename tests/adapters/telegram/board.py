"""A tiny Telegram in memory: messages to send, edit and delete, trouble for every call, and the vendor's rules."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from adapters.telegram.marks import Styled
from adapters.telegram.ops import Content, Delete, Draft, Edit, FileForm, Moved, Send, SendFile
from channels.adapter import (
    Closed,
    Draw,
    Failure,
    Gone,
    Op,
    RateLimited,
    Receipt,
    Refused,
    TooLarge,
    Transient,
    Unknown,
)
from tests.emulators.telegram import Entity, utf16_length
from tests.emulators.telegram.text import settle_text


class Trouble(StrEnum):
    """What happens to a call."""

    NONE = "none"
    RATE_LIMITED = "rate limited"
    TRANSIENT = "transient"
    DONE_BUT_UNKNOWN = "done but unknown"
    NOT_DONE_AND_UNKNOWN = "not done and unknown"
    REFUSED = "refused"
    TOO_LARGE = "too large"
    DELETED = "deleted"  # a person deletes the message just before the call
    CLOSED = "closed"
    MOVED = "moved"  # the group gets another id just before the call
    CRASH_BEFORE = "crash before"
    CRASH_AFTER = "crash after"


@dataclass
class Posted:
    id: int
    chat: str
    content: Content
    reply_to: int | None
    edits: int = 0


@dataclass
class Board:
    """All chats of the bot. `broken` lists what the vendor would not have let pass."""

    messages: dict[int, Posted] = field(default_factory=dict)
    files: list[tuple[str, FileForm]] = field(default_factory=list)
    drafts: dict[int, Styled] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    calls: list[Op] = field(default_factory=list)
    moved: str | None = None
    _number: int = 100

    def call(self, op: Op, trouble: Trouble) -> Receipt:
        """Carry out a call. Raises a `Failure`."""
        self.calls.append(op)
        self._strike(op, trouble)
        failure = _FAILURES.get(trouble)
        if failure is not None and trouble is not Trouble.DONE_BUT_UNKNOWN:
            raise failure()
        receipt = self._carry_out(op)
        if failure is not None:
            raise failure()
        return receipt

    def texts(self, ids: Iterable[int] | None = None) -> list[str]:
        """The texts of messages in the order of the chat, of these only when they are named."""
        wanted = None if ids is None else set(ids)
        return [
            posted.content.rich or posted.content.body.text
            for number, posted in sorted(self.messages.items())
            if wanted is None or number in wanted
        ]

    def _strike(self, op: Op, trouble: Trouble) -> None:
        if trouble is Trouble.DELETED and isinstance(op, Edit | Delete):
            self.messages.pop(op.id, None)
        if trouble is Trouble.MOVED and self.moved is None and not isinstance(op, Draft):
            self.moved = "-100777"

    def _carry_out(self, op: Op) -> Receipt:
        assert isinstance(op, Send | Edit | Draft | Delete | SendFile)
        if self.moved is not None and op.where.chat != self.moved:
            raise Moved(self.moved)
        match op:
            case Send():
                self._check(op.content)
                self._number += 1
                self.messages[self._number] = Posted(self._number, op.where.chat, op.content, op.reply_to)
                return Receipt(str(self._number))
            case Edit():
                posted = self.messages.get(op.id)
                if posted is None:
                    raise Gone("message to edit not found")
                if posted.chat != op.where.chat:
                    self.broken.append(f"edit of message {op.id} in another chat")
                self._check(op.content)
                posted.content = op.content
                posted.edits += 1
                return Receipt(str(op.id))
            case Draft():
                self._check(Content(op.body))
                self.drafts[op.id] = op.body
                return Receipt()
            case Delete():
                if self.messages.pop(op.id, None) is None:
                    raise Gone("message to delete not found")
                return Receipt()
            case SendFile():
                self.files.append((op.file.id, op.form))
                self._number += 1
                return Receipt(str(self._number))

    def _check(self, content: Content) -> None:
        body = content.body
        if content.rich is not None:
            return
        entities = [Entity(mark.kind, mark.start, mark.end - mark.start) for mark in body.marks]
        kept, _ = settle_text(body.text, entities, self.broken.append)
        if kept != body.text:
            self.broken.append(f"text with space around it: {body.text!r}")
        if not kept:
            self.broken.append("empty text")
        if utf16_length(kept) > 4096:
            self.broken.append(f"{utf16_length(kept)} units")
        if len(entities) > 100:
            self.broken.append(f"{len(entities)} entities")
        for row in content.keyboard:
            if len(row) > 8 or any(not 1 <= len(button.data.encode()) <= 64 for button in row):
                self.broken.append(f"keyboard {row}")


_FAILURES: dict[Trouble, type[Failure] | _Limited] = {}


class _Limited:
    def __call__(self) -> Failure:
        return RateLimited(3.0, Draw("private", "7"))


_FAILURES.update(
    {
        Trouble.RATE_LIMITED: _Limited(),
        Trouble.TRANSIENT: Transient,
        Trouble.DONE_BUT_UNKNOWN: Unknown,
        Trouble.NOT_DONE_AND_UNKNOWN: Unknown,
        Trouble.REFUSED: Refused,
        Trouble.TOO_LARGE: TooLarge,
        Trouble.CLOSED: Closed,
    }
)

TOKEN = re.compile(r"w\d+w")


def tokens(texts: Iterable[str]) -> list[str]:
    """The words that a test has numbered, in order."""
    return [token for text in texts for token in TOKEN.findall(text)]
