"""How a reply is shown on Slack: native streams in threads, posts and edits where those cannot be had."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from adapters.slack import outcomes
from adapters.slack.draft import Draft, draw
from adapters.slack.ops import Respond
from adapters.slack.performing import Performer
from adapters.slack.planning import Planner, Rules
from adapters.slack.response import ResponseSurface
from adapters.slack.shown import SlackShown
from adapters.slack.spot import ROOT_ALIAS, Spot
from channels.access import ShowReasoning
from channels.adapter import Op, Outcome, Receipt, Shown
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
        self._response = ResponseSurface(spot, performer)
        self._drawn: tuple[View, int, Draft] | None = None

    @property
    def shown_type(self) -> type[SlackShown]:
        return SlackShown

    def plan(self, view: View, shown: Shown, now: float) -> Sequence[Op]:
        assert isinstance(shown, SlackShown)
        if shown.response is not None:
            return self._response.plan(view, shown.response, now)
        rules = self._taste.rules
        if shown.given_up or (rules.streaming is Streaming.OFF and not view.is_final):
            return ()
        if not shown.pages and not view.has_content:
            return ()
        may_stream = rules.may_stream and not self._performer.places.known_to_refuse(self._spot)
        draft = self._draft(view, shown.level)
        spot = self._spot_of(shown)
        return Planner(replace(rules, may_stream=may_stream), spot, view, draft, shown, now).ops()

    async def perform(self, op: Op) -> Receipt:
        return await self._performer.perform(self._spot, op)

    def advance(self, shown: Shown, op: Op, outcome: Outcome, now: float) -> SlackShown:
        assert isinstance(shown, SlackShown)
        if isinstance(op, Respond):
            assert shown.response is not None
            return shown.model_copy(update={"response": self._response.advance(shown.response, op, outcome, now)})
        return outcomes.advance(shown, op, outcome, now)

    def restore(self, shown: Shown) -> SlackShown:
        assert isinstance(shown, SlackShown)
        for page in shown.pages:  # before any of the turns that are taken over looks for a lost stream
            self._performer.remember(page.ts, self._spot)
        return outcomes.restored(shown)

    def messages(self, shown: Shown) -> Sequence[str]:
        assert isinstance(shown, SlackShown)
        sent = [page.ts for page in shown.pages if page.ts]
        if not sent:
            return ()
        spot = self._spot_of(shown)
        if spot.root is None:
            return [*sent, *(ROOT_ALIAS + ts for ts in sent)]
        # The thread under a message of a conversation without a thread belongs to that conversation.
        return sent if spot.is_own_thread else [*sent, ROOT_ALIAS + spot.root]

    def _spot_of(self, shown: SlackShown) -> Spot:
        return replace(self._spot, root=None) if shown.detached else self._spot

    def _draft(self, view: View, level: int) -> Draft:
        if self._drawn is None or self._drawn[0] is not view or self._drawn[1] != level:
            self._drawn = (view, level, draw(view, level=level, reasoning=self._taste.reasoning))
        return self._drawn[2]
