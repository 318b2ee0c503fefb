"""What was done on the way: tool calls, sub-agent tasks, sub-graphs and to-dos, in the order they began."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace

from pydantic import JsonValue

from channels.model import Step, StepKind, StepState
from channels.shapes import as_list, as_object, as_text, first_text, in_one_line, shortened
from channels.transcript.messages import ToolCall, ToolCallPiece

TODO_TOOL = "write_todos"
CLARIFICATION_TOOL = "ask_clarification"
SHOWN_OTHERWISE = frozenset({TODO_TOOL, CLARIFICATION_TOOL})
"""Tools whose call is not a step: the to-dos and the question it makes are shown themselves."""

_SUBGRAPH = "subgraph:"
_DETAIL_LIMIT = 120
_ARGS_LIMIT = 4096
"""Longer arguments are not followed while they stream: the finished message brings them whole."""
_TODO_LIMIT = 50

_TASK_ENDS = {
    "task_completed": StepState.DONE,
    "task_failed": StepState.FAILED,
    "task_cancelled": StepState.FAILED,
    "task_timed_out": StepState.FAILED,
}
_TODO_STATES = {
    "pending": StepState.PENDING,
    "in_progress": StepState.RUNNING,
    "completed": StepState.DONE,
}


class Steps:
    """The steps of one turn. Each method tells whether something visible changed."""

    def __init__(self) -> None:
        self._steps: dict[str, Step] = {}
        self._todos: tuple[Step, ...] = ()
        self._open_calls: dict[tuple[str, int], tuple[str, str]] = {}

    def all(self) -> tuple[Step, ...]:
        return (*self._steps.values(), *self._todos)

    def call_piece(self, message_id: str, piece: ToolCallPiece, now: float) -> bool:
        """A piece of a streamed tool call: the first carries id and name, the others more of the arguments."""
        key = (message_id, piece.index)
        changed = False
        if piece.name and piece.name not in SHOWN_OTHERWISE:
            step_id = piece.id or f"{message_id}:{piece.index}"
            self._open_calls[key] = (step_id, "")
            changed = self._begin(Step(step_id, piece.name, StepState.RUNNING, started=now))
        if piece.args and key in self._open_calls:
            step_id, so_far = self._open_calls[key]
            so_far += piece.args
            if len(so_far) > _ARGS_LIMIT:
                del self._open_calls[key]
                return changed
            self._open_calls[key] = (step_id, so_far)
            if so_far.rstrip().endswith("}") and (args := _parsed(so_far)) is not None:
                changed |= self._describe(step_id, args)
        return changed

    def call(self, call: ToolCall, fallback_id: str, now: float) -> bool:
        """A whole tool call, as a finished message carries it."""
        if call.name in SHOWN_OTHERWISE:
            return False
        step_id = call.id or fallback_id
        changed = self._begin(Step(step_id, call.name, StepState.RUNNING, started=now))
        return self._describe(step_id, call.args) or changed

    def result(self, call_id: str, name: str, *, failed: bool, now: float) -> bool:
        """A tool has answered."""
        if name in SHOWN_OTHERWISE or not call_id:
            return False
        self._begin(Step(call_id, name or "tool", StepState.RUNNING, started=now))
        return self._end(call_id, StepState.FAILED if failed else StepState.DONE, now)

    def task(self, event: Mapping[str, JsonValue], now: float) -> bool:
        """A custom event of a sub-agent's task; other custom events change nothing."""
        kind, task_id = as_text(event.get("type")), as_text(event.get("task_id"))
        if not task_id or not kind.startswith("task_"):
            return False
        known = self._steps.get(task_id)
        title = first_text(event, "description", "title", "name")
        if known is None:
            known = Step(task_id, title or "task", StepState.RUNNING, StepKind.TASK, started=now)
        elif known.kind is not StepKind.TASK:
            known = replace(known, kind=StepKind.TASK, title=title or known.title, detail="")
        if kind == "task_running":
            known = replace(known, detail=_said(event.get("message")) or known.detail)
        elif (state := _TASK_ENDS.get(kind)) is not None:
            known = replace(known, state=state, ended=now)
        return self._put(known)

    def subgraph(self, namespace: str, text: str, now: float) -> bool:
        """What a sub-graph says, as the detail of its step. `namespace` is `name:id`."""
        name = namespace.partition(":")[0]
        if self._is_shown_as_task(name):
            return False
        step_id = f"{_SUBGRAPH}{namespace}"
        known = self._steps.get(step_id) or Step(step_id, name, StepState.RUNNING, StepKind.TASK, started=now)
        return self._put(replace(known, detail=shortened(text[-4 * _DETAIL_LIMIT :], _DETAIL_LIMIT)))

    def _is_shown_as_task(self, node: str) -> bool:
        """Whether a running step stands for the sub-graph already: the tool that runs it, or a task that reports."""
        return any(
            step.state is StepState.RUNNING
            and (node == "tools" if step.kind is StepKind.TOOL else not step_id.startswith(_SUBGRAPH))
            for step_id, step in self._steps.items()
        )

    def node_finished(self, name: str, now: float) -> bool:
        """A node of the graph has written its update: sub-graphs of that name have ended."""
        changed = False
        for step_id, step in list(self._steps.items()):
            if step_id.startswith(f"{_SUBGRAPH}{name}:") and step.state is StepState.RUNNING:
                changed |= self._end(step_id, StepState.DONE, now)
        return changed

    def todos(self, value: JsonValue) -> bool:
        """The to-do list as it is now."""
        found = tuple(
            Step(
                id=f"todo:{position}",
                title=shortened(title, _DETAIL_LIMIT),
                state=_TODO_STATES.get(as_text(as_object(item).get("status")), StepState.PENDING),
                kind=StepKind.TODO,
            )
            for position, item in enumerate(as_list(value)[:_TODO_LIMIT])
            if (title := first_text(as_object(item), "content", "title", "text"))
        )
        changed = found != self._todos
        self._todos = found
        return changed

    def close(self, state: StepState, now: float, *, unanswered: Collection[str] = ()) -> None:
        """The run is over: what still runs is brought to `state`; `unanswered` calls were not done."""
        for step_id, step in list(self._steps.items()):
            if step.state is StepState.RUNNING:
                not_done = state is StepState.DONE and step_id in unanswered
                self._end(step_id, StepState.FAILED if not_done else state, now)
        if state is not StepState.PENDING:
            self._todos = tuple(
                replace(todo, state=state) if todo.state is StepState.RUNNING else todo for todo in self._todos
            )

    def _begin(self, step: Step) -> bool:
        if step.id in self._steps:
            return False
        return self._put(step)

    def _describe(self, step_id: str, args: Mapping[str, JsonValue]) -> bool:
        step = self._steps[step_id]
        return step.kind is StepKind.TOOL and self._put(replace(step, detail=in_one_line(args)))

    def _end(self, step_id: str, state: StepState, now: float) -> bool:
        step = self._steps[step_id]
        if step.state in (StepState.DONE, StepState.FAILED):
            return False
        return self._put(replace(step, state=state, ended=None if state is StepState.PENDING else now))

    def _put(self, step: Step) -> bool:
        changed = self._steps.get(step.id) != step
        self._steps[step.id] = step
        return changed


def _parsed(text: str) -> Mapping[str, JsonValue] | None:
    try:
        value: JsonValue = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _said(message: JsonValue) -> str:
    content = as_object(message).get("content", message)
    if isinstance(content, list):
        content = "".join(as_text(as_object(block).get("text")) for block in content)
    return shortened(as_text(content), _DETAIL_LIMIT)
