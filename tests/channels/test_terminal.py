"""What `channel-bridge chat` makes of what is typed at a question."""

from __future__ import annotations

import pytest
from pydantic import JsonValue

from channels import terminal
from channels.gateway import Gateway
from channels.inputs import Resume
from channels.questions import Interrupt, open_questions
from tests.gateway.turns import gateway_at

REVIEW: JsonValue = {
    "action_requests": [{"name": "pay"}, {"name": "tell"}],
    "review_configs": [{"action_name": "pay", "allowed_decisions": ["approve"]}, {"action_name": "tell"}],
}


class Typed:
    """Lines that somebody has typed already."""

    def __init__(self, *lines: str) -> None:
        self._lines = iter(lines)

    async def next(self) -> str | None:
        return next(self._lines, None)


async def answered(*lines: str, monkeypatch: pytest.MonkeyPatch) -> object:
    gateway: Gateway = gateway_at("http://127.0.0.1:9")
    questions: tuple[Interrupt, ...] = open_questions([{"id": "i", "value": REVIEW}])
    try:
        monkeypatch.setattr(terminal, "_Lines", lambda: Typed(*lines[1:]))
        return await terminal._Conversation(gateway, "agent")._answers(questions, lines[0])
    finally:
        await gateway.aclose()


async def test_what_is_no_answer_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = await answered("no", "yes?", "approve", "why?", "reject: later", monkeypatch=monkeypatch)
    decisions: JsonValue = [{"type": "approve"}, {"type": "reject", "message": "reject: later"}]
    assert given == Resume({"i": {"decisions": decisions}})
    assert capsys.readouterr().err.count("This takes an explicit word.") == 3


async def test_who_leaves_at_a_question_has_answered_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await answered("no", monkeypatch=monkeypatch) is None
    assert await answered("approve", monkeypatch=monkeypatch) is None
