"""The whole way of one question through Slack and back."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from adapters.slack import limits
from channels.access import Policy, ShowReasoning
from channels.adapter import FILE_PATIENCE, ChannelState, FileAway, FileGone, HintState, OpenFile, ReplyTarget
from channels.model import File, Phase, TurnId
from channels.store.records import TurnState
from tests.adapters.slack.conftest import OpenDesk
from tests.adapters.slack.desk import Desk
from tests.emulators.journal import Fault, FaultKind
from tests.emulators.slack import ANN, BOB, GENERAL, GUEST, SECRET, TEAM, SlackEmulator
from tests.scripted import AskPerson, Fail, GiveFile, Pause, Say, Think, UseTool

ANSWER = (
    "The **capital** of the Netherlands is Amsterdam.\n\nIts seat of government is The Hague, and `The Hague` it is."
)


def words(count: int, start: int = 0) -> str:
    return " ".join(f"w{number}w" for number in range(start, start + count))


def numbered(text: str) -> list[str]:
    return re.findall(r"w\d+w", text)


async def test_an_answer_is_streamed_into_the_thread_under_the_question(open_desk: OpenDesk) -> None:
    desk = await open_desk([Say(ANSWER, pace=0.2)])
    root = await desk.ask("what is the capital?")
    await desk.answered()
    (answer,) = desk.replies(root)
    assert answer.text == ANSWER
    assert not answer.streaming
    assert answer.seen_by == "all"
    (start,) = desk.calls("chat.startStream")
    assert (start.args["recipient_user_id"], start.args["recipient_team_id"]) == (ANN, TEAM)
    assert len(desk.calls("chat.stopStream")) == 1
    assert len(desk.calls("chat.appendStream")) >= 2
    assert not desk.calls("chat.postMessage")


async def test_the_first_words_show_at_once_and_the_last_ones_before_a_silent_tool_call(open_desk: OpenDesk) -> None:
    desk = await open_desk([Say("Let me look that", size=3), UseTool("search", 60), Say("Found.", message="b")])
    root = await desk.ask("where?")
    await desk.shows("Let me look that", root)
    assert not desk.bench.gateway.runs[0].done > 1, "the tool is still running"
    await desk.answered()
    assert desk.text(root) == "Let me look that\n\nFound."


async def test_words_after_which_the_model_falls_silent_are_shown(open_desk: OpenDesk) -> None:
    desk = await open_desk([Say("Nearly don", size=4), Pause(40), Say("e now.")])
    root = await desk.ask("ready?")
    await desk.shows("Nearly don", root)
    assert desk.text(root) == "Nearly don"
    await desk.answered()
    assert desk.text(root) == "Nearly done now."


async def test_steps_are_tasks_of_the_stream_and_are_over_when_it_is(open_desk: OpenDesk) -> None:
    policy = Policy(show_reasoning=ShowReasoning.ON)
    script = [Think("Where was it?"), UseTool("search", 10, '{"q": "amsterdam"}'), UseTool("read", 5), Say("Found it.")]
    desk = await open_desk(script, policy=policy)
    root = await desk.ask("where?")
    await desk.until(lambda: any(task.status == "in_progress" for m in desk.replies(root) for task in m.tasks))
    await desk.answered()
    (answer,) = desk.replies(root)
    tasks = {task.title: task for task in answer.tasks}
    assert list(tasks) == ["Thinking", "search", "read"]
    assert tasks["search"].details == "amsterdam"
    assert tasks["Thinking"].details == "Where was it?"
    assert {task.status for task in answer.tasks} == {"complete"}
    assert answer.text == "Found it."


async def test_steps_can_be_drawn_as_a_plan(open_desk: OpenDesk) -> None:
    desk = await open_desk([UseTool("search", 3), Say("Found it.")], steps="plan")
    await desk.ask("where?")
    await desk.answered()
    assert desk.calls("chat.startStream")[0].args["task_display_mode"] == "plan"


async def test_a_long_answer_flows_into_further_messages(open_desk: OpenDesk) -> None:
    paragraphs = [words(60, 60 * number) for number in range(75)]
    code = "\n".join(f"w{number}w = 1" for number in range(4500, 5500))
    text = "\n\n".join([*paragraphs, f"```python\n{code}\n```", words(40, 5500)])
    assert len(text) > 30_000
    desk = await open_desk([Say(text, size=400, pace=0.3)])
    root = await desk.ask("tell me all")
    await desk.answered(timeout=60)
    replies = desk.replies(root)
    assert len(replies) >= 4
    assert numbered(desk.text(root)) == numbered(text)
    for reply in replies:
        assert reply.text.count("```") % 2 == 0
        assert not reply.streaming
        assert len(reply.text.encode()) <= 9_200


async def test_tables_code_and_chinese_arrive_as_they_were_written(open_desk: OpenDesk) -> None:
    text = (
        "结果如下：\n\n| 城市 | 人口 |\n|---|---|\n| 阿姆斯特丹 | 90万 |\n| 海牙 | 55万 |\n\n"
        "```py\nprint('<b>')\n```\n\n1. 一\n2. **二**\n\n> 完。"
    )
    desk = await open_desk([Say(text, size=3, pace=0.15)])
    root = await desk.ask("表")
    await desk.answered()
    (answer,) = desk.replies(root)
    assert answer.text == text


async def test_nobody_is_rung_by_what_a_model_writes(open_desk: OpenDesk) -> None:
    text = "Hello <!channel> and @here, <@U0BOB> and @everyone!\n\n    @channel in indented code\n\n`@here` stays."
    desk = await open_desk([Say(text, size=2, pace=0.1), AskPerson({"question": "@channel?", "options": ["@here"]})])
    root = await desk.ask("say hello to @all")
    await desk.answered()
    assert "`@here` stays." in desk.text(root)
    assert "<!channel>" not in desk.text(root)


# ---------------------------------------------------------------- where streams cannot be had


async def test_direct_messages_at_top_level_are_answered_below_by_edits_and_share_a_conversation(
    open_desk: OpenDesk, slack: SlackEmulator
) -> None:
    desk = await open_desk([Say(words(100), pace=0.3)], [Say("two")])
    first = await slack.dm(ANN, "one")
    await desk.answered()
    await slack.dm(ANN, "two?")
    await desk.answered(2)
    direct = slack.direct(ANN).id
    answers = slack.answers(direct)
    assert [answer.thread_ts for answer in answers] == [None, None]
    assert answers[0].text == words(100)
    assert len(answers[0].versions) > 2
    assert not desk.calls("chat.startStream")
    assert len({run.request.thread for run in desk.bench.gateway.runs}) == 1
    assert ("eyes", first) in [(c.args["name"], c.args["timestamp"]) for c in desk.calls("reactions.add")]
    await desk.until(lambda: all(not message.reactions for message in slack.chat(direct)))


async def test_a_thread_in_direct_messages_is_a_conversation_of_its_own_with_a_stream(
    open_desk: OpenDesk, slack: SlackEmulator
) -> None:
    desk = await open_desk([Say("an answer")])
    thread = await slack.open_assistant(ANN)
    await slack.dm(ANN, "one", thread_ts=thread)
    await desk.answered()
    await slack.dm(ANN, "two")
    await desk.answered(2)
    direct = slack.direct(ANN).id
    assert [answer.text for answer in slack.answers(direct, thread) if answer.text] == ["an answer"]
    assert len(desk.calls("chat.startStream")) == 1
    assert len({run.request.thread for run in desk.bench.gateway.runs}) == 2


async def test_a_thread_under_the_bots_own_direct_message_stays_in_its_conversation(
    open_desk: OpenDesk, slack: SlackEmulator
) -> None:
    desk = await open_desk([Say("an answer")])
    await slack.dm(ANN, "one")
    await desk.answered()
    (answer,) = slack.answers(slack.direct(ANN).id)
    await slack.dm(ANN, "why?", thread_ts=answer.ts)
    await desk.answered(2)
    assert len({run.request.thread for run in desk.bench.gateway.runs}) == 1


async def test_direct_messages_can_be_answered_in_threads_that_share_their_conversation(
    open_desk: OpenDesk, slack: SlackEmulator
) -> None:
    desk = await open_desk([Say("an answer")], dm_replies="thread")
    first = await slack.dm(ANN, "one")
    await desk.answered()
    await slack.dm(ANN, "and then?", thread_ts=first)
    await desk.answered(2)
    direct = slack.direct(ANN).id
    assert [answer.text for answer in slack.answers(direct, first)] == ["an answer"] * 2
    assert len(desk.calls("chat.startStream")) == 2
    assert len({run.request.thread for run in desk.bench.gateway.runs}) == 1


async def test_a_reader_from_elsewhere_gets_edits_and_this_is_remembered(
    open_desk: OpenDesk, slack: SlackEmulator
) -> None:
    desk = await open_desk([Say(words(60), pace=0.4)], [Say("short")])
    root = await desk.ask("hello", user=GUEST)
    await desk.answered()
    assert desk.text(root) == words(60)
    assert len(desk.calls("chat.update")) >= 2
    again = await desk.ask("again", user=GUEST)
    await desk.answered(2)
    assert desk.text(again) == "short"
    assert len(desk.calls("chat.startStream")) == 1, "asked once"
    other = await desk.ask("me too", user=ANN)
    await desk.answered(3)
    assert desk.text(other) == "short"
    assert len(desk.calls("chat.startStream")) >= 1


async def test_a_channel_without_streams_falls_back_for_everybody_also_after_a_restart(
    open_desk: OpenDesk, slack: SlackEmulator
) -> None:
    slack.refuse_streams(GENERAL, "channel_type_not_supported")
    desk = await open_desk([Say(words(30), pace=0.3)])
    first = await desk.ask("hello")
    await desk.answered()
    await desk.bench.restart()
    await desk.until(lambda: slack.sockets.connections)
    second = await desk.ask("hello", user=BOB)
    await desk.answered(2)
    assert desk.text(first) == desk.text(second) == words(30)
    assert len(desk.calls("chat.startStream")) == 1
    elsewhere = await desk.ask("hello", channel=SECRET)
    await desk.answered(3)
    assert desk.text(elsewhere, SECRET) == words(30)
    assert len(desk.calls("chat.startStream")) == 2


async def test_edits_only_split_a_long_answer_and_show_a_stop_button_while_it_grows(open_desk: OpenDesk) -> None:
    text = "\n\n".join(words(60, 60 * number) for number in range(45))
    desk = await open_desk([Say(text, size=900, pace=0.8)], streaming="edit")
    root = await desk.ask("tell me all")
    await desk.until(lambda: any(b.text == "Stop" for m in desk.replies(root) for b in m.buttons))
    await desk.answered(timeout=60)
    assert len(desk.replies(root)) == 2
    assert numbered(desk.text(root)) == numbered(text)
    assert not [button for reply in desk.replies(root) for button in reply.buttons]
    assert not desk.calls("chat.startStream")


async def test_without_streaming_only_the_whole_answer_is_sent(open_desk: OpenDesk) -> None:
    desk = await open_desk([UseTool("search", 5), Say(words(40), pace=0.2)], streaming=False)
    root = await desk.ask("hello")
    await desk.answered()
    (answer,) = desk.replies(root)
    assert [version.text for version in answer.versions] == [words(40)]


# ---------------------------------------------------------------- lives that end


async def test_a_stream_is_replaced_before_slack_ends_it(
    open_desk: OpenDesk, slack: SlackEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a Slack where streams live a third as long, so that the test does too."""
    monkeypatch.setattr(limits, "STREAM_ROTATE", limits.STREAM_ROTATE / 3)
    monkeypatch.setattr(limits, "STREAM_ROTATE_SOFT", limits.STREAM_ROTATE_SOFT / 3)
    slack.configure(stream_seconds=100.0)
    script = [Say(words(20), pace=0.5), UseTool("crawl", 110), Say(words(20, 20), message="b", pace=0.5)]
    desk = await open_desk(script)
    root = await desk.ask("hello")
    await desk.answered()
    assert numbered(desk.text(root)) == numbered(words(40))
    assert len(desk.replies(root)) >= 2
    starts = {call.answer["ts"]: call.at for call in desk.calls("chat.startStream")}  # type: ignore[index]
    for stop in desk.calls("chat.stopStream"):
        assert stop.at - starts[str(stop.args["ts"])] < 100
    assert not desk.calls("chat.update")
    assert [task.status for task in desk.replies(root)[-1].tasks] == ["complete"]


