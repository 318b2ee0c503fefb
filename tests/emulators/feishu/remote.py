"""An emulator that runs in another process, driven over its control API with the same method names."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable
from typing import Any, Self

import httpx

from tests.emulators.feishu.refusals import Json


class RemoteFeishu:
    """`await remote.act("say", "Ann", chat_id, "hello")` does what `emulator.say("Ann", chat_id, "hello")` does."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._client = httpx.AsyncClient(base_url=url, trust_env=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def act(self, action: str, *args: Any, **kwargs: Any) -> Any:
        """Do an action of the emulator; an `AssertionError` says why it could not be done."""
        body = {"args": [_portable(one) for one in args], **{key: _portable(one) for key, one in kwargs.items()}}
        answer = await self._client.post(f"/_control/{action}", json=body)
        if answer.status_code != 200:
            raise AssertionError(answer.text)
        return answer.json()["result"]

    async def plan_fault(self, method: str, kind: str, **fault: Any) -> None:
        """Plan a fault as `emulator.faults` would; `times` plans it several times."""
        (await self._client.post("/_control/fault", json={"method": method, "kind": kind, **fault})).raise_for_status()

    async def state(self) -> Json:
        state: Json = (await self._client.get("/_control/state")).json()
        return state

    async def chat(self, chat_id: str) -> list[Json]:
        """The messages of a chat, as `emulator.chat` has them but in JSON."""
        return next((one["messages"] for one in (await self.state())["chats"] if one["chat_id"] == chat_id), [])

    async def wait_for(self, predicate: Callable[[Json], object], timeout: float = 10.0) -> Json:
        """Wait until the state satisfies the predicate; the state. Another process cannot wake us, so it is asked."""
        ends = time.monotonic() + timeout
        while True:
            state = await self.state()
            if predicate(state):
                return state
            if time.monotonic() > ends:
                raise AssertionError(f"waited {timeout} s in vain: {state['chats']}\nbroken: {state['broken']}")
            await asyncio.sleep(0.05)


def _portable(value: Any) -> Any:
    return {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value
