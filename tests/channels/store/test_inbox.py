"""Every inbound is accepted once, finds its conversation, and is claimed in order."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
import sqlalchemy as sa

from channels.model import Place, ThreadId, View
from channels.store import Store, database, inbox
from channels.store.database import Database, Transaction, Work, create_engine, parse_url
from channels.store.records import Lane, Lease, StoreError, StoreUnavailable, Turn, TurnState
from channels.store.schema import inbounds, leases
from tests.channels.store.conftest import OpenStore
from tests.channels.store.samples import (
    ANSWER,
    CHANNEL,
    START,
    accepted,
    answered,
    claimed,
    contents,
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


async def test_a_redelivered_event_is_accepted_once(store: Store) -> None:
    assert await store.accept(inbound("k1"), Lane.TURN) is not None
    assert await store.accept(inbound("k1"), Lane.TURN) is None


async def test_a_redelivery_is_known_after_the_turn_is_done(store: Store, lease: Lease) -> None:
    await answered(store, lease, "k1")
    assert await store.accept(inbound("k1"), Lane.TURN) is None


async def test_the_same_key_in_another_channel_is_another_event(store: Store) -> None:
    assert await store.accept(inbound("k1"), Lane.TURN) is not None
    assert await store.accept(inbound("k1", channel="other"), Lane.TURN) is not None


async def test_an_event_delivered_to_two_processes_at_once_is_accepted_once(open_store: OpenStore) -> None:
    stores = [await open_store(), await open_store()]
    for n in range(10):
        results = await asyncio.gather(*(store.accept(inbound(f"k{n}"), Lane.TURN) for store in stores))
        assert sum(stored is not None for stored in results) == 1


async def test_on_postgresql_a_later_inbound_does_not_overtake_one_that_is_being_committed(
    postgres_url: str, clock: ManualClock
) -> None:
    slow, quick = [await Store.open(postgres_url, clock, lease_clock=clock) for _ in range(2)]
    await accepted(slow, inbound("k1"))
    inside, go_on = threading.Event(), threading.Event()

    def accept_slowly(tx: Transaction) -> None:
        inbox.accept(tx, inbound("k2"), Lane.TURN)
        inside.set()
        go_on.wait(10)

    first = asyncio.create_task(slow._database.write(accept_slowly))
    await asyncio.to_thread(inside.wait, 10)
    second = asyncio.create_task(quick.accept(inbound("k3"), Lane.TURN))
    await until_blocked(postgres_url, second)
    go_on.set()
    await asyncio.gather(first, second)
    lease = await owned(quick)
    seen: list[str] = []
    while turns := await quick.claim(lease, 1):
        seen += keys(turns[0])
        await quick.finish(lease, turns[0].id)
    assert seen == ["k1", "k2", "k3"]
    await slow.close()
    await quick.close()


async def test_an_accepted_inbound_is_there_after_a_restart(open_store: OpenStore) -> None:
    first = await open_store()
    await accepted(first, inbound("k1"))
    await first.close()
    second = await open_store()
    (turn,) = await second.claim(await owned(second), 10)
    assert turn.inbounds == (inbound("k1"),)


async def test_text_that_a_database_refuses_is_stored_all_the_same(store: Store, lease: Lease) -> None:
    odd = inbound("nul \0 and half a pair \ud83d", "chat \0")
    await accepted(store, odd)
    assert await store.accept(odd, Lane.TURN) is None
    (turn,) = await store.claim(lease, 1)
    assert turn.inbounds == (odd,)
    assert await store.conversation_at(odd.place) is not None


# ---------------------------------------------------------------- finding the conversation


async def test_inbounds_at_one_place_share_a_conversation(store: Store) -> None:
    first = await accepted(store, inbound("k1"))
    second = await accepted(store, inbound("k2"))
    elsewhere = await accepted(store, inbound("k3", "garden"))
    assert first.conversation_id == second.conversation_id != elsewhere.conversation_id


async def test_a_conversation_is_found_by_its_place(store: Store) -> None:
    stored = await accepted(store, inbound("k1", thread="t1"))
    found = await store.conversation_at(place(thread="t1"))
    assert found is not None
    assert (found.id, found.place, found.generation, found.thread_id) == (
        stored.conversation_id,
        place(thread="t1"),
        0,
        None,
    )
    assert await store.conversation_at(place()) is None


async def test_a_reply_to_the_bot_stays_in_its_conversation(store: Store, lease: Lease) -> None:
    turn = await answered(store, lease, "k1")
    reply = await accepted(store, inbound("k2", thread="new-thread", reply_to="k1-b"))
    assert reply.conversation_id == turn.conversation.id
    assert await store.conversation_at(place(thread="new-thread")) is None


async def test_a_reply_to_an_unknown_message_belongs_to_its_place(store: Store, lease: Lease) -> None:
    turn = await answered(store, lease, "k1")
    reply = await accepted(store, inbound("k2", thread="t2", reply_to="somebody-else"))
    assert reply.conversation_id != turn.conversation.id


async def test_a_message_id_counts_only_in_its_chat(store: Store, lease: Lease) -> None:
    turn = await answered(store, lease, "k1")
    reply = await accepted(store, inbound("k2", "garden", reply_to="k1-a"))
    assert reply.conversation_id != turn.conversation.id
    assert await store.conversation_of_message(lease.channel, "garden", "k1-a") is None
    assert await store.conversation_of_message(lease.channel, "lobby", "k1-a") == turn.conversation


async def test_the_root_of_the_thread_one_writes_in_is_no_reply(store: Store, lease: Lease) -> None:
    turn = await answered(store, lease, "k1")
    threaded = await accepted(store, inbound("k2", thread="k1-a", reply_to="k1-a"))
    assert threaded.conversation_id != turn.conversation.id
    assert await store.conversation_at(place(thread="k1-a")) is not None


async def test_people_may_have_conversations_of_their_own_in_one_chat(store: Store) -> None:
    ada, bob = (inbound(user).at(Place("team", "lobby", user=user)) for user in ("ada", "bob"))
    first, second = await accepted(store, ada), await accepted(store, bob)
    assert first.conversation_id != second.conversation_id


# ---------------------------------------------------------------- claiming


async def test_a_claim_makes_a_turn_of_what_waits(store: Store, lease: Lease) -> None:
    turn = await claimed(store, lease, "k1")
    assert keys(turn) == ["k1"]
    assert turn.state is TurnState.CLAIMED
    assert await known(store, turn) == turn
    assert await store.claim(lease, 10) == []


async def test_a_conversation_has_one_turn_at_a_time_and_keeps_its_order(store: Store, lease: Lease) -> None:
    for key in ("k1", "k2", "k3"):
        await accepted(store, inbound(key))
    seen: list[str] = []
    while turns := await store.claim(lease, 10):
        (turn,) = turns
        seen += keys(turn)
        assert await store.claim(lease, 10) == []
        await store.finish(lease, turn.id)
    assert seen == ["k1", "k2", "k3"]


async def test_conversations_do_not_wait_for_each_other(store: Store, lease: Lease) -> None:
    for key, chat in (("k1", "a"), ("k2", "a"), ("k3", "b"), ("k4", "c")):
        await accepted(store, inbound(key, chat))
    assert [keys(turn) for turn in await store.claim(lease, 10)] == [["k1"], ["k3"], ["k4"]]


async def test_a_claim_takes_no_more_than_it_may_and_the_oldest_first(store: Store, lease: Lease) -> None:
    for n in range(5):
        await accepted(store, inbound(f"k{n}", f"chat{n}"))
    assert [keys(turn) for turn in await store.claim(lease, 2)] == [["k0"], ["k1"]]
    assert [keys(turn) for turn in await store.claim(lease, 10)] == [["k2"], ["k3"], ["k4"]]


async def test_a_channel_is_claimed_by_itself(store: Store, lease: Lease) -> None:
    await accepted(store, inbound("k1", channel="other"))
    assert await store.claim(lease, 10) == []


async def test_the_next_inbound_can_be_claimed_as_soon_as_the_turn_is_done(store: Store, lease: Lease) -> None:
    turn = await claimed(store, lease, "k1")
    await accepted(store, inbound("k2"))
    await store.finish(lease, turn.id)
    assert [keys(turn) for turn in await store.claim(lease, 10)] == [["k2"]]


async def test_an_inbound_settles_before_it_is_claimed(store: Store, lease: Lease, clock: ManualClock) -> None:
    await accepted(store, inbound("k1", settle=2.0))
    assert await store.claim(lease, 10) == []
    assert await store.next_ready(lease) == START + 2.0
    await clock.advance(2.0)
    assert [keys(turn) for turn in await store.claim(lease, 10)] == [["k1"]]
    assert await store.next_ready(lease) is None


async def test_what_a_replica_with_another_clock_takes_in_is_ready_at_once(
    store: Store, lease: Lease, clock: ManualClock
) -> None:
    await accepted(store, inbound("k1", at=clock.now() + 300.0))
    assert [keys(turn) for turn in await store.claim(lease, 10)] == [["k1"]]


async def test_a_group_is_one_turn_and_settles_after_its_newest_member(
    store: Store, lease: Lease, clock: ManualClock
) -> None:
    await accepted(store, inbound("k1", group="album", settle=1.0))
    await accepted(store, inbound("k2"))
    await clock.advance(0.9)
    await accepted(store, inbound("k3", group="album", settle=1.0, at=clock.now()))
    await clock.advance(0.9)
    assert await store.claim(lease, 10) == []
    assert await store.next_ready(lease) == START + 1.9
    await clock.advance(0.2)
    (turn,) = await store.claim(lease, 10)
    assert keys(turn) == ["k1", "k3"]
    assert turn.question.event_key == "k3"
    await store.finish(lease, turn.id)
    assert [keys(turn) for turn in await store.claim(lease, 10)] == [["k2"]]


async def test_a_group_does_not_reach_into_another_conversation(store: Store, lease: Lease) -> None:
    await accepted(store, inbound("k1", "a", group="album"))
    await accepted(store, inbound("k2", "b", group="album"))
    assert [keys(turn) for turn in await store.claim(lease, 10)] == [["k1"], ["k2"]]


async def test_a_late_group_member_becomes_the_next_turn(store: Store, lease: Lease) -> None:
    await accepted(store, inbound("k1", group="album"))
    (turn,) = await store.claim(lease, 10)
    await accepted(store, inbound("k2", group="album"))
    await store.finish(lease, turn.id)
    assert [keys(turn) for turn in await store.claim(lease, 10)] == [["k2"]]


async def test_what_a_limited_claim_left_is_announced_as_ready(store: Store, lease: Lease) -> None:
    await accepted(store, inbound("k1", "a"))
    await accepted(store, inbound("k2", "b"))
    await store.claim(lease, 1)
    ready_at = await store.next_ready(lease)
    assert ready_at is not None
    assert ready_at <= START


async def test_waiting_inbounds_of_a_held_conversation_are_not_announced(store: Store, lease: Lease) -> None:
    await claimed(store, lease, "k1")
    await accepted(store, inbound("k2", settle=60.0))
    assert await store.next_ready(lease) is None


async def test_those_that_wait_are_counted_and_can_be_taken_back(store: Store, lease: Lease) -> None:
    turn = await claimed(store, lease, "k1")
    for key in ("k2", "k3", "k4"):
        await accepted(store, inbound(key))
    conversation = turn.conversation.id
    assert await store.waiting(conversation) == 3
    assert await store.with_waiting([conversation, conversation + 1]) == {conversation}
    assert await store.drop_waiting(lease, "lobby", "message-k1") == 0  # it waits no longer
    assert await store.drop_waiting(lease, "lobby", "message-k3") == 1
    assert await store.waiting(conversation) == 2
    await store.finish(lease, turn.id)
    assert [keys(turn) for turn in await store.claim(lease, 10)] == [["k2"]]
    assert await store.accept(inbound("k3"), Lane.TURN) is None


async def test_a_message_that_was_taken_back_is_found_in_whichever_conversation_it_waits(
    store: Store, lease: Lease
) -> None:
    await answered(store, lease, "k1")
    replied = await accepted(store, inbound("k2", thread="elsewhere", reply_to="k1-a"))
    await accepted(store, inbound("k2", "garden", channel="other"))
    assert await store.drop_waiting(lease, "garden", "message-k2") == 0
    assert await store.drop_waiting(lease, "lobby", "message-k2") == 1
    assert await store.waiting(replied.conversation_id) == 0
    assert [count.waiting for count in await store.counts() if count.channel == "other"] == [1]


async def test_a_question_is_open_from_when_it_was_accepted_until_it_is_answered(store: Store, lease: Lease) -> None:
    async def is_open(chat: str = "lobby", channel: str = CHANNEL) -> bool:
        return await store.is_open(channel, chat, "message-k1")

    assert not await is_open()
    await accepted(store, inbound("k1"))
    assert await is_open()
    assert not await is_open("garden")
    assert not await is_open(channel="other")
    (turn,) = await store.claim(lease, 1)
    assert await is_open()
    await store.save_final(lease, turn.id, ANSWER, None)
    await store.finish(lease, turn.id)
    assert not await is_open()


async def test_a_command_is_no_question(store: Store) -> None:
    await accepted(store, inbound("k1"), Lane.CONTROL)
    assert not await store.is_open(CHANNEL, "lobby", "message-k1")


# ---------------------------------------------------------------- taking part in threads


async def test_the_bot_takes_part_in_the_threads_that_were_joined_and_in_no_other(store: Store) -> None:
    await accepted(store, inbound("k1", thread="t1"))
    assert not await store.takes_part(place(thread="t1"))
    assert await store.accept(inbound("k2"), Lane.TURN, joins=place(thread="t2")) is not None
    assert await store.takes_part(place(thread="t2"))
    ann = replace(place(thread="t2"), user="ann")
    for other in (place(thread="t3"), place("garden", thread="t2"), place(thread="t2", channel="other"), ann):
        assert not await store.takes_part(other)
    assert await store.accept(inbound("k3"), Lane.TURN, joins=ann) is not None
    assert await store.takes_part(ann)


async def test_a_redelivered_event_joins_nothing(store: Store) -> None:
    await accepted(store, inbound("k1"))
    assert await store.accept(inbound("k1"), Lane.TURN, joins=place(thread="t1")) is None
    assert not await store.takes_part(place(thread="t1"))


async def test_a_thread_stays_joined_when_its_chat_gets_another_id(store: Store) -> None:
    await store.accept(inbound("k1", "old", thread="t1"), Lane.TURN, joins=place("old", thread="t1"))
    await store.rekey(CHANNEL, "old", "new")
    assert await store.takes_part(place("new", thread="t1"))


async def test_a_thread_stays_joined_as_long_as_questions_come(store: Store, lease: Lease, clock: ManualClock) -> None:
    thread = place(thread="t1")
    for key in ("k1", "k2"):
        await store.accept(inbound(key, thread="t1"), Lane.TURN, joins=thread)
        (turn,) = await store.claim(lease, 1)
        await store.save_final(lease, turn.id, ANSWER, None)
        await store.finish(lease, turn.id)
        await clock.advance(10.0)
    for before, still in ((START + 5.0, True), (START + 15.0, False)):
        await store.prune(turns_before=before, inbounds_before=before)
        assert await store.takes_part(thread) is still


# ---------------------------------------------------------------- begun anew


async def test_a_command_becomes_the_first_question_of_a_new_generation_once(store: Store, lease: Lease) -> None:
    done = await answered(store, lease, "k1")
    command = await accepted(store, inbound("k2"), Lane.CONTROL)
    question = replace(command.inbound, text="the rest of it")
    for _ in range(2):
        await store.ask_anew(lease, command.id, question)
        await store.control_done(lease, command.id)
    assert await store.controls(lease) == []
    (turn,) = await store.claim(lease, 10)
    assert turn.inbounds == (question,)
    assert turn.conversation.id == done.conversation.id
    assert (turn.conversation.generation, turn.conversation.thread_id) == (1, None)
    assert await store.accept(inbound("k2"), Lane.CONTROL) is None
    await store.ask_anew(lease, command.id, question)
    assert (await known(store, turn)).conversation.generation == 1


async def test_a_command_that_was_handled_asks_nothing(store: Store, lease: Lease) -> None:
    command = await accepted(store, inbound("k1"), Lane.CONTROL)
    await store.control_done(lease, command.id)
    await store.ask_anew(lease, command.id, command.inbound)
    assert await store.claim(lease, 10) == []
    conversation = await store.conversation_at(command.inbound.place)
    assert conversation is not None
    assert conversation.generation == 0


# ---------------------------------------------------------------- commits that nobody saw


async def test_a_turn_whose_commit_was_not_seen_is_given_out_by_the_next_claim(
    store: Store, lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = await answered(store, lease, "k1", "a")
    shown = await answered(store, lease, "k0", "c")
    await accepted(store, inbound("k2", "b"))
    control = await accepted(store, inbound("status"), Lane.CONTROL)
    with _answers_lost(monkeypatch):
        for call in (
            store.claim(lease, 10),
            store.requeue(lease, done.id),
            store.retouch(lease, shown.id, ANSWER),
            store.answer_control(lease, control.id, ANSWER),
        ):
            with pytest.raises(StoreUnavailable):
                await call
    assert [keys(turn) for turn in await store.claim(lease, 10)] == [["k0"], ["k2"], ["k1"], ["status"]]
    assert await store.claim(lease, 10) == []


async def test_a_turn_whose_claim_got_no_answer_is_given_out_whoever_has_looked_meanwhile(
    store: Store, lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    await accepted(store, inbound("k1"))
    with _answers_lost(monkeypatch), pytest.raises(StoreUnavailable):
        await store.claim(lease, 10)
    assert [keys(turn) for turn in await store.unfinished(lease)] == [["k1"]]
    assert [keys(turn) for turn in await store.claim(lease, 10)] == [["k1"]]
    assert await store.claim(lease, 10) == []


async def test_a_turn_of_a_claim_that_is_done_after_its_caller_gave_up_is_given_out(
    store: Store, lease: Lease, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await accepted(store, inbound("k1"))
    with blocked(database_url):
        with monkeypatch.context() as impatient:
            impatient.setattr(database, "_UNIT", 0.1)
            with pytest.raises(StoreUnavailable):
                await store.claim(lease, 10)
        asking = asyncio.create_task(store.claim(lease, 10))
        await asyncio.sleep(0)  # it is asked for while the first one is under way
    assert [keys(turn) for turn in await asking] == [["k1"]]
    assert await store.claim(lease, 10) == []


@contextlib.contextmanager
def blocked(url: str) -> Iterator[None]:
    """Nobody can write under a lease: somebody else is at it."""
    engine = create_engine(parse_url(url))
    with engine.begin() as connection:
        connection.execute(sa.select(leases).with_for_update())
        yield
    engine.dispose()


@contextlib.contextmanager
def _answers_lost(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Everything is committed, but nobody gets to know."""
    write = Database.write

    async def write_and_lose_the_answer(database: Database, work: Work[object]) -> object:
        await write(database, work)
        raise StoreUnavailable("the connection broke at the commit")

    with monkeypatch.context() as patch:
        patch.setattr(Database, "write", write_and_lose_the_answer)
        yield


