"""The platforms as the chaos test sees them: one channel each, with many people who talk in it at the same time."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
import zlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Generic, Protocol, TypeVar

import httpx
from pydantic import JsonValue

from adapters.slack.manifest import SCOPES
from adapters.web.guard import REQUEST_HEADER
from channels.clock import SystemClock
from tests.adapters.web.page_model import PageModel
from tests.emulators.feishu import FeishuEmulator, Limits, Shown
from tests.emulators.journal import Fault, FaultKind, Faults, Journal
from tests.emulators.slack import APP_TOKEN, BOT_TOKEN, Seen, SlackEmulator
from tests.emulators.slack.deliveries import DeliveryKind, DeliveryState
from tests.emulators.telegram import TelegramEmulator
from tests.recovery.relay import Relay

_BAD_GATEWAY = Fault(FaultKind.ANSWER, 502, body="<html>502 Bad Gateway</html>")
_OUTAGE = (_BAD_GATEWAY, _BAD_GATEWAY)
_TOO_MANY = {"ok": False, "error_code": 429, "description": "Too Many Requests", "parameters": {"retry_after": 1}}
_FEISHU_SECRET = "chaos-secret-of-the-app"

Urls = Callable[[], Sequence[str]]
"""Where the replicas that are up answer now."""


class Crowd(ABC):
    """One channel and its people.

    `sends_may_double`: the platform has no way to repeat a send safely.
    """

    platform: str
    sends_may_double = False

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    async def start(self, replicas: Sequence[str], urls: Urls, database: str) -> None:
        """Open the platform; `database` is a PostgreSQL database for a channel that keeps something itself."""

    @abstractmethod
    async def stop(self) -> None: ...

    @abstractmethod
    def settings(self, replica: str) -> dict[str, JsonValue]:
        """The channel's part of the configuration of one replica."""

    @abstractmethod
    def person(self) -> str:
        """One more person, in a conversation of their own."""

    @abstractmethod
    async def ask(self, person: str, text: str) -> None:
        """The person writes; returns when the platform has it, and will not lose it any more."""

    @abstractmethod
    async def messages(self, person: str) -> list[str]:
        """What the bot's messages say to the person now, oldest first."""

    @abstractmethod
    async def left_open(self, person: str) -> list[str]:
        """What still claims to be in progress."""

    @property
    def unconfirmed(self) -> int:
        """How much of what people did has not been acknowledged to the platform, which will bring it again."""
        return 0

    @abstractmethod
    async def acted_at(self, replica: str, url: str, since: float) -> float | None:
        """When the replica, which answers at `url`, first did something for this channel after `since`.

        Moments are on the monotonic clock. None: it has not done anything yet.
        """

    def writes(self, replica: str) -> list[float]:
        """When the replica changed what people read, as far as that can be told."""
        return []

    def trouble(self, dice: random.Random) -> None:  # noqa: B027 - a platform without any is one
        """Let the platform have a bad moment: a 5xx, a 429, a cut connection."""

    def broken_rules(self) -> list[str]:
        return []


class WebCrowd(Crowd):
    """Browsers. They ask one replica after the other, as a proxy would for them, and repeat what was not taken."""

    platform = "web"

    async def start(self, replicas: Sequence[str], urls: Urls, database: str) -> None:
        self._urls = urls
        self._database = database
        # One client for all, which keeps nobody's cookies.
        jar = CookieJar(policy=DefaultCookiePolicy(allowed_domains=[]))
        self._client = httpx.AsyncClient(headers={REQUEST_HEADER: "1"}, timeout=3.0, verify=False, cookies=jar)
        self._cookies: dict[str, str] = {}
        self._owner = ""

    async def stop(self) -> None:
        await self._client.aclose()

    def settings(self, replica: str) -> dict[str, JsonValue]:
        return {"platform": "web", "path": f"/{self.name}", "store": self._database}

    def person(self) -> str:
        return str(uuid.uuid4())

    async def ask(self, person: str, text: str) -> None:
        data = {"id": str(uuid.uuid4()), "text": text}
        await self._insist(lambda url: self._post(url, person, data))

    async def _insist(self, act: Callable[[str], Awaitable[bool]]) -> None:
        while True:
            if await self._try(act):
                return
            await asyncio.sleep(0.2)

    async def _try(self, act: Callable[[str], Awaitable[bool]]) -> bool:
        """Whether one replica let it be done; the one that did so last time is asked first."""
        for url in sorted(self._urls(), key=lambda url: url != self._owner):
            try:
                if await act(url):
                    self._owner = url
                    return True
            except httpx.HTTPError:
                continue
        return False

    async def _post(self, url: str, person: str, data: dict[str, str]) -> bool:
        if person not in self._cookies:
            page = await self._client.get(f"{url}/{self.name}/")
            if not page.is_success:
                return False
            self._cookies[person] = "; ".join(f"{name}={value}" for name, value in page.cookies.items())
        headers = {"origin": url, "cookie": self._cookies[person]}
        sent = await self._client.post(f"{url}/{self.name}/messages", data=data, headers=headers)
        return sent.is_success

    async def messages(self, person: str) -> list[str]:
        return [entry.text for entry in (await self._page(person)).in_order if entry.kind == "reply"]

    async def left_open(self, person: str) -> list[str]:
        return [entry.phase for entry in (await self._page(person)).in_order if entry.live]

    async def _page(self, person: str) -> PageModel:
        model = PageModel()

        async def read(url: str) -> bool:
            headers = {"cookie": self._cookies[person]}
            async with self._client.stream("GET", f"{url}/{self.name}/events", headers=headers) as response:
                if not response.is_success:
                    return False
                event: dict[str, str] = {}
                async for line in response.aiter_lines():
                    name, _, value = line.partition(": ")
                    event[name] = value
                    if not line and "data" in event:
                        model.take_raw(event.get("id", ""), event.get("event", ""), event["data"])
                        return True
            return False

        async with asyncio.timeout(20):
            await self._insist(read)
        return model

    async def acted_at(self, replica: str, url: str, since: float) -> float | None:
        try:
            page = await self._client.get(f"{url}/{self.name}/", timeout=1.0)
        except httpx.HTTPError:
            return None
        return time.monotonic() if page.is_success else None


