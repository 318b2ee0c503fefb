"""A model that says what it is told to, piece by piece, and the graph around it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langgraph.graph import END, START, MessagesState, StateGraph


class SpeakingModel(BaseChatModel):
    """Answers the last question with its `pieces`, `pace` seconds apart."""

    pieces: Callable[[str], Sequence[str]]
    pace: float

    @property
    def _llm_type(self) -> str:
        return "speaking"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        text = "".join(self.pieces(str(messages[-1].text)))
        return ChatResult(generations=[ChatGeneration(message=AIMessage(text))])

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        for piece in self.pieces(str(messages[-1].text)):
            await asyncio.sleep(self.pace)
            yield ChatGenerationChunk(message=AIMessageChunk(content=piece))


def graph_of(
    model: SpeakingModel, completed: Callable[[str, BaseMessage], BaseMessage] = lambda _, reply: reply
) -> StateGraph[MessagesState]:
    """One node that answers with the model; `completed` makes the final message of the question and what was said."""

    async def answer(state: MessagesState) -> dict[str, list[BaseMessage]]:
        reply: BaseMessage = await model.ainvoke(state["messages"])
        return {"messages": [completed(str(state["messages"][-1].text), reply)]}

    builder = StateGraph(MessagesState)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    builder.add_edge("answer", END)
    return builder
