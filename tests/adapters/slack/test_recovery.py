"""Restarts and crashes in the middle of an answer: one complete answer, whatever was stored by then."""

from __future__ import annotations

import re

import pytest

from adapters.slack.shown import SlackShown
from channels.access import ConversationScope, Policy
from channels.model import TurnId
from tests.adapters.slack.conftest import OpenDesk
from tests.adapters.slack.desk import Desk
from tests.emulators.journal import Fault, FaultKind
from tests.emulators.slack import ANN, BOB, GENERAL, SlackEmulator
from tests.emulators.slack.clients import web_client
from tests.scripted import GiveFile, Pause, Say, UseTool


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


async def test_a_stream_whose_beginning_nobody_heard_of_goes_on_in_the_same_message(
    open_desk: OpenDesk, slack: SlackEmulator
) -> None:
    """Slack tells neither what a running stream says nor that it runs; that it is there, without a turn, is enough."""
    desk = await open_desk([Say(words(40) + " ", pace=0.2), Pause(10), Say(words(40, 40))])
    slack.faults.plan("chat.startStream", Fault(FaultKind.DROP_AFTER))
    root = await desk.ask("hello")
    await desk.answered()
    whole(desk, root, 80)
    assert len(desk.calls("chat.startStream")) == 1
    assert not desk.calls("chat.update")


@pytest.mark.parametrize("crash", [False, True])
async def test_neither_an_earlier_answer_nor_its_files_are_taken_for_a_lost_stream(
    open_desk: OpenDesk, slack: SlackEmulator, crash: bool
) -> None:
    """They come after the question that waits; one of its messages was ended by Slack and put right by an edit."""
    said = [Say(words(10, start) + " ", pace=0.2) for start in (0, 10, 20)]
    script = [said[0], Pause(15), said[1], Pause(10), said[2], Pause(10), GiveFile("a.txt", b"a")]
    desk = await open_desk(script, [Say(words(10, 30), pace=1.0)])
    root = await desk.ask("hello")
    await desk.shows("w9w", root)
    await desk.ask("and then?", thread_ts=root)
    slack.expire_streams()
    await desk.shows("w29w", root)
    assert slack.expire_streams()
    slack.faults.plan("chat.startStream", Fault(FaultKind.DROP_BEFORE))
    await desk.until(lambda: any(call.status == 0 for call in desk.calls("chat.startStream")))
    if crash:
        await desk.bench.crash()
    await desk.answered(2)
    whole(desk, root, 40)


@pytest.mark.parametrize("crash", [False, True])
async def test_another_readers_running_stream_in_the_thread_is_not_taken_for_the_lost_one(
    open_desk: OpenDesk, slack: SlackEmulator, crash: bool
) -> None:
    slow = [Pause(20), Say(words(20), pace=0.2)]
    long = [Say(words(20, 20), pace=0.2), Say(" "), Pause(60), Say(words(20, 40))]
    desk = await open_desk(slow, long, policy=Policy(conversation=ConversationScope.USER))
    root = await desk.ask("hello")
    await desk.until(lambda: desk.bench.gateway.runs)
    await desk.ask("me too", user=BOB, thread_ts=root)
    await desk.until(lambda: desk.calls("chat.startStream"))
    slack.faults.plan("chat.startStream", Fault(FaultKind.DROP_BEFORE))
    await desk.until(lambda: any(call.status == 0 for call in desk.calls("chat.startStream")))
    if crash:
        slack.faults.plan("chat.stopStream", Fault(FaultKind.DELAY, seconds=10))  # after which it is known whose it is
        await desk.bench.crash()
    await desk.answered(2)
    said = [re.findall(r"w\d+w", reply.text) for reply in desk.replies(root)]
    assert sorted(word for text in said for word in text) == sorted(words(60).split())
    assert not any("w0w" in text and "w20w" in text for text in said)


@pytest.mark.parametrize(("texts", "seconds"), [(["Maintenance at noon."], 90), (["Maintenance", "at noon."], 10)])
async def test_what_else_is_posted_in_the_bots_name_is_not_taken_for_a_lost_stream(
    open_desk: OpenDesk, slack: SlackEmulator, texts: list[str], seconds: float
) -> None:
    """Another program, with the same token: a while ago, or so much that nobody knows which message it would be."""
    desk = await open_desk([Pause(seconds), Say(words(20), pace=0.2)])
    root = await desk.ask("hello")
    await desk.until(lambda: desk.bench.gateway.runs)
    async with web_client(slack) as program:
        for text in texts:
            await program.chat_postMessage(channel=GENERAL, thread_ts=root, text=text)
    slack.faults.plan("chat.startStream", Fault(FaultKind.DROP_BEFORE))
    await desk.answered()
    assert [reply.text for reply in desk.replies(root)] == [*texts, words(20)]


async def test_the_root_of_an_assistants_thread_is_not_taken_for_a_lost_stream(
    open_desk: OpenDesk, slack: SlackEmulator
) -> None:
    """Slack writes it in the bot's name, a moment before the question."""
    desk = await open_desk([Say(words(20), pace=0.2)])
    thread = await slack.open_assistant(ANN)
    slack.faults.plan("chat.startStream", Fault(FaultKind.DROP_BEFORE))
    await slack.dm(ANN, "hello", thread_ts=thread)
    await desk.answered()
    assert slack.answers(slack.direct(ANN).id, thread)[-1].text == words(20)


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
