"""What this version cannot read is given up where people see it, holds up nobody, and can be asked again."""

from __future__ import annotations

import json
from collections.abc import Iterator, MutableMapping
from dataclasses import replace
from typing import Protocol

import pytest
import sqlalchemy as sa
from pydantic import JsonValue
from structlog.testing import capture_logs

from channels.model import RunId, ThreadId
from channels.store import Store
from channels.store.codec import inbound_to_json
from channels.store.database import Transaction
from channels.store.records import Counts, Lane, Lease, Turn, TurnState
from channels.store.schema import conversations, inbounds, turns
from tests.channels.store.samples import ANSWER, CHANNEL, accepted, answered, claimed, inbound, keys, known, owned

SECRET = "something private that somebody wrote"
NEWER = inbound_to_json(replace(inbound("k1"), text=SECRET))
assert isinstance(NEWER, dict)
SPOILED = {
    "a kind of a newer version": json.dumps(NEWER | {"kind": "reaction"}),
    "another shape": json.dumps([SECRET]),
    "damaged": json.dumps(NEWER)[:-5],
}
spoiled = pytest.mark.parametrize("text", SPOILED.values(), ids=SPOILED.keys())


@pytest.fixture
async def lease(store: Store) -> Lease:
    return await owned(store)


@pytest.fixture(autouse=True)
def logs() -> Iterator[list[MutableMapping[str, JsonValue]]]:
    with capture_logs() as records:
        yield records


class Spoil(Protocol):
    """Writes a text over a column of the one row in which another column has this value, as another version might."""

    async def __call__(self, column: sa.Column[str], text: str, where: sa.ColumnElement[bool]) -> JsonValue: ...


@pytest.fixture
def spoil(store: Store) -> Spoil:
    async def spoil(column: sa.Column[str], text: str, where: sa.ColumnElement[bool]) -> JsonValue:
        def work(tx: Transaction) -> JsonValue:
            before: JsonValue = tx.connection.execute(sa.select(column).where(where)).scalar_one()
            raw = sa.literal(text, sa.Text)
            changed = sa.update(column.table).where(where).values({column.name: raw})
            assert tx.connection.execute(changed).rowcount == 1
            return before

        return await store._database.write(work)

    return spoil


def asked(key: str) -> sa.ColumnElement[bool]:
    return inbounds.c.event_key == key


async def counted(store: Store) -> Counts:
    (counts,) = await store.counts()
    return counts


# ---------------------------------------------------------------- questions


@spoiled
async def test_a_question_that_cannot_be_read_becomes_a_dead_letter_and_holds_up_nobody(
    store: Store, lease: Lease, spoil: Spoil, text: str
) -> None:
    for key, chat in (("k1", "one"), ("k2", "two"), ("k3", "one")):
        await accepted(store, inbound(key, chat))
    await spoil(inbounds.c.payload, text, asked("k1"))
    assert [keys(turn) for turn in await store.claim(lease, 10)] == [["k2"]]
    assert [keys(turn) for turn in await store.claim(lease, 10)] == [["k3"]]
    (letter,) = await store.dead_letters()
    assert (letter.inbounds, letter.conversation.channel) == ((), CHANNEL)
    assert "cannot be read by this version" in letter.note
    assert await counted(store) == Counts(CHANNEL, waiting=0, open_turns=2, dead=1)


async def test_one_of_a_group_that_cannot_be_read_takes_the_group_with_it_and_no_other(
    store: Store, lease: Lease, spoil: Spoil
) -> None:
    for key, group in (("k1", "album"), ("k2", "album"), ("k3", None)):
        await accepted(store, inbound(key, group=group))
    await spoil(inbounds.c.payload, SPOILED["damaged"], asked("k2"))
    assert await store.claim(lease, 10) == []
    assert [keys(turn) for turn in await store.claim(lease, 10)] == [["k3"]]


@spoiled
async def test_an_operator_is_told_once_which_conversation_it_is_and_what_to_do_but_not_what_was_written(
    store: Store, lease: Lease, spoil: Spoil, logs: list[MutableMapping[str, JsonValue]], text: str
) -> None:
    stored = await accepted(store, inbound("k1"))
    await spoil(inbounds.c.payload, text, asked("k1"))
    for _ in range(3):
        assert await store.claim(lease, 10) == []
        assert await store.unfinished(lease) == []
    (entry,) = [entry for entry in logs if "cannot be read" in str(entry["event"])]
    (letter,) = await store.dead_letters()
    assert (entry["channel"], entry["conversation"], entry["turn"]) == (CHANNEL, stored.conversation_id, letter.id)
    for words in (str(entry["event"]), letter.note):
        assert "ask it again from the console" in words
    assert SECRET not in f"{entry} {letter.note}"


