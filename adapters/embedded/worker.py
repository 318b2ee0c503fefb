"""Executes one run: drives the graph and publishes what it streams."""

from __future__ import annotations

import asyncio
import builtins
import logging
import uuid
from collections.abc import Awaitable, Callable, Collection
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import langgraph.errors
from langchain_core.runnables import RunnableConfig
from langgraph.types import Command, Send

from adapters.embedded import wire
from adapters.embedded.requests import STREAM_MODES
from adapters.embedded.store import Json, Run, RunStatus

if TYPE_CHECKING:
    from adapters.embedded.graphs import Graph

logger = logging.getLogger(__name__)

# publish(mode, JSON, namespace)
Publish = Callable[[str, bytes, Collection[str]], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an execution ended; `error` is {"error": class, "message": text} when it failed."""

    status: RunStatus
    error: Json | None = None


class Worker:
    """Runs one graph under one graph id. `timeout` bounds a run, in seconds."""

    def __init__(self, graph: Graph, graph_id: str, timeout: float) -> None:
        self.graph = graph
        self._graph_id = graph_id
        self._timeout = timeout

    async def execute(self, run: Run, attempt: int, publish: Publish) -> Outcome:
        """Run to the end, an interrupt, a failure or the timeout. Cancellation passes through."""
        error: Json
        try:
            async with asyncio.timeout(self._timeout) as limit:
                await self._stream(run, attempt, publish)
        except Exception as failure:
            if limit.expired():
                error = {"error": "TimeoutError", "message": f"The run took longer than {self._timeout:g} s"}
                logger.warning("run %s of thread %s timed out", run.run_id, run.thread_id)
                return Outcome("timeout", error)
            logger.exception("run %s of thread %s failed", run.run_id, run.thread_id)
            return Outcome("error", {"error": type(failure).__name__, "message": _public_text(failure)})
        return Outcome("success")

    async def _stream(self, run: Run, attempt: int, publish: Publish) -> None:
        asked = run.kwargs
        subgraphs = bool(asked["subgraphs"])
        options = {
            name: asked[name]
            for name in ("interrupt_before", "interrupt_after", "durability", "context")
            if asked[name] is not None
        }
        stream = self.graph.astream(
            _input(asked),
            self._config(run, attempt),
            stream_mode=[STREAM_MODES[mode] for mode in asked["stream_mode"]],
            subgraphs=subgraphs,
            **options,
        )
        async with aclosing(stream) as items:  # type: ignore[type-var]
            async for item in items:
                namespace, mode, payload = item if subgraphs else ((), *item)
                await publish(mode, wire.event_data(mode, payload), namespace)
                # A graph that never waits would keep the readers, and every other run, from their turn.
                await asyncio.sleep(0)

    def _config(self, run: Run, attempt: int) -> RunnableConfig:
        asked = run.kwargs["config"]
        labels = {
            "run_id": run.run_id,
            "thread_id": run.thread_id,
            "graph_id": self._graph_id,
            "assistant_id": run.assistant_id,
        }
        checkpoint = run.kwargs["checkpoint_id"]
        config: RunnableConfig = {
            "run_id": uuid.UUID(run.run_id),
            "metadata": {**run.metadata, "run_attempt": attempt},
            "configurable": {
                **asked["configurable"],
                **labels,
                "checkpoint_ns": "",
                **({"checkpoint_id": checkpoint} if checkpoint else {}),
            },
        }
        if "tags" in asked:
            config["tags"] = asked["tags"]
        if "recursion_limit" in asked:
            config["recursion_limit"] = asked["recursion_limit"]
        if "max_concurrency" in asked:
            config["max_concurrency"] = asked["max_concurrency"]
        return config


def _input(asked: Json) -> Any:
    command = asked["command"]
    if command is None:
        return asked["input"]
    fields: dict[str, Any] = {}
    if "resume" in command:
        fields["resume"] = command["resume"]
    if "update" in command:
        update = command["update"]
        fields["update"] = [(key, value) for key, value in update] if isinstance(update, list) else update
    if "goto" in command:
        goto = command["goto"]
        fields["goto"] = [_target(item) for item in goto] if isinstance(goto, list) else _target(goto)
    return Command(**fields)


def _target(goto: str | Json) -> str | Send:
    return goto if isinstance(goto, str) else Send(goto["node"], goto["input"])


def _public_text(error: Exception) -> str:
    """What a client may read. Texts of third-party errors can carry keys and addresses, so, as in LangGraph's server,
    only those of Python's and langgraph's own errors pass."""
    kind = type(error)
    is_known = getattr(builtins, kind.__name__, None) is kind or kind.__module__ == langgraph.errors.__name__
    return str(error)[:2000] if is_known else "An internal error occurred"
