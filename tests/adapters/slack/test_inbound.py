"""What people do in Slack, and what the bridge makes of it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import JsonValue

from channels.access import ConversationScope, Groups, Policy
from channels.inputs import Ask
from tests.adapters.slack.conftest import OpenDesk
from tests.adapters.slack.desk import Desk
from tests.emulators.journal import Fault, FaultKind
from tests.emulators.slack import (
    ANN,
    BOB,
    BOT,
    BOT_TOKEN,
    GENERAL,
    OTHER_BOT,
    SECRET,
    ChannelKind,
    DeliveryKind,
    DeliveryState,
    SlackEmulator,
)
from tests.scripted import AskPerson, GiveFile, Pause, Say, UseTool


async def acked(desk: Desk) -> None:
    await desk.until(lambda: all(d.state is DeliveryState.ACKED for d in desk.slack.deliveries))


def asked(desk: Desk, run: int = 0) -> Ask:
    given = desk.bench.gateway.runs[run].request.input
    assert isinstance(given, Ask)
    return given


async def test_a_mention_that_comes_as_message_and_mention_and_once_more_is_one_question(
    open_desk: OpenDesk, slack: SlackEmulator
) -> None:
    desk = await open_desk([Say("once")])
    root = await desk.ask("hello")
    await acked(desk)
    slack.redeliver(*slack.deliveries)
    await desk.answered()
    await acked(desk)
    assert len(slack.deliveries) >= 2
    assert desk.bench.gateway.questions == ["hello"]
    assert desk.text(root) == "once"


async def test_questions_brought_in_the_wrong_order_are_answered_in_the_order_they_were_asked(
    open_desk: OpenDesk, slack: SlackEmulator
) -> None:
    desk = await open_desk([Pause(20), Say("x")])
    root = await desk.ask("one")
    await desk.until(lambda: desk.bench.gateway.questions == ["one"])
    slack.hold()
    for text in ("two", "three", "four"):
        await desk.ask(text, thread_ts=root)
    slack.release(reverse=True)
    await desk.answered(4)
    assert desk.bench.gateway.questions == ["one", "two", "three", "four"]


async def test_people_read_names_links_and_signs_and_so_does_the_agent(open_desk: OpenDesk) -> None:
    desk = await open_desk([Say("ok")])
    await desk.ask("ask @bob in #secret about https://example.org/a?b=1&c=2 & <tags>, mail ann@example.org, @nobody")
    await desk.answered()
    said = "ask @bob in #secret about https://example.org/a?b=1&c=2 & <tags>, mail ann@example.org, @nobody"
    assert desk.bench.gateway.questions == [said]
    assert asked(desk).sender.name == "ann"


async def test_names_are_asked_for_once(open_desk: OpenDesk) -> None:
    desk = await open_desk([Say("ok")])
    for number in range(1, 4):
        await desk.ask("tell @bob")
        await desk.answered(number)
    users = [str(call.args["user"]) for call in desk.calls("users.info")]
    assert sorted(set(users)) == [ANN, BOB]
    assert len(users) == 2


async def test_in_a_channel_only_mentions_count_until_the_bot_takes_part(
    open_desk: OpenDesk, slack: SlackEmulator
) -> None:
    desk = await open_desk([Say("yes")])
    await slack.send(GENERAL, ANN, "just talking")
    root = await desk.ask("hello")
    await desk.answered()
    await slack.send(GENERAL, BOB, "and me?", thread_ts=root)
    await desk.answered(2)
    other = await slack.send(GENERAL, ANN, "another matter")
    await slack.send(GENERAL, BOB, "indeed", thread_ts=other)
    await acked(desk)
    assert desk.bench.gateway.questions == ["hello", "and me?"]
    assert len({run.request.thread for run in desk.bench.gateway.runs}) == 1
    assert desk.replies(other) == []


async def test_each_thread_of_a_channel_is_a_conversation(open_desk: OpenDesk) -> None:
    desk = await open_desk([Say("yes")])
    await desk.ask("one")
    await desk.answered()
    await desk.ask("two")
    await desk.answered(2)
    assert len({run.request.thread for run in desk.bench.gateway.runs}) == 2


async def test_group_messages_need_a_mention_too(open_desk: OpenDesk, slack: SlackEmulator) -> None:
    group = slack.add_channel("G0TRIO", "", kind=ChannelKind.GROUP_DIRECT, members=[ANN, BOB])
    desk = await open_desk([Say("yes")])
    await slack.send(group.id, ANN, "between us")
    root = await slack.send(group.id, ANN, "you?", mention=True)
    await desk.answered()
    await acked(desk)
    assert desk.bench.gateway.questions == ["you?"]
    assert desk.text(root, group.id) == "yes"


async def test_other_bots_are_heard_only_by_policy_and_the_bot_never_hears_itself(
    open_desk: OpenDesk, slack: SlackEmulator
) -> None:
    desk = await open_desk([Say("yes")], policy=Policy(groups=Groups.ALL))
    await slack.say_as_bot(GENERAL, OTHER_BOT, f"<@{BOT}> hello")
    await slack.say_as_bot(GENERAL, OTHER_BOT, f"<@{BOT}> hello", classic=True)
    await slack.send(GENERAL, ANN, "hello")
    await desk.answered()
    await acked(desk)
    assert desk.bench.gateway.questions == ["hello"]


async def test_a_bot_that_may_talk_is_answered_by_edits_because_a_stream_needs_a_person(
    open_desk: OpenDesk, slack: SlackEmulator
) -> None:
    desk = await open_desk([Say("yes, robot")], policy=Policy(allow_bots=True))
    root = await slack.say_as_bot(GENERAL, OTHER_BOT, f"<@{BOT}> hello")
    await desk.answered()
    assert desk.text(root) == "yes, robot"
    assert not desk.calls("chat.startStream")


async def test_an_edit_is_no_new_question(open_desk: OpenDesk, slack: SlackEmulator) -> None:
    desk = await open_desk([Say("yes")])
    root = await desk.ask("hello")
    await desk.answered()
    await slack.edit(GENERAL, root, "hello again @bridge")
    await slack.react(GENERAL, root, BOB, "tada")
    await acked(desk)
    assert desk.bench.gateway.questions == ["hello"]


@pytest.mark.parametrize("has_replies", [True, False])
async def test_a_deleted_question_stops_its_answer(
    open_desk: OpenDesk, slack: SlackEmulator, has_replies: bool
) -> None:
    """With replies under it, Slack reports the deletion as a change into a tombstone."""
    desk = await open_desk([Say("a beginning "), Pause(1000)] if has_replies else [Pause(1000)])
    root = await desk.ask("hello")
    await desk.until(lambda: len(desk.bench.gateway.runs) == 1)
    if has_replies:
        await desk.shows("a beginning", root)
    await slack.delete(GENERAL, root)
    await desk.answered()
    assert desk.bench.gateway.runs[0].cancelled.is_set()


async def test_files_of_a_message_reach_the_agent_whole(open_desk: OpenDesk, slack: SlackEmulator) -> None:
    desk = await open_desk([Say("nice")])
    await slack.upload(GENERAL, ANN, {"a.png": b"\x89PNG" * 50_000, "b.txt": b"text"}, "look", mention=True)
    await desk.answered()
    files = {file.name: file for file in asked(desk).files}
    assert files["a.png"].data == b"\x89PNG" * 50_000
    assert files["a.png"].mime == "image/png"
    assert files["b.txt"].data == b"text"
    assert len(desk.bench.gateway.runs) == 1, "one message is one question"


async def test_a_file_that_may_not_be_read_is_named_in_the_question(open_desk: OpenDesk, slack: SlackEmulator) -> None:
    desk = await open_desk([Say("I cannot see it")])
    slack.grant(["chat:write", "channels:history", "users:read", "app_mentions:read"])
    await slack.upload(GENERAL, ANN, {"a.png": b"png"}, "look", mention=True)
    await desk.answered()
    assert "a.png" in desk.bench.gateway.questions[0]
    assert "could not be fetched" in desk.bench.gateway.questions[0]


def external(name: str, url: str = "https://docs.example/d/1") -> dict[str, Any]:
    """A file that was shared from another service."""
    return {"id": "F0PLAN", "name": name, "is_external": True, "external_type": "gdrive", "url_private": url}


async def test_a_file_that_lies_elsewhere_is_a_link_in_the_question_and_one_that_is_gone_is_named(
    open_desk: OpenDesk, slack: SlackEmulator
) -> None:
    desk = await open_desk([Say("ok")])
    base = {"type": "message", "channel": slack.direct(ANN).id, "channel_type": "im", "user": ANN}
    share = {**base, "subtype": "file_share", "text": ""}
    passed_on = {"author_name": "Bob", "text": "See here", "files": [external("Plan")]}
    slack.event({**share, "ts": "1750000100.000100", "files": [external("Plan 2027")]})
    await desk.answered()
    slack.event({**base, "ts": "1750000200.000100", "text": "summarise", "attachments": [passed_on]})
    await desk.answered(2)
    lost = {"id": "F0LOST", "name": "old.txt", "mode": "tombstone"}
    slack.event({**share, "ts": "1750000300.000100", "files": [lost, external("Nowhere", "")]})
    await desk.answered(3)
    assert desk.bench.gateway.questions == [
        "[Plan 2027](https://docs.example/d/1)",
        "> Bob: See here\n>\n> [Plan](https://docs.example/d/1)\n\nsummarise",
        "Nowhere\n\n(The attached file 'old.txt' could not be fetched.)",
    ]


async def test_a_message_that_is_passed_on_reaches_the_agent_with_and_without_words(
    open_desk: OpenDesk, slack: SlackEmulator
) -> None:
    desk = await open_desk([Say("ok")])
    told = await slack.send(SECRET, BOB, "The numbers are bad, says @ann & co")
    files = await slack.upload(SECRET, BOB, {"numbers.csv": b"1,2"}, "See here")
    direct = slack.direct(ANN).id
    await slack.share(direct, ANN, SECRET, told)
    await desk.answered()
    await slack.share(direct, ANN, SECRET, files, "summarise")
    await desk.answered(2)
    root = await slack.share(GENERAL, ANN, SECRET, told, "translate", mention=True)
    await desk.answered(3)
    inbounds = [(await desk.turn_of(run)).question for run in range(3)]
    bad = "Bob Kim: The numbers are bad, says @ann & co"
    assert [(inbound.text, inbound.quote) for inbound in inbounds] == [
        ("", bad),
        ("summarise", "Bob Kim: See here"),
        ("translate", bad),
    ]
    assert [file.name for file in inbounds[1].attachments] == ["numbers.csv"]
    assert asked(desk, 1).files[0].data == b"1,2"
    assert desk.text(root) == "ok"


async def test_what_another_bot_says_on_a_card_is_part_of_its_message(
    open_desk: OpenDesk, slack: SlackEmulator
) -> None:
    desk = await open_desk([Say("ok")], policy=Policy(groups=Groups.ALL, allow_bots=True))
    card = {"fallback": "Build 7 failed", "title": "Build 7", "text": "failed in <https://ci.example|step 3>"}
    await slack.say_as_bot(GENERAL, OTHER_BOT, "alert", classic=True, attachments=[card])
    await desk.answered()
    assert (await desk.turn_of()).question.quote == "Build 7\nfailed in [step 3](https://ci.example)"


async def test_a_bare_mention_gets_help(open_desk: OpenDesk) -> None:
    desk = await open_desk([Say("never")])
    root = await desk.ask("")
    await desk.shows("Ask me anything", root)
    assert desk.bench.gateway.runs == []


# ---------------------------------------------------------------- commands


async def test_a_slash_command_is_answered_for_the_one_who_typed_it(open_desk: OpenDesk, slack: SlackEmulator) -> None:
    desk = await open_desk([Say("never")])
    await slack.slash_command(GENERAL, ANN, "/agent", "status")
    await desk.until(lambda: any("idle" in message.text for message in slack.answers(GENERAL)))
    (answer,) = slack.answers(GENERAL)
    assert answer.seen_by == ANN
    await slack.slash_command(GENERAL, BOB, "/agent")
    await desk.until(lambda: any("Ask me anything" in m.text and m.seen_by == BOB for m in slack.answers(GENERAL)))
    assert desk.bench.gateway.runs == []


async def test_a_question_by_slash_command_is_repeated_above_its_answer_and_its_thread_goes_on(
    open_desk: OpenDesk, slack: SlackEmulator
) -> None:
    desk = await open_desk([Say("A river.")], [Say("Long.")])
    await slack.slash_command(GENERAL, ANN, "/agent", "what is the Rhine?")
    await desk.answered()
    (answer,) = slack.answers(GENERAL)
    assert answer.text == "ann asked: what is the Rhine?\nA river."
    await slack.send(GENERAL, BOB, "how long?", thread_ts=answer.ts)
    await desk.answered(2)
    assert desk.bench.gateway.questions == ["what is the Rhine?", "how long?"]
    assert len({run.request.thread for run in desk.bench.gateway.runs}) == 1


@pytest.mark.parametrize("options", [[], ["Paris", "Rome"]], ids=["words", "buttons"])
async def test_a_question_says_where_it_can_be_answered_and_there_it_can(
    open_desk: OpenDesk, slack: SlackEmulator, options: list[JsonValue]
) -> None:
    asking = AskPerson({"question": "Which city?", "options": options})
    desk = await open_desk([asking], [Say("Booked.")], [asking], [asking])
    await slack.slash_command(GENERAL, ANN, "/agent", "book a flight")
    await desk.answered()
    (asked,) = slack.answers(GENERAL)
    assert "nswer in the thread under this message." in asked.text
    await slack.send(GENERAL, ANN, "Paris", thread_ts=asked.ts)
    await desk.answered(2)
    await desk.until(lambda: "Answered: Paris" in slack.answers(GENERAL)[0].text)
    assert "Booked." in desk.text(asked.ts)
    root = await desk.ask("in a thread")
    await desk.answered(3)
    await slack.dm(ANN, "in a direct message")
    await desk.answered(4)
    for message in (*desk.replies(root), *slack.answers(slack.direct(ANN).id)):
        assert "nswer with a message here." in message.text


@pytest.mark.parametrize("kind", [ChannelKind.PUBLIC, ChannelKind.PRIVATE, ChannelKind.DIRECT])
async def test_a_slash_command_is_answered_also_where_the_bot_is_no_member(
    open_desk: OpenDesk, slack: SlackEmulator, kind: ChannelKind
) -> None:
    """In two people's direct messages it never is."""
    name = "D0APART" if kind is ChannelKind.DIRECT else "C0APART"
    apart = slack.add_channel(name, "apart", kind=kind, members=[ANN, BOB], with_bot=False).id
    desk = await open_desk([Say("A river.")])
    await slack.slash_command(apart, ANN, "/agent", "help")
    await desk.until(lambda: slack.answers(apart))
    await slack.slash_command(apart, ANN, "/agent", "what is the Rhine?")
    await desk.answered()
    help_, answer = slack.answers(apart)
    assert ("Ask me anything" in help_.text, help_.seen_by) == (True, ANN)
    assert ("A river." in answer.text, "invited" in answer.text, answer.seen_by) == (True, True, "all")


