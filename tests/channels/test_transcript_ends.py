"""What a run ends with: a tool's answer, structured output, a cut answer, calls that came to nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, InvalidToolCall, ToolCall, ToolMessage
from langgraph.graph import START, MessagesState, StateGraph
from pydantic import JsonValue

from channels.gateway import sentences
from channels.model import Phase, StepState, View
from channels.transcript import Transcript
from channels.transcript.messages import Ending
from channels.transcript.stream_events import StreamEvent
from tests.channels.strict_agent import room_with, said
from tests.channels.test_core import Room
from tests.channels.test_transcript import NOW, Json, fed, meta, streamed, updated, whole

CALL: Json = {"id": "c1", "name": "lookup", "args": {"q": "17"}}
SHIPPED = "Order 17 was shipped on Monday."


def result(text: JsonValue = SHIPPED, call: str = "c1", **more: JsonValue) -> Json:
    return {"type": "tool", "content": text, "id": f"result-{call}", "tool_call_id": call, "name": "lookup", **more}


def human(text: str = "question", identity: str = "q1") -> Json:
    return {"type": "human", "content": text, "id": identity}


def told(*messages: JsonValue) -> Transcript:
    """What comes of messages that are streamed whole and then become part of the state, one after the other."""
    transcript = Transcript()
    for message in messages:
        fed(StreamEvent.of("messages", [message, meta()]), updated(message), transcript=transcript)
    return transcript


def done(transcript: Transcript) -> View:
    return transcript.finish(Phase.DONE, NOW)


def shown(view: View) -> list[tuple[str, bool]]:
    return [(segment.text, segment.is_answer) for segment in view.body]


# ---------------------------------------------------------------- a tool has the last word


@pytest.mark.parametrize("lead", ["", "Let me look that up."])
def test_the_result_that_a_run_ends_with_is_the_answer(lead: str) -> None:
    transcript = told(whole(lead, tool_calls=[CALL]), result())
    assert shown(done(transcript)) == [*([(lead, False)] if lead else []), (SHIPPED, True)]


def test_it_is_the_answer_only_once_the_run_is_over() -> None:
    transcript = told(whole("", tool_calls=[CALL]), result())
    assert not transcript.view(NOW).body
    for phase in (Phase.STOPPED, Phase.FAILED, Phase.ASKING):
        assert not transcript.finish(phase, NOW).body


def test_the_state_tells_the_result_as_well_and_only_that_of_this_turn() -> None:
    transcript = Transcript()
    transcript.expect(question_id="q2")
    before: list[JsonValue] = [human(), whole("", "m0", tool_calls=[{**CALL, "id": "c0"}]), result("old", "c0")]
    transcript.reconcile({"messages": [*before, human(identity="q2"), whole("", tool_calls=[CALL]), result()]}, NOW)
    assert shown(done(transcript)) == [(SHIPPED, True)]
    transcript.reconcile({"messages": [*before, human(identity="q2")]}, NOW)
    assert not done(transcript).body


def test_a_state_that_cannot_be_this_runs_brings_no_result() -> None:
    transcript = Transcript()
    transcript.expect(question_id="q1")
    state: Json = {"messages": [human(), whole("", tool_calls=[CALL]), result()]}
    transcript.reconcile(state, NOW, unheard=False)
    assert not done(transcript).body


@pytest.mark.parametrize("words", ["", "It was shipped."])
def test_a_result_that_the_model_has_taken_in_is_no_answer(words: str) -> None:
    transcript = told(whole("", tool_calls=[CALL]), result(), whole(words, "m2"))
    assert shown(done(transcript)) == ([(words, True)] if words else [])


def test_a_result_without_a_visible_call_is_no_answer() -> None:
    hide: JsonValue = {"hide_from_ui": True}
    another, hidden = whole("", tool_calls=[{**CALL, "id": "c0"}]), whole("", tool_calls=[CALL], additional_kwargs=hide)
    for before in ([], [another], [hidden]):
        assert not done(told(*before, result())).body


def test_the_result_of_a_call_that_a_question_was_asked_about_is_the_answer() -> None:
    transcript = Transcript()
    transcript.expect(heard=("q1", "m1"))
    fed(updated(result()), transcript=transcript)
    transcript.reconcile({"messages": [human(), whole("", tool_calls=[CALL]), result()]}, NOW, by_us=True)
    assert shown(done(transcript)) == [(SHIPPED, True)]


def test_a_failed_result_and_the_bookkeeping_of_todos_are_no_answers() -> None:
    for last in (result("no such order", status="error"), {**result("Updated"), "name": "write_todos"}):
        assert not done(told(whole("", tool_calls=[CALL]), last)).body


def test_a_late_result_beside_an_answer_does_not_replace_it() -> None:
    transcript = told(whole("", tool_calls=[CALL]), whole("It was shipped.", "m2"), result())
    assert shown(done(transcript)) == [("It was shipped.", True)]


def test_all_results_of_parallel_calls_are_the_answer_and_so_are_their_pictures() -> None:
    picture: JsonValue = [{"type": "image", "base64": "aGk=", "mime_type": "image/png"}]
    calls: list[JsonValue] = [{**CALL, "id": f"c{number}"} for number in (1, 2, 3)]
    results = result(), result("Order 18 is lost.", "c2"), result(picture, "c3")
    view = done(told(whole("", tool_calls=calls), *results))
    assert shown(view) == [(SHIPPED, True), ("Order 18 is lost.", True)]
    assert [file.mime for file in view.files] == ["image/png"]
    assert view.files[0].reference["message"] == "result-c3"


def test_a_structured_response_is_the_answer_where_there_is_no_other() -> None:
    weather: JsonValue = {"city": "Zürich", "degrees": 12}
    (segment,) = done(fed(updated(structured_response=weather))).body
    assert segment.text == '```json\n{\n  "city": "Zürich",\n  "degrees": 12\n}\n```'
    assert segment.is_answer
    answered = fed(updated(structured_response=weather), transcript=told(whole("12 degrees.")))
    assert shown(done(answered)) == [("12 degrees.", True)]


# ---------------------------------------------------------------- calls that came to nothing


def test_a_call_with_unreadable_arguments_is_a_call_that_failed() -> None:
    invalid: JsonValue = [
        {"type": "invalid_tool_call", "id": "c1", "name": "lookup", "args": '{"q": "a', "error": None}
    ]
    transcript = told(whole("I will look.", invalid_tool_calls=invalid))
    view = done(transcript)
    assert [(step.id, step.title, step.state) for step in view.steps] == [("c1", "lookup", StepState.FAILED)]
    assert shown(view) == [("I will look.", False)]
    assert transcript.has_open_calls


def test_a_call_that_is_told_as_valid_and_as_invalid_is_one() -> None:
    invalid: JsonValue = [{"id": "c1", "name": "lookup", "args": "{"}, {"id": None, "name": "lookup", "args": "{"}]
    view = done(told(whole("", tool_calls=[CALL], invalid_tool_calls=invalid)))
    assert [(step.id, step.detail) for step in view.steps] == [("c1", "17")]


def test_calls_without_a_result_have_failed_and_the_others_are_done() -> None:
    transcript = told(whole("", tool_calls=[CALL, {**CALL, "id": "c2"}]), result(), whole("Half of it.", "m2"))
    assert transcript.has_open_calls
    assert {step.id: step.state for step in done(transcript).steps} == {"c1": StepState.DONE, "c2": StepState.FAILED}


def test_a_call_stays_pending_while_a_question_is_open() -> None:
    transcript = told(whole("", tool_calls=[CALL]))
    assert [step.state for step in transcript.finish(Phase.ASKING, NOW).steps] == [StepState.PENDING]


def test_a_call_that_never_became_part_of_the_state_is_not_open() -> None:
    piece: JsonValue = [{"index": 0, "id": "c9", "name": "Route", "args": "{}"}]
    transcript = fed(streamed("", "side", tool_call_chunks=piece), transcript=told(whole("Hello")))
    assert not transcript.has_open_calls
    assert [step.state for step in done(transcript).steps] == [StepState.DONE]


def test_calls_that_are_numbered_anew_in_each_message_are_told_apart() -> None:
    first: list[JsonValue] = [whole("", "m1", tool_calls=[CALL]), {**result(), "id": "r1"}]
    second: list[JsonValue] = [whole("", "m2", tool_calls=[CALL]), {**result(), "id": "r2"}]
    assert told(*first, second[0]).has_open_calls
    assert not told(*first, *second).has_open_calls
    repeated = fed(updated(*first, second[0]), transcript=told(*first, second[0]))
    assert repeated.has_open_calls


def test_a_removed_message_leaves_no_open_call() -> None:
    gone: Json = {"type": "remove", "id": "m1", "content": ""}
    assert not told(whole("", tool_calls=[CALL]), gone).has_open_calls


# ---------------------------------------------------------------- cut answers


@pytest.mark.parametrize(
    ("metadata", "ending"),
    [
        ({"finish_reason": "length"}, Ending.LENGTH),
        ({"finish_reason": "MAX_TOKENS"}, Ending.LENGTH),
        ({"stop_reason": "max_tokens"}, Ending.LENGTH),
        ({"stopReason": "max_tokens"}, Ending.LENGTH),
        ({"done_reason": "length"}, Ending.LENGTH),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, Ending.LENGTH),
        ({"status": "incomplete", "incomplete_details": None}, Ending.LENGTH),
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, Ending.FILTER),
        ({"finish_reason": "content_filter"}, Ending.FILTER),
        ({"finish_reason": "SAFETY"}, Ending.FILTER),
        ({"finish_reason": "stop"}, None),
        ({"stop_reason": "end_turn"}, None),
        ({"status": "completed", "incomplete_details": None}, None),
        ({"finish_reason": 7}, None),
        ({}, None),
    ],
)
def test_what_providers_say_of_the_end_is_understood(metadata: Json, ending: Ending | None) -> None:
    transcript = told(whole("First, the", response_metadata=metadata))
    done(transcript)
    assert transcript.ending is ending


def test_a_refusal_that_stands_beside_the_content_is_the_answer() -> None:
    refusal: JsonValue = {"refusal": "I can't help with that."}
    assert shown(done(told(whole("", additional_kwargs=refusal)))) == [("I can't help with that.", True)]


def test_only_the_end_of_the_last_message_counts() -> None:
    cut: Json = {"finish_reason": "length"}
    went_on = told(whole("First, the", response_metadata=cut), whole("sea.", "m2"))
    done(went_on)
    assert went_on.ending is None
    told_by_pieces = fed(streamed("First, the"), streamed("", response_metadata=cut), updated(whole("First, the")))
    done(told_by_pieces)
    assert told_by_pieces.ending is Ending.LENGTH


def test_the_end_of_a_side_call_does_not_count() -> None:
    cut: Json = {"finish_reason": "length"}
    transcript = fed(streamed("A ti", "t", "title", response_metadata=cut), transcript=told(whole("All of it.")))
    done(transcript)
    assert transcript.ending is None


# ---------------------------------------------------------------- with a real graph


def _direct(lead: str = "") -> Sequence[AnyMessage]:
    call = ToolCall(name="lookup", args={"q": "17"}, id="c1")
    return AIMessage(lead, tool_calls=[call]), ToolMessage(SHIPPED, tool_call_id="c1", name="lookup")


def _invalid() -> Sequence[AnyMessage]:
    call = InvalidToolCall(type="invalid_tool_call", id="c1", name="lookup", args='{"q": "', error=None)
    return (AIMessage("I will look.", invalid_tool_calls=[call]),)


TURNS: dict[str, Callable[[], Sequence[AnyMessage]]] = {
    "direct": _direct,
    "direct with words": lambda: _direct("Let me look that up."),
    "silent": lambda: (*_direct("Let me look that up."), AIMessage("")),
    "long": lambda: (AIMessage("First, the", response_metadata={"finish_reason": "length"}),),
    "filtered": lambda: (AIMessage("Well,", response_metadata={"finish_reason": "content_filter"}),),
    "only thinking": lambda: (AIMessage("", response_metadata={"stop_reason": "max_tokens"}),),
    "invalid": _invalid,
}


class _State(MessagesState):
    structured_response: Json


def _answer(state: _State) -> Any:
    question = str(state["messages"][-1].content)
    if question == "structured":
        return {"structured_response": {"city": "Paris"}}
    return {"messages": list(TURNS.get(question, lambda: [AIMessage("Hello.")])())}


graph = StateGraph(_State).add_node("model", _answer).add_edge(START, "model").compile()


@pytest.fixture
async def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Room]:
    async with room_with(f"{__name__}:graph", tmp_path, monkeypatch) as room:
        yield room


async def test_readers_get_what_the_run_ended_with_and_a_remark_when_that_is_not_all(room: Room) -> None:
    lead = ("Let me look that up.", False)
    for question, body, notice in (
        ("direct", [(SHIPPED, True)], ""),
        ("direct with words", [lead, (SHIPPED, True)], ""),
        ("structured", [('```json\n{\n  "city": "Paris"\n}\n```', True)], ""),
        ("silent", [lead], sentences.NO_ANSWER),
        ("long", [("First, the", True)], sentences.CUT_AT_LENGTH),
        ("filtered", [("Well,", True)], sentences.CUT_BY_FILTER),
        ("only thinking", [], sentences.CUT_AT_LENGTH),
        ("invalid", [("I will look.", False)], sentences.NO_ANSWER),
        ("hello", [("Hello.", True)], ""),
    ):
        view = await said(room, question)
        assert (question, view.phase, shown(view), view.notice) == (question, Phase.DONE, body, notice)
