"""A turn is carried from claim to end, each step recorded, and can be asked again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from channels.model import Phase, RunId, Segment, ThreadId, TurnId, View, new_turn_id
from channels.store import Store
from channels.store.records import Counts, Lane, Lease, StoreError, Turn, TurnState
from tests.channels.store.conftest import OpenStore
from tests.channels.store.samples import (
    ANSWER,
    CHANNEL,
    accepted,
    answered,
    claimed,
    contents,
    inbound,
    keys,
    known,
    owned,
)


@pytest.fixture
async def lease(store: Store) -> Lease:
    return await owned(store)


async def test_each_step_of_a_turn_is_recorded(store: Store, lease: Lease) -> None:
    turn = await claimed(store, lease)
    await store.set_thread(lease, turn.id, ThreadId("t1"))
    after_thread = await known(store, turn)
    assert (after_thread.state, after_thread.thread_id) == (TurnState.THREAD, "t1")
    assert after_thread.conversation.thread_id == "t1"
    await store.run_requested(lease, turn.id)
    assert (await known(store, turn)).state is TurnState.REQUESTED
    await store.run_started(lease, turn.id, RunId("r1"), "without a.png")
    running = await known(store, turn)
    assert (running.state, running.run_id, running.remark) == (TurnState.RUNNING, "r1", "without a.png")
    await store.save_shown(lease, turn.id, {"message": "m1"}, ["m1"])
    assert (await known(store, turn)).shown == {"message": "m1"}
    await store.save_final(lease, turn.id, ANSWER, {"question": "sure?"}, "slow")
    final = await known(store, turn)
    assert (final.state, final.final, final.note) == (TurnState.FINAL, ANSWER, "slow")
    assert final.conversation.pending == {"question": "sure?"}
    await store.finish(lease, turn.id)
    done = await known(store, turn)
    assert (done.state, done.note) == (TurnState.DONE, "slow")


async def test_another_process_finds_unfinished_turns_as_they_were_left(open_store: OpenStore) -> None:
    first = await open_store()
    lease = await owned(first)
    left = [await claimed(first, lease, f"k{n}", f"chat{n}") for n in range(3)]
    await first.set_thread(lease, left[1].id, ThreadId("t1"))
    await first.run_requested(lease, left[1].id)
    await first.save_final(lease, left[2].id, ANSWER, None)
    await first.save_shown(lease, left[2].id, {"stream": "s"}, ["m"])
    expected = [await known(first, turn) for turn in left]
    await first.close()
    second = await open_store()
    assert await second.unfinished(await owned(second)) == expected


async def test_an_open_turn_is_found_by_its_conversation(store: Store, lease: Lease) -> None:
    turn = await claimed(store, lease)
    assert await store.open_turn(turn.conversation.id) == turn
    await store.finish(lease, turn.id)
    assert await store.open_turn(turn.conversation.id) is None


async def test_the_last_turn_is_the_newest_whatever_its_state(store: Store, lease: Lease) -> None:
    first = await answered(store, lease, "k1")
    assert await store.last_turn(first.conversation.id) == first
    second = await claimed(store, lease, "k2")
    assert await store.last_turn(first.conversation.id) == second
    assert await store.last_turn(999) is None


async def test_an_unknown_turn_is_none(store: Store) -> None:
    assert await store.turn(new_turn_id()) is None


async def test_a_finished_turn_does_not_come_back_to_life(store: Store, lease: Lease) -> None:
    turn = await answered(store, lease)
    for step in (
        store.set_thread(lease, turn.id, ThreadId("t2")),
        store.run_requested(lease, turn.id),
        store.run_started(lease, turn.id, RunId("r2")),
        store.save_shown(lease, turn.id, None, []),
        store.save_final(lease, turn.id, View(), None),
    ):
        with pytest.raises(StoreError, match="not at work"):
            await step
    assert await known(store, turn) == turn


async def test_finishing_twice_is_the_same_as_once(store: Store, lease: Lease) -> None:
    turn = await answered(store, lease)
    await store.finish(lease, turn.id)
    assert await known(store, turn) == turn


async def test_an_unknown_turn_cannot_be_finished(store: Store, lease: Lease) -> None:
    with pytest.raises(StoreError, match="no turn"):
        await store.finish(lease, TurnId("0" * 32))


async def test_a_turn_cannot_be_finished_into_an_open_state(store: Store, lease: Lease) -> None:
    turn = await claimed(store, lease)
    with pytest.raises(ValueError, match="does not end"):
        await store.finish(lease, turn.id, TurnState.RUNNING)


async def test_a_turn_of_another_channel_is_out_of_reach(store: Store, lease: Lease) -> None:
    turn = await claimed(store, lease)
    other = await owned(store, channel="other")
    with pytest.raises(StoreError):
        await store.set_thread(other, turn.id, ThreadId("t"))
    with pytest.raises(StoreError):
        await store.finish(other, turn.id)
    assert await known(store, turn) == turn


# ---------------------------------------------------------------- conversations


async def test_an_answered_question_waits_no_longer(store: Store, lease: Lease) -> None:
    turn = await claimed(store, lease)
    await store.save_final(lease, turn.id, ANSWER, {"question": 1})
    assert (await known(store, turn)).conversation.pending == {"question": 1}
    await store.save_final(lease, turn.id, ANSWER, None)
    assert (await known(store, turn)).conversation.pending is None


async def test_a_new_generation_has_neither_thread_nor_question(store: Store, lease: Lease) -> None:
    turn = await claimed(store, lease)
    await store.save_final(lease, turn.id, ANSWER, "question")
    fresh = await store.new_generation(lease, turn.conversation.id)
    assert (fresh.id, fresh.generation, fresh.thread_id, fresh.pending) == (turn.conversation.id, 1, None, None)
    assert await store.conversation_at(fresh.place) == fresh


async def test_a_turn_from_before_a_new_generation_does_not_bring_its_thread_or_question_back(
    store: Store, lease: Lease
) -> None:
    turn = await claimed(store, lease)
    fresh = await store.new_generation(lease, turn.conversation.id)
    await store.set_thread(lease, turn.id, ThreadId("old"))
    await store.save_final(lease, turn.id, ANSWER, {"question": "old"})
    after = await known(store, turn)
    assert after.thread_id == "old"
    assert after.conversation == fresh


async def test_an_unknown_conversation_cannot_be_changed(store: Store, lease: Lease) -> None:
    with pytest.raises(StoreError, match="no conversation"):
        await store.new_generation(lease, 999)


# ---------------------------------------------------------------- retouch


async def test_a_retouched_turn_is_open_again_but_blocks_nobody(store: Store, lease: Lease) -> None:
    turn = await answered(store, lease, "k1")
    closed = View(phase=Phase.ASKING, body=(Segment("m1", "Answered."),), revision=9)
    retouched = await store.retouch(lease, turn.id, closed)
    assert retouched is not None
    assert (retouched.state, retouched.final, retouched.shown) == (TurnState.RETOUCH, closed, turn.shown)
    assert await store.unfinished(lease) == [retouched]
    assert await store.open_turn(turn.conversation.id) is None
    assert keys(await claimed(store, lease, "k2")) == ["k2"]
    await store.save_shown(lease, turn.id, {"edited": True}, [])
    await store.finish(lease, turn.id)
    assert (await known(store, turn)).state is TurnState.DONE


async def test_a_turn_that_is_not_settled_keeps_its_state_when_retouched(store: Store, lease: Lease) -> None:
    turn = await claimed(store, lease)
    await store.save_final(lease, turn.id, ANSWER, None)
    changed = View(phase=Phase.DONE, notice="changed")
    retouched = await store.retouch(lease, turn.id, changed)
    assert retouched is not None
    assert (retouched.state, retouched.final) == (TurnState.FINAL, changed)
    assert await store.open_turn(turn.conversation.id) == retouched


CHANGED = View(phase=Phase.DONE, notice="changed")


@pytest.mark.parametrize("state", [TurnState.FINAL, TurnState.RETOUCH])
async def test_a_turn_that_was_changed_while_it_was_being_shown_is_shown_again_by_whoever_owns_it(
    store: Store, lease: Lease, open_store: OpenStore, state: TurnState
) -> None:
    turn = await being_shown(store, lease, state)
    await store.retouch(lease, turn.id, CHANGED)
    await store.finish(lease, turn.id)
    again = await known(store, turn)
    assert (again.state, again.final) == (TurnState.RETOUCH, CHANGED)
    assert await store.open_turn(turn.conversation.id) is None, "it blocks nobody any more"
    assert await store.claim(lease, 10) == [again]
    assert await store.claim(lease, 10) == []
    assert await (await open_store()).unfinished(lease) == [again], "after a crash"
    await store.finish(lease, turn.id)
    assert (await known(store, turn)).state is TurnState.DONE


async def being_shown(store: Store, lease: Lease, state: TurnState) -> Turn:
    if state is TurnState.RETOUCH:
        done = await answered(store, lease, "k1")
        turn = await store.retouch(lease, done.id, replace(CHANGED, notice="changed before"))
        assert turn is not None
        return turn
    turn = await claimed(store, lease)
    await store.save_final(lease, turn.id, ANSWER, None)
    return await known(store, turn)


async def test_a_turn_that_was_changed_to_what_is_being_shown_is_done(store: Store, lease: Lease) -> None:
    turn = await being_shown(store, lease, TurnState.FINAL)
    await store.retouch(lease, turn.id, ANSWER)
    await store.finish(lease, turn.id)
    assert (await known(store, turn)).state is TurnState.DONE


async def test_who_takes_over_a_turn_after_it_was_changed_shows_it_once(
    store: Store, lease: Lease, open_store: OpenStore
) -> None:
    turn = await being_shown(store, lease, TurnState.FINAL)
    await store.retouch(lease, turn.id, CHANGED)
    successor = await open_store()
    assert [found.final for found in await successor.unfinished(lease)] == [CHANGED]
    await successor.finish(lease, turn.id)
    assert (await known(store, turn)).state is TurnState.DONE


@pytest.mark.parametrize("state", [TurnState.DONE, TurnState.DEAD])
async def test_a_turn_that_is_given_up_is_over_also_when_it_was_changed(
    store: Store, lease: Lease, state: TurnState
) -> None:
    turn = await being_shown(store, lease, TurnState.FINAL)
    await store.retouch(lease, turn.id, CHANGED)
    await store.finish(lease, turn.id, state, "could not be shown")
    assert (await known(store, turn)).state is state
    assert await store.claim(lease, 10) == []


async def test_there_is_nothing_to_retouch_before_a_final_view_or_after_giving_up(store: Store, lease: Lease) -> None:
    turn = await claimed(store, lease)
    assert await store.retouch(lease, turn.id, ANSWER) is None
    await store.finish(lease, turn.id, TurnState.DEAD)
    assert await store.retouch(lease, turn.id, ANSWER) is None
    assert await store.retouch(lease, new_turn_id(), ANSWER) is None
    assert (await known(store, turn)).final is None


# ---------------------------------------------------------------- dead letters and asking again


async def test_a_dead_letter_is_seen_counted_and_frees_its_conversation(store: Store, lease: Lease) -> None:
    turn = await claimed(store, lease, "k1")
    await store.finish(lease, turn.id, TurnState.DEAD, "the gateway was away for a day")
    (dead,) = await store.dead_letters()
    assert (dead.id, dead.note) == (turn.id, "the gateway was away for a day")
    assert await store.counts() == [Counts(CHANNEL, waiting=0, open_turns=0, dead=1)]
    assert keys(await claimed(store, lease, "k2")) == ["k2"]


async def test_dead_letters_come_newest_first_by_channel_and_bounded(store: Store, lease: Lease) -> None:
    other = await owned(store, channel="other")
    for n in range(3):
        await store.finish(lease, (await claimed(store, lease, f"k{n}")).id, TurnState.DEAD)
    await store.finish(other, (await claimed(store, other, "o")).id, TurnState.DEAD)
    assert [keys(turn) for turn in await store.dead_letters()] == [["o"], ["k2"], ["k1"], ["k0"]]
    assert [keys(turn) for turn in await store.dead_letters(CHANNEL, limit=2)] == [["k2"], ["k1"]]


async def test_a_dead_letter_asked_again_is_a_new_turn_of_the_same_inbounds(store: Store, lease: Lease) -> None:
    await accepted(store, inbound("k1", group="album"))
    await accepted(store, inbound("k2", group="album"))
    (turn,) = await store.claim(lease, 1)
    await store.finish(lease, turn.id, TurnState.DEAD)
    again = await store.requeue(lease, turn.id)
    assert again is not None
    assert again.id != turn.id
    assert (again.state, again.inbounds) == (TurnState.CLAIMED, turn.inbounds)
    assert await store.open_turn(turn.conversation.id) == again
    assert await store.unfinished(lease) == [again]
    assert await store.dead_letters() == []
    assert (await known(store, turn)).inbounds == turn.inbounds


async def test_any_finished_turn_can_be_asked_again(store: Store, lease: Lease) -> None:
    turn = await answered(store, lease, "k1")
    again = await store.requeue(lease, turn.id)
    assert again is not None
    assert again.conversation == turn.conversation
    assert await store.last_turn(turn.conversation.id) == again


async def test_a_question_is_not_asked_again_while_its_conversation_is_held(store: Store, lease: Lease) -> None:
    first = await answered(store, lease, "k1")
    second = await claimed(store, lease, "k2")
    assert await store.requeue(lease, first.id) is None
    assert await store.requeue(lease, second.id) is None
    assert await store.requeue(lease, new_turn_id()) is None
    assert await store.unfinished(lease) == [second]


async def test_what_waits_comes_after_a_question_that_is_asked_again(store: Store, lease: Lease) -> None:
    turn = await claimed(store, lease, "k1")
    await accepted(store, inbound("k2"))
    await store.finish(lease, turn.id, TurnState.DEAD)
    again = await store.requeue(lease, turn.id)
    assert again is not None
    assert await store.claim(lease, 10) == []
    await store.finish(lease, again.id)
    assert [keys(turn) for turn in await store.claim(lease, 10)] == [["k2"]]


# ---------------------------------------------------------------- numbers and feedback


async def test_counts_tell_what_waits_is_at_work_and_is_dead_by_channel(store: Store, lease: Lease) -> None:
    other = await owned(store, channel="other")
    await store.finish(lease, (await claimed(store, lease, "k1")).id, TurnState.DEAD)
    done = await answered(store, lease, "k2")
    await store.retouch(lease, done.id, ANSWER)
    await claimed(store, lease, "k3")
    await accepted(store, inbound("k4"))
    await accepted(store, inbound("stop"), Lane.CONTROL)
    await accepted(store, inbound("k5", channel=other.channel))
    assert await store.counts() == [
        Counts("other", waiting=1, open_turns=0, dead=0),
        Counts(CHANNEL, waiting=1, open_turns=2, dead=1),
    ]


async def test_feedback_is_kept_once_for_each_person(store: Store, lease: Lease, database_url: str) -> None:
    turn = await answered(store, lease)
    assert await store.save_feedback(turn.id, "ada", "down")
    assert await store.save_feedback(turn.id, "ada", "up")
    assert await store.save_feedback(turn.id, "bob", "down")
    assert [row[1:3] for row in contents(database_url)["feedback"]] == [("ada", "up"), ("bob", "down")]


async def test_feedback_for_an_unknown_turn_is_told_apart(store: Store) -> None:
    assert not await store.save_feedback(new_turn_id(), "ada", "up")
