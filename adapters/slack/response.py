"""Answers through a slash command's `response_url`: to the one who typed a command, and wherever the bot is no member.

Such an address is good for five messages within half an hour. They cannot be changed or looked up: asked for again
after a lost answer, one shows twice, which is better than not at all.
"""

from __future__ import annotations

from collections.abc import Sequence

from adapters.slack import limits
from adapters.slack.draft import draw
from adapters.slack.ops import Respond
from adapters.slack.performing import Performer
from adapters.slack.shown import ResponseShown
from adapters.slack.spot import Spot
from adapters.slack.text import disarmed, escaped_units
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
    Unknown,
    Urgency,
)
from channels.markdown import split_at, utf16_units
from channels.model import View

_NO_MEMBER = "_I am not in this conversation. Where I am invited (`/invite`), you can watch an answer grow._"
_NO_ROOM = "\n\n_This goes on, but Slack lets me say no more here._"


class ResponseSurface:
    """Shows a finished reply, whole, in up to five messages."""

    def __init__(self, spot: Spot, performer: Performer) -> None:
        self._spot = spot
        self._performer = performer

    @property
    def shown_type(self) -> type[ResponseShown]:
        return ResponseShown

    def plan(self, view: View, shown: Shown, now: float) -> Sequence[Respond]:
        assert isinstance(shown, ResponseShown)
        if shown.done or shown.given_up or not view.is_final or shown.uses >= limits.RESPONSE_USES:
            return ()
        text = self._text(view)
        if not text[shown.at :].strip():
            return ()
        source, plain = shown.opening + text[shown.at :], shown.level > 0
        limit, measure = (limits.PLAIN_CHARS, escaped_units) if plain else (limits.MARKDOWN_CHARS, utf16_units)
        is_last = shown.uses == limits.RESPONSE_USES - 1
        cut = split_at(source, limit - len(_NO_ROOM) if is_last else limit, measure)
        update: dict[str, object] = {"uses": shown.uses + 1, "done": cut.is_whole}
        if not cut.is_whole:
            update |= {"at": shown.at + cut.offset - len(shown.opening), "opening": cut.opening}
        return (
            Respond(
                urgency=Urgency.FINAL,
                draws=(Draw(limits.RESPONSE),),
                keeps=True,
                text=cut.head + (_NO_ROOM if is_last and not cut.is_whole else ""),
                shown=shown.model_copy(update=update),
                plain=plain,
            ),
        )

    async def perform(self, op: Op) -> Receipt:
        return await self._performer.perform(self._spot, op)

    def advance(self, shown: Shown, op: Op, outcome: Outcome, now: float) -> ResponseShown:
        assert isinstance(shown, ResponseShown)
        assert isinstance(op, Respond)
        used = shown.model_copy(update={"uses": op.shown.uses})
        match outcome:
            case Receipt():
                return op.shown
            case Refused() | TooLarge():
                return used.model_copy(update={"level": shown.level + 1, "given_up": shown.level > 0})
            case Forbidden() | Gone() | Closed():
                return used.model_copy(update={"given_up": True})
            case Unknown():
                return used
            case Intent() | Failure():
                return shown

    def restore(self, shown: Shown) -> ResponseShown:
        assert isinstance(shown, ResponseShown)
        return shown

    def messages(self, shown: Shown) -> Sequence[str]:
        return ()

    def _text(self, view: View) -> str:
        """All there is to say, as one text: there are no buttons here, and no files."""
        text = draw(view, level=2, reasoning=ShowReasoning.OFF).text
        if self._spot.is_command:
            return text
        lost = ", ".join(file.name for file in view.files)
        note = disarmed(f"Could not be attached: {lost}") if lost else ""
        return "\n\n".join(part for part in (disarmed(self._spot.intro), text, note, _NO_MEMBER) if part)
