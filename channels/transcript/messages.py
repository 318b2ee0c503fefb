"""One chat message as gateways send it, in any of their dialects, brought into one form.

Accepted: LangChain's `{type, content, …}`, its constructor JSON (`{lc, type: "constructor", id, kwargs}`) and
`{role, content}`; content as a string or as blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from pydantic import JsonValue

from channels.model import Usage
from channels.shapes import as_count, as_list, as_object, as_text
from channels.transcript.file_blocks import FileBlock, file_block, file_link
from channels.transcript.paragraphs import Paragraphs, Part, Place


class Role(StrEnum):
    ASSISTANT = "assistant"
    HUMAN = "human"
    SYSTEM = "system"
    TOOL = "tool"
    REMOVE = "remove"


_ROLES: Mapping[str, Role] = MappingProxyType(
    {
        "ai": Role.ASSISTANT,
        "assistant": Role.ASSISTANT,
        "AIMessage": Role.ASSISTANT,
        "AIMessageChunk": Role.ASSISTANT,
        "human": Role.HUMAN,
        "user": Role.HUMAN,
        "HumanMessage": Role.HUMAN,
        "HumanMessageChunk": Role.HUMAN,
        "system": Role.SYSTEM,
        "developer": Role.SYSTEM,
        "SystemMessage": Role.SYSTEM,
        "SystemMessageChunk": Role.SYSTEM,
        "tool": Role.TOOL,
        "ToolMessage": Role.TOOL,
        "ToolMessageChunk": Role.TOOL,
        "remove": Role.REMOVE,
        "RemoveMessage": Role.REMOVE,
    }
)
_WHOLE = frozenset({"ai", "AIMessage"})
"""Types that carry a whole message; the other assistant types carry a piece of one."""

_REASONING_BLOCKS = frozenset({"thinking", "reasoning", "reasoning_content", "redacted_thinking", "thinking_delta"})
_TEXT_BLOCKS = frozenset({"text", "output_text", "text_delta", "refusal"})

_HANDOFF_BACK = "__is_handoff_back"
"""What langgraph-supervisor marks the messages with that it writes for its models when an agent has done its part."""

_OTHER = Part(is_other=True)

REMOVE_ALL = "__remove_all__"
"""The id with which LangGraph empties a message list."""


@dataclass(frozen=True, slots=True)
class ToolCallPiece:
    """A tool call, or a piece of one: `name` and `id` come with the first piece, `args` is JSON text that grows."""

    index: int
    id: str
    name: str
    args: str


class Ending(StrEnum):
    """Why a model stopped before its message was complete."""

    LENGTH = "length"
    FILTER = "filter"


_ENDINGS: Mapping[str, Ending] = MappingProxyType(
    {
        "length": Ending.LENGTH,  # OpenAI's chat completions, Ollama, Mistral
        "model_length": Ending.LENGTH,  # Mistral
        "max_tokens": Ending.LENGTH,  # Anthropic, Bedrock, Gemini, Cohere
        "model_context_window_exceeded": Ending.LENGTH,  # Anthropic
        "max_output_tokens": Ending.LENGTH,  # OpenAI's responses: why they are incomplete
        "incomplete": Ending.LENGTH,  # and that they are, when they do not say why
        "content_filter": Ending.FILTER,  # OpenAI
        "content_filtered": Ending.FILTER,  # Bedrock
        "guardrail_intervened": Ending.FILTER,  # Bedrock
        "refusal": Ending.FILTER,  # Anthropic
        "safety": Ending.FILTER,  # Gemini, and what follows
        "recitation": Ending.FILTER,
        "blocklist": Ending.FILTER,
        "prohibited_content": Ending.FILTER,
        "spii": Ending.FILTER,
        "image_safety": Ending.FILTER,
    }
)
"""What providers call it, in lower case."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool; `args` are empty when the model wrote them so that they cannot be read."""

    id: str
    name: str
    args: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Message:
    """`id` is empty when the sender gave none. `whole`: the text is complete, not a piece to append.

    `parts` and `thoughts` are what `text` and `reasoning` were joined from, for those who join several pieces.
    """

    role: Role
    id: str
    whole: bool
    text: str = ""
    reasoning: str = ""
    parts: tuple[Part, ...] = ()
    thoughts: tuple[Part, ...] = ()
    call_pieces: tuple[ToolCallPiece, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    files: tuple[FileBlock, ...] = ()
    usage: Usage | None = None
    ending: Ending | None = None
    name: str = ""
    call_id: str = ""
    failed: bool = False
    hidden: bool = False
    error_fallback: bool = False
    artifact: JsonValue = None

    @property
    def is_visibly_human(self) -> bool:
        return self.role is Role.HUMAN and not self.hidden


def read_message(value: JsonValue) -> Message | None:
    """The message in one form; None when the value is no message."""
    source = as_object(value)
    kind = as_text(source.get("type"))
    if kind == "constructor":
        path = as_list(source.get("id"))
        kind = as_text(path[-1]) if path else ""
        source = as_object(source.get("kwargs"))
    elif kind not in _ROLES:
        kind = as_text(source.get("role"))
    role = _ROLES.get(kind)
    if role is None or ("content" not in source and role is not Role.REMOVE):
        return None
    extra = as_object(source.get("additional_kwargs"))
    metadata = as_object(source.get("response_metadata"))
    parts, thoughts, files = _read_content("" if metadata.get(_HANDOFF_BACK) is True else source.get("content"))
    if extra and not any(thought.text for thought in thoughts):
        thoughts = tuple(_kept_apart(extra))
    if (refusal := as_text(extra.get("refusal"))) and not any(part.text for part in parts):
        parts = (*parts, Part(refusal))  # OpenAI's chat completions
    return Message(
        role=role,
        id=as_text(source.get("id")),
        whole=kind in _WHOLE,
        text=Paragraphs().join(parts),
        reasoning=Paragraphs().join(thoughts),
        parts=parts,
        thoughts=thoughts,
        call_pieces=tuple(_call_pieces(source)),
        calls=tuple(_calls(source)),
        files=files,
        usage=_usage(source.get("usage_metadata")),
        ending=_ending(metadata),
        name=as_text(source.get("name")),
        call_id=as_text(source.get("tool_call_id")),
        failed=as_text(source.get("status")) == "error",
        hidden=extra.get("hide_from_ui") is True,
        error_fallback=extra.get("deerflow_error_fallback") is True,
        artifact=source.get("artifact"),
    )


def find_messages(value: JsonValue, depth: int = 4) -> Iterator[list[Message]]:
    """Every message list inside a state or an update, whatever its key; a lone message is a list of one."""
    if isinstance(value, list):
        found = [message for item in value if (message := read_message(item)) is not None]
        if found:
            yield found
        elif depth > 0:
            for item in value:
                yield from find_messages(item, depth - 1)
    elif isinstance(value, dict):
        if (message := read_message(value)) is not None:
            yield [message]
        elif depth > 0:
            for item in value.values():
                yield from find_messages(item, depth - 1)


def _read_content(content: JsonValue) -> tuple[tuple[Part, ...], tuple[Part, ...], tuple[FileBlock, ...]]:
    if isinstance(content, str):
        return (Part(content),), (), ()
    blocks = content if isinstance(content, list) else [content]
    parts: list[Part] = []
    thoughts: list[Part] = []
    files: list[FileBlock] = []
    for position, item in enumerate(blocks):
        if isinstance(item, str):
            parts.append(Part(item))
            continue
        block = as_object(item)
        kind = as_text(block.get("type"))
        if kind in _TEXT_BLOCKS or (not kind and "text" in block):
            parts.append(Part(_text_of(block), _place(block), as_text(block.get("id"))))
        elif kind in _REASONING_BLOCKS:
            thoughts.extend(_reasoning_of(block))
            parts.append(_OTHER)
        elif (file := file_block(position, block)) is not None:
            files.append(file)
            parts.append(_OTHER)
        elif link := file_link(block):
            parts.append(Part(f"\n\n{link}\n\n"))
        elif "tool" in kind or kind.endswith("_call"):  # others, such as references, stand in the middle of sentences
            parts.append(_OTHER)
    return tuple(parts), tuple(thoughts), tuple(files)


def _place(block: Mapping[str, JsonValue], part: Mapping[str, JsonValue] | None = None) -> Place | None:
    numbers = (block.get("index"), 0 if part is None else part.get("index"))
    first, second = numbers
    return (first, second) if isinstance(first, int) and isinstance(second, int) else None


def _text_of(block: Mapping[str, JsonValue]) -> str:
    value = block.get("text", block.get("refusal"))
    return as_text(value) or as_text(as_object(value).get("value"))


def _reasoning_of(block: Mapping[str, JsonValue]) -> Iterator[Part]:
    for key in ("thinking", "reasoning", "text", "content", "reasoning_content"):
        value = block.get(key)
        if found := as_text(value) or as_text(as_object(value).get("text")):
            yield _thought(found, _place(block))
            return
    yield from _summary(block)


def _summary(block: Mapping[str, JsonValue]) -> Iterator[Part]:
    for item in as_list(block.get("summary")):
        part = as_object(item)
        yield _thought(as_text(part.get("text")), _place(block, part))


def _thought(text: str, place: Place | None) -> Part:
    """Each numbered thought is one of its own."""
    return Part(text, place, "thought" if place is not None else "")


def _kept_apart(extra: Mapping[str, JsonValue]) -> Iterator[Part]:
    """Reasoning that a provider package keeps outside the content (DeepSeek, Qwen, OpenAI)."""
    if found := as_text(extra.get("reasoning_content")):
        yield Part(found)
        return
    reasoning = extra.get("reasoning")
    if found := as_text(reasoning):
        yield Part(found)
        return
    yield from _summary({"index": 0, **as_object(reasoning)})


def _call_pieces(source: Mapping[str, JsonValue]) -> Iterator[ToolCallPiece]:
    for position, item in enumerate(as_list(source.get("tool_call_chunks"))):
        piece = as_object(item)
        index = piece.get("index")
        yield ToolCallPiece(
            index=index if isinstance(index, int) else position,
            id=as_text(piece.get("id")),
            name=as_text(piece.get("name")),
            args=as_text(piece.get("args")),
        )


def _calls(source: Mapping[str, JsonValue]) -> Iterator[ToolCall]:
    """The calls of a message, also those with arguments that cannot be read: a model is told of both alike."""
    known: set[str] = set()
    for item in as_list(source.get("tool_calls")):
        call = as_object(item)
        function = as_object(call.get("function"))
        name = as_text(call.get("name")) or as_text(function.get("name"))
        if name:
            known.add(as_text(call.get("id")))
            yield ToolCall(as_text(call.get("id")), name, as_object(call.get("args")))
    for item in as_list(source.get("invalid_tool_calls")):
        call = as_object(item)
        identity = as_text(call.get("id"))
        if identity and identity not in known:
            yield ToolCall(identity, as_text(call.get("name")) or "tool", MappingProxyType({}))


def _ending(metadata: Mapping[str, JsonValue]) -> Ending | None:
    if not metadata:
        return None
    incomplete = as_object(metadata.get("incomplete_details")).get("reason")
    reasons = (metadata.get(key) for key in ("finish_reason", "stop_reason", "stopReason", "done_reason", "status"))
    found = (_ENDINGS.get(as_text(reason).lower()) for reason in (incomplete, *reasons))
    return next((ending for ending in found if ending is not None), None)


def _usage(value: JsonValue) -> Usage | None:
    if not isinstance(value, dict):
        return None
    usage = Usage(as_count(value.get("input_tokens")), as_count(value.get("output_tokens")))
    return usage if usage.total_tokens else None
