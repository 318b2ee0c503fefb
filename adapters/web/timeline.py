"""One visitor's history: questions and replies in order, kept in the log and published to every open page."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar, TypeVarTuple

import structlog
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from adapters.web.feed import Event, Feed
from adapters.web.log import EntryKind, LogAway, Outdated, Record, WebLog
from adapters.web.paint import AskedFile, Painter, Style, paint_divider, paint_question
from adapters.web.patch import difference
from adapters.web.templating import STATIC_VERSION
from channels.clock import Clock, wait_until
from channels.model import TurnId, View

log = structlog.get_logger(__name__)
_Given = TypeVarTuple("_Given")
_Result = TypeVar("_Result")

WINDOW = 60
"""How many of the newest entries a page gets at first, and how many more at a time."""
_KEEP_ENTRIES = 4 * WINDOW
_SAVE_EVERY = 0.5  # seconds between two writes of a growing reply
_SAVE_AGAIN = 10.0  # seconds after a failed write of a growing reply; each try may take as long as a lock is waited for
PAINT_INLINE = 1_000  # characters, painted in 30 ms at the worst; more is painted in a thread
_PAINTERS = ThreadPoolExecutor(4, thread_name_prefix="web-painter")
"""Paint for all visitors. The loop's own threads look up names for every channel, and must not wait for a painter."""
_HEARTBEAT = 15.0  # seconds; keeps proxies from closing a silent connection


class AskedBody(BaseModel):
    """What is kept of a question."""

    model_config = ConfigDict(frozen=True)

    text: str
    files: tuple[AskedFile, ...] = ()


class ReplyBody(BaseModel):
    """What is kept of a reply: the view itself, so that it can be painted anew."""

    model_config = ConfigDict(frozen=True)

    view: View
    is_command: bool = False
    feedback: str = ""
    unformatted: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """What a reply answers, as the history shows it. Without text and files nothing is shown for it."""

    id: str
    text: str
    at: float
    files: tuple[AskedFile, ...] = ()
    is_divider: bool = False
    is_command: bool = False

    @property
    def is_shown(self) -> bool:
        return self.is_divider or bool(self.text or self.files)


@dataclass(slots=True)
class _Entry:
    record: Record
    pieces: dict[str, str]
    reply: ReplyBody | None = None
    painter: Painter | None = None
    above: _Entry | None = None
    revision: int = 0
    save_after: float = 0.0
    is_saved: bool = False
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def is_live(self) -> bool:
        return self.reply is not None and not self.reply.view.is_final

    def state(self) -> dict[str, JsonValue]:
        """The whole entry, as a page gets it."""
        record = self.record
        return {
            "id": record.id,
            "kind": str(record.kind),
            "order": record.order,
            "seq": record.seq,
            "at": record.at,
            "revision": self.revision,
            "phase": self.phase,
            "live": self.is_live,
            "pieces": [[key, html] for key, html in self.pieces.items()],
        }

    @property
    def phase(self) -> str:
        return str(self.reply.view.phase) if self.reply else ""

    def patch(self, new: dict[str, str]) -> dict[str, JsonValue]:
        """Take over the new pieces; what a page needs to do the same."""
        patch = difference(self.pieces, new)
        self.pieces = new
        self.revision += 1
        return {
            "id": self.record.id,
            "base": self.revision - 1,
            "phase": self.phase,
            "live": self.is_live,
            **patch,
        }


