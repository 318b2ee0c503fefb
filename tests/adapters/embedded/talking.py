"""A person's side of a conversation, through the real SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from typing import Any

from langgraph_sdk.client import LangGraphClient
from langgraph_sdk.schema import StreamPart

MODES = ["messages-tuple", "updates", "custom"]


def question(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


class Conversation:
    def __init__(self, client: LangGraphClient, thread_id: str) -> None:
        self.client = client
        self.thread_id = thread_id

    def stream(self, text: str | None = None, **options: Any) -> AsyncIterator[StreamPart]:
        options = {"stream_mode": MODES, "on_disconnect": "continue", **options}
        if text is not None:
            options["input"] = question(text)
        stream: AsyncIterator[StreamPart] = self.client.runs.stream(self.thread_id, "agent", **options)
        return stream

    async def ask(self, text: str | None = None, **options: Any) -> list[StreamPart]:
        return [part async for part in self.stream(text, **options)]

    async def begin(self, text: str, **options: Any) -> str:
        """Start a run in the background; returns its id."""
        options = {"stream_mode": MODES, **options}
        run = await self.client.runs.create(self.thread_id, "agent", input=question(text), **options)
        return str(run["run_id"])

    async def join(self, run_id: str, after: str | None = None, **options: Any) -> list[StreamPart]:
        return [part async for part in self.joined(run_id, after, **options)]

    def joined(self, run_id: str, after: str | None = None, **options: Any) -> AsyncIterator[StreamPart]:
        stream: AsyncIterator[StreamPart] = self.client.runs.join_stream(
            self.thread_id, run_id, last_event_id=after, **options
        )
        return stream

    async def status(self, run_id: str) -> str:
        return str((await self.client.runs.get(self.thread_id, run_id))["status"])

    async def thread_status(self) -> str:
        return str((await self.client.threads.get(self.thread_id))["status"])

    async def messages(self) -> list[tuple[str, str]]:
        """Type and content of every message in the state."""
        state = await self.client.threads.get_state(self.thread_id)
        values: dict[str, Any] = state["values"]  # type: ignore[assignment]
        return [(message["type"], message["content"]) for message in values.get("messages", [])]


async def first(stream: AsyncIterator[StreamPart], count: int) -> list[StreamPart]:
    """The first `count` events; the connection is dropped then."""
    parts: list[StreamPart] = []
    async with aclosing(stream) as items:  # type: ignore[type-var]
        async for part in items:
            parts.append(part)
            if len(parts) == count:
                break
    return parts


def names(parts: Iterable[StreamPart]) -> list[str]:
    return [part.event for part in parts]


def text_of(parts: Iterable[StreamPart]) -> str:
    """The text of all streamed message chunks."""
    return "".join(part.data[0]["content"] for part in parts if part.event == "messages")


def counted(count: int) -> str:
    return "".join(f"{number} " for number in range(count))
