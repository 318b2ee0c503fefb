"""Replicas that share the channels of one database: shared evenly, handed over in order, taken over when one dies."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from channels import neighbours, owner
from channels.adapter import ChannelState
from channels.gateway.runs import RunEnd
from channels.owner import LEASE_SECONDS
from channels.store import Store
from channels.store.records import Lease, LostLease, StoreError, Turn, TurnState
from tests.channels.replicas import Replica, World
from tests.clock import ManualClock
from tests.databases import postgres, postgres_url, shared_database
from tests.scripted import Act, Pause, Say

__all__ = ["postgres", "postgres_url", "shared_database"]

TAKEOVER = 15.0
"""Seconds after which somebody else has taken up the work of a dead replica."""
NINE = [f"channel-{number}" for number in range(1, 10)]
ANSWER = " ".join(f"word{number}" for number in range(40))
SLOWLY = Say(ANSWER, size=4, pace=0.5)
"""Half a minute or so of growing text."""

OpenWorld = Callable[..., Awaitable[World]]


@pytest.fixture
async def open_world(postgres_url: str) -> AsyncIterator[OpenWorld]:
    worlds: list[World] = []

    async def open_(*script: Act, channels: list[str] | None = None) -> World:
        worlds.append(World(postgres_url, ManualClock(), channels or ["one"], *script))
        return worlds[-1]

    yield open_
    for world in worlds:
        await world.close()


async def asked(world: World, replica: Replica, channel: str = "one", chat: str = "room") -> None:
    """Somebody has asked, and the answer has begun to grow."""
    await replica.hear(channel, "a question", chat)
    await world.until(lambda: len(world.text(channel, chat)) > 10, 20.0)


def lease_of(replica: Replica, channel: str = "one") -> Lease:
    return replica.manager._owned[channel].owner.current_lease


def answered(world: World, channel: str = "one", chat: str = "room") -> bool:
    return world.text(channel, chat) == ANSWER


async def all_done(world: World, replica: Replica) -> None:
    """Nothing waits, nothing is open, nobody was asked twice and nothing against the platform's rules was done."""
    await world.pass_time(2.0)
    assert [counts for counts in await replica.store.counts() if counts.waiting or counts.open_turns] == []
    turns = Counter(run.request.turn for run in world.gateway.runs)
    assert set(turns.values()) <= {1}, "a question was asked twice"
    broken = [rule for chats in world.papers.values() for paper in chats.values() for rule in paper.broken]
    assert broken == []


# ---------------------------------------------------------------- sharing


async def test_channels_are_shared_evenly_as_replicas_join_and_leave(open_world: OpenWorld) -> None:
    world = await open_world(channels=NINE)
    first = await world.join("first")
    await world.until(lambda: world.shares() == [9], 5.0)
    await world.join("second")
    await world.until(lambda: world.is_shared_out, 10.0)
    assert sorted(world.shares()) == [4, 5]
    await world.join("third")
    await world.until(lambda: world.is_shared_out, 10.0)
    assert world.shares() == [3, 3, 3]
    await first.stop()
    await world.until(lambda: world.is_shared_out, 10.0)
    assert sorted(world.shares()) == [4, 5]


async def test_what_is_shared_out_stays_where_it_is(open_world: OpenWorld) -> None:
    world = await open_world(channels=NINE[:4])
    for name in ("first", "second", "third"):
        await world.join(name)
    await world.until(lambda: world.is_shared_out, 15.0)
    before = world.owners()
    await world.pass_time(60.0)
    assert world.owners() == before


async def test_a_joining_replica_gets_its_share_and_goes_on_with_the_same_answers(open_world: OpenWorld) -> None:
    world = await open_world(SLOWLY, channels=["one", "two"])
    first = await world.join("first")
    for channel in ("one", "two"):
        await asked(world, first, channel)
    second = await world.join("second")
    took = await world.until(lambda: world.is_shared_out, 10.0)
    assert took < 7.0, "one heartbeat, and one look"
    await world.until(lambda: answered(world, "one") and answered(world, "two"), 60.0)
    assert sorted(tuple(world.writers(channel)) for channel in ("one", "two")) == [("first",), ("first", "second")]
    await all_done(world, second)