class Timeline:
    """The history of one conversation. Only the newest entries are held in memory; older ones are in the log."""

    def __init__(self, conversation: str, log: WebLog, clock: Clock, style: Style) -> None:
        self._conversation = conversation
        self._log = log
        self._clock = clock
        self._style = style
        self._feed = Feed()
        self._entries: dict[str, _Entry] = {}
        self._last_seq = 0
        self._has_earlier = False
        self._adding = asyncio.Lock()
        self._loading = asyncio.Lock()
        self._is_loaded = False
        self._closed = False

    async def load(self) -> None:
        """Read the newest entries, once. Raises `LogAway`."""
        async with self._loading:
            if self._is_loaded:
                return
            records = await self._log.newest(self._conversation, WINDOW + 1)
            self._last_seq = await self._log.last_seq(self._conversation)
            self._has_earlier = len(records) > WINDOW
            for entry in await self._read(records[-WINDOW:]):
                self._entries[entry.record.id] = entry
            self._is_loaded = True

    @property
    def is_settled(self) -> bool:
        """Whether nothing would be missed if this were read from the log again."""
        return all(entry.is_saved for entry in self._entries.values())

    # ------------------------------------------------------------ what happens

    async def ask(self, asked: Asked) -> None:
        """Show a question, once. It is durable when this returns; raises `LogAway` when only the pages have it."""
        async with self._adding:
            entry = await self._ensure(asked)
        if entry is not None:
            await self._keep(entry)

    async def show(self, turn: TurnId, asked: Asked, view: View, *, unformatted: bool = False) -> None:
        """Bring the reply of this turn to the view. Repeating it changes nothing.

        The pages have it at once; the first appearance and a final view are durable when this returns, growth within
        half a second of more growth. Raises `LogAway` when something that had to be durable is not.
        """
        async with self._adding:
            entry = await self._find(turn)
            if entry is None:
                await self._add_reply(turn, asked, view, unformatted)
                return
        async with entry.changing:
            body = entry.reply or ReplyBody(view=view)
            await self._change(entry, body.model_copy(update={"view": view, "unformatted": unformatted}))

    async def rate(self, turn: TurnId, value: str) -> None:
        """Show what the visitor thinks of a reply. Raises `LogAway`."""
        entry = await self._find(turn)
        if entry is not None and entry.reply is not None:
            async with entry.changing:
                await self._change(entry, entry.reply.model_copy(update={"feedback": value}))

    def hint(self, state: str) -> None:
        """Tell the pages that something is going on; not kept."""
        self._feed.publish("hint", {"state": state})

    # ------------------------------------------------------------ what is read

    async def view_of(self, turn: TurnId) -> View | None:
        """The newest view of a turn of this conversation. Raises `LogAway`."""
        entry = await self._find(turn)
        return entry.reply.view if entry is not None and entry.reply is not None else None

    async def earlier(self, before: tuple[int, int]) -> dict[str, JsonValue]:
        """The entries that stand before a position, newest window first. Raises `LogAway`."""
        records = await self._log.newest(self._conversation, WINDOW + 1, before)
        entries = await self._read(records[-WINDOW:])
        # What is in memory is newer than what is kept.
        states: list[JsonValue] = [self._entries.get(entry.record.id, entry).state() for entry in entries]
        return {"entries": states, "earlier": len(records) > WINDOW}

    async def follow(self, cursor: str | None) -> AsyncIterator[Event | None]:
        """Every event after the cursor, each once; where they are forgotten, the whole state instead. None: still here.

        Ends when the timeline is closed.
        """
        position = self._feed.number_of(cursor)
        woken = self._feed.join()
        try:
            while not self._closed:
                woken.clear()
                events = None if position is None else self._feed.after(position)
                position = self._feed.last
                for event in [self._state()] if events is None else events:
                    yield event
                if not await wait_until(self._clock, self._clock.now() + _HEARTBEAT, woken):
                    yield None
        finally:
            self._feed.leave(woken)

    def close(self) -> None:
        """End every page's connection; the pages come back by themselves."""
        self._closed = True
        self._feed.wake()

    # ------------------------------------------------------------ inside

    def _state(self) -> Event:
        entries: list[JsonValue] = [entry.state() for entry in self._in_order()]
        return self._feed.event(
            "state",
            {
                "now": self._clock.now(),
                "version": STATIC_VERSION,
                "entries": entries,
                "earlier": self._has_earlier,
            },
        )

    def _in_order(self) -> list[_Entry]:
        return sorted(self._entries.values(), key=lambda entry: entry.record.position)

    async def _find(self, entry_id: str) -> _Entry | None:
        entry = self._entries.get(entry_id)
        if entry is not None:
            return entry
        record = await self._log.get(self._conversation, entry_id)
        read = await self._read([record] if record is not None else [])
        return self._entries.get(entry_id) or (read[0] if read else None)

    async def _ensure(self, asked: Asked) -> _Entry | None:
        """The question's entry, added if it is not there. None when nothing is shown for it."""
        entry = await self._find(asked.id)
        if entry is not None or not asked.is_shown:
            return entry
        kind = EntryKind.DIVIDER if asked.is_divider else EntryKind.ASK
        body = AskedBody(text=asked.text, files=asked.files)
        record = Record(asked.id, kind, self._order_of(asked), self._next_seq(), asked.at, body.model_dump_json())
        entry = _Entry(record, await _painting(len(body.text), _paint_asked, kind, body))
        self._insert(entry)
        return entry

    async def _add_reply(self, turn: TurnId, asked: Asked, view: View, unformatted: bool) -> None:
        above = await self._ensure(asked)
        if above is None:
            order = self._order_of(asked)
        elif self._is_answered(above):
            order = _order_at(self._clock.now())
        else:
            order = above.record.order
        record = Record(turn, EntryKind.REPLY, order, self._next_seq(), self._clock.now(), "")
        body = ReplyBody(view=view, is_command=asked.is_command, unformatted=unformatted)
        entry = _Entry(record, {}, body, Painter(self._style, turn), above)
        async with entry.changing:
            entry.pieces = await self._painted(entry, body)
            self._insert(entry)
            await self._save(entry)

    def _is_answered(self, above: _Entry) -> bool:
        """Whether a reply stands below the question already, or it is so far up that nobody would see one there."""
        below = (entry for entry in self._entries.values() if entry.record.order == above.record.order)
        return above.record.id not in self._entries or any(entry is not above for entry in below)

    def _order_of(self, asked: Asked) -> int:
        """Where something belongs by when it was asked: a place of its own, within what pages show at first."""
        taken = {entry.record.order for entry in self._entries.values()}
        order = _order_at(asked.at)
        if self._has_earlier and taken:
            order = max(order, min(taken))
        while order in taken:
            order += 1
        return order

    def _next_seq(self) -> int:
        self._last_seq += 1
        return self._last_seq

    def _insert(self, entry: _Entry) -> None:
        self._entries[entry.record.id] = entry
        self._feed.publish("entry", entry.state())
        if len(self._entries) > _KEEP_ENTRIES:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        for entry in self._in_order()[: len(self._entries) - WINDOW]:
            if not entry.is_saved:
                break
            del self._entries[entry.record.id]
            self._has_earlier = True

    async def _change(self, entry: _Entry, body: ReplyBody) -> None:
        if entry.reply != body:
            pieces = await self._painted(entry, body)
            before = (entry.pieces, entry.phase)
            entry.reply = body
            entry.is_saved = False
            if before != (pieces, entry.phase):
                self._publish(entry, entry.patch(pieces))
        if entry.is_saved:
            return
        if body.view.is_final:
            await self._save(entry)
        elif self._clock.now() >= entry.save_after:
            try:
                await self._save(entry)
            except LogAway as error:
                # The pages have the text; a log that is away must not keep them from getting more of it.
                entry.save_after = self._clock.now() + _SAVE_AGAIN
                log.warning("a growing answer is not kept for now", cause=str(error))

    def _publish(self, entry: _Entry, patch: dict[str, JsonValue]) -> None:
        if entry.record.id in self._entries:
            self._feed.publish("patch", patch)
        else:
            # It is not in the state that pages begin with, but may be on one that has scrolled back to it.
            self._feed.publish("entry", entry.state())

    async def _painted(self, entry: _Entry, body: ReplyBody) -> dict[str, str]:
        painter = entry.painter = entry.painter or Painter(self._style, TurnId(entry.record.id))
        return await _painting(len(body.view.text) + len(body.view.reasoning), _paint_reply, painter, body)

    async def _keep(self, asked: _Entry) -> None:
        """Write a question, once, whoever comes first: it or a reply below it."""
        async with asked.changing:
            if not asked.is_saved:
                await self._save(asked)

    async def _save(self, entry: _Entry) -> None:
        if entry.above is not None:
            await self._keep(entry.above)  # a reply is never kept without its question
        reply = entry.reply
        if reply is not None:
            entry.record = replace(entry.record, body=reply.model_dump_json())
        try:
            await self._log.put(self._conversation, entry.record)
        except Outdated:
            # Whoever still owns the channel comes again, and then replaces what is kept now.
            kept = await self._log.get(self._conversation, entry.record.id)
            entry.record = replace(entry.record, version=kept.version if kept is not None else 0)
            if kept is not None:
                raise
            await self._log.put(self._conversation, entry.record)  # it was so old that it has been dropped
        entry.record = replace(entry.record, version=entry.record.version + 1)
        entry.save_after = self._clock.now() + _SAVE_EVERY
        entry.is_saved = entry.reply is reply

    async def _read(self, records: Sequence[Record]) -> list[_Entry]:
        return await _painting(sum(len(record.body) for record in records), self._read_all, records)

    def _read_all(self, records: Sequence[Record]) -> list[_Entry]:
        entries = []
        for record in records:
            try:
                entries.append(self._read_one(record))
            except ValidationError:
                log.error("an entry of the history is unreadable and left out", entry=record.id)
        return entries

    def _read_one(self, record: Record) -> _Entry:
        if record.kind is not EntryKind.REPLY:
            asked = AskedBody.model_validate_json(record.body)
            return _Entry(record, _paint_asked(record.kind, asked), is_saved=True)
        body = ReplyBody.model_validate_json(record.body)
        painter = Painter(self._style, TurnId(record.id))
        return _Entry(record, _paint_reply(painter, body), body, painter, is_saved=True)


