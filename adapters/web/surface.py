"""How a reply is shown on the page: its newest state replaces the one before, at most 20 times a second."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from typing import Protocol, TypeVar, cast

import structlog

from adapters.web.log import LogAway
from adapters.web.timeline import Asked
from channels.adapter import (
    Budget,
    Closed,
    Draw,
    Failure,
    Forbidden,
    Gone,
    Intent,
    Op,
    Outcome,
    Receipt,
    Refused,
    ReplyTarget,
    Shown,
    TooLarge,
    Transient,
    Urgency,
)
from channels.model import TurnId, View
from config.channel import Streaming

BUDGETS = {"reply": Budget(limit=20, window=1.0, burst=4, reserve=1)}
"""Our own numbers: more than 20 updates a second are not seen, only paid for."""

_SMOOTH_SIZE = 20_000  # characters; a longer text is updated proportionally less often, so that its cost stays linear
_INTERVAL = 0.05
_MOST_FAILURES = 40  # in a row; by then the log has been away for over half an hour

_LONGEST_PERFORM = 25.0  # seconds

log = structlog.get_logger(__name__)
_Value = TypeVar("_Value")


class WebShown(Shown):
    """What the page shows. `digest` names the content, `at` is when it was accepted (seconds since the epoch)."""

    created: bool = False
    digest: str = ""
    at: float = 0.0
    closed: bool = False
    unformatted: bool = False
    failures: int = 0
    given_up: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish(Op):
    """Bring the reply's entry to this view."""

    view: View
    digest: str
    unformatted: bool = False


class Stage(Protocol):
    """What a surface needs of its channel."""

    async def show(self, chat: str, turn: TurnId, asked: Asked, view: View, *, unformatted: bool) -> None:
        """Raises `LogAway` when the view is not durable."""
        ...


class WebSurface:
    """Shows one reply as one entry of the visitor's timeline. Every call may be repeated: the turn names the entry."""

    def __init__(self, stage: Stage, target: ReplyTarget, asked: Asked, streaming: Streaming) -> None:
        self._stage = stage
        self._target = target
        self._asked = asked
        self._streaming = streaming
        self._digested: tuple[View, str] | None = None

    @property
    def shown_type(self) -> type[WebShown]:
        return WebShown

    def plan(self, view: View, shown: Shown, now: float) -> Sequence[Publish]:
        assert isinstance(shown, WebShown)
        if shown.given_up:
            return ()
        if self._streaming is Streaming.OFF and not view.is_final:
            view = replace(view, body=(), reasoning="")
        digest = self._digest(view)
        if shown.created and shown.digest == digest:
            return ()
        return (
            Publish(
                urgency=_urgency(view, shown),
                draws=(Draw("reply", self._target.turn),),
                creates=not shown.created,
                keeps=view.is_final,
                not_before=0.0 if view.is_final else shown.at + _interval(view),
                view=view,
                digest=digest,
                unformatted=shown.unformatted,
            ),
        )

    async def perform(self, op: Op) -> Receipt:
        assert isinstance(op, Publish)
        turn = self._target.turn
        try:
            async with asyncio.timeout(_LONGEST_PERFORM):
                await self._stage.show(
                    self._target.place.chat, turn, self._asked, printable(op.view), unformatted=op.unformatted
                )
        except LogAway as error:
            raise Transient(str(error)) from None
        except Exception as error:
            # Rendering can fail in any way; the answer is shown all the same, as the text it is.
            log.exception("a view could not be rendered", turn=turn)
            raise Refused(f"the text cannot be rendered: {type(error).__name__}") from None
        return Receipt(id=turn)

    def advance(self, shown: Shown, op: Op, outcome: Outcome, now: float) -> WebShown:
        assert isinstance(shown, WebShown)
        assert isinstance(op, Publish)
        match outcome:
            case Receipt():
                return shown.model_copy(
                    update={
                        "created": True,
                        "digest": op.digest,
                        "at": now,
                        "closed": op.view.is_final,
                        "failures": 0,
                    }
                )
            case Intent():
                return shown
            case Forbidden():
                return shown.model_copy(update={"given_up": True})
            case Gone() | Closed():
                return _failed(shown.model_copy(update={"created": False, "digest": ""}))
            case Refused() | TooLarge():
                return _failed(shown.model_copy(update={"unformatted": True, "given_up": shown.unformatted}))
            case Failure():
                return _failed(shown)

    def restore(self, shown: Shown) -> WebShown:
        assert isinstance(shown, WebShown)
        # What was accepted after this was stored is unknown; to publish once more changes nothing that is right.
        return shown.model_copy(update={"at": 0.0} if shown.closed else {"at": 0.0, "digest": ""})

    def messages(self, shown: Shown) -> Sequence[str]:
        assert isinstance(shown, WebShown)
        return (self._target.turn,) if shown.created else ()

    def _digest(self, view: View) -> str:
        if self._digested is None or self._digested[0] is not view:
            self._digested = (view, digest_of(view))
        return self._digested[1]


def digest_of(view: View) -> str:
    """A name for what a view shows; its revision, which starts again with each process, is not part of it."""
    state = hashlib.blake2b(digest_size=12)
    for segment in view.body:
        state.update(repr((segment.id, segment.is_answer, len(segment.text))).encode(errors="surrogatepass"))
        state.update(segment.text.encode(errors="surrogatepass"))
    state.update(view.reasoning.encode(errors="surrogatepass"))
    rest = (view.phase, len(view.reasoning), view.steps, view.question, view.files, view.notice, view.usage)
    state.update(repr(rest).encode(errors="surrogatepass"))
    return state.hexdigest()


def printable(value: _Value) -> _Value:
    """The value with every half of a surrogate pair in its texts replaced: it can be neither stored nor sent."""
    if isinstance(value, Enum):
        return value
    if isinstance(value, str):
        return (
            value
            if value.isascii()
            else cast(_Value, value.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
        )
    if isinstance(value, tuple):
        return cast(_Value, tuple(printable(item) for item in value))
    if is_dataclass(value) and not isinstance(value, type):
        parts = {part.name: printable(getattr(value, part.name)) for part in fields(value)}
        return replace(value, **parts)
    return value


def _interval(view: View) -> float:
    size = len(view.reasoning) + sum(len(segment.text) for segment in view.body)
    return _INTERVAL * max(1.0, size / _SMOOTH_SIZE)


def _urgency(view: View, shown: WebShown) -> Urgency:
    if view.is_final:
        return Urgency.FINAL
    if not shown.created:
        return Urgency.FIRST
    return Urgency.QUESTION if view.question is not None else Urgency.GROWTH


def _failed(shown: WebShown) -> WebShown:
    failures = shown.failures + 1
    return shown.model_copy(update={"failures": failures, "given_up": shown.given_up or failures >= _MOST_FAILURES})
