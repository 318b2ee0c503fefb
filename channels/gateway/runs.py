"""What the gateway is asked for, and what it reports when a run has ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pydantic import JsonValue

from channels.inputs import Ask, Resume
from channels.model import ThreadId, TurnId, View
from channels.questions import Interrupt


class WhenBusy(StrEnum):
    """What to do when the thread has a run that is not ours."""

    QUEUE = "queue"
    INTERRUPT = "interrupt"
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class RunRequest:
    """One turn's run. `timeout` is how long it may take, in seconds (None: a day).

    `begun_at` is since when it is known, in seconds since the epoch; None: it is not yet.
    """

    turn: TurnId
    thread: ThreadId
    input: Ask | Resume
    assistant_id: str
    config: Mapping[str, JsonValue] = field(default_factory=dict)
    context: Mapping[str, JsonValue] = field(default_factory=dict)
    timeout: float | None = None
    begun_at: float | None = None
    when_busy: WhenBusy = WhenBusy.QUEUE
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How a run ended. `view` is final; `note` is the cause for operators, without secrets.

    `leaves_a_break`: the next question needs its thread mended (see `channels.inputs.Break`).
    """

    view: View
    interrupts: tuple[Interrupt, ...] = ()
    note: str = ""
    leaves_a_break: bool = False
