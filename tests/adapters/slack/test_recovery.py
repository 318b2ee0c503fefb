"""Restarts and crashes in the middle of an answer: one complete answer, whatever was stored by then."""

from __future__ import annotations

import re

import pytest

from adapters.slack.shown import SlackShown
from channels.model import TurnId
from tests.adapters.slack.conftest import OpenDesk
from tests.adapters.slack.desk import Desk
from tests.emulators.journal import Fault, FaultKind
from tests.emulators.slack import ANN, GENERAL, SlackEmulator
from tests.scripted import Pause, Say, UseTool


def words(count: int, start: int = 0) -> str:
    return " ".join(f"w{number}w" for number in range(start, start + count))


def whole(desk: Desk, root: str, count: int, channel: str = GENERAL) -> None:
    assert re.findall(r"w\d+w", desk.text(root, channel)) == re.findall(r"w\d+w", words(count))
    assert not any(reply.streaming or reply.stuck for reply in desk.replies(root, channel))


async def test_a_handover_in_the_middle_of_a_stream_goes_on(open_desk: OpenDesk) -> None:
    desk = await open_desk([Say(words(40) + " ", pace=0.2), UseTool("crawl", 30), Say(words(40, 40), message="b")])
    root = await desk.ask("hello")
    await desk.shows("w20w", root)
    await desk.bench.restart()
    await desk.answered()
    whole(desk, root, 80)


async def test_a_crash_in_the_middle_of_a_stream_goes_on(open_desk: OpenDesk) -> None:
    desk = await open_desk([Say(words(40) + " ", pace=0.2), UseTool("crawl", 30), Say(words(40, 40), message="b")])
    root = await desk.ask("hello")
    await desk.shows("w30w", root)
    await desk.bench.crash()
    await desk.answered()
    whole(desk, root, 80)


async def test_a_crash_in_the_middle_of_edits_goes_on_in_the_same_message(open_desk: OpenDesk) -> None:
    desk = await open_desk([Say(words(40) + " ", pace=0.2), Pause(30), Say(words(40, 40))], streaming="edit")
    root = await desk.ask("hello")
    await desk.shows("w30w", root)
    await desk.bench.crash()
    await desk.answered()
    whole(desk, root, 80)
    assert len(desk.replies(root)) == 1


@pytest.mark.parametrize("kind", [FaultKind.DROP_AFTER, FaultKind.DROP_BEFORE])
@pytest.mark.parametrize("streaming", ["auto", "edit"])
async def test_a_creation_that_nobody_heard_of_before_the_crash_is_found_again(
    open_desk: OpenDesk, slack: SlackEmulator, kind: FaultKind, streaming: str
) -> None:
    desk = await open_desk([Say(words(40) + " ", pace=0.2), Pause(40), Say(words(40, 40))], streaming=streaming)
    for method in ("chat.startStream", "chat.postMessage"):
        slack.faults.plan(method, Fault(kind))
    root = await desk.ask("hello")
    await desk.until(lambda: desk.calls("chat.startStream") or desk.calls("chat.postMessage"))
    await desk.bench.crash()
    await desk.answered()
    whole(desk, root, 80)


async def test_a_crash_before_the_end_is_known_to_be_shown_leaves_one_answer(
    open_desk: OpenDesk, slack: SlackEmulator
) -> None:
    desk = await open_desk([Say(words(60), pace=0.2)])
    slack.faults.plan("chat.stopStream", Fault(FaultKind.DROP_AFTER), Fault(FaultKind.DELAY, seconds=20))
    root = await desk.ask("hello")
    await desk.until(lambda: desk.calls("chat.stopStream"))
    await desk.bench.crash()
    await desk.answered()
    whole(desk, root, 60)
    assert slack.sessions[(GENERAL, root)].status == "active"


async def test_tasks_that_were_turning_at_the_crash_do_not_turn_for_ever(open_desk: OpenDesk) -> None:
    desk = await open_desk([UseTool("crawl", 60), Say(words(10))])
    root = await desk.ask("hello")
    await desk.until(lambda: any(task.status == "in_progress" for m in desk.replies(root) for task in m.tasks))
    await desk.bench.crash()
    await desk.answered()
    whole(desk, root, 10)
    assert not [t for m in desk.replies(root) for t in m.tasks if t.status in ("in_progress", "pending")]


async def test_a_crash_while_direct_messages_are_answered_looks_for_the_lost_one_in_the_chat(
    open_desk: OpenDesk, slack: SlackEmulator
) -> None:
    desk = await open_desk([Say(words(30), pace=0.3)])
    slack.faults.plan("chat.postMessage", Fault(FaultKind.DROP_AFTER))
    await slack.dm(ANN, "hello")
    await desk.until(lambda: desk.calls("chat.postMessage"))
    await desk.bench.crash()
    await desk.answered()
    assert [answer.text for answer in slack.answers(slack.direct(ANN).id)] == [words(30)]
    assert desk.calls("conversations.history")


async def test_what_is_stored_of_a_reply_is_small_and_holds_no_text(open_desk: OpenDesk) -> None:
    desk = await open_desk([UseTool("search", 3), Say(words(2000), size=300, pace=0.2)])
    await desk.ask("hello")
    await desk.answered(timeout=60)
    turn = await desk.bench.store.turn(TurnId(desk.bench.gateway.runs[0].request.turn))
    assert turn is not None
    stored = SlackShown.model_validate(turn.shown).model_dump_json()
    assert "w100w" not in stored
    assert len(stored) < 3_000
