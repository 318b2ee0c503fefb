"""The control API of an emulator that runs as its own process: the methods of `TelegramEmulator` as JSON over HTTP."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING

from aiohttp import web

from tests.emulators.journal import Fault, FaultKind
from tests.emulators.telegram.page import page, pictures
from tests.emulators.telegram.people import Upload
from tests.emulators.telegram.wire import Json

if TYPE_CHECKING:
    from tests.emulators.telegram.emulator import TelegramEmulator

_ACTS = (
    "person", "private_chat", "group", "topic", "close_topic", "delete_topic", "say", "share", "send_file",
    "send_album", "edit", "delete", "press", "stop_draft", "migrate", "block", "unblock", "kick", "add_bot",
    "hold_updates", "release_updates", "redeliver", "flood", "set_other_poller", "change_token",
)  # fmt: skip
_LONGEST_WAIT = 10.0


class Control:
    """`GET /` a page to play with, `GET /_control/state`, `POST /_control/fault`, `POST /_control/<method>`.

    Arguments are those of the methods; people are named by their ids, files are objects with `content` (text) or
    `content_base64`. `GET /_control/state?after=REVISION&wait=SECONDS` answers when something happened after that.
    """

    def __init__(self, emulator: TelegramEmulator) -> None:
        self._emulator = emulator

    def add_routes(self, app: web.Application) -> None:
        app.router.add_get("/", self._page)
        app.router.add_get("/_control/page", self._pictures)
        app.router.add_get("/_control/state", self._state)
        app.router.add_post("/_control/fault", self._fault)
        app.router.add_post("/_control/{act}", self._act)

    async def _page(self, _: web.Request) -> web.Response:
        return web.Response(text=page(self._emulator.chats()), content_type="text/html")

    async def _pictures(self, _: web.Request) -> web.Response:
        text = pictures(self._emulator.chats(), self._emulator.journal.broken)
        return web.Response(text=text, content_type="text/html")

    async def _state(self, request: web.Request) -> web.Response:
        after = int(request.query.get("after", -1))
        wait = min(float(request.query.get("wait", 0.0)), _LONGEST_WAIT)
        if self._emulator.revision <= after and wait > 0:
            await self._emulator.changed(wait)
        return web.json_response(self.state())

    def state(self) -> Json:
        emulator = self._emulator
        journal = emulator.journal
        return {
            "revision": emulator.revision,
            "bot": _plain(emulator.bot),
            "chats": _plain(emulator.chats()),
            "presses": _plain(emulator.presses),
            "commands": emulator.commands,
            "pending_updates": emulator.pending_updates,
            "webhook_url": emulator.webhook_url,
            "journal": {"calls": _plain(journal.calls), "broken": journal.broken},
        }

    async def _fault(self, request: web.Request) -> web.Response:
        asked = await request.json()
        fault = Fault(
            FaultKind(asked["kind"]),
            status=asked.get("status", 500),
            headers=asked.get("headers", {}),
            body=asked.get("body", ""),
            seconds=asked.get("seconds", 0.0),
        )
        self._emulator.faults.plan(asked["method"], *[fault] * asked.get("times", 1))
        return web.json_response({"result": True})

    async def _act(self, request: web.Request) -> web.Response:
        name = request.match_info["act"]
        if name not in _ACTS:
            return web.json_response({"error": f"no such act: {name}"}, status=404)
        method: Callable[..., object] = getattr(self._emulator, name)
        try:
            positional, named = self._arguments(await request.json() if request.can_read_body else {})
            result = method(*positional, **named)
        except (LookupError, TypeError, ValueError) as wrong:
            return web.json_response({"error": f"{type(wrong).__name__}: {wrong}"}, status=400)
        return web.json_response({"result": _plain(result)})

    def _arguments(self, asked: Json) -> tuple[list[object], Json]:
        """Ids of people become people, described files become uploads."""
        named = dict(asked)
        positional: list[object] = []
        for name in ("by", "person"):
            if name in named:
                named[name] = self._emulator.known_person(_whole(named[name]))
        if "title" in named and isinstance(named.get("members"), list):
            members = named.pop("members")
            positional = [named.pop("title"), *(self._emulator.known_person(_whole(item)) for item in _items(members))]
        if "upload" in named:
            named["upload"] = _upload(named["upload"])
        if "uploads" in named:
            uploads = _items(named.pop("uploads"))
            positional = [named.pop("chat_id"), *(_upload(item) for item in uploads)]
        return positional, named


def _whole(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"an id is a number, not {value!r}")
    return value


def _items(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError("a list is needed")
    return value


def _upload(value: object) -> Upload:
    if not isinstance(value, dict):
        raise TypeError("a file is an object")
    details = dict(value)
    encoded = details.pop("content_base64", None)
    content = base64.b64decode(encoded) if encoded is not None else str(details.pop("content", "content")).encode()
    return Upload(content, **details)


def _plain(value: object) -> object:
    """Dataclasses as objects; bytes by their length."""
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return len(value)
    return value
