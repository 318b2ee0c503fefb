"""Questions of the graph to the user: interrupt and resume, through the real SDK."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from langgraph_sdk.errors import NotFoundError

from tests.adapters.embedded import sample_graphs
from tests.adapters.embedded.conftest import Start
from tests.adapters.embedded.talking import Conversation, names


async def asked(start: Start, words: str) -> tuple[Conversation, dict[str, str]]:
    """A conversation that waits for answers, and the interrupt id of each word's question."""
    talk = await (await start("questions")).conversation()
    parts = await talk.ask(words)
    interrupts = [item for part in parts if part.event == "updates" for item in part.data.get("__interrupt__", ())]
    return talk, {item["value"]["question"].removesuffix("?"): item["id"] for item in interrupts}


async def answers(talk: Conversation) -> list[str]:
    return sorted(content for kind, content in await talk.messages() if kind == "tool")


async def test_a_question_is_an_interrupt_in_updates_thread_and_state(start: Start) -> None:
    talk, ids = await asked(start, "sure")
    value = {"question": "sure?", "options": ["yes", "no"]}
    thread: Any = await talk.client.threads.get(talk.thread_id)
    assert thread["status"] == "interrupted"
    (open_questions,) = thread["interrupts"].values()
    assert open_questions == [{"id": ids["sure"], "value": value}]
    state: Any = await talk.client.threads.get_state(talk.thread_id)
    assert state["interrupts"] == open_questions
    assert state["tasks"][0]["interrupts"] == open_questions
    assert state["next"] == ["ask"]
    (run,) = await talk.client.runs.list(talk.thread_id)
    assert run["status"] == "success"  # as on LangGraph's server: the thread waits, the run is over


async def test_the_events_of_an_interrupt_are_those_of_langgraphs_server(start: Start) -> None:
    talk = await (await start("questions")).conversation()
    parts = await talk.ask("sure", stream_mode=["messages-tuple", "updates", "values"])
    assert names(parts) == ["metadata", "values", "updates", "values", "end"]
    (item,) = parts[2].data["__interrupt__"]
    assert item == {"value": {"question": "sure?", "options": ["yes", "no"]}, "id": item["id"], "response_schema": None}
    assert len(item["id"]) == 32
    assert parts[3].data["__interrupt__"] == [item]
    assert [message["content"] for message in parts[3].data["messages"]] == ["sure"]


async def test_with_messages_alone_an_interrupt_is_invisible_as_on_langgraphs_server(start: Start) -> None:
    talk = await (await start("questions")).conversation()
    assert names(await talk.ask("sure", stream_mode="messages-tuple")) == ["metadata", "end"]


async def test_a_resume_carries_the_answer_to_the_question(start: Start) -> None:
    talk, _ = await asked(start, "sure")
    parts = await talk.ask(command={"resume": "yes"})
    assert names(parts) == ["metadata", "messages", "updates", "end"]
    assert parts[1].data[0]["type"] == "tool"
    assert await answers(talk) == ["sure=yes"]
    assert await talk.thread_status() == "idle"


async def test_several_questions_at_once_are_answered_by_id_together_or_one_by_one(start: Start) -> None:
    talk, ids = await asked(start, "tea milk sugar")
    assert set(ids) == {"tea", "milk", "sugar"}
    await talk.ask(command={"resume": {ids["milk"]: "no"}})
    assert await talk.thread_status() == "interrupted"
    thread: Any = await talk.client.threads.get(talk.thread_id)
    still_open = {item["id"] for items in thread["interrupts"].values() for item in items}
    assert still_open == {ids["tea"], ids["sugar"]}
    await talk.ask(command={"resume": {ids["tea"]: "yes", ids["sugar"]: "two"}})
    assert await answers(talk) == ["milk=no", "sugar=two", "tea=yes"]
    assert await talk.thread_status() == "idle"


async def test_one_plain_answer_to_two_questions_is_an_error_that_says_so(start: Start) -> None:
    talk, _ = await asked(start, "tea milk")
    parts = await talk.ask(command={"resume": "yes"})
    assert names(parts) == ["metadata", "error", "end"]
    assert "multiple pending interrupts" in parts[1].data["message"]


async def test_a_command_may_update_and_go_to(start: Start) -> None:
    talk = await (await start()).conversation()
    await talk.ask("hi")
    update = {"messages": [{"role": "user", "content": "count 2"}]}
    await talk.ask(command={"update": update, "goto": "model"})
    assert (await talk.messages())[-2:] == [("human", "count 2"), ("ai", "0 1 ")]
    pairs: Any = [["messages", [{"role": "user", "content": "count 3"}]]]
    send = {"node": "model", "input": {"messages": [{"role": "user", "content": "count 1"}]}}
    await talk.ask(command={"update": pairs, "goto": [send]})
    assert (await talk.messages())[-2:] == [("human", "count 3"), ("ai", "0 ")]


async def test_rolling_back_a_resume_brings_the_question_back(start: Start) -> None:
    """The answer was written to the paused state itself, which is older than the run that is rolled back."""
    graph = "tests.adapters.embedded.test_interrupts:slow_answer"
    talk = await (await start(graph)).conversation()
    await talk.ask("sure")
    before: Any = await talk.client.threads.get_state(talk.thread_id)
    run = await talk.client.runs.create(talk.thread_id, "agent", command={"resume": "wrong"})
    await sample_graphs.arrival("answer").wait()
    await talk.client.runs.cancel(talk.thread_id, run["run_id"], wait=True, action="rollback")
    with pytest.raises(NotFoundError):
        await talk.status(run["run_id"])
    assert await talk.client.threads.get_state(talk.thread_id) == before
    assert await talk.thread_status() == "interrupted"
    sample_graphs.gate("answer").set()
    await talk.ask(command={"resume": "right"})
    assert (await talk.messages())[-1] == ("ai", "right")


