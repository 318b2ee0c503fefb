"""What Slack refuses for good: whatever it is, the reader gets the answer, or a sentence that it cannot be shown."""

from __future__ import annotations

import re

import pytest
from structlog.testing import capture_logs

from adapters.slack import api, performing
from channels.adapter import Gone, Refused
from channels.store.records import TurnState
from tests.adapters.slack.conftest import SPEED, OpenDesk
from tests.adapters.slack.desk import Desk
from tests.emulators.journal import Fault, FaultKind
from tests.emulators.slack import ANN, BOB, GENERAL, OTHER_BOT, SlackEmulator
from tests.scripted import AskPerson, GiveFile, Pause, Say, UseTool

SENTENCE = "Slack does not let me show this answer in full."


def words(count: int, start: int = 0) -> str:
    return " ".join(f"w{number}w" for number in range(start, start + count))


def whole(desk: Desk, root: str, count: int) -> None:
    assert re.findall(r"w\d+w", desk.text(root)) == words(count).split()


def refusal(error: str) -> Fault:
    return Fault(FaultKind.ANSWER, 200, body={"ok": False, "error": error})


# ---------------------------------------------------------------- a stream that cannot be ended


@pytest.mark.parametrize("error", ["user_not_found", "missing_recipient_user_id", "slack_connect_blocked"])
async def test_a_stream_that_cannot_be_ended_is_left_with_the_whole_answer_and_the_next_answer_is_no_stream(
    open_desk: OpenDesk, slack: SlackEmulator, error: str
) -> None:
    slack.refuse_ends(GENERAL, error, ANN)
    script = [Say(words(40) + " ", pace=0.2), UseTool("crawl", 3), Say(words(40, 40), message="b")]
    desk = await open_desk(script, [Say(words(20), pace=0.3)])
    root = await desk.ask("hello")
    await desk.answered()
    whole(desk, root, 80)
    (answer,) = desk.replies(root)
    assert {task.status for task in answer.tasks} == {"complete"}
    assert len(desk.calls("chat.stopStream")) == 1
    again = await desk.ask("again")
    await desk.answered(2)
    assert desk.text(again) == words(20)
    other = await desk.ask("and me?", user=BOB)
    await desk.answered(3)
    assert desk.text(other) == words(20)
    assert [call.args["recipient_user_id"] for call in desk.calls("chat.startStream")] == [ANN, BOB]


async def test_a_long_answer_goes_on_below_a_stream_that_cannot_be_ended(
    open_desk: OpenDesk, slack: SlackEmulator
) -> None:
    slack.refuse_ends(GENERAL, "user_not_found", ANN)
    desk = await open_desk([Say(words(1_200), size=300, pace=0.3)], limits={"message_size": 3_000})
    root = await desk.ask("hello")
    await desk.answered()
    whole(desk, root, 1_200)
    assert len(desk.replies(root)) >= 3
    assert len(desk.calls("chat.startStream")) == 1


async def test_what_is_asked_in_a_stream_that_cannot_be_ended_has_its_buttons_below(
    open_desk: OpenDesk, slack: SlackEmulator
) -> None:
    slack.refuse_ends(GENERAL, "user_not_found", ANN)
    asking = AskPerson({"question": "Which city?", "options": ["Amsterdam", "The Hague"]})
    desk = await open_desk([Say("I need to know something."), asking], [Say("Thank you.")])
    root = await desk.ask("book a train")
    await desk.answered()
    question, buttons = desk.replies(root)
    assert "Which city?" in question.text
    await slack.press(GENERAL, buttons.ts, ANN, text="The Hague")
    await desk.answered(2)
    assert desk.text(root).endswith("Thank you.")


# ---------------------------------------------------------------- an answer in no form


async def test_an_answer_that_slack_takes_in_no_form_ends_with_a_sentence_and_a_warning(
    open_desk: OpenDesk, slack: SlackEmulator
) -> None:
    desk = await open_desk([Say(words(40)), GiveFile("report.txt", b"all is well")], streaming="off")
    slack.faults.plan("chat.postMessage", *[refusal("invalid_blocks")] * 5)
    with capture_logs() as records:
        root = await desk.ask("hello")
        await desk.answered()
    assert [(reply.text, reply.files) for reply in desk.replies(root)] == [(SENTENCE, ()), ("", ("report.txt",))]
    (warning,) = [record for record in records if record["log_level"] == "warning"]
    assert "in no form" in warning["event"]
    assert warning["turn"] == desk.bench.gateway.runs[0].request.turn


async def test_an_answer_about_which_nothing_can_be_said_either_is_at_least_a_warning(
    open_desk: OpenDesk, slack: SlackEmulator
) -> None:
    desk = await open_desk([Say(words(40))], streaming="off")
    slack.faults.plan("chat.postMessage", *[refusal("invalid_blocks")] * 100)
    with capture_logs() as records:
        root = await desk.ask("hello")
        await desk.answered()
    assert desk.replies(root) == []
    assert "the answer could not be shown" in str([record["event"] for record in records])
    assert (await desk.turn_of()).state is TurnState.DEAD
    assert len(desk.calls("chat.postMessage")) == 6


