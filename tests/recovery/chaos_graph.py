"""A graph whose answers name their question: `TAG WORDS` is answered by `TAG-1 TAG-2 … TAG-end`, streamed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langgraph.graph import END, START, MessagesState, StateGraph

PACE_VARIABLE = "CHAOS_PACE"
"""The environment variable with the seconds between two words."""

_PACE = float(os.environ.get(PACE_VARIABLE, "0.2"))


def pieces(question: str) -> list[str]:
    """The answer to a question, in the pieces in which it is streamed."""
    tag, words = question.split()
    return [*(f"{tag}-{number} " for number in range(1, int(words))), f"{tag}-end"]


class EchoingModel(BaseChatModel):
    """Answers the last question."""

    @property
    def _llm_type(self) -> str:
        return "echoing"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        text = "".join(pieces(str(messages[-1].text)))
        return ChatResult(generations=[ChatGeneration(message=AIMessage(text))])

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        for piece in pieces(str(messages[-1].text)):
            await asyncio.sleep(_PACE)
            yield ChatGenerationChunk(message=AIMessageChunk(content=piece))


async def answer(state: MessagesState) -> dict[str, list[BaseMessage]]:
    reply: BaseMessage = await EchoingModel().ainvoke(state["messages"])
    return {"messages": [reply]}


builder = StateGraph(MessagesState)
builder.add_node("answer", answer)
builder.add_edge(START, "answer")
builder.add_edge("answer", END)
graph = builder
