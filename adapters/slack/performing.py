"""Makes the calls of a reply. Each raises a `Failure` and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import structlog
from pydantic import JsonValue

from adapters.slack import limits
from adapters.slack.api import Answer, SlackApi
from adapters.slack.failures import Barred, NoStream, Outside, Unstoppable, refusal_scope
from adapters.slack.identity import Identity
from adapters.slack.ops import (
    Append,
    Delete,
    FileOp,
    Find,
    FindFile,
    PageOp,
    Post,
    Respond,
    Share,
    StartStream,
    Stop,
    TaskChunk,
    Update,
    Upload,
    Written,
)
from adapters.slack.places import StreamPlaces
from adapters.slack.shown import Page
from adapters.slack.spot import Spot, moment
from adapters.slack.status import Sessions
from adapters.slack.text import fallback, unformatted
from channels.adapter import Closed, Forbidden, Gone, Op, OpenFile, Receipt, Refused, TooLarge, Unknown
from channels.shapes import as_list, as_object, as_text

log = structlog.get_logger(__name__)

_LONGEST = 28.0  # seconds
_PAGE_SIZE = 200  # messages; Slack recommends no more
_MOST_CANDIDATES = 2  # from so many on nobody knows which it is
_REMEMBERED = 1_000
_LOST_FOR = 60.0
"""Seconds before a call is known to be lost in which it may have made its message: it takes a while, and Slack's clock
is another one."""


@dataclass(slots=True)
class Performer:
    """What the surfaces of one channel perform with."""

    api: SlackApi
    identity: Identity
    places: StreamPlaces
    sessions: Sessions
    open_file: OpenFile
    display_mode: str
    streams: dict[str, str] = field(default_factory=dict)
    """The newest messages known to show a reply, with its turn: streams that were begun or found here, and all messages
    of replies that were taken over. None of them is another turn's lost stream."""

    async def perform(self, spot: Spot, op: Op) -> Receipt:
        """Make one call, in at most 30 s; each part of an upload has its own deadline."""
        try:
            async with asyncio.timeout(None if isinstance(op, Upload) else _LONGEST):
                return await self._perform(spot, op)
        except TimeoutError:
            raise Unknown(f"{type(op).__name__}: no answer in time") from None
        except Forbidden as failure:
            if isinstance(op, FileOp):
                raise Barred(str(failure)) from None
            if spot.response_url and isinstance(op, PageOp) and op.index == 0 and op.page.ts is None:
                raise Outside(str(failure)) from None
            raise

    async def _perform(self, spot: Spot, op: Op) -> Receipt:
        match op:
            case StartStream():
                return await self._start(spot, op)
            case Append():
                await self._about(spot, op.page, limits.APPEND, chunks=_chunks(op.text, op.tasks))
            case Stop():
                await self._stop(spot, op)
            case Post():
                return await self._post(spot, op)
            case Update():
                await self._about(spot, op.page, limits.UPDATE, metadata=_metadata(spot, op.page), **_content(op))
                await self.sessions.set(spot, op.session)
            case Delete():
                await self._about(spot, op.page, limits.DELETE)
            case Find():
                return await self._find(spot, op)
            case Upload():
                return await self._upload(op)
            case Share():
                return await self._share(spot, op)
            case FindFile():
                return await self._find_file(spot, op)
            case Respond():
                return await self._respond(spot, op)
            case _:
                raise Refused(f"not an op of this surface: {type(op).__name__}")
        return Receipt()

    # ---------------------------------------------------------------- streams

    async def _start(self, spot: Spot, op: StartStream) -> Receipt:
        if await self.places.refuses(spot):
            raise NoStream("streams have been refused here before")
        try:
            answer = await self.api.call(
                limits.START,
                channel=spot.channel,
                thread_ts=op.root,
                recipient_team_id=spot.user_team or None,
                recipient_user_id=spot.user or None,
                task_display_mode=self.display_mode,
                chunks=_chunks(op.text, op.tasks),
            )
        except NoStream as failure:
            if refusal_scope(str(failure)) != "thread":
                await self.places.refused(spot, str(failure), reader_only=refusal_scope(str(failure)) == "reader")
            raise
        receipt = _made(answer)
        self.remember(receipt.id, spot)
        return receipt

    async def _stop(self, spot: Spot, op: Stop) -> None:
        session = self.sessions.along_with(spot, op.session)
        try:
            await self._about(
                spot,
                op.page,
                limits.STOP,
                chunks=_chunks(op.text, op.tasks) or None,
                blocks=[dict(block) for block in op.blocks] or None,
                metadata=_metadata(spot, op.page),
                session_status=session,
            )
        except Unstoppable as failure:
            await self.places.refused(spot, str(failure), reader_only=True)
            raise
        if session is not None:
            self.sessions.note(spot, session)
        else:
            await self.sessions.set(spot, op.session)

    async def _about(self, spot: Spot, page: Page, method: str, **args: JsonValue) -> Answer:
        if page.ts is None:
            raise Gone("the message was never made")
        return await self.api.call(method, channel=spot.channel, ts=page.ts, **args)

    def remember(self, ts: str | None, spot: Spot) -> None:
        """This message shows the reply in `spot`: no other reply has lost it."""
        if ts is not None:
            self.streams[ts] = spot.turn
            if len(self.streams) > _REMEMBERED:
                del self.streams[next(iter(self.streams))]

    # ---------------------------------------------------------------- whole messages

    async def _post(self, spot: Spot, op: Post) -> Receipt:
        if op.gives_up:
            log.warning("Slack takes this answer in no form; the reader is told so", turn=spot.turn, place=spot.channel)
        try:
            answer = await self.api.call(
                limits.POST,
                channel=spot.channel,
                thread_ts=op.root,
                metadata=_metadata(spot, op.page),
                **_content(op),
            )
        except (Gone, Refused, Closed, TooLarge) as failure:
            if op.gives_up:
                raise Forbidden(str(failure)) from None  # nobody can be told anything here
            raise
        await self.sessions.set(spot, op.session)
        return _made(answer)

    async def _respond(self, spot: Spot, op: Respond) -> Receipt:
        blocks: list[JsonValue] = [{"type": "markdown", "text": op.text}]
        content = {"text": unformatted(op.text)} if op.plain else _with_blocks(op.text, blocks)
        seen_by = "ephemeral" if spot.is_command else "in_channel"
        try:
            await self.api.respond(spot.response_url, {"response_type": seen_by, **content})
        except (Gone, Refused, TooLarge) as failure:
            if isinstance(failure, Gone) or op.plain or op.shown.uses >= limits.RESPONSE_USES:
                raise Forbidden(str(failure)) from None  # there is no other way to the reader
            raise
        return Receipt()

    # ---------------------------------------------------------------- look-ups

    async def _find(self, spot: Spot, op: Find) -> Receipt:
        """The message that a lost answer may have been about.

        A post carries its turn, and so does a stream that was ended; a running one carries nothing that Slack promises
        to tell. It is the one message of ours without a mark that came when it was asked for.
        """
        candidates = list(op.page.candidates)
        messages, cursor = await self._own_messages(spot, op.root, op.page.cursor)
        for message in messages:
            ts = as_text(message.get("ts"))
            mark = _mark(message)
            if mark == (spot.turn, op.page.part):
                return Receipt(ts, {"marked": True})
            if op.page.streamed and mark is None and not message.get("files") and self._may_be_lost(ts, spot, op):
                candidates.append(ts)
        if cursor:
            return Receipt(None, {"cursor": cursor, "candidates": [*candidates[:_MOST_CANDIDATES]]})
        if len(candidates) != 1:
            return Receipt()
        self.remember(candidates[0], spot)
        return Receipt(candidates[0], {"marked": False})

    def _may_be_lost(self, ts: str, spot: Spot, op: Find) -> bool:
        if ts in op.known or self.streams.get(ts, spot.turn) != spot.turn:
            return False
        return moment(ts) > max(moment(spot.since), op.page.asked_at - _LOST_FOR)

    async def _find_file(self, spot: Spot, op: FindFile) -> Receipt:
        messages, cursor = await self._own_messages(spot, op.root, op.state.cursor)
        for message in messages:
            if any(as_object(file).get("id") == op.state.file for file in as_list(message.get("files"))):
                return Receipt(as_text(message.get("ts")))
        return Receipt(None, {"cursor": cursor})

    async def _own_messages(
        self, spot: Spot, root: str | None, cursor: str
    ) -> tuple[Sequence[Mapping[str, JsonValue]], str]:
        """One page of what the bot has written there since the question, and the cursor of the next one, if any."""
        me = await self.identity.get()
        answer = await self.api.call(
            limits.REPLIES if root else limits.HISTORY,
            channel=spot.channel,
            ts=root,
            oldest=spot.since,
            limit=_PAGE_SIZE,
            include_all_metadata=True,
            cursor=cursor or None,
        )
        messages = map(as_object, as_list(answer.get("messages")))
        following = as_text(as_object(answer.get("response_metadata")).get("next_cursor"))
        return [message for message in messages if me.wrote(message)], following

    # ---------------------------------------------------------------- files

    async def _upload(self, op: Upload) -> Receipt:
        data = await self.open_file(op.file)
        if not data:
            raise Refused("Slack takes no empty files")
        answer = await self.api.call(limits.UPLOAD, filename=op.file.name or "file", length=len(data))
        await self.api.upload(as_text(answer.get("upload_url")), data)
        return Receipt(as_text(answer.get("file_id")))

    async def _share(self, spot: Spot, op: Share) -> Receipt:
        await self.api.call(
            limits.SHARE,
            files=[{"id": op.state.file, "title": op.file.name or "file"}],
            channel_id=spot.channel,
            thread_ts=op.root,
        )
        return Receipt(op.state.file)


