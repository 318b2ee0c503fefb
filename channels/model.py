"""The words of the bridge as types: what a person did (`Inbound`) and what a reply should show (`View`)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NewType

from pydantic import JsonValue

TurnId = NewType("TurnId", str)
"""32 hexadecimal digits; unique over all channels."""
ThreadId = NewType("ThreadId", str)
"""The gateway's thread: always a UUID, which every gateway accepts."""
RunId = NewType("RunId", str)


def new_turn_id() -> TurnId:
    return TurnId(uuid.uuid4().hex)


# ---------------------------------------------------------------- inbound


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a channel a conversation happens.

    `thread` is the root of a thread or a topic; `user` is set only where the policy gives each person a
    conversation of their own. `private` says that only one person and the bot are there.
    """

    channel: str
    chat: str
    thread: str | None = None
    user: str | None = None
    private: bool = False

    @property
    def key(self) -> str:
        """One string for one conversation; equal places have equal keys, also across processes."""
        return json.dumps([self.chat, self.thread, self.user], ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Sender:
    """Who did it. `id` is the platform's own id, as a string; `name` is for people to read."""

    id: str
    name: str = ""
    is_bot: bool = False


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that came with a message. `reference` is what the adapter needs to fetch it (never a secret)."""

    name: str
    mime: str
    reference: Mapping[str, JsonValue]
    size: int | None = None


class InboundKind(StrEnum):
    MESSAGE = "message"
    COMMAND = "command"
    PRESS = "press"
    STOPPED = "stopped"  # the person used the platform's own stop control
    EDITED = "edited"
    DELETED = "deleted"  # the question was taken back


class Action(StrEnum):
    """What a button does; the letter is what travels through the platform."""

    STOP = "s"
    ANSWER = "a"
    RETRY = "r"
    FEEDBACK = "f"


@dataclass(frozen=True, slots=True)
class Press:
    """A button press. `turn` is the turn whose reply carries the button.

    `value` is an option's id or, when it `is_typed`, what the person wrote into the field beside the button.
    """

    action: Action
    turn: TurnId
    value: str = ""
    is_typed: bool = False

    def encode(self) -> str:
        """The button's payload: at most 64 bytes for values of up to 27 bytes (Telegram's callback_data limit)."""
        return f"{self.action}:{self.turn}:{self.value}"

    @classmethod
    def decode(cls, payload: str) -> Press | None:
        """The press behind a payload, or None when this bridge never made such a button."""
        action, _, rest = payload.partition(":")
        turn, _, value = rest.partition(":")
        if action not in set(Action) or not turn:
            return None
        return cls(Action(action), TurnId(turn), value)


@dataclass(frozen=True, slots=True)
class Inbound:
    """One thing a person did.

    `event_key` is unique within the channel: it is what a redelivery repeats, and what several deliveries of the
    same act have in common. `received_at` is when it came here, `sent_at` when the platform says that the person did
    it (None: it does not say); both are seconds since the epoch. `message_id` is the message a reply answers to.
    `reply_to` is the message the person replied to, if any. Inbounds of one conversation with the same `group` become
    one turn; the turn waits until `settle` seconds have passed without another member. `comes_again`: the platform
    delivers it once more when it is not acked; otherwise the person is told, and has to do it once more. `quote` is
    what the person replied to or passed on, in words, unless this bot wrote it: the question may be about that.
    `extra` is what only this adapter needs to answer.
    """

    place: Place
    sender: Sender
    event_key: str
    kind: InboundKind
    text: str
    received_at: float
    message_id: str
    attachments: tuple[Attachment, ...] = ()
    mentions_bot: bool = False
    reply_to: str | None = None
    press: Press | None = None
    group: str | None = None
    settle: float = 0.0
    sent_at: float | None = None
    comes_again: bool = True
    quote: str = ""
    extra: Mapping[str, JsonValue] = field(default_factory=dict)

    @property
    def channel(self) -> str:
        return self.place.channel

    @property
    def asked_at(self) -> float:
        """The order of a conversation's inbounds: a redelivery may bring an earlier one after a later one."""
        return self.received_at if self.sent_at is None else self.sent_at

    def at(self, place: Place) -> Inbound:
        return replace(self, place=place)


# ---------------------------------------------------------------- view


class Phase(StrEnum):
    """What the reply is doing. The last four are final: the view will not change any more by itself."""

    WAITING = "waiting"
    THINKING = "thinking"
    WORKING = "working"
    WRITING = "writing"
    ASKING = "asking"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        return self in _FINAL


_FINAL = frozenset({Phase.ASKING, Phase.DONE, Phase.STOPPED, Phase.FAILED})


@dataclass(frozen=True, slots=True)
class Segment:
    """One assistant message of the turn, as Markdown. `is_answer` marks the answer; the others led up to it."""

    id: str
    text: str
    is_answer: bool = True


class StepState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class StepKind(StrEnum):
    TOOL = "tool"
    TASK = "task"  # a sub-agent
    TODO = "todo"


@dataclass(frozen=True, slots=True)
class Step:
    """One thing done on the way. `started` and `ended` are seconds since the epoch."""

    id: str
    title: str
    state: StepState
    kind: StepKind = StepKind.TOOL
    detail: str = ""
    started: float | None = None
    ended: float | None = None


@dataclass(frozen=True, slots=True)
class Option:
    """One answer to a question. `id` is short (an index as a string) and travels in a button's payload."""

    id: str
    label: str


@dataclass(frozen=True, slots=True)
class Question:
    """What the agent wants to know. `answer` is set once somebody has answered: then nothing can be pressed."""

    id: str
    text: str
    options: tuple[Option, ...] = ()
    free_text: bool = True
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class File:
    """A file the agent made. `reference` is what the gateway needs to hand it out (never a secret)."""

    id: str
    name: str
    mime: str = "application/octet-stream"
    size: int | None = None
    reference: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of all model calls of the turn."""

    input_tokens: int = 0
    output_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class View:
    """The platform-neutral picture of what a reply should show now.

    `body` holds the assistant messages in order and normally only grows. `notice` is a sentence of the bridge
    itself (a failure, "stopped", a queue place), never part of the answer. `revision` rises with every change.
    """

    phase: Phase = Phase.WAITING
    body: tuple[Segment, ...] = ()
    reasoning: str = ""
    steps: tuple[Step, ...] = ()
    question: Question | None = None
    files: tuple[File, ...] = ()
    notice: str = ""
    usage: Usage | None = None
    revision: int = 0

    @property
    def is_final(self) -> bool:
        return self.phase.is_final

    @property
    def text(self) -> str:
        """The whole body as one Markdown document: non-empty segments, a blank line between two."""
        return "\n\n".join(segment.text for segment in self.body if segment.text)

    @property
    def has_content(self) -> bool:
        """Whether there is anything to show yet beyond the fact that a question was taken."""
        return bool(self.reasoning or self.steps or self.question or self.files or self.notice) or any(
            segment.text for segment in self.body
        )
