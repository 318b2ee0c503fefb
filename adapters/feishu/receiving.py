"""From the platform's events to what the core takes: judged by nobody yet, committed before anything is acked."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import structlog
from pydantic import JsonValue

from adapters.feishu.api import Api, Json
from adapters.feishu.cards import FORM_INPUT
from adapters.feishu.company import Company
from adapters.feishu.earlier import Earlier
from adapters.feishu.events import (
    CALLBACK,
    CardPressed,
    Header,
    Message,
    MessageRecalled,
    MessageReceived,
    Unreadable,
    read_event,
    read_header,
)
from adapters.feishu.people import People
from adapters.feishu.reading import Read, mentions_of, read_message
from channels.adapter import Accepted, Failure, Sink, StoreAway
from channels.clock import Clock
from channels.commands import CommandName, is_for_agent, parse_command
from channels.model import Action, Inbound, InboundKind, Place, Press, Sender

log = structlog.get_logger(__name__)

_IN_TIME = 2.5  # seconds; the platform waits 3
_KEEP_PLACE = 8 * 3600.0  # seconds that a question can be found when it is recalled
_T = TypeVar("_T")


class NotNow(Exception):
    """The event could not be taken in: the platform delivers it again if it is not acked."""


class Receiver:
    """Takes events, from whichever way they come. `unreadable` says by type why the last event could not be read."""

    def __init__(self, channel: str, sink: Sink, clock: Clock, api: Api, people: People, settle: float) -> None:
        self._channel = channel
        self._sink = sink
        self._clock = clock
        self._people = people
        self._earlier = Earlier(api, people)
        self._company = Company(settle)
        self._tasks: set[asyncio.Task[object]] = set()
        self._left_out: Counter[str] = Counter()
        self.unreadable: dict[str, str] = {}
        self.changed: Callable[[], None] = lambda: None
        """Called when `unreadable` has changed."""

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._people.close()

    async def receive(self, payload: Mapping[str, JsonValue]) -> Json:
        """Take an event in; returns what to answer. Raises `NotNow`: do not ack it."""
        header = read_header(payload)
        try:
            event = read_event(header.event_type, payload)
        except Unreadable as error:
            return self._leave_out(header, str(error))
        if event is None:
            return self._leave_out(header)
        self._note_unreadable(header.event_type, "")
        try:
            return await self._in_time(self._take(event, header.event_id))
        except (StoreAway, Failure, TimeoutError) as error:
            log.warning("an event could not be taken in", type=header.event_type, cause=str(error) or "too slow")
        except Exception:
            log.exception("an event could not be taken in", type=header.event_type)
        if header.event_type == CALLBACK:  # it is not delivered again: the person has to
            return _toast("error", "Not possible just now. Please try again.", "暂时无法处理，请重试。")
        raise NotNow

    def _leave_out(self, header: Header, trouble: str = "") -> Json:
        """Of events that nothing is done about only the 1st, 10th, 100th … of a type is worth a line, of those that
        cannot be read each: somebody waits for an answer. Delivered again they would be no other."""
        self._left_out[header.event_type] += 1
        so_far = self._left_out[header.event_type]
        if trouble:
            log.warning(
                "an event cannot be read and is left out",
                channel=self._channel,
                type=header.event_type,
                event_id=header.event_id,
                cause=trouble,
                so_far=so_far,
            )
            self._note_unreadable(header.event_type, f"the last {header.event_type} event cannot be read ({trouble})")
        elif so_far == 10 ** (len(str(so_far)) - 1):
            log.info("events nothing is done about", channel=self._channel, type=header.event_type, so_far=so_far)
        return _dead_button() if header.event_type == CALLBACK else {}

    def _note_unreadable(self, event_type: str, reason: str) -> None:
        if self.unreadable.get(event_type, "") == reason:
            return
        if reason:
            self.unreadable[event_type] = reason
        else:
            del self.unreadable[event_type]
        self.changed()

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
        read = await self._read(message, own_id)
        is_new = _command_in(read) is CommandName.NEW
        root = message.root_id if _is_under_root(message) else None
        said_key = f"feishu:quoted:{root}:{sender.sender_id.open_id}"
        is_known = root is not None and not is_new and await self._knows(root, said_key)
        wants_quote = bool(message.parent_id) and is_for_agent(read.text) and not is_known
        quoted, name = await asyncio.gather(
            self._earlier.replied_to(message.parent_id) if wants_quote else _nothing(),
            self._people.name_of(sender.sender_id.open_id),
        )
        if not (read.text or read.attachments or quoted.text or quoted.attachments):
            read = Read(f"/{CommandName.HELP}")  # nothing but a mention
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
            attachments=(*read.attachments, *quoted.attachments),
            mentions_bot=bool(own_id) and mentions_of(message, own_id),
            reply_to=message.parent_id or None,
            group=group,
            settle=self._company.settle if group is not None else 0.0,
            quote=quoted.text,
        )
        accepted = await self._sink.accept(inbound)
        if accepted is Accepted.IGNORED or _command_in(read) not in (None, CommandName.NEW):
            return
        asks = is_for_agent(read.text)
        notes: dict[str, Json | bool] = {}
        if asks:  # a duplicate's process may have died before it noted this
            notes[_place_key(message.message_id)] = _place_of(inbound)
        if accepted is Accepted.TAKEN and root is not None:
            notes[said_key] = asks
        await self._remember(notes)
        if asks and await self._sink.recall(_recalled_key(message.message_id)) is not None:
            await self._take_back(message.message_id, message.chat_id, _place_of(inbound))

    def _group_of(self, message: Message, sender: str, read: Read, thread: str | None, now: float) -> str | None:
        opens_thread = thread is not None and thread == message.message_id
        if opens_thread or parse_command(read.text) is not None:
            return None  # files cannot come with it: they would open a thread of their own
        has_text = bool(read.text)
        return self._company.group_of(message.chat_id, thread, sender, message.message_id, has_text=has_text, now=now)

    async def _read(self, message: Message, own_id: str) -> Read:
        read = read_message(message, own_id)
        return await self._earlier.forwarded(message.message_id) if read.needs_children else read

    async def _knows(self, root: str, said_key: str) -> bool:
        """Whether the agent knows what began this group's conversation: it was a question, or came with one before.

        A `/new` in between makes it unknown.
        """
        was_said = await self._sink.recall(said_key)
        return was_said if isinstance(was_said, bool) else await self._sink.recall(_place_key(root)) is not None

    # ---------------------------------------------------------------- recalled messages

    async def _remember(self, notes: Mapping[str, Json | bool]) -> None:
        """So that the conversation is found when a question is recalled (the event does not say where it was), and that
        what the agent has been told is known."""
        try:
            await asyncio.gather(*(self._sink.remember(key, value, _KEEP_PLACE) for key, value in notes.items()))
        except StoreAway:
            log.info("a question will not be found if it is recalled")

    async def _recalled(self, event: MessageRecalled) -> None:
        # It may overtake its message, or both may be taken in at the same time: each notes that it has come before it
        # looks for the other.
        await self._sink.remember(_recalled_key(event.message_id), True, _KEEP_PLACE)
        place = await self._sink.recall(_place_key(event.message_id))
        if isinstance(place, dict):  # it was a question
            await self._take_back(event.message_id, event.chat_id, place)

    async def _take_back(self, message_id: str, chat: str, place: Json) -> None:
        thread = place.get("thread")
        inbound = Inbound(
            place=Place(
                self._channel,
                chat,
                thread if isinstance(thread, str) else None,
                private=place.get("private") is True,
            ),
            sender=Sender(str(place.get("sender", ""))),
            event_key=f"recalled:{message_id}",
            kind=InboundKind.DELETED,
            text="",
            received_at=self._clock.now(),
            message_id=message_id,
        )
        await self._sink.accept(inbound)

    # ---------------------------------------------------------------- buttons and forms

    async def _pressed(self, event: CardPressed, event_id: str) -> Json:
        value = event.action.value
        press = Press.decode(str(value.get("press", "")))
        if press is None:
            return _dead_button()
        if press.action is Action.ANSWER and not press.value:
            text = (str(event.action.form_value.get(FORM_INPUT) or "") or event.action.input_value).strip()
            if not text:
                return _toast("warning", "Type an answer first.", "请先输入内容。")
            press = Press(press.action, press.turn, text, is_typed=True)
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
    Action.STOP: ("Stop requested.", "已请求停止。"),  # whether this person may is judged later
    Action.ANSWER: ("Got it.", "已收到。"),
    Action.RETRY: ("Asking again…", "正在重试…"),
    Action.FEEDBACK: ("Thank you!", "感谢反馈！"),
}


def _toast(kind: str, english: str, chinese: str) -> Json:
    words: Json = {"en_us": english, "zh_cn": chinese}
    return {"toast": {"type": kind, "content": english, "i18n": words}}


def _dead_button() -> Json:
    return _toast("warning", "This button is not known any more.", "这个按钮已失效。")


def _is_under_root(message: Message) -> bool:
    """Whether the message replies to the root of its conversation; a private chat has none."""
    return message.chat_type != "p2p" and bool(message.parent_id) and message.parent_id == message.root_id


def _place_of(inbound: Inbound) -> Json:
    return {"thread": inbound.place.thread, "private": inbound.place.private, "sender": inbound.sender.id}


async def _nothing() -> Read:
    return Read()


def _command_in(read: Read) -> CommandName | None:
    command = parse_command(read.text)
    return command.name if command is not None else None


def _place_key(message_id: str) -> str:
    return f"feishu:place:{message_id}"


def _recalled_key(message_id: str) -> str:
    return f"feishu:recalled:{message_id}"
