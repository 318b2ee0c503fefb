"""A chat that gets a new id takes its conversations along."""

from __future__ import annotations

import asyncio
import threading

import pytest

from channels.model import ThreadId
from channels.store import Store, conversations
from channels.store.database import Transaction
from channels.store.records import Lease, TurnState
from tests.channels.store.samples import (
    ANSWER,
    CHANNEL,
    accepted,
    answered,
    claimed,
    inbound,
    keys,
    known,
    owned,
    place,
    until_blocked,
)
from tests.clock import ManualClock


@pytest.fixture
async def lease(store: Store) -> Lease:
    return await owned(store)


async def test_a_conversation_goes_on_under_the_new_id_of_its_chat(store: Store, lease: Lease) -> None:
    turn = await answered(store, lease, "k1", "old")
    await store.rekey(CHANNEL, "old", "new")
    assert await store.conversation_at(place("old")) is None
    moved = await store.conversation_at(place("new"))
    assert moved is not None
    assert (moved.id, moved.place, moved.thread_id) == (turn.conversation.id, place("new"), "thread-old")
    assert await store.conversation_of_message(CHANNEL, "new", "k1-a") == moved
    assert await store.conversation_of_message(CHANNEL, "old", "k1-a") is None


async def test_every_thread_of_the_chat_moves_and_other_chats_and_channels_stay(store: Store, lease: Lease) -> None:
    here = await accepted(store, inbound("k1", "old", thread="t"))
    other_chat = await accepted(store, inbound("k2", "elsewhere", thread="t"))
    other_channel = await accepted(store, inbound("k3", "old", thread="t", channel="other"))
    await store.rekey(CHANNEL, "old", "new")
    for stored, expected in (
        (here, place("new", thread="t")),
        (other_chat, place("elsewhere", thread="t")),
        (other_channel, place("old", thread="t", channel="other")),
    ):
        found = await store.conversation_at(expected)
        assert found is not None
        assert found.id == stored.conversation_id


async def test_what_waits_and_what_is_at_work_moves_too(store: Store, lease: Lease) -> None:
    turn = await claimed(store, lease, "k1", "old")
    await accepted(store, inbound("k2", "old"))
    await store.rekey(CHANNEL, "old", "new")
    moved = await known(store, turn)
    assert moved.conversation.place == moved.question.place == place("new")
    await store.finish(lease, turn.id)
    (following,) = await store.claim(lease, 10)
    assert following.inbounds == (inbound("k2", "new"),)


async def test_history_keeps_the_place_it_happened_at(store: Store, lease: Lease) -> None:
    turn = await answered(store, lease, "k1", "old")
    await store.rekey(CHANNEL, "old", "new")
    assert (await known(store, turn)).question.place == place("old")


async def test_a_conversation_that_is_at_the_new_place_takes_over_what_waits(store: Store, lease: Lease) -> None:
    turn = await answered(store, lease, "k2", "old")
    stays = await accepted(store, inbound("k1", "new"))
    await accepted(store, inbound("k3", "old"))
    await store.rekey(CHANNEL, "old", "new")
    survivor = await store.conversation_at(place("new"))
    assert survivor is not None
    assert survivor.id == stays.conversation_id
    assert survivor.thread_id == "thread-old"  # the only thread there is
    assert await store.waiting(survivor.id) == 2
    assert await store.conversation_of_message(CHANNEL, "new", "k2-a") == survivor
    assert (await known(store, turn)).conversation == survivor


@pytest.mark.parametrize("newer", ["old", "new"])
async def test_of_two_threads_the_newer_one_stays(newer: str, store: Store, lease: Lease, clock: ManualClock) -> None:
    older = {"old": "new", "new": "old"}[newer]
    await answered(store, lease, "k1", older)
    await clock.advance(1.0)
    await answered(store, lease, "k2", newer)
    await store.rekey(CHANNEL, "old", "new")
    survivor = await store.conversation_at(place("new"))
    assert survivor is not None
    assert survivor.thread_id == f"thread-{newer}"


async def test_turns_at_work_in_both_conversations_end_in_order(store: Store, lease: Lease) -> None:
    moving = await claimed(store, lease, "k1", "old")
    staying = await claimed(store, lease, "k2", "new")
    await accepted(store, inbound("k3", "old"))
    await store.rekey(CHANNEL, "old", "new")
    assert (await known(store, moving)).conversation.place == place("new")
    assert await store.claim(lease, 10) == []
    for turn in (moving, staying):
        await store.set_thread(lease, turn.id, ThreadId(f"thread-{turn.id}"))
        await store.save_final(lease, turn.id, ANSWER, None)
        await store.finish(lease, turn.id)
        assert (await known(store, turn)).state is TurnState.DONE
    assert [keys(turn) for turn in await store.claim(lease, 10)] == [["k3"]]


async def test_moving_a_chat_twice_or_an_unknown_one_changes_nothing(store: Store, lease: Lease) -> None:
    await answered(store, lease, "k1", "old")
    await store.rekey(CHANNEL, "old", "new")
    moved = await store.conversation_at(place("new"))
    await store.rekey(CHANNEL, "old", "new")
    await store.rekey(CHANNEL, "never-seen", "new")
    assert await store.conversation_at(place("new")) == moved


async def test_two_chats_can_be_merged_into_a_third_one_after_the_other(store: Store, lease: Lease) -> None:
    for key, chat in (("k1", "a"), ("k2", "b"), ("k3", "c")):
        await accepted(store, inbound(key, chat))
    await store.rekey(CHANNEL, "a", "c")
    await store.rekey(CHANNEL, "b", "c")
    await store.rekey(CHANNEL, "c", "d")
    survivor = await store.conversation_at(place("d"))
    assert survivor is not None
    assert await store.waiting(survivor.id) == 3


async def test_on_postgresql_a_claim_waits_for_a_chat_that_moves(postgres_url: str, clock: ManualClock) -> None:
    store, other = [await Store.open(postgres_url, clock, lease_clock=clock) for _ in range(2)]
    lease = await owned(store)
    await store.finish(lease, (await claimed(store, lease, "k1", "new")).id)
    await accepted(store, inbound("k2", "old"))
    inside, go_on = threading.Event(), threading.Event()

    def move_slowly(tx: Transaction) -> None:
        conversations.rekey(tx, CHANNEL, "old", "new")
        inside.set()
        go_on.wait(10)

    moving = asyncio.create_task(other._database.write(move_slowly))
    await asyncio.to_thread(inside.wait, 10)
    claiming = asyncio.create_task(store.claim(lease, 1))
    await until_blocked(postgres_url, claiming)
    go_on.set()
    await moving
    (turn,) = await claiming
    assert turn.conversation == await store.conversation_at(place("new"))
    assert turn.question == inbound("k2", "new")
    await store.close()
    await other.close()
