"""What the tests of the Slack channel share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from channels.adapter import ChannelState
from channels.model import TurnId
from channels.store.records import Turn
from config.slack import SlackChannel
from tests.bench import Bench
from tests.emulators.journal import Call
from tests.emulators.slack import ANN, APP_TOKEN, BOT_TOKEN, GENERAL, Seen, SlackEmulator

CHANNEL = "bench"


def settings_for(slack: SlackEmulator, **keys: object) -> SlackChannel:
    """The settings of a channel in the emulator; Socket Mode unless a signing secret is given."""
    given: dict[str, object] = {"bot_token": BOT_TOKEN, "api_base_url": f"{slack.url}/api/", "feedback": False, **keys}
    if "signing_secret" not in given:
        given.setdefault("app_token", APP_TOKEN)
    return SlackChannel.model_validate(given)


class Desk:
    """The bridge, and the people of the emulated workspace in front of it."""

    def __init__(self, bench: Bench, slack: SlackEmulator) -> None:
        self.bench = bench
        self.slack = slack

    async def ask(self, text: str, *, channel: str = GENERAL, user: str = ANN, **more: Any) -> str:
        """Mention the bot in a channel; returns the ts of the question, which is the root of the answer's thread."""
        more.setdefault("mention", True)
        return await self.slack.send(channel, user, text, **more)

    def replies(self, root: str, channel: str = GENERAL) -> Sequence[Seen]:
        """What the bot wrote in a thread, oldest first."""
        return [message for message in self.slack.answers(channel, root) if message.ts != root]

    def text(self, root: str, channel: str = GENERAL) -> str:
        """All the bot wrote in a thread."""
        return "\n\n".join(message.text.strip() for message in self.replies(root, channel))

    async def shows(self, text: str, root: str, channel: str = GENERAL, timeout: float = 15.0) -> None:
        await self.slack.wait_for(lambda: text in self.text(root, channel), timeout)

    async def answered(self, count: int = 1, timeout: float = 30.0) -> None:
        """Wait until so many runs were started, everything is settled, and no delivery waits for its ack."""
        await self.bench.until(lambda: len(self.bench.gateway.runs) >= count, timeout)
        await self.bench.settled(timeout)

    async def is_state(self, state: ChannelState, timeout: float = 15.0) -> str:
        """Wait until the channel is in this state; returns the reason."""
        await self.bench.until(lambda: self.bench.inbox.health.state is state, timeout)
        return self.bench.inbox.health.reason

    def calls(self, method: str) -> list[Call]:
        return self.slack.journal.of(method)

    async def until(self, holds: Callable[[], object], timeout: float = 15.0) -> None:
        await self.slack.wait_for(holds, timeout)

    async def turn_of(self, run: int = 0) -> Turn:
        turn = await self.bench.store.turn(TurnId(self.bench.gateway.runs[run].request.turn))
        assert turn is not None
        return turn
