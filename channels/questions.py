"""What an agent asks a person, and what their answer means to the agent. Pure, and JSON-able: questions are stored.

Three things ask: LangGraph's `interrupt(value)` with any value, LangChain's human-in-the-loop requests (approve, edit,
reject, respond; the older `HumanInterrupt` form too), and DeerFlow's clarification, which is answered by the next
message. A request to review several actions is asked as several questions and answered together.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, JsonValue

from channels.inputs import Ask, Resume
from channels.markdown import heal
from channels.model import Option, Question, Sender
from channels.shapes import as_list, as_object, as_text, first_text
from channels.strict_json import read_json
from channels.verbatim import as_code, listed

if TYPE_CHECKING:
    from channels.transcript.messages import ToolCall


class InterruptKind(StrEnum):
    PLAIN = "plain"  # resumed with what the person says or the chosen option's value
    REVIEW = "review"  # LangChain's human-in-the-loop middleware: {"decisions": […]}
    OLD_REVIEW = "old_review"  # the older HumanInterrupt: [{"type": …, "args": …}]
    MESSAGE = "message"  # answered by the next message
    BREAKPOINT = "breakpoint"  # the graph goes on or is left where it stands; it is told nothing


class Choice(BaseModel):
    """An option with what it means to the agent."""

    model_config = ConfigDict(frozen=True)

    label: str
    value: JsonValue = None
    words: tuple[str, ...] = ()


class Interrupt(BaseModel):
    """One open question. `id` is the gateway's (empty: it gave none); several parts of one interrupt share it.

    `heard` are the ids of the assistant messages shown so far: what comes after the answer is none of them.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    kind: InterruptKind = InterruptKind.PLAIN
    text: str = ""
    choices: tuple[Choice, ...] = ()
    free_text: bool = True
    part: int = 0
    parts: int = 1
    action: str = ""
    args: dict[str, JsonValue] = {}
    allowed: tuple[str, ...] = ()
    value_type: str = ""
    heard: tuple[str, ...] = ()

    @property
    def question(self) -> Question:
        """The question as a view shows it; option ids are positions, short enough for a button."""
        name = self.id or "question"
        return Question(
            id=name if self.parts == 1 else f"{name}.{self.part}",
            text=self.text,
            options=tuple(Option(str(position), choice.label) for position, choice in enumerate(self.choices)),
            free_text=self.free_text,
        )

    def chosen(self, said: str, *, pressed: bool = False) -> Choice | None:
        """The choice that a pressed option's id or typed text means; None: none of the choices.

        Typed text means a choice when it is its label, its value or its number (from 1), and nothing but that: what
        is nearly "approve" may be "disapprove". Only to leave a breakpoint the first word of a sentence is enough. A
        press whose value is no option's id is text typed into a form.
        """
        if pressed:
            for position, choice in enumerate(self.choices):
                if said == str(position):
                    return choice
        meant = _plain(said)
        if not meant:
            return None
        for choice in self.choices:
            if meant in (_plain(choice.label), _plain(as_text(choice.value)), *choice.words):
                return choice
        number = meant.removeprefix("option").strip(" .)#")
        for position, choice in enumerate(self.choices, 1):
            if number == str(position) or _unspaced(meant) == _unspaced(_plain(choice.label)):
                return choice
        is_left = self.kind is InterruptKind.BREAKPOINT and _deciding_word(said) in _REJECT
        return self.choices[-1] if is_left else None

    def refusal(self, said: str, *, pressed: bool = False) -> str:
        """What to tell somebody whose words are no answer to this question; empty: they are one."""
        if self.chosen(said, pressed=pressed) is not None:
            return ""
        if self._is_review:
            return "" if self._decision(said.strip()) is not None else self._how_to_decide()
        if not self.free_text:
            return "Please choose one of the answers."
        if self.value_type in _TYPES:
            return "" if self._typed(said) is not None else f"Please answer with {_TYPES[self.value_type][1]}."
        return "" if said.strip() else "Please answer in words."

    def answer(self, said: str, *, pressed: bool = False, remark: str = "") -> JsonValue:
        """What to tell the agent for a pressed option's id or for typed text, if `refusal` has nothing against it.

        `remark` is what the bridge adds where the answer is text for the agent to read.
        """
        choice = self.chosen(said, pressed=pressed)
        if choice is not None:
            return choice.label if self.kind is InterruptKind.MESSAGE and choice.value is None else choice.value
        text = said.strip()
        if self._is_review:
            return self._decision(text, remark)
        return self._typed(text) if self.value_type in _TYPES else text + remark

    def shown_answer(self, said: str, *, pressed: bool = False) -> str:
        """What a reader sees as the answer given."""
        choice = self.chosen(said, pressed=pressed)
        return choice.label if choice is not None else said.strip()

    @property
    def _is_review(self) -> bool:
        return self.kind in (InterruptKind.REVIEW, InterruptKind.OLD_REVIEW)

    def _typed(self, text: str) -> JsonValue:
        """What the text says as a value of the wanted type; None: it says none."""
        try:
            value = read_json(text)
        except ValueError:
            return None
        types, _ = _TYPES[self.value_type]
        return value if isinstance(value, types) and isinstance(value, bool) is (types is bool) else None

    def _decision(self, text: str, remark: str = "") -> JsonValue:
        """What words that are no choice decide about an action; None: nothing, for that takes an explicit word."""
        old = self.kind is InterruptKind.OLD_REVIEW
        word = _deciding_word(text)
        if "edit" in self.allowed:
            edited = self._edited(text)
            if edited is not None and old:
                return {"type": "edit", "args": {"action": self.action, "args": edited}}
            if edited is not None:
                return {"type": "edit", "edited_action": {"name": self.action, "args": edited}}
            if word == "edit":
                return None
        if "reject" in self.allowed and word in _REJECT and not old:
            return {"type": "reject", "message": text + remark}
        if "respond" not in self.allowed or not text:
            return None
        return {"type": "response", "args": text + remark} if old else {"type": "respond", "message": text + remark}

    def _how_to_decide(self) -> str:
        old = self.kind is InterruptKind.OLD_REVIEW
        ways = [
            "“ignore”" if decision == "reject" and old else _HOW_TO_DECIDE[decision]
            for decision in _HOW_TO_DECIDE
            if decision in self.allowed
        ]
        return f"This takes an explicit word. Please answer {' or '.join(ways)}."

    def _edited(self, text: str) -> dict[str, JsonValue] | None:
        """New arguments out of `edit: …`: a JSON object, or the new value where there is one argument only."""
        word, _, rest = text.partition(":")
        body = rest.strip() if word.strip().casefold() == "edit" else text
        try:
            value = read_json(body)
        except ValueError:
            value = None
        if isinstance(value, dict):
            return {**self.args, **value}
        if body is not text and len(self.args) == 1 and body:
            return {next(iter(self.args)): body}
        return None


