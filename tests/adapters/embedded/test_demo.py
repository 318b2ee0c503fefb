"""The demo agent: what a newcomer sees, through the gateway and the real SDK."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph_sdk.schema import StreamPart

from adapters.embedded import demo_agent, demo_texts
from adapters.embedded.demo_agent import without_open_calls
from adapters.embedded.demo_model import ScriptedChatModel, pieces
from adapters.embedded.demo_script import cities_in, expression_in, next_line
from adapters.embedded.demo_tools import calculate, pace
from tests.adapters.embedded.conftest import Start
from tests.adapters.embedded.talking import Conversation, first

DEMO = "adapters.embedded.demo_agent:graph"


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHANNEL_BRIDGE_DEMO_PACE", "0")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.fixture
async def talk(start: Start) -> Conversation:
    return await (await start(DEMO)).conversation()


def said(parts: list[StreamPart]) -> list[str]:
    """The pieces of the assistant's text, in order."""
    return [piece for part in parts if part.event == "messages" for piece in _texts(part.data[0]) if piece]


def _texts(message: dict[str, Any]) -> list[str]:
    if message["type"] != "AIMessageChunk":
        return []
    content = message["content"]
    return [content] if isinstance(content, str) else [block["text"] for block in content if block["type"] == "text"]


def thought(parts: list[StreamPart]) -> str:
    blocks = [block for part in parts if part.event == "messages" for block in part.data[0]["content"]]
    return "".join(block["thinking"] for block in blocks if isinstance(block, dict) and block["type"] == "thinking")


def tool_results(parts: list[StreamPart]) -> list[tuple[str, str, str]]:
    results = [part.data[0] for part in parts if part.event == "messages" and part.data[0]["type"] == "tool"]
    return [(result["name"], result["status"], result["content"]) for result in results]


def interrupts(parts: list[StreamPart]) -> list[dict[str, Any]]:
    return [item for part in parts if part.event == "updates" for item in part.data.get("__interrupt__", ())]


async def test_a_greeting_is_answered_with_things_to_try(talk: Conversation) -> None:
    parts = await talk.ask("Hello!")
    assert "".join(said(parts)) == demo_texts.WELCOME
    for example, _ in demo_texts.SUGGESTIONS:
        assert f"`{example}`" in demo_texts.WELCOME


async def test_every_suggestion_of_the_greeting_works(start: Start) -> None:
    running = await start(DEMO)
    for example, _ in demo_texts.SUGGESTIONS:
        conversation = await running.conversation()
        parts = await conversation.ask(example)
        assert said(parts)
        assert ("error" in [part.event for part in parts]) is (example == "fail")
        assert "only the demo's script" not in "".join(said(parts))  # the answer for what it does not know


async def test_words_are_split_into_several_pieces(talk: Conversation) -> None:
    streamed = said(await talk.ask("hi"))
    assert streamed[streamed.index("Chan") :][:4] == ["Chan", "nel", " Brid", "ge"]
    assert max(len(piece.strip()) for piece in streamed) <= 4


async def test_an_answer_begins_with_thoughts_in_blocks_of_their_own(talk: Conversation) -> None:
    parts = await talk.ask("think about it")
    assert thought(parts).startswith("They want me to think.")
    assert "They want" not in "".join(said(parts))
    kinds = [block["type"] for part in parts if part.event == "messages" for block in part.data[0]["content"]]
    assert kinds == sorted(kinds, reverse=True)  # all thinking, then all text
    (state,) = [content for kind, content in await talk.messages() if kind == "ai"]
    assert [block["type"] for block in state] == ["thinking", "text"]  # type: ignore[index]


async def test_a_tool_is_called_with_streamed_arguments_and_its_result_used(talk: Conversation) -> None:
    parts = await talk.ask("what is 17 * 23?")
    calls = [chunk for part in parts if part.event == "messages" for chunk in part.data[0].get("tool_call_chunks", ())]
    assert (calls[0]["name"], calls[0]["args"]) == ("calculator", "")
    assert len(calls) > 3
    assert "".join(call["args"] for call in calls) == '{"expression": "17 * 23"}'
    assert tool_results(parts) == [("calculator", "success", "391")]
    assert "".join(said(parts)).endswith("`17 * 23` = **391**")


async def test_a_tools_failure_is_told_to_the_model_not_to_the_run(talk: Conversation) -> None:
    parts = await talk.ask("what is 5 / 0?")
    assert tool_results(parts) == [("calculator", "error", "division by zero")]
    assert parts[-2].event != "error"


