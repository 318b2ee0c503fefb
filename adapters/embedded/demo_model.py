"""A chat model that follows the demo's script and streams as real models do: in pieces smaller than words."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolCallChunk, message_chunk_to_message
from langchain_core.messages.ai import UsageMetadata, add_ai_message_chunks
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool

from adapters.embedded.demo_script import next_line, text_of
from adapters.embedded.demo_tools import pace

# A piece is the white space before it and then one sign of a script without spaces (Chinese, Japanese, Korean), up to
# four letters, up to three digits, or one other sign with what modifies it (so that an emoji stays one).
_PIECES = re.compile(
    r"\s*(?:[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]"
    r"|(?:(?![\u2e80-\u9fff\uac00-\ud7af])[^\W\d_]){1,4}"
    r"|\d{1,3}"
    r"|\S(?:[\ufe0f\u20e3\U0001f3fb-\U0001f3ff]|\u200d\S)*)"
    r"|\s+"
)


def pieces(text: str) -> list[str]:
    """`text` in pieces as a tokenizer would cut it; joined, they are the text again."""
    return _PIECES.findall(text)


def _chunks(messages: Sequence[BaseMessage]) -> Iterator[AIMessageChunk]:
    """The next line in the order in which models send it: thoughts, text, tool calls, usage.

    A line with thoughts comes as content blocks, one without as plain strings: both are seen in the field.
    """
    line = next_line(messages)
    count = 0
    for piece in pieces(line.thinking):
        count += 1
        yield AIMessageChunk(content=[{"type": "thinking", "thinking": piece, "index": 0}])
    for piece in pieces(line.text):
        count += 1
        yield AIMessageChunk(content=[{"type": "text", "text": piece, "index": 1}] if line.thinking else piece)
    if line.failure:
        raise RuntimeError(line.failure)
    for index, call in enumerate(line.calls):
        call_id = f"call_{uuid.uuid4().hex[:24]}"
        yield _call_chunk(tool_call_chunk(name=call.name, args="", id=call_id, index=index))
        arguments = json.dumps(call.args, ensure_ascii=False)
        for start in range(0, len(arguments), 8):
            count += 1
            yield _call_chunk(tool_call_chunk(args=arguments[start : start + 8], index=index))
    asked = sum(len(pieces(text_of(message))) for message in messages)
    usage = UsageMetadata(input_tokens=asked, output_tokens=count, total_tokens=asked + count)
    yield AIMessageChunk(content="", usage_metadata=usage)


def _call_chunk(chunk: ToolCallChunk) -> AIMessageChunk:
    return AIMessageChunk(content="", tool_call_chunks=[chunk])


class ScriptedChatModel(BaseChatModel):
    """Says what `demo_script.next_line` says, at `demo_tools.pace`."""

    @property
    def _llm_type(self) -> str:
        return "channel-bridge-demo"

    def bind_tools(
        self, tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool], **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        return self  # the script knows its tools

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        first, *rest = _chunks(messages)
        whole = message_chunk_to_message(add_ai_message_chunks(first, *rest))
        return ChatResult(generations=[ChatGeneration(message=whole)])

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        result = self._generate(messages)
        await asyncio.sleep(pace() * len(pieces(text_of(result.generations[0].message))))
        return result

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        seconds = pace()
        for chunk in _chunks(messages):
            await asyncio.sleep(seconds)
            yield ChatGenerationChunk(message=chunk)

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for chunk in _chunks(messages):
            yield ChatGenerationChunk(message=chunk)
