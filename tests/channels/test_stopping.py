"""A stop reaches its answer wherever that is just then, and asking again asks the same in the same situation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest

from channels.access import Policy
from channels.adapter import HintState, ReplyTarget, Transient
from channels.inbox import Inbox
from channels.model import Action, Attachment, Inbound, InboundKind, Phase, Press, Sender, TurnId, View
from channels.store import Store
from channels.store.records import Lease, StoreUnavailable, TurnState
from tests.channels.test_core import Open, Room, open_room
from tests.scripted import AskPerson, Fail, Pause, Say

__all__ = ["open_room"]

ENDLESS = [Say("begun "), Pause(3000), Say("never", message="b")]


async def stored_elsewhere(room: Room, inbound: Inbound) -> None:
    """Another replica takes an inbound in, as it does for webhooks."""
    store = await Store.open(room.bench._url, room.bench.clock)
    await Inbox("bench", room.bench.policy, store, room.bench.clock, room.bench.metrics).accept(inbound)
    await store.close()


def stops(room: Room, how: str, question: Inbound, turn: TurnId) -> Inbound:
    match how:
        case "command":
            return room.inbound("/stop")
        case "stopped":
            (message,) = room.adapter.papers["room"].sheets
            return replace(room.inbound("", kind=InboundKind.STOPPED), message_id=message)
        case "stopped somewhere":
            return replace(room.inbound("", kind=InboundKind.STOPPED), message_id="")
        case "deleted":
            return replace(room.inbound("", kind=InboundKind.DELETED), message_id=question.message_id)
        case "new":
            return room.inbound("/new")
    return replace(room.inbound("", kind=InboundKind.PRESS), press=press(turn))


def press(turn: TurnId) -> Press:
    return Press(Action.STOP, turn)


@pytest.mark.parametrize("how", ["command", "stopped", "stopped somewhere", "deleted", "new", "button"])
async def test_a_stop_while_nobody_owns_the_channel_is_obeyed_by_the_next_owner(open_room: Open, how: str) -> None:
    room = await open_room(ENDLESS)
    question = room.inbound("one")
    await room.bench.inbox.accept(question)
    await room.shows("begun")
    last = await room.last()
    await room.bench.stop()
    await stored_elsewhere(room, stops(room, how, question, last.id))
    await room.bench.start()
    await room.bench.settled()
    assert room.bench.gateway.runs[0].cancelled.is_set()
    assert "never" not in room.text()
    stopped = await room.bench.store.turn(last.id)
    assert stopped is not None
    assert stopped.final is not None
    assert stopped.final.phase is Phase.STOPPED


@pytest.mark.parametrize("slow", ["file", "thread"])
async def test_a_stop_does_not_wait_for_what_comes_before_the_run(
    open_room: Open, monkeypatch: pytest.MonkeyPatch, slow: str
) -> None:
    room = await open_room([Say("never")])
    begun = asyncio.Event()

    async def never() -> None:
        begun.set()
        await asyncio.Event().wait()

    async def fetch(attachment: Attachment) -> AsyncIterator[bytes]:
        await never()
        yield b""

    async def prepare(*_: object) -> None:
        await never()

    if slow == "file":
        monkeypatch.setattr(room.adapter, "fetch", fetch)
    else:
        monkeypatch.setattr(room.bench.gateway, "prepare_thread", prepare)
    await room.say("read this", attachments=(Attachment("a.txt", "text/plain", {"name": "a.txt"}),))
    await begun.wait()
    await room.say("/stop")
    await room.bench.settled()
    assert not room.bench.gateway.runs
    assert "Stopped" in room.text()


async def test_a_stop_outlives_the_owner_who_was_told(open_room: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    room = await open_room(ENDLESS)
    await room.say("one")
    await room.shows("begun")
    gateway = room.bench.gateway
    stop = gateway.stop

    async def unreachable(turn: TurnId) -> bool:
        return False

    monkeypatch.setattr(gateway, "stop", unreachable)
    await room.say("/stop")

    async def is_noted() -> bool:
        return bool((await room.last()).stop_notice)

    await room.bench.until(is_noted)
    await room.bench.stop()
    monkeypatch.setattr(gateway, "stop", stop)
    await room.bench.start()
    await room.bench.settled()
    assert gateway.runs[0].cancelled.is_set()
    assert (await final(room)).phase is Phase.STOPPED


@pytest.mark.parametrize("settle", [0.0, 1.0])
async def test_a_stop_right_after_the_question_is_obeyed(open_room: Open, settle: float) -> None:
    room = await open_room([Say("begun "), Pause(20), Say("the rest", message="b")])
    for number in range(5):
        await room.say(f"question {number}", settle=settle)
        await room.say("/stop")
        await room.bench.settled()
    assert "the rest" not in room.text()
    await room.say("and now?")
    await room.shows("the rest")


@pytest.mark.parametrize("is_owned", [True, False])
async def test_a_question_right_behind_new_is_asked_in_the_new_conversation(open_room: Open, is_owned: bool) -> None:
    room = await open_room([Say("answer")])
    await room.say("one")
    await room.bench.settled()
    behind = [room.inbound("/new"), room.inbound("two")]
    if is_owned:
        for inbound in behind:
            await room.bench.inbox.accept(inbound)
    else:
        await room.bench.stop()
        for inbound in behind:
            await stored_elsewhere(room, inbound)
        await room.bench.start()
    await room.bench.until(lambda: room.bench.gateway.questions == ["one", "two"])
    await room.bench.settled()
    first, second = (run.request.thread for run in room.bench.gateway.runs)
    assert first != second
    assert (await final(room)).phase is Phase.DONE


async def test_a_question_right_behind_a_stop_is_answered(open_room: Open) -> None:
    room = await open_room([Say("answer")])
    await room.say("one")
    await room.bench.settled()
    await room.bench.stop()
    for text in ("/stop", "two"):
        await stored_elsewhere(room, room.inbound(text))
    await room.bench.start()
    await room.bench.until(lambda: room.bench.gateway.questions == ["one", "two"])
    await room.bench.settled()
    assert (await final(room)).phase is Phase.DONE


async def test_a_stop_that_comes_late_does_not_reach_a_newer_answer(open_room: Open) -> None:
    room = await open_room([Say("begun "), Pause(20), Say("done", message="b")])
    now = room.bench.clock.now()
    await room.say("two", sent_at=now)
    await room.shows("begun")
    await room.say("/stop", sent_at=now - 60)
    await room.bench.settled()
    assert "done" in room.text()


async def test_a_stop_does_not_reach_what_is_asked_after_it(open_room: Open) -> None:
    room = await open_room([Say("answer")])
    stop = room.inbound("/stop")
    later = room.inbound("later", settle=5.0, received_at=stop.received_at + 1.0)
    await room.bench.inbox.accept(later)
    await room.bench.inbox.accept(stop)
    await room.bench.settled()
    assert room.bench.gateway.questions == ["later"]
    assert "answer" in room.text()


async def test_who_may_not_stop_an_answer_is_told_so(open_room: Open) -> None:
    room = await open_room([Say("begun "), Pause(20), Say("done", message="b")], policy=Policy(admins=("boss",)))
    await room.say("one")
    await room.shows("begun")
    await room.say("/stop", sender=Sender("u2", "Bob"))
    await room.bench.settled()
    assert "Only who has asked, or an admin, can stop this answer." in room.text()
    assert "done" in room.text()


# ---------------------------------------------------------------- what is given up


async def test_a_turn_that_is_given_up_leaves_no_run_behind(open_room: Open) -> None:
    room = await open_room(ENDLESS, give_up_after=30.0)
    await room.say("one")

    async def is_dead() -> bool:
        return bool(await room.bench.store.dead_letters())

    await room.bench.until(is_dead)
    assert room.bench.gateway.runs[0].cancelled.is_set()


async def test_an_answer_to_a_command_that_cannot_be_shown_is_no_dead_letter(open_room: Open) -> None:
    room = await open_room([Say("answer")], give_up_after=5.0)
    paper = room.adapter.papers["room"]
    paper.trouble = lambda _: (Transient("the platform is away"), False)
    await room.say("/help")
    await room.bench.until(lambda: len(paper.calls) > 2)
    await room.bench.settled()
    assert room.text() == ""
    assert await room.bench.store.dead_letters() == []


# ---------------------------------------------------------------- asked again


async def test_a_question_that_led_to_another_is_asked_again_as_it_was(open_room: Open) -> None:
    room = await open_room([AskPerson({"question": "Which city?"})])
    await room.say("book a flight")
    await room.bench.settled()
    assert (await final(room)).phase is Phase.ASKING
    await room.say("/retry")
    await room.bench.until(lambda: len(room.bench.gateway.runs) == 2)
    await room.bench.settled()
    assert room.bench.gateway.questions == ["book a flight", "book a flight"]


async def test_an_answer_whose_run_failed_is_given_again(open_room: Open) -> None:
    question = AskPerson({"question": "Which?", "options": ["red", "blue"]})
    room = await open_room([question], [Fail("The agent failed. /retry asks again.")], [Say("It worked")])
    await room.say("paint it")
    await room.bench.settled()
    await room.press(Action.ANSWER, (await room.last()).id, "1")
    await room.shows("The agent failed")
    await room.bench.settled()
    await room.say("/retry")
    await room.shows("It worked")
    second, third = (run.request.input for run in room.bench.gateway.runs[1:])
    assert second == third


async def test_what_was_asked_before_a_new_conversation_is_asked_again_in_this_one(open_room: Open) -> None:
    question = AskPerson({"question": "Which city?"})
    room = await open_room([Say("first")], [question], [Say("second")])
    await room.say("one")
    await room.bench.settled()
    old = (await room.last()).id
    await room.say("/new")
    await room.bench.settled()
    await room.say("book a flight")
    await room.bench.settled()
    asked = await room.last()
    assert (await final(room)).phase is Phase.ASKING
    await room.press(Action.RETRY, old)
    await room.shows("second")
    await room.bench.settled()
    assert room.bench.gateway.questions == ["one", "book a flight", "one"]
    withdrawn = await room.bench.store.turn(asked.id)
    assert withdrawn is not None
    assert withdrawn.final is not None
    assert "asked again" in withdrawn.final.notice


async def test_a_retry_is_done_once_whatever_the_store_does_in_between(
    open_room: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = await open_room([Say("first")], [Say("second")], [Say("third")])
    await room.say("one")
    await room.bench.settled()
    done, failures = room.bench.store.control_done, 1

    async def away(lease: Lease, inbound: int) -> None:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise StoreUnavailable("away")
        await done(lease, inbound)

    monkeypatch.setattr(room.bench.store, "control_done", away)
    await room.say("/retry")
    await room.shows("second")
    await room.bench.clock.sleep(10)
    await room.bench.settled()
    assert room.text() == "firstsecond"


# ---------------------------------------------------------------- changed while it is carried


async def test_a_question_answered_while_its_turn_is_just_ending_loses_its_buttons(open_room: Open) -> None:
    room = await open_room([AskPerson({"question": "Which?", "options": ["red", "blue"]})], [Say("Thanks.")])
    adapter = room.adapter
    hint: Callable[[ReplyTarget, HintState], Awaitable[None]] = adapter.hint

    async def slow(target: ReplyTarget, state: HintState) -> None:
        if state is HintState.DONE:
            await room.bench.clock.sleep(3)
        await hint(target, state)

    adapter.hint = slow  # type: ignore[method-assign]
    await room.say("paint it")

    async def has_asked() -> bool:
        return bool(room.bench.gateway.runs) and (await room.last()).state is TurnState.DONE

    await room.bench.until(has_asked)
    first = await room.last()
    await room.press(Action.ANSWER, first.id, "1")
    await room.shows("Thanks.")
    await room.bench.settled()
    turn = await room.bench.store.turn(first.id)
    assert turn is not None
    assert turn.final is not None
    assert turn.final.question is not None
    assert turn.final.question.answer == "blue"


async def final(room: Room) -> View:
    view = (await room.last()).final
    assert view is not None
    return view


async def test_the_platforms_own_stop_control_stops_the_answer_that_it_was_used_on_and_no_other(
    open_room: Open,
) -> None:
    room = await open_room([Say("first "), Pause(20), Say("end")], [Say("second "), Pause(20), Say("end", message="b")])
    await room.say("one")
    await room.shows("first")
    await room.say("two")
    (message,) = room.adapter.papers["room"].sheets
    await room.say("", kind=InboundKind.STOPPED, event_key="now", message_id=message)
    await room.shows("second")
    await room.say("", kind=InboundKind.STOPPED, event_key="late", message_id=message)
    await room.bench.settled()
    phases = []
    for run in room.bench.gateway.runs:
        turn = await room.bench.store.turn(run.request.turn)
        assert turn is not None
        assert turn.final is not None
        phases.append(turn.final.phase)
    assert phases == [Phase.STOPPED, Phase.DONE]


async def test_the_platforms_own_stop_control_takes_back_no_question_that_waits(open_room: Open) -> None:
    room = await open_room([Say("first")], [Say("second")])
    await room.say("one")
    await room.bench.settled()
    await room.say("two", settle=5.0)
    await room.say("", kind=InboundKind.STOPPED, message_id="gone")
    await room.bench.settled()
    assert room.bench.gateway.questions == ["one", "two"]
