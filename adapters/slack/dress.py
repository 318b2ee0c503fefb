"""The blocks around a message's text: steps and notices as small print, buttons, feedback."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from adapters.slack import limits
from adapters.slack.draft import StepLine
from adapters.slack.ops import Block
from adapters.slack.shown import digest_of
from adapters.slack.text import clipped, disarmed
from channels.model import Action, Phase, Press, Question, TurnId, View

_ICONS = {"pending": "○", "in_progress": "▸", "complete": "✓", "error": "✗"}
_LAST_STEPS = 6


@dataclass(frozen=True, slots=True)
class Dress:
    """Blocks before and after the text. `matters` is False for what is not worth a call of its own."""

    before: tuple[Block, ...] = ()
    after: tuple[Block, ...] = ()
    matters: bool = False

    @property
    def digest(self) -> str:
        return digest_of(json.dumps([*self.before, *self.after])) if self.before or self.after else ""


def dress_of(
    view: View,
    turn: TurnId,
    *,
    steps: Sequence[StepLine],
    intro: str,
    lost_files: Sequence[str],
    feedback: bool,
    level: int,
    is_empty: bool,
    in_thread: bool,
) -> Dress:
    """What goes around the text of the last message. `is_empty`: there is no text in it; `steps` are shown while the
    agent works, and when there is nothing else to show; `in_thread`: what is said to the answer has to be said in the
    thread under it."""
    if level >= 2:
        return Dress()
    after: list[Block] = []
    matters = False
    if not view.is_final:
        lines = [f"{_ICONS[step.status]} {' – '.join(x for x in (step.title, step.details) if x)}" for step in steps]
        if lines:
            after.append(_small_print("\n".join(lines[-_LAST_STEPS:])))
        after.append(_actions([_button("Stop", Press(Action.STOP, turn), "stop")]))
        return Dress(_intro(intro), tuple(after), matters=True)
    if view.notice:
        after.append(_small_print(view.notice))
        matters = True
    if lost_files:
        after.append(_small_print("Could not be attached: " + ", ".join(lost_files)))
        matters = True
    if view.question is not None:
        after += _question(view.question, turn, in_thread=in_thread)
        matters = True
    if view.phase in (Phase.FAILED, Phase.STOPPED):
        after.append(_actions([_button("Try again", Press(Action.RETRY, turn), "retry")]))
        matters = True
    if is_empty and not after and steps:
        after.append(_small_print("\n".join(f"{_ICONS[step.status]} {step.title}" for step in steps[-_LAST_STEPS:])))
        matters = True
    if feedback and level == 0 and view.phase is Phase.DONE and view.question is None and not is_empty:
        after.append(_feedback(turn))
    return Dress(_intro(intro), tuple(after), matters or bool(intro))


def _intro(intro: str) -> tuple[Block, ...]:
    return (_small_print(intro),) if intro else ()


def _question(question: Question, turn: TurnId, *, in_thread: bool) -> list[Block]:
    if question.answer is not None:
        return [_small_print(f"Answered: {question.answer}")]
    buttons = [
        _button(option.label, Press(Action.ANSWER, turn, option.id), f"answer_{number}")
        for number, option in enumerate(question.options[: limits.MOST_OPTIONS])
    ]
    size = limits.BUTTONS_PER_BLOCK
    blocks = [_actions(buttons[start : start + size]) for start in range(0, len(buttons), size)]
    if question.free_text:
        how = "in the thread under this message" if in_thread else "with a message here"
        blocks.append(_small_print(f"Or answer {how}." if buttons else f"Answer {how}."))
    return blocks


def _small_print(text: str) -> Block:
    """A context line. Plain text: nothing in it is resolved or formatted."""
    shown = disarmed(text if len(text) <= limits.CONTEXT_CHARS else text[: limits.CONTEXT_CHARS - 1] + "…")
    return {"type": "context", "elements": [{"type": "plain_text", "text": shown, "emoji": False}]}


def _actions(buttons: list[JsonValue]) -> Block:
    return {"type": "actions", "elements": buttons}


def _button(label: str, press: Press, name: str) -> JsonValue:
    return {
        "type": "button",
        "action_id": f"channel_bridge_{name}",
        "text": _plain(label),
        "value": press.encode(),
    }


def _feedback(turn: TurnId) -> Block:
    def button(label: str, value: str) -> JsonValue:
        return {"text": _plain(label), "value": Press(Action.FEEDBACK, turn, value).encode()}

    element: JsonValue = {
        "type": "feedback_buttons",
        "action_id": "channel_bridge_feedback",
        "positive_button": button("Good answer", "up"),
        "negative_button": button("Bad answer", "down"),
    }
    return {"type": "context_actions", "elements": [element]}


def _plain(label: str) -> JsonValue:
    text = " ".join(label.split()) or "…"
    if len(text) > limits.BUTTON_CHARS:
        text = text[: limits.BUTTON_CHARS - 1] + "…"
    return {"type": "plain_text", "text": text, "emoji": False}


def asked_by(name: str, question: str) -> str:
    """The line above the answer to a question that nobody else could see."""
    return f"{name} asked: {clipped(question, 400)}"
