"""Events in the vendor's schema 2.0, and how each was delivered."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
from dataclasses import dataclass, field
from enum import StrEnum

from tests.emulators.feishu.refusals import Json
from tests.emulators.feishu.world import Message, Person, Reaction, World


class Outcome(StrEnum):
    """What came of one attempt to deliver an event."""

    ACKED = "acked"
    REFUSED = "refused"  # answered, but not with success
    SILENT = "silent"  # no answer in time
    LOST = "lost"  # the connection ended before an answer
    UNDELIVERABLE = "undeliverable"  # nobody is connected, nothing is subscribed


@dataclass(frozen=True, slots=True)
class Attempt:
    at: float
    outcome: Outcome
    answer: Json | None = None


@dataclass(slots=True)
class Event:
    """One event; the platform repeats it with the same id until it is acked or its schedule ends."""

    event_id: str
    event_type: str
    payload: Json
    created: float
    is_callback: bool = False  # answered once or never: callbacks are not delivered again
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def acked(self) -> bool:
        return any(attempt.outcome is Outcome.ACKED for attempt in self.attempts)

    @property
    def message_id(self) -> str:
        return str((self.payload["event"].get("message") or self.payload["event"]).get("message_id", ""))

    def body(self) -> bytes:
        return json.dumps(self.payload, ensure_ascii=False).encode()


class Events:
    """Makes events out of what happened in the world."""

    def __init__(self, world: World, verification_token: str) -> None:
        self._world = world
        self._verification_token = verification_token

    def _event(self, event_type: str, event: Json, *, is_callback: bool = False) -> Event:
        now = self._world.clock.now()
        event_id = self._world.ids.hex()
        header = {
            "event_id": event_id,
            "event_type": event_type,
            # Callbacks carry microseconds, events milliseconds.
            "create_time": str(int(now * (1_000_000 if is_callback else 1000))),
            "token": self._verification_token,
            "app_id": self._world.app_id,
            "tenant_key": self._world.tenant_key,
        }
        payload = {"schema": "2.0", "header": header, "event": event}
        return Event(event_id, event_type, payload, now, is_callback)

    def again(self, event: Event) -> Event:
        """The same happening as a new event: another event id, everything else as it was."""
        return self._event(event.event_type, copy.deepcopy(event.payload["event"]), is_callback=event.is_callback)

    def received(self, message: Message) -> Event:
        world = self._world
        chat = world.chats[message.chat_id]
        inner: Json = {
            "message_id": message.message_id,
            "create_time": str(int(message.created * 1000)),
            "update_time": str(int(message.updated * 1000)),
            "chat_id": message.chat_id,
            "chat_type": "p2p" if chat.kind == "p2p" else "group",
            "message_type": message.msg_type,
            "content": message.content,
        }
        ids = {"root_id": message.root_id, "parent_id": message.parent_id, "thread_id": message.thread_id}
        inner.update({key: value for key, value in ids.items() if value})
        if message.mentions:
            inner["mentions"] = message.mentions
        sender = {"sender_id": message.sender.ids(), "sender_type": "user", "tenant_key": world.tenant_key}
        return self._event("im.message.receive_v1", {"sender": sender, "message": inner})

    def recalled(self, message: Message) -> Event:
        event = {
            "message_id": message.message_id,
            "chat_id": message.chat_id,
            "recall_time": str(int(self._world.clock.now() * 1000)),
            "recall_type": "message_owner",
        }
        return self._event("im.message.recalled_v1", event)

    def reacted(self, message: Message, reaction: Reaction) -> Event:
        event: Json = {
            "message_id": message.message_id,
            "reaction_type": {"emoji_type": reaction.emoji},
            "operator_type": "app" if reaction.by_bot else "user",
            "action_time": str(int(reaction.at * 1000)),
        }
        if reaction.by_bot:
            event["app_id"] = self._world.app_id
        else:
            event["user_id"] = self._world.person(reaction.operator).ids()
        return self._event("im.message.reaction.created_v1", event)

    def bot_moved(self, chat_id: str, operator: Person, *, added: bool) -> Event:
        event = {
            "chat_id": chat_id,
            "operator_id": operator.ids(),
            "external": False,
            "operator_tenant_key": self._world.tenant_key,
            "name": self._world.chats[chat_id].name,
            "i18n_names": {"zh_cn": self._world.chats[chat_id].name},
        }
        return self._event(f"im.chat.member.bot.{'added' if added else 'deleted'}_v1", event)

    def card_action(self, message: Message, operator: Person, action: Json) -> Event:
        event = {
            "operator": {"tenant_key": self._world.tenant_key, **operator.ids()},
            "token": self._world.ids.hex("c-", 40),
            "action": {"timezone": "Asia/Shanghai", **action},
            "host": "im_message",
            "context": {"open_message_id": message.message_id, "open_chat_id": message.chat_id},
        }
        return self._event("card.action.trigger", event, is_callback=True)


async def under_way(done: asyncio.Event) -> None:
    """An answer that is already on its way is in time, however fast the clock runs or jumps: a quarter of a second."""
    if not done.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(done.wait(), 0.25)


def mention(number: int, person: Person, tenant_key: str) -> Json:
    """One entry of a message's `mentions`; the content carries its key."""
    return {
        "key": f"@_user_{number}",
        "id": person.ids(),
        "name": person.name,
        "mentioned_type": "bot" if person.is_bot else "user",
        "tenant_key": tenant_key,
    }