async def test_two_cities_are_two_tools_at_once_and_a_table(talk: Conversation) -> None:
    parts = await talk.ask("weather in Paris and 东京")
    assert [name for name, _, _ in tool_results(parts)] == ["weather", "weather"]
    answer = "".join(said(parts))
    assert "| Paris |" in answer
    assert "| Tokyo |" in answer


async def test_research_is_done_by_a_sub_agent_that_reports_its_steps(talk: Conversation) -> None:
    parts = await talk.ask("research solar power", stream_subgraphs=True)
    events = [part.data for part in parts if part.event == "custom"]
    assert [event["type"] for event in events] == ["task_started", *["task_running"] * 3, "task_completed"]
    assert {event["description"] for event in events} == {"solar power"}
    assert len({event["task_id"] for event in events}) == 1
    assert [event["message_index"] for event in events[1:4]] == [1, 2, 3]
    assert all(event["message"]["content"] for event in events[1:4])
    assert events[-1]["result"] in "".join(said(parts))
    inner = [part for part in parts if re.fullmatch(r"messages\|researcher:[0-9a-f-]{36}", part.event)]
    assert len(inner) > 10
    assert [kind for kind, _ in await talk.messages()] == ["human", "ai", "tool", "ai"]


async def test_the_sub_agents_events_are_seen_without_asking_for_sub_graphs(talk: Conversation) -> None:
    parts = await talk.ask("research solar power")
    assert len([part for part in parts if part.event == "custom"]) == 5
    assert not [part for part in parts if "|" in part.event]


async def test_an_ambiguous_wish_is_asked_back_and_the_answer_used(talk: Conversation) -> None:
    (question,) = interrupts(await talk.ask("book a table"))
    assert question["value"] == {"question": "For how many people?", "options": ["2 people", "4 people", "6 people"]}
    parts = await talk.ask(command={"resume": "4 people"})
    assert "A table for **4 people**" in "".join(said(parts))
    assert await talk.thread_status() == "idle"


async def test_two_questions_at_once_are_answered_by_id(talk: Conversation) -> None:
    found = {item["value"]["question"]: item["id"] for item in interrupts(await talk.ask("book a table and deploy"))}
    answers = {found["For how many people?"]: "9", found["Where shall it be deployed?"]: "nowhere"}
    answer = "".join(said(await talk.ask(command={"resume": answers})))
    assert "**9**" in answer
    assert "Nothing is deployed" in answer


async def test_a_question_may_be_followed_by_a_tool(talk: Conversation) -> None:
    await talk.ask("deploy the site")
    parts = await talk.ask(command={"resume": "staging"})
    assert tool_results(parts)[-1] == ("run_job", "success", "The job “deploy to staging” is done.")
    assert "Deployed to **staging**" in "".join(said(parts))


async def test_weather_without_a_city_asks_for_one(talk: Conversation) -> None:
    (question,) = interrupts(await talk.ask("what's the weather?"))
    assert "Beijing" in question["value"]["options"]
    assert "Beijing: " in "".join(said(await talk.ask(command={"resume": "Beijing"})))


async def test_a_question_that_is_passed_over_does_not_block_the_conversation(talk: Conversation) -> None:
    await talk.ask("book a table")
    assert "391" in "".join(said(await talk.ask("what is 17 * 23?")))


async def test_the_agent_remembers_the_conversation(talk: Conversation) -> None:
    assert "first thing you say" in "".join(said(await talk.ask("what did I say before?")))
    await talk.ask("my name is Ada Lovelace")
    assert "**Ada Lovelace**" in "".join(said(await talk.ask("what is my name?")))
    listed = "".join(said(await talk.ask("what did I say before?")))
    assert "2. my name is Ada Lovelace\n3. what is my name?" in listed


async def test_a_long_story_is_long(talk: Conversation) -> None:
    parts = await talk.ask("tell me a long story")
    assert len("".join(said(parts))) > 6000
    assert len(said(parts)) > 1500


async def test_failing_shows_a_partial_answer_and_then_an_error(talk: Conversation) -> None:
    parts = await talk.ask("fail")
    assert "".join(said(parts)).endswith("somewhere in the middle")
    error = {"error": "RuntimeError", "message": "The demo agent failed, because you asked it to."}
    assert parts[-2].data == error