async def test_a_joining_replica_takes_nothing_that_would_not_make_the_shares_more_even(open_world: OpenWorld) -> None:
    world = await open_world(channels=NINE[:5])
    await world.join("first")
    second = await world.join("second")
    await world.until(lambda: world.is_shared_out, 15.0)
    before = world.owners()
    third = await world.join("third")
    await world.until(lambda: world.is_shared_out, 15.0)
    assert sorted(world.shares()) == [1, 2, 2]
    assert [channel for channel, owners in world.owners().items() if owners != before[channel]] == third.owned
    assert len(second.owned) == 2


# ---------------------------------------------------------------- death


@pytest.mark.parametrize("since_renewal", [0.0, 1.3, 2.6, 3.9])
async def test_a_dead_owner_is_replaced_within_15_seconds(open_world: OpenWorld, since_renewal: float) -> None:
    world = await open_world(SLOWLY)
    first = await world.join("first")
    await asked(world, first)
    second = await world.join("second")
    renewed_until = lease_of(first).expires_at
    await world.until(lambda: lease_of(first).expires_at > renewed_until, 5.0)
    await world.pass_time(since_renewal)
    died_at = world.clock.now()
    await first.die()
    assert await world.until(lambda: world.last_written(second) > died_at, 30.0) <= TAKEOVER
    await world.until(lambda: answered(world), 60.0)
    await all_done(world, second)


async def test_the_channels_of_a_dead_replica_are_shared_out_among_the_others(open_world: OpenWorld) -> None:
    world = await open_world(channels=NINE)
    replicas = [await world.join(name) for name in ("first", "second", "third")]
    await world.until(lambda: world.is_shared_out, 15.0)
    await replicas[1].die()
    await world.until(lambda: world.is_shared_out, TAKEOVER)
    assert sorted(world.shares()) == [4, 5]


async def test_a_paused_owner_is_replaced_and_writes_nothing_when_it_wakes(open_world: OpenWorld) -> None:
    world = await open_world(SLOWLY)
    first = await world.join("first")
    await asked(world, first)
    second = await world.join("second")
    await world.pass_time(1.0)
    first.clock.pause()
    paused_at = world.clock.now()
    await world.until(lambda: second.owned == ["one"] and world.last_written(second) > paused_at, TAKEOVER)
    assert world.last_written(first) <= paused_at
    first.clock.resume()
    await world.idle()
    assert first.owned == []
    assert world.last_written(first) <= paused_at
    await world.until(lambda: answered(world), 60.0)
    assert world.writers("one") == ["first", "second"]
    await all_done(world, first)


async def test_a_call_that_was_under_way_at_the_pause_does_not_arrive_after_it(open_world: OpenWorld) -> None:
    world = await open_world(SLOWLY)
    first = await world.join("first")
    await asked(world, first)
    second = await world.join("second")
    connected: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    first.adapters["one"].pens_down = lambda: connected
    await world.pass_time(2.0)  # a call waits for its connection
    first.clock.pause()
    paused_at = world.clock.now()
    await world.until(lambda: world.last_written(second) > paused_at, TAKEOVER)
    first.clock.resume()
    connected.set_result(None)
    await world.until(lambda: answered(world), 60.0)
    assert world.writers("one") == ["first", "second"]


async def test_an_owner_that_cannot_renew_goes_on_while_its_lease_is_safe_and_stops_before_it_ends(
    open_world: OpenWorld,
) -> None:
    world = await open_world(Say(ANSWER, size=2, pace=1.0))  # a sheet of paper lasts longer than the lease
    first = await world.join("first")
    await asked(world, first)
    second = await world.join("second")
    await world.pass_time(0.5)
    lost_at = world.clock.now()
    first.lose_the_database()
    expires_at = lease_of(first).expires_at
    await world.until(lambda: bool(world.last_written(second)), TAKEOVER)
    assert lost_at + 3.0 < world.last_written(first) < expires_at - 1.0
    assert expires_at <= lost_at + LEASE_SECONDS
    await world.until(lambda: answered(world), 180.0)
    first.find_the_database()
    await world.pass_time(10.0)
    assert world.is_shared_out
    await all_done(world, first)


