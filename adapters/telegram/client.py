"""The Bot API through python-telegram-bot: one bot, its two connection pools, and each call with its failures."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

import httpx
from pydantic import JsonValue
from telegram import (
    Bot,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    LinkPreviewOptions,
    Message,
    MessageEntity,
    ReplyParameters,
    Update,
    WebhookInfo,
)
from telegram.error import InvalidToken, TelegramError
from telegram.request import HTTPXRequest

from adapters.telegram.failures import failure_of, is_unmodified
from adapters.telegram.limits import DOWNLOAD_BYTES, PHOTO_BYTES, UPLOAD_BYTES
from adapters.telegram.marks import Mark, Styled
from adapters.telegram.ops import (
    Button,
    Delete,
    Draft,
    Edit,
    FileForm,
    Keyboard,
    NoRight,
    Send,
    SendFile,
    Where,
    Write,
)
from channels.adapter import (
    SLOWEST_LINE,
    Draw,
    Failure,
    Gone,
    Op,
    OpenFile,
    Receipt,
    Refused,
    TooLarge,
    Unknown,
)

_CONNECT = 5.0  # seconds, as all of these
_READ = 12.0
_WRITE = 10.0
_POOL = 10.0
_WRITE_UPLOAD = 18.0  # for one piece of an upload
_KEEP_ALIVE = 20.0  # an idle connection older than this may be closed by the other side just when it is used
_CALL = 20.0  # a call never takes longer, whatever happens; one with a file takes the time for its bytes besides
_SHUTDOWN = 2.0
_CALL_CONNECTIONS = 64
_POLL_CONNECTIONS = 2

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the bot is. `reads_all`: privacy mode is off, so that it sees every message of its groups."""

    id: int
    username: str
    name: str
    reads_all: bool


class _RawBot(Bot):
    """The SDK's bot, which can also call what the SDK has no method or no argument for.

    `do_api_request` is for that, but it warns of methods the SDK has, and takes an unknown token for an unknown method.
    """

    async def raw(self, method: str, arguments: Mapping[str, object], *, read_timeout: float = _READ) -> object:
        """The method's result as JSON. Raises `TelegramError`."""
        return cast("object", await self._post(method, dict(arguments), read_timeout=read_timeout))


