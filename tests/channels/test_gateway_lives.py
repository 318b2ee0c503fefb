"""A run's life beyond one connection: shutdown and take-over, stop, time-outs, restarts, many at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from channels.gateway import Gateway, Patience
from channels.model import Phase, RunId, View, new_turn_id
from channels.transcript import Transcript
from tests.emulators.fault_proxy import Damage, Fault, FaultProxy
from tests.emulators.gateway import Event, GatewayEmulator, Hold, Interrupts, Kind, Manner, Say, Step, pieces_of
from tests.gateway.turns import ANSWER, Seen, gateway_at, new_thread, run_turn, until

HALF_WAY = 70
SCRIPT: tuple[Step, ...] = (Say(tuple(pieces_of(ANSWER)), hold_at=HALF_WAY),)


@asynccontextmanager
async def serving(
    kind: Kind, script: Sequence[Step] = SCRIPT, manner: Manner | None = None
) -> AsyncIterator[tuple[GatewayEmulator, FaultProxy]]:
    emulator = GatewayEmulator(kind, script, manner)
    proxy = FaultProxy(await emulator.start())
    await proxy.start()
    try:
        yield emulator, proxy
    finally:
        await proxy.stop()
        await emulator.stop()


@asynccontextmanager
async def bridge(url: str, patience: Patience | None = None) -> AsyncIterator[Gateway]:
    gateway = gateway_at(url, patience=patience)
    try:
        yield gateway
    finally:
        await gateway.aclose()


class Watcher:
    """Sets `seen` when the view holds so many characters."""

    def __init__(self, length: int = 60) -> None:
        self.length = length
        self.seen = asyncio.Event()

    def __call__(self, view: View) -> None:
        if len(view.text) >= self.length:
            self.seen.set()


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("known", [True, False], ids=["run known", "maybe requested"])
async def test_a_shutdown_leaves_the_run_alive_and_the_next_owner_goes_on(kind: Kind, known: bool) -> None:
    thread, turn, watcher = new_thread(), new_turn_id(), Watcher()
    async with serving(kind) as (emulator, proxy):
        async with bridge(proxy.url) as first:
            carried = asyncio.create_task(run_turn(first, "Hi", thread=thread, turn=turn, on_view=watcher))
            await watcher.seen.wait()
            carried.cancel()
            with pytest.raises(asyncio.CancelledError):
                await carried
        assert emulator.run.status == "running"
        run = RunId(emulator.run.id) if known else None
        async with bridge(proxy.url) as second:
            seen = await run_turn(second, "Hi", thread=thread, turn=turn, run=run, maybe_requested=not known)
        assert seen.end.view.text == ANSWER
        assert len(emulator.runs) == 1
        assert seen.started == ([] if known else [emulator.run.id])


async def test_a_run_that_was_never_requested_is_started_after_the_look() -> None:
    async with serving(Kind.LANGGRAPH, [Say(("Hello",))]) as (emulator, proxy), bridge(proxy.url) as gateway:
        seen = await run_turn(gateway, "Hi", maybe_requested=True)
        assert seen.end.view.text == "Hello"
        assert len(emulator.runs) == 1
        assert gateway.stats.lookups == 1


@pytest.mark.parametrize("kind", Kind)
async def test_the_run_id_is_told_before_the_first_text(kind: Kind) -> None:
    order: list[str] = []
    async with serving(kind, [Hold(), Say(("Hello",))]) as (emulator, proxy), bridge(proxy.url) as gateway:

        def started(run: RunId) -> None:
            order.append("started")
            emulator.runs[run].go_on.set()

        await run_turn(gateway, "Hi", on_started=started, on_view=lambda view: order.append(view.text))
        assert order[0] == "started"
        assert "Hello" in order


# ---------------------------------------------------------------- stop


@pytest.mark.parametrize("kind", Kind)
async def test_a_stop_cancels_the_run_and_keeps_the_text(kind: Kind) -> None:
    thread, watcher = new_thread(), Watcher()
    async with serving(kind) as (emulator, proxy), bridge(proxy.url) as gateway:
        asked = asyncio.create_task(run_turn(gateway, "Hi", thread=thread, on_view=watcher))
        await watcher.seen.wait()
        assert await gateway.cancel(thread, RunId(emulator.run.id))
        seen = await asked
        assert seen.end.view.phase is Phase.STOPPED
        assert seen.end.view.notice == "Stopped."
        assert len(seen.end.view.text) >= 60
        assert ANSWER.startswith(seen.end.view.text)
        assert emulator.run.status == "interrupted"
        emulator.script[:] = [Say(("Still here.",))]
        assert (await run_turn(gateway, "And now?", thread=thread)).end.view.text == "Still here."


async def test_a_stop_by_turn_cancels_the_run_at_once() -> None:
    turn, watcher = new_turn_id(), Watcher()
    async with serving(Kind.LANGGRAPH) as (emulator, proxy), bridge(proxy.url) as gateway:
        asked = asyncio.create_task(run_turn(gateway, "Hi", turn=turn, on_view=watcher))
        await watcher.seen.wait()
        assert await gateway.stop(turn)
        assert emulator.run.status == "interrupted"
        assert (await asked).end.view.phase is Phase.STOPPED


async def test_a_stop_gets_through_once_a_lost_gateway_is_back() -> None:
    thread, watcher = new_thread(), Watcher()
    async with serving(Kind.DEERFLOW) as (emulator, proxy), bridge(proxy.url) as gateway:
        proxy.plan(Fault(Damage.CUT, 20_000, on_cut=lambda: proxy.go_away()))
        asked = asyncio.create_task(run_turn(gateway, "Hi", thread=thread, on_view=watcher))
        await watcher.seen.wait()
        await until(lambda: proxy.away)
        cancelling = asyncio.create_task(gateway.cancel(thread, RunId(emulator.run.id)))
        await asyncio.sleep(0.05)
        proxy.come_back()
        seen = await asked
        await cancelling
        assert seen.end.view.phase is Phase.STOPPED
        assert emulator.run.status == "interrupted"


async def test_a_stop_that_the_gateway_never_confirms_stops_the_answer_all_the_same() -> None:
    thread, watcher = new_thread(), Watcher()
    async with serving(Kind.LANGGRAPH) as (emulator, proxy), bridge(proxy.url) as gateway:
        proxy.plan(Fault(Damage.HANG, 20_000, on_cut=lambda: proxy.go_away()))
        asked = asyncio.create_task(run_turn(gateway, "Hi", thread=thread, on_view=watcher))
        await watcher.seen.wait()
        await until(lambda: proxy.away)
        assert not await gateway.cancel(thread, RunId(emulator.run.id))
        seen = await asked
        assert seen.end.view.phase is Phase.STOPPED
        assert "did not confirm" in seen.end.note
        assert len(seen.end.view.text) >= 60


# ---------------------------------------------------------------- time


async def test_a_run_that_takes_too_long_is_cancelled_and_its_text_kept() -> None:
    async with serving(Kind.LANGGRAPH) as (emulator, proxy), bridge(proxy.url) as gateway:
        seen = await run_turn(gateway, "Hi", timeout=20.0)
        assert seen.end.view.phase is Phase.FAILED
        assert "longer than 20 seconds" in seen.end.view.notice
        assert ANSWER.startswith(seen.end.view.text)
        assert len(seen.end.view.text) >= 60
        assert emulator.run.status == "interrupted"


async def test_a_gateway_away_for_long_is_told_waited_for_and_the_answer_is_whole() -> None:
    async with serving(Kind.AEGRA) as (_, proxy), bridge(proxy.url) as gateway:
        proxy.plan(Fault(Damage.CUT, 20_000, on_cut=lambda: proxy.go_away(0.7)))
        seen = await run_turn(gateway, "Hi")
        assert any("interrupted" in view.notice for view in seen.views)
        assert (seen.end.view.text, seen.end.view.notice) == (ANSWER, "")


# ---------------------------------------------------------------- restarts, gaps, dead streams


@pytest.mark.parametrize("kind", Kind)
async def test_a_run_executed_anew_in_the_same_stream_is_shown_once(kind: Kind) -> None:
    again = Event("metadata", {"run_id": "the same", "attempt": 1})
    script: list[Step] = [Say(tuple(pieces_of(ANSWER))[:50]), again, Say(tuple(pieces_of(ANSWER)))]
    async with serving(kind, script) as (_, proxy), bridge(proxy.url) as gateway:
        seen = await run_turn(gateway, "Hi")
        assert seen.end.view.text == ANSWER
        assert gateway.stats.restarts == 1
        lengths = [len(view.text) for view in seen.views]
        assert lengths == sorted(lengths)


async def test_gap_after_gap_ends_in_polling_and_the_whole_answer() -> None:
    manner = Manner(always_gap=True, joins_go_on=False)
    async with serving(Kind.DEERFLOW, manner=manner) as (emulator, proxy), bridge(proxy.url) as gateway:
        proxy.plan(Fault(Damage.CUT, 5000))
        asked = asyncio.create_task(run_turn(gateway, "Hi"))
        await until(lambda: gateway.stats.polled_turns > 0)
        assert gateway.stats.gaps == 6
        emulator.run.go_on.set()
        assert (await asked).end.view.text == ANSWER


async def test_connections_that_bring_nothing_end_in_polling_and_the_whole_answer() -> None:
    manner = Manner(joins_go_on=False)
    async with serving(Kind.LANGGRAPH, manner=manner) as (emulator, proxy), bridge(proxy.url) as gateway:
        proxy.plan(*[Fault(Damage.CUT, 0)] * 9)
        asked = asyncio.create_task(run_turn(gateway, "Hi"))
        await until(lambda: gateway.stats.polled_turns > 0)
        emulator.run.go_on.set()
        seen = await asked
        assert (seen.end.view.text, seen.end.view.notice) == (ANSWER, "")
        assert len(emulator.runs) == 1


async def test_questions_are_found_in_the_state_when_the_stream_broke_before_them() -> None:
    script: list[Step] = [Say(("Before. ",)), Interrupts(({"question": "Sure?", "options": ["yes", "no"]}, "Why?"))]
    for kind in (Kind.LANGGRAPH, Kind.AEGRA):
        async with serving(kind, script, Manner(forgets_after_end=True)) as (_, proxy), bridge(proxy.url) as gateway:
            proxy.plan(Fault(Damage.CUT, 700))
            seen = await run_turn(gateway, "Hi")
            assert seen.end.view.phase is Phase.ASKING
            assert [interrupt.text for interrupt in seen.end.interrupts] == ["Sure?", "Why?"]
            assert seen.end.interrupts[0].heard


# ---------------------------------------------------------------- scale


async def test_more_than_a_hundred_runs_stream_at_once() -> None:
    script = [Say(tuple(pieces_of("A short answer for everybody.")), hold_at=5)]
    async with serving(Kind.LANGGRAPH, script) as (emulator, _), bridge(emulator.url) as gateway:
        asked = [asyncio.create_task(run_turn(gateway, "Hi", prepare=False)) for _ in range(110)]
        await until(lambda: len(emulator.runs) == 110)
        for run in emulator.runs.values():
            run.go_on.set()
        ends: list[Seen] = await asyncio.gather(*asked)
        assert {seen.end.view.text for seen in ends} == {"A short answer for everybody."}


async def test_a_turns_bytes_do_not_grow_with_the_threads_history() -> None:
    async with (
        serving(Kind.LANGGRAPH, [Say(tuple(pieces_of(ANSWER)))]) as (emulator, _),
        bridge(emulator.url) as gateway,
    ):
        received: list[int] = []
        thread = new_thread()
        for history in (0, 500):
            old = [{"type": "ai" if n % 2 else "human", "content": "x" * 200, "id": f"old-{n}"} for n in range(history)]
            emulator.threads[thread] = json.loads(json.dumps(old))
            before = gateway.stats.bytes_received
            assert (await run_turn(gateway, "Hi", thread=thread)).end.view.text == ANSWER
            received.append(gateway.stats.bytes_received - before)
        assert abs(received[1] - received[0]) < 200
        assert gateway.stats.state_reads == 0


async def test_a_transcript_can_be_looked_at_at_any_time() -> None:
    async with serving(Kind.LANGGRAPH, [Say(tuple(pieces_of(ANSWER)))]) as (_, proxy), bridge(proxy.url) as gateway:
        seen = await run_turn(gateway, "Hi")
        assert seen.views[0].revision < seen.views[-1].revision < seen.end.view.revision
        assert Transcript().view(0.0).phase is Phase.WAITING