@pytest.mark.parametrize("busy", [True, False], ids=["busy", "idle"])
async def test_an_owner_whose_database_does_not_answer_stops_everything_before_its_lease_ends(
    open_world: OpenWorld, busy: bool
) -> None:
    world = await open_world(Say(ANSWER, size=2, pace=1.0))
    first = await world.join("first")
    if busy:
        await asked(world, first)
    await world.pass_time(4.5)
    expires_at = lease_of(first).expires_at
    first.mute_the_database()
    await world.until(lambda: first.adapters["one"].stopped_at is not None, LEASE_SECONDS)
    assert first.adapters["one"].stopped_at is not None
    assert max(first.adapters["one"].stopped_at, world.last_written(first)) < expires_at - 1.0


async def test_the_only_replica_takes_its_channel_up_again_when_the_database_is_back(open_world: OpenWorld) -> None:
    world = await open_world(SLOWLY)
    first = await world.join("first")
    await asked(world, first)
    epoch = lease_of(first).epoch
    first.lose_the_database()
    await world.pass_time(LEASE_SECONDS - 1.0)
    assert first.owned == []
    first.find_the_database()  # within the lease, which is still in its name
    await world.until(lambda: first.owned == ["one"], 3.0)
    assert lease_of(first).epoch > epoch, "writes of then must be shut out"
    await world.until(lambda: answered(world), 60.0)
    await all_done(world, first)


async def test_what_an_outdated_owner_writes_is_refused_by_the_database(open_world: OpenWorld) -> None:
    world = await open_world(SLOWLY)
    first = await world.join("first")
    await asked(world, first)
    lease = lease_of(first)
    (turn,) = await first.store.unfinished(lease)
    await first.die()
    second = await world.join("second")
    await world.until(lambda: second.owned == ["one"], TAKEOVER)
    first.find_the_database()
    for write in (
        first.store.finish(lease, turn.id, TurnState.DEAD),
        first.store.save_shown(lease, turn.id, {}, []),
        first.store.renew(lease),
    ):
        with pytest.raises(LostLease):
            await write
    await world.until(lambda: answered(world), 60.0)
    await all_done(world, second)


# ---------------------------------------------------------------- leaving


async def test_a_replica_that_stops_hands_over_at_once_and_the_answer_grows_on(open_world: OpenWorld) -> None:
    world = await open_world(SLOWLY)
    first = await world.join("first")
    await asked(world, first)
    second = await world.join("second")
    await world.pass_time(1.0)
    stopped_at = world.clock.now()
    await first.stop()
    assert world.clock.now() - stopped_at < 1.0
    assert await second.store.owners(["one"]) == {"one": None}
    assert await world.until(lambda: world.last_written(second) > stopped_at, 10.0) < 3.0
    await world.until(lambda: answered(world), 60.0)
    assert world.writers("one") == ["first", "second"]
    await all_done(world, second)


async def test_a_call_in_flight_may_end_before_the_channel_is_handed_over(open_world: OpenWorld) -> None:
    world = await open_world(SLOWLY)
    first = await world.join("first")
    await asked(world, first)
    first.adapters["one"].pens_down = lambda: asyncio.ensure_future(first.clock.sleep(3.0))
    await world.pass_time(1.0)
    before = world.last_written(first)
    stopping_at = world.clock.now()
    await first.stop()
    assert stopping_at < world.last_written(first) <= stopping_at + 3.0
    assert world.last_written(first) > before
    assert first.adapters["one"].stopped_at is not None
    assert first.adapters["one"].stopped_at >= world.last_written(first), "receiving ends last"
    second = await world.join("second")
    await world.until(lambda: answered(world), 60.0)
    await all_done(world, second)