async def test_stopping_and_going_on_works(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHANNEL_BRIDGE_DEMO_PACE", "0.01")
    talk = await (await start(DEMO)).conversation()
    parts = await first(talk.stream("tell me a long story"), 10)
    await talk.client.runs.cancel(talk.thread_id, parts[0].data["run_id"], wait=True)
    monkeypatch.setenv("CHANNEL_BRIDGE_DEMO_PACE", "0")
    assert "1. tell me a long story" in "".join(said(await talk.ask("what did I say before?")))


async def test_code_tables_chinese_and_emoji_are_shown(talk: Conversation) -> None:
    assert "```python\n" in "".join(said(await talk.ask("show me some code")))
    assert "|:--|" in "".join(said(await talk.ask("show me a table")))
    chinese = said(await talk.ask("你好"))
    assert "".join(chinese) == demo_texts.WELCOME_CHINESE
    assert "\n👩‍💻" in [piece.replace(" ", "\n") for piece in chinese]  # an emoji is never cut


async def test_chinese_is_answered_in_chinese(talk: Conversation) -> None:
    assert "你说的是：“我想学做饭”" in "".join(said(await talk.ask("我想学做饭")))
    assert "Beijing: " in "".join(said(await talk.ask("北京的天气")))
    assert "**391**" in "".join(said(await talk.ask("17 * 23 等于多少？")))
    assert "".join(said(await talk.ask("谢谢"))) == "不客气！😊"


async def test_anything_else_is_echoed_with_suggestions_that_change(talk: Conversation) -> None:
    one = "".join(said(await talk.ask("My neighbour collects umbrellas")))
    two = "".join(said(await talk.ask("Does he?")))
    assert "You said: “My neighbour collects umbrellas”." in one
    assert "You asked: “Does he?”." in two
    assert one.rpartition("try:")[2] != two.rpartition("try:")[2]


async def test_attachments_are_noticed(talk: Conversation) -> None:
    content = [
        {"type": "text", "text": "look"},
        {"type": "image", "filename": "cat.png", "base64": "AA==", "mime_type": "image/png"},
    ]
    options: dict[str, Any] = {"input": {"messages": [{"role": "user", "content": content}]}}
    assert "cat.png" in "".join(said(await talk.ask(**options)))


async def test_usage_is_reported_on_a_late_chunk(talk: Conversation) -> None:
    parts = await talk.ask("thanks")
    usages = [part.data[0]["usage_metadata"] for part in parts if part.event == "messages"]
    assert [usage["output_tokens"] for usage in usages if usage] == [len(said(parts))]


# The parts


@given(st.text())
def test_pieces_add_up_to_the_text(text: str) -> None:
    assert "".join(pieces(text)) == text


@given(st.text(st.characters(categories=["L"])))
def test_no_piece_holds_more_than_four_letters(text: str) -> None:
    assert all(len(piece) <= 4 for piece in pieces(text))


def test_an_emoji_with_its_modifiers_is_one_piece() -> None:
    assert pieces("a 👩‍💻 👍🏽 ⏱️ b") == ["a", " 👩‍💻", " 👍🏽", " ⏱️", " b"]


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("what is 17 * 23?", "17 * 23"),
        ("17*23", "17*23"),
        ("calculate (3 + 4) * 5 please", "(3 + 4) * 5"),
        ("12 plus 30", "12 + 30"),
        ("12 divided by (4)", "12 / (4)"),
        ("2^10", "2 ** 10"),
        ("-3 - -4.5", "-3 - -4.5"),
        ("17 × 23 等于多少", "17 * 23"),
        ("I am 42", None),
        ("on 2026-11-30", None),
        ("version 1.2.3", None),
        ("call me at 8", None),
        ("no numbers", None),
    ],
)
def test_expressions_are_found_in_questions(text: str, expression: str | None) -> None:
    assert expression_in(text) == expression


@pytest.mark.parametrize(
    ("expression", "result"),
    [("17 * 23", "391"), ("2 ** 0.5", "1.414213562"), ("1e3 + 1", "1,001"), ("7 // 2 % 2", "1"), ("-(3 - 5)", "2")],
)
def test_the_calculator_calculates(expression: str, result: str) -> None:
    assert calculate(expression) == result


