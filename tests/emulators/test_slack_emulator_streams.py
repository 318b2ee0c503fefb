"""Streamed messages in the emulated Slack: the state machine, its limits, its ends, and what people see of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence

import pytest
from slack_sdk.models.blocks import ContextActionsBlock, FeedbackButtonObject, FeedbackButtonsElement
from slack_sdk.models.messages.chunk import BlocksChunk, Chunk, MarkdownTextChunk, PlanUpdateChunk, TaskUpdateChunk
from slack_sdk.web.async_client import AsyncWebClient

from tests.clock import ManualClock
from tests.emulators.slack import ANN, BOB, BOT, GENERAL, GUEST, TEAM, SlackEmulator
from tests.emulators.slack.clients import refusal, web_client

Chunks = Sequence[Chunk | dict[str, object]]
SECTION = {"type": "section", "text": {"type": "mrkdwn", "text": "a section"}}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def slack(clock: ManualClock) -> AsyncIterator[SlackEmulator]:
    async with SlackEmulator(clock) as emulator:
        yield emulator


@pytest.fixture
async def client(slack: SlackEmulator) -> AsyncIterator[AsyncWebClient]:
    async with web_client(slack) as web:
        yield web


class Talk:
    """A question in the channel, and one stream that answers it."""

    def __init__(self, client: AsyncWebClient, question: str) -> None:
        self.client = client
        self.question = question
        self.ts = ""

    async def start(self, *chunks: Chunk | dict[str, object], **more: object) -> None:
        arguments: dict[str, object] = {
            "channel": GENERAL,
            "thread_ts": self.question,
            "recipient_team_id": TEAM,
            "recipient_user_id": ANN,
            **more,
        }
        if chunks:
            arguments["chunks"] = [chunk if isinstance(chunk, dict) else chunk.to_dict() for chunk in chunks]
        answer = await self.client.api_call("chat.startStream", json=arguments)
        self.ts = answer["ts"]

    async def append(self, *chunks: Chunk | dict[str, object]) -> None:
        await self.client.chat_appendStream(channel=GENERAL, ts=self.ts, chunks=list(chunks))

    async def stop(self, *chunks: Chunk | dict[str, object]) -> None:
        await self.client.chat_stopStream(channel=GENERAL, ts=self.ts, chunks=list(chunks) or None)


@pytest.fixture
async def talk(slack: SlackEmulator, client: AsyncWebClient) -> Talk:
    return Talk(client, await slack.send(GENERAL, ANN, "question"))


def text(words: str) -> MarkdownTextChunk:
    return MarkdownTextChunk(text=words)


def task(status: str, details: str | None = None, output: str | None = None) -> TaskUpdateChunk:
    return TaskUpdateChunk(id="t1", title="Search", status=status, details=details, output=output)


# --- the ordinary way --------------------------------------------------------------------------------------------


async def test_a_stream_grows_and_is_stopped(slack: SlackEmulator, talk: Talk, clock: ManualClock) -> None:
    await talk.start(text("one "))
    await clock.advance(1)
    await talk.append(text("two "), text("three"))
    [_, growing] = slack.chat(GENERAL, talk.question)
    assert (growing.text, growing.streaming, growing.seen_by) == ("one two three", True, ANN)
    await talk.stop(text("."))
    [_, done] = slack.chat(GENERAL, talk.question)
    assert (done.text, done.streaming, done.seen_by, done.stuck) == ("one two three.", False, "all", False)
    assert [version.text for version in done.versions] == ["one ", "one two three", "one two three."]
    assert not slack.journal.broken


async def test_the_sdks_own_helper_keeps_all_the_rules(slack: SlackEmulator, talk: Talk) -> None:
    stream = await talk.client.chat_stream(
        channel=GENERAL, thread_ts=talk.question, recipient_team_id=TEAM, recipient_user_id=ANN, buffer_size=4
    )
    for word in ("alpha ", "beta ", "gamma"):
        await stream.append(markdown_text=word)
    await stream.stop()
    assert slack.answers(GENERAL)[0].text == "alpha beta gamma"
    assert not slack.journal.broken


async def test_tasks_plan_and_feedback_buttons_show(slack: SlackEmulator, talk: Talk) -> None:
    await talk.start(task("in_progress"), PlanUpdateChunk(title="The plan"), task_display_mode="plan")
    await talk.append(task("in_progress", details="looking"))
    await talk.append(task("complete", output="found 3"), text("Found."))
    feedback = FeedbackButtonsElement(
        action_id="fb",
        positive_button=FeedbackButtonObject(text="Good", value="up"),
        negative_button=FeedbackButtonObject(text="Bad", value="down"),
    )
    await talk.client.chat_stopStream(channel=GENERAL, ts=talk.ts, blocks=[ContextActionsBlock(elements=[feedback])])
    [shown] = slack.answers(GENERAL)
    [step] = shown.tasks
    assert (step.title, step.status, step.details, step.output) == ("Search", "complete", "looking", "found 3")
    assert (shown.plan_title, shown.text) == ("The plan", "Found.")
    assert [(button.text, button.value) for button in shown.buttons] == [("Good", "up"), ("Bad", "down")]
    assert not slack.journal.broken


async def test_blocks_stand_where_they_were_sent(slack: SlackEmulator, talk: Talk) -> None:
    await talk.start(text("before"), BlocksChunk(blocks=[SECTION]), text("after"))
    assert slack.answers(GENERAL)[0].text == "before\na section\nafter"


async def test_a_stream_can_be_top_level_in_a_channel(slack: SlackEmulator, talk: Talk) -> None:
    await talk.start(text("news"), thread_ts=None)
    assert slack.answers(GENERAL)[0].thread_ts is None
    assert not slack.journal.broken


async def test_a_stopped_stream_can_be_edited(slack: SlackEmulator, talk: Talk) -> None:
    await talk.start(text("draft"))
    await talk.stop()
    await talk.client.chat_update(channel=GENERAL, ts=talk.ts, markdown_text="final")
    assert slack.answers(GENERAL)[0].text == "final"
    assert not slack.journal.broken


async def test_metadata_and_session_status_can_come_with_the_stop(slack: SlackEmulator, talk: Talk) -> None:
    await talk.start(text("done"))
    turn = {"event_type": "turn", "event_payload": {"id": "7"}}
    await talk.client.chat_stopStream(channel=GENERAL, ts=talk.ts, metadata=turn, session_status="active")
    assert slack.answers(GENERAL)[0].metadata == turn
    assert slack.sessions[(GENERAL, talk.question)].status == "active"


# --- where and for whom ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("missing", "error"),
    [("recipient_team_id", "missing_recipient_team_id"), ("recipient_user_id", "missing_recipient_user_id")],
)
async def test_a_stream_in_a_channel_names_its_recipient(
    slack: SlackEmulator, talk: Talk, missing: str, error: str
) -> None:
    assert await refusal(talk.start(text("x"), **{missing: None})) == error
    assert error in slack.journal.broken[0]


async def test_a_stream_in_direct_messages_needs_a_thread_and_no_recipient(
    slack: SlackEmulator, client: AsyncWebClient
) -> None:
    question = await slack.dm(ANN, "hi")
    direct = slack.direct(ANN).id
    await client.chat_startStream(channel=direct, thread_ts=question, chunks=[text("hello")])
    assert slack.answers(direct)[0].seen_by == "all"
    assert not slack.journal.broken
    rejected = client.api_call("chat.startStream", json={"channel": direct, "chunks": [text("hello").to_dict()]})
    assert await refusal(rejected) == "invalid_arguments"
    assert "without thread_ts" in slack.journal.broken[0]


async def test_people_of_another_organisation_cannot_be_streamed_to(slack: SlackEmulator, talk: Talk) -> None:
    guest = {"recipient_team_id": "T0ELSEWHERE", "recipient_user_id": GUEST}
    assert await refusal(talk.start(text("x"), **guest)) == "user_not_found"
    assert await refusal(talk.start(text("x"), recipient_user_id="U0NOBODY")) == "user_not_found"
    assert await refusal(talk.start(text("x"), recipient_team_id="T0ELSEWHERE")) == "team_not_found"
    assert not slack.journal.broken


async def test_streams_can_be_refused_for_a_place_or_for_one_person(slack: SlackEmulator, talk: Talk) -> None:
    slack.refuse_streams(GENERAL, "channel_type_not_supported", BOB)
    await talk.start(text("for ann"))
    assert await refusal(talk.start(text("x"), recipient_user_id=BOB)) == "channel_type_not_supported"
    slack.refuse_streams(GENERAL, "restricted_action")
    assert await refusal(talk.start(text("x"))) == "restricted_action"
    slack.refuse_streams(GENERAL, "")
    await talk.start(text("again"))
    assert not slack.journal.broken


# --- what may be sent --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chunks", "error"),
    [
        ([{"type": "markdown_text"}], "invalid_chunks"),
        ([{"type": "sticker", "id": "1"}], "invalid_chunks"),
        ([{"type": "task_update", "id": "1", "title": "a", "status": "done"}], "invalid_chunks"),
        ([{"type": "task_update", "id": "1", "title": "", "status": "pending"}], "invalid_chunks"),
        ([{"type": "task_update", "title": "a", "status": "pending"}], "invalid_chunks"),
        ([{"type": "task_update", "id": "1", "title": "a", "status": "pending", "details": 5}], "invalid_chunks"),
        ([{"type": "task_update", "id": "1", "title": "a", "status": "pending", "sources": [{}]}], "invalid_chunks"),
        ([{"type": "plan_update"}], "invalid_chunks"),
        ([{"type": "blocks", "blocks": "x"}], "invalid_blocks_format"),
        ([{"type": "blocks", "blocks": [SECTION] * 51}], "msg_blocks_too_many"),
        ([{"type": "markdown_text", "text": "x" * 12_001}], "msg_too_long"),
        ([{"type": "markdown_text", "text": ""}], "no_text"),
    ],
)
async def test_chunks_that_slack_refuses_are_refused_and_recorded(
    slack: SlackEmulator, talk: Talk, chunks: Chunks, error: str
) -> None:
    await talk.start(text("good"))
    assert await refusal(talk.append(*chunks)) == error
    assert error in slack.journal.broken[0]
    assert slack.answers(GENERAL)[0].text == "good"


async def test_sources_of_a_task_are_links(slack: SlackEmulator, talk: Talk) -> None:
    sources = [{"type": "url", "url": "https://example.org", "text": "Example"}]
    await talk.start(TaskUpdateChunk(id="t1", title="Search", status="complete", sources=sources))
    assert slack.answers(GENERAL)[0].tasks[0].sources == (("https://example.org", "Example"),)


async def test_text_and_chunks_exclude_each_other(slack: SlackEmulator, talk: Talk) -> None:
    both = talk.start(text("a"), markdown_text="b")
    assert await refusal(both) == "cannot_provide_both_markdown_text_and_chunks"
    await talk.start(text("a"))
    mixed = talk.client.chat_appendStream(channel=GENERAL, ts=talk.ts, markdown_text="b")
    assert await refusal(mixed) == "streaming_mode_mismatch"
    assert len(slack.journal.broken) == 2


async def test_a_stream_of_top_level_text_stays_one(slack: SlackEmulator, talk: Talk) -> None:
    await talk.start(markdown_text="a")
    await talk.client.chat_appendStream(channel=GENERAL, ts=talk.ts, markdown_text="b")
    assert not slack.journal.broken
    assert await refusal(talk.append(text("c"))) == "streaming_mode_mismatch"


async def test_the_size_of_a_stream_counts_in_utf8_bytes(slack: SlackEmulator, talk: Talk) -> None:
    await talk.start(text("汉" * 3_500))
    assert not slack.journal.broken
    assert await refusal(talk.append(text("汉" * 40))) == "msg_too_long"
    assert "10620 bytes" in slack.journal.broken[0]
    await talk.append(text("汉" * 20))


async def test_details_of_tasks_count_double_and_are_counted_once_they_are_replaced(
    slack: SlackEmulator, talk: Talk
) -> None:
    await talk.start(text("x" * 9_000))
    await talk.append(task("in_progress", details="y" * 700))
    await talk.append(task("in_progress", details="z" * 700))
    assert not slack.journal.broken
    assert await refusal(talk.append(task("in_progress", details="y" * 800))) == "msg_too_long"


async def test_a_smaller_ceiling_for_a_test_breaks_no_rule(slack: SlackEmulator, talk: Talk) -> None:
    slack.settings.stream_bytes = 100
    await talk.start(text("x" * 90))
    assert await refusal(talk.append(text("x" * 20))) == "msg_too_long"
    assert not slack.journal.broken


async def test_blocks_at_the_end_have_a_limit_of_their_own(slack: SlackEmulator, talk: Talk) -> None:
    await talk.start(BlocksChunk(blocks=[SECTION] * 50))
    await talk.client.chat_stopStream(channel=GENERAL, ts=talk.ts, blocks=[SECTION] * 50)
    assert not slack.journal.broken


# --- ends --------------------------------------------------------------------------------------------------------


async def test_a_stream_ends_by_itself_after_five_minutes(slack: SlackEmulator, talk: Talk, clock: ManualClock) -> None:
    await talk.start(text("slow "))
    await clock.advance(299)
    await talk.append(text("answer"))
    assert not slack.journal.broken
    await clock.advance(1)
    [stuck] = slack.answers(GENERAL)
    assert (stuck.streaming, stuck.stuck) == (False, True)
    assert await refusal(talk.stop()) == "message_not_in_streaming_state"
    assert not slack.journal.broken, "to stop a stream of unknown age is how one recovers"
    await talk.client.chat_update(channel=GENERAL, ts=talk.ts, markdown_text="slow answer, whole")
    [healed] = slack.answers(GENERAL)
    assert (healed.text, healed.stuck) == ("slow answer, whole", False)
    assert not slack.journal.broken


async def test_an_append_to_a_stream_that_is_too_old_is_a_broken_rule(
    slack: SlackEmulator, talk: Talk, clock: ManualClock
) -> None:
    await talk.start(text("slow "))
    await clock.advance(300)
    assert await refusal(talk.append(text("x"))) == "message_not_in_streaming_state"
    assert "older than 300 s" in slack.journal.broken[0]


async def test_a_stream_expired_by_the_test_blames_only_the_second_append(slack: SlackEmulator, talk: Talk) -> None:
    await talk.start(text("a"))
    assert slack.expire_streams() == [talk.ts]
    assert await refusal(talk.append(text("b"))) == "message_not_in_streaming_state"
    assert not slack.journal.broken
    assert await refusal(talk.append(text("b"))) == "message_not_in_streaming_state"
    assert "known to have ended" in slack.journal.broken[0]


async def test_an_append_after_ones_own_stop_is_a_broken_rule(slack: SlackEmulator, talk: Talk) -> None:
    await talk.start(text("a"))
    await talk.stop()
    assert await refusal(talk.append(text("b"))) == "message_not_in_streaming_state"
    assert "had stopped" in slack.journal.broken[0]


async def test_a_stop_repeated_after_a_lost_answer_is_no_broken_rule(slack: SlackEmulator, talk: Talk) -> None:
    await talk.start(text("a"))
    await talk.stop()
    assert await refusal(talk.stop()) == "message_not_in_streaming_state"
    assert not slack.journal.broken


async def test_a_running_stream_cannot_be_edited(slack: SlackEmulator, talk: Talk) -> None:
    await talk.start(text("a"))
    edit = talk.client.chat_update(channel=GENERAL, ts=talk.ts, markdown_text="b")
    assert await refusal(edit) == "streaming_state_conflict"
    assert "still streaming" in slack.journal.broken[0]


async def test_a_person_stops_a_stream(slack: SlackEmulator, talk: Talk) -> None:
    await talk.start(text("a"))
    assert await slack.press_stop(GENERAL, talk.question, ANN) == [talk.ts]
    assert await refusal(talk.append(text("b"))) == "stopped_by_user"
    edit = talk.client.chat_update(channel=GENERAL, ts=talk.ts, markdown_text="b")
    assert await refusal(edit) == "streaming_state_conflict"
    await talk.stop(text(" (stopped)"))
    assert slack.answers(GENERAL)[0].text == "a (stopped)"
    assert not slack.journal.broken
    [event] = [delivery.event for delivery in slack.deliveries if delivery.event["type"] == "agent_session_stopped"]
    assert (event["channel"], event["thread_ts"], event["user"]) == (GENERAL, talk.question, ANN)
    assert event["streaming_message_ts"] == [talk.ts]


async def test_to_write_on_after_stopped_by_user_is_a_broken_rule(slack: SlackEmulator, talk: Talk) -> None:
    await talk.start(text("a"))
    await slack.press_stop(GENERAL, talk.question, ANN)
    await refusal(talk.append(text("b")))
    assert await refusal(talk.append(text("b"))) == "stopped_by_user"
    assert "known to have ended" in slack.journal.broken[0]


async def test_there_is_a_stop_button_only_while_the_app_works(slack: SlackEmulator, talk: Talk) -> None:
    with pytest.raises(AssertionError, match="no stop button"):
        await slack.press_stop(GENERAL, talk.question, ANN)
    await talk.client.agents_sessions_setStatus(channel_id=GENERAL, thread_ts=talk.question, status="processing")
    assert await slack.press_stop(GENERAL, talk.question, ANN) == []


async def test_a_task_left_open_is_a_broken_rule(slack: SlackEmulator, talk: Talk) -> None:
    await talk.start(task("in_progress"))
    await talk.stop()
    assert "task left open when the stream was stopped: t1" in slack.journal.broken[0]


async def test_a_task_can_be_completed_by_the_stop(slack: SlackEmulator, talk: Talk) -> None:
    await talk.start(task("in_progress"))
    await talk.stop(task("complete"))
    assert not slack.journal.broken


async def test_a_refused_stop_leaves_the_stream_running(slack: SlackEmulator, talk: Talk) -> None:
    await talk.start(text("a"))
    bad = talk.client.chat_stopStream(channel=GENERAL, ts=talk.ts, blocks=[{"type": "unheard_of"}])
    assert await refusal(bad) == "invalid_blocks"
    assert slack.answers(GENERAL)[0].streaming
    await talk.stop()


async def test_only_streams_of_the_app_can_be_appended_to(slack: SlackEmulator, talk: Talk) -> None:
    talk.ts = talk.question
    assert await refusal(talk.append(text("x"))) == "message_not_owned_by_app"
    talk.ts = (await talk.client.chat_postMessage(channel=GENERAL, text="plain"))["ts"]
    assert await refusal(talk.append(text("x"))) == "message_not_in_streaming_state"
    assert len(slack.journal.broken) == 2
    talk.ts = "1234567890.123456"
    assert await refusal(talk.append(text("x"))) == "message_not_found"


async def test_neither_what_a_stream_says_nor_whether_it_runs_can_be_looked_up(
    slack: SlackEmulator, talk: Talk
) -> None:
    await talk.start(text("half"))
    running = (await talk.client.conversations_replies(channel=GENERAL, ts=talk.question))["messages"][1]
    await talk.stop()
    ended = (await talk.client.conversations_replies(channel=GENERAL, ts=talk.question))["messages"][1]
    assert (running["user"], running["text"], "streaming_state" in running) == (BOT, "", False)
    assert running == ended


# --- rates and mentions ------------------------------------------------------------------------------------------


async def test_the_twenty_first_stream_in_a_minute_is_refused(
    slack: SlackEmulator, talk: Talk, clock: ManualClock
) -> None:
    for _ in range(20):
        await talk.start(text("x"))
    assert not slack.journal.broken
    assert await refusal(talk.start(text("x"))) == "ratelimited"
    assert "chat.startStream more than 20 times" in slack.journal.broken[0]
    await clock.advance(60)
    await talk.start(text("x"))
    assert len(slack.journal.broken) == 1


async def test_all_streams_share_a_hundred_appends_a_minute(slack: SlackEmulator, talk: Talk) -> None:
    other = Talk(talk.client, talk.question)
    await talk.start(text("a"))
    await other.start(text("b"))
    for number in range(100):
        await (talk if number % 2 else other).append(text("."))
    assert not slack.journal.broken
    assert await refusal(other.append(text("."))) == "ratelimited"
    assert "chat.appendStream more than 100 times" in slack.journal.broken[0]


async def test_a_broadcast_mention_is_seen_also_when_it_comes_in_two_halves(slack: SlackEmulator, talk: Talk) -> None:
    await talk.start(text("ping <!chan"))
    assert not slack.journal.broken
    await talk.append(text("nel> all"))
    await talk.append(text(" and more"))
    assert len(slack.journal.broken) == 1
    assert "<!channel>" in slack.journal.broken[0]


async def test_a_broadcast_mention_in_streamed_code_is_none(slack: SlackEmulator, talk: Talk) -> None:
    await talk.start(text("```\n<!channel>"))
    await talk.append(text("\n```\nand `@here` and @\u200beveryone"))
    await talk.stop()
    assert not slack.journal.broken


async def test_a_broadcast_mention_in_a_task_is_recorded(slack: SlackEmulator, talk: Talk) -> None:
    await talk.start(task("complete", details="told @everyone"))
    assert json.dumps(slack.journal.broken).count("@everyone") == 1
