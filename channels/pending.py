"""The open question of a conversation: what the gateway waits for, and the message in which a reader sees it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Self

import structlog
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from channels.inputs import Ask, Resume
from channels.model import Inbound, Phase, Sender, TurnId
from channels.questions import Interrupt, InterruptKind, next_input
from channels.store import Store
from channels.store.records import Lease, StoreError, Turn

log = structlog.get_logger(__name__)

_CLOCKS_DIFFER = 2.0
"""Seconds by which a platform's clock may be behind: Telegram's dates are whole seconds, and no two clocks agree."""


class Pending(BaseModel):
    """What the gateway waits for, and what is answered so far; as JSON in the conversation's record.

    `turn` is the one whose message shows the question that is open now, `asked_at` since when a reader may have seen
    it there, in seconds since the epoch; None: nobody has yet.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    turn: TurnId
    interrupts: tuple[Interrupt, ...]
    asked_at: float | None = 0.0
    answers: tuple[JsonValue, ...] = ()

    @classmethod
    def load(cls, stored: JsonValue) -> Self | None:
        """The open question in a stored record; None when there is none that this version understands."""
        if stored is None:
            return None
        try:
            pending = cls.model_validate(stored)
        except ValidationError:
            log.error("the stored question is unreadable; the next message starts a new run")
            return None
        return None if pending.is_answered else pending

    @classmethod
    def left_by(cls, stored: JsonValue) -> TurnId | None:
        """The turn that a stored record is of; None: there is none, or nobody can say."""
        try:
            return cls.model_validate(stored).turn
        except ValidationError:
            return None

    @classmethod
    def after_a_break(cls, turn: TurnId) -> Self:
        """Nothing is asked, but the thread is as something left it that did not come to its end: a stop, a failure, a
        question that nobody answers any more. `turn` left it so."""
        return cls(turn=turn, interrupts=())

    @property
    def current(self) -> Interrupt:
        """The question that is open now; several are asked one after the other."""
        return self.interrupts[len(self.answers)]

    @property
    def is_answered(self) -> bool:
        """Whether nothing is open any more."""
        return len(self.answers) >= len(self.interrupts)

    @property
    def takes_files(self) -> bool:
        """Whether files that come with the next answer reach the agent: only where that is a message of its own."""
        is_last = len(self.answers) == len(self.interrupts) - 1
        return is_last and any(interrupt.kind is InterruptKind.MESSAGE for interrupt in self.interrupts)

    def was_asked_before(self, said: Inbound) -> bool:
        """Whether what somebody wrote can be an answer: the question has to be there first."""
        if self.asked_at is None:
            return False
        was_sent_after = said.sent_at is None or said.sent_at > self.asked_at - _CLOCKS_DIFFER
        return said.received_at > self.asked_at and was_sent_after

    def with_answer(self, answer: JsonValue, turn: TurnId) -> Self:
        """After an answer to the current question; `turn` is the one that asks the next, if there is one."""
        return self.model_copy(update={"answers": (*self.answers, answer), "turn": turn, "asked_at": None})

    def seen_at(self, moment: float) -> Self:
        """The question can be read since then; asked again, it could already before."""
        return self if self.asked_at is not None else self.model_copy(update={"asked_at": moment})

    def asked_again(self, turn: TurnId) -> Self:
        """The same question, which `turn` shows from now on."""
        return self.model_copy(update={"turn": turn})

    def next_input(self, sender: Sender) -> Ask | Resume | None:
        """What the run that goes on is given, once everything is answered; None (`LEFT_NOTICE`): nothing."""
        return next_input(self.interrupts, self.answers, sender=sender)


async def close_question(
    store: Store, lease: Lease, carry: Callable[[Turn], None], turn: TurnId, *, answer: str | None = None, why: str = ""
) -> None:
    """Take the buttons off the question that `turn` shows, unless it is answered; `why` says so if not by an `answer`.

    Only cosmetic: a store that is away just now is no reason to lose an answer.
    """
    with suppress(StoreError):
        asked = await store.turn(turn)
        view = asked.final if asked is not None else None
        if view is None or view.question is None or view.question.answer is not None:
            return
        if answer is not None:
            question = replace(view.question, answer=answer)
        else:
            question = replace(view.question, options=(), free_text=False)
        closed = replace(view, phase=Phase.DONE, question=question, notice=why or view.notice)
        changed = await store.retouch(lease, turn, closed)
        if changed is not None:
            carry(changed)