class Client:
    """One bot. Calls raise a `Failure` and nothing else, and take at most 29 s; with a file, as long as that needs."""

    def __init__(self, token: str, base_url: str) -> None:
        self._token = token
        self._base_url = base_url
        self._calls = _pool(_CALL_CONNECTIONS)
        self._polls = _pool(_POLL_CONNECTIONS)
        self._bot = self._new_bot()

    def _new_bot(self) -> _RawBot:
        return _RawBot(
            self._token,
            base_url=f"{self._base_url}/bot",
            base_file_url=f"{self._base_url}/file/bot",
            request=self._calls,
            get_updates_request=self._polls,
        )

    # ---------------------------------------------------------------- life

    async def open(self) -> Identity:
        """Open the connections and ask who the bot is, which tries the token. May be called again after `close`."""
        await asyncio.gather(self._calls.initialize(), self._polls.initialize())
        user = await self._call(self._bot.get_me())
        reads_all = bool(user.can_read_all_group_messages)
        return Identity(user.id, user.username or "", user.full_name, reads_all)

    async def close(self) -> None:
        """Close all connections, within 2 s."""
        await asyncio.gather(_shut(self._calls), _shut(self._polls))

    async def renew_polling(self) -> None:
        """Replace the connections that updates come through."""
        old, self._polls = self._polls, _pool(_POLL_CONNECTIONS)
        self._bot = self._new_bot()
        await _shut(old)

    def read_update(self, raw: Mapping[str, JsonValue]) -> Update:
        """The update as the SDK sees it. Raises whatever the SDK raises for one it cannot read."""
        return Update.de_json(dict(raw), self._bot)

    # ---------------------------------------------------------------- receiving

    async def updates(self, offset: int | None, wait: int, kinds: Sequence[str]) -> list[Mapping[str, JsonValue]]:
        """The next updates from `offset` on, which confirms all before it; waits up to `wait` seconds for one.

        Raises `TelegramError`: what it means is for whoever polls.
        """
        arguments = {"offset": offset, "timeout": wait, "allowed_updates": list(kinds)}
        # Raw, so that one update the SDK cannot read does not hold up all others.
        found = await self._bot.raw("getUpdates", arguments, read_timeout=wait + _READ)
        return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []

    async def set_webhook(self, url: str, secret: str, connections: int, kinds: Sequence[str]) -> None:
        await self._call(
            self._bot.set_webhook(url, secret_token=secret, max_connections=connections, allowed_updates=list(kinds))
        )

    async def delete_webhook(self) -> None:
        """Updates that wait are kept."""
        await self._call(self._bot.delete_webhook(drop_pending_updates=False))

    async def webhook_info(self) -> WebhookInfo:
        return await self._call(self._bot.get_webhook_info())

    async def download(self, file_id: str, size: int | None) -> bytes:
        """A file that a person sent, at most 20 MB; None: Telegram has not said how large it is."""
        seconds = _seconds_for(DOWNLOAD_BYTES if size is None else size)

        async def fetch() -> bytes:
            file = await self._bot.get_file(file_id, read_timeout=seconds)  # another server may have to get it first
            if (file.file_size or 0) > DOWNLOAD_BYTES:
                raise TooLarge("Telegram hands out files of up to 20 MB", DOWNLOAD_BYTES)
            try:
                return bytes(await file.download_as_bytearray())
            except InvalidToken:
                # So the SDK calls every 404; but the token has just been good enough to ask for the file.
                raise Gone("Telegram does not hand out the file any more") from None

        return await self._call(fetch(), seconds=seconds)

    # ---------------------------------------------------------------- small calls

    async def publish_commands(self, commands: Sequence[tuple[str, str]]) -> None:
        await self._call(self._bot.set_my_commands(list(commands)))

    async def show_typing(self, where: Where) -> None:
        await self._call(self._bot.send_chat_action(int(where.chat), "typing", message_thread_id=_thread(where)))

    async def react(self, chat: str, message: int, emoji: str) -> None:
        await self._call(self._bot.set_message_reaction(int(chat), message, emoji))

    async def answer_press(self, press: str, text: str) -> None:
        await self._call(self._bot.answer_callback_query(press, text or None))

    # ---------------------------------------------------------------- replies

    async def perform(self, op: Op, open_file: OpenFile) -> Receipt:
        """Make the call of a reply."""
        scope = op.draws[0]
        match op:
            case Send():
                return _receipt(await self._call(self._send(op), scope))
            case Edit():
                await self._call(self._edit(op), scope)
                return Receipt(str(op.id))
            case Draft():
                await self._call(self._draft(op), scope)
                return Receipt()
            case Delete():
                await self._call(self._bot.delete_message(int(op.where.chat), op.id), scope)
                return Receipt()
            case SendFile():
                return _receipt(await self._send_file(op, open_file, scope))
            case _:
                raise Refused(f"no call of this platform: {type(op).__name__}")

    async def _send(self, op: Send) -> Message:
        reply = None
        if op.reply_to is not None:
            reply = ReplyParameters(op.reply_to, allow_sending_without_reply=True)
        if op.content.rich is not None:
            arguments = {
                **_rich_arguments(op, op.content.rich),
                "message_thread_id": _thread(op.where),
                "reply_parameters": reply,
                "disable_notification": op.silent,
            }
            sent = await self._bot.raw("sendRichMessage", arguments)
            if not isinstance(sent, dict):
                raise Unknown("sendRichMessage answered without a message")
            return Message.de_json(sent, self._bot)
        return await self._bot.send_message(
            int(op.where.chat),
            op.content.body.text,
            entities=_entities(op.content.body),
            reply_markup=_markup(op.content.keyboard),
            link_preview_options=LinkPreviewOptions(is_disabled=not op.content.previews),
            message_thread_id=_thread(op.where),
            reply_parameters=reply,
            disable_notification=op.silent,
        )

    async def _edit(self, op: Edit) -> None:
        try:
            if op.content.rich is not None:
                arguments = {**_rich_arguments(op, op.content.rich), "message_id": op.id}
                await self._bot.raw("editMessageText", arguments)
                return
            await self._bot.edit_message_text(
                op.content.body.text,
                int(op.where.chat),
                op.id,
                entities=_entities(op.content.body),
                reply_markup=_markup(op.content.keyboard),
                link_preview_options=LinkPreviewOptions(is_disabled=not op.content.previews),
            )
        except TelegramError as error:
            if not is_unmodified(error):
                raise

    async def _draft(self, op: Draft) -> None:
        await self._bot.send_message_draft(
            int(op.where.chat),
            op.id,
            op.body.text,
            message_thread_id=_thread(op.where),
            entities=_entities(op.body),
            api_kwargs={"can_stop": True, "keep_on_stop": True},
        )

    async def _send_file(self, op: SendFile, open_file: OpenFile, scope: Draw) -> Message:
        chat, thread = int(op.where.chat), _thread(op.where)
        if op.form is FileForm.SENTENCE:
            trouble = "may not have arrived: Telegram does not say" if op.in_doubt else "could not be sent"
            text = f"The file {op.file.name} {trouble}."
            return await self._call(self._bot.send_message(chat, text, message_thread_id=thread), scope)
        data = await _opened(op, open_file)
        seconds = _seconds_for(len(data))
        if op.form is FileForm.PHOTO:
            if len(data) > PHOTO_BYTES:
                raise TooLarge("Telegram takes photos of up to 10 MB", PHOTO_BYTES)
            upload = self._bot.send_photo(
                chat, data, filename=op.file.name, message_thread_id=thread, read_timeout=seconds
            )
        else:
            upload = self._bot.send_document(
                chat,
                data,
                filename=op.file.name,
                message_thread_id=thread,
                disable_content_type_detection=True,
                read_timeout=seconds,
            )
        try:
            return await self._call(upload, scope, seconds)
        except NoRight as failure:  # the reader can still be told so
            raise Refused(str(failure)) from None

    # ---------------------------------------------------------------- calling

    async def _call(self, call: Awaitable[T], scope: Draw = Draw("bot"), seconds: float = _CALL) -> T:  # noqa: B008 - frozen
        try:
            async with asyncio.timeout(seconds):
                return await call
        except Failure:
            raise
        except TelegramError as error:
            raise failure_of(error, scope) from None
        except TimeoutError:
            raise Unknown(f"no answer within {seconds:.0f} s") from None