async def test_a_long_answer_where_the_bot_is_no_member_comes_whole_in_several_messages(
    open_desk: OpenDesk, slack: SlackEmulator
) -> None:
    said = [f"w{number}w" for number in range(3_500)]
    desk = await open_desk([Say(" ".join(said), size=2_000, pace=0), GiveFile("rhine.txt", b"long")])
    apart = slack.add_channel("C0APART", "apart", members=[ANN], with_bot=False).id
    slack.faults.plan("chat.postMessage", Fault(FaultKind.DROP_BEFORE))
    await slack.slash_command(apart, ANN, "/agent", "all about the Rhine @channel")
    await desk.answered()
    texts = [answer.text for answer in slack.answers(apart)]
    assert len(texts) == 3
    assert re.findall(r"w\d+w", " ".join(texts)) == said
    assert texts[0].startswith("ann asked: all about the Rhine")
    assert "Could not be attached: rhine.txt" in texts[2]


async def test_an_answer_too_long_for_the_messages_that_slack_allows_there_says_so(
    open_desk: OpenDesk, slack: SlackEmulator
) -> None:
    desk = await open_desk([Say("A river. " * 8_000, size=20_000, pace=0)])
    apart = slack.add_channel("C0APART", "apart", members=[ANN], with_bot=False).id
    await slack.slash_command(apart, ANN, "/agent", "all about the Rhine")
    await desk.answered()
    answers = slack.answers(apart)
    assert len(answers) == 5
    assert answers[-1].text.endswith("Slack lets me say no more here._")


