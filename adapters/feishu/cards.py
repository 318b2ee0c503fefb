"""Cards of schema 2.0: a header that says how things are, folded panels, the text, and what can be pressed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from pydantic import JsonValue

from adapters.feishu.ops import LABEL_CHARACTERS, NARROW_PANEL_BYTES, OPTION_BUTTONS, PANEL_BYTES
from channels.markdown import json_utf8_bytes, plain_inline, summary
from channels.model import Action, Phase, Press, Question, Step, StepState, TurnId, View

Json = dict[str, JsonValue]

ANSWER = "answer"
"""The id of the element that holds the text."""
FORM, FORM_INPUT = "reply_form", "reply_text"
INPUT_CHARACTERS = 1000  # the platform's limit for an input

_SUMMARY_CHARACTERS = 100
_NOTICE_CHARACTERS = 500
_TITLE_CHARACTERS = 60
_DETAIL_CHARACTERS = 160
_STREAMING_CONFIG: Json = {
    # 200 characters a second: faster than models write, so that the reader sees a smooth flow; what is left over is
    # shown when the next text comes.
    "print_frequency_ms": {"default": 30},
    "print_step": {"default": 6},
    "print_strategy": "fast",
}
_MARKS = {StepState.PENDING: "○", StepState.RUNNING: "◐", StepState.DONE: "●", StepState.FAILED: "✕"}


class Role(Enum):
    """What a message is in its reply."""

    LIVE = "the last one, still growing"
    LAST = "the last one, final"
    FULL = "full; the text goes on in the next one"


@dataclass(frozen=True, slots=True)
class Style:
    """What a channel's cards show."""

    reasoning_expanded: bool = False
    feedback: bool = False
    retry: bool = True


@dataclass(frozen=True, slots=True)
class Frame:
    """Everything of a card but its text."""

    header: Json | None
    above: tuple[Json, ...]
    below: tuple[Json, ...]
    summary: str

    @property
    def is_empty(self) -> bool:
        return not (self.header or self.above or self.below)

    @property
    def digest(self) -> str:
        return digest(json.dumps([self.header, self.above, self.below, self.summary], ensure_ascii=False))

    def card(self, text: str, *, bare: bool, streaming: bool, summarised: str = "") -> str:
        """The card's JSON around a rendered text. `summarised` is the text for chat lists when the frame has none."""
        elements = [*self.above, *self.below]
        if text.strip() or streaming or not elements:
            text = text if text.strip() or streaming else "…"
            elements.insert(len(self.above), _text(text, bare=bare))
        config: Json = {
            "update_multi": True,
            "width_mode": "fill",
            "streaming_mode": streaming,
            "summary": {"content": self.summary or summary(summarised or text, _SUMMARY_CHARACTERS)},
        }
        if streaming:
            config["streaming_config"] = _STREAMING_CONFIG
        card: Json = {"schema": "2.0", "config": config, "body": {"elements": list(elements)}}
        if self.header is not None:
            card["header"] = self.header
        return json.dumps(card, ensure_ascii=False, separators=(",", ":"))


def frame(view: View, role: Role, turn: TurnId, style: Style, context: Json, *, bare: bool, narrow: bool) -> Frame:
    """What surrounds the text in a message of this role. `context` travels with every button.

    `narrow`: the text needs the room, panels are short. `bare`: no panels and no form.
    """
    if role is Role.FULL:
        return Frame(None, (), (), "")
    buttons = Buttons(turn, context)
    above: list[Json] = []
    below: list[Json] = []
    if not bare:
        room = NARROW_PANEL_BYTES if narrow else PANEL_BYTES
        if view.reasoning:
            expanded = style.reasoning_expanded and role is Role.LIVE
            above.append(_panel("reasoning", _THOUGHTS, _tail(view.reasoning, room), expanded=expanded))
        if view.steps:
            above.append(_panel("steps", _steps_title(view.steps), _steps(view.steps, room)))
    if view.notice:
        below.append(_notice(view.notice))
    below += _controls(view, role, buttons, style, bare=bare)
    header = _header(view, role)
    return Frame(header, tuple(above), tuple(below), _status(view)[0] if role is Role.LIVE else "")


def below_question(question: Question, *, buttons: bool) -> str:
    """What the reply's text says below a question: its answer, or the options if no `buttons` say them in full."""
    if question.answer is not None:
        return f"➤ {question.answer}"
    labels = [option.label for option in question.options]
    if buttons and len(labels) <= OPTION_BUTTONS and all(len(label) <= LABEL_CHARACTERS for label in labels):
        return ""
    return "\n".join(f"{number}. {label}" for number, label in enumerate(labels, start=1))


def digest(text: str) -> str:
    """A short name for a text."""
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=9).hexdigest()


# ---------------------------------------------------------------- words, in the reader's language

_Words = tuple[str, str]
_THOUGHTS: _Words = ("Thinking", "思考过程")
_THINKING: _Words = ("Thinking…", "思考中…")
_WORKING: _Words = ("Working…", "处理中…")
_ANSWERING: _Words = ("Answering…", "回答中…")
_END_HEADERS: dict[Phase, tuple[_Words, str]] = {
    Phase.ASKING: (("Your answer is needed", "需要你的回答"), "orange"),
    Phase.STOPPED: (("Stopped", "已停止"), "grey"),
    Phase.FAILED: (("Failed", "出错了"), "red"),
}
_STOP: _Words = ("Stop", "停止")
_RETRY: _Words = ("Retry", "重试")
_SEND: _Words = ("Send", "发送")
_TYPE_HERE: _Words = ("Type your answer", "输入你的回答")


def _words(words: _Words) -> Json:
    english, chinese = words
    return {
        "tag": "plain_text",
        "content": english,
        "i18n_content": {"en_us": english, "zh_cn": chinese},
    }