async def test_a_version_that_can_read_it_asks_it_again(store: Store, lease: Lease, spoil: Spoil) -> None:
    await accepted(store, inbound("k1"))
    before = await spoil(inbounds.c.payload, SPOILED["damaged"], asked("k1"))
    await store.claim(lease, 10)
    (letter,) = await store.dead_letters()
    assert await store.turn(letter.id) is None
    assert await store.last_turn(letter.conversation.id) is None
    await spoil(inbounds.c.payload, json.dumps(before), asked("k1"))
    assert [keys(turn) for turn in await store.dead_letters()] == [["k1"]]
    again = await store.requeue(lease, letter.id)
    assert again is not None
    assert (keys(again), again.state) == (["k1"], TurnState.CLAIMED)
    assert await store.dead_letters() == []


# ---------------------------------------------------------------- turns


def turn_row(turn: Turn) -> sa.ColumnElement[bool]:
    return turns.c.id == turn.id


async def started(store: Store, lease: Lease, key: str) -> Turn:
    turn = await claimed(store, lease, key, key)
    await store.set_thread(lease, turn.id, ThreadId("t"))
    await store.run_requested(lease, turn.id)
    await store.run_started(lease, turn.id, RunId("r"))
    return await known(store, turn)


@pytest.mark.parametrize("part", ["inbound", "final", "state", "place"])
async def test_an_unfinished_turn_that_cannot_be_read_is_given_up_and_the_others_go_on(
    store: Store, lease: Lease, spoil: Spoil, part: str
) -> None:
    bad, good = [await started(store, lease, key) for key in ("bad", "good")]
    if part == "final":
        await store.save_final(lease, bad.id, ANSWER, None)
    match part:
        case "inbound":
            await spoil(inbounds.c.payload, SPOILED["another shape"], asked("bad"))
        case "final":
            await spoil(turns.c.final, '{"phase": "dreaming"}', turn_row(bad))
        case "state":
            await spoil(turns.c.state, "suspended", turn_row(bad))
        case "place":
            await spoil(conversations.c.place, "nowhere", conversations.c.id == bad.conversation.id)
    assert await store.unfinished(lease) == [good]
    assert [letter.id for letter in await store.dead_letters()] == [bad.id]
    await accepted(store, inbound("next", "bad"))
    if part != "place":
        assert [keys(turn) for turn in await store.claim(lease, 10)] == [["next"]]


async def test_a_question_whose_answer_cannot_be_read_can_be_asked_again_at_once(
    store: Store, lease: Lease, spoil: Spoil
) -> None:
    turn = await started(store, lease, "k1")
    await store.save_final(lease, turn.id, ANSWER, None)
    await spoil(turns.c.final, '{"phase": "dreaming"}', turn_row(turn))
    await store.unfinished(lease)
    assert [keys(letter) for letter in await store.dead_letters()] == [["k1"]]
    again = await store.requeue(lease, turn.id)
    assert again is not None
    assert keys(again) == ["k1"]


async def test_an_answer_that_was_to_be_shown_once_more_is_no_dead_letter(
    store: Store, lease: Lease, spoil: Spoil
) -> None:
    turn = await answered(store, lease)
    await store.retouch(lease, turn.id, ANSWER)
    await spoil(turns.c.final, '{"phase": "dreaming"}', turn_row(turn))
    assert await store.unfinished(lease) == []
    assert await store.dead_letters() == []
    assert (await known(store, turn)).state is TurnState.DONE


# ---------------------------------------------------------------- commands


