"""How a reply is shown on Slack: native streams in threads, posts and edits where those cannot be had."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from adapters.slack import limits, outcomes
from adapters.slack.draft import Draft, draw
from adapters.slack.ops import Whisper
from adapters.slack.performing import Performer
from adapters.slack.planning import Planner, Rules
from adapters.slack.shown import SlackShown, WhisperShown, digest_of
from adapters.slack.spot import ROOT_ALIAS, Spot
from channels.access import ShowReasoning
from channels.adapter import (
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
    Shown,
    TooLarge,
    Urgency,
)
from channels.model import View
from config.channel import Streaming


@dataclass(frozen=True, slots=True)
class Taste:
    """How this channel shows replies, by its settings."""

    rules: Rules
    reasoning: ShowReasoning


class SlackSurface:
    """Shows one reply as one or more messages in its thread."""

    def __init__(self, spot: Spot, taste: Taste, performer: Performer) -> None:
        self._spot = spot
        self._taste = taste
        self._performer = performer
        self._drawn: tuple[View, int, Draft] | None = None

    @property
    def shown_type(self) -> type[SlackShown]:
        return SlackShown

    def plan(self, view: View, shown: Shown, now: float) -> Sequence[Op]:
        assert isinstance(shown, SlackShown)
        rules = self._taste.rules
        if shown.given_up or (rules.streaming is Streaming.OFF and not view.is_final):
            return ()
        if not shown.pages and not view.has_content:
            return ()
        may_stream = rules.may_stream and not self._performer.places.known_to_refuse(self._spot)
        draft = self._draft(view, shown.level)
        return Planner(replace(rules, may_stream=may_stream), self._spot, view, draft, shown, now).ops()

    async def perform(self, op: Op) -> Receipt:
        return await self._performer.perform(self._spot, op)

    def advance(self, shown: Shown, op: Op, outcome: Outcome, now: float) -> SlackShown:
        assert isinstance(shown, SlackShown)
        return outcomes.advance(shown, op, outcome, now)

    def restore(self, shown: Shown) -> SlackShown:
        assert isinstance(shown, SlackShown)
        return outcomes.restored(shown)

    def messages(self, shown: Shown) -> Sequence[str]:
        assert isinstance(shown, SlackShown)
        sent = [page.ts for page in shown.pages if page.ts]
        if not sent:
            return ()
        if self._spot.root is None:
            return [*sent, *(ROOT_ALIAS + ts for ts in sent)]
        # The thread under a message of a conversation without a thread belongs to that conversation.
        return sent if self._spot.is_own_thread else [*sent, ROOT_ALIAS + self._spot.root]

    def _draft(self, view: View, level: int) -> Draft:
        if self._drawn is None or self._drawn[0] is not view or self._drawn[1] != level:
            self._drawn = (view, level, draw(view, level=level, reasoning=self._taste.reasoning))
        return self._drawn[2]


class WhisperSurface:
    """Shows the answer to a slash command to the one person who typed it. It cannot be changed or looked up; asked
    for again after a lost answer, it shows twice to that one person, which is better than not at all."""

    def __init__(self, spot: Spot, performer: Performer) -> None:
        self._spot = spot
        self._performer = performer

    @property
    def shown_type(self) -> type[WhisperShown]:
        return WhisperShown

    def plan(self, view: View, shown: Shown, now: float) -> Sequence[Whisper]:
        assert isinstance(shown, WhisperShown)
        if shown.given_up or shown.digest or not view.is_final:
            return ()
        draft = draw(view, level=2, reasoning=ShowReasoning.OFF)
        text = draft.text[: limits.PLAIN_CHARS]
        if not text:
            return ()
        draws = (Draw(limits.WHISPER),)
        return (
            Whisper(
                urgency=Urgency.FINAL, draws=draws, keeps=True, text=text, digest=digest_of(text), plain=shown.level > 0
            ),
        )

    async def perform(self, op: Op) -> Receipt:
        return await self._performer.perform(self._spot, op)

    def advance(self, shown: Shown, op: Op, outcome: Outcome, now: float) -> WhisperShown:
        assert isinstance(shown, WhisperShown)
        assert isinstance(op, Whisper)
        match outcome:
            case Receipt():
                return shown.model_copy(update={"digest": op.digest})
            case Refused() | TooLarge():
                return shown.model_copy(update={"level": shown.level + 1, "given_up": shown.level > 0})
            case Forbidden() | Gone() | Closed():
                return shown.model_copy(update={"given_up": True})
            case Intent() | Failure():
                return shown

    def restore(self, shown: Shown) -> WhisperShown:
        assert isinstance(shown, WhisperShown)
        return shown

    def messages(self, shown: Shown) -> Sequence[str]:
        return ()