async def test_a_question_inside_a_sub_graph_survives_the_rollback_of_its_answer(start: Start) -> None:
    """The paused sub-graph's own checkpoint is younger than that of the thread, but older than the rolled back run."""
    talk = await (await start("tests.adapters.embedded.test_interrupts:inner_question")).conversation()
    await talk.ask("sure")
    before: Any = await talk.client.threads.get_state(talk.thread_id, subgraphs=True)
    (inner,) = before["tasks"]
    assert inner["state"]["next"] == ["ask"]
    run = await talk.client.runs.create(talk.thread_id, "agent", command={"resume": "wrong"})
    await sample_graphs.arrival("answer").wait()
    await talk.client.runs.cancel(talk.thread_id, run["run_id"], wait=True, action="rollback")
    assert await talk.client.threads.get_state(talk.thread_id, subgraphs=True) == before
    at = inner["state"]["checkpoint"]
    assert await talk.client.threads.get_state(talk.thread_id, checkpoint=at) == inner["state"]
    sample_graphs.gate("answer").set()
    await talk.ask(command={"resume": "right"})
    assert (await talk.messages())[-1] == ("ai", "right")


# Static breakpoints


BREAKPOINTS = "tests.adapters.embedded.test_interrupts:breakpoints"


async def standing(talk: Conversation) -> tuple[list[str], list[object], str]:
    """The steps before which the thread stands, the questions that are open there, and the thread's status."""
    state: Any = await talk.client.threads.get_state(talk.thread_id)
    return state["next"], [item["value"] for item in state["interrupts"]], await talk.thread_status()


async def test_a_run_with_nothing_to_say_goes_on_from_a_breakpoint_and_then_the_nodes_own_question_is_asked(
    start: Start,
) -> None:
    talk = await (await start(BREAKPOINTS)).conversation()
    stopped = await talk.ask("go")
    assert [part.data for part in stopped if part.event == "updates"][-1] == {"__interrupt__": []}
    assert await standing(talk) == (["ask"], [], "interrupted")
    parts = await talk.ask()
    assert names(parts) == ["metadata", "updates", "end"]
    (item,) = parts[1].data["__interrupt__"]
    assert item["value"] == {"question": "sure?"}
    assert await standing(talk) == (["ask"], [{"question": "sure?"}], "interrupted")
    again = await talk.ask()  # no answer, so the same question
    assert again[1].data["__interrupt__"] == [item]
    sample_graphs.gate("answer").set()
    await talk.ask(command={"resume": "yes"})
    assert await standing(talk) == (["report"], [], "interrupted")  # the breakpoint after the node
    assert (await talk.messages())[-1] == ("ai", "yes")
    await talk.ask()
    assert await standing(talk) == ([], [], "idle")
    assert [text for _, text in await talk.messages()] == ["go", "planned", "yes", "reported"]


async def test_a_resume_at_a_breakpoint_answers_the_nodes_own_question_unseen(start: Start) -> None:
    """Why a go-ahead is a run with nothing to say: an answer would be taken by whatever the node asks next."""
    talk = await (await start(BREAKPOINTS)).conversation()
    await talk.ask("go")
    sample_graphs.gate("answer").set()
    await talk.ask(command={"resume": "yes"})
    assert [text for _, text in await talk.messages()] == ["go", "planned", "yes"]


async def test_a_breakpoint_may_be_asked_for_with_the_run_and_holds_for_that_run_only(start: Start) -> None:
    talk = await (await start()).conversation()
    await talk.ask("hi", interrupt_before=["model"])
    assert await standing(talk) == (["model"], [], "interrupted")
    await talk.ask()
    assert await standing(talk) == ([], [], "idle")
    assert await talk.messages() == [("human", "hi"), ("ai", "re: hi")]


async def test_a_run_with_nothing_to_say_on_a_thread_with_nothing_to_do_is_an_error_or_nothing(start: Start) -> None:
    talk = await (await start()).conversation()
    parts = await talk.ask()
    assert names(parts) == ["metadata", "error", "end"]
    assert parts[1].data["error"] == "EmptyInputError"
    await talk.ask("hi")
    assert names(await talk.ask()) == ["metadata", "end"]
    assert await talk.messages() == [("human", "hi"), ("ai", "re: hi")]


async def _ask_then_wait(state: sample_graphs.Chat) -> sample_graphs.Chat:
    answer = str(interrupt({"question": "sure?"}))
    await sample_graphs.pass_gate("answer")
    return {"messages": [AIMessage(answer)]}


slow_answer = StateGraph(sample_graphs.Chat)
slow_answer.add_node("ask", _ask_then_wait)
slow_answer.add_edge(START, "ask")

inner_question = StateGraph(sample_graphs.Chat)
inner_question.add_node("child", slow_answer.compile())
inner_question.add_edge(START, "child")


async def _plan(state: sample_graphs.Chat) -> sample_graphs.Chat:
    return {"messages": [AIMessage("planned")]}


async def _report(state: sample_graphs.Chat) -> sample_graphs.Chat:
    return {"messages": [AIMessage("reported")]}


_steps = StateGraph(sample_graphs.Chat)
_steps.add_node("plan", _plan)
_steps.add_node("ask", _ask_then_wait)
_steps.add_node("report", _report)
_steps.add_edge(START, "plan")
_steps.add_edge("plan", "ask")
_steps.add_edge("ask", "report")
breakpoints = _steps.compile(interrupt_before=["ask"], interrupt_after=["ask"])