# ---------------------------------------------------------------- control lane


async def test_control_inbounds_wait_for_no_turn(store: Store, lease: Lease) -> None:
    turn = await claimed(store, lease, "k1")
    stop = await accepted(store, inbound("stop"), Lane.CONTROL)
    status = await accepted(store, inbound("status"), Lane.CONTROL)
    assert stop.conversation_id == turn.conversation.id
    assert await store.controls(lease) == [stop, status]
    await store.control_done(lease, stop.id)
    assert await store.controls(lease) == [status]


async def test_control_inbounds_are_no_turns_and_do_not_count_as_waiting(store: Store, lease: Lease) -> None:
    stored = await accepted(store, inbound("stop"), Lane.CONTROL)
    assert await store.claim(lease, 10) == []
    assert await store.waiting(stored.conversation_id) == 0
    assert await store.next_ready(lease) is None
    assert await store.drop_waiting(lease, "lobby", "message-stop") == 0


async def test_a_handled_control_inbound_is_still_known_to_redeliveries(store: Store, lease: Lease) -> None:
    stored = await accepted(store, inbound("stop"), Lane.CONTROL)
    await store.control_done(lease, stored.id)
    assert await store.accept(inbound("stop"), Lane.CONTROL) is None


async def test_an_answer_to_a_control_inbound_is_a_turn_that_blocks_nobody(store: Store, lease: Lease) -> None:
    stored = await accepted(store, inbound("status"), Lane.CONTROL)
    turn = await store.answer_control(lease, stored.id, ANSWER)
    assert (turn.state, turn.final, turn.inbounds) == (TurnState.RETOUCH, ANSWER, (stored.inbound,))
    assert await store.controls(lease) == []
    assert await store.unfinished(lease) == [turn]
    assert await store.open_turn(stored.conversation_id) is None
    assert keys(await claimed(store, lease, "k1")) == ["k1"]
    await store.finish(lease, turn.id)
    assert (await known(store, turn)).state is TurnState.DONE