async def test_an_answer_to_a_slash_command_that_slack_takes_in_no_form_comes_the_commands_own_way(
    open_desk: OpenDesk, slack: SlackEmulator
) -> None:
    desk = await open_desk([Say("A river.")], streaming="off")
    slack.faults.plan("chat.postMessage", *[refusal("invalid_blocks")] * 100)
    await slack.slash_command(GENERAL, ANN, "/agent", "what is the Rhine?")
    await desk.answered()
    (answer,) = slack.answers(GENERAL)
    assert "A river." in answer.text


@pytest.mark.parametrize("status", [400, 404])
async def test_an_answer_by_response_url_that_is_refused_is_a_warning(
    open_desk: OpenDesk, slack: SlackEmulator, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    apart = slack.add_channel("C0APART", "apart", members=[ANN], with_bot=False).id
    desk = await open_desk([Say("A river.")])
    sent: list[str] = []
    failure = Gone("used up") if status == 404 else Refused("bad")

    async def respond(self: object, url: str, message: object) -> None:
        sent.append(url)
        raise failure

    monkeypatch.setattr(api.SlackApi, "respond", respond)
    with capture_logs() as records:
        await slack.slash_command(apart, ANN, "/agent", "what is the Rhine?")
        await desk.answered()
    assert len(sent) == (1 if status == 404 else 2)
    assert "the answer could not be shown" in str([record["event"] for record in records])


async def test_where_a_message_takes_no_replies_the_answer_comes_at_top_level_and_its_thread_goes_on(
    open_desk: OpenDesk, slack: SlackEmulator
) -> None:
    desk = await open_desk([Pause(10), Say(words(60), pace=0.3), GiveFile("report.txt", b"all is well")], [Say("Yes.")])
    root = await desk.ask("hello")
    slack.refuse_replies(GENERAL, root)
    await desk.answered()
    answer, file = (message for message in slack.answers(GENERAL) if message.ts != root)
    assert (answer.text, answer.thread_ts) == (words(60), None)
    assert (file.files, file.thread_ts) == (("report.txt",), None)
    await slack.send(GENERAL, BOB, "really?", thread_ts=answer.ts)
    await desk.answered(2)
    assert len({run.request.thread for run in desk.bench.gateway.runs}) == 1
    assert desk.text(answer.ts) == "Yes."


# ---------------------------------------------------------------- files


async def test_a_file_that_may_not_be_there_is_named_at_once_and_the_next_one_comes(
    open_desk: OpenDesk, slack: SlackEmulator
) -> None:
    desk = await open_desk([Say("Here you are."), GiveFile("a.txt", b"a"), GiveFile("b.txt", b"b")])
    slack.faults.plan("files.completeUploadExternal", refusal("slack_connect_file_link_sharing_blocked"))
    root = await desk.ask("report")
    await desk.answered()
    assert [reply.files for reply in desk.replies(root)] == [(), ("b.txt",)]
    assert desk.text(root).startswith("Here you are.\nCould not be attached: a.txt")
    assert len(desk.calls("files.getUploadURLExternal")) == 2


async def test_a_file_is_given_as_long_as_its_size_needs(
    open_desk: OpenDesk, slack: SlackEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a world where every call has a second of ours, and a slow line brings 50 bytes in one."""
    monkeypatch.setattr(api, "_TIMEOUT", 1.0)
    monkeypatch.setattr(performing, "_LONGEST", 1.0)
    monkeypatch.setattr(api, "SLOWEST_LINE", 50)
    slack.configure(upload_seconds=1.5 * SPEED)
    desk = await open_desk([Say("Here you are."), GiveFile("large.txt", b"x" * 200)])
    root = await desk.ask("report")
    await desk.answered()
    assert [reply.files for reply in desk.replies(root)] == [(), ("large.txt",)]
    assert len(desk.calls("upload")) == 1


# ---------------------------------------------------------------- look-ups


@pytest.mark.parametrize("method", ["chat.startStream", "files.completeUploadExternal"])
async def test_a_look_through_a_long_thread_keeps_to_its_rate(
    open_desk: OpenDesk, slack: SlackEmulator, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Each page of it is a call of its own."""
    monkeypatch.setattr(performing, "_PAGE_SIZE", 3)
    slack.throttle("conversations.replies", 2, 10.0)
    budget = {"conversations.replies": {"limit": 2, "window": 11}}
    script = [Pause(5), Say(words(20), pace=0.2), GiveFile("report.txt", b"all is well")]
    desk = await open_desk(script, limits={"budgets": budget})
    root = await desk.ask("hello")
    await desk.until(lambda: desk.bench.gateway.runs)
    for number in range(12):
        await slack.say_as_bot(GENERAL, OTHER_BOT, f"Build {number} is done", thread_ts=root)
    slack.faults.plan(method, Fault(FaultKind.DROP_AFTER))
    await desk.answered(timeout=60)
    whole(desk, root, 20)
    assert sum(bool(reply.files) for reply in desk.replies(root)) == 1
    assert len(desk.calls(method)) == 1
    looked = desk.calls("conversations.replies")
    assert len(looked) >= 4
    assert {call.status for call in looked} == {200}