async def test_a_stream_that_slack_ends_early_is_put_right_and_the_answer_goes_on(
    open_desk: OpenDesk, slack: SlackEmulator
) -> None:
    desk = await open_desk([Say(words(120), pace=0.5)])
    root = await desk.ask("hello")
    await desk.shows("w20w", root)
    assert slack.expire_streams()
    await desk.answered()
    assert numbered(desk.text(root)) == numbered(words(120))
    assert not any(reply.stuck or reply.streaming for reply in desk.replies(root))
    assert len(desk.calls("chat.startStream")) == 2
    assert desk.calls("chat.update")


async def test_the_readers_own_stop_cancels_the_run_and_adds_nothing(open_desk: OpenDesk, slack: SlackEmulator) -> None:
    desk = await open_desk([Say(words(400), pace=0.5)])
    root = await desk.ask("hello")
    await desk.shows("w10w", root)
    await slack.press_stop(GENERAL, root, ANN)
    await desk.answered()
    assert desk.bench.gateway.runs[0].cancelled.is_set()
    (answer,) = desk.replies(root)
    assert "Stopped." in answer.text
    assert [button.text for button in answer.buttons] == ["Try again"]
    assert not answer.streaming
    assert (await desk.turn_of()).final.phase is Phase.STOPPED  # type: ignore[union-attr]


