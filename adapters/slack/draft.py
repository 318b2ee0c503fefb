"""What a view says on Slack: one text that only grows, and the steps as tasks."""

from __future__ import annotations

import re
from dataclasses import dataclass

from adapters.slack import limits
from adapters.slack.ops import TaskChunk
from adapters.slack.shown import digest_of
from adapters.slack.text import clipped, disarmed, harmless
from channels.access import ShowReasoning
from channels.markdown import stable_prefix
from channels.model import Phase, Question, Step, StepKind, StepState, View

_PLAIN_WORDS = re.compile(r"[^\W_]+(?:[^\S\n]+[^\W_]+)*[.,;?!…]?")
"""Words that open nothing in Markdown and are no part of a mention."""
_HALF_PAIR = re.compile(r"[\ud800-\udfff]")
_STATUS = {
    StepState.PENDING: "pending",
    StepState.RUNNING: "in_progress",
    StepState.DONE: "complete",
    StepState.FAILED: "error",
}
_OPEN = frozenset({"pending", "in_progress"})
_LONGEST_ID = 64


@dataclass(frozen=True, slots=True)
class StepLine:
    """A step, a thought or a notice as Slack shows it while the agent works."""

    key: str
    title: str
    status: str
    details: str = ""
    is_todo: bool = False

    @property
    def is_open(self) -> bool:
        return self.status in _OPEN

    @property
    def digest(self) -> str:
        return digest_of(f"{self.status} {self.title}")

    def chunk(self, *, with_details: bool) -> TaskChunk:
        return TaskChunk(self.key, self.title, self.status, details=self.details if with_details else "")

    def closed(self, phase: Phase | None, *, with_details: bool) -> TaskChunk:
        """The task as it stands when its message is finished: with the reply in `phase`, or before it (None)."""
        details = self.details if with_details else ""
        if not self.is_open:
            return TaskChunk(self.key, self.title, self.status, details=details)
        status, output = closing_of(phase, is_todo=self.is_todo)
        return TaskChunk(self.key, self.title, status, details=details, output=output)


def closing_of(phase: Phase | None, *, is_todo: bool = False) -> tuple[str, str]:
    """Status and output of a task that was not over when its message ended."""
    match phase:
        case Phase.STOPPED:
            return "error", "stopped"
        case Phase.FAILED:
            return "error", "not finished"
        case Phase.ASKING:
            return "complete", "waits for an answer"
        case Phase.DONE:
            return "complete", "not done" if is_todo else ""
        case _:
            return "complete", "goes on below"


@dataclass(frozen=True, slots=True)
class Draft:
    """`text` is what may be shown for good; `held`, if not empty, is that and the last words, should no more come."""

    text: str
    held: str
    steps: tuple[StepLine, ...]


def draw(view: View, *, level: int, reasoning: ShowReasoning) -> Draft:
    """The draft of a view. `level` is how far the format is degraded: from 2 on everything is text."""
    raw = _raw(view, everything=level >= 2)
    steps = _steps(view, reasoning) if level < 2 else ()
    if view.is_final:
        return Draft(harmless(_HALF_PAIR.sub("\ufffd", raw)).rstrip(), "", steps)
    if _HALF_PAIR.search(raw):
        raw = _HALF_PAIR.sub("\ufffd", raw.rstrip("".join(map(chr, range(0xD800, 0xDC00)))))
    is_whole = bool(view.body) and not view.body[-1].is_answer  # that message ends in tool calls
    border = len(raw) if is_whole else stable_prefix(raw)
    text = harmless(raw[:border]).rstrip()
    words = _PLAIN_WORDS.match(raw, border)
    held = harmless(raw[: words.end()]) if words and words.end() > border else ""
    return Draft(text, held, steps)


def _raw(view: View, *, everything: bool) -> str:
    parts = [view.text]
    if view.question is not None:
        parts.append(_question(view.question, everything=everything))
    if everything and view.is_final and view.notice:
        parts.append(f"_{view.notice}_")
    return "\n\n".join(part for part in parts if part)


def _question(question: Question, *, everything: bool) -> str:
    labels = [option.label for option in question.options]
    listed = everything or len(labels) > limits.MOST_OPTIONS or any(len(x) > limits.BUTTON_CHARS for x in labels)
    lines = [f"{number}. {label}" for number, label in enumerate(labels, 1)] if listed else []
    parts = [question.text, "\n".join(lines)]
    if everything and question.answer is not None:
        parts.append(f"Answered: {question.answer}")
    return "\n\n".join(part for part in parts if part)


def _steps(view: View, reasoning: ShowReasoning) -> tuple[StepLine, ...]:
    lines = [_step(step) for step in view.steps]
    if view.reasoning:
        lines.insert(0, _thought(view, reasoning))
    if view.notice and not view.is_final:
        lines.append(StepLine("notice", _title(view.notice), "in_progress"))
    return tuple(lines)


def _thought(view: View, reasoning: ShowReasoning) -> StepLine:
    is_thinking = view.phase in (Phase.WAITING, Phase.THINKING)
    details = ""
    if reasoning is ShowReasoning.ON and not is_thinking:
        details = disarmed(clipped(view.reasoning, limits.THOUGHT_BYTES))
    return StepLine("thought", "Thinking", "in_progress" if is_thinking else "complete", details)


def _step(step: Step) -> StepLine:
    key = f"step:{step.id}" if len(step.id) <= _LONGEST_ID else f"step:{digest_of(step.id)}"
    details = disarmed(clipped(step.detail, limits.TASK_TEXT_BYTES))
    return StepLine(key, _title(step.title), _STATUS[step.state], details, is_todo=step.kind is StepKind.TODO)


def _title(title: str) -> str:
    return disarmed(clipped(title, limits.TASK_TEXT_BYTES)) or "Step"