_CLAUSE_END = re.compile(r"[\n,:;.!–—，：；。！]")
"""What ends the word that decides, when reasons follow it."""

_TYPES: dict[str, tuple[type | tuple[type, ...], str]] = {
    "boolean": (bool, "“yes” or “no”"),
    "integer": (int, "a whole number"),
    "number": ((int, float), "a number, such as 12.5"),
    "object": (dict, "JSON, as shown"),
    "array": (list, 'a JSON list, such as `["one", "two"]`'),
}
"""JSON Schema's types other than text: what a typed answer must be, and how a reader is told."""

_HOW_TO_DECIDE = {
    "approve": "“approve”",
    "reject": "“reject” (“reject: …” says why)",
    "edit": "“edit: …” with what to change",
    "respond": "in your own words",
}


def _plain(text: str) -> str:
    return " ".join(text.casefold().replace("’", "'").split()).strip(" .!。！\"'")


def _deciding_word(text: str) -> str:
    return _plain(_CLAUSE_END.split(text, maxsplit=1)[0])


def _unspaced(text: str) -> str:
    return text.replace(" ", "")


# ---------------------------------------------------------------- reading what asks

_YES = ("yes", "y", "yes please", "yes, please", "ok", "okay", "是")
_NO = ("no", "n", "no thanks", "no, thanks", "否", "不")
_APPROVE = (*_YES, "approve", "approved", "accept", "go ahead", "同意", "批准")
_REJECT = (*_NO, "reject", "rejected", "deny", "cancel", "stop", "don't", "do not", "拒绝", "不要", "取消", "停止")
_QUESTION_KEYS = ("question", "message", "prompt", "query", "text", "instruction", "description", "title")
_OPTION_KEYS = ("options", "choices", "buttons", "suggestions")
_LABEL_KEYS = ("label", "title", "text", "name", "value", "id")
_FREE_KEYS = ("free_text", "allow_free_text", "allow_other")


def open_questions(interrupts: JsonValue) -> tuple[Interrupt, ...]:
    """The questions in a list of interrupts (`[{"id", "value", …}]`), in order, each askable by itself."""
    found: list[Interrupt] = []
    for item in as_list(interrupts):
        source = as_object(item)
        if "value" not in source and "id" not in source:
            continue
        identity = as_text(source.get("id")) or as_text(source.get("interrupt_id"))
        found.extend(_questions(identity, source.get("value"), source.get("response_schema")))
    return tuple(found)


