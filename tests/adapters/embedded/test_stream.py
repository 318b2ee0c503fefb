"""The stream bridge: replay, gaps, fan-out, heartbeats, retention."""

from __future__ import annotations

import asyncio

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.embedded.stream import (
    FROM_START,
    EventId,
    Frame,
    Gap,
    MemoryStreamBridge,
    Retention,
    Signal,
    Subscription,
)
from tests.clock import ManualClock

RUN = "run-1"


def bridge_of(clock: ManualClock | None = None, **retention: float) -> MemoryStreamBridge:
    bridge = MemoryStreamBridge(clock or ManualClock(), Retention(**retention))  # type: ignore[arg-type]
    bridge.open(RUN)
    return bridge


async def publish(bridge: MemoryStreamBridge, count: int, size: int = 1) -> list[EventId]:
    return [await bridge.publish(RUN, "messages", b"1" * size) for _ in range(count)]


def subscribe(bridge: MemoryStreamBridge, after: str | None, modes: list[str] | None = None) -> Subscription:
    subscription = bridge.subscribe(RUN, after, modes)
    assert subscription is not None
    return subscription


async def read(subscription: Subscription) -> tuple[list[EventId], Gap | Signal]:
    """The ids of all events up to the last word of the subscription."""
    ids: list[EventId] = []
    while True:
        batch = await asyncio.wait_for(subscription.next(), 5)
        if isinstance(batch, list):
            ids += [frame.id for frame in batch]
        elif batch is not Signal.HEARTBEAT:
            return ids, batch


async def test_ids_are_unique_and_rise_also_within_one_millisecond() -> None:
    clock = ManualClock(1000.0)
    bridge = bridge_of(clock)
    ids = await publish(bridge, 3)
    await clock.advance(0.002)
    ids += await publish(bridge, 2)
    assert [str(each) for each in ids] == ["1000000-0", "1000000-1", "1000000-2", "1000002-3", "1000002-4"]
    assert sorted(set(ids)) == ids


async def test_ids_rise_when_the_clock_goes_back() -> None:
    clock = ManualClock(1000.0)
    bridge = bridge_of(clock)
    before = await publish(bridge, 1)
    clock._now = 900.0
    after = await publish(bridge, 1)
    assert before < after


@given(
    events=st.integers(0, 40),
    retained=st.integers(1, 40),
    asked=st.integers(0, 39),
    is_ended_first=st.booleans(),
)
def test_a_replay_is_exactly_the_rest_or_an_explicit_gap(
    events: int, retained: int, asked: int, is_ended_first: bool
) -> None:
    async def scenario() -> None:
        bridge = bridge_of(events=retained)
        ids = await publish(bridge, events)
        if asked >= events:
            return
        if is_ended_first:
            await bridge.end(RUN)
        subscription = subscribe(bridge, str(ids[asked]))
        if not is_ended_first:
            await bridge.end(RUN)
        seen, last = await read(subscription)
        if asked + 1 >= events - retained:
            assert (seen, last) == (ids[asked + 1 :], Signal.END)
        else:
            assert seen == []
            assert last == Gap(RUN, str(ids[asked]), ids[events - retained], ids[-1])
        await bridge.close()

    asyncio.run(scenario())


@given(drops=st.lists(st.integers(1, 6), max_size=12), bursts=st.lists(st.integers(1, 5), min_size=1, max_size=12))
def test_a_reader_that_drops_and_comes_back_sees_every_event_once(drops: list[int], bursts: list[int]) -> None:
    async def scenario() -> None:
        bridge = bridge_of(events=1000)
        published: list[EventId] = []
        seen: list[EventId] = []
        subscription, left = subscribe(bridge, FROM_START), list(drops)
        for burst in bursts:
            published += await publish(bridge, burst)
            batch = await subscription.next()
            assert isinstance(batch, list)
            taken = batch[: left.pop()] if left else batch
            seen += [frame.id for frame in taken]
            if len(taken) < len(batch):  # the connection broke in the middle of what was sent
                subscription.close()
                subscription = subscribe(bridge, str(seen[-1]))
        await bridge.end(RUN)
        rest, last = await read(subscription)
        assert (seen + rest, last) == (published, Signal.END)
        await bridge.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("after", ["-1", "0"])
async def test_minus_one_and_zero_replay_everything_that_is_kept_without_a_gap(after: str) -> None:
    bridge = bridge_of(events=3)
    ids = await publish(bridge, 5)
    await bridge.end(RUN)
    assert await read(subscribe(bridge, after)) == (ids[-3:], Signal.END)


async def test_without_an_id_only_what_comes_from_now_on_is_read() -> None:
    bridge = bridge_of()
    await publish(bridge, 3)
    subscription = subscribe(bridge, None)
    later = await publish(bridge, 2)
    await bridge.end(RUN)
    assert await read(subscription) == (later, Signal.END)


@pytest.mark.parametrize("after", ["zzz", "12", "1-", "-5", "1-2-3", "99999999999999-0", "١-٢"])
async def test_an_id_that_this_stream_never_gave_is_a_gap_not_a_silent_replay(after: str) -> None:
    bridge = bridge_of()
    ids = await publish(bridge, 2)
    subscription = subscribe(bridge, after)
    assert subscription.gap == Gap(RUN, after, ids[0], ids[-1])
    assert await read(subscription) == ([], Gap(RUN, after, ids[0], ids[-1]))


async def test_an_id_of_a_former_process_replays_a_stream_that_begins_anew() -> None:
    bridge = bridge_of()
    subscription = subscribe(bridge, "5-17")
    ids = await publish(bridge, 2)
    await bridge.end(RUN)
    assert await read(subscription) == (ids, Signal.END)


