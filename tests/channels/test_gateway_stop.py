"""A stop at any moment of a run's life: no run goes on behind the reader's back, and nothing is said after it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx
import pytest

from channels.gateway import Ask, Gateway, InputFile, Patience, RunEnd, RunRequest
from channels.model import Phase, RunId, ThreadId, TurnId, new_turn_id
from channels.transcript import Transcript
from tests.clock import ScaledClock
from tests.emulators.gateway import GatewayEmulator, Interrupts, Kind, Manner, Say, Step, pieces_of
from tests.gateway.turns import ANSWER, SENDER, SPEED, new_thread, until

DIALECTS = (Kind.LANGGRAPH, Kind.DEERFLOW)
PIECES = tuple(pieces_of(ANSWER))
SAID = "".join(PIECES[:70])
ENDLESS = (Say(PIECES, hold_at=70),)
"""The run says `SAID` and then never ends by itself: only a cancel ends it."""
NEVER = 1e9
"""Patience that is not used up: what has to happen at once may not wait for it."""


class Crossings(httpx.AsyncBaseTransport):
    """Every request crosses twice, when it leaves and when its answer comes; `crossed` is awaited at each.

    `before` may answer or fail a request so that it never gets there, `after` may change or lose the answer.
    """

    def __init__(self) -> None:
        self._inner = httpx.AsyncHTTPTransport(verify=False, limits=httpx.Limits(max_connections=None))
        self.crossed: Callable[[httpx.Request, bool], Awaitable[None]] | None = None
        self.before: Callable[[httpx.Request], httpx.Response | None] = lambda _: None
        self.after: Callable[[httpx.Request, httpx.Response], None] = lambda _, response: None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self.crossed is not None:
            await self.crossed(request, False)
        answer = self.before(request)
        if answer is None:
            answer = await self._inner.handle_async_request(request)
            try:
                self.after(request, answer)
            except httpx.HTTPError:
                await answer.aclose()
                raise
        if self.crossed is not None:
            await self.crossed(request, True)
        return answer

    async def aclose(self) -> None:
        await self._inner.aclose()


@dataclass(slots=True)
class Scene:
    """One gateway, one turn. `text` is what the reader sees; `started_late` counts runs asked for after the stop."""

    emulator: GatewayEmulator
    gateway: Gateway
    wire: Crossings
    turn: TurnId = field(default_factory=new_turn_id)
    thread: ThreadId = field(default_factory=new_thread)
    transcript: Transcript = field(default_factory=Transcript)
    stopping: asyncio.Task[bool] | None = None
    started_late: int = 0

    @property
    def text(self) -> str:
        return self.transcript.view(0.0).text

    @property
    def has_said(self) -> bool:
        return self.text == SAID

    async def ask(
        self,
        run: RunId | None = None,
        *,
        maybe_requested: bool = False,
        started: Callable[[RunId], Awaitable[None]] | None = None,
    ) -> RunEnd:
        async def unheeded(_: RunId) -> None:
            pass

        asked = Ask("Look", SENDER, (InputFile("notes.txt", "text/plain", b"hi"),))
        request = RunRequest(self.turn, self.thread, asked, "agent")
        return await self.gateway.execute(
            request,
            self.transcript,
            run=run,
            maybe_requested=maybe_requested,
            started=started or unheeded,
            changed=lambda: None,
        )

    def stop_when(self, moment: Callable[[httpx.Request, bool], bool]) -> asyncio.Event:
        """Stop the turn at the first crossing that `moment` says yes to; returns what is set then."""
        stopped = asyncio.Event()

        async def crossed(request: httpx.Request, is_back: bool) -> None:
            self.started_late += stopped.is_set() and is_start(request) and not is_back
            if not stopped.is_set() and moment(request, is_back):
                stopped.set()
                self.stopping = asyncio.create_task(self.gateway.stop(self.turn))
                await asyncio.sleep(0)

        self.wire.crossed = crossed
        return stopped

    def stop_at(self, number: int) -> asyncio.Event:
        """Stop the turn at its crossing of this number, from 0."""
        crossings = itertools.count()
        return self.stop_when(lambda _, __: next(crossings) == number)

    async def until_stopped_or_said(self, stopped: asyncio.Event) -> None:
        """Wait for the stop; stop the turn when it says all it has to say before that."""
        await until(lambda: stopped.is_set() or self.has_said)
        if not stopped.is_set():
            await self.gateway.stop(self.turn)


@asynccontextmanager
async def scene(kind: Kind, script: Sequence[Step] = ENDLESS, patience: Patience | None = None) -> AsyncIterator[Scene]:
    emulator = GatewayEmulator(kind, script, Manner(joins_go_on=False))
    wire = Crossings()
    gateway = Gateway(
        await emulator.start(),
        api_key=None,
        headers={},
        dialect=str(kind),
        clock=ScaledClock(SPEED),
        patience=patience or Patience(stop=NEVER, idle=NEVER),
        transport=wire,
    )
    place = Scene(emulator, gateway, wire)
    try:
        async with asyncio.timeout(20):
            yield place
    finally:
        if place.stopping is not None:
            place.stopping.cancel()
        await gateway.aclose()
        await emulator.stop()


def is_start(request: httpx.Request) -> bool:
    return request.method == "POST" and request.url.path.endswith(("/runs", "/runs/stream"))


def is_look_up(request: httpx.Request) -> bool:
    return request.method == "GET" and request.url.path.endswith("/runs")


def is_record(request: httpx.Request) -> bool:
    return request.method == "GET" and request.url.path.rpartition("/")[0].endswith("/runs")


def is_cancel(request: httpx.Request) -> bool:
    return request.url.path.endswith("/cancel")


# ---------------------------------------------------------------- every moment


def nothing_goes_wrong(_: Crossings) -> None:
    pass


def the_thread_is_missing(wire: Crossings) -> None:
    threads = itertools.count()
    wire.before = lambda request: (
        httpx.Response(503) if request.url.path.endswith("/threads") and next(threads) == 0 else None
    )


def the_answer_is_lost(wire: Crossings) -> None:
    def after(request: httpx.Request, _: httpx.Response) -> None:
        if is_start(request):
            raise httpx.ReadError("reset")

    wire.after = after


def the_answer_is_lost_and_the_run_is_found_late(wire: Crossings) -> None:
    the_answer_is_lost(wire)
    looks = itertools.count()
    wire.before = lambda request: httpx.Response(200, json=[]) if is_look_up(request) and next(looks) == 0 else None


def the_runs_address_is_not_told(wire: Crossings) -> None:
    def after(request: httpx.Request, answer: httpx.Response) -> None:
        if is_start(request):
            del answer.headers["content-location"]

    wire.after = after


def no_stream_can_be_had(wire: Crossings) -> None:
    wire.before = lambda request: httpx.Response(501) if request.url.path.endswith("/stream") else None


TROUBLES = [
    nothing_goes_wrong,
    the_thread_is_missing,
    the_answer_is_lost,
    the_answer_is_lost_and_the_run_is_found_late,
    the_runs_address_is_not_told,
    no_stream_can_be_had,
]


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.__name__)
@pytest.mark.parametrize("kind", DIALECTS)
async def test_whenever_the_stop_comes_the_run_is_cancelled_and_nothing_is_said_after_it(
    kind: Kind, trouble: Callable[[Crossings], None]
) -> None:
    for number in range(16):
        async with scene(kind) as place:
            trouble(place.wire)
            await place.gateway.prepare_thread(place.thread, {})
            stopped = place.stop_at(number)
            asked = asyncio.create_task(place.ask())
            await place.until_stopped_or_said(stopped)
            text = place.text
            end = await asked
            assert (end.view.phase, end.view.notice, end.view.text) == (Phase.STOPPED, "Stopped.", text), number
            assert {run.status for run in place.emulator.runs.values()} <= {"interrupted"}, number
            assert not place.started_late, number
            if not stopped.is_set():
                break


@pytest.mark.parametrize("is_known", [True, False], ids=["run known", "maybe requested"])
@pytest.mark.parametrize("kind", DIALECTS)
async def test_whenever_the_stop_comes_a_run_taken_over_is_cancelled_and_keeps_what_was_shown(
    kind: Kind, is_known: bool
) -> None:
    for number in range(16):
        async with scene(kind) as place:
            await place.gateway.prepare_thread(place.thread, {})
            before = asyncio.create_task(place.ask())
            await until(lambda: place.has_said)
            before.cancel()
            await asyncio.gather(before, return_exceptions=True)
            place.transcript = Transcript()
            stopped = place.stop_at(number)
            run = RunId(place.emulator.run.id) if is_known else None
            asked = asyncio.create_task(place.ask(run, maybe_requested=not is_known))
            await place.until_stopped_or_said(stopped)
            end = await asked
            assert (end.view.phase, end.view.text) == (Phase.STOPPED, SAID), number
            assert [run.status for run in place.emulator.runs.values()] == ["interrupted"], number
            if not stopped.is_set():
                break


# ---------------------------------------------------------------- what comes after it


@pytest.mark.parametrize("kind", DIALECTS)
async def test_a_run_that_talks_on_until_it_is_cancelled_is_not_heard_any_more(kind: Kind) -> None:
    async with scene(kind) as place:
        await place.gateway.prepare_thread(place.thread, {})
        asked = asyncio.create_task(place.ask())
        await until(lambda: place.has_said)
        received = place.gateway.stats.bytes_received

        async def late(request: httpx.Request, is_back: bool) -> None:
            if is_cancel(request) and not is_back:
                place.emulator.run.go_on.set()
                await until(lambda: place.emulator.run.is_over and place.gateway.stats.bytes_received > received)

        place.wire.crossed = late
        await place.gateway.stop(place.turn)
        end = await asked
        assert (end.view.phase, end.view.text) == (Phase.STOPPED, SAID)
        assert place.emulator.run.status == "success"


@pytest.mark.parametrize("kind", DIALECTS)
async def test_a_stop_that_comes_when_all_has_been_said_leaves_the_answer_whole(kind: Kind) -> None:
    async with scene(kind, [Say(PIECES)]) as place:
        await place.gateway.prepare_thread(place.thread, {})
        stopped = place.stop_when(lambda request, _: is_record(request))
        end = await place.ask()
        assert stopped.is_set()
        assert (end.view.phase, end.view.text, end.view.notice) == (Phase.DONE, ANSWER, "")


async def test_a_question_that_comes_after_the_stop_is_not_asked() -> None:
    async with scene(Kind.LANGGRAPH, [Interrupts(("Sure?",))]) as place:
        await place.gateway.prepare_thread(place.thread, {})
        place.stop_when(lambda request, _: is_record(request))
        end = await place.ask()
        assert (end.view.phase, end.view.question, end.interrupts) == (Phase.STOPPED, None, ())


@pytest.mark.parametrize("status", [401, 404, 409, 422, 429, 501])
async def test_a_start_that_is_refused_after_the_stop_is_stopped_and_no_failure(status: int) -> None:
    async with scene(Kind.LANGGRAPH) as place:
        await place.gateway.prepare_thread(place.thread, {})
        place.stop_when(lambda request, _: is_start(request))
        place.wire.before = lambda request: httpx.Response(status, json={"detail": "no"}) if is_start(request) else None
        end = await place.ask()
        assert (end.view.phase, end.view.notice) == (Phase.STOPPED, "Stopped.")
        assert not place.emulator.runs


@pytest.mark.parametrize("status", [401, 405, 500])
async def test_a_run_that_cannot_be_cancelled_is_given_its_time_and_the_operator_is_told(status: int) -> None:
    async with scene(Kind.LANGGRAPH, patience=Patience(stop=10.0, idle=NEVER)) as place:
        await place.gateway.prepare_thread(place.thread, {})
        place.stop_when(lambda request, _: is_start(request))
        place.wire.before = lambda request: httpx.Response(status) if is_cancel(request) else None
        end = await place.ask()
        assert (end.view.phase, end.view.text, end.view.notice) == (Phase.STOPPED, "", "Stopped.")
        assert "did not confirm" in end.note


async def test_a_stop_is_confirmed_only_when_no_run_can_be_on_its_way() -> None:
    async with scene(Kind.LANGGRAPH) as place:
        assert await place.gateway.stop(place.turn)
        await place.gateway.prepare_thread(place.thread, {})
        place.stop_when(lambda request, _: is_start(request))
        await place.ask()
        assert place.stopping is not None
        assert not await place.stopping


# ---------------------------------------------------------------- a store that takes its time


@pytest.mark.parametrize("kind", DIALECTS)
async def test_a_run_is_cancelled_while_its_id_is_still_being_stored(kind: Kind) -> None:
    stored = asyncio.Event()

    async def slowly(_: RunId) -> None:
        await stored.wait()

    async with scene(kind) as place:
        await place.gateway.prepare_thread(place.thread, {})
        asked = asyncio.create_task(place.ask(started=slowly))
        await until(lambda: place.gateway.stats.runs_started == 1)
        assert await place.gateway.stop(place.turn)
        assert place.emulator.run.status == "interrupted"
        stored.set()
        end = await asked
        assert (end.view.phase, end.view.text) == (Phase.STOPPED, "")


@pytest.mark.parametrize("is_stopped", [False, True], ids=["going on", "stopped"])
async def test_storing_the_runs_id_is_not_cut_off_when_it_takes_longer_than_anything_else_may(
    is_stopped: bool,
) -> None:
    stored: list[RunId] = []

    async with scene(Kind.LANGGRAPH, [Say(("Hello",))], Patience(stop=1.0, idle=1.0)) as place:

        async def slowly(run: RunId) -> None:
            if is_stopped:
                await place.gateway.stop(place.turn)
            await asyncio.sleep(5.0 / SPEED)
            stored.append(run)

        await place.gateway.prepare_thread(place.thread, {})
        end = await place.ask(started=slowly)
        assert stored == [place.emulator.run.id]
        assert end.view.phase is (Phase.STOPPED if is_stopped else Phase.DONE)
        assert end.view.text == ("" if is_stopped else "Hello")
