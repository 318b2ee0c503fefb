"""A client for an emulator in another process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

import aiohttp

from tests.emulators.journal import Fault
from tests.emulators.telegram.wire import Json

T = TypeVar("T")
_WAIT_SECONDS = 1.0


class RemoteTelegram:
    """`act("say", chat_id=…, text=…)` does what the method of that name of `TelegramEmulator` does, over HTTP."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def act(self, name: str, **arguments: object) -> object:
        """The method's result, dataclasses as objects. Raises LookupError when the emulator refuses."""
        return (await self._post(name, arguments))["result"]

    async def plan_fault(self, method: str, fault: Fault) -> None:
        asked: Json = {
            "method": method,
            "kind": fault.kind.value,
            "status": fault.status,
            "headers": dict(fault.headers),
            "body": fault.body,
            "seconds": fault.seconds,
        }
        await self._post("fault", asked)

    async def state(self, *, after: int | None = None) -> Json:
        """Chats, presses, commands and journal; with `after`, waits up to a second for a newer revision."""
        query = {} if after is None else {"after": str(after), "wait": str(_WAIT_SECONDS)}
        async with self._open().get(f"{self.url}/_control/state", params=query) as response:
            state: Json = await response.json()
            return state

    async def wait_for(self, predicate: Callable[[Json], T], timeout: float = 10.0) -> T:
        """Wait until `predicate(state)` is true and return what it returned; LookupError in it counts as not yet.

        Raises AssertionError with the state after `timeout` wall seconds.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        state = await self.state()
        while True:
            try:
                found = predicate(state)
            except LookupError:
                found = None
            if found:
                return found
            if loop.time() >= deadline:
                raise AssertionError(f"not within {timeout:g} s: {state}")
            revision = state["revision"]
            state = await self.state(after=revision if isinstance(revision, int) else None)

    async def _post(self, name: str, arguments: Json) -> Json:
        async with self._open().post(f"{self.url}/_control/{name}", json=arguments) as response:
            answer: Json = await response.json()
        if response.status != 200:
            raise LookupError(str(answer.get("error")))
        return answer

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("use `async with RemoteTelegram(url)`")
        return self._session