@spoiled
async def test_a_command_that_cannot_be_read_becomes_a_dead_letter_and_the_others_are_handled(
    store: Store, lease: Lease, spoil: Spoil, logs: list[MutableMapping[str, JsonValue]], text: str
) -> None:
    for key in ("k1", "k2"):
        await accepted(store, inbound(key), Lane.CONTROL)
    await spoil(inbounds.c.payload, text, asked("k1"))
    for _ in range(2):
        assert [stored.inbound.event_key for stored in await store.controls(lease)] == ["k2"]
    (letter,) = await store.dead_letters()
    assert (letter.inbounds, letter.state) == ((), TurnState.DEAD)
    assert (await counted(store)).dead == 1
    assert len([entry for entry in logs if "cannot be read" in str(entry["event"])]) == 1


async def test_a_command_that_was_given_up_is_handled_when_it_is_asked_again(
    store: Store, lease: Lease, spoil: Spoil
) -> None:
    await accepted(store, inbound("k1"), Lane.CONTROL)
    before = await spoil(inbounds.c.payload, SPOILED["damaged"], asked("k1"))
    await store.controls(lease)
    (letter,) = await store.dead_letters()
    await spoil(inbounds.c.payload, json.dumps(before), asked("k1"))
    assert await store.controls(lease) == [], "not by itself: it may be weeks old by then"
    assert await store.requeue(lease, letter.id) is None
    assert [stored.inbound.event_key for stored in await store.controls(lease)] == ["k1"]
    assert await store.dead_letters() == []


# ---------------------------------------------------------------- conversations


@pytest.mark.parametrize("reply_to", [None, "k1-a"], ids=["at its place", "in a reply to its answer"])
async def test_what_is_said_in_a_conversation_that_cannot_be_read_is_taken_and_begins_it_anew(
    store: Store, lease: Lease, spoil: Spoil, reply_to: str | None
) -> None:
    turn = await answered(store, lease)
    await spoil(conversations.c.place, "nowhere", conversations.c.id == turn.conversation.id)
    assert await store.conversation_at(turn.conversation.place) is None
    assert await store.conversation_of_message(CHANNEL, "lobby", "k1-a") is None
    await accepted(store, inbound("k2", reply_to=reply_to))
    (again,) = await store.claim(lease, 10)
    assert keys(again) == ["k2"]
    assert again.conversation.place == turn.conversation.place
    assert await known(store, turn), "what was said there before can be read again"


async def test_a_reply_into_a_conversation_that_cannot_be_read_is_taken_where_it_was_written(
    store: Store, lease: Lease, spoil: Spoil
) -> None:
    turn = await answered(store, lease)
    await spoil(conversations.c.place, "nowhere", conversations.c.id == turn.conversation.id)
    await accepted(store, inbound("k2", thread="t1", reply_to="k1-a"))
    (other,) = await store.claim(lease, 10)
    assert other.conversation.place.thread == "t1"


async def test_a_chat_moves_without_the_conversation_that_cannot_be_read(
    store: Store, lease: Lease, spoil: Spoil, logs: list[MutableMapping[str, JsonValue]]
) -> None:
    stored = [await accepted(store, inbound(key, thread=key)) for key in ("bad", "good")]
    await spoil(conversations.c.place, "nowhere", conversations.c.id == stored[0].conversation_id)
    await store.rekey(CHANNEL, "lobby", "hall")
    assert [(keys(turn), turn.question.place.chat) for turn in await store.claim(lease, 10)] == [(["good"], "hall")]
    assert [entry["conversation"] for entry in logs if "not moved" in str(entry["event"])] == [
        stored[0].conversation_id
    ]


# ---------------------------------------------------------------- looks through many


async def test_what_waits_and_cannot_be_read_does_not_disturb_a_look_for_something_else(
    store: Store, lease: Lease, spoil: Spoil
) -> None:
    for key in ("bad", "k1", "k2"):
        await accepted(store, inbound(key))
    conversation = (await accepted(store, inbound("k3"))).conversation_id
    await spoil(inbounds.c.payload, SPOILED["damaged"], asked("bad"))
    assert await store.drop_waiting(lease, "lobby", "message-k1") == 1
    assert await store.is_open(CHANNEL, "lobby", "message-k2")
    dropped = await store.stop_conversation(
        lease,
        conversation,
        "Stopped.",
        lambda asked: asked[0].event_key == "k2",
        and_what_waits=True,
    )
    assert dropped.dropped == 1
    await store.rekey(CHANNEL, "lobby", "hall")
    assert await store.claim(lease, 10) == []
    (turn,) = await store.claim(lease, 10)
    assert (keys(turn), turn.question.place.chat) == (["k3"], "hall")