def _plain(text: str) -> Json:
    return {"tag": "plain_text", "content": text}


# ---------------------------------------------------------------- parts


def _text(text: str, *, bare: bool) -> Json:
    if bare:
        return {"tag": "div", "text": {**_plain(text), "element_id": ANSWER}}
    return {"tag": "markdown", "element_id": ANSWER, "content": text}


def _status(view: View) -> _Words:
    running = next((step for step in reversed(view.steps) if step.state is StepState.RUNNING), None)
    if view.phase is Phase.WORKING:
        if running is None or not running.title:
            return _WORKING
        title = _cut(running.title, _TITLE_CHARACTERS)
        return (f"{title}…", f"{title}…")
    return _ANSWERING if view.text else _THINKING


def _header(view: View, role: Role) -> Json | None:
    if role is Role.LIVE:
        return _title(_status(view), "blue")
    if view.phase is Phase.ASKING and view.question is not None and view.question.answer is not None:
        return None
    words, colour = _END_HEADERS.get(view.phase, (None, ""))
    return _title(words, colour) if words is not None else None


def _title(words: _Words, colour: str) -> Json:
    return {"title": _words(words), "template": colour, "padding": "6px 12px 6px 12px"}


def _panel(element_id: str, title: _Words, text: str, *, expanded: bool = False) -> Json:
    return {
        "tag": "collapsible_panel",
        "element_id": element_id,
        "expanded": expanded,
        "header": {"title": _words(title)},
        "elements": [{"tag": "div", "text": {**_plain(text), "text_size": "notation", "text_color": "grey"}}],
    }


def _steps_title(steps: Sequence[Step]) -> _Words:
    done = sum(step.state in (StepState.DONE, StepState.FAILED) for step in steps)
    return (f"Steps {done}/{len(steps)}", f"步骤 {done}/{len(steps)}")


def _steps(steps: Sequence[Step], room: int) -> str:
    """The newest steps that fit into `room` bytes, in order."""
    lines: list[str] = []
    for number in range(len(steps) - 1, -1, -1):
        step = steps[number]
        line = f"{_MARKS[step.state]} {_cut(step.title, _TITLE_CHARACTERS)}"
        if step.detail:
            line += f" · {_cut(step.detail, _DETAIL_CHARACTERS)}"
        room -= json_utf8_bytes(line) + 2
        if room < 0:
            lines.append(f"… {number + 1}")
            break
        lines.append(line)
    return "\n".join(reversed(lines))


def _notice(text: str) -> Json:
    words = {**_plain(plain_inline(_cut(text, _NOTICE_CHARACTERS))), "text_size": "notation", "text_color": "grey"}
    return {"tag": "div", "text": words}


def _tail(text: str, room: int) -> str:
    """The end of a text, in at most `room` bytes."""
    if json_utf8_bytes(text) <= room:
        return text
    kept = text[-room:]
    while json_utf8_bytes(kept) > room - 5:
        kept = kept[len(kept) // 8 + 1 :]
    return f"… {kept}"


def _cut(text: str, characters: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= characters else f"{line[: characters - 1].rstrip()}…"


# ---------------------------------------------------------------- what can be pressed


class Buttons:
    """Makes buttons that call back with a press of this turn."""

    def __init__(self, turn: TurnId, context: Json) -> None:
        self._turn = turn
        self._context = context

    def button(self, action: Action, label: Json, value: str = "", *, look: str = "default", name: str = "") -> Json:
        payload: Json = {"press": Press(action, self._turn, value).encode(), **self._context}
        button: Json = {"tag": "button", "text": label, "type": look}
        if name:
            button |= {"name": name, "form_action_type": "submit"}
        button["behaviors"] = [{"type": "callback", "value": payload}]
        return button


def _controls(view: View, role: Role, buttons: Buttons, style: Style, *, bare: bool) -> list[Json]:
    if role is Role.LIVE:
        return [_row([buttons.button(Action.STOP, _words(_STOP), look="danger")])]
    question = view.question
    if view.phase is Phase.ASKING and question is not None:
        return _answers(question, buttons, bare=bare) if question.answer is None else []
    if view.phase in (Phase.FAILED, Phase.STOPPED) and style.retry:
        return [_row([buttons.button(Action.RETRY, _words(_RETRY))])]
    if view.phase is Phase.DONE and style.feedback and view.text and question is None:
        thumbs = (("👍", "up"), ("👎", "down"))
        return [_row([buttons.button(Action.FEEDBACK, _plain(sign), value, look="text") for sign, value in thumbs])]
    return []


def _answers(question: Question, buttons: Buttons, *, bare: bool) -> list[Json]:
    parts: list[Json] = []
    options = question.options[:OPTION_BUTTONS]
    if options:
        row = [
            buttons.button(
                Action.ANSWER,
                _plain(_cut(option.label, LABEL_CHARACTERS) or option.id),
                option.id,
                look="default" if position else "primary",
            )
            for position, option in enumerate(options)
        ]
        parts.append(_row(row))
    if question.free_text and not bare:
        entry: Json = {
            "tag": "input",
            "name": FORM_INPUT,
            "placeholder": _words(_TYPE_HERE),
            "max_length": INPUT_CHARACTERS,
            "width": "fill",
        }
        send = buttons.button(Action.ANSWER, _words(_SEND), name="reply_send", look="primary")
        parts.append({"tag": "form", "name": FORM, "elements": [entry, send]})
    return parts


def _row(buttons: Sequence[Json]) -> Json:
    columns: list[JsonValue] = [{"tag": "column", "width": "auto", "elements": [button]} for button in buttons]
    return {"tag": "column_set", "flex_mode": "flow", "horizontal_spacing": "8px", "columns": columns}