async def test_a_typed_stop_ends_the_answer_and_try_again_asks_anew(open_desk: OpenDesk, slack: SlackEmulator) -> None:
    desk = await open_desk([Say("a beginning "), UseTool("crawl", 500)], [Say("a whole answer")])
    root = await desk.ask("hello")
    await desk.shows("a beginning", root)
    await desk.ask("!stop", thread_ts=root, mention=False)
    await desk.answered()
    (answer,) = desk.replies(root)
    assert {task.status for task in answer.tasks} == {"error"}
    await slack.press(GENERAL, answer.ts, ANN, text="Try again")
    await desk.answered(2)
    assert "a whole answer" in desk.text(root)


async def test_a_failure_keeps_the_text_and_says_so(open_desk: OpenDesk) -> None:
    desk = await open_desk([Say("as far as I got"), Fail("The agent failed. /retry asks again.")])
    root = await desk.ask("hello")
    await desk.answered()
    (answer,) = desk.replies(root)
    assert "as far as I got" in answer.text
    assert "The agent failed." in answer.text


async def test_a_failure_without_a_word_is_one_message(open_desk: OpenDesk) -> None:
    desk = await open_desk([Fail("The agent failed. /retry asks again.")])
    root = await desk.ask("hello")
    await desk.answered()
    (answer,) = desk.replies(root)
    assert answer.text.startswith("The agent failed.")
    assert not desk.calls("chat.startStream")