@pytest.mark.parametrize(
    "expression",
    ["", "1 +", "1 / 0", "2 ** 1000", "9 ** 99 ** 9", "10 ** 31", "(-8) ** 0.5", "__import__('os')", "'a' * 9", "True",
     "1 if 1 else 2", "(" * 150 + "1", "1" * 300, "1e999", "x", "0 ** -1"],
)  # fmt: skip
def test_what_cannot_or_must_not_be_calculated_is_a_value_error(expression: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        calculate(expression)


@given(st.text(alphabet="0123456789+-*/%().e ^x", max_size=40))
def test_the_calculator_only_ever_raises_value_errors(expression: str) -> None:
    with suppress(ValueError):
        assert calculate(expression)


def test_cities_are_found_once_each_in_the_order_they_are_named() -> None:
    assert cities_in("Tokyo, 巴黎, tokyo and new york") == ["Tokyo", "Paris", "New York"]


@given(st.text(max_size=300))
def test_the_script_has_something_to_say_to_anything(question: str) -> None:
    line = next_line([HumanMessage(question)])
    assert line.text or line.calls


def test_calls_without_an_answer_get_one_before_the_model_sees_them() -> None:
    def call(call_id: str) -> Any:
        return {"name": "ask_user", "args": {}, "id": call_id}

    messages: list[Any] = [
        HumanMessage("a"),
        AIMessage("", tool_calls=[call("1"), call("2")]),
        ToolMessage("yes", tool_call_id="1"),
        HumanMessage("b"),
    ]
    repaired: list[BaseMessage] = without_open_calls(messages)
    answered = [message.tool_call_id for message in repaired if isinstance(message, ToolMessage)]
    assert sorted(answered) == ["1", "2"]
    assert repaired[2].type == "tool"
    assert [message.type for message in repaired] == ["human", "ai", "tool", "tool", "human"]


@pytest.mark.parametrize(("value", "seconds"), [("0", 0.0), ("0.5", 0.5), ("-1", 0.0), ("fast", 0.028)])
def test_the_pace_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch, value: str, seconds: float) -> None:
    monkeypatch.setenv("CHANNEL_BRIDGE_DEMO_PACE", value)
    assert pace() == seconds


async def test_the_scripted_model_says_the_same_streamed_or_whole() -> None:
    model = ScriptedChatModel()
    question = [HumanMessage("think about it")]
    whole, whole_sync = await model.ainvoke(question), model.invoke(question)
    streamed = [chunk async for chunk in model.astream(question)]
    total = streamed[0]
    for chunk in streamed[1:]:
        total += chunk
    assert whole.content == whole_sync.content == total.content


async def test_with_a_key_a_real_model_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    from langchain_openai import ChatOpenAI

    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_MODEL", "my-model")
    model, is_scripted = await demo_agent._model()
    assert isinstance(model, ChatOpenAI)
    assert not is_scripted
    assert (model.model_name, model.openai_api_base) == ("my-model", "http://127.0.0.1:9/v1")
    assert "sk-test" not in repr(model)


def _completion(*deltas: dict[str, Any]) -> str:
    """What an OpenAI-compatible server streams."""
    choices: list[dict[str, Any]] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    chunk = {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": "my-model"}
    lines = [orjson.dumps({**chunk, "choices": [choice]}).decode() for choice in choices]
    return "".join(f"data: {line}\n\n" for line in (*lines, "[DONE]"))


@asynccontextmanager
async def model_server(*answers: str) -> AsyncIterator[tuple[str, list[dict[str, Any]]]]:
    """A server that gives these answers one after another; its base URL, and the requests it has got."""
    requests: list[dict[str, Any]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        requests.append(orjson.loads(await reader.readexactly(length)))
        body = answers[len(requests) - 1].encode()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n" + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", requests


async def test_a_real_model_uses_the_tools_and_streams_its_answer(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = {"index": 0, "id": "call-1", "type": "function", "function": {"name": "calculator", "arguments": ""}}
    arguments = {"tool_calls": [{"index": 0, "function": {"arguments": '{"expression": "6*7"}'}}]}
    asks = _completion({"role": "assistant", "tool_calls": [named]}, arguments)
    async with model_server(asks, _completion({"content": "It is "}, {"content": "42."})) as (url, requests):
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        parts = await (await (await start(DEMO)).conversation()).ask("six times seven?")
    assert said(parts) == ["It is ", "42."]
    assert tool_results(parts) == [("calculator", "success", "42")]
    assert {tool["function"]["name"] for tool in requests[0]["tools"]} >= {"calculator", "ask_user", "task"}
    assert [message["role"] for message in requests[1]["messages"]] == ["system", "user", "assistant", "tool"]
    assert requests[1]["messages"][-1]["content"] == "42"