class Emulator(Protocol):
    """What the emulators have in common here."""

    faults: Faults

    @property
    def journal(self) -> Journal: ...


_E = TypeVar("_E", bound=Emulator)


class RelayedCrowd(Crowd, Generic[_E]):
    """A platform that replicas call, each through a relay of its own.

    `changes`: parts of the paths that change what people read. `troubles`: a method, and what its next calls meet.
    """

    changes: tuple[str, ...]
    troubles: tuple[tuple[str, tuple[Fault, ...]], ...]
    _emulator: _E

    def trouble(self, dice: random.Random) -> None:
        method, faults = dice.choice(self.troubles)
        self._emulator.faults.plan(method, *faults)

    def broken_rules(self) -> list[str]:
        return self._emulator.journal.broken

    async def _open_relays(self, replicas: Sequence[str], platform_url: str) -> None:
        port = int(platform_url.rpartition(":")[2])
        self._relays = {replica: Relay(port) for replica in replicas}
        for relay in self._relays.values():
            await relay.start()

    async def _close_relays(self) -> None:
        for relay in self._relays.values():
            await relay.stop()

    async def acted_at(self, replica: str, url: str, since: float) -> float | None:
        return next((heard.at for heard in self._relays[replica].heard if heard.at > since), None)

    def writes(self, replica: str) -> list[float]:
        heard = self._relays[replica].heard
        return [one.at for one in heard if any(change in one.path for change in self.changes)]


class TelegramCrowd(RelayedCrowd[TelegramEmulator]):
    """Private chats with one bot, by long polling."""

    platform = "telegram"
    changes = ("/sendMessage", "/editMessageText", "/deleteMessage")
    troubles = (
        ("*", _OUTAGE),
        ("editMessageText", (Fault(FaultKind.ANSWER, 429, body=_TOO_MANY),)),
        ("editMessageText", (Fault(FaultKind.DROP_AFTER),)),
        ("sendMessage", (Fault(FaultKind.DROP_BEFORE),)),
    )
    sends_may_double = True  # the Bot API has no key that makes a send repeatable

    async def start(self, replicas: Sequence[str], urls: Urls, database: str) -> None:
        number = 100_000_000 + zlib.crc32(self.name.encode())
        self._emulator = TelegramEmulator(SystemClock(), token=f"{number}:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw")
        await self._emulator.start()
        await self._open_relays(replicas, self._emulator.url)

    async def stop(self) -> None:
        await self._close_relays()
        await self._emulator.stop()

    def settings(self, replica: str) -> dict[str, JsonValue]:
        return {
            "platform": "telegram",
            "bot_token": self._emulator.token,
            "api_base_url": self._relays[replica].url,
        }

    def person(self) -> str:
        return str(self._emulator.private_chat())

    async def ask(self, person: str, text: str) -> None:
        self._emulator.say(int(person), text)

    async def messages(self, person: str) -> list[str]:
        return [message.text for message in self._emulator.chat(int(person)).from_bot()]

    async def left_open(self, person: str) -> list[str]:
        messages = self._emulator.chat(int(person)).from_bot()
        return [message.text for message in messages if message.buttons]

    @property
    def unconfirmed(self) -> int:
        return len(self._emulator.pending_updates)