async def test_a_call_that_never_ends_does_not_keep_a_replica_from_stopping(
    open_world: OpenWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, "_HANDOVER", 0.3)
    world = await open_world(SLOWLY)
    first = await world.join("first")
    await asked(world, first)
    first.adapters["one"].pens_down = asyncio.get_running_loop().create_future
    await world.pass_time(2.0)
    async with asyncio.timeout(5.0):  # real seconds, as for a person who waits
        first.manager.shut_down()
        await first._running
    assert await first.store.owners(["one"]) == {"one": None}
    second = await world.join("second")
    await world.until(lambda: answered(world), 60.0)
    await all_done(world, second)


# ---------------------------------------------------------------- waking


async def test_what_any_replica_accepts_starts_at_once_at_the_owner(open_world: OpenWorld) -> None:
    world = await open_world(Say("hello", pace=0.0), channels=["one", "two"])
    for name in ("first", "second"):
        await world.join(name)
    await world.until(lambda: world.is_shared_out, 15.0)
    now = world.clock.now()
    for replica in world.replicas:
        (other,) = set(world.channels) - set(replica.owned)
        await replica.hear(other, "a question")
    async with asyncio.timeout(10.0):  # time stands still: nothing but a wake can start it
        while len(world.gateway.runs) < 2:  # noqa: ASYNC110 - two processes' worth of sockets and threads work on it
            await asyncio.sleep(0.005)
    assert world.clock.now() == now
    await world.pass_time(2.0)
    assert [world.text(channel) for channel in world.channels] == ["hello", "hello"]


# ---------------------------------------------------------------- what others see


async def test_every_replica_knows_who_owns_what_also_after_a_takeover(open_world: OpenWorld) -> None:
    world = await open_world(channels=["one", "two"])
    first = await world.join("first")
    await world.until(lambda: len(first.owned) == 2, 5.0)
    second = await world.join("second")
    await world.until(lambda: world.is_shared_out, 10.0)
    await world.pass_time(2.0)
    for channel, (name,) in world.owners().items():
        known_as = next(replica.manager.replica for replica in world.replicas if replica.name == name)
        assert {replica.manager.owner_of(channel) for replica in world.replicas} == {known_as}
    await second.die()
    await world.until(lambda: len(first.owned) == 2, TAKEOVER)
    assert {first.manager.owner_of(channel) for channel in world.channels} == {first.manager.replica}


async def owner_and_other(open_world: OpenWorld) -> tuple[World, Replica, Replica]:
    world = await open_world()
    owner = await world.join("owner")
    await world.until(lambda: owner.owned == ["one"], 5.0)
    other = await world.join("other")
    await world.until(lambda: other.manager.owner_of("one") == owner.manager.replica, 10.0)
    return world, owner, other


def state_at(replica: Replica) -> ChannelState:
    return replica.manager.health()["one"].state


async def test_every_replica_says_of_a_channel_what_its_owner_says(open_world: OpenWorld) -> None:
    world, owner, other = await owner_and_other(open_world)
    await world.until(lambda: state_at(other) is ChannelState.RUNNING, 3.0)
    owner.inboxes["one"].report(ChannelState.FAILED, "unauthorised: the platform refused the token")
    await world.until(lambda: state_at(other) is ChannelState.FAILED, 3.0)
    health = other.manager.health()["one"]
    assert health.reason == f"unauthorised: the platform refused the token (owned by {owner.manager.replica})"
    assert health.since == owner.inboxes["one"].health.since
    owner.inboxes["one"].report(ChannelState.RUNNING)
    await world.until(lambda: state_at(other) is ChannelState.RUNNING, 3.0)


async def test_a_channel_of_which_its_owner_has_said_nothing_yet_is_starting(open_world: OpenWorld) -> None:
    world, owner, other = await owner_and_other(open_world)
    await world.until(lambda: state_at(other) is ChannelState.RUNNING, 3.0)
    await owner.store.leave(owner.manager.replica)
    await world.pass_time(0.6)
    assert state_at(other) is ChannelState.STARTING
    await world.until(lambda: state_at(other) is ChannelState.RUNNING, 5.0)