def test_the_gap_event_has_no_id_and_says_how_to_recover() -> None:
    data = Gap(RUN, "1-0", EventId(3, 2), EventId(9, 8)).frame()
    assert b"id:" not in data
    head, _, body = data.partition(b"\r\ndata: ")
    assert head == b"event: gap"
    assert orjson.loads(body) == {
        "code": "stream_replay_gap",
        "run_id": RUN,
        "requested_event_id": "1-0",
        "earliest_available_event_id": "3-2",
        "latest_available_event_id": "9-8",
        "recovery": "reload_durable_state",
    }


async def test_all_readers_see_the_same_events() -> None:
    bridge = bridge_of()
    readers = [subscribe(bridge, None) for _ in range(5)]
    ids = await publish(bridge, 4)
    await bridge.end(RUN)
    assert [await read(reader) for reader in readers] == [(ids, Signal.END)] * 5


async def test_events_wait_for_a_connected_reader_beyond_the_retention() -> None:
    bridge = bridge_of(events=4)
    reader = subscribe(bridge, FROM_START)
    ids = await publish(bridge, 50)
    await bridge.end(RUN)
    assert await read(reader) == (ids, Signal.END)


async def test_a_reader_that_falls_too_far_behind_gets_a_gap_instead_of_a_hole() -> None:
    bridge = bridge_of(events=4, size=1000, lag=1000)
    reader = subscribe(bridge, FROM_START)
    ids = await publish(bridge, 2)
    assert isinstance(await reader.next(), list)
    ids += await publish(bridge, 30, size=100)
    seen, last = await read(reader)
    assert seen == []
    assert isinstance(last, Gap)
    assert last.requested == str(ids[1])
    assert last.latest == ids[-1]


async def test_the_kept_bytes_are_bounded_but_the_newest_event_is_always_kept() -> None:
    bridge = bridge_of(size=1000)
    await publish(bridge, 20, size=100)
    big = (await publish(bridge, 1, size=5000))[0]
    await bridge.end(RUN)
    assert await read(subscribe(bridge, "-1")) == ([big], Signal.END)


async def test_a_reader_may_limit_itself_to_modes_but_always_gets_metadata_and_errors() -> None:
    bridge = bridge_of()
    reader = subscribe(bridge, FROM_START, ["values"])
    for mode in ("metadata", "messages", "values", "updates", "error"):
        await bridge.publish(RUN, mode, b"{}")
    await bridge.end(RUN)
    frames: list[Frame] = []
    while isinstance(batch := await reader.next(), list):
        frames += batch
    assert [frame.mode for frame in frames] == ["metadata", "values", "error"]


async def test_silence_brings_a_heartbeat_each_interval_and_events_postpone_it() -> None:
    clock = ManualClock()
    bridge = bridge_of(clock, heartbeat=15)
    reader = subscribe(bridge, None)
    heard: list[tuple[float, str]] = []
    start = clock.now()

    async def listen() -> None:
        while True:
            batch = await reader.next()
            heard.append((clock.now() - start, "events" if isinstance(batch, list) else batch.name))  # type: ignore[union-attr]

    task = asyncio.create_task(listen())
    await clock.advance(31)
    await publish(bridge, 1)
    await clock.advance(14)
    await publish(bridge, 1)
    await clock.advance(16)
    task.cancel()
    assert heard == [(15, "HEARTBEAT"), (30, "HEARTBEAT"), (31, "events"), (45, "events"), (60, "HEARTBEAT")]
    await bridge.close()


async def test_events_that_a_reader_does_not_want_do_not_postpone_its_heartbeat() -> None:
    clock = ManualClock()
    bridge = bridge_of(clock, heartbeat=15)
    reader = subscribe(bridge, None, ["values"])
    task = asyncio.create_task(reader.next())
    await clock.advance(10)
    await publish(bridge, 3)
    await clock.advance(5)
    assert await task is Signal.HEARTBEAT
    await bridge.close()


async def test_a_stream_is_dropped_a_minute_after_its_end_and_not_before() -> None:
    clock = ManualClock()
    bridge = bridge_of(clock, seconds=60)
    ids = await publish(bridge, 2)
    await clock.advance(600)
    await bridge.end(RUN)
    await clock.advance(59)
    assert await read(subscribe(bridge, FROM_START)) == (ids, Signal.END)
    await clock.advance(1)
    assert bridge.subscribe(RUN, FROM_START) is None


async def test_a_new_stream_of_the_same_run_outlives_the_cleanup_of_the_old_one() -> None:
    clock = ManualClock()
    bridge = bridge_of(clock, seconds=60)
    await bridge.end(RUN)
    await clock.advance(30)
    bridge.open(RUN)
    await clock.advance(60)
    assert bridge.subscribe(RUN, None) is not None


async def test_closing_the_bridge_ends_every_reader_without_an_end() -> None:
    bridge = bridge_of()
    waiting = asyncio.create_task(subscribe(bridge, None).next())
    await asyncio.sleep(0)
    await bridge.close()
    assert await waiting is Signal.CLOSED
    assert await subscribe(bridge, None).next() is Signal.CLOSED


async def test_a_closed_reader_holds_nothing_back() -> None:
    bridge = bridge_of(events=2)
    reader = subscribe(bridge, FROM_START)
    reader.close()
    ids = await publish(bridge, 10)
    await bridge.end(RUN)
    assert await read(subscribe(bridge, FROM_START)) == (ids[-2:], Signal.END)


@given(st.integers(0, 10**17), st.integers(0, 10**9))
def test_an_id_reads_back_as_it_is_written(ms: int, seq: int) -> None:
    assert EventId.parse(str(EventId(ms, seq))) == EventId(ms, seq)
