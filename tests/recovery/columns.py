"""The platforms as the kill tests see them: how a person asks there, and what they read afterwards."""

from __future__ import annotations

import asyncio
import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import httpx
from pydantic import JsonValue

from adapters.slack.manifest import SCOPES
from adapters.web.guard import REQUEST_HEADER
from channels.clock import SystemClock
from tests.adapters.web.page_model import PageModel
from tests.emulators.feishu import FeishuEmulator
from tests.emulators.slack import ANN, APP_TOKEN, BOT_TOKEN, GENERAL, Seen, SlackEmulator
from tests.emulators.telegram import TelegramEmulator
from tests.recovery.counting_graph import CONTENT, FILE, PIECES

_WORD = re.compile(r"\bw\d+\b|\bend\b")


class Column(ABC):
    """One platform.

    `sends_may_double`: the points at which a kill leaves a message that nobody can know of. `file_windows` names the
    windows around the delivery of a file, and the point that lies in each (empty: files are links in the answer).
    """

    name: str
    sends_may_double: frozenset[str] = frozenset()
    file_windows: ClassVar[Mapping[str, str]] = {}

    @abstractmethod
    async def start(self, folder: Path) -> None: ...

    @abstractmethod
    async def stop(self) -> None: ...

    @abstractmethod
    def settings(self) -> dict[str, JsonValue]:
        """The channel's part of the configuration file."""

    def environment(self) -> Mapping[str, str]:
        return {}

    @abstractmethod
    async def ask(self, url: str, text: str = "count") -> None:
        """A person asks; the bridge at `url` may die before it can answer."""

    async def restarted(self, url: str) -> None:  # noqa: B027 - most platforms redeliver by themselves
        """The bridge is there again, at `url`."""

    @abstractmethod
    async def answers(self) -> list[str]:
        """The bot's messages as the person reads them now."""

    @abstractmethod
    async def left_open(self) -> list[str]:
        """What still claims to be in progress."""

    def broken_rules(self) -> list[str]:
        return []

    def files(self) -> list[str]:
        """The names of the files that the person was sent."""
        return []

    async def result(self, point: str) -> str | None:
        """What the person is left with after a kill at `point`; None while it is not what it must become."""
        texts, left_open = await self.answers(), await self.left_open()
        if is_whole(texts):
            return None if left_open else "complete, once"
        if point in self.sends_may_double and is_whole_beside_a_torn_send(texts):
            # The torn message cannot be changed any more: its id died with the process that sent it.
            return None if len(left_open) > 1 else "complete, beside a torn send"
        return None


WHOLE = [piece.strip() for piece in PIECES]


def is_whole(texts: Sequence[str]) -> bool:
    """Whether the messages are the answer, complete and once."""
    return [word for text in texts for word in _WORD.findall(text)] == WHOLE


def is_whole_beside_a_torn_send(texts: Sequence[str]) -> bool:
    """Whether the messages are the answer and one more, with which a killed process had begun it."""
    for index, text in enumerate(texts):
        words = _WORD.findall(text)
        if words == WHOLE[: len(words)] and is_whole([*texts[:index], *texts[index + 1 :]]):
            return True
    return False


class WebColumn(Column):
    """The page in a browser: it repeats what was not accepted, under the same id."""

    name = "web"

    def __init__(self) -> None:
        self._client = httpx.AsyncClient(headers={REQUEST_HEADER: "1"}, timeout=10)
        self._message = str(uuid.uuid4())
        self._url = ""

    async def start(self, folder: Path) -> None:
        self._folder = folder

    async def stop(self) -> None:
        await self._client.aclose()

    def settings(self) -> dict[str, JsonValue]:
        return {"platform": "web", "store": f"sqlite:///{self._folder / 'web.db'}"}

    async def ask(self, url: str, text: str = "count") -> None:
        self._url, self._text = url, text
        await self._send()

    async def restarted(self, url: str) -> None:
        self._url = url
        await self._send()

    async def _send(self) -> None:
        """As the page does: again and again until the bridge has taken it, or is gone."""
        data = {"id": self._message, "text": self._text}
        try:
            while True:
                page = await self._client.get(f"{self._url}/")
                sent = await self._client.post(f"{self._url}/messages", data=data, headers={"origin": self._url})
                if page.is_success and sent.is_success:
                    return
                await asyncio.sleep(0.05)
        except httpx.HTTPError:
            pass

    async def _page(self) -> PageModel:
        model = PageModel()
        async with self._client.stream("GET", f"{self._url}/events") as response:
            event: dict[str, str] = {}
            async for line in response.aiter_lines():
                name, _, value = line.partition(": ")
                event[name] = value
                if not line and "data" in event:
                    model.take_raw(event.get("id", ""), event.get("event", ""), event["data"])
                    break
        return model

    async def answers(self) -> list[str]:
        return [entry.text for entry in (await self._page()).in_order if entry.kind == "reply"]

    async def left_open(self) -> list[str]:
        return [entry.phase for entry in (await self._page()).in_order if entry.live]


