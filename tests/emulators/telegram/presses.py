"""Button presses: each must be answered, once, in time; until then the person's button keeps spinning."""

from __future__ import annotations

from dataclasses import dataclass

from tests.emulators.telegram.backend import Backend, Method
from tests.emulators.telegram.errors import QUERY_TOO_OLD, bad_request
from tests.emulators.telegram.text import utf16_length
from tests.emulators.telegram.updates import PendingUpdate
from tests.emulators.telegram.wire import Params
from tests.emulators.telegram.world import Person


@dataclass(slots=True)
class Press:
    """One press of a button; `answer` is the toast the person saw (None: not answered yet)."""

    id: str
    chat_id: int
    message_id: int
    person: Person
    data: str
    at: float
    handed_at: float | None = None
    answer: str | None = None
    as_alert: bool = False
    overdue: bool = False


class Presses:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.all: dict[str, Press] = {}

    def methods(self) -> dict[str, Method]:
        return {"answerCallbackQuery": self.answer}

    def handed(self, update: PendingUpdate) -> None:
        """The time to answer runs from when the bot first got the press."""
        if update.kind == "callback_query":
            press = self.all.get(str(update.payload["id"]))
            if press is not None and press.handed_at is None:
                press.handed_at = self._backend.clock.now()

    def sweep(self) -> None:
        """Note, once each, the presses whose time to be answered has passed."""
        for press in self.all.values():
            if press.answer is None and not press.overdue and self._is_late(press):
                press.overdue = True
                if self._backend.checks.unanswered_presses:
                    self._backend.break_rule(
                        f"press {press.data!r} not answered in {self._backend.limits.callback_seconds:g} s"
                    )

    def answer(self, params: Params) -> bool:
        self.sweep()
        query_id = params.text("callback_query_id")
        text = params.text("text")
        limit = self._backend.limits.callback_answer_units
        if utf16_length(text) > limit:
            raise bad_request(
                "MESSAGE_TOO_LONG", rule=f"callback answer of {utf16_length(text)} characters (limit {limit})"
            )
        press = self.all.get(query_id)
        if press is None:
            raise bad_request(QUERY_TOO_OLD, rule=f"answer to unknown press {query_id}")
        if press.answer is not None:
            raise bad_request(QUERY_TOO_OLD, rule=f"press {press.data!r} answered twice")
        if self._is_late(press):
            raise bad_request(QUERY_TOO_OLD)  # noted as overdue already
        press.answer, press.as_alert = text, params.flag("show_alert")
        return True

    def _is_late(self, press: Press) -> bool:
        since = press.handed_at
        return since is not None and self._backend.clock.now() > since + self._backend.limits.callback_seconds