async def test_commands_work_in_threads_where_slack_has_no_slash_commands(open_desk: OpenDesk) -> None:
    desk = await open_desk([Say("a beginning"), UseTool("crawl", 3000)])
    root = await desk.ask("hello")
    await desk.shows("a beginning", root)
    await desk.ask("!status", thread_ts=root)
    await desk.shows("I am answering", root)
    await desk.ask("!stop", thread_ts=root, mention=False)
    await desk.answered()


async def test_a_command_in_a_thread_that_the_bot_is_not_in_is_for_somebody_else(
    open_desk: OpenDesk, slack: SlackEmulator
) -> None:
    desk = await open_desk([Say("never")])
    root = await slack.send(GENERAL, ANN, "just talking")
    for text in ("!help", "!status"):
        await slack.send(GENERAL, BOB, text, thread_ts=root)
    await acked(desk)
    await desk.ask("!help", thread_ts=root)
    await desk.shows("Ask me anything", root)
    await slack.send(GENERAL, ANN, "talking on", thread_ts=root)
    await acked(desk)
    assert desk.bench.gateway.runs == []


async def test_deleting_what_was_no_question_brings_the_bot_into_no_thread(
    open_desk: OpenDesk, slack: SlackEmulator
) -> None:
    desk = await open_desk([Say("never")])
    root = await slack.send(GENERAL, ANN, "lunch?")
    typo = await slack.send(GENERAL, BOB, "12:30 them", thread_ts=root)
    await slack.delete(GENERAL, typo)
    await acked(desk)
    await slack.send(GENERAL, BOB, "12:30 then", thread_ts=root)
    await acked(desk)
    assert desk.bench.gateway.runs == []


