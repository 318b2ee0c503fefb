"""Who is who: the bot's own id, which mentions are told by, and people's names, as far as the app may know them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable

import structlog

from adapters.feishu.api import Api
from adapters.feishu.errors import ApiRefusal
from adapters.feishu.events import Mention
from adapters.feishu.spacing import Spacing
from channels.adapter import Failure, Transient
from channels.clock import Clock

log = structlog.get_logger(__name__)

_MOST_NAMES = 5_000
_KEEP_NAME = 86_400.0  # seconds
_PAUSE = 600.0  # seconds without look-ups after one was refused
_PATIENCE = 0.8  # seconds that a message waits for its sender's name


class People:
    """Look-ups, remembered."""

    def __init__(self, api: Api, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._own_id = ""
        self._own_lock = asyncio.Lock()
        self._names: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._not_before = 0.0
        self._spacing = Spacing(clock)

    async def close(self) -> None:
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def own_id(self) -> str:
        """The bot's open_id. Raises a `Failure` while it cannot be found out."""
        async with self._own_lock:
            if not self._own_id:
                self._own_id = await self.look_up_bot()
            return self._own_id

    async def look_up_bot(self) -> str:
        """The bot's open_id, asked for anew: which also tells whether the app is accepted. Raises a `Failure`."""
        try:
            found = await self._api.call("asking who the bot is", "GET", "bot/v3/info", repeat=True)
        except ApiRefusal as refusal:
            raise Transient(refusal.describe()) from None
        bot = found.get("bot")
        own_id = bot.get("open_id") if isinstance(bot, dict) else None
        if not isinstance(own_id, str) or not own_id:
            raise Transient("the app has no bot: add one in the developer console and publish a version")
        return own_id

    def learn(self, mentions: Iterable[Mention]) -> None:
        """Mentions tell names for nothing."""
        for mention in mentions:
            if mention.id.open_id and mention.name:
                self._keep(mention.id.open_id, mention.name)

    async def name_of(self, open_id: str, patience: float = _PATIENCE) -> str:
        """A person's name; empty when it cannot be had in `patience` seconds. What comes later is known next time."""
        known = self._names.get(open_id)
        now = self._clock.now()
        if known is not None and now < known[1]:
            self._names.move_to_end(open_id)
            return known[0]
        if open_id and now >= self._not_before:
            if open_id not in self._asking:
                task = self._asking[open_id] = asyncio.create_task(self._ask(open_id), name=f"name-of-{open_id}")
                task.add_done_callback(lambda _: self._asking.pop(open_id, None))
            await asyncio.wait({self._asking[open_id]}, timeout=patience)
            known = self._names.get(open_id, known)
        return known[0] if known is not None else ""

    async def _ask(self, open_id: str) -> None:
        await self._spacing.turn()
        try:
            path, query = f"contact/v3/users/{open_id}", {"user_id_type": "open_id"}
            found = await self._api.call("reading people's names", "GET", path, query=query, optional=True)
        except (ApiRefusal, Failure) as error:
            # Names are a courtesy: without the scope the bridge works as well.
            log.info("a person's name cannot be read", cause=str(error))
            self._not_before = self._clock.now() + _PAUSE
            return
        user = found.get("user")
        name = user.get("name") if isinstance(user, dict) else None
        self._keep(open_id, name if isinstance(name, str) else "")

    def _keep(self, open_id: str, name: str) -> None:
        self._names[open_id] = (name, self._clock.now() + _KEEP_NAME)
        self._names.move_to_end(open_id)
        if len(self._names) > _MOST_NAMES:
            self._names.popitem(last=False)