# ---------------------------------------------------------------- questions, files, feedback


async def test_a_question_is_asked_with_buttons_that_go_once_it_is_answered(
    open_desk: OpenDesk, slack: SlackEmulator
) -> None:
    asking = AskPerson({"question": "Which city?", "options": ["Amsterdam", "The Hague"]})
    desk = await open_desk([Say("I need to know something."), asking], [Say("Thank you.")])
    root = await desk.ask("book a train")
    await desk.answered()
    (asked,) = desk.replies(root)
    assert "Which city?" in asked.text
    assert [button.text for button in asked.buttons][:2] == ["Amsterdam", "The Hague"]
    assert slack.sessions[(GENERAL, root)].status == "suspended"
    await slack.press(GENERAL, asked.ts, ANN, text="The Hague")
    await desk.answered(2)
    await desk.until(lambda: not desk.replies(root)[0].buttons)
    first, second = desk.replies(root)
    assert "I need to know something." in first.text
    assert "Answered: The Hague" in first.text
    assert second.text == "Thank you."
    assert "The Hague" in desk.bench.gateway.questions[1]
    assert slack.sessions[(GENERAL, root)].status == "active"


async def test_a_question_can_be_answered_by_a_message_in_the_thread(open_desk: OpenDesk) -> None:
    desk = await open_desk([AskPerson("What is your name?")], [Say("Hello.")])
    root = await desk.ask("greet me")
    await desk.answered()
    await desk.ask("Ann", thread_ts=root, mention=False)
    await desk.answered(2)
    assert "Answered: Ann" in desk.text(root)
    assert desk.text(root).endswith("Hello.")


