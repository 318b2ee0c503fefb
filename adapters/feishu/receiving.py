"""From the platform's events to what the core takes: judged by nobody yet, committed before anything is acked."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Mapping
from typing import TypeVar

import structlog
from pydantic import JsonValue

from adapters.feishu.api import Api, Json
from adapters.feishu.cards import FORM_INPUT
from adapters.feishu.company import Company
from adapters.feishu.errors import ApiRefusal
from adapters.feishu.events import (
    CALLBACK,
    CardPressed,
    Message,
    MessageRecalled,
    MessageReceived,
    read_event,
    read_header,
)
from adapters.feishu.people import People
from adapters.feishu.reading import Read, mentions_of, read_content, read_message
from channels.adapter import Accepted, Failure, Sink, StoreAway
from channels.clock import Clock
from channels.commands import parse_command
from channels.model import Action, Inbound, InboundKind, Place, Press, Sender

log = structlog.get_logger(__name__)

_IN_TIME = 2.5  # seconds; the platform waits 3
_FOR_BUNDLE = 1.0  # seconds that a bundle of forwarded messages may take to be read
_KEEP_PLACE = 8 * 3600.0  # seconds that a question can be found when it is recalled
_MOST_FORWARDED = 50
_T = TypeVar("_T")


class NotNow(Exception):
    """The event could not be taken in: the platform delivers it again if it is not acked."""


class Receiver:
    """Takes events, from whichever way they come. `unknown` counts those that nothing is done about, by type."""

    def __init__(self, channel: str, sink: Sink, clock: Clock, api: Api, people: People, settle: float) -> None:
        self._channel = channel
        self._sink = sink
        self._clock = clock
        self._api = api
        self._people = people
        self._company = Company(settle)
        self._tasks: set[asyncio.Task[object]] = set()
        self.unknown: Counter[str] = Counter()

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._people.close()

    async def receive(self, payload: Mapping[str, JsonValue]) -> Json:
        """Take an event in; returns what to answer. Raises `NotNow`: do not ack it."""
        header = read_header(payload)
        event = read_event(header.event_type, payload)
        if event is None:
            self.unknown[header.event_type] += 1
            log.debug("an event nothing is done about", type=header.event_type)
            return {}
        try:
            return await self._in_time(self._take(event, header.event_id))
        except (StoreAway, Failure, TimeoutError) as error:
            log.warning("an event could not be taken in", type=header.event_type, cause=str(error) or "too slow")
        except Exception:
            log.exception("an event could not be taken in", type=header.event_type)
        if header.event_type == CALLBACK:  # it is not delivered again: the person has to
            return _toast("error", "Not possible just now. Please try again.", "暂时无法处理，请重试。")
        raise NotNow

    async def _take(self, event: MessageReceived | MessageRecalled | CardPressed, event_id: str) -> Json:
        match event:
            case MessageReceived():
                await self._received(event)
                return {}
            case MessageRecalled():
                await self._recalled(event)
                return {}
            case CardPressed():
                return await self._pressed(event, event_id)

    async def _in_time(self, taking: Awaitable[_T]) -> _T:
        """The result, if it is there in time. Work that is late goes on: what it commits is found by its key."""
        task = asyncio.ensure_future(taking)
        self._own(task)
        clock = asyncio.ensure_future(self._clock.sleep(_IN_TIME))
        try:
            await asyncio.wait({task, clock}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            clock.cancel()
        if not task.done():
            raise TimeoutError
        return task.result()

    def _own(self, task: asyncio.Future[_T]) -> None:
        if isinstance(task, asyncio.Task):
            self._tasks.add(task)
            task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waited has it; nobody did when it came late

    # ---------------------------------------------------------------- messages

    async def _received(self, event: MessageReceived) -> None:
        message, sender = event.message, event.sender
        if message.message_type == "system":
            return
        own_id = await self._people.own_id() if message.mentions else ""
        self._people.learn(message.mentions)
        read, name = await asyncio.gather(self._read(message, own_id), self._people.name_of(sender.sender_id.open_id))
        is_private = message.chat_type == "p2p"
        # A message without a root is the root of what is said under it, in groups and in topics alike.
        thread = None if is_private else message.root_id or message.message_id
        now = self._clock.now()
        group = self._group_of(message, sender.sender_id.open_id, read, thread, now)
        inbound = Inbound(
            place=Place(self._channel, message.chat_id, thread, private=is_private),
            sender=Sender(sender.sender_id.open_id, name, is_bot=sender.sender_type != "user"),
            event_key=message.message_id,
            kind=InboundKind.MESSAGE,
            text=read.text,
            received_at=now,
            sent_at=message.sent_at,
            message_id=message.message_id,
            attachments=read.attachments,
            mentions_bot=bool(own_id) and mentions_of(message, own_id),
            reply_to=message.parent_id or None,
            group=group,
            settle=self._company.settle if group is not None else 0.0,
        )
        if await self._sink.accept(inbound) is Accepted.TAKEN:
            self._own(asyncio.create_task(self._remember(inbound), name=f"remember-{message.message_id}"))

    def _group_of(self, message: Message, sender: str, read: Read, thread: str | None, now: float) -> str | None:
        opens_thread = thread is not None and thread == message.message_id
        if opens_thread or parse_command(read.text) is not None:
            return None  # files cannot come with it: they would open a thread of their own
        has_text = bool(read.text)
        return self._company.group_of(message.chat_id, thread, sender, message.message_id, has_text=has_text, now=now)

    async def _read(self, message: Message, own_id: str) -> Read:
        read = read_message(message, own_id)
        if not read.needs_children:
            return read
        try:
            async with asyncio.timeout(_FOR_BUNDLE):
                return await self._read_bundle(message.message_id)
        except (ApiRefusal, Failure, TimeoutError) as error:
            log.info("forwarded messages could not be read", cause=str(error) or "too slow")
            return read

    async def _read_bundle(self, message_id: str) -> Read:
        found = await self._api.call("reading messages", "GET", f"im/v1/messages/{message_id}")
        items = found.get("items")
        lines: list[str] = []
        for item in (items if isinstance(items, list) else [])[1 : _MOST_FORWARDED + 1]:
            if not isinstance(item, dict):
                continue
            body, sender = item.get("body"), item.get("sender")
            content = str(body.get("content", "")) if isinstance(body, dict) else ""
            child = read_content(str(item.get("message_id", "")), str(item.get("msg_type", "")), content, (), "")
            name = await self._people.name_of(str(sender.get("id", "")) if isinstance(sender, dict) else "")
            files = " ".join(f"[{attachment.name}]" for attachment in child.attachments)
            lines.append(f"{name or 'Somebody'}: {child.text or files}")
        return Read("\n".join(["[Forwarded messages]", *lines]))

    # ---------------------------------------------------------------- recalled messages

    async def _remember(self, inbound: Inbound) -> None:
        """So that the conversation is found when the message is recalled: the event does not say where it was."""
        place: Json = {
            "thread": inbound.place.thread,
            "private": inbound.place.private,
            "sender": inbound.sender.id,
        }
        try:
            await self._sink.remember(_place_key(inbound.message_id), place, _KEEP_PLACE)
        except StoreAway:
            log.info("a question will not be found if it is recalled")

    async def _recalled(self, event: MessageRecalled) -> None:
        place = await self._sink.recall(_place_key(event.message_id))
        if not isinstance(place, dict):
            return  # it was no question
        thread = place.get("thread")
        inbound = Inbound(
            place=Place(
                self._channel,
                event.chat_id,
                thread if isinstance(thread, str) else None,
                private=place.get("private") is True,
            ),
            sender=Sender(str(place.get("sender", ""))),
            event_key=f"recalled:{event.message_id}",
            kind=InboundKind.DELETED,
            text="",
            received_at=self._clock.now(),
            message_id=event.message_id,
        )
        await self._sink.accept(inbound)

    # ---------------------------------------------------------------- buttons and forms

    async def _pressed(self, event: CardPressed, event_id: str) -> Json:
        value = event.action.value
        press = Press.decode(str(value.get("press", "")))
        if press is None:
            return _toast("warning", "This button is not known any more.", "这个按钮已失效。")
        if press.action is Action.ANSWER and not press.value:
            text = (str(event.action.form_value.get(FORM_INPUT) or "") or event.action.input_value).strip()
            if not text:
                return _toast("warning", "Type an answer first.", "请先输入内容。")
            press = Press(press.action, press.turn, text)
        thread = value.get("thread")
        inbound = Inbound(
            place=Place(
                self._channel,
                event.context.open_chat_id,
                thread if isinstance(thread, str) and thread else None,
                private=value.get("private") is True,
            ),
            sender=Sender(event.operator.open_id, await self._people.name_of(event.operator.open_id)),
            event_key=event_id,
            kind=InboundKind.PRESS,
            text="",
            received_at=self._clock.now(),
            message_id=event.context.open_message_id,
            reply_to=event.context.open_message_id,
            press=press,
            comes_again=False,
        )
        match await self._sink.accept(inbound):
            case Accepted.TAKEN:
                return _toast("success", *_DONE[press.action])
            case Accepted.DUPLICATE:
                return {}
            case Accepted.IGNORED:
                return _toast("warning", "This is not for you to press.", "你没有权限进行此操作。")


_DONE: Mapping[Action, tuple[str, str]] = {
    Action.STOP: ("Stopping…", "正在停止…"),
    Action.ANSWER: ("Got it.", "已收到。"),
    Action.RETRY: ("Asking again…", "正在重试…"),
    Action.FEEDBACK: ("Thank you!", "感谢反馈！"),
}


def _toast(kind: str, english: str, chinese: str) -> Json:
    words: Json = {"en_us": english, "zh_cn": chinese}
    return {"toast": {"type": kind, "content": english, "i18n": words}}


def _place_key(message_id: str) -> str:
    return f"feishu:place:{message_id}"
