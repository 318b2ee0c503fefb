"""What the store hands out: conversations, turns, leases."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pydantic import JsonValue

from channels.model import Inbound, Place, RunId, ThreadId, TurnId, View


class StoreError(Exception):
    """The store could not do it. The text names the cause and carries no secrets."""


class StoreUnavailable(StoreError):
    """The database is away, locked or full. The work may or may not have been done; it heals by itself."""


class Unstorable(StoreError):
    """The database refuses what it was given, and always will. Nothing was written."""


class LostLease(StoreError):
    """This owner's epoch is outdated: another replica owns the channel. Nothing was written; stop sending."""


class Unreadable(StoreError):
    """A row means nothing to this version: another one wrote it, or it is damaged. The text quotes no value."""


class Lane(StrEnum):
    """TURN inbounds wait for their conversation; CONTROL ones act at once and never queue behind a run."""

    TURN = "turn"
    CONTROL = "control"


class TurnState(StrEnum):
    """How far a turn has come; each state says what has surely happened, and what may have happened since."""

    CLAIMED = "claimed"  # the inbounds are this turn's; the gateway's thread may exist
    THREAD = "thread"  # the thread exists; no run has been asked for
    REQUESTED = "requested"  # a run has been asked for; it may exist: look it up by the turn id
    RUNNING = "running"  # the run id is known
    FINAL = "final"  # the final view is stored; the reply may not show it yet
    RETOUCH = "retouch"  # done before, to be shown once more with a changed final view; blocks nobody
    DONE = "done"
    DEAD = "dead"  # given up: visible, counted, retryable

    @property
    def is_open(self) -> bool:
        """Whether somebody still has to work on it."""
        return self not in (TurnState.DONE, TurnState.DEAD)


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on a channel. Every write of its owner carries the epoch; an older epoch is refused."""

    channel: str
    owner: str
    epoch: int
    expires_at: float


@dataclass(frozen=True, slots=True)
class Conversation:
    """A place bound to a gateway thread. `pending` is what the last turn left open there, as the turn module wrote it.

    `generation` rises with every /new; thread ids are derived from channel, place and generation.
    """

    id: int
    channel: str
    place: Place
    generation: int
    thread_id: ThreadId | None
    pending: JsonValue


@dataclass(frozen=True, slots=True)
class StoredInbound:
    """An accepted inbound and the conversation it belongs to."""

    id: int
    conversation_id: int
    inbound: Inbound


@dataclass(frozen=True, slots=True)
class Turn:
    """One question and its answer, as stored. `shown` is the surface's JSON; `note` is why it failed, for operators.

    `run_at` is since when the run is known. `stop_notice` is what to tell the reader about the stop that a person has
    asked for (empty: nobody has), `remark` what to tell them beside the answer of the run. `resumes` is the open
    question that this turn answers, as it was in its conversation's `pending`.
    """

    id: TurnId
    conversation: Conversation
    inbounds: tuple[Inbound, ...]
    state: TurnState
    created_at: float
    thread_id: ThreadId | None = None
    run_id: RunId | None = None
    run_at: float | None = None
    shown: JsonValue = None
    final: View | None = None
    note: str = ""
    stop_notice: str = ""
    remark: str = ""
    resumes: JsonValue = None

    @property
    def question(self) -> Inbound:
        """The inbound that the reply answers: the last of the group."""
        return self.inbounds[-1]


@dataclass(frozen=True, slots=True)
class Stopped:
    """What a stop met: the turn that is told to end, or else questions that are dropped before they became one."""

    turn: Turn | None = None
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class Counts:
    """What waits in one channel: for `status`, `/readyz` and the metrics."""

    channel: str
    waiting: int = 0
    open_turns: int = 0
    dead: int = 0