async def test_a_channel_runs_as_far_as_anybody_knows_when_its_owner_is_of_a_version_that_does_not_say(
    open_world: OpenWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, owner, other = await owner_and_other(open_world)
    heartbeat = owner.store.heartbeat
    for said in (None, {"channels": {"one": {"state": "dreaming"}}}):
        monkeypatch.setattr(owner.store, "heartbeat", lambda replica, _, said=said: heartbeat(replica, said))
        owner.inboxes["one"].report(ChannelState.FAILED, f"nobody is told: {said}")
        await world.pass_time(5.0)
        assert state_at(other) is ChannelState.RUNNING


async def test_trouble_that_a_replica_itself_has_with_a_channel_is_not_hidden_by_its_owner(
    open_world: OpenWorld,
) -> None:
    world, _, other = await owner_and_other(open_world)
    other.inboxes["one"].report(ChannelState.DEGRADED, "its webhook is signed with another secret")
    await world.pass_time(2.0)
    assert state_at(other) is ChannelState.DEGRADED


@pytest.mark.parametrize("away", ["away", "mute"])
async def test_a_replica_stops_in_time_although_its_database_does_not_answer(open_world: OpenWorld, away: str) -> None:
    world = await open_world()
    first = await world.join("first")
    await world.until(lambda: first.owned == ["one"], 5.0)
    first.lose_the_database() if away == "away" else first.mute_the_database()
    await world.pass_time(2.0)
    first.manager.shut_down()
    assert await world.until(first._running.done, 60.0) < 8.0
    assert first.adapters["one"].stopped_at is not None


async def test_a_lease_that_a_replica_is_just_given_when_it_stops_is_released(open_world: OpenWorld) -> None:
    world = await open_world()
    first = Replica(world, "first")
    world.replicas.append(first)
    await first.start()
    acquire = first.store.acquire

    async def slowly(channel: str, owner: str, ttl: float = LEASE_SECONDS) -> Lease | None:
        first.manager.shut_down()
        lease = await acquire(channel, owner, ttl)
        await first.clock.sleep(1.0)
        return lease

    first.store.acquire = slowly  # type: ignore[method-assign]
    await world.until(first._running.done, 10.0)
    assert await first.store.owners(["one"]) == {"one": None}


async def test_a_store_that_is_away_is_spoken_of_when_it_goes_and_when_it_is_back(open_world: OpenWorld) -> None:
    world = await open_world()
    first = await world.join("first")
    await world.pass_time(2.0)
    with capture_logs() as logs:
        first.lose_the_database()
        await world.pass_time(30.0)
        first.find_the_database()
        await world.pass_time(10.0)
    for part in ("leases", "housekeeping"):
        said = [entry["event"] for entry in logs if entry.get("part") == part]
        assert said == ["the store is away", "the store is back"]


def gauges(replica: Replica, channel: str = "one") -> dict[str, float | None]:
    """What the metrics of a replica say about what is left to be done in the channel."""
    names = ("inbounds_waiting", "turns_open", "dead_letters")
    registry, labels = replica.metrics.registry, {"channel": channel}
    return {name: registry.get_sample_value(f"channel_bridge_{name}", labels) for name in names}


async def test_what_waits_is_open_or_was_given_up_is_counted_and_no_more_when_it_is_done(open_world: OpenWorld) -> None:
    world = await open_world(Pause(8.0), Say("done", pace=0.0))
    first = await world.join("first")
    for question in ("now", "later"):
        await first.hear("one", question)
    await world.pass_time(6.0)
    assert gauges(first) == {"inbounds_waiting": 1, "turns_open": 1, "dead_letters": 0}
    (turn,) = await first.store.unfinished(lease_of(first))
    await world.until(lambda: world.text("one") == "donedone", 40.0)
    await first.store.finish(lease_of(first), turn.id, TurnState.DEAD)
    await world.pass_time(6.0)
    assert gauges(first) == {"inbounds_waiting": 0, "turns_open": 0, "dead_letters": 1}
    again = await first.store.requeue(lease_of(first), turn.id)
    assert again is not None
    await first.store.finish(lease_of(first), again.id)
    await world.pass_time(6.0)
    assert gauges(first) == {"inbounds_waiting": 0, "turns_open": 0, "dead_letters": 0}


async def test_housekeeping_that_takes_for_ever_does_not_cost_a_lease(
    open_world: OpenWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(**_: object) -> int:
        await asyncio.Event().wait()
        return 0

    world = await open_world(SLOWLY)
    first = Replica(world, "first")
    world.replicas.append(first)
    await first.start()
    monkeypatch.setattr(first.store, "prune", never)
    await asked(world, first)
    await world.pass_time(3 * LEASE_SECONDS)
    assert world.writers("one") == ["first"]
    assert answered(world)
    assert lease_of(first).epoch == 1


async def test_leases_are_renewed_although_one_of_them_waits_for_a_lock(
    open_world: OpenWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await open_world(SLOWLY, channels=["one", "two"])
    first = await world.join("first")
    await asked(world, first, "two")
    renew = first.store.renew

    async def slowly(lease: object, ttl: float = LEASE_SECONDS) -> object:
        if getattr(lease, "channel", "") == "one":
            await first.clock.sleep(5.0)
            raise StoreError("waited for a lock")
        return await renew(lease, ttl)  # type: ignore[arg-type]

    monkeypatch.setattr(first.store, "renew", slowly)
    await world.until(lambda: answered(world, "two"), 60.0)
    assert world.writers("two") == ["first"]
    assert lease_of(first, "two").epoch == 1


async def test_pause_and_answer_need_no_words_in_between(open_world: OpenWorld) -> None:
    world = await open_world(Pause(8.0), Say("late", pace=0.0))
    first = await world.join("first")
    await first.hear("one", "a question")
    await world.pass_time(2.0)
    second = await world.join("second")
    await first.stop()
    await world.until(lambda: world.text("one") == "late", 30.0)
    await all_done(world, second)


# ---------------------------------------------------------------- channels that end unexpectedly


@pytest.fixture
def quiet() -> Iterator[None]:
    """Logs are kept instead of printed: rendering a traceback costs more than all the rest."""
    with capture_logs():
        yield


def fail_to_claim(replica: Replica, monkeypatch: pytest.MonkeyPatch, channel: str = "one") -> list[str]:
    """From now on no claim of this replica in the channel succeeds, while `broken` is not emptied."""
    broken, claim = [channel], replica.store.claim

    async def troubled(lease: Lease, limit: int) -> list[Turn]:
        if lease.channel in broken:
            raise ZeroDivisionError("a fault of ours")
        return await claim(lease, limit)

    monkeypatch.setattr(replica.store, "claim", troubled)
    return broken


@pytest.mark.usefixtures("quiet")
async def test_a_channel_that_ends_unexpectedly_is_started_again_ever_later_says_so_and_stops_no_other(
    open_world: OpenWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await open_world(Say(ANSWER), channels=["one", "two"])
    first = await world.join("first")
    await world.until(lambda: first.owned == ["one", "two"], 5.0)
    broken = fail_to_claim(first, monkeypatch)
    epoch = lease_of(first).epoch
    for channel in world.channels:
        await first.hear(channel, "a question")
    await world.until(lambda: answered(world, "two"), 20.0)
    await world.pass_time(100.0)
    health = first.manager.health()["one"]
    assert health.state is ChannelState.FAILED
    assert "ZeroDivisionError" in health.reason
    assert "starts again after 60 s" in health.reason
    assert first.adapters["two"].stopped_at is None
    broken.clear()
    assert await world.until(lambda: answered(world, "one"), 80.0) > 10.0
    assert first.manager.health()["one"].state is ChannelState.RUNNING
    assert lease_of(first).epoch - epoch < 8, "each start takes a new epoch"
    await all_done(world, first)


@pytest.mark.usefixtures("quiet")
async def test_the_next_unexpected_end_after_a_long_time_of_work_counts_as_the_first(
    open_world: OpenWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("channels.manager._STEADY", 60.0)
    world = await open_world()
    first = await world.join("first")
    broken = fail_to_claim(first, monkeypatch)
    health = first.inboxes["one"]
    await world.until(lambda: "after 16 s" in health.health.reason, 60.0)
    broken.clear()
    await world.until(lambda: first.owned == ["one"], 60.0)
    await world.pass_time(61.0)
    broken.append("one")
    await world.until(lambda: health.health.state is ChannelState.FAILED, 10.0)
    assert "after 2 s" in health.health.reason


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("channels", [["one"], ["one", "two"]], ids=["the only one", "one of an even share"])
async def test_a_channel_that_one_replica_cannot_keep_is_taken_by_another_which_keeps_it(
    open_world: OpenWorld, monkeypatch: pytest.MonkeyPatch, channels: list[str]
) -> None:
    world = await open_world(SLOWLY, channels=channels)
    first, second = await world.join("a"), await world.join("b")
    await world.until(lambda: world.is_shared_out, 15.0)
    loser, keeper = (first, second) if "one" in first.owned else (second, first)
    await asked(world, loser)
    fail_to_claim(loser, monkeypatch)
    await world.until(lambda: keeper.owned == channels, 60.0)
    await world.pass_time(30.0)
    assert keeper.owned == channels
    assert loser.owned == []
    assert loser.manager.health()["one"].state is ChannelState.RUNNING, "it runs elsewhere, so it has not failed"
    await world.until(lambda: answered(world), 60.0)
    await all_done(world, keeper)
    await world.join("c")
    await world.until(lambda: len(keeper.owned) == 1, 15.0)


# ---------------------------------------------------------------- load


async def test_only_so_many_turns_have_a_run_at_once_and_the_others_follow_without_a_pause(
    open_world: OpenWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, "MOST_RUNS", 3)
    world = await open_world(Pause(1.0), Say("done", pace=0.0))
    first = await world.join("first")
    execute, running, most = first.gateway.execute, 0, 0

    async def counted(*args: object, **options: object) -> RunEnd:
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            return await execute(*args, **options)  # type: ignore[arg-type]
        finally:
            running -= 1

    monkeypatch.setattr(first.gateway, "execute", counted)
    chats = [f"chat-{number}" for number in range(12)]
    for chat in chats:
        await first.hear("one", "a question", chat)
    took = await world.until(lambda: all(world.text("one", chat) == "done" for chat in chats), 30.0)
    assert most == 3
    assert took < 6.0, "four rounds of a second each: whoever finishes lets the next one in"
    await all_done(world, first)


# ---------------------------------------------------------------- neighbours


def ended_process() -> int:
    """The number of a process that was and is no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


async def begins_after(world: World, predecessor: str) -> float:
    """Seconds until a new replica owns the channel that this one owned last."""
    store = await Store.open(world.url, world.clock, lease_clock=world.clock)
    assert await store.acquire("one", predecessor) is not None
    await store.close()
    first = await world.join("first")
    return await world.until(lambda: first.owned == ["one"], TAKEOVER)


async def test_a_restart_takes_over_at_once_from_a_process_that_ended_on_this_machine(open_world: OpenWorld) -> None:
    host = neighbours.new_name().partition(":")[0]
    assert await begins_after(await open_world(), f"{host}:{ended_process()}:0123abcd") < 1.0


async def test_a_clone_of_this_machine_keeps_its_channels(
    open_world: OpenWorld, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "boot_id").write_text("00000000-1111-2222-3333-444444444444\n")
    with monkeypatch.context() as there:
        there.setattr(neighbours, "_BOOT", tmp_path / "boot_id")
        host = neighbours.new_name().partition(":")[0]
    assert await begins_after(await open_world(), f"{host}:{ended_process()}:0123abcd") >= LEASE_SECONDS - 1.0


async def test_where_machines_cannot_be_told_apart_nobody_is_taken_for_a_dead_neighbour(
    open_world: OpenWorld, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(neighbours, "_BOOT", tmp_path / "nothing")
    with monkeypatch.context() as other_process:
        other_process.setattr(neighbours, "_ALONE", "76543210")
        host = neighbours.new_name().partition(":")[0]
    assert await begins_after(await open_world(), f"{host}:{ended_process()}:0123abcd") >= LEASE_SECONDS - 1.0