async def test_where_a_channel_is_one_conversation_only_threads_with_the_bot_are_answered(
    open_desk: OpenDesk, slack: SlackEmulator
) -> None:
    policy = Policy(conversation=ConversationScope.CHAT)
    desk = await open_desk([Say("yes")], policy=policy)
    root = await desk.ask("hello")
    await desk.answered()
    await slack.send(GENERAL, ANN, "another matter")
    await acked(desk)
    await slack.send(GENERAL, BOB, "and me?", thread_ts=root)
    await desk.answered(2)
    assert desk.bench.gateway.questions == ["hello", "and me?"]


@pytest.mark.parametrize(
    ("typed", "asked"),
    [
        ("new york weather", "new york weather"),
        ("/new york weather", "york weather"),
        ("pair the two lists", "pair the two lists"),
    ],
)
async def test_words_after_a_slash_command_are_never_lost(
    open_desk: OpenDesk, slack: SlackEmulator, typed: str, asked: str
) -> None:
    desk = await open_desk([Say("ok")])
    await slack.slash_command(GENERAL, ANN, "/agent", typed)
    await desk.answered()
    assert desk.bench.gateway.questions == [asked]


# ---------------------------------------------------------------- beside messages


async def test_the_home_tab_and_a_new_chat_say_what_can_be_done(open_desk: OpenDesk, slack: SlackEmulator) -> None:
    desk = await open_desk([Say("ok")], suggested_prompts=["What can you do?"], home_text="I am @here to help.")
    await slack.open_home(ANN)
    thread = await slack.open_assistant(ANN)
    direct = slack.direct(ANN).id
    await desk.until(lambda: slack.homes and slack.prompts)
    assert "help" in str(slack.homes[ANN])
    assert slack.prompts[(direct, thread)] == [{"title": "What can you do?", "message": "What can you do?"}]
    await acked(desk)


