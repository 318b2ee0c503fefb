"""The graph that the real servers run in these tests: what it does is asked for by the first word of the question.

`answer TEXT` streams the text, `slowly` five times slower. `tools` calls a tool first, `slow-tools` then is silent for
long. `approve`, `twice` and `review` (LangChain's human-in-the-loop request) ask. `sub` runs a sub-graph. `fail` breaks
in the middle. `title` makes a side call of the model. `plan` says what it is going to do, is silent for long and then
answers. `reflect` answers a critic, who speaks as a human, with another answer.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Annotated, Any, TypedDict

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Send, interrupt

BEFORE_TOOLS = "Let me check. "
PLAN = "First I look at the figures."
PAUSE = 0.002
LONG_PAUSE = 1.5


class State(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    title: str


class Scripted(BaseChatModel):
    """Says what the last human message wants, in sub-word pieces."""

    pause: float = PAUSE

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        first, *others = _script(messages)
        for chunk in others:
            first += chunk
        whole = AIMessage(content=first.content, tool_calls=first.tool_calls)
        return ChatResult(generations=[ChatGeneration(message=whole)])

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        word, _ = asked(messages)
        if word == "plan" or (word.startswith("slow-") and isinstance(messages[-1], ToolMessage)):
            await asyncio.sleep(LONG_PAUSE)
        for chunk in _script(messages):
            await asyncio.sleep(self.pause * 5 if word == "slowly" else self.pause)
            generation = ChatGenerationChunk(message=chunk)
            if run_manager is not None:
                await run_manager.on_llm_new_token(str(chunk.content), chunk=generation)
            yield generation


def _script(messages: list[BaseMessage]) -> Iterator[AIMessageChunk]:
    word, text = asked(messages)
    word = word.removeprefix("slow-")
    answered = isinstance(messages[-1], ToolMessage)
    if word == "tools" and not answered:
        yield AIMessageChunk(content=BEFORE_TOOLS)
        call = {"name": "look", "args": '{"city": "Paris"}', "id": "call_1", "index": 0}
        yield AIMessageChunk(content="", tool_call_chunks=[call])
        return
    for position, piece in enumerate(pieces(text)):
        if word == "fail" and position == 6:
            raise RuntimeError("the model broke: token=hunter2")
        yield AIMessageChunk(content=piece)


def asked(messages: Sequence[BaseMessage]) -> tuple[str, str]:
    """The first word of the last question, and the rest of it."""
    human = next(message for message in reversed(messages) if isinstance(message, HumanMessage))
    content = human.content if isinstance(human.content, str) else str(human.content[0])
    word, _, text = content.partition(" ")
    return word, text


def pieces(text: str) -> Iterator[str]:
    sizes = itertools.cycle((1, 3, 2, 5, 1, 1, 4))
    position = 0
    while position < len(text):
        size = next(sizes)
        yield text[position : position + size]
        position += size


async def model(state: State) -> State:
    return {"messages": [await Scripted().ainvoke(state["messages"])]}


async def tools(state: State) -> State:
    call = state["messages"][-1].tool_calls[0]  # type: ignore[union-attr]
    await asyncio.sleep(PAUSE)
    return {"messages": [ToolMessage("sunny", tool_call_id=call["id"], name=call["name"])]}


async def title(state: State) -> State:
    said = await Scripted().ainvoke([HumanMessage("answer THE SECRET TITLE")])
    return {"title": str(said.content)}


def planner(state: State) -> State:
    return {"messages": [AIMessage(PLAN)]}


def critic(state: State) -> State:
    return {"messages": [HumanMessage(f"answer Better: {asked(state['messages'])[1]}")]}


def approve(state: State) -> State:
    said = interrupt({"question": "Approve the payment?", "options": ["yes", "no"]})
    return {"messages": [AIMessage(f"You said {said}.")]}


def review(state: State) -> State:
    action = {"name": "pay", "args": {"amount": 5}, "description": "Pay 5?"}
    config = {"action_name": "pay", "allowed_decisions": ["approve", "edit", "reject"]}
    decided = interrupt({"action_requests": [action, action], "review_configs": [config]})
    return {"messages": [AIMessage(f"Decided: {decided['decisions']}")]}


def left(state: State) -> State:
    return {"messages": [AIMessage(f"Left: {interrupt('Left?')}")]}


def right(state: State) -> State:
    return {"messages": [AIMessage(f"Right: {interrupt('Right?')}")]}


async def inner(state: State) -> State:
    return {"messages": [await Scripted().ainvoke([HumanMessage("answer the inner voice")])]}


def route(state: State) -> str | list[Send]:
    word, _ = asked(state["messages"])
    if word == "twice":
        return [Send("left", state), Send("right", state)]
    if word == "plan":
        return "planner"
    return word if word in ("approve", "review", "sub") else "model"


def after_model(state: State) -> str:
    if getattr(state["messages"][-1], "tool_calls", None):
        return "tools"
    return {"title": "title", "reflect": "critic"}.get(asked(state["messages"])[0], END)


_sub = StateGraph(State)
_sub.add_node("inner", inner)
_sub.add_edge(START, "inner")

_graph = StateGraph(State)
_graph.add_node("model", model)
_graph.add_node("tools", tools)
_graph.add_node("title", title)
_graph.add_node("planner", planner)
_graph.add_node("critic", critic)
_graph.add_node("approve", approve)
_graph.add_node("review", review)
_graph.add_node("left", left)
_graph.add_node("right", right)
_graph.add_node("sub", _sub.compile())
_graph.add_conditional_edges(START, route, ["model", "planner", "approve", "review", "left", "right", "sub"])
_graph.add_conditional_edges("model", after_model, ["tools", "title", "critic", END])
_graph.add_edge("tools", "model")
_graph.add_edge("sub", "model")
_graph.add_edge("planner", "model")
_graph.add_edge("critic", "model")
graph = _graph.compile()
guarded = _graph.compile(interrupt_before=["tools"])
