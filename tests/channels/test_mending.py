"""A history that something was broken off in is whole again with what it is given before the next question."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolCall, ToolMessage
from langgraph.graph.message import add_messages
from pydantic import JsonValue, TypeAdapter

from channels.gateway.mending import _BROKEN_OFF, mending, open_calls
from channels.inputs import Break
from channels.model import TurnId
from tests.channels.strict_agent import refuse_open_calls

WIRE: TypeAdapter[JsonValue] = TypeAdapter(JsonValue)


def wire(history: Sequence[AnyMessage]) -> JsonValue:
    """The messages as a gateway's state has them."""
    return WIRE.validate_python([message.model_dump(mode="json") for message in history])


def mended(kept: list[AnyMessage], shown: list[AnyMessage], broken: Break | None = None) -> list[AnyMessage]:
    """What the next run begins with, when the gateway has kept and shows these."""
    question: JsonValue = {"role": "user", "id": "next", "content": "hello"}
    return add_messages(kept, [*mending(wire(shown), broken or Break()), question])  # type: ignore[arg-type, return-value]


def calling(identity: str, *calls: str, text: str = "") -> AIMessage:
    return AIMessage(
        text, id=identity, tool_calls=[ToolCall(name="pay", args={"to": "Bob"}, id=call) for call in calls]
    )


def result(call: str, identity: str) -> ToolMessage:
    return ToolMessage(f"paid {identity}", tool_call_id=call, id=identity, name="pay", artifact={"a": 1})


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[AnyMessage], list[AnyMessage]]:
    """What a gateway has kept of a history, and what it shows; calls are numbered anew or through."""
    history: list[AnyMessage] = []
    numbered_anew = draw(st.booleans())
    last: list[AnyMessage] = []
    for turn in range(draw(st.integers(1, 5))):
        history.append(HumanMessage(f"question {turn}", id=f"h{turn}"))
        calls = [f"c{n}" if numbered_anew else f"c{turn}-{n}" for n in range(draw(st.integers(0, 3)))]
        history.append(
            calling(f"a{turn}", *calls, text=draw(st.sampled_from(["", "Let me see."])) if calls else "Yes.")
        )
        done = draw(st.sets(st.sampled_from(calls))) if calls else set()
        last = [result(call, f"r{turn}-{call}") for call in calls if call in done]
        history += last
    lost = draw(st.integers(0, len(last))) if len(last) < len(calls) else 0
    return history[: len(history) - lost], history


@given(histories())
def test_the_next_run_begins_with_a_whole_history(given_: tuple[list[AnyMessage], list[AnyMessage]]) -> None:
    kept, shown = given_
    after = mended(kept, shown)
    refuse_open_calls(after)
    assert after[-1].id == "next"
    known = [message for message in shown if not isinstance(message, AIMessage)]
    assert [message for message in after if message in known] == known
    assert [text for text in texts_of(after) if text != _BROKEN_OFF] == texts_of(shown)


def texts_of(history: Sequence[AnyMessage]) -> list[str]:
    return [message.text for message in history if isinstance(message, AIMessage) and message.text]


def test_a_whole_history_needs_nothing() -> None:
    history: list[AnyMessage] = [
        HumanMessage("q", id="h"),
        calling("a", "c1", "c2"),
        result("c2", "r2"),
        result("c1", "r1"),
    ]
    assert mending(wire(history)) == []
    assert mending(wire([*history, AIMessage("Done.", id="b")])) == []
    assert open_calls(wire(history)) == ()


def test_a_result_that_comes_later_than_the_next_message_is_one() -> None:
    history: list[AnyMessage] = [calling("a", "c1"), HumanMessage("meanwhile", id="h"), result("c1", "r1")]
    assert mending(wire(history)) == []


def test_what_a_result_had_beside_its_text_is_kept() -> None:
    shown: list[AnyMessage] = [calling("a", "c1", "c2"), result("c1", "r1")]
    after = mended(shown[:1], shown)
    assert after[1] == shown[1]


def test_what_was_said_before_a_stop_is_in_the_history() -> None:
    history: list[AnyMessage] = [HumanMessage("count", id="turn-t1")]
    after = mended(history, history, Break(TurnId("t1"), "One, two"))
    assert [(message.type, message.text) for message in after] == [
        ("human", "count"),
        ("ai", f"One, two\n\n{_BROKEN_OFF}"),
        ("human", "hello"),
    ]
    answered: list[AnyMessage] = [*history, AIMessage("One, two", id="a")]
    assert mending(wire(answered), Break(TurnId("t1"), "One, two")) == []
    assert mending(wire(history), Break(TurnId("t2"), "One, two")) == []


def test_a_message_that_says_nothing_says_so() -> None:
    history: list[AnyMessage] = [HumanMessage("q", id="h"), AIMessage("", id="a")]
    assert [message.text for message in mended(history, history)] == ["q", "(No answer.)", "hello"]


def test_a_message_that_has_its_say_elsewhere_is_left_alone() -> None:
    calls = {"function_call": {"name": "pay", "arguments": "{}"}}
    assert mending(wire([HumanMessage("q", id="h"), AIMessage("", id="a", additional_kwargs=calls)])) == []


@pytest.mark.parametrize("failed", [False, True])
def test_files_that_an_agent_failed_at_are_taken_out_of_the_history(failed: bool) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    history: list[AnyMessage] = [HumanMessage([{"type": "text", "text": "look"}, picture], id="turn-t1")]
    after = mended(history, history, Break(TurnId("t1"), failed=failed))
    assert len(after) == 2
    assert after[0].text.startswith("look")
    assert ("aGk=" in str(after[0].content)) is not failed


@pytest.mark.parametrize("state", [None, {}, [], ["x", 1, None], [{"type": "ai"}], [{"type": "tool", "content": "x"}]])
def test_what_is_no_history_needs_nothing(state: JsonValue) -> None:
    assert mending(state) == []


def test_calls_in_the_older_form_are_known() -> None:
    kwargs = calling("a", "c1").model_dump(mode="json")
    constructed: JsonValue = {"lc": 1, "type": "constructor", "id": ["x", "AIMessage"], "kwargs": kwargs}
    (given_,) = mending([constructed])
    assert isinstance(given_, dict)
    assert given_["tool_call_id"] == "c1"
