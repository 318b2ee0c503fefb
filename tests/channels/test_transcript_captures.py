"""What real servers sent, replayed: the text is the recorded state's, whatever of it was hidden, nested or thought."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from pydantic import JsonValue

from channels.model import Phase, StepState, Usage
from channels.shapes import as_list, as_object
from channels.transcript import Transcript
from channels.transcript.messages import Message, Role, read_message
from channels.transcript.stream_events import EventKind, StreamEvent
from tests.channels.captures import CAPTURES, STREAMS, body_of, events_in

HELLO = "Hello from the fake model, 你好 世界 🌍 — this text streams token by token so that a client can throttle it."
CANCELLED = "langgraph-api/20-cancel-interrupt-stream.sse"
UNSTATED: dict[str, list[str]] = {
    "langgraph-api/04-agent-tuple-only.sse": [HELLO],
    "langgraph-api/40-interrupt-messages-tuple-only.sse": [],
    "langgraph-api/80-replay-of-failed-run.sse": ["tok0 tok1 tok2 tok3 "],
    "langgraph-api/30-multitask-reject-second.sse": [],
    "deerflow/30-multitask-reject-second.sse": [],
    "deerflow/40-resume-last-event-id.sse": [HELLO.partition("世界 ")[2] + " Hello from the fake model, "],
    "deerflow/41-gap.sse": [],
    "deerflow/45-join-60s-after-end.sse": [],
    "deerflow/46-heartbeat.sse": ["woke up"],
}
"""Captures that hold no state, with what was said in them."""

ENDED = [name for name in STREAMS if name not in UNSTATED and name != CANCELLED]
"""The captures that hold the state as it was recorded at the end."""

SUBGRAPH_TEXT = "inner subgraph speaks here"


def replay(name: str, *, without: frozenset[EventKind] = frozenset(), size: int = 4096) -> Transcript:
    transcript = Transcript()
    for event in events_in(body_of(name), size):
        if event.kind not in without:
            transcript.feed(event, 1.0)
    return transcript


def recorded(name: str) -> list[str]:
    """The assistant texts of the last recorded state, after the question."""
    values = [event for event in events_in(body_of(name)) if event.kind is EventKind.VALUES and not event.namespace]
    messages = [message for item in _messages(values[-1]) if (message := read_message(item)) is not None]
    texts: list[str] = []
    for message in messages:
        if message.role is Role.HUMAN and not message.hidden:
            texts = []
        elif _is_shown(message):
            texts.append(message.text)
    return texts


def _messages(event: StreamEvent) -> Sequence[JsonValue]:
    return as_list(as_object(event.data).get("messages"))


def _is_shown(message: Message) -> bool:
    spoken = message.role is Role.ASSISTANT and bool(message.text)
    return spoken and not message.error_fallback and message.text != SUBGRAPH_TEXT


def finished(transcript: Transcript, phase: Phase | None = None) -> list[str]:
    if phase is None:
        phase = Phase.FAILED if transcript.failure else Phase.ASKING if transcript.interrupts else Phase.DONE
    return [segment.text for segment in transcript.finish(phase, 2.0).body]


@pytest.mark.parametrize("without", [frozenset(), frozenset({EventKind.VALUES})], ids=["all", "as subscribed"])
@pytest.mark.parametrize("name", ENDED)
def test_the_text_is_the_recorded_states(name: str, without: frozenset[EventKind]) -> None:
    transcript = replay(name, without=without)
    partial = ["tok0 tok1 tok2 tok3 "] if "08-boom" in name else ["tok0 tok1 "] if "06-boom" in name else []
    assert finished(transcript) == recorded(name) + partial
    assert transcript.malformed == 0
    assert transcript.unknown == 0


@pytest.mark.parametrize("name", UNSTATED)
def test_a_stream_without_a_state_gives_what_was_said(name: str) -> None:
    assert finished(replay(name)) == UNSTATED[name]


def test_a_cancelled_run_keeps_what_the_state_never_got() -> None:
    assert recorded(CANCELLED) == []
    (said,) = finished(replay(CANCELLED), Phase.STOPPED)
    assert HELLO.startswith(said)
    assert len(said) > 40


@pytest.mark.parametrize("size", [1, 7, 100_000])
@pytest.mark.parametrize("name", ["deerflow/03-tool.sse", "aegra/05-tools.sse", "langgraph-api/06-reasoning.sse"])
def test_the_sizes_in_which_bytes_arrive_make_no_difference(name: str, size: int) -> None:
    assert finished(replay(name, size=size)) == finished(replay(name))


@pytest.mark.parametrize("server", ["langgraph-api", "aegra"])
def test_tools_and_usage(server: str) -> None:
    view = replay(f"{server}/05-tools.sse").finish(Phase.DONE, 2.0)
    assert [(segment.text, segment.is_answer) for segment in view.body] == [
        ("Let me check. ", False),
        ("It is sunny in Paris.", True),
    ]
    step = view.steps[0]
    assert (step.title, step.detail, step.state) == ("get_weather", "Paris", StepState.DONE)
    assert view.usage == Usage(41, 13)


def test_reasoning_in_blocks_and_beside_the_content_is_kept_apart() -> None:
    view = replay("langgraph-api/06-reasoning.sse").finish(Phase.DONE, 2.0)
    assert [segment.text for segment in view.body] == ["Answer: 42", "Done thinking."]
    assert view.reasoning == "The user wants X.\n\nThink hard."


@pytest.mark.parametrize("server", ["langgraph-api", "aegra"])
def test_an_interrupt_becomes_a_question_with_its_options(server: str) -> None:
    question = replay(f"{server}/07a-interrupt.sse", without=frozenset({EventKind.VALUES})).interrupts[0].question
    assert question.text == "Approve the payment?"
    assert [option.label for option in question.options] == ["yes", "no"]


def test_an_interrupt_unseen_in_the_stream_is_found_in_the_state() -> None:
    transcript = replay("langgraph-api/40-interrupt-messages-tuple-only.sse")
    assert not transcript.interrupts
    state = as_object(json.loads((CAPTURES / "langgraph-api/07b-state-while-interrupted.json").read_text()))
    task = as_object(as_list(state["tasks"])[0])
    transcript.reconcile(as_object(state["values"]), 1.0, interrupts=task["interrupts"])
    assert [interrupt.text for interrupt in transcript.interrupts] == ["Approve the payment?"]


def test_deerflows_clarification_becomes_a_question() -> None:
    transcript = replay("deerflow/05-clarify.sse", without=frozenset({EventKind.VALUES}))
    assert [interrupt.text for interrupt in transcript.interrupts] == ["Which city?"]
    assert transcript.finish(Phase.ASKING, 2.0).steps == ()


def test_deerflows_error_fallback_is_a_failure_and_no_text() -> None:
    transcript = replay("deerflow/06-boom.sse")
    assert "exploded" in transcript.failure
    assert transcript.finish(Phase.FAILED, 2.0).text == "tok0 tok1 "


def test_a_subgraph_speaks_as_a_step() -> None:
    view = replay("langgraph-api/10-sub-subgraphs.sse").finish(Phase.DONE, 2.0)
    assert view.text == "outer speaks"
    assert [(step.title, step.detail) for step in view.steps] == [("child", SUBGRAPH_TEXT)]


@pytest.mark.parametrize("name", ENDED)
def test_no_prefix_of_a_stream_shows_the_question_or_a_system_message(name: str) -> None:
    transcript = Transcript()
    for event in events_in(body_of(name)):
        transcript.feed(event, 1.0)
        text = transcript.view(1.0).text
        assert "system-reminder" not in text
        assert "CMD:" not in text
        assert "LLM request failed" not in text
        assert not text.startswith("hi")
