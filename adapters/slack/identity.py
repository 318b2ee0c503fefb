"""Who the bot is in its workspace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from adapters.slack.api import Answer, SlackApi
from channels.shapes import as_text


@dataclass(frozen=True, slots=True)
class Me:
    """The bot as Slack names it: its user, its bot id, its workspace."""

    user: str
    bot: str
    team: str
    name: str

    def wrote(self, message: Mapping[str, JsonValue]) -> bool:
        """Whether a message is the bot's own."""
        own_bot = bool(self.bot) and message.get("bot_id") == self.bot
        return own_bot or (bool(self.user) and message.get("user") == self.user)


class Identity:
    """Asks Slack once and remembers."""

    def __init__(self, api: SlackApi) -> None:
        self._api = api
        self._me: Me | None = None

    @property
    def known(self) -> Me | None:
        return self._me

    async def get(self) -> Me:
        """Raises a `Failure` when Slack does not say."""
        if self._me is None:
            answer, _ = await self._api.who_am_i()
            self.learn(answer)
        assert self._me is not None
        return self._me

    def learn(self, answer: Answer) -> None:
        """Take it from an answer of `auth.test`."""
        self._me = Me(
            user=as_text(answer.get("user_id")),
            bot=as_text(answer.get("bot_id")),
            team=as_text(answer.get("team_id")),
            name=as_text(answer.get("user")),
        )