async def test_a_control_inbound_is_answered_once(store: Store, lease: Lease) -> None:
    stored = await accepted(store, inbound("status"), Lane.CONTROL)
    turn = await store.answer_control(lease, stored.id, ANSWER)
    assert await store.answer_control(lease, stored.id, View()) == turn
    silent = await accepted(store, inbound("stop"), Lane.CONTROL)
    await store.control_done(lease, silent.id)
    with pytest.raises(StoreError, match="without an answer"):
        await store.answer_control(lease, silent.id, ANSWER)
    question = await accepted(store, inbound("k1"))
    with pytest.raises(StoreError, match="no control inbound"):
        await store.answer_control(lease, question.id, ANSWER)


async def test_the_answer_to_a_control_inbound_is_never_asked_again(store: Store, lease: Lease) -> None:
    question = await answered(store, lease, "k1")
    stored = await accepted(store, inbound("status"), Lane.CONTROL)
    turn = await store.answer_control(lease, stored.id, ANSWER)
    await store.finish(lease, turn.id)
    assert await store.last_turn(stored.conversation_id) == question
    assert await store.requeue(lease, turn.id) is None


async def test_nothing_is_written_for_a_duplicate(store: Store, database_url: str) -> None:
    await accepted(store, inbound("k1"))
    before = contents(database_url)
    await store.accept(inbound("k1", "another-chat"), Lane.TURN)
    assert contents(database_url) == before


