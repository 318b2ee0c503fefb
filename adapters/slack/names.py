"""The names behind Slack's ids, asked once in a while."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Mapping

from adapters.slack.api import SlackApi
from channels.clock import Clock
from channels.shapes import as_object, first_text

_MOST = 5_000
_LIFE = 3_600.0  # seconds
_LIFE_OF_NOTHING = 60.0
_PATIENCE = 1.0  # seconds for all names of one event, which has to be acked within 3


class Names:
    """Names of people and conversations. Whoever cannot be asked about in time stays nameless."""

    def __init__(self, api: SlackApi, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._known: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._asking: dict[str, asyncio.Task[None]] = {}

    async def of(self, users: Iterable[str], channels: Iterable[str]) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """The names, as far as they can be had within a second. Never raises."""
        asked_users, asked_channels = sorted(set(users)), sorted(set(channels))
        asking = [self._ask(user, self._learn_user) for user in asked_users if self._recall(user) is None]
        asking += [self._ask(id_, self._learn_channel) for id_ in asked_channels if self._recall(id_) is None]
        if asking:
            await asyncio.wait(asking, timeout=_PATIENCE)  # whoever is late is known the next time
        return self._named(asked_users), self._named(asked_channels)

    async def close(self) -> None:
        """End the questions that are still open."""
        asking = tuple(self._asking.values())
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    def _ask(self, id_: str, learn: Callable[[str], Coroutine[None, None, None]]) -> asyncio.Task[None]:
        """The question about an id, which two events at once ask together."""
        task = self._asking.get(id_)
        if task is None:
            task = self._asking[id_] = asyncio.create_task(learn(id_))
            task.add_done_callback(lambda _: self._asking.pop(id_, None))
        return task

    def _named(self, ids: Iterable[str]) -> dict[str, str]:
        return {id_: name for id_ in ids if (name := self._recall(id_))}

    def _recall(self, id_: str) -> str | None:
        """The name; "" for one that Slack would not tell lately, None for one to be asked about."""
        name, until = self._known.get(id_, ("", 0.0))
        if until <= self._clock.now():
            return None
        self._known.move_to_end(id_)
        return name

    async def _learn_user(self, user: str) -> None:
        answer = await self._api.ask("users.info", user=user)
        person = as_object(answer.get("user")) if answer is not None else {}
        profile = as_object(person.get("profile"))
        name = first_text(profile, "display_name", "real_name") or first_text(person, "real_name", "name")
        self._keep(user, name)

    async def _learn_channel(self, channel: str) -> None:
        answer = await self._api.ask("conversations.info", channel=channel)
        self._keep(channel, first_text(as_object(answer.get("channel")), "name") if answer is not None else "")

    def _keep(self, id_: str, name: str) -> None:
        self._known[id_] = (name, self._clock.now() + (_LIFE if name else _LIFE_OF_NOTHING))
        while len(self._known) > _MOST:
            self._known.popitem(last=False)
