"""The contract between the core and a platform: `Adapter` (inbound side), `Surface` (reply side), typed failures.

A reply is reconciled, not sent: a surface *plans* the calls that bring what is shown nearer to the view, *performs*
one, and *advances* what is shown by its outcome. `plan` and `advance` are pure: no I/O, no clock, no randomness.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import ClassVar, Protocol

from pydantic import BaseModel, ConfigDict, JsonValue
from starlette.types import ASGIApp

from channels.clock import Clock
from channels.model import Attachment, File, Inbound, Place, TurnId, View

# ---------------------------------------------------------------- budgets


@dataclass(frozen=True, slots=True)
class Budget:
    """At most `limit` calls in any `window` seconds, for each key of the budget.

    `burst` is how many calls may follow each other at once before growth is spaced evenly; `reserve` is the part
    of `limit` that growth and upkeep may not spend, so that a final always finds room.
    """

    limit: int
    window: float
    burst: int = 1
    reserve: int = 0


@dataclass(frozen=True, slots=True)
class Draw:
    """One call's claim on a budget: the budget's name and, within it, the key (a chat, a message, a method)."""

    budget: str
    key: str = ""


class Urgency(IntEnum):
    """The class of an op; lower goes first when the budget is short."""

    FINAL = 0
    FIRST = 1
    QUESTION = 2
    GROWTH = 3
    UPKEEP = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One platform API call that brings *shown* nearer to *view*. Adapters subclass it with what the call needs.

    `creates`: the call makes something new that cannot be made twice (a message, a stream, a card): the intent is
    stored before it, the result after it. `keeps`: the result is stored although nothing new was made.
    `not_before`: the earliest moment for it (a life-time timer, a keep-alive); the loop wakes itself then.
    `is_beside`: it brings what stands beside the text and the question, such as a file.
    """

    is_beside: ClassVar[bool] = False

    urgency: Urgency
    draws: tuple[Draw, ...] = ()
    creates: bool = False
    keeps: bool = False
    not_before: float = 0.0


class Shown(BaseModel):
    """What the platform has accepted of a reply so far: small, immutable, JSON. Adapters subclass it.

    `given_up`: it has refused everything that could be tried, and what is missing stays missing.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    given_up: bool = False


# ---------------------------------------------------------------- outcomes


@dataclass(frozen=True, slots=True)
class Receipt:
    """The platform accepted the call. `id` names what it made (message, stream, card), if it made something."""

    id: str | None = None
    extra: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Intent:
    """The call is about to be made; stored first, so that a crash leaves a question instead of a surprise."""


class Failure(Exception):
    """Why a call was not accepted, in the few kinds that decide what happens next. Texts carry no secrets."""


class RateLimited(Failure):
    """Refused for its rate. Exactly `scope` is closed, for exactly `retry_after` seconds."""

    def __init__(self, retry_after: float, scope: Draw, reason: str = "") -> None:
        super().__init__(reason or f"rate limited for {retry_after:g} s")
        self.retry_after = retry_after
        self.scope = scope


class Gone(Failure):
    """The message, stream or card is not there any more."""


class Closed(Failure):
    """The stream or streaming mode has ended; the message itself is still there."""


class TooLarge(Failure):
    """Too big as sent. `limit` is the size the platform allows, in the surface's unit, where it says so."""

    def __init__(self, reason: str = "", limit: int | None = None) -> None:
        super().__init__(reason or "too large")
        self.limit = limit


class Refused(Failure):
    """The content was rejected: degrade it and try again."""


class StoppedByUser(Failure):
    """The reader pressed the platform's own stop control."""


class Forbidden(Failure):
    """Permanent for this place: nothing more can be shown there."""


class Unauthorised(Failure):
    """The channel's tokens are bad: the channel has failed, visibly."""


class Unknown(Failure):
    """Done or not: nobody can say (a timeout or a cut connection after the request was sent)."""


class Transient(Failure):
    """Surely not done, and worth trying again (a refused connection, a 5xx)."""


class FileAway(Transient):
    """The gateway does not hand out a file of the agent's just now."""


class FileGone(Refused):
    """A file of the agent's cannot be had any more; asking again is of no use."""


Outcome = Receipt | Intent | Failure

# ---------------------------------------------------------------- reply side


@dataclass(frozen=True, slots=True)
class ReplyTarget:
    """What a reply answers: the turn, the place of its conversation and the inbound that asked."""

    turn: TurnId
    place: Place
    question: Inbound


class Surface(Protocol):
    """How one platform shows one reply. Each surface works on its own subclass of `Shown`."""

    @property
    def shown_type(self) -> type[Shown]:
        """The subclass this surface works on; its default instance means that nothing is shown."""
        ...

    def plan(self, view: View, shown: Shown, now: float) -> Sequence[Op]:
        """The calls that would bring `shown` nearer to `view`, best first; the rest are alternatives to the first.

        Empty: nothing to do (for a final view: settled). Pure, and stable in time but for `not_before`.
        """
        ...

    async def perform(self, op: Op) -> Receipt:
        """Make one call. Raises a `Failure` and nothing else. At most 30 s, an upload as long as its size needs."""
        ...

    def advance(self, shown: Shown, op: Op, outcome: Outcome, now: float) -> Shown:
        """What the platform has accepted after the outcome of `op`. Pure. Called for every outcome, also `Intent`.

        After `Unknown` it returns what leads `plan` to find out or to repeat safely. After any number of the same
        failures `plan` must get to something else or to an end (`Forbidden`: nothing more is planned).
        """
        ...

    def restore(self, shown: Shown) -> Shown:
        """What is known after a crash: calls that were not stored may have been accepted since. Pure."""
        ...

    def messages(self, shown: Shown) -> Sequence[str]:
        """The ids of the messages that show this reply, so that a reply to one of them finds its conversation, and the
        platform's own stop control the right answer."""
        ...


