"""`FeishuEmulator`: the platform as one object that tests start, act on and look at."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Self, TypeVar

from tests.emulators.feishu.actions import Actions, Who
from tests.emulators.feishu.control import control_routes
from tests.emulators.feishu.events import Attempt, Event
from tests.emulators.feishu.picture import Shown, dump, shown
from tests.emulators.feishu.server import Server
from tests.emulators.feishu.webhook import Forgery, Hook

T = TypeVar("T")


class FeishuEmulator(Actions, Server):
    """A strict stand-in of Feishu/Lark's servers for one app in one tenant. See `Stage` for the constructor."""

    _changed: asyncio.Event | None = None

    # -- life

    async def start(self, port: int = 0) -> Self:
        """Serve on 127.0.0.1; `url` is what a bridge takes as its `domain`."""
        self.webhook.open()
        await self._listen(port, control_routes(self))
        self.deliverer.start_again()
        return self

    async def stop(self) -> None:
        """Stop serving; the state stays, and `start` goes on with it."""
        await self.deliverer.stop()
        await self._close()
        await self.webhook.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # -- the picture

    def chat(self, chat_id: str) -> list[Shown]:
        """The messages of a chat as people see them now, oldest first."""
        return [shown(message, self.world, self.cardkit) for message in self.world.in_chat(chat_id)]

    def replies(self, chat_id: str) -> list[Shown]:
        """The bot's messages in a chat that are still there."""
        return [one for one in self.chat(chat_id) if one.by_bot and not one.gone]

    def message(self, message_id: str) -> Shown:
        return shown(self._message(message_id), self.world, self.cardkit)

    def visible_text(self, card_id: str, at: float | None = None, element_id: str | None = None) -> str:
        """What the client has typed out on a reader's screen at a time (now, when it is None)."""
        return self.cardkit.visible_text(
            self.cardkit.cards[card_id], self.clock.now() if at is None else at, element_id
        )

    def dump(self) -> str:
        """All chats, the last calls and the broken rules, for a failing test."""
        calls = [
            f"   {call.at:.3f} {call.method} {call.status} {str(call.answer)[:120]}" for call in self.journal.calls
        ]
        broken = [f"   {rule}" for rule in self.journal.broken]
        return "\n".join([dump(self.world, self.cardkit), "== last calls", *calls[-15:], "== broken rules", *broken])

    def changed(self) -> None:
        if self._changed is not None:
            self._changed.set()

    async def wait_for(self, predicate: Callable[[], T], timeout: float = 10.0) -> T:
        """Wait until the predicate is true and return its value; it is asked again after each call, frame and delivery.

        `timeout` is in real seconds. Raises `AssertionError` with a dump of the chats when it has passed.
        """
        ends = time.monotonic() + timeout
        while True:
            self._changed = changed = asyncio.Event()
            if value := predicate():
                return value
            if (left := ends - time.monotonic()) <= 0:
                raise AssertionError(f"waited {timeout} s in vain\n{self.dump()}")
            # What depends on the clock alone is seen by asking again now and then.
            try:
                await asyncio.wait_for(changed.wait(), min(left, 0.1))
            except TimeoutError:
                continue

    def secrets(self) -> set[str]:
        """Every secret that the bridge was given or sent: none of them may be in a log."""
        known = {
            self.app_secret,
            self.encrypt_key,
            self.verification_token,
            *self.tokens.issued,
            *self.longconn.secrets,
        }
        return {one for one in known if one}

    # -- events

    @property
    def events(self) -> list[Event]:
        """Every event so far, with the attempts to deliver it."""
        return self.deliverer.events

    def set_webhook(self, url: str | None) -> None:
        """Deliver to this address from now on; None: by the long connection."""
        self.webhook.hook = Hook(url, self.encrypt_key, self.verification_token) if url else None

    def event(self, key: str) -> Event:
        """The newest event with an event id, or about a message."""
        return next(one for one in reversed(self.events) if key in (one.event_id, one.message_id))

    async def redeliver(self, key: str) -> Attempt:
        """Deliver the event once more, acked or not: the same event id."""
        return await self.deliverer.try_once(self.event(key))

    def redeliver_as_new(self, message_id: str) -> Event:
        """Deliver the same message as a new event: another event id, the same message id."""
        event = self.events_of.again(self.event(message_id))
        self.deliverer.post(event)
        return event

    def hold_events(self) -> None:
        self.deliverer.hold()

    def release_events(self, *, reverse: bool = False) -> None:
        self.deliverer.release(reverse=reverse)

    async def verify_webhook(self) -> bool:
        """Send the challenge; True when it was answered rightly."""
        return await self.webhook.verify()

    async def forge(self, kind: Forgery, who: Who = "Mallory") -> int:
        """Post an event that must be refused, about a message that nobody wrote; the HTTP status."""
        hidden = self.subscriptions
        self.subscriptions = set()
        try:
            message_id = await self.say(who, self.p2p(who), "forged")
        finally:
            self.subscriptions = hidden
        message = self.world.messages.pop(message_id)
        return await self.webhook.forge(kind, self.events_of.received(message))

    async def replay(self, key: str, *, shouting: bool = False) -> int:
        """Post an earlier delivery again, byte for byte; the HTTP status. `shouting`: its signature in capitals."""
        return await self.webhook.replay(self.event(key).event_id, shouting=shouting)

    # -- trouble

    async def close_connections(self, code: int = 1001) -> None:
        """Close every long connection in good order."""
        await self.longconn.close_all(code)

    def abort_connections(self) -> None:
        """Cut every long connection without a word."""
        self.longconn.abort_all()

    def half_open(self) -> None:
        """Leave every long connection of now up but dead: no pongs, no frames; new ones are well."""
        self.longconn.silence_all()

    def revoke_tokens(self) -> None:
        """Every token so far is refused with 99991663; new ones are given out."""
        self.tokens.revoke_all()

    def revoke_scope(self, *scopes: str) -> None:
        self.scopes.granted -= set(scopes)

    def grant_scope(self, *scopes: str) -> None:
        self.scopes.granted |= set(scopes)

    def close_streaming(self, card_id: str) -> None:
        """Streaming of a card ends before its time (300309)."""
        self.cardkit.cards[card_id].forced_closed = True

    def remove_message(self, message_id: str) -> None:
        """An administrator deletes a message, without an event."""
        self._message(message_id).gone = "deleted"

    def make_unavailable(self, who: Who, *, available: bool = False) -> None:
        """Move a person out of (or back into) the app's availability range."""
        self.world.person(who).available = available
