"""Reading one run's stream, one connection after the other, into the transcript."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import cast

import httpx
from langgraph_sdk.schema import StreamPart
from pydantic import JsonValue

from channels.clock import Clock, wait_until
from channels.gateway.link import Stats
from channels.gateway.patience import Patience, Perseverance
from channels.gateway.replay import Replay, Verdict
from channels.gateway.troubles import Trouble, TroubleKind
from channels.gateway.wire import Wire, attached
from channels.model import RunId
from channels.shapes import as_object, as_text
from channels.transcript import Transcript
from channels.transcript.stream_events import EventKind, StreamEvent

_RUN_PATH = re.compile(r"/runs/([^/?#]+)")


@dataclass(slots=True)
class Heard:
    """What one connection brought. `gap` is the data of a gap event; `trouble` is why the connection broke.

    `over`: an `end` came. `events` counts the others, `news` those of them that had not been heard before.
    `cut_short`: a stop came, and what the connection brought after it was not taken.
    """

    events: int = 0
    news: int = 0
    body_bytes: int = 0
    over: bool = False
    cut_short: bool = False
    last: EventKind | None = None
    gap: JsonValue = None
    trouble: Trouble | None = None

    @property
    def ended_by_itself(self) -> bool:
        """Whether the stream looks whole: an `end`, or the last step's update and then a clean close.

        LangGraph's server sends no `end`: there a close in the middle looks the same but for what came last.
        """
        is_last = self.over or self.last is EventKind.UPDATES
        return self.trouble is None and not self.cut_short and self.events > 0 and is_last

    @property
    def is_fruitless(self) -> bool:
        """Whether nothing came at all, or only that nothing more will come."""
        return not self.body_bytes or (self.over and not self.news)

    @property
    def met_gap(self) -> bool:
        return self.gap is not None


class Listener:
    """Feeds the transcript. `known` is awaited with the run's id as soon as a connection tells it.

    `live`: the run was begun here, so that whatever it says after a stop is new. (One that is taken over says again
    what was shown before, stopped or not.)
    """

    def __init__(
        self,
        clock: Clock,
        stats: Stats,
        transcript: Transcript,
        perseverance: Perseverance,
        patience: Patience,
        *,
        deadline: float,
        stop: asyncio.Event,
        known: Callable[[RunId], Awaitable[None]],
        changed: Callable[[bool], None],
    ) -> None:
        self._clock = clock
        self._stats = stats
        self._transcript = transcript
        self._perseverance = perseverance
        self._patience = patience
        self._deadline = deadline
        self._stop = stop
        self._known = known
        self._changed = changed
        self._raised: BaseException | None = None
        self._telling = asyncio.Lock()
        self.live = False
        self.replay = Replay()

    async def listen(self, stream: AsyncGenerator[StreamPart, None]) -> Heard:
        """Read one connection to its end, whatever end that is. Raises only what `known` raised."""
        wire = Wire(self._clock, self._opened)
        heard = Heard()
        self._telling = asyncio.Lock()
        try:
            async with asyncio.timeout(None) as cut:
                watch = asyncio.create_task(self._watch(wire, cut))
                try:
                    with attached(wire):
                        async with aclosing(stream) as parts:
                            async for part in parts:
                                await self._take(part, heard)
                                if heard.over or heard.met_gap:
                                    break
                finally:
                    watch.cancel()
                    await asyncio.gather(watch, return_exceptions=True)
        except TimeoutError:
            if self._raised is not None:
                raise self._raised from None
            heard.trouble = Trouble(TroubleKind.CUT, "cut by the bridge: silent for too long, or out of time")
        except Trouble as trouble:
            if self._raised is not None:
                raise self._raised from None
            heard.trouble = trouble
        heard.body_bytes = wire.body_bytes
        return heard

    async def _watch(self, wire: Wire, cut: asyncio.Timeout) -> None:
        """Cut the connection when no byte comes, when the run's time is over, or when a stop has had its time."""
        while True:
            now = self._clock.now()
            idle = wire.last_byte + self._patience.idle
            ends = min(idle, self._perseverance.ends(self._deadline))
            if now >= ends:
                self._stats.idle_deaths += now >= idle
                await self._telling.acquire()  # for good: what is done with the run's id is not left half done
                cut.reschedule(asyncio.get_running_loop().time())
                return
            if self._stop.is_set():
                await self._clock.sleep(ends - now)
            else:
                await wait_until(self._clock, ends, self._stop)

    async def _opened(self, headers: httpx.Headers) -> None:
        found = _RUN_PATH.search(headers.get("content-location", ""))
        if found:
            await self._tell(RunId(found.group(1)))

    async def _tell(self, run: RunId) -> None:
        async with self._telling:
            try:
                await self._known(run)
            except BaseException as error:
                self._raised = error
                raise

    async def _take(self, part: StreamPart, heard: Heard) -> None:
        event = StreamEvent.of(part.event, cast("JsonValue", part.data), part.id)
        if event.kind is EventKind.METADATA and (run := as_text(as_object(event.data).get("run_id"))):
            await self._tell(RunId(run))
        if event.kind is EventKind.END:
            heard.over = True
            return
        if self.live and self._stop.is_set():
            heard.cut_short = True
            return
        if event.kind is EventKind.GAP:
            heard.gap = event.data if event.data is not None else {}
            return
        heard.events += 1
        heard.last = event.kind if not event.namespace else None
        verdict = self.replay.admit(event)
        if verdict is Verdict.SEEN:
            self._stats.replayed_events += 1
            return
        if verdict is Verdict.AFTER_HOLE:
            self._transcript.missed()
        heard.news += 1
        changed = self._transcript.feed(event, self._clock.now())
        self._changed(changed)
