"""What is over is forgotten after a while, and the store stays small."""

from __future__ import annotations

from pathlib import Path

import pytest

from channels.store import Store, retention
from channels.store.records import Lane, Lease, TurnState
from tests.channels.store.samples import (
    ANSWER,
    CHANNEL,
    START,
    accepted,
    answered,
    claimed,
    contents,
    inbound,
    known,
    owned,
    place,
)
from tests.clock import ManualClock

LONG_AGO = START - 1.0
NOW_AND_BEFORE = START + 1.0


@pytest.fixture
async def lease(store: Store) -> Lease:
    return await owned(store)


async def prune(store: Store, *, turns: float = NOW_AND_BEFORE, inbounds: float = NOW_AND_BEFORE) -> int:
    return await store.prune(turns_before=turns, inbounds_before=inbounds)


async def test_a_turn_that_ended_long_ago_is_forgotten_with_all_that_belongs_to_it(
    store: Store, lease: Lease, database_url: str
) -> None:
    turn = await answered(store, lease)
    await store.save_feedback(turn.id, "ada", "up")
    assert await prune(store) > 0
    assert await store.turn(turn.id) is None
    left = {table: rows for table, rows in contents(database_url).items() if rows}
    assert list(left) == ["leases"]


async def test_what_is_young_is_kept(store: Store, lease: Lease, database_url: str) -> None:
    await answered(store, lease)
    before = contents(database_url)
    assert await prune(store, turns=LONG_AGO, inbounds=LONG_AGO) == 0
    assert contents(database_url) == before


async def test_event_keys_are_kept_longer_than_turns_when_asked(store: Store, lease: Lease) -> None:
    turn = await answered(store, lease, "k1")
    await prune(store, inbounds=LONG_AGO)
    assert await store.turn(turn.id) is None
    assert await store.accept(inbound("k1"), Lane.TURN) is None
    await prune(store)
    assert await store.accept(inbound("k1"), Lane.TURN) is not None


async def test_a_kept_turn_keeps_its_inbounds(store: Store, lease: Lease) -> None:
    turn = await answered(store, lease, "k1")
    await prune(store, turns=LONG_AGO)
    assert await known(store, turn) == turn


async def test_nothing_that_is_open_or_waits_is_forgotten(store: Store, lease: Lease, database_url: str) -> None:
    done = await answered(store, lease, "k1", "a")
    await store.retouch(lease, done.id, ANSWER)
    turn = await claimed(store, lease, "k2", "b")
    await accepted(store, inbound("k3", "b"))
    await accepted(store, inbound("stop", "c"), Lane.CONTROL)
    before = contents(database_url)
    await prune(store)
    after = contents(database_url)
    for table in ("inbounds", "turns", "turn_inbounds", "conversations"):
        assert after[table] == before[table]
    await store.finish(lease, turn.id)


async def test_dead_letters_dropped_and_handled_inbounds_are_forgotten_in_time(store: Store, lease: Lease) -> None:
    turn = await claimed(store, lease, "k1")
    await accepted(store, inbound("k2"))
    await store.drop_waiting(lease, "lobby", "message-k2")
    control = await accepted(store, inbound("stop"), Lane.CONTROL)
    await store.control_done(lease, control.id)
    await store.finish(lease, turn.id, TurnState.DEAD)
    await prune(store)
    assert await store.dead_letters() == []
    for key in ("k1", "k2", "stop"):
        assert await store.accept(inbound(key), Lane.TURN) is not None


async def test_a_conversation_that_comes_back_differently_is_kept(store: Store, lease: Lease) -> None:
    for key, chat in (("k1", "renewed"), ("k2", "moving"), ("k3", "plain")):
        turn = await answered(store, lease, key, chat)
        if chat == "renewed":
            await store.new_generation(lease, turn.conversation.id)
    await store.rekey(CHANNEL, "moving", "moved")
    await prune(store)
    kept = [chat for chat in ("renewed", "moved", "plain") if await store.conversation_at(place(chat))]
    assert kept == ["renewed", "moved"]


async def test_a_question_that_nobody_answers_is_forgotten_with_the_turn_that_asked_it_and_not_before(
    store: Store, lease: Lease
) -> None:
    for key, chat in (("k1", "asking"), ("k2", "asking and shown")):
        turn = await claimed(store, lease, key, chat)
        await store.save_shown(lease, turn.id, {}, [f"{key}-a"] if "shown" in chat else [])
        await store.save_final(lease, turn.id, ANSWER, "question")
        await store.finish(lease, turn.id)
    await prune(store, turns=LONG_AGO)
    for chat in ("asking", "asking and shown"):
        found = await store.conversation_at(place(chat))
        assert found is not None
        assert found.pending == "question"
    await prune(store)
    assert [await store.conversation_at(place(chat)) for chat in ("asking", "asking and shown")] == [None, None]


async def test_expired_memory_and_stale_replicas_are_forgotten(
    store: Store, clock: ManualClock, database_url: str
) -> None:
    await store.remember("team", "short", 1, ttl=10.0)
    await store.remember("team", "long", 1, ttl=1e6)
    await store.remember("team", "for good", 1)
    await store.heartbeat("gone")
    await clock.advance(7200.0)
    await store.heartbeat("here")
    assert await prune(store, turns=LONG_AGO, inbounds=LONG_AGO) == 2
    left = contents(database_url)
    assert [row[1] for row in left["memory"]] == ["for good", "long"]
    assert [row[0] for row in left["replicas"]] == ["here"]


async def test_more_than_one_batch_is_forgotten_in_one_call(
    store: Store, lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH", 2)
    for n in range(5):
        await answered(store, lease, f"k{n}")
    # 5 turns, 5 inbounds, 10 messages, 1 conversation
    assert await prune(store) == 21


async def test_an_sqlite_file_gives_back_what_was_forgotten(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "bridge.db"
    store = await Store.open(f"sqlite:///{path}", clock)
    lease = await owned(store)
    for n in range(10):
        turn = await claimed(store, lease, f"k{n}")
        await store.save_shown(lease, turn.id, "x" * 100_000, [])
        await store.finish(lease, turn.id)
    await prune(store)
    await store.close()
    assert path.stat().st_size < 300_000


async def test_a_month_of_traffic_stays_bounded(
    store: Store, lease: Lease, clock: ManualClock, database_url: str, tmp_path: Path
) -> None:
    day, answer = 86_400.0, "x" * 20_000
    rows: list[int] = []
    for today in range(30):
        for n in range(3):
            await accepted(store, inbound(f"{today}-{n}", f"chat{n}", thread=f"{today}", at=clock.now()))
        lease = await owned(store)
        for turn in await store.claim(lease, 100):
            await store.save_shown(lease, turn.id, answer, [f"message-{turn.id}"])
            await store.finish(lease, turn.id)
        await clock.advance(day)
        await store.prune(turns_before=clock.now() - 3 * day, inbounds_before=clock.now() - 3 * day)
        if today >= 5:
            rows.append(sum(map(len, contents(database_url).values())))
    assert max(rows) == rows[0]
    await store.close()
    if database_url.startswith("sqlite"):
        # 1,800 kB were written, of which 180 kB are younger than three days
        assert (tmp_path / "bridge.db").stat().st_size < 600_000