def breakpoint_question(steps: Sequence[str], calls: Sequence[ToolCall] = ()) -> Interrupt:
    """The question at a static breakpoint: the graph stands before these steps and waits for a go-ahead.

    `calls` are the tool calls that the agent has made and that have no result yet.
    """
    names = " and ".join(f"“{step}”" for step in dict.fromkeys(steps))
    parts = [f"The agent has stopped before {names}. Shall it go on?"]
    for call in calls:
        parts += [_wants(call.name), listed(call.args)]
    return Interrupt(
        id="",
        kind=InterruptKind.BREAKPOINT,
        text="\n\n".join(part for part in parts if part),
        choices=(
            Choice(label="Go on", value=True, words=(*_APPROVE, "continue", "proceed", "继续")),
            Choice(label="Leave it", value=False, words=_REJECT),
        ),
        free_text=False,
    )


def clarification(message_id: str, content: str, artifact: JsonValue) -> Interrupt:
    """DeerFlow's question: its `ask_clarification` tool's message, answered by the next message."""
    request = as_object(as_object(artifact).get("human_input"))
    question = first_text(request, "question")
    if request.get("fields") or not question:
        text = content.strip()  # a form, or an older version: the written text names every field
    else:
        context = first_text(request, "context")
        text = f"{context}\n\n{question}" if context else question
    return Interrupt(
        id=message_id,
        kind=InterruptKind.MESSAGE,
        text=text,
        choices=_choices(request.get("options")),
    )


def _questions(identity: str, value: JsonValue, schema: JsonValue) -> list[Interrupt]:
    source = as_object(value)
    actions = [as_object(action) for action in as_list(source.get("action_requests"))]
    if actions:
        configs = [as_object(config) for config in as_list(source.get("review_configs"))]
        return [_review(identity, action, configs, part, len(actions)) for part, action in enumerate(actions)]
    requests = value if isinstance(value, list) else [value]
    olds = [as_object(request) for request in requests if as_object(as_object(request).get("action_request"))]
    if olds and len(olds) == len(requests):
        return [_old_review(identity, request, part, len(olds)) for part, request in enumerate(olds)]
    return [_plain_question(identity, value, as_object(schema))]


def _review(
    identity: str, action: Mapping[str, JsonValue], configs: Sequence[Mapping[str, JsonValue]], part: int, parts: int
) -> Interrupt:
    name = first_text(action, "name", "action") or "action"
    args = as_object(action.get("args")) or as_object(action.get("arguments"))
    config = next((c for c in configs if as_text(c.get("action_name")) == name), {})
    if not config and part < len(configs):
        config = configs[part]
    named = {as_text(decision) for decision in as_list(config.get("allowed_decisions"))}
    decisions = tuple(decision for decision in _HOW_TO_DECIDE if decision in named) or ("approve", "reject", "edit")
    choices: list[Choice] = []
    if "approve" in decisions:
        choices.append(Choice(label="Approve", value={"type": "approve"}, words=_APPROVE))
    if "reject" in decisions:
        choices.append(Choice(label="Reject", value={"type": "reject"}, words=_REJECT))
    return Interrupt(
        id=identity,
        kind=InterruptKind.REVIEW,
        text=_review_text(name, args, as_text(action.get("description")), decisions),
        choices=tuple(choices),
        free_text=bool({"edit", "reject", "respond"} & set(decisions)),
        part=part,
        parts=parts,
        action=name,
        args=dict(args),
        allowed=decisions,
    )


_OLD_FLAGS = {
    "allow_accept": "approve",
    "allow_edit": "edit",
    "allow_respond": "respond",
    "allow_ignore": "reject",
}


def _old_review(identity: str, request: Mapping[str, JsonValue], part: int, parts: int) -> Interrupt:
    action = as_object(request.get("action_request"))
    name = first_text(action, "action", "name") or "action"
    args = as_object(action.get("args"))
    config = as_object(request.get("config"))
    decisions = tuple(word for flag, word in _OLD_FLAGS.items() if config.get(flag) is True) or tuple(_HOW_TO_DECIDE)
    choices: list[Choice] = []
    if "approve" in decisions:
        choices.append(Choice(label="Approve", value={"type": "accept", "args": None}, words=_APPROVE))
    if "reject" in decisions:
        choices.append(Choice(label="Ignore", value={"type": "ignore", "args": None}, words=(*_REJECT, "ignore")))
    return Interrupt(
        id=identity,
        kind=InterruptKind.OLD_REVIEW,
        text=_review_text(name, args, as_text(request.get("description")), decisions),
        choices=tuple(choices),
        free_text=bool({"edit", "respond"} & set(decisions)),
        part=part,
        parts=parts,
        action=name,
        args=dict(args),
        allowed=decisions,
    )