async def test_a_new_turn_goes_on_in_the_thread_of_its_conversation(store: Store, lease: Lease) -> None:
    await answered(store, lease, "k1")
    turn = await claimed(store, lease, "k2")
    assert turn.thread_id is None
    assert turn.conversation.thread_id == ThreadId("thread-lobby")


async def test_what_waits_is_claimed_in_the_order_in_which_it_was_asked_not_brought(
    store: Store, lease: Lease, clock: ManualClock
) -> None:
    await clock.advance(5)
    await accepted(store, inbound("late", at=START, sent_at=START + 4))
    await accepted(store, inbound("early", at=START + 5, sent_at=START + 2))
    await accepted(store, inbound("now", at=START + 3))
    assert [keys(turn) for turn in await all_turns(store, lease)] == [["early"], ["now"], ["late"]]


async def test_what_was_asked_behind_a_command_waits_until_that_is_handled(store: Store, lease: Lease) -> None:
    before = await accepted(store, inbound("before", "hall"))
    await accepted(store, inbound("elsewhere", "garden"))
    command = await accepted(store, inbound("/new"), Lane.CONTROL)
    await accepted(store, inbound("behind"))
    late = await accepted(store, inbound("/stop", "hall", sent_at=START + 5), Lane.CONTROL)
    assert {*map(first_key, await store.claim(lease, 10))} == {"before", "elsewhere"}
    assert (before.conversation_id, late.conversation_id) != (command.conversation_id, command.conversation_id)
    woken: list[str] = []
    store.subscribe(woken.append)
    await store.control_done(lease, command.id)
    await asyncio.sleep(0.01)
    assert woken != []
    assert [keys(turn) for turn in await store.claim(lease, 10)] == [["behind"]]