def _seconds_for(size: int) -> float:
    """How long a call may take that carries so many bytes."""
    return _CALL + size / SLOWEST_LINE


async def _opened(op: SendFile, open_file: OpenFile) -> bytes:
    """The file as the gateway hands it out, if Telegram takes it."""
    data = await open_file(op.file)
    if not data:
        raise TooLarge("Telegram does not take empty files")
    if len(data) > UPLOAD_BYTES:
        raise TooLarge("Telegram takes files of up to 50 MB", UPLOAD_BYTES)
    return data


def _pool(connections: int) -> HTTPXRequest:
    return HTTPXRequest(
        connection_pool_size=connections,
        connect_timeout=_CONNECT,
        read_timeout=_READ,
        write_timeout=_WRITE,
        pool_timeout=_POOL,
        media_write_timeout=_WRITE_UPLOAD,
        httpx_kwargs={"limits": httpx.Limits(max_connections=connections, keepalive_expiry=_KEEP_ALIVE)},
    )


async def _shut(pool: HTTPXRequest) -> None:
    try:
        async with asyncio.timeout(_SHUTDOWN):
            await pool.shutdown()
    except (TimeoutError, httpx.HTTPError):
        return  # its sockets are gone with it


def _receipt(message: Message) -> Receipt:
    return Receipt(str(message.message_id))


def _thread(where: Where) -> int | None:
    return int(where.thread) if where.thread is not None else None


def _rich_arguments(op: Write, markdown: str) -> dict[str, object]:
    return {
        "chat_id": int(op.where.chat),
        "rich_message": {"markdown": markdown},
        "reply_markup": _markup(op.content.keyboard),
    }


def _entities(body: Styled) -> list[MessageEntity]:
    return [_entity(mark) for mark in body.marks]


def _entity(mark: Mark) -> MessageEntity:
    return MessageEntity(mark.kind, mark.start, mark.end - mark.start, url=mark.url, language=mark.language)


def _markup(keyboard: Keyboard) -> InlineKeyboardMarkup | None:
    if not keyboard:
        return None
    return InlineKeyboardMarkup([[_button(button) for button in row] for row in keyboard])


def _button(button: Button) -> InlineKeyboardButton:
    return InlineKeyboardButton(button.label, callback_data=button.data)
