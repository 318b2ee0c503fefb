"""The tool results with which a run ended, when no model has spoken after them: then they are the answer.

So it is with tools that answer directly (`return_direct`), and with structured output.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pydantic import JsonValue

from channels.model import Segment
from channels.transcript.file_blocks import FileBlock
from channels.transcript.messages import Message, Role
from channels.transcript.steps import SHOWN_OTHERWISE

_STRUCTURED = "structured-response"


class FinalResults:
    """Told of the messages that the state takes in, in their order. A result without a visible call is none."""

    def __init__(self) -> None:
        self._calls: set[str] = set()
        self._results: dict[str, Message] = {}
        self._structured: JsonValue = None

    def take(self, message: Message) -> None:
        """One more message; what an assistant says makes the results before it something it has made use of."""
        if message.hidden:
            return
        if message.role is Role.ASSISTANT:
            self._results = {}
            self._calls.update(call.id for call in message.calls if call.id)
        elif message.call_id in self._calls and not message.failed and message.name not in SHOWN_OTHERWISE:
            self._results[message.call_id] = message

    def put(self, messages: Sequence[Message], mine: Sequence[Message]) -> None:
        """All messages of the state, and this turn's of them: a call may have been made before a question."""
        for message in messages:
            self.take(message)
        self._results = {}
        for message in mine:
            self.take(message)

    def structured(self, value: JsonValue) -> None:
        """What the run has written into the state as its structured response; None: nothing."""
        self._structured = value or self._structured

    @property
    def files(self) -> Iterator[tuple[str, FileBlock]]:
        """The files in the results, each with the id of its message."""
        return ((message.id, file) for message in self._results.values() for file in message.files if message.id)

    def after(self, body: tuple[Segment, ...]) -> tuple[Segment, ...]:
        """The body with the results as the answer; as it was when there are none."""
        answer = [
            Segment(message.id or identity, message.text)
            for identity, message in self._results.items()
            if message.text.strip()
        ]
        if not answer and self._structured is not None and not any(segment.is_answer for segment in body):
            answer = [Segment(_STRUCTURED, _as_code(self._structured))]
        if not answer:
            return body
        return (*(replace(segment, is_answer=False) for segment in body), *answer)


def _as_code(value: JsonValue) -> str:
    try:
        return f"```json\n{json.dumps(value, ensure_ascii=False, indent=2)}\n```"
    except RecursionError:
        return "```json\n…\n```"