class TelegramColumn(Column):
    """A private chat, by long polling."""

    name = "telegram"
    # The Bot API has no key that makes a send repeatable: killed after the platform took it, it is sent once more.
    sends_may_double = frozenset({"performed-create", "performed-SendFile"})
    # The first creation is the message.
    file_windows: ClassVar[Mapping[str, str]] = {
        "file: intent stored": "intent-stored:2",
        "file: sent": "performed-SendFile",
        "file: noted": "creation-stored:2",
    }

    async def start(self, folder: Path) -> None:
        self._emulator = TelegramEmulator(SystemClock())
        await self._emulator.start()
        self._person = self._emulator.person("Ann")
        self._chat = self._emulator.private_chat(self._person)

    async def stop(self) -> None:
        await self._emulator.stop()

    def settings(self) -> dict[str, JsonValue]:
        return {
            "platform": "telegram",
            "bot_token": self._emulator.token,
            "api_base_url": self._emulator.url,
        }

    async def ask(self, url: str, text: str = "count") -> None:
        self._emulator.say(self._chat, text, by=self._person)
        await asyncio.sleep(0)

    async def answers(self) -> list[str]:
        return [message.text for message in self._emulator.chat(self._chat).from_bot() if message.file is None]

    def files(self) -> list[str]:
        messages = self._emulator.chat(self._chat).from_bot()
        assert all(message.content == CONTENT for message in messages if message.file)
        return [message.file.split(" ", 1)[1] for message in messages if message.file]

    async def left_open(self) -> list[str]:
        messages = self._emulator.chat(self._chat).from_bot()
        return [str(message.buttons) for message in messages if message.buttons]

    def broken_rules(self) -> list[str]:
        return self._emulator.journal.broken


class SlackColumn(Column):
    """A thread in a channel, by Socket Mode, streamed. A lost send is looked for in the thread: nothing may double."""

    name = "slack"
    # The first creation is the stream.
    file_windows: ClassVar[Mapping[str, str]] = {
        "file: uploaded": "performed-Upload",
        "file: intent stored": "intent-stored:2",
        "file: sent": "performed-Share",
        "file: noted": "creation-stored:2",
    }

    async def start(self, folder: Path) -> None:
        self._emulator = SlackEmulator(SystemClock())
        self._emulator.grant(list(SCOPES))
        await self._emulator.start()

    async def stop(self) -> None:
        await self._emulator.stop()

    def settings(self) -> dict[str, JsonValue]:
        return {
            "platform": "slack",
            "bot_token": BOT_TOKEN,
            "app_token": APP_TOKEN,
            "api_base_url": f"{self._emulator.url}/api/",
            "feedback": False,
        }

    async def ask(self, url: str, text: str = "count") -> None:
        self._question = await self._emulator.send(GENERAL, ANN, text, mention=True)

    async def restarted(self, url: str) -> None:
        self._emulator.redeliver()  # at once instead of a minute later

    async def answers(self) -> list[str]:
        return [message.text for message in self._written()]

    async def left_open(self) -> list[str]:
        unfinished = [message.text for message in self._written() if message.streaming or message.buttons]
        return [*unfinished, *self._emulator.statuses.values()]

    def _written(self) -> list[Seen]:
        return self._emulator.answers(GENERAL, self._question)

    def files(self) -> list[str]:
        names = [name for message in self._written() for name in message.files]
        assert all(self._emulator.file(name).content == CONTENT for name in names)
        return names

    def broken_rules(self) -> list[str]:
        return self._emulator.journal.broken


class FeishuColumn(Column):
    """A chat with one person, by the long connection: one card, completed by whoever comes after."""

    name = "feishu"
    # The first creation is the message that shows the card.
    file_windows: ClassVar[Mapping[str, str]] = {
        "file: uploaded": "performed-UploadFile",
        "file: intent stored": "intent-stored:2",
        "file: sent": "performed-SendFile",
        "file: noted": "creation-stored:2",
    }

    async def start(self, folder: Path) -> None:
        self._emulator = FeishuEmulator(SystemClock(), app_id="cli_kill", app_secret="kill-secret-of-the-app")
        await self._emulator.start()
        self._person = self._emulator.add_person("Ann")
        self._chat = self._emulator.p2p(self._person)

    async def stop(self) -> None:
        await self._emulator.stop()

    def settings(self) -> dict[str, JsonValue]:
        return {
            "platform": "feishu",
            "app_id": "cli_kill",
            "app_secret": "kill-secret-of-the-app",
            "domain": self._emulator.url,
            "settle_seconds": 0,
        }

    async def ask(self, url: str, text: str = "count") -> None:
        await self._emulator.say(self._person, self._chat, text)

    async def answers(self) -> list[str]:
        return [message.text for message in self._emulator.replies(self._chat) if message.kind != "file"]

    def files(self) -> list[str]:
        return [FILE for message in self._emulator.replies(self._chat) if message.kind == "file"]

    async def left_open(self) -> list[str]:
        shown = self._emulator.replies(self._chat)
        return [message.text for message in shown if message.generating or message.streaming or message.buttons]

    def broken_rules(self) -> list[str]:
        return self._emulator.journal.broken


COLUMNS: tuple[type[Column], ...] = (WebColumn, TelegramColumn, SlackColumn, FeishuColumn)