class SlackCrowd(RelayedCrowd[SlackEmulator]):
    """Direct messages in one workspace, by Socket Mode. A lost send is looked for, so none may double."""

    platform = "slack"
    changes = ("/chat.postMessage", "/chat.update", "/chat.startStream", "/chat.appendStream", "/chat.stopStream")
    troubles = (
        ("*", _OUTAGE),
        ("chat.update", (Fault(FaultKind.DROP_AFTER),)),
        ("chat.postMessage", (Fault(FaultKind.DROP_AFTER),)),
    )

    async def start(self, replicas: Sequence[str], urls: Urls, database: str) -> None:
        self._emulator = SlackEmulator(SystemClock(), ack_seconds=6.0)
        self._emulator.grant(list(SCOPES))
        await self._emulator.start()
        await self._open_relays(replicas, self._emulator.url)
        self._redelivering = asyncio.create_task(self._redeliver())

    async def stop(self) -> None:
        self._redelivering.cancel()
        await self._close_relays()
        await self._emulator.stop()

    async def _redeliver(self) -> None:
        """Slack tries again after a minute, and after five; a chaos of a minute cannot wait for that."""
        while True:
            await asyncio.sleep(3.0)
            self._emulator.redeliver()

    def settings(self, replica: str) -> dict[str, JsonValue]:
        return {
            "platform": "slack",
            "bot_token": BOT_TOKEN,
            "app_token": APP_TOKEN,
            "api_base_url": f"{self._relays[replica].url}/api/",
            "feedback": False,
        }

    def person(self) -> str:
        user = f"U{uuid.uuid4().hex[:9].upper()}"
        self._emulator.add_user(user, user.lower())
        self._emulator.direct(user)
        return user

    async def ask(self, person: str, text: str) -> None:
        await self._emulator.dm(person, text)

    async def messages(self, person: str) -> list[str]:
        return [message.text for message in self._written(person)]

    async def left_open(self, person: str) -> list[str]:
        return [message.text for message in self._written(person) if message.streaming or message.buttons]

    @property
    def unconfirmed(self) -> int:
        deliveries = self._emulator.courier.deliveries
        return sum(d.kind is DeliveryKind.EVENT and d.state is not DeliveryState.ACKED for d in deliveries)

    def _written(self, person: str) -> list[Seen]:
        return self._emulator.answers(self._emulator.direct(person).id)


class FeishuCrowd(RelayedCrowd[FeishuEmulator]):
    """Chats with one person each, by the long connection. Sends carry a key, so none may double."""

    platform = "feishu"
    changes = ("/cardkit/", "/im/v1/messages")
    troubles = (
        ("*", _OUTAGE),
        ("cardkit.element.content", (Fault(FaultKind.DROP_AFTER),)),
        ("im.message.reply", (Fault(FaultKind.DROP_AFTER),)),
    )

    async def start(self, replicas: Sequence[str], urls: Urls, database: str) -> None:
        self._app_id = f"cli_{self.name}"
        # Feishu tries again after 15 s, then after 5 min; a chaos of a minute cannot wait for that.
        limits = Limits(redelivery_seconds=(3.0,) * 1000)
        self._emulator = FeishuEmulator(SystemClock(), app_id=self._app_id, app_secret=_FEISHU_SECRET, limits=limits)
        await self._emulator.start()
        await self._open_relays(replicas, self._emulator.url)

    async def stop(self) -> None:
        await self._close_relays()
        await self._emulator.stop()

    def settings(self, replica: str) -> dict[str, JsonValue]:
        return {
            "platform": "feishu",
            "app_id": self._app_id,
            "app_secret": _FEISHU_SECRET,
            "domain": self._relays[replica].url,
            "settle_seconds": 0,
        }

    def person(self) -> str:
        return self._emulator.add_person(f"P{uuid.uuid4().hex[:9]}")

    async def ask(self, person: str, text: str) -> None:
        await self._emulator.say(person, self._emulator.p2p(person), text)

    async def messages(self, person: str) -> list[str]:
        return [message.text for message in self._written(person)]

    async def left_open(self, person: str) -> list[str]:
        return [m.text for m in self._written(person) if m.generating or m.streaming or m.buttons]

    @property
    def unconfirmed(self) -> int:
        return sum(not event.acked and not event.is_callback for event in self._emulator.deliverer.events)

    def _written(self, person: str) -> list[Shown]:
        return self._emulator.replies(self._emulator.p2p(person))


CROWDS: tuple[type[Crowd], ...] = (WebCrowd, TelegramCrowd, SlackCrowd, FeishuCrowd)
"""The platforms present. A new one joins the chaos by standing here."""
