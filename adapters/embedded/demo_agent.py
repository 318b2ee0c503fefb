"""The demo agent: a LangGraph graph with tools, a sub-agent and questions to the user.

With `OPENAI_API_KEY` set (and optionally `OPENAI_BASE_URL` and `OPENAI_MODEL`) a real model drives it, otherwise the
scripted one. The graph is the same for both.
"""

from __future__ import annotations

import asyncio
import operator
import os
from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, TypedDict

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
)
from langchain_core.runnables import Runnable
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Send, interrupt

from adapters.embedded.demo_model import ScriptedChatModel
from adapters.embedded.demo_script import RESEARCHER, text_of
from adapters.embedded.demo_tools import ALL_TOOLS, PLAIN_TOOLS
from adapters.embedded.events import aemit

_DEFAULT_MODEL = "gpt-5-mini"
_SYSTEM = (
    "You are the demo agent of Channel Bridge, talking to a person in a chat. Answer in the person's language, in "
    "Markdown, briefly unless asked otherwise. Use the tools where they help. When a wish is ambiguous, use ask_user "
    "with two to four options instead of guessing. Give research to a sub-agent with the task tool."
)
_LOOKS = ("what is known", "what is disputed", "what is new")


class AgentState(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


class CallState(TypedDict):
    """What the nodes that answer a tool call are started with."""

    call: ToolCall


class ResearchState(TypedDict):
    """The sub-agent's own state: none of its messages are part of the conversation."""

    topic: str
    notes: Annotated[list[AIMessage], operator.add]


async def agent(state: AgentState) -> AgentState:
    """Ask the model what to say or do next."""
    model, is_scripted = await _model()
    messages = without_open_calls(state["messages"])
    prompt = messages if is_scripted else [SystemMessage(_SYSTEM), *messages]
    bound: Runnable[LanguageModelInput, AIMessage] = model.bind_tools(ALL_TOOLS)
    return {"messages": [await bound.ainvoke(prompt)]}


def route(state: AgentState) -> list[Send] | str:
    """Each tool call goes to the node that answers it, all at once; without calls the turn is over."""
    last = state["messages"][-1]
    calls = last.tool_calls if isinstance(last, AIMessage) else []
    nodes = {"ask_user": "clarify", "task": "researcher"}
    return [Send(nodes.get(call["name"], "tool"), {"call": call}) for call in calls] or END


async def tool(state: CallState) -> AgentState:
    """Run a plain tool. A failure is told to the model, which can do better."""
    call = state["call"]
    try:
        content, status = str(await PLAIN_TOOLS[call["name"]].ainvoke(call["args"])), "success"
    except KeyError:
        content, status = f"There is no tool {call['name']!r}.", "error"
    except ValueError as error:
        content, status = str(error), "error"
    return {"messages": [_answer(call, content, status)]}


def clarify(state: CallState) -> AgentState:
    """Ask the user and wait. The graph stops here until it is resumed with the answer."""
    call = state["call"]
    question = {"question": str(call["args"].get("question", "")), "options": list(call["args"].get("options") or ())}
    return {"messages": [_answer(call, str(interrupt(question)))]}


async def researcher(state: CallState) -> AgentState:
    """Let the sub-agent work, and report on it."""
    call = state["call"]
    topic = str(call["args"].get("description", ""))
    about = {"task_id": call["id"], "description": topic}
    notes: list[str] = []
    await aemit({"type": "task_started", **about})
    async for update in sub_agent.astream(ResearchState(topic=topic, notes=[]), stream_mode="updates"):
        for note in update["look"]["notes"]:
            notes.append(text_of(note))
            message = {"type": "ai", "id": note.id, "content": notes[-1]}
            count = {"message_index": len(notes), "total_messages": len(_LOOKS)}
            await aemit({"type": "task_running", **about, "message": message, **count})
    result = "\n".join(f"- {note}" for note in notes)
    await aemit({"type": "task_completed", **about, "result": result})
    return {"messages": [_answer(call, result)]}


async def look(state: ResearchState) -> dict[str, list[AIMessage]]:
    """One of the sub-agent's looks at its topic."""
    model, _ = await _model()
    question = f"{state['topic']} ({_LOOKS[len(state['notes'])]})"
    return {"notes": [await model.ainvoke([SystemMessage(RESEARCHER), HumanMessage(question)])]}


def look_again(state: ResearchState) -> str:
    return END if len(state["notes"]) == len(_LOOKS) else "look"


def _answer(call: ToolCall, content: str, status: str = "success") -> ToolMessage:
    return ToolMessage(content, tool_call_id=call["id"] or "", name=call["name"], status=status)


def without_open_calls(messages: Sequence[AnyMessage]) -> list[BaseMessage]:
    """The conversation with an answer for every tool call.

    A run that was stopped, or a question that the user passed over, leaves calls unanswered; models refuse that.
    """
    answered = {message.tool_call_id for message in messages if isinstance(message, ToolMessage)}
    complete: list[BaseMessage] = []
    for message in messages:
        complete.append(message)
        if isinstance(message, AIMessage):
            complete += [
                _answer(call, "This was not answered.", "error")
                for call in message.tool_calls
                if call["id"] not in answered
            ]
    return complete


async def _model() -> tuple[BaseChatModel, bool]:
    """The model, and whether it is the scripted one."""
    key = os.environ.get("OPENAI_API_KEY")
    if not key:
        return ScriptedChatModel(), True
    base_url, name = os.environ.get("OPENAI_BASE_URL") or None, os.environ.get("OPENAI_MODEL") or _DEFAULT_MODEL
    # Importing it takes a second or two.
    return await asyncio.to_thread(_openai_model, key, base_url, name), False


@lru_cache(maxsize=4)
def _openai_model(key: str, base_url: str | None, name: str) -> BaseChatModel:
    from langchain_openai import ChatOpenAI
    from pydantic import SecretStr

    return ChatOpenAI(model=name, api_key=SecretStr(key), base_url=base_url, streaming=True, stream_usage=True)


def _sub_agent() -> StateGraph[ResearchState, None, ResearchState, ResearchState]:
    builder = StateGraph(ResearchState)
    builder.add_node("look", look)
    builder.add_edge(START, "look")
    builder.add_conditional_edges("look", look_again, ["look", END])
    return builder


def _agent() -> StateGraph[AgentState, None, AgentState, AgentState]:
    builder = StateGraph(AgentState)
    builder.add_node("agent", agent)
    builder.add_node("tool", tool, input_schema=CallState)
    builder.add_node("clarify", clarify, input_schema=CallState)
    builder.add_node("researcher", researcher, input_schema=CallState)
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", route, ["tool", "clarify", "researcher", END])
    for node in ("tool", "clarify", "researcher"):
        builder.add_edge(node, "agent")
    return builder


sub_agent = _sub_agent().compile()
graph = _agent().compile()