def _review_text(name: str, args: Mapping[str, JsonValue], description: str, decisions: Sequence[str]) -> str:
    # LangChain's own description ends with the arguments as Python writes them.
    said = description.strip().removesuffix(f"Args: {dict(args)}").strip()
    if "```" in said or "~~~" in said:
        said = heal(said)  # an unclosed code block would swallow the arguments
    parts = [said, "" if name in said else _wants(name), listed(args)]
    if "edit" in decisions:
        example = json.dumps(dict.fromkeys(list(args)[:2], "…"), ensure_ascii=False)
        parts.append(f"To change it first, answer `edit: {example}`.")
    return "\n\n".join(part for part in parts if part)


def _wants(action: str) -> str:
    return f"The agent wants to run “{action}”."


def _plain_question(identity: str, value: JsonValue, schema: Mapping[str, JsonValue]) -> Interrupt:
    source = as_object(value)
    offered: tuple[Choice, ...] = ()
    for key in _OPTION_KEYS:
        offered = offered or _choices(source.get(key))
    value_type = as_text(schema.get("type"))
    choices = offered or _schema_choices(schema, value_type)
    free = next((source[key] for key in _FREE_KEYS if key in source), True)
    text = _plain_text(value) or "The agent waits for your answer."
    if value_type == "object":
        names = list(as_object(schema.get("properties"))) or ["name"]
        text += f"\n\nAnswer with JSON, such as `{json.dumps(dict.fromkeys(names, '…'), ensure_ascii=False)}`."
    return Interrupt(
        id=identity,
        text=text,
        choices=choices,
        free_text=not choices or (bool(offered) and free is not False),
        value_type=value_type,
    )


def _plain_text(value: JsonValue) -> str:
    """The question with all that stands beside it, for that is what people are asked about."""
    if isinstance(value, str):
        return value.strip()
    source = as_object(value)
    if not source:
        return "" if value is None else as_code(value)
    question = next((key for key in _QUESTION_KEYS if as_text(source.get(key)).strip()), "")
    options = [key for key in _OPTION_KEYS if _choices(source.get(key))]
    shown = {question, *options, *_FREE_KEYS}
    rest = {key: item for key, item in source.items() if key not in shown and item not in (None, "", [], {})}
    return "\n\n".join(part for part in (as_text(source.get(question)).strip(), listed(rest)) if part)


def _schema_choices(schema: Mapping[str, JsonValue], value_type: str) -> tuple[Choice, ...]:
    if value_type == "boolean":
        yes = Choice(label="Yes", value=True, words=(*_YES, "true"))
        return (yes, Choice(label="No", value=False, words=(*_NO, "false")))
    return _choices(schema.get("enum"))


def _choices(value: JsonValue) -> tuple[Choice, ...]:
    found: list[Choice] = []
    for item in as_list(value):
        source = as_object(item)
        if source:
            label = first_text(source, *_LABEL_KEYS)
            meaning = source.get("value", source.get("id", label))
        else:
            label = item.strip() if isinstance(item, str) else json.dumps(item, ensure_ascii=False)
            meaning = item
        if label := " ".join(label.split()):
            found.append(Choice(label=label, value=meaning))
    return tuple(found)


# ---------------------------------------------------------------- answering


LEFT_NOTICE = "Left there: that step is not taken. Your next message begins something new."
"""What a person is told who does not want the graph to go on."""


def resume_values(interrupts: Sequence[Interrupt], answers: Sequence[JsonValue]) -> dict[str, JsonValue]:
    """What each interrupt is resumed with, by its id; answers are in the order of the interrupts."""
    values: dict[str, JsonValue] = {}
    decisions: dict[str, list[JsonValue]] = {}
    for interrupt, answer in zip(interrupts, answers, strict=True):
        if interrupt.kind is InterruptKind.REVIEW:
            decisions.setdefault(interrupt.id, []).append(answer)
            values[interrupt.id] = {"decisions": decisions[interrupt.id]}
        elif interrupt.kind is InterruptKind.OLD_REVIEW:
            decisions.setdefault(interrupt.id, []).append(answer)
            values[interrupt.id] = decisions[interrupt.id]
        else:
            values[interrupt.id] = answer
    return values


def next_input(interrupts: Sequence[Interrupt], answers: Sequence[JsonValue], *, sender: Sender) -> Ask | Resume | None:
    """The input of the run that takes the answers (one for each interrupt, in order, from `Interrupt.answer`).

    A resume by interrupt id, or the next message where the gateway wants that. None: nothing may run, for the person
    leaves the breakpoint.
    """
    heard = tuple(dict.fromkeys(identity for interrupt in interrupts for identity in interrupt.heard))
    if any(interrupt.kind is InterruptKind.BREAKPOINT for interrupt in interrupts):
        # Any value would be the answer to whatever the step asks first.
        return Resume({}, heard) if all(answer is True for answer in answers) else None
    if any(interrupt.kind is InterruptKind.MESSAGE for interrupt in interrupts):
        return Ask("\n\n".join(str(answer) for answer in answers), sender)
    return Resume(resume_values(interrupts, answers), heard)
