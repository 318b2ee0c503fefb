"""Small real graphs for the gateway's tests. What the model says is in the question:

`count 5`            five tokens: "0 ", "1 ", …
`gate NAME 3 4`      three tokens, then wait until the test opens the gate NAME, then four more
`hold NAME`          wait for the gate before the first token
`boom TEXT`          a token, then ValueError(TEXT)
`leak TEXT`          a token, then an error of a third party's with TEXT
anything else        "re: " and the question
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any, TypedDict

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, AnyMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Send, interrupt

from adapters.embedded.events import aemit, emit

_gates: dict[str, asyncio.Event] = {}
_arrivals: dict[str, asyncio.Event] = {}


def gate(name: str) -> asyncio.Event:
    """Set it to let the graph go on."""
    return _gates.setdefault(name, asyncio.Event())


def arrival(name: str) -> asyncio.Event:
    """Set when the graph has come to the gate."""
    return _arrivals.setdefault(name, asyncio.Event())


async def pass_gate(name: str) -> None:
    """Arrive at the gate and wait until it is open."""
    arrival(name).set()
    await gate(name).wait()


class ThirdPartyError(Exception):
    pass


class SampleModel(BaseChatModel):
    @property
    def _llm_type(self) -> str:
        return "sample"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        raise AssertionError("the gateway's graphs run on the event loop")

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        text = "".join([piece async for piece in _pieces(str(messages[-1].content))])
        return ChatResult(generations=[ChatGeneration(message=AIMessage(text))])

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        async for piece in _pieces(str(messages[-1].content)):
            yield ChatGenerationChunk(message=AIMessageChunk(content=piece))


async def _pieces(question: str) -> AsyncIterator[str]:
    match question.split():
        case ["count", count]:
            for number in range(int(count)):
                yield f"{number} "
                await asyncio.sleep(0)
        case ["gate", name, before, after]:
            for number in range(int(before)):
                yield f"{number} "
            await pass_gate(name)
            for number in range(int(before), int(before) + int(after)):
                yield f"{number} "
                await asyncio.sleep(0)
        case ["hold", name]:
            await pass_gate(name)
            yield "held"
        case ["drip", count, seconds]:
            for number in range(int(count)):
                await asyncio.sleep(float(seconds))
                yield f"{number} "
        case ["boom", *words]:
            yield "be"
            raise ValueError(" ".join(words))
        case ["leak", *words]:
            yield "be"
            raise ThirdPartyError(" ".join(words))
        case _:
            for word in ("re: ", question):
                yield word


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


async def _answer(state: Chat) -> Chat:
    return {"messages": [await SampleModel().ainvoke(state["messages"])]}


chat_builder = StateGraph(Chat)
chat_builder.add_node("model", _answer)
chat_builder.add_edge(START, "model")
chat_builder.add_edge("model", END)
chat = chat_builder.compile()


def chat_factory() -> StateGraph[Chat, None, Chat, Chat]:
    return chat_builder


async def chat_async_factory(config: dict[str, Any]) -> StateGraph[Chat, None, Chat, Chat]:
    assert "configurable" in config
    return chat_builder


def broken_factory() -> None:
    raise OSError("no licence")


not_a_graph = {"a": 1}
unfinished_builder: StateGraph[Chat, None, Chat, Chat] = StateGraph(Chat)

# Questions: one node per word of the input asks, all at once; the answers end in the state as tool messages.


class Asked(TypedDict):
    word: str


def _fan_out(state: Chat) -> list[Send]:
    return [Send("ask", {"word": word}) for word in str(state["messages"][-1].content).split()]


def _ask(state: Asked) -> Chat:
    answer = interrupt({"question": f"{state['word']}?", "options": ["yes", "no"]})
    return {"messages": [ToolMessage(f"{state['word']}={answer}", tool_call_id=state["word"])]}


_questions = StateGraph(Chat)
_questions.add_node("ask", _ask, input_schema=Asked)
_questions.add_conditional_edges(START, _fan_out, ["ask"])
_questions.add_edge("ask", END)
questions = _questions.compile()

# A sub-graph that speaks, and a custom event from each level.


class Inner(Chat):
    pass


async def _inner_model(state: Inner) -> Inner:
    await aemit({"type": "inner", "n": 1})
    return {"messages": [await SampleModel().ainvoke(state["messages"])]}


_inner = StateGraph(Inner)
_inner.add_node("inner_model", _inner_model)
_inner.add_edge(START, "inner_model")
_inner.add_edge("inner_model", END)


def _outer(state: Chat) -> Chat:
    emit({"type": "outer", "nested": {"é": ["✓", 1.5, None]}})
    return {"messages": [AIMessage("whole", id="whole-1")]}


_nested = StateGraph(Chat)
_nested.add_node("child", _inner.compile())
_nested.add_node("outer", _outer)
_nested.add_edge(START, "child")
_nested.add_edge("child", "outer")
_nested.add_edge("outer", END)
nested = _nested.compile()
