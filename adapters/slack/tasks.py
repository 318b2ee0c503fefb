"""The steps of a turn as tasks in streamed messages: what each message has to be told, and how it is left behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from adapters.slack import limits
from adapters.slack.draft import StepLine, closing_of
from adapters.slack.ops import TaskChunk
from adapters.slack.shown import Page, TaskShown
from channels.markdown import utf8_bytes
from channels.model import Phase

_MORE = "more"
_UNKNOWN_TITLE = "Step"


@dataclass(frozen=True, slots=True)
class Tasks:
    """Tasks to send with a call, and what the page shows of tasks after it."""

    chunks: tuple[TaskChunk, ...]
    shown: dict[str, TaskShown]

    @property
    def weight(self) -> int:
        return sum(task.weight for task in self.shown.values())


@dataclass(frozen=True, slots=True)
class TaskBook:
    """The steps as they are now, and the messages that have told of them."""

    steps: Sequence[StepLine]
    pages: Sequence[Page]

    def news(self, index: int, page: Page) -> Tasks:
        """What the page at `index` has to be told about steps."""
        shown = dict(page.tasks)
        chunks: list[TaskChunk] = []
        visible = sum(not task.hidden for key, task in shown.items() if key != _MORE)
        hidden: list[StepLine] = []
        for step in self.steps:
            known = shown.get(step.key)
            if known is None:
                if self._is_told(index, step):
                    continue
                if visible >= limits.MOST_TASKS:
                    hidden.append(step)
                    continue
                visible += 1
            elif known.hidden:
                hidden.append(step)
                continue
            elif known.digest == step.digest and (known.detailed or not step.details):
                continue
            chunk = step.chunk(with_details=not (known and known.detailed))
            chunks.append(chunk)
            shown[step.key] = _shown(step, chunk, known)
        chunks += _counted(hidden, shown)
        chunks += self._withdrawn(shown)
        return Tasks(tuple(chunks), shown)

    def closed(self, index: int, page: Page, phase: Phase | None) -> Tasks:
        """The tasks of a page that is finished, with the reply in `phase` or before its end: nothing may go on turning
        in it."""
        tasks = self.news(index, page)
        chunks = {chunk.id: chunk for chunk in tasks.chunks}
        shown = dict(tasks.shown)
        steps = {step.key: step for step in self.steps}
        for key, task in tasks.shown.items():
            if not task.title:
                continue
            step = steps.get(key)
            if step is not None:
                chunk = step.closed(phase, with_details=key in chunks and bool(chunks[key].details))
            else:
                status, output = closing_of(phase)
                chunk = TaskChunk(key, task.title, status, output="" if key == _MORE else output)
            chunks[key] = chunk
            weight = task.weight + limits.DETAIL_WEIGHT * utf8_bytes(chunk.output)
            shown[key] = task.model_copy(update={"title": "", "goes_on": step is not None, "weight": weight})
        return Tasks(tuple(chunks.values()), shown)

    def anything_open(self, page: Page, tasks: Tasks) -> tuple[TaskChunk, ...]:
        """Closes whatever may turn in a stream of which not everything is known. The edit that follows drops it all;
        details are left out, because those that were sent already must not be sent again."""
        chunks = {chunk.id: replace(chunk, details="") for chunk in tasks.chunks}
        hidden = {key for key, task in page.tasks.items() if task.hidden}
        keys = [*page.tasks, *(step.key for step in self.steps), "thought", "notice", _MORE]
        for key in keys:
            if key not in hidden:
                chunks.setdefault(key, TaskChunk(key, _UNKNOWN_TITLE, "complete"))
        return tuple(chunks.values())

    def named(self) -> dict[str, TaskShown]:
        """The steps as an edited message has named them."""
        return {step.key: TaskShown(digest=step.digest, goes_on=step.is_open) for step in self.steps}

    def _is_told(self, index: int, step: StepLine) -> bool:
        """Whether an earlier message says about the step what there is to say."""
        for page in reversed(self.pages[:index]):
            if told := page.tasks.get(step.key):
                return not told.goes_on or told.digest == step.digest
        return False

    def _withdrawn(self, shown: dict[str, TaskShown]) -> list[TaskChunk]:
        """A notice that holds no longer."""
        task = shown.get("notice")
        if task is None or not task.title or any(step.key == "notice" for step in self.steps):
            return []
        shown["notice"] = task.model_copy(update={"title": "", "digest": ""})
        return [TaskChunk("notice", task.title, "complete")]


def _counted(hidden: Sequence[StepLine], shown: dict[str, TaskShown]) -> list[TaskChunk]:
    """One line for the steps that are not shown one by one."""
    if not hidden:
        return []
    for step in hidden:
        shown[step.key] = TaskShown(digest=step.digest, goes_on=step.is_open, hidden=True)
    count = sum(task.hidden for task in shown.values())
    title = f"{count} more {'step' if count == 1 else 'steps'}"
    line = StepLine(_MORE, title, "in_progress" if any(step.is_open for step in hidden) else "complete")
    known = shown.get(_MORE)
    if known is not None and known.digest == line.digest:
        return []
    chunk = line.chunk(with_details=False)
    shown[_MORE] = _shown(line, chunk, known)
    return [chunk]


def _shown(step: StepLine, chunk: TaskChunk, known: TaskShown | None) -> TaskShown:
    weight = utf8_bytes(chunk.title) + limits.DETAIL_WEIGHT * utf8_bytes(chunk.details)
    return TaskShown(
        digest=step.digest,
        weight=max(weight, known.weight if known else 0),
        title=step.title if step.is_open else "",
        detailed=bool(chunk.details) or (known is not None and known.detailed),
    )