def _chunks(text: str, tasks: tuple[TaskChunk, ...]) -> list[JsonValue]:
    chunks: list[JsonValue] = [task.as_json() for task in tasks]
    if text:
        chunks.append({"type": "markdown_text", "text": text})
    return chunks


def _content(op: Written) -> dict[str, JsonValue]:
    if op.plain:
        return {"text": unformatted(op.text) or "…", "blocks": []}
    if isinstance(op, Post) and not op.before and not op.after:
        return {"markdown_text": op.text}
    # An edit names all blocks, so that none of the old ones stays.
    blocks: list[JsonValue] = [dict(block) for block in op.before]
    if op.text:
        blocks.append({"type": "markdown", "text": op.text})
    blocks += [dict(block) for block in op.after]
    return _with_blocks(op.text, blocks)


def _with_blocks(text: str, blocks: list[JsonValue]) -> dict[str, JsonValue]:
    return {"text": fallback(text, limits.FALLBACK_CHARS) or "…", "blocks": blocks}


def _metadata(spot: Spot, page: Page) -> JsonValue:
    return {"event_type": limits.METADATA_EVENT, "event_payload": {"turn": spot.turn, "part": page.part}}


def _mark(message: Mapping[str, JsonValue]) -> tuple[str, int] | None:
    """The turn and the part that a message of ours carries, if it carries any."""
    metadata = as_object(message.get("metadata"))
    if metadata.get("event_type") != limits.METADATA_EVENT:
        return None
    payload = as_object(metadata.get("event_payload"))
    part = payload.get("part")
    return as_text(payload.get("turn")), part if isinstance(part, int) else -1


def _made(answer: Answer) -> Receipt:
    ts = as_text(answer.get("ts"))
    if not ts:
        raise Unknown("Slack did not say which message it made")
    return Receipt(ts)