def first_key(turn: Turn) -> str:
    return keys(turn)[0]


async def test_the_members_of_a_turn_are_in_the_order_in_which_they_were_asked(store: Store, lease: Lease) -> None:
    await accepted(store, inbound("second", group="g", sent_at=START + 4))
    await accepted(store, inbound("first", group="g", sent_at=START + 2))
    (turn,) = await store.claim(lease, 10)
    assert keys(turn) == ["first", "second"]


async def test_what_an_earlier_version_accepted_meanwhile_keeps_its_place(
    store: Store, lease: Lease, clock: ManualClock
) -> None:
    await accepted(store, inbound("new", at=START))
    await clock.advance(2)
    await accepted(store, inbound("old", at=START + 2))
    await store._database.write(_forget_when_it_was_asked("old"))
    await clock.advance(2)
    await accepted(store, inbound("newest", at=START + 4))
    assert [keys(turn) for turn in await all_turns(store, lease)] == [["new"], ["old"], ["newest"]]


def _forget_when_it_was_asked(key: str) -> Work[None]:
    def forget(tx: Transaction) -> None:
        tx.connection.execute(inbounds.update().where(inbounds.c.event_key == key).values(asked_at=None))

    return forget


async def all_turns(store: Store, lease: Lease) -> list[Turn]:
    """Claim and finish one turn after the other until nothing waits."""
    turns: list[Turn] = []
    while claimed_now := await store.claim(lease, 1):
        turns += claimed_now
        await store.finish(lease, claimed_now[0].id)
    return turns
