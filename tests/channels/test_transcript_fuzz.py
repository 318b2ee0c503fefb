"""Whatever comes, the transcript does not raise and does not show what is hidden."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from channels.model import Phase
from channels.transcript import Transcript
from channels.transcript.stream_events import StreamEvent

SECRET = "S3CRET"
NAMES = [
    "messages", "messages-tuple", "messages|child:1", "messages/partial", "updates", "updates|child:1", "values",
    "custom", "error", "gap", "end", "metadata", "heartbeat", "", "surprise", "bridge-malformed",
]  # fmt: skip
KEYS = [
    "messages", "content", "type", "id", "role", "text", "tool_calls", "tool_call_chunks", "additional_kwargs", "name",
    "usage_metadata", "__interrupt__", "value", "task_id", "todos", "artifacts", "args", "index", "action_requests",
    "run_id", "kwargs", "lc", "status", "tool_call_id", "options",
]  # fmt: skip
WORDS = [
    "ai",
    "AIMessageChunk",
    "tool",
    "human",
    "remove",
    "constructor",
    "task_started",
    "text",
    "thinking",
    "a",
    "",
    "<think>",
]

scalars = st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(WORDS) | st.text(max_size=5)
anything: st.SearchStrategy[JsonValue] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=12,
)
events = st.builds(StreamEvent.of, st.sampled_from(NAMES), anything)
phases = st.sampled_from([Phase.DONE, Phase.ASKING, Phase.STOPPED, Phase.FAILED])


@settings(max_examples=300, deadline=None)
@given(sequence=st.lists(events, max_size=8), phase=phases, values=anything)
def test_no_sequence_of_events_raises(sequence: list[StreamEvent], phase: Phase, values: JsonValue) -> None:
    transcript = Transcript()
    for event in sequence:
        transcript.feed(event, 1.0)
        transcript.view(1.0)
    transcript.missed()
    transcript.reconcile(values if isinstance(values, dict) else {}, 1.0, interrupts=values)
    assert transcript.interrupts is not None
    assert transcript.finish(phase, 2.0).phase is phase


def _hidden() -> st.SearchStrategy[StreamEvent]:
    """Messages that must not be shown, in the shapes in which gateways send them."""
    hide: JsonValue = {"hide_from_ui": True}
    fallback: JsonValue = {"deerflow_error_fallback": True}
    messages: list[JsonValue] = [
        {"type": "human", "content": SECRET, "id": "h"},
        {"type": "system", "content": SECRET, "id": "s"},
        {"type": "tool", "content": SECRET, "id": "t", "tool_call_id": "c", "name": "look"},
        {"type": "AIMessageChunk", "content": SECRET, "id": "x", "additional_kwargs": hide},
        {"type": "ai", "content": SECRET, "id": "x", "additional_kwargs": hide},
        {"type": "ai", "content": SECRET, "id": "f", "additional_kwargs": fallback},
        {"type": "AIMessageChunk", "content": f"<think>{SECRET}</think>", "id": "k"},
        {"type": "AIMessageChunk", "content": [{"type": "thinking", "thinking": SECRET}], "id": "b"},
        {"role": "developer", "content": SECRET},
    ]
    side: JsonValue = {"langgraph_node": "title", "tags": ["nostream"]}
    said: JsonValue = {"type": "AIMessageChunk", "content": SECRET, "id": "side"}
    shapes: list[StreamEvent] = [StreamEvent.of("messages", [said, side])]
    for message in messages:
        shapes.append(StreamEvent.of("messages", [message, {"langgraph_node": "model"}]))
        shapes.append(StreamEvent.of("messages-tuple", message))
        shapes.append(StreamEvent.of("updates", {"model": {"messages": [message]}}))
    nested: JsonValue = {"type": "AIMessageChunk", "content": SECRET, "id": "n"}
    shapes.append(StreamEvent.of("messages|child:1", [nested, {"langgraph_node": "model"}]))
    return st.sampled_from(shapes)


def _spoken(message: str) -> st.SearchStrategy[StreamEvent]:
    piece: JsonValue = {"type": "AIMessageChunk", "content": "ok ", "id": message}
    return st.just(StreamEvent.of("messages", [piece, {"langgraph_node": "model"}]))


@settings(max_examples=200, deadline=None)
@given(
    sequence=st.lists(_hidden() | _spoken("m1") | _spoken("m2") | st.just(StreamEvent.of("metadata", {"run_id": "r"}))),
    phase=phases,
)
def test_no_sequence_of_events_shows_a_hidden_text(sequence: list[StreamEvent], phase: Phase) -> None:
    # What a sub-graph said last belongs to its question.
    assume(phase is not Phase.ASKING or not any(event.namespace for event in sequence))
    transcript = Transcript()
    for event in sequence:
        transcript.feed(event, 1.0)
        assert SECRET not in transcript.view(1.0).text
    assert SECRET not in transcript.finish(phase, 2.0).text
