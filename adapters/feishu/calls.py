"""Making the calls that ops stand for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import structlog

from adapters.feishu.api import Api, Json, Upload
from adapters.feishu.cards import ANSWER
from adapters.feishu.errors import ApiRefusal, CardsUnavailable, Means, failure_of
from adapters.feishu.ops import (
    LARGEST_FILE,
    LARGEST_IMAGE,
    CreateCard,
    EditMessage,
    Format,
    LookFor,
    OpenStreaming,
    PatchCard,
    Send,
    SendFile,
    TakeBack,
    UpdateCard,
    UploadFile,
    WriteText,
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
from channels.model import File

log = structlog.get_logger(__name__)

_LONGEST = 28.0  # seconds for one op, a repetition included; an upload gets what its size needs besides
_CARD_OPS = (CreateCard, WriteText, UpdateCard, OpenStreaming)
_PICTURES = (b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF8", b"BM")
_FILE_TYPES = {
    "pdf": "pdf",
    "doc": "doc",
    "docx": "doc",
    "xls": "xls",
    "xlsx": "xls",
    "ppt": "ppt",
    "pptx": "ppt",
}
"""What the platform shows a preview of; everything else is a `stream`."""


class Calls:
    """Performs ops. `cards_unavailable` is called when the app turns out to have no card entities."""

    def __init__(self, api: Api, open_file: OpenFile, cards_unavailable: Callable[[], None]) -> None:
        self._api = api
        self._open_file = open_file
        self._cards_unavailable = cards_unavailable

    async def perform(self, op: Op, turn: str) -> Receipt:
        """Make one call. Raises a `Failure` and nothing else."""
        try:
            if isinstance(op, UploadFile):
                return await self._upload(op.file)
            async with _in_time():
                return await self._perform(op, turn)
        except ApiRefusal as refusal:
            raise self._failure(op, refusal) from None
        except TimeoutError:
            raise Unknown("no answer in time") from None

    def _failure(self, op: Op, refusal: ApiRefusal) -> Failure:
        is_card_op = isinstance(op, _CARD_OPS)
        is_missing = refusal.code == 0 and refusal.status == 404  # some private installations have no card entities
        if is_card_op and (refusal.means is Means.NO_SCOPE or is_missing):
            self._cards_unavailable()
            return CardsUnavailable(refusal.describe())
        if refusal.means is Means.NO_SCOPE and not isinstance(op, Send | SendFile):
            return Refused(refusal.describe())
        app = op.draws[-1] if op.draws else Draw("messages")
        answers = isinstance(op, Send | SendFile) and op.answers is not None
        return failure_of(refusal, app=app, message=op.draws[0] if op.draws else app, answers=answers)

    async def _perform(self, op: Op, turn: str) -> Receipt:
        match op:
            case CreateCard():
                body: Json = {"type": "card_json", "data": op.data}
                found = await self._api.call("making cards", "POST", "cardkit/v1/cards", body, repeat=True)
                return Receipt(_id(found, "card_id"))
            case Send():
                if op.sheet.format is Format.NOTE:
                    log.warning("an answer is refused in every form; the reader is told so", chat=op.chat, turn=turn)
                uuid = f"{turn}-{op.sheet.key}"
                return await self._send(op.kind, op.content, op.answers, op.chat, uuid, in_thread=op.in_thread)
            case SendFile():
                return await self._send(op.kind, op.content, op.answers, op.chat, op.uuid, in_thread=op.in_thread)
            case WriteText(sheet=sheet):
                path, text = f"/elements/{ANSWER}/content", op.content
                return await self._operate("PUT", sheet.card, path, sheet.sequence, {"content": text})
            case UpdateCard(sheet=sheet):
                return await self._update(sheet.card, sheet.sequence, op.data)
            case OpenStreaming(sheet=sheet):
                settings = json.dumps({"config": {"streaming_mode": True}})
                return await self._operate("PATCH", sheet.card, "/settings", sheet.sequence, {"settings": settings})
            case PatchCard(sheet=sheet):
                return await self._patch(sheet.message, op.content)
            case EditMessage(sheet=sheet):
                body = {"msg_type": op.kind, "content": op.content}
                await self._api.call("editing messages", "PUT", f"im/v1/messages/{sheet.message}", body, repeat=True)
                return Receipt()
            case LookFor(sheet=sheet):
                return await self._look_for(sheet.message)
            case TakeBack(leftover=left):
                if left.kept and left.card:
                    return await self._update(left.card, left.sequence, op.data)
                if left.kept:
                    return await self._patch(left.message, op.data)
                await self._api.call("recalling messages", "DELETE", f"im/v1/messages/{left.message}", repeat=True)
                return Receipt()
            case _:
                raise Refused(f"not an op of this platform: {type(op).__name__}")

    # ---------------------------------------------------------------- cards

    async def _operate(self, verb: str, card: str, path: str, sequence: int, body: Json) -> Receipt:
        """One operation on a card, after `sequence` others. What nobody can say about is repeated as it was."""
        body |= {"sequence": sequence + 1, "uuid": f"{card}-{sequence + 1}"}
        await self._api.call("changing cards", verb, f"cardkit/v1/cards/{card}{path}", body, repeat=True)
        return Receipt()

    async def _update(self, card: str, sequence: int, data: str) -> Receipt:
        return await self._operate("PUT", card, "", sequence, {"card": {"type": "card_json", "data": data}})

    # ---------------------------------------------------------------- messages

    async def _send(
        self, kind: str, content: str, answers: str | None, chat: str, uuid: str, *, in_thread: bool
    ) -> Receipt:
        body: Json = {"msg_type": kind, "content": content, "uuid": uuid}
        if answers is not None:
            path, query = f"im/v1/messages/{answers}/reply", None
            body["reply_in_thread"] = in_thread
        else:
            path, query = "im/v1/messages", {"receive_id_type": "chat_id"}
            body["receive_id"] = chat
        found = await self._api.call("sending messages", "POST", path, body, query=query, repeat=True)
        return Receipt(_id(found, "message_id"))

    async def _patch(self, message: str, content: str) -> Receipt:
        path, body = f"im/v1/messages/{message}", {"content": content}
        await self._api.call("changing messages", "PATCH", path, dict(body), repeat=True)
        return Receipt()

    async def _look_for(self, message: str) -> Receipt:
        found = await self._api.call("reading messages", "GET", f"im/v1/messages/{message}", repeat=True)
        items = found.get("items")
        first = items[0] if isinstance(items, list) and items else None
        if isinstance(first, dict) and first.get("deleted") is True:
            raise Gone("the message was deleted")
        return Receipt(message)

    # ---------------------------------------------------------------- files

    async def _upload(self, file: File) -> Receipt:
        data = await self._open_file(file)
        if not data:
            raise Refused("the file is empty")
        if len(data) > LARGEST_FILE:
            raise TooLarge(f"the file has {len(data)} bytes", LARGEST_FILE)
        async with _in_time(len(data)):
            if data.startswith(_PICTURES) and len(data) <= LARGEST_IMAGE:
                try:
                    return await self._upload_picture(file, data)
                except ApiRefusal as refusal:
                    if refusal.means is not Means.REFUSED:
                        raise
                    log.info("a picture is sent as a file", cause=refusal.describe())
            return await self._upload_file(file, data)

    async def _upload_picture(self, file: File, data: bytes) -> Receipt:
        fields: Json = {"image_type": "message"}
        upload = Upload("image", file.name, data)
        found = await self._api.call("uploading pictures", "POST", "im/v1/images", fields, upload=upload, repeat=True)
        return Receipt(_id(found, "image_key"), {"kind": "image"})

    async def _upload_file(self, file: File, data: bytes) -> Receipt:
        _, _, extension = file.name.rpartition(".")
        name = file.name or "file"
        fields: Json = {"file_type": _FILE_TYPES.get(extension.lower(), "stream"), "file_name": name}
        upload = Upload("file", name, data)
        found = await self._api.call("uploading files", "POST", "im/v1/files", fields, upload=upload, repeat=True)
        return Receipt(_id(found, "file_key"), {"kind": "file"})


def _in_time(size: int = 0) -> asyncio.Timeout:
    """The time for an op that sends a file of `size` bytes."""
    return asyncio.timeout(_LONGEST + size / SLOWEST_LINE)


def _id(found: Json, name: str) -> str:
    value = found.get(name)
    if not isinstance(value, str) or not value:
        raise Unknown(f"the platform's answer has no {name}")
    return value
