"""Faults of our own and a store that comes and goes: no question is lost, no reader left waiting, no other held up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, MutableMapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import JsonValue
from structlog.testing import capture_logs

from channels.access import Policy
from channels.adapter import ChannelState, Op, ReplyTarget, Shown, StoreAway, Transient
from channels.clock import SystemClock
from channels.gateway.runs import RunEnd
from channels.inbox import Inbox
from channels.model import Inbound, InboundKind, Place, Sender, View
from channels.observe import Metrics
from channels.store import Store
from channels.store.codec import inbound_to_json
from channels.store.records import Lease, StoredInbound, StoreUnavailable, Turn, TurnState
from tests.bench import Bench
from tests.clock import ScaledClock
from tests.paper import Paper, PaperAdapter, PaperSurface
from tests.scripted import Act, Pause, Say

Open = Callable[..., Awaitable["Room"]]


class TroubledAdapter(PaperAdapter):
    """Paper on which no reply in the chat `bad` can be planned, and none in the chat `foreign` even begun."""

    starts = 0

    async def start(self) -> None:
        self.starts += 1
        await super().start()

    def surface(self, target: ReplyTarget) -> PaperSurface:
        if target.place.chat == "foreign":
            raise ZeroDivisionError("a message of another platform")
        kind = UnplannableSurface if target.place.chat == "bad" else PaperSurface
        return kind(self.papers[target.place.chat], target.turn)


class UnplannableSurface(PaperSurface):
    def plan(self, view: View, shown: Shown, now: float) -> Sequence[Op]:
        if view.has_content:
            raise ZeroDivisionError("a fault of the surface")
        return ()


class Room:
    """A bench whose gateway fails with an unexpected error as often as `failures` says."""

    def __init__(self, bench: Bench, papers: dict[str, Paper]) -> None:
        assert isinstance(bench.adapter, TroubledAdapter)
        self.bench = bench
        self.adapter = bench.adapter
        self.papers = papers
        self.failures: list[Exception] = []
        self.attempts = 0
        execute = bench.gateway.execute

        async def troubled(*args: object, **options: object) -> RunEnd:
            self.attempts += 1
            if self.failures:
                raise self.failures.pop(0)
            return await execute(*args, **options)  # type: ignore[arg-type]

        bench.gateway.execute = troubled  # type: ignore[method-assign]

    async def say(self, text: str, chat: str = "room") -> None:
        number = len(text) + hash((text, chat))
        inbound = Inbound(
            place=Place("bench", chat, private=True),
            sender=Sender("u1", "Ann"),
            event_key=f"e{number}",
            kind=InboundKind.MESSAGE,
            text=text,
            received_at=self.bench.clock.now(),
            message_id=f"m{number}",
        )
        await self.bench.inbox.accept(inbound)

    def text(self, chat: str = "room") -> str:
        return self.papers[chat].text()

    async def shows(self, text: str, chat: str = "room") -> None:
        await self.bench.until(lambda: text in self.text(chat))

    async def dead_letters(self) -> list[Turn]:
        return await self.bench.store.dead_letters()

    async def buried(self) -> bool:
        """Whether there is a dead letter."""
        return bool(await self.dead_letters())


@pytest.fixture(autouse=True)
def logs() -> Iterator[list[MutableMapping[str, object]]]:
    """Kept instead of printed: rendering a traceback takes seconds of this clock."""
    with capture_logs() as records:
        yield records


@pytest.fixture
async def open_room(tmp_path: Path) -> AsyncIterator[Open]:
    async with AsyncExitStack() as stack:

        async def open_(*scripts: Iterable[Act]) -> Room:
            papers: dict[str, Paper] = defaultdict(Paper)
            bench = Bench(tmp_path, ScaledClock(20), lambda context: TroubledAdapter(context, papers), *scripts)
            await stack.enter_async_context(bench)
            return Room(bench, papers)

        yield open_


async def test_a_reply_that_cannot_be_planned_holds_up_no_other_and_ends_as_a_dead_letter(open_room: Open) -> None:
    room = await open_room([Say("an answer")])
    await room.say("one", "bad")
    await room.say("two", "good")
    await room.shows("an answer", "good")
    await room.bench.until(room.buried)
    await room.bench.settled()
    assert room.text("good") == "an answer"
    assert len(await room.dead_letters()) == 1


async def test_a_turn_that_the_adapter_cannot_even_begin_becomes_a_dead_letter_and_holds_up_no_other(
    open_room: Open,
) -> None:
    room = await open_room([Say("an answer")])
    await room.say("one", "foreign")
    await room.bench.until(room.buried)
    await room.say("two", "good")
    await room.shows("an answer", "good")
    await room.bench.settled()
    assert room.adapter.starts == 1


@pytest.mark.parametrize("text", ["a question", "/status"])
async def test_what_this_version_cannot_read_becomes_a_dead_letter_and_the_channel_goes_on(
    open_room: Open, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    room = await open_room([Say("an answer")])

    def of_a_newer_version(inbound: Inbound) -> JsonValue:
        plain = inbound_to_json(inbound)
        assert isinstance(plain, dict)
        return plain | {"kind": "reaction"}

    with monkeypatch.context() as newer:
        newer.setattr("channels.store.inbox.inbound_to_json", of_a_newer_version)
        await room.say(text, "one")
    await room.bench.until(room.buried)
    for chat in ("one", "two"):
        await room.say("another question", chat)
        await room.shows("an answer", chat)
    await room.bench.settled()
    assert room.adapter.starts == 1
    assert room.bench.inbox.health.state is ChannelState.RUNNING
    assert len(await room.dead_letters()) == 1


async def test_commands_are_handled_after_an_unexpected_error_in_looking_for_them(
    open_room: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = await open_room([Say("partial "), Pause(3000), Say("never")])
    look, failures = room.bench.store.controls, [ZeroDivisionError("a fault of ours")]

    async def troubled(lease: Lease) -> list[StoredInbound]:
        if failures:
            raise failures.pop()
        return await look(lease)

    monkeypatch.setattr(room.bench.store, "controls", troubled)
    await room.say("one")
    await room.shows("partial")
    assert failures == []
    await room.say("/stop")
    await room.bench.settled()
    assert "never" not in room.text()


async def test_commands_and_replies_that_only_have_to_be_shown_do_not_wait_for_a_run(
    open_room: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("channels.owner.MOST_RUNS", 2)
    room = await open_room(
        [Say("begun "), Pause(3000), Say("late")], [Say("begun "), Pause(3000), Say("late")], [Say("x")]
    )
    for chat in ("one", "two", "three"):
        await room.say("a question", chat)
    await room.shows("begun", "one")
    await room.shows("begun", "two")
    await room.say("/status", "two")
    await room.shows("I am answering", "two")
    assert len(room.bench.gateway.runs) == 2
    await room.say("/stop", "one")  # whose end makes room
    await room.shows("x", "three")
    await room.say("/stop", "two")
    await room.bench.settled()


async def test_a_reply_that_the_platform_does_not_take_keeps_no_other_question_from_its_run(
    open_room: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("channels.owner.MOST_RUNS", 1)
    room = await open_room([Say("an answer")])
    away = True
    room.papers["stuck"].trouble = lambda _: (Transient("away"), False) if away else (None, True)
    await room.say("a question", "stuck")
    await room.say("a question", "good")
    await room.shows("an answer", "good")
    assert room.text("stuck") == ""
    away = False
    await room.shows("an answer", "stuck")
    await room.bench.settled()


async def test_a_turn_that_failed_unexpectedly_is_carried_on_and_can_be_stopped(open_room: Open) -> None:
    room = await open_room([Say("partial "), Pause(3000), Say("never")])
    room.failures = [RuntimeError("a fault of ours")]
    await room.say("one")
    await room.shows("partial")
    await room.say("/stop")
    await room.bench.settled()
    assert "never" not in room.text()
    assert await room.dead_letters() == []
    assert room.attempts == 2


async def test_a_turn_that_fails_again_and_again_tells_its_reader_and_can_be_asked_again(open_room: Open) -> None:
    room = await open_room([Say("now it works")])
    room.failures = [RuntimeError("a fault of ours") for _ in range(3)]
    await room.say("one")
    await room.shows("Something went wrong inside the bridge")
    await room.bench.settled()
    (letter,) = await room.dead_letters()
    assert letter.state is TurnState.DEAD
    assert "unexpectedly" in letter.note
    await room.say("/retry")
    await room.shows("now it works")
    await room.bench.settled()
    assert await room.dead_letters() == []


async def test_a_turn_is_carried_on_after_an_error_that_met_a_store_that_was_away(
    open_room: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = await open_room([Say("at last")])
    look_up, away = room.bench.store.turn, 3

    async def sometimes(turn_id: object) -> Turn | None:
        nonlocal away
        away -= 1
        if away >= 0:
            raise StoreUnavailable("away")
        return await look_up(turn_id)  # type: ignore[arg-type]

    monkeypatch.setattr(room.bench.store, "turn", sometimes)
    room.failures = [StoreUnavailable("away when it was least expected")]
    await room.say("one")
    await room.shows("at last")
    await room.bench.settled()
    assert away < 0


# ---------------------------------------------------------------- what an adapter sees of it


class AwayStore(Store):
    """A store whose database cannot be reached."""

    def __init__(self) -> None:
        """Nothing is opened."""

    async def recall(self, channel: str, key: str) -> JsonValue:
        raise StoreUnavailable("away")

    async def remember(self, channel: str, key: str, value: JsonValue, ttl: float | None = None) -> None:
        raise StoreUnavailable("away")

    async def rekey(self, channel: str, old_chat: str, new_chat: str) -> None:
        raise StoreUnavailable("away")


async def test_whatever_a_channel_wants_of_a_store_that_is_away_it_is_told_not_to_ack() -> None:
    inbox = Inbox("bench", Policy(pairing=True), AwayStore(), SystemClock(), Metrics())
    asked = Inbound(Place("bench", "room", private=True), Sender("u1"), "e1", InboundKind.MESSAGE, "hi", 0.0, "m1")
    attempts = (
        inbox.accept(replace(asked)),  # who may talk has to be looked up first
        inbox.recall("offset"),
        inbox.remember("offset", 1),
        inbox.rekey("old", "new"),
    )
    for attempt in attempts:
        with pytest.raises(StoreAway):
            await attempt
