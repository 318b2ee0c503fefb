"""What comes while the store is away: never acked, never lost, and answered as soon as the store is back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from channels import inbox as inbox_module
from channels.access import BusyPolicy, Groups, Policy
from channels.adapter import Accepted, StoreAway
from channels.inbox import Inbox
from channels.model import Inbound, Place
from channels.observe import Metrics
from channels.store import Store
from channels.store.database import Transaction
from channels.store.records import Lane, StoredInbound, Unstorable
from channels.store.schema import conversations
from tests.channels.store.samples import CHANNEL, START, answered, inbound, keys, owned
from tests.clock import ManualClock


class FlakyStore(Store):
    """A store that takes nothing while it is away."""

    is_away = False

    async def accept(self, inbound: Inbound, lane: Lane, *, joins: Place | None = None) -> StoredInbound | None:
        if self.is_away:
            raise StoreAway("away")
        return await super().accept(inbound, lane, joins=joins)


class Desk:
    """An inbox, its store, and who stores what was postponed."""

    def __init__(self, store: FlakyStore, clock: ManualClock, policy: Policy) -> None:
        self.store = store
        self.clock = clock
        self.inbox = Inbox(CHANNEL, policy, store, clock, Metrics())
        self._storing = asyncio.create_task(self.inbox.store_postponed())

    async def turned_away(self, asked: Inbound) -> None:
        with pytest.raises(StoreAway):
            await self.inbox.accept(asked)

    async def pass_by(self, seconds: int = 20) -> list[str]:
        """Let time pass, and the threads of the store with it; what was stored meanwhile."""
        lease = await owned(self.store)
        claimed: list[str] = []
        for _ in range(seconds):
            await self.clock.advance(1.0)
            for turn in await self.store.claim(lease, 2_000):
                claimed.extend(keys(turn))
        await self.store.release(lease)
        return sorted(claimed)

    async def until_stored(self, *expected: str) -> None:
        stored: list[str] = []
        async with asyncio.timeout(20):
            while len(stored) < len(expected):
                stored += await self.pass_by(1)
        assert sorted(stored) == sorted(expected)

    async def close(self) -> None:
        self._storing.cancel()
        await asyncio.gather(self._storing, return_exceptions=True)
        await self.store.close()


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    clock = ManualClock(START)
    store = await FlakyStore.open(f"sqlite:///{tmp_path / 'bridge.db'}", clock)
    desk = Desk(store, clock, Policy(groups=Groups.ALL))
    yield desk
    await desk.close()


def asked(key: str, *, comes_again: bool = True) -> Inbound:
    return inbound(key, f"chat of {key}", comes_again=comes_again)


async def test_what_came_while_the_store_was_away_is_stored_without_being_brought_again(desk: Desk) -> None:
    desk.store.is_away = True
    for number in range(3):
        await desk.turned_away(asked(f"k{number}"))
    assert await desk.pass_by() == []
    desk.store.is_away = False
    await desk.until_stored("k0", "k1", "k2")


async def test_what_was_postponed_is_stored_in_the_order_in_which_it_was_asked(desk: Desk) -> None:
    desk.store.is_away = True
    for number in range(7):
        await desk.turned_away(inbound(f"k{number}", sent_at=START + number))
        await desk.clock.advance(1.0)  # some are tried, in vain
    desk.store.is_away = False
    stored: list[str] = []
    accept = desk.store.accept

    async def noted(inbound: Inbound, lane: Lane, *, joins: Place | None = None) -> StoredInbound | None:
        stored.append(inbound.event_key)
        return await accept(inbound, lane, joins=joins)

    desk.store.accept = noted  # type: ignore[method-assign]
    async with asyncio.timeout(20):
        while len(stored) < 7:
            await desk.pass_by(1)
    assert stored == [f"k{number}" for number in range(7)]


async def test_what_is_brought_again_in_the_meantime_is_one_inbound(desk: Desk) -> None:
    desk.store.is_away = True
    await desk.turned_away(asked("k1"))
    await desk.turned_away(asked("k1"))
    desk.store.is_away = False
    assert await desk.inbox.accept(asked("k1")) is Accepted.TAKEN
    assert await desk.pass_by() == ["k1"]
    assert await desk.inbox.accept(asked("k1")) is Accepted.DUPLICATE


async def test_what_the_person_was_told_to_do_again_is_not_done_behind_their_back(desk: Desk) -> None:
    desk.store.is_away = True
    await desk.turned_away(asked("k1", comes_again=False))
    desk.store.is_away = False
    assert await desk.pass_by() == []


async def test_what_cannot_be_stored_does_not_hold_up_the_rest_and_is_given_up_after_an_hour(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept = desk.store.accept
    tried: list[str] = []

    async def choosy(given: Inbound, lane: Lane, *, joins: Place | None = None) -> StoredInbound | None:
        tried.append(given.event_key)
        if given.event_key == "bad":
            raise StoreAway("this one never")
        return await accept(given, lane, joins=joins)

    monkeypatch.setattr(desk.store, "accept", choosy)
    desk.store.is_away = True
    await desk.turned_away(asked("bad"))
    await desk.turned_away(asked("good"))
    desk.store.is_away = False
    await desk.until_stored("good")
    await desk.clock.advance(3_600)
    await desk.pass_by()
    tried.clear()
    assert await desk.pass_by() == []
    assert tried == []


@pytest.mark.parametrize(
    "error", [Unstorable("a value out of range"), KeyError("a fault of ours")], ids=["value", "us"]
)
async def test_what_can_never_be_stored_is_left_out_instead_of_coming_again_for_ever(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def refuse(*_: object, **__: object) -> StoredInbound | None:
        raise error

    with monkeypatch.context() as troubled, capture_logs() as logs:
        for name in ("accept", "rekey", "remember"):
            troubled.setattr(desk.store, name, refuse)
        assert await desk.inbox.accept(asked("bad")) is Accepted.IGNORED
        await desk.inbox.rekey("old", "new")
        await desk.inbox.remember("offset", 1)
    assert [entry["what"] for entry in logs if "left out" in str(entry["event"])] == ["bad", "old is new now", "offset"]
    assert await desk.inbox.accept(asked("good")) is Accepted.TAKEN
    assert await desk.pass_by() == ["good"]


@pytest.mark.parametrize("when_busy", list(BusyPolicy))
async def test_a_conversation_that_cannot_be_read_keeps_nothing_from_being_taken(
    desk: Desk, when_busy: BusyPolicy
) -> None:
    lease = await owned(desk.store)
    await answered(desk.store, lease)
    await desk.store.release(lease)

    def spoil(tx: Transaction) -> None:
        tx.connection.execute(conversations.update().values(place="nowhere"))

    await desk.store._database.write(spoil)
    inbox = Inbox(CHANNEL, Policy(groups=Groups.MENTION, when_busy=when_busy), desk.store, desk.clock, Metrics())
    reply = inbound("k2", reply_to="k1-a")
    assert await inbox.accept(reply) is Accepted.IGNORED, "nobody knows any more that the bot takes part there"
    assert await inbox.accept(replace(reply, mentions_bot=True)) is Accepted.TAKEN
    assert await desk.pass_by(3) == ["k2"]


async def test_a_flood_while_the_store_is_away_is_bounded(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox_module, "_MOST_POSTPONED", 20)
    desk.store.is_away = True
    for number in range(30):
        await desk.turned_away(asked(f"k{number}"))
    desk.store.is_away = False
    await desk.until_stored(*(f"k{number}" for number in range(20)))
    assert await desk.pass_by() == []