# ---------------------------------------------------------------- inbound side


class Accepted(StrEnum):
    """What became of an inbound. Whatever it is, it is committed and the platform may be acked."""

    TAKEN = "taken"
    DUPLICATE = "duplicate"
    IGNORED = "ignored"  # not addressed to the bot, or the sender may not talk to it


class ChannelState(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    DEGRADED = "degraded"
    CONFLICT = "conflict"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Health:
    """A channel's state, why, and since when (seconds since the epoch)."""

    state: ChannelState
    reason: str = ""
    since: float = 0.0


class StoreAway(Exception):
    """The store cannot be written now: the inbound is not accepted and the platform must not be acked."""


class Sink(Protocol):
    """What the core offers an adapter. One per channel."""

    async def accept(self, inbound: Inbound) -> Accepted:
        """Commit and de-duplicate; only then ack the platform. Raises `StoreAway`: do not ack, it redelivers.

        What `comes_again` is then also stored without that, once the store is back.
        """
        ...

    def report(self, state: ChannelState, reason: str = "") -> None:
        """Say how the channel is; shown on `/readyz`. The reason is one sentence that helps, without secrets."""
        ...

    async def recall(self, key: str) -> JsonValue:
        """A small value this channel stored with `remember`; None when there is none or it has expired."""
        ...

    async def remember(self, key: str, value: JsonValue, ttl: float | None = None) -> None:
        """Store a small value of this channel (an offset, a capability), for `ttl` seconds or for good."""
        ...

    async def rekey(self, old_chat: str, new_chat: str) -> None:
        """The platform gave a chat a new id: its conversations go on under it."""
        ...


class HintState(StrEnum):
    """What a channel may show besides the reply itself: typing, a status line, a reaction."""

    ACCEPTED = "accepted"
    WAITING = "waiting"
    WORKING = "working"
    DONE = "done"
    FAILED = "failed"


FILE_PATIENCE = 60.0
"""Seconds for which a file that is away is asked for again: a gateway that starts anew is back by then."""


def away_since(known: float | None, now: float) -> float | None:
    """Since when a file is away that is away once more, `known` being since when it was before; None: give it up.

    Other outcomes forget the moment, and so does a restart: the gateway may have been started anew with the bridge.
    """
    since = now if known is None else known
    return since if now - since < FILE_PATIENCE else None


SLOWEST_LINE = 125_000
"""Bytes of a file a second; one that comes or goes more slowly is given up. 50 MB take not quite seven minutes."""

OpenFile = Callable[[File], Awaitable[bytes]]
"""Fetches a file the agent made, whole and bounded in size. Raises `FileAway` or `FileGone` and nothing else."""


@dataclass(frozen=True, slots=True)
class Check:
    """One finding of a live check of a channel: what was tried, whether it holds, and what to do if not."""

    what: str
    ok: bool
    detail: str = ""


class Adapter(Protocol):
    """The code for one platform, serving one channel."""

    @property
    def budgets(self) -> Mapping[str, Budget]:
        """The budgets that this channel's ops draw on, by name."""
        ...

    @property
    def command_sign(self) -> str:
        """What people here type before a command: a slash, or "!" where the platform keeps slashes for itself."""
        ...

    @property
    def webhook(self) -> ASGIApp | None:
        """What answers `/hooks/{channel}`; works on every replica, started or not. None: this channel has none."""
        ...

    async def start(self) -> None:
        """Begin to receive and be ready to perform. Returns soon; troubles are reported to the sink, not raised."""
        ...

    async def stop(self) -> None:
        """Stop receiving and close every connection and task; bounded to 5 s. May be started again afterwards."""
        ...

    def surface(self, target: ReplyTarget) -> Surface:
        """The surface on which this turn's reply is shown."""
        ...

    async def hint(self, target: ReplyTarget, state: HintState) -> None:
        """Show that something is going on; best effort, never raises, never blocks a reply."""
        ...

    def fetch(self, attachment: Attachment) -> AsyncIterator[bytes]:
        """The bytes of an attachment, bounded by the channel's limit. Raises a `Failure`."""
        ...

    async def check(self) -> Sequence[Check]:
        """Try the tokens live and name missing scopes; for the operator. Works without `start`."""
        ...


@dataclass(frozen=True, slots=True)
class Context:
    """What every adapter is built with: `build(settings, context)` in the package of its platform."""

    channel: str
    sink: Sink
    clock: Clock
    open_file: OpenFile
    public_url: str | None = None
    bind_host: str = "127.0.0.1"
    """The address the bridge's own HTTP server listens on."""
