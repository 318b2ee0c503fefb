"""Messages that an event only names: what a bundle of forwarded ones holds, and what a question replies to."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

import structlog
from pydantic import JsonValue

from adapters.feishu.api import Api
from adapters.feishu.errors import ApiRefusal
from adapters.feishu.events import Mention, UserId
from adapters.feishu.people import People
from adapters.feishu.reading import Read, read_content
from channels.adapter import Failure
from channels.shapes import as_list, as_object, as_text

log = structlog.get_logger(__name__)

_FOR_READING = 1.0  # seconds for all of it, names included; the platform waits 3 for the whole event
_MOST_FORWARDED = 50
_MOST_NAMED = 20  # people asked for at the same time; the API allows 50 calls a second

Item = Mapping[str, JsonValue]


class Earlier:
    """Reads them, as far as that is possible in time. What comes without its names is better than nothing."""

    def __init__(self, api: Api, people: People) -> None:
        self._api = api
        self._people = people

    async def forwarded(self, message_id: str) -> Read:
        """A bundle: who said what, and the files."""
        began = _now()
        items = await self._items(message_id, began)
        if not items:
            return Read("[Forwarded messages, which could not be read]")
        return await self._bundle(message_id, items[1:], began)

    async def replied_to(self, message_id: str) -> Read:
        """A message that somebody replied to; nothing when the bot itself wrote it."""
        began = _now()
        items = await self._items(message_id, began)
        if not items or items[0].get("deleted") is True or self._is_own(items[0]):
            return Read()
        read = self._read(message_id, items[0])
        if read.needs_children:
            return await self._bundle(message_id, items[1:], began)
        return Read(read.text or _names_of_files(read), read.attachments)

    async def _items(self, message_id: str, began: float) -> Sequence[Item]:
        """The message and, of a bundle, those in it; none when they cannot be had."""
        try:
            async with asyncio.timeout_at(began + _FOR_READING):
                path = f"im/v1/messages/{message_id}"
                found = await self._api.call("reading messages", "GET", path, repeat=True)
        except (ApiRefusal, Failure, TimeoutError) as error:
            log.info("a message could not be read", message=message_id, cause=str(error) or "too slow")
            return ()
        return [as_object(item) for item in as_list(found.get("items"))]

    async def _bundle(self, message_id: str, items: Sequence[Item], began: float) -> Read:
        # The platform hands the files out as the bundle's, not as those of the messages in it.
        told = [(_sender_of(item), self._read(message_id, item)) for item in items[:_MOST_FORWARDED]]
        names = await self._names([sender for sender, _ in told], began)
        lines = [f"{names.get(sender) or 'Somebody'}: {read.text or _names_of_files(read)}" for sender, read in told]
        files = tuple(attachment for _, read in told for attachment in read.attachments)
        return Read("\n".join(["[Forwarded messages]", *lines]), files)

    async def _names(self, senders: Iterable[str], began: float) -> Mapping[str, str]:
        """The names of those people that can be had in what is left of the time."""
        people = [sender for sender in dict.fromkeys(senders) if sender][:_MOST_NAMED]
        left = max(0.0, began + _FOR_READING - _now())
        names = await asyncio.gather(*(self._people.name_of(sender, left) for sender in people))
        return dict(zip(people, names, strict=True))

    def _read(self, message_id: str, item: Item) -> Read:
        mentions = [mention for one in as_list(item.get("mentions")) if (mention := _mention(as_object(one))).key]
        self._people.learn(mentions)
        content = as_text(as_object(item.get("body")).get("content"))
        return read_content(message_id, as_text(item.get("msg_type")), content, mentions, "")

    def _is_own(self, item: Item) -> bool:
        return as_object(item.get("sender")).get("id") == self._api.app_id


def _now() -> float:
    return asyncio.get_running_loop().time()


def _sender_of(item: Item) -> str:
    """The person's id; empty for an app, whose name nobody can be asked for."""
    sender = as_object(item.get("sender"))
    return as_text(sender.get("id")) if sender.get("id_type") == "open_id" else ""


def _mention(one: Item) -> Mention:
    return Mention(
        key=as_text(one.get("key")), id=UserId(open_id=as_text(one.get("id"))), name=as_text(one.get("name"))
    )


def _names_of_files(read: Read) -> str:
    return " ".join(f"[{attachment.name}]" for attachment in read.attachments)
