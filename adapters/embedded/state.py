"""Graph states as LangGraph's API shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.types import Interrupt, PregelTask, StateSnapshot

from adapters.embedded.wire import without_internals

Json = dict[str, Any]


def config_of(thread_id: str, checkpoint_id: str | None = None, checkpoint_ns: str = "") -> RunnableConfig:
    """The langgraph config that addresses a thread's state, its newest or the one named."""
    configurable = {"thread_id": thread_id, "checkpoint_ns": checkpoint_ns}
    return {"configurable": {**configurable, "checkpoint_id": checkpoint_id} if checkpoint_id else configurable}


def snapshot_json(snapshot: StateSnapshot, select: Iterable[str] = ()) -> Json:
    """A snapshot as the `state` and `history` endpoints give it, or only the parts named in `select`."""
    checkpoint = _checkpoint(snapshot.config) if snapshot.created_at else None
    parent = _checkpoint(snapshot.parent_config)
    state = {
        "values": without_internals(snapshot.values),
        "next": snapshot.next,
        "tasks": [_task(task) for task in snapshot.tasks],
        "metadata": None if snapshot.metadata is None else without_internals(snapshot.metadata),
        "created_at": snapshot.created_at,
        "checkpoint": checkpoint,
        "parent_checkpoint": parent,
        "interrupts": [_interrupt(item) for item in snapshot.interrupts],
        "checkpoint_id": checkpoint and checkpoint["checkpoint_id"],
        "parent_checkpoint_id": parent and parent["checkpoint_id"],
    }
    return selected(state, select)


def selected(state: Json, select: Iterable[str]) -> Json:
    """The top-level parts named in `select`, and of `values` the keys named as `values.KEY`; all when it is empty."""
    names = frozenset(select)
    if not names:
        return state
    kept = {name: part for name, part in state.items() if name in names}
    keys = {name.removeprefix("values.") for name in names if name.startswith("values.")}
    if keys and "values" not in kept and isinstance(values := state.get("values"), Mapping):
        kept["values"] = {key: value for key, value in values.items() if key in keys}
    return kept


def interrupts_json(snapshot: StateSnapshot) -> Json:
    """Open questions by the id of the task that asked, as a thread shows them."""
    return {task.id: [_interrupt(item) for item in task.interrupts] for task in snapshot.tasks if task.interrupts}


def _task(task: PregelTask) -> Json:
    state, checkpoint = task.state, None
    if isinstance(state, StateSnapshot):
        return {**_task(task._replace(state=None)), "state": snapshot_json(state)}
    if state is not None:
        checkpoint = {key: value for key, value in state["configurable"].items() if key in _CHECKPOINT_KEYS}
    return {
        "id": task.id,
        "name": task.name,
        "path": task.path,
        "error": None if task.error is None else repr(task.error),
        "interrupts": [_interrupt(item) for item in task.interrupts],
        "checkpoint": checkpoint,
        "state": None,
        "result": without_internals(task.result),
    }


def _interrupt(item: Interrupt[Any]) -> Json:
    return {"id": item.id, "value": item.value}


_CHECKPOINT_KEYS = ("thread_id", "checkpoint_ns", "checkpoint_id")


def _checkpoint(config: RunnableConfig | None) -> Json | None:
    if config is None:
        return None
    configurable = config["configurable"]
    return {"checkpoint_ns": "", "checkpoint_id": None} | {
        key: configurable[key] for key in _CHECKPOINT_KEYS if key in configurable
    }
