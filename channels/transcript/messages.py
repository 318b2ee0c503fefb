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
_FILE_BLOCKS = frozenset({"image", "file", "audio", "video"})

REMOVE_ALL = "__remove_all__"
"""The id with which LangGraph empties a message list."""


@dataclass(frozen=True, slots=True)
class ToolCallPiece:
    """A tool call, or a piece of one: `name` and `id` come with the first piece, `args` is JSON text that grows."""

    index: int
    id: str
    name: str
    args: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    id: str
    name: str
    args: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class FileBlock:
    """A file inside a message: the position of its block and its type."""

    block: int
    mime: str
    name: str


@dataclass(frozen=True, slots=True)
class Message:
    """`id` is empty when the sender gave none. `whole`: the text is complete, not a piece to append."""

    role: Role
    id: str
    whole: bool
    text: str = ""
    reasoning: str = ""
    call_pieces: tuple[ToolCallPiece, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    files: tuple[FileBlock, ...] = ()
    usage: Usage | None = None
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
    text, reasoning, files = _read_content(source.get("content"))
    if extra and not reasoning:
        reasoning = _kept_apart(extra)
    return Message(
        role=role,
        id=as_text(source.get("id")),
        whole=kind in _WHOLE,
        text=text,
        reasoning=reasoning,
        call_pieces=tuple(_call_pieces(source)),
        calls=tuple(_calls(source)),
        files=files,
        usage=_usage(source.get("usage_metadata")),
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


def _read_content(content: JsonValue) -> tuple[str, str, tuple[FileBlock, ...]]:
    if isinstance(content, str):
        return content, "", ()
    blocks = content if isinstance(content, list) else [content]
    text: list[str] = []
    reasoning: list[str] = []
    files: list[FileBlock] = []
    for position, item in enumerate(blocks):
        if isinstance(item, str):
            text.append(item)
            continue
        block = as_object(item)
        kind = as_text(block.get("type"))
        if kind in _TEXT_BLOCKS or (not kind and "text" in block):
            text.append(_text_of(block))
        elif kind in _REASONING_BLOCKS:
            reasoning.append(_reasoning_of(block))
        elif kind in _FILE_BLOCKS and ("base64" in block or "data" in block):
            mime = as_text(block.get("mime_type")) or "application/octet-stream"
            extras = as_object(block.get("extras"))
            name = as_text(block.get("filename")) or as_text(extras.get("filename"))
            files.append(FileBlock(position, mime, name))
    return "".join(text), "".join(reasoning), tuple(files)


def _text_of(block: Mapping[str, JsonValue]) -> str:
    value = block.get("text", block.get("refusal"))
    return as_text(value) or as_text(as_object(value).get("value"))


def _reasoning_of(block: Mapping[str, JsonValue]) -> str:
    for key in ("thinking", "reasoning", "text", "content", "reasoning_content"):
        value = block.get(key)
        if found := as_text(value) or as_text(as_object(value).get("text")):
            return found
    return _summary(block.get("summary"))


def _summary(value: JsonValue) -> str:
    return "".join(as_text(as_object(item).get("text")) for item in as_list(value))


def _kept_apart(extra: Mapping[str, JsonValue]) -> str:
    """Reasoning that a provider package keeps outside the content (DeepSeek, Qwen, OpenAI)."""
    if found := as_text(extra.get("reasoning_content")):
        return found
    reasoning = extra.get("reasoning")
    return as_text(reasoning) or _summary(as_object(reasoning).get("summary"))


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
    for item in as_list(source.get("tool_calls")):
        call = as_object(item)
        function = as_object(call.get("function"))
        name = as_text(call.get("name")) or as_text(function.get("name"))
        if name:
            yield ToolCall(as_text(call.get("id")), name, as_object(call.get("args")))


def _usage(value: JsonValue) -> Usage | None:
    if not isinstance(value, dict):
        return None
    usage = Usage(as_count(value.get("input_tokens")), as_count(value.get("output_tokens")))
    return usage if usage.total_tokens else None