def _order_at(moment: float) -> int:
    return round(moment * 1_000_000)


async def _painting(length: int, paint: Callable[[*_Given], _Result], *given: *_Given) -> _Result:
    """What `paint` makes of a text of this length. What people and models write can take seconds."""
    if length <= PAINT_INLINE:
        return paint(*given)
    return await asyncio.get_running_loop().run_in_executor(_PAINTERS, paint, *given)


def _paint_asked(kind: EntryKind, body: AskedBody) -> dict[str, str]:
    return paint_divider() if kind is EntryKind.DIVIDER else paint_question(body.text, body.files)


def _paint_reply(painter: Painter, body: ReplyBody) -> dict[str, str]:
    return painter.paint(body.view, is_command=body.is_command, feedback=body.feedback, unformatted=body.unformatted)


class Timelines:
    """The timelines of all visitors; those that nobody uses are forgotten, the least recently used first."""

    def __init__(self, log: WebLog, clock: Clock, style: Style, *, most: int = 200) -> None:
        self._log = log
        self._clock = clock
        self._style = style
        self._most = most
        self._timelines: dict[str, Timeline] = {}
        self._users: Counter[str] = Counter()
        self._closed = False

    @asynccontextmanager
    async def using(self, conversation: str) -> AsyncIterator[Timeline]:
        """The one timeline of a conversation, which stays the one while it is used. Raises `LogAway`."""
        self._users[conversation] += 1
        try:
            yield await self._of(conversation)
        finally:
            self._users[conversation] -= 1
            if not self._users[conversation]:
                del self._users[conversation]

    def close(self) -> None:
        self._closed = True
        for timeline in self._timelines.values():
            timeline.close()

    async def _of(self, conversation: str) -> Timeline:
        if self._closed:
            raise LogAway("the web channel has stopped")
        timeline = self._timelines.pop(conversation, None)
        if timeline is None:
            timeline = Timeline(conversation, self._log, self._clock, self._style)
            self._forget_unused()
        self._timelines[conversation] = timeline
        await timeline.load()
        return timeline

    def _forget_unused(self) -> None:
        surplus = len(self._timelines) + 1 - self._most
        for conversation, timeline in list(self._timelines.items()):
            if surplus <= 0:
                return
            if not self._users[conversation] and timeline.is_settled:
                del self._timelines[conversation]
                surplus -= 1
