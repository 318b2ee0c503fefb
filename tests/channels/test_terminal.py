"""What `channel-bridge chat` makes of what is typed at a question."""

from __future__ import annotations

import pytest
from pydantic import JsonValue

from channels import terminal
from channels.gateway import Gateway, Patience, RunEnd, sentences
from channels.inputs import Ask, Break, Resume
from channels.model import Phase, Sender, View
from channels.questions import LEFT_NOTICE, Interrupt, breakpoint_question, open_questions
from channels.transcript.messages import ToolCall
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
    assert given == decisions
    assert capsys.readouterr().err.count("This takes an explicit word.") == 3


async def test_who_does_not_want_the_graph_to_go_on_asks_something_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Ask | Resume] = []
    stops = RunEnd(View(Phase.ASKING), (breakpoint_question(["tools"], [ToolCall("c1", "pay", {})]),))

    async def ask(question: Ask | Resume) -> RunEnd:
        asked.append(question)
        away = RunEnd(View(Phase.FAILED), leaves_a_break=True)
        return {1: stops, 2: away}.get(len(asked), RunEnd(View(Phase.DONE)))

    gateway = gateway_at("http://127.0.0.1:9")
    monkeypatch.setattr(terminal, "_Lines", lambda: Typed("pay", "hm", "no", "hello", "hello again", "bye"))
    conversation = terminal._Conversation(gateway, "agent")
    monkeypatch.setattr(conversation, "_ask", ask)
    await conversation._talk()
    await gateway.aclose()
    assert [question.text for question in asked if isinstance(question, Ask)] == [
        "pay",
        "hello",
        "hello again",
        "bye",
    ]
    after = [question.after for question in asked if isinstance(question, Ask)]
    assert after == [None, Break(), Break(failed=True), None]
    assert LEFT_NOTICE in capsys.readouterr().err


async def test_who_leaves_at_a_question_has_answered_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await answered("no", monkeypatch=monkeypatch) is None
    assert await answered("approve", monkeypatch=monkeypatch) is None


async def test_who_waits_for_an_agent_that_is_away_is_told_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway = gateway_at("http://127.0.0.1:9", patience=Patience(start=30.0))
    monkeypatch.setattr(terminal, "_Lines", Typed)
    try:
        await terminal._Conversation(gateway, "agent")._ask(Ask("hi", Sender("terminal")))
    finally:
        await gateway.aclose()
    told = capsys.readouterr().err
    assert told.count(sentences.UNREACHABLE) == 1
    assert told.endswith(f"{sentences.STILL_UNREACHABLE}\n")
