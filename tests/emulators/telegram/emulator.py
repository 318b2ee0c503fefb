"""The emulated Bot API as a test holds it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from channels.clock import Clock, SystemClock
from tests.emulators.journal import Faults, Journal
from tests.emulators.telegram.account import Account
from tests.emulators.telegram.backend import Backend
from tests.emulators.telegram.control import Control
from tests.emulators.telegram.drafts import Draft, Drafts
from tests.emulators.telegram.limits import Checks, Limits
from tests.emulators.telegram.media import Files
from tests.emulators.telegram.messages import Messages
from tests.emulators.telegram.people import People
from tests.emulators.telegram.picture import SeenChat, picture_of
from tests.emulators.telegram.presses import Press, Presses
from tests.emulators.telegram.prose import Prose
from tests.emulators.telegram.server import BotApiServer
from tests.emulators.telegram.updates import Updates
from tests.emulators.telegram.webhook import Webhook
from tests.emulators.telegram.windows import FloodControl
from tests.emulators.telegram.wire import Json
from tests.emulators.telegram.world import Person, World

TOKEN = "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"
T = TypeVar("T")

# Changes of the clock alone raise no event, so a waiting test looks again this often (wall seconds).
_LOOK_AGAIN = 0.2


class TelegramEmulator(People):
    """A strict local Bot API with its people.

    `rich_messages` switches sendRichMessage and its kin, `private_topics` gives private chats topics, `privacy_mode`
    keeps ordinary group talk from the bot, `deliver_to` redirects webhook deliveries to another scheme, host and port.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        token: str = TOKEN,
        username: str = "bridge_bot",
        limits: Limits | None = None,
        checks: Checks | None = None,
        rich_messages: bool = False,
        private_topics: bool = False,
        privacy_mode: bool = True,
        deliver_to: str | None = None,
    ) -> None:
        self._event = asyncio.Event()
        self.revision = 0  # rises with every call and act
        self.clock = clock or SystemClock()
        self.limits = limits or Limits()
        self.faults = Faults()
        bot = Person(int(token.partition(":")[0]), "Bridge", username, is_bot=True)
        world = World(self.clock, self.limits, bot, private_topics=private_topics, privacy_mode=privacy_mode)
        backend = Backend(
            self.clock,
            self.limits,
            checks or Checks(),
            Journal(),
            world,
            FloodControl(self.clock, self.limits),
            self._pulse,
        )
        updates = Updates(backend)
        self._prose = Prose(backend, rich_messages=rich_messages)
        drafts, presses = Drafts(backend, self._prose), Presses(backend)
        super().__init__(backend, updates, drafts, presses)
        self._account = Account(backend)
        self._webhook = Webhook(backend, updates, deliver_to=deliver_to)
        updates.on_handed.append(presses.handed)
        parts = (
            self._account,
            self._webhook,
            Messages(backend, self._prose, drafts),
            Files(backend, self._prose, drafts),
            drafts,
            presses,
        )
        methods = {name: method for part in parts for name, method in part.methods().items()}
        methods["getUpdates"] = updates.get_updates
        self._server = BotApiServer(backend, self.faults, token, methods, Control(self).add_routes)

    # life

    async def start(self, port: int = 0) -> None:
        """Serve on this port (0: any free one). After `stop` it can start again, as after an outage."""
        self._updates.start()
        await self._server.start(port)
        await self._webhook.start()

    async def stop(self) -> None:
        self._updates.stop()
        await self._webhook.stop()
        await self._server.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        """`http://127.0.0.1:PORT`; the SDK wants `{url}/bot` and `{url}/file/bot`."""
        return f"http://127.0.0.1:{self._server.port}"

    @property
    def token(self) -> str:
        return self._server.token

    def change_token(self, token: str) -> None:
        """The old token is refused from now on, as after a revocation."""
        self._server.token = token

    @property
    def bot(self) -> Person:
        return self._world.bot

    @property
    def rich_messages(self) -> bool:
        return self._prose.rich_messages

    @rich_messages.setter
    def rich_messages(self, on: bool) -> None:
        self._prose.rich_messages = on

    @property
    def deliver_webhooks_to(self) -> str | None:
        return self._webhook.deliver_to

    @deliver_webhooks_to.setter
    def deliver_webhooks_to(self, base_url: str | None) -> None:
        self._webhook.deliver_to = base_url

    # looking

    @property
    def journal(self) -> Journal:
        """All calls and broken rules up to now."""
        self._drafts.sweep()
        self._presses.sweep()
        return self._backend.journal

    def chat(self, chat_id: int) -> SeenChat:
        """The chat as people see it now."""
        return picture_of(self._chat(chat_id), self._drafts.living(chat_id), self.clock.now())

    def chats(self) -> list[SeenChat]:
        return [self.chat(chat_id) for chat_id in self._world.chats]

    def draft_log(self, chat_id: int) -> list[Draft]:
        """Every draft there was in the chat, with how it ended."""
        self._drafts.sweep()
        return [draft for draft in self._drafts.all if draft.chat_id == chat_id]

    @property
    def presses(self) -> list[Press]:
        self._presses.sweep()
        return list(self._presses.all.values())

    @property
    def pending_updates(self) -> list[int]:
        """Ids of the updates that the bot has not confirmed yet."""
        self._updates.forget_old()
        return [update.id for update in self._updates.pending]

    @property
    def is_polled(self) -> bool:
        """A long poll of the bot is waiting."""
        return self._updates.is_polled

    @property
    def commands(self) -> dict[str, list[Json]]:
        """The published commands by "scope/language"."""
        return dict(self._account.commands)

    @property
    def webhook_url(self) -> str:
        return self._updates.webhook_url

    def closed_for(self, chat_id: int) -> float:
        """Seconds for which flood control keeps the chat closed; 0 when it is open."""
        return self._backend.flood.closed_for(chat_id)

    def dump(self) -> str:
        """The chats, the last calls and the broken rules, for a person to read."""
        calls = [
            f"  {call.at:.3f} {call.method} {_short(call.args)} -> {call.status} {_short(call.answer)}"
            for call in self.journal.calls[-15:]
        ]
        broken = [f"  {rule}" for rule in self.journal.broken]
        return "\n".join([*(chat.dump() for chat in self.chats()), "last calls:", *calls, "broken rules:", *broken])

    async def wait_for(self, predicate: Callable[[], T], timeout: float = 10.0) -> T:
        """Wait until `predicate()` is true and return what it returned; LookupError in it counts as not yet.

        `timeout` is in wall seconds. Raises AssertionError with a dump of the chats and the last calls.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while True:
            try:
                found = predicate()
            except LookupError as missing:
                found, reason = None, repr(missing)
            else:
                reason = repr(found)
            if found:
                return found
            left = deadline - loop.time()
            if left <= 0:
                raise AssertionError(f"not within {timeout:g} s (last: {reason})\n{self.dump()}")
            await self.changed(min(left, _LOOK_AGAIN))

    async def changed(self, timeout: float) -> bool:
        """Wait at most `timeout` wall seconds for the next call or act; True when there was one."""
        event = self._event
        try:
            await asyncio.wait_for(event.wait(), timeout)
        except TimeoutError:
            return False
        return True

    def _pulse(self) -> None:
        """Something happened: whoever waits looks again."""
        self.revision += 1
        event, self._event = self._event, asyncio.Event()
        event.set()


def _short(value: object) -> str:
    shown = {name: item for name, item in value.items() if name != "secret_token"} if isinstance(value, dict) else value
    text = repr(shown)
    return text if len(text) <= 200 else f"{text[:200]}…"
