"""A graph whose answer can be checked to the last word: `w1 w2 … w60 end`, streamed slowly enough to be killed in.

Asked for a file, it adds one.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langgraph.graph import END, START, MessagesState, StateGraph

WORDS = 60
PIECES = [*(f"w{number} " for number in range(1, WORDS + 1)), "end"]
FILE, CONTENT = "count.txt", b"all that was counted"
_PACE = 0.02


class CountingModel(BaseChatModel):
    """Counts, whatever it is asked."""

    @property
    def _llm_type(self) -> str:
        return "counting"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage("".join(PIECES)))])

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        for piece in PIECES:
            await asyncio.sleep(_PACE)
            yield ChatGenerationChunk(message=AIMessageChunk(content=piece))


async def answer(state: MessagesState) -> dict[str, list[BaseMessage]]:
    reply: BaseMessage = await CountingModel().ainvoke(state["messages"])
    if "file" in str(state["messages"][-1].content):
        file = {
            "type": "file",
            "mime_type": "text/plain",
            "base64": base64.b64encode(CONTENT).decode(),
            "filename": FILE,
        }
        reply = AIMessage(id=reply.id, content=[{"type": "text", "text": str(reply.content)}, file])
    return {"messages": [reply]}


builder = StateGraph(MessagesState)
builder.add_node("answer", answer)
builder.add_edge(START, "answer")
builder.add_edge("answer", END)
graph = builder