async def test_files_of_the_agent_follow_the_answer_once(open_desk: OpenDesk, slack: SlackEmulator) -> None:
    files = [GiveFile("report.txt", b"all is well"), GiveFile("empty.txt", b"")]
    desk = await open_desk([Say("Here you are."), *files])
    slack.faults.plan("files.completeUploadExternal", Fault(FaultKind.DROP_AFTER))
    root = await desk.ask("report")
    await desk.answered()
    assert [reply.files for reply in desk.replies(root)] == [(), ("report.txt",)]
    assert slack.file("report.txt").content == b"all is well"
    assert "Could not be attached: empty.txt" in desk.text(root)


async def test_a_file_that_the_gateway_hands_out_only_after_its_restart_still_comes(
    open_desk: OpenDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = await open_desk([Say("Here you are."), GiveFile("report.txt", b"all is well")])
    monkeypatch.setattr(desk.bench.gateway, "open_file", away_for(45, desk))
    root = await desk.ask("report")
    await desk.answered()
    assert [reply.files for reply in desk.replies(root)] == [(), ("report.txt",)]
    assert desk.text(root).strip() == "Here you are."


async def test_a_file_that_the_gateway_never_hands_out_is_named_and_holds_nobody_up(
    open_desk: OpenDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = await open_desk([Say("Here you are."), GiveFile("report.txt", b"all is well")], [Say("And on.")])
    monkeypatch.setattr(desk.bench.gateway, "open_file", away_for(10_000, desk))
    root = await desk.ask("report")
    await desk.answered()
    assert "Could not be attached: report.txt" in desk.text(root)
    await desk.ask("next", thread_ts=root)
    await desk.answered(2)
    assert "And on." in desk.text(root)


async def test_a_file_that_is_gone_is_asked_for_once_and_one_that_is_away_more_often(open_desk: OpenDesk) -> None:
    desk = await open_desk([Say("Here you are."), GiveFile("gone.txt", b"a"), GiveFile("away.txt", b"b")])
    gateway = desk.bench.gateway
    gateway.withheld = {"gone.txt": FileGone("not there any more"), "away.txt": FileAway("the gateway is away")}
    root = await desk.ask("report")
    await desk.answered()
    assert "Could not be attached: gone.txt, away.txt" in desk.text(root)
    assert gateway.opened["gone.txt"] == 1 < 3 < gateway.opened["away.txt"]


async def test_a_file_is_waited_for_anew_after_a_restart(open_desk: OpenDesk) -> None:
    """The gateway may have been started anew together with the bridge."""
    desk = await open_desk([Say("Here you are."), GiveFile("away.txt", b"b")])
    gateway = desk.bench.gateway
    gateway.withheld = {"away.txt": FileAway("the gateway is away")}
    root = await desk.ask("report")
    await desk.until(lambda: gateway.opened["away.txt"] > 0)
    await desk.bench.stop()
    await desk.bench.clock.sleep(FILE_PATIENCE + 10)
    tried = gateway.opened["away.txt"]
    await desk.bench.start()
    await desk.until(lambda: gateway.opened["away.txt"] > tried)
    gateway.withheld = {}
    await desk.answered()
    assert [reply.files for reply in desk.replies(root)] == [(), ("away.txt",)]


def away_for(seconds: float, desk: Desk) -> OpenFile:
    """How files are opened while the gateway is away for so long, from the first try on."""
    first: list[float] = []
    real = desk.bench.gateway.open_file

    async def open_file(file: File) -> bytes:
        now = desk.bench.clock.now()
        first.append(now)
        if now < first[0] + seconds:
            raise FileAway("the gateway is away")
        return await real(file)

    return open_file


async def test_feedback_is_kept_with_the_turn(open_desk: OpenDesk, slack: SlackEmulator) -> None:
    desk = await open_desk([Say("an answer")], feedback=True)
    root = await desk.ask("hello")
    await desk.answered()
    (answer,) = desk.replies(root)
    assert [button.text for button in answer.buttons] == ["Good answer", "Bad answer"]
    await slack.press(GENERAL, answer.ts, ANN, text="Good answer")
    await desk.until(lambda: b'feedback_total{channel="bench",value="up"} 1' in desk.bench.metrics.render())


# ---------------------------------------------------------------- what shows beside it


async def test_a_status_line_is_kept_up_while_a_tool_runs_and_cleared_at_the_end(
    open_desk: OpenDesk, slack: SlackEmulator
) -> None:
    desk = await open_desk([Pause(150), Say("done")])
    root = await desk.ask("hello")
    await desk.until(lambda: slack.statuses.get((GENERAL, root)) == "is thinking…")
    await desk.until(lambda: (GENERAL, root) in slack.sessions)
    assert slack.sessions[(GENERAL, root)].states[0] == "processing"
    await desk.answered()
    shown = [change for change in slack.status_log if change.thread == (GENERAL, root)]
    assert len([change for change in shown if change.text]) >= 2, "sent again before Slack takes it away"
    await desk.until(lambda: (GENERAL, root) not in slack.statuses)
    assert slack.status_log[-1].text == ""
    assert slack.sessions[(GENERAL, root)].status == "active"


async def test_where_slack_has_no_agent_sessions_all_else_works(open_desk: OpenDesk, slack: SlackEmulator) -> None:
    slack.configure(sessions=False)
    desk = await open_desk([Say("one")])
    for number in range(1, 4):
        root = await desk.ask("hello")
        await desk.answered(number)
        assert desk.text(root) == "one"
    assert len(desk.calls("agents.sessions.setStatus")) == 1
    assert all("session_status" not in call.args for call in desk.calls("chat.stopStream"))


async def test_a_channel_that_comes_back_knows_nothing_of_the_turns_it_left(
    open_desk: OpenDesk, slack: SlackEmulator
) -> None:
    """Another process had them meanwhile: status and session are set as if for the first time, and nobody else's."""
    desk = await open_desk([Say("one")])
    root = await desk.ask("hello")
    await desk.answered()
    question = (await desk.turn_of()).question
    left = ReplyTarget(TurnId("0" * 32), question.place, question)
    adapter = desk.bench.adapter
    await adapter.hint(left, HintState.WORKING)
    await adapter.stop()
    await adapter.start()
    await adapter.hint(left, HintState.WORKING)
    lines = [change.text for change in slack.status_log if change.thread == (GENERAL, root)]
    assert lines[-2:] == ["is working…"] * 2
    await adapter.stop()
    await adapter.start()
    other = replace(left, turn=TurnId("1" * 32))
    await adapter.hint(other, HintState.WORKING)
    await adapter.hint(other, HintState.DONE)
    assert slack.sessions[(GENERAL, root)].status == "active", "no turn that was left keeps it at work"


# ---------------------------------------------------------------- lost answers and refusals


async def test_calls_whose_answer_is_lost_leave_one_whole_answer(open_desk: OpenDesk, slack: SlackEmulator) -> None:
    desk = await open_desk([Say(words(80), pace=0.5)])
    for method in ("chat.startStream", "chat.appendStream", "chat.update", "chat.stopStream", "chat.postMessage"):
        slack.faults.plan(method, Fault(FaultKind.DROP_AFTER))
    root = await desk.ask("hello")
    await desk.answered()
    assert numbered(desk.text(root)) == numbered(words(80))
    assert not any(reply.streaming or reply.stuck for reply in desk.replies(root))


async def test_calls_that_never_arrive_or_fail_inside_are_made_again(open_desk: OpenDesk, slack: SlackEmulator) -> None:
    desk = await open_desk([Say(words(60), pace=0.4)])
    faults = [
        Fault(FaultKind.DROP_BEFORE),
        Fault(FaultKind.ANSWER, status=503, body="<html>busy</html>"),
        Fault(FaultKind.ANSWER, status=200, body={"ok": False, "error": "internal_error"}),
    ]
    for method in ("chat.startStream", "chat.appendStream", "chat.stopStream"):
        slack.faults.plan(method, *faults)
    root = await desk.ask("hello")
    await desk.answered(timeout=60)
    assert numbered(desk.text(root)) == numbered(words(60))


async def test_a_rate_refusal_closes_one_method_for_its_time_and_nothing_is_lost(
    open_desk: OpenDesk, slack: SlackEmulator
) -> None:
    desk = await open_desk([Say(words(60), pace=0.4)])
    refusal = Fault(FaultKind.ANSWER, status=429, headers={"Retry-After": "8"})
    slack.faults.plan("chat.appendStream", refusal)
    root = await desk.ask("hello")
    await desk.answered()
    assert desk.text(root) == words(60)


async def test_a_message_that_somebody_deletes_comes_again(open_desk: OpenDesk, slack: SlackEmulator) -> None:
    desk = await open_desk([Say(words(80), pace=0.4)])
    root = await desk.ask("hello")
    await desk.shows("w10w", root)
    await slack.delete(GENERAL, desk.replies(root)[0].ts)
    await desk.answered()
    assert desk.text(root) == words(80)


async def test_refused_blocks_cost_the_buttons_and_not_the_answer(open_desk: OpenDesk, slack: SlackEmulator) -> None:
    desk = await open_desk([Say("an answer")], feedback=True)
    slack.faults.plan("chat.stopStream", *[Fault(FaultKind.ANSWER, 200, body={"ok": False, "error": "invalid_blocks"})])
    root = await desk.ask("hello")
    await desk.answered()
    (answer,) = desk.replies(root)
    assert answer.text == "an answer"
    assert not answer.buttons


async def test_a_place_that_is_closed_meanwhile_ends_the_reply(open_desk: OpenDesk, slack: SlackEmulator) -> None:
    desk = await open_desk([Say(words(80), pace=0.4)], [Say("elsewhere")])
    root = await desk.ask("hello")
    await desk.shows("w5w", root)
    slack.archive(GENERAL)
    await desk.answered()
    assert (await desk.turn_of()).state is TurnState.DEAD
    slack.archive(GENERAL, False)
    other = await desk.ask("hello", channel=SECRET)
    await desk.answered(2)
    assert desk.text(other, SECRET) == "elsewhere"


async def test_a_revoked_token_shows_and_heals(open_desk: OpenDesk, slack: SlackEmulator) -> None:
    desk = await open_desk([Say(words(60), pace=0.4)])
    root = await desk.ask("hello")
    await desk.shows("w5w", root)
    slack.refuse_token("token_revoked")
    assert "unauthorised" in await desk.is_state(ChannelState.FAILED)
    slack.refuse_token("")
    await desk.is_state(ChannelState.RUNNING)
    await desk.answered(timeout=60)
    assert desk.text(root) == words(60)
