"""The emulator in another process, with the method names it has in this one."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from types import TracebackType
from typing import Self, TypeVar

import aiohttp

from tests.emulators.journal import Fault
from tests.emulators.slack.blocks import JsonObject

T = TypeVar("T")


class RemoteSlack:
    """A client of the control API. What is a `Seen` or a `Delivery` there is a JSON object here."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def act(self, action: str, **args: object) -> object:
        """Call any method that the control API knows; raises AssertionError with what it complained about."""
        given = {name: value for name, value in args.items() if value is not None}
        return (await self._post(action, given))["result"]

    async def send(
        self, channel: str, user: str, text: str, *, thread_ts: str | None = None, mention: bool = False
    ) -> str:
        return str(await self.act("send", channel=channel, user=user, text=text, thread_ts=thread_ts, mention=mention))

    async def dm(self, user: str, text: str, *, thread_ts: str | None = None) -> str:
        return str(await self.act("dm", user=user, text=text, thread_ts=thread_ts))

    async def upload(
        self,
        channel: str,
        user: str,
        files: Mapping[str, bytes],
        text: str = "",
        *,
        thread_ts: str | None = None,
        mention: bool = False,
    ) -> str:
        encoded = {name: base64.b64encode(content).decode() for name, content in files.items()}
        sent = await self.act(
            "upload", channel=channel, user=user, files=encoded, text=text, thread_ts=thread_ts, mention=mention
        )
        return str(sent)

    async def edit(self, channel: str, ts: str, text: str) -> None:
        await self.act("edit", channel=channel, ts=ts, text=text)

    async def delete(self, channel: str, ts: str) -> None:
        await self.act("delete", channel=channel, ts=ts)

    async def press(
        self, channel: str, ts: str, user: str, *, action_id: str | None = None, text: str | None = None
    ) -> object:
        return await self.act("press", channel=channel, ts=ts, user=user, action_id=action_id, text=text)

    async def slash_command(self, channel: str, user: str, command: str, text: str = "") -> object:
        return await self.act("slash_command", channel=channel, user=user, command=command, text=text)

    async def press_stop(self, channel: str, thread_ts: str, user: str) -> object:
        return await self.act("press_stop", channel=channel, thread_ts=thread_ts, user=user)

    async def plan(self, method: str, *faults: Fault) -> None:
        """Plan faults for a method, as `faults.plan` does."""
        for fault in faults:
            await self._post("fault", {"method": method, **asdict(fault)})

    async def state(self) -> JsonObject:
        """Chats, status lines, sessions, deliveries, calls and broken rules, as they are now."""
        async with self._open.get(f"{self.url}/_control/state") as response:
            state: JsonObject = await response.json()
        return state

    async def wait_for(self, predicate: Callable[[JsonObject], T], timeout: float = 10.0) -> T:
        """The predicate's first truthy value over `state()`; raises AssertionError after so many real seconds."""
        end = time.monotonic() + timeout
        while not (value := predicate(state := await self.state())):
            if time.monotonic() > end:
                raise AssertionError(f"did not come true within {timeout} s: {state['chats']} {state['broken']}")
            await asyncio.sleep(0.05)
        return value

    @property
    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("use RemoteSlack as an async context manager")
        return self._session

    async def _post(self, path: str, body: Mapping[str, object]) -> JsonObject:
        async with self._open.post(f"{self.url}/_control/{path}", json=body) as response:
            answer: JsonObject = await response.json()
        if "error" in answer:
            raise AssertionError(answer["error"])
        return answer