async def test_what_means_nothing_to_the_bridge_is_acked_and_left_alone(
    open_desk: OpenDesk, slack: SlackEmulator
) -> None:
    desk = await open_desk([Say("ok")])
    await slack.invite_bot(SECRET, ANN)
    slack.event({"type": "message", "channel": GENERAL, "channel_type": "channel"})
    slack.event({"type": "message", "subtype": "channel_topic", "channel": GENERAL, "channel_type": "channel"})
    slack.event({"type": "message", "subtype": "message_changed", "channel": GENERAL, "channel_type": "channel"})
    slack.event({"type": "agent_session_stopped"})
    strange: dict[str, Any] = {"type": "block_actions", "actions": [{"value": "somebody else's"}], "user": None}
    slack.courier.send(DeliveryKind.INTERACTIVE, strange)
    await acked(desk)
    assert desk.bench.gateway.runs == []


async def test_nothing_that_is_logged_or_stored_holds_a_token(
    open_desk: OpenDesk,
    slack: SlackEmulator,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    desk = await open_desk([Say("ok")])
    slack.refuse_token("token_revoked")
    await desk.ask("hello")
    await desk.until(lambda: desk.bench.inbox.health.reason)
    slack.refuse_token("")
    await desk.answered()
    said = "".join(capsys.readouterr()) + caplog.text  # one or the other, as logging was set up before
    assert said
    assert BOT_TOKEN not in said
    assert BOT_TOKEN not in repr(desk.bench.adapter) + desk.bench.inbox.health.reason
