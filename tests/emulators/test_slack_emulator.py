"""The emulated Web API, driven by the real SDK: tokens, messages, rates, faults."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from tests.clock import ManualClock
from tests.emulators.journal import Fault, FaultKind
from tests.emulators.slack import (
    ANN,
    APP_TOKEN,
    BOB,
    BOT,
    BOT_ID,
    GENERAL,
    GUEST,
    OTHER_BOT,
    SECRET,
    TEAM,
    ChannelKind,
    SlackEmulator,
)
from tests.emulators.slack.budgets import Budgets
from tests.emulators.slack.clients import refusal, web_client

BUTTONS = [
    {
        "type": "actions",
        "elements": [{"type": "button", "action_id": "go", "text": {"type": "plain_text", "text": "Go"}}],
    }
]


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


# --- tokens and scopes -------------------------------------------------------------------------------------------


async def test_auth_test_names_the_bot_and_its_scopes(slack: SlackEmulator, client: AsyncWebClient) -> None:
    answer = await client.auth_test()
    assert (answer["team_id"], answer["user_id"], answer["bot_id"]) == (TEAM, BOT, BOT_ID)
    assert "chat:write" in answer.headers["x-oauth-scopes"].split(",")
    assert not slack.journal.broken


async def test_an_unknown_token_is_refused(slack: SlackEmulator) -> None:
    async with web_client(slack, "xoxb-wrong") as client:
        assert await refusal(client.auth_test()) == "invalid_auth"


@pytest.mark.parametrize("error", ["token_revoked", "account_inactive"])
async def test_a_token_can_be_taken_back_and_given_again(
    slack: SlackEmulator, client: AsyncWebClient, error: str
) -> None:
    slack.refuse_token(error)
    assert await refusal(client.chat_postMessage(channel=GENERAL, text="hi")) == error
    slack.refuse_token("")
    await client.chat_postMessage(channel=GENERAL, text="hi")


async def test_a_missing_scope_is_named(slack: SlackEmulator, client: AsyncWebClient) -> None:
    slack.grant(["chat:write", "groups:history"])
    with pytest.raises(SlackApiError) as refused:
        await client.conversations_replies(channel=GENERAL, ts="1.000001")
    assert refused.value.response["error"] == "missing_scope"
    assert refused.value.response["needed"] == "channels:history"
    secret = await slack.send(SECRET, ANN, "groups have a scope of their own")
    await client.conversations_replies(channel=SECRET, ts=secret)


async def test_a_token_in_the_address_is_a_broken_rule(slack: SlackEmulator) -> None:
    async with aiohttp.ClientSession() as session:
        await session.post(f"{slack.url}/api/auth.test?token=xoxb-emulated-bridge")
    assert "a token in the address" in slack.journal.broken[0]
    assert "xoxb" not in str(slack.journal.calls)


async def test_an_app_token_opens_sockets_and_a_bot_token_does_not(
    slack: SlackEmulator, client: AsyncWebClient
) -> None:
    answer = await client.apps_connections_open(app_token=APP_TOKEN)
    assert answer["url"].startswith("ws://")
    assert await refusal(client.apps_connections_open(app_token="xapp-wrong")) == "invalid_auth"
    assert await refusal(client.apps_connections_open(app_token=client.token or "")) == "not_allowed_token_type"
    slack.app_tokens[APP_TOKEN] = frozenset()
    assert await refusal(client.apps_connections_open(app_token=APP_TOKEN)) == "missing_scope"


# --- posting -----------------------------------------------------------------------------------------------------


async def test_posts_show_in_order_and_in_their_threads(slack: SlackEmulator, client: AsyncWebClient) -> None:
    question = await slack.send(GENERAL, ANN, "hello?")
    reply = await client.chat_postMessage(channel=GENERAL, markdown_text="**hi**", thread_ts=question)
    await client.chat_postMessage(channel=GENERAL, text="fallback", blocks=BUTTONS)
    [asked, answered, buttons] = slack.chat(GENERAL)
    assert [asked.text, answered.text] == ["hello?", "**hi**"]
    assert (answered.ts, answered.thread_ts, answered.by_app) == (reply["ts"], question, True)
    assert buttons.text == "", "blocks hide the text"
    assert [button.text for button in buttons.buttons] == ["Go"]
    assert [message.text for message in slack.chat(GENERAL, question)] == ["hello?", "**hi**"]
    assert not slack.journal.broken


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ({}, "no_text"),
        ({"text": ""}, "no_text"),
        ({"markdown_text": "a", "text": "b"}, "markdown_text_conflict"),
        ({"markdown_text": "a", "blocks": BUTTONS}, "markdown_text_conflict"),
        ({"markdown_text": "x" * 12_001}, "msg_too_long"),
        ({"text": "a", "blocks": [{"type": "unheard_of"}]}, "invalid_blocks"),
        ({"text": "a", "blocks": [{"type": "divider"}] * 51}, "invalid_blocks"),
        (
            {"text": "a", "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": "x" * 3_001}}]},
            "invalid_blocks",
        ),
        ({"text": "a", "blocks": [{"type": "markdown", "text": "x" * 6_001}] * 2}, "msg_blocks_too_long"),
        ({"text": "a", "metadata": {"event_type": "turn"}}, "invalid_metadata_schema"),
        ({"text": "a", "thread_ts": "17"}, "invalid_thread_ts"),
        ({"text": "a", "thread_ts": 1750000000.5}, "invalid_arguments"),
    ],
)
async def test_content_that_slack_refuses_is_refused_and_recorded(
    slack: SlackEmulator, client: AsyncWebClient, content: dict[str, object], error: str
) -> None:
    assert await refusal(client.api_call("chat.postMessage", json={"channel": GENERAL, **content})) == error
    assert error in slack.journal.broken[0]
    assert slack.chat(GENERAL) == []


async def test_the_largest_markdown_text_is_taken(slack: SlackEmulator, client: AsyncWebClient) -> None:
    await client.chat_postMessage(channel=GENERAL, markdown_text="x" * 12_000)
    assert not slack.journal.broken


async def test_a_text_above_forty_thousand_is_cut_and_recorded(slack: SlackEmulator, client: AsyncWebClient) -> None:
    await client.chat_postMessage(channel=GENERAL, text="x" * 40_000)
    assert not slack.journal.broken
    await client.chat_postMessage(channel=GENERAL, text="y" * 40_001)
    assert len(slack.chat(GENERAL)[-1].text) == 40_000
    assert "was cut" in slack.journal.broken[0]


async def test_places_that_cannot_be_posted_to(slack: SlackEmulator, client: AsyncWebClient) -> None:
    slack.add_channel("C0OTHER", "other", with_bot=False)
    slack.add_channel("C0HIDDEN", "hidden", kind=ChannelKind.PRIVATE, with_bot=False)
    slack.add_channel("C0OLD", "old")
    slack.archive("C0OLD")
    expected = {
        "C0NOWHERE": "channel_not_found",
        "C0OTHER": "not_in_channel",
        "C0HIDDEN": "channel_not_found",
        "C0OLD": "is_archived",
    }
    for channel, error in expected.items():
        assert await refusal(client.chat_postMessage(channel=channel, text="hi")) == error
    assert not slack.journal.broken


async def test_a_reply_to_a_question_deleted_meanwhile_lands_in_the_channel(
    slack: SlackEmulator, client: AsyncWebClient
) -> None:
    question = await slack.send(GENERAL, ANN, "never mind")
    await slack.delete(GENERAL, question)
    await client.chat_postMessage(channel=GENERAL, text="answer", thread_ts=question)
    assert slack.chat(GENERAL)[0].thread_ts is None
    assert not slack.journal.broken


async def test_a_thread_ts_that_is_no_root_is_a_broken_rule(slack: SlackEmulator, client: AsyncWebClient) -> None:
    root = await slack.send(GENERAL, ANN, "root")
    reply = await slack.send(GENERAL, BOB, "reply", thread_ts=root)
    await client.chat_postMessage(channel=GENERAL, text="a", thread_ts=reply)
    await client.chat_postMessage(channel=GENERAL, text="b", thread_ts="1234567890.123456")
    assert ["ts of a reply" in slack.journal.broken[0], "never was" in slack.journal.broken[1]] == [True, True]


async def test_a_post_to_a_person_is_a_direct_message(slack: SlackEmulator, client: AsyncWebClient) -> None:
    await client.chat_postMessage(channel=BOB, text="psst")
    assert [message.text for message in slack.chat(slack.direct(BOB).id)] == ["psst"]


async def test_an_ephemeral_message_is_for_one_person_only(slack: SlackEmulator, client: AsyncWebClient) -> None:
    await client.chat_postEphemeral(channel=GENERAL, user=ANN, text="only you")
    assert slack.chat(GENERAL)[0].seen_by == ANN
    history = await client.conversations_history(channel=GENERAL)
    assert history["messages"] == []
    slack.add_user("U0STRANGER", "stranger")
    assert (
        await refusal(client.chat_postEphemeral(channel=GENERAL, user="U0STRANGER", text="x")) == "user_not_in_channel"
    )


# --- editing and deleting ----------------------------------------------------------------------------------------


async def test_an_edit_keeps_the_history_of_what_was_shown(
    slack: SlackEmulator, client: AsyncWebClient, clock: ManualClock
) -> None:
    ts = (await client.chat_postMessage(channel=GENERAL, markdown_text="one"))["ts"]
    begun = clock.now()
    await clock.advance(2)
    await client.chat_update(channel=GENERAL, ts=ts, markdown_text="one two")
    [message] = slack.chat(GENERAL)
    assert [(version.at - begun, version.text) for version in message.versions] == [(0, "one"), (2, "one two")]
    assert (message.text, message.edited, message.first_seen) == ("one two", True, begun)


async def test_an_edit_with_text_alone_takes_the_buttons_away(slack: SlackEmulator, client: AsyncWebClient) -> None:
    ts = (await client.chat_postMessage(channel=GENERAL, text="choose", blocks=BUTTONS))["ts"]
    await client.chat_update(channel=GENERAL, ts=ts, text="chosen")
    [message] = slack.chat(GENERAL)
    assert (message.text, message.buttons) == ("chosen", ())


async def test_an_edit_may_hold_four_thousand_characters_of_text(slack: SlackEmulator, client: AsyncWebClient) -> None:
    ts = (await client.chat_postMessage(channel=GENERAL, text="short"))["ts"]
    await client.chat_update(channel=GENERAL, ts=ts, text="x" * 4_000)
    await client.chat_update(channel=GENERAL, ts=ts, markdown_text="x" * 12_000)
    assert not slack.journal.broken
    assert await refusal(client.chat_update(channel=GENERAL, ts=ts, text="x" * 4_001)) == "msg_too_long"
    assert await refusal(client.chat_update(channel=GENERAL, ts=ts, markdown_text="x" * 12_001)) == "msg_too_long"
    assert len(slack.journal.broken) == 2


async def test_only_the_apps_own_standing_messages_can_be_changed(slack: SlackEmulator, client: AsyncWebClient) -> None:
    ann = await slack.send(GENERAL, ANN, "mine")
    assert await refusal(client.chat_update(channel=GENERAL, ts=ann, text="x")) == "cant_update_message"
    assert await refusal(client.chat_delete(channel=GENERAL, ts=ann)) == "cant_delete_message"
    assert len(slack.journal.broken) == 2
    own = (await client.chat_postMessage(channel=GENERAL, text="own"))["ts"]
    await client.chat_delete(channel=GENERAL, ts=own)
    assert await refusal(client.chat_update(channel=GENERAL, ts=own, text="x")) == "message_not_found"
    assert [message.text for message in slack.chat(GENERAL)] == ["mine"]


async def test_the_edit_window_can_be_closed(slack: SlackEmulator, client: AsyncWebClient) -> None:
    ts = (await client.chat_postMessage(channel=GENERAL, text="own"))["ts"]
    slack.refuse_edits(GENERAL, ts)
    assert await refusal(client.chat_update(channel=GENERAL, ts=ts, text="x")) == "edit_window_closed"
    assert not slack.journal.broken


# --- looking up --------------------------------------------------------------------------------------------------


async def test_a_lost_post_is_found_by_its_metadata(slack: SlackEmulator, client: AsyncWebClient) -> None:
    root = await slack.send(GENERAL, ANN, "question")
    slack.faults.plan("chat.postMessage", Fault(FaultKind.DROP_AFTER))
    turn = {"event_type": "turn", "event_payload": {"id": "7"}}
    with pytest.raises(aiohttp.ClientError):
        await client.chat_postMessage(channel=GENERAL, text="answer", thread_ts=root, metadata=turn)
    with_metadata = await client.conversations_replies(channel=GENERAL, ts=root, include_all_metadata=True)
    assert with_metadata["messages"][1]["metadata"] == turn
    without = await client.conversations_replies(channel=GENERAL, ts=root)
    assert "metadata" not in without["messages"][1]
    assert not slack.journal.broken


async def test_replies_come_in_pages(slack: SlackEmulator, client: AsyncWebClient) -> None:
    root = await slack.send(GENERAL, ANN, "root")
    sent = [root] + [await slack.send(GENERAL, BOB, f"reply {n}", thread_ts=root) for n in range(4)]
    found: list[str] = []
    cursor: str | None = None
    while cursor != "":
        page = await client.conversations_replies(channel=GENERAL, ts=root, limit=2, cursor=cursor)
        found += [message["ts"] for message in page["messages"]]
        cursor = (page.get("response_metadata") or {"next_cursor": ""})["next_cursor"]
    assert found == sent
    assert await refusal(client.conversations_replies(channel=GENERAL, ts="1.000001")) == "thread_not_found"


async def test_history_is_newest_first_without_replies(slack: SlackEmulator, client: AsyncWebClient) -> None:
    first = await slack.send(GENERAL, ANN, "first")
    await slack.send(GENERAL, BOB, "hidden reply", thread_ts=first)
    shown = await slack.send(GENERAL, BOB, "shown reply", thread_ts=first, broadcast=True)
    history = await client.conversations_history(channel=GENERAL)
    assert [message["ts"] for message in history["messages"]] == [shown, first]
    since = await client.conversations_history(channel=GENERAL, oldest=first, inclusive=False)
    assert [message["ts"] for message in since["messages"]] == [shown]


async def test_reduced_history_gives_fifteen_at_a_time(slack: SlackEmulator, client: AsyncWebClient) -> None:
    slack.configure(reduced_history=True)
    for number in range(20):
        await slack.send(GENERAL, ANN, str(number))
    assert len((await client.conversations_history(channel=GENERAL, limit=200))["messages"]) == 15


async def test_people_places_and_bots_can_be_looked_up(slack: SlackEmulator, client: AsyncWebClient) -> None:
    assert (await client.users_info(user=GUEST))["user"]["team_id"] != TEAM
    assert (await client.users_info(user=OTHER_BOT))["user"]["is_bot"]
    assert (await client.bots_info(bot="B0ROBOT"))["bot"]["user_id"] == OTHER_BOT
    assert (await client.conversations_info(channel=SECRET))["channel"]["is_private"]
    assert (await client.team_info())["team"]["id"] == TEAM
    listed = await client.users_conversations(types="public_channel,private_channel")
    assert {channel["id"] for channel in listed["channels"]} == {GENERAL, SECRET}
    opened = await client.conversations_open(users=ANN)
    assert opened["channel"]["id"] == slack.direct(ANN).id
    together = await client.conversations_open(users=[ANN, BOB])
    assert (await client.conversations_info(channel=together["channel"]["id"]))["channel"]["is_mpim"]
    ts = await slack.send(GENERAL, ANN, "hi")
    link = await client.chat_getPermalink(channel=GENERAL, message_ts=ts)
    assert link["permalink"].endswith(f"/{GENERAL}/p{ts.replace('.', '')}")
    assert not slack.journal.broken


async def test_reactions_come_and_go_once(slack: SlackEmulator, client: AsyncWebClient) -> None:
    ts = await slack.send(GENERAL, ANN, "hi")
    await client.reactions_add(channel=GENERAL, timestamp=ts, name="eyes")
    assert slack.chat(GENERAL)[0].reactions == ("eyes",)
    assert await refusal(client.reactions_add(channel=GENERAL, timestamp=ts, name="eyes")) == "already_reacted"
    await client.reactions_remove(channel=GENERAL, timestamp=ts, name="eyes")
    assert await refusal(client.reactions_remove(channel=GENERAL, timestamp=ts, name="eyes")) == "no_reaction"
    assert slack.chat(GENERAL)[0].reactions == ()
    assert not slack.journal.broken
    assert await refusal(client.reactions_add(channel=GENERAL, timestamp=ts, name=":eyes:")) == "invalid_name"
    assert slack.journal.broken


async def test_a_method_that_reads_no_json_is_not_called_with_json(
    slack: SlackEmulator, client: AsyncWebClient
) -> None:
    assert await refusal(client.api_call("users.info", json={"user": ANN})) == "invalid_arguments"
    assert "does not read JSON" in slack.journal.broken[0]


async def test_an_unknown_method_is_recorded(slack: SlackEmulator, client: AsyncWebClient) -> None:
    assert await refusal(client.api_call("chat.sing", json={})) == "unknown_method"
    assert "chat.sing" in slack.journal.broken[0]


# --- rates -------------------------------------------------------------------------------------------------------


async def test_the_fifty_first_edit_in_a_minute_is_refused_until_retry_after(
    slack: SlackEmulator, client: AsyncWebClient, clock: ManualClock
) -> None:
    ts = (await client.chat_postMessage(channel=GENERAL, text="0"))["ts"]
    for number in range(50):
        await client.chat_update(channel=GENERAL, ts=ts, text=str(number))
    assert not slack.journal.broken
    with pytest.raises(SlackApiError) as refused:
        await client.chat_update(channel=GENERAL, ts=ts, text="too many")
    assert refused.value.response.status_code == 429
    assert refused.value.response["error"] == "ratelimited"
    wait = int(refused.value.response.headers["Retry-After"])
    assert "chat.update more than 50 times" in slack.journal.broken[0]

    await clock.advance(wait - 1)
    assert await refusal(client.chat_update(channel=GENERAL, ts=ts, text="too early")) == "ratelimited"
    assert "before Retry-After was over" in slack.journal.broken[1]
    await clock.advance(1)
    await client.chat_update(channel=GENERAL, ts=ts, text="in time")
    assert len(slack.journal.broken) == 2


async def test_edits_at_the_tiers_rate_are_never_refused(
    slack: SlackEmulator, client: AsyncWebClient, clock: ManualClock
) -> None:
    ts = (await client.chat_postMessage(channel=GENERAL, text="0"))["ts"]
    for number in range(120):
        await client.chat_update(channel=GENERAL, ts=ts, text=str(number))
        await clock.advance(1.2, settle=1)
    assert not slack.journal.broken


async def test_posts_to_one_channel_go_one_a_second_with_a_small_burst(
    slack: SlackEmulator, client: AsyncWebClient, clock: ManualClock
) -> None:
    for _ in range(3):
        await client.chat_postMessage(channel=GENERAL, text="burst")
    await clock.advance(1)
    await client.chat_postMessage(channel=GENERAL, text="one a second")
    assert not slack.journal.broken
    assert await refusal(client.chat_postMessage(channel=GENERAL, text="too fast")) == "ratelimited"
    assert f"more than once a second in {GENERAL}" in slack.journal.broken[0]
    await client.chat_postMessage(channel=SECRET, text="other channels are free")
    assert len(slack.journal.broken) == 1


def test_posts_to_all_channels_together_have_a_cap_a_minute() -> None:
    budgets = Budgets(jitter=0.0)
    for number in range(300):
        assert budgets.admit("chat.postMessage", TEAM, f"C{number}", "", 10.0) is None
    refused = budgets.admit("chat.postMessage", TEAM, "C301", "", 40.0)
    assert refused is not None
    assert (refused.retry_after, "more than 300 times in 60 s" in refused.broken) == (30, True)
    assert budgets.admit("chat.postMessage", TEAM, "C301", "", 70.0) is None


async def test_budgets_belong_to_a_workspace(slack: SlackEmulator, client: AsyncWebClient) -> None:
    slack.add_workspace("T0SECOND", "second", bot="U0BRIDGE2", bot_id="B0BRIDGE2", bot_token="xoxb-second")
    slack.add_channel("C0SECOND", "second", team="T0SECOND")
    slack.throttle("chat.update", 1)
    ts = (await client.chat_postMessage(channel=GENERAL, text="0"))["ts"]
    await client.chat_update(channel=GENERAL, ts=ts, text="1")
    assert await refusal(client.chat_update(channel=GENERAL, ts=ts, text="2")) == "ratelimited"
    async with web_client(slack, "xoxb-second") as second:
        other = (await second.chat_postMessage(channel="C0SECOND", text="0"))["ts"]
        await second.chat_update(channel="C0SECOND", ts=other, text="1")
        assert await refusal(second.chat_update(channel=GENERAL, ts=ts, text="x")) == "ratelimited"
    assert not slack.journal.broken, "what a test throttles breaks no rule by itself"


async def test_a_planned_429_is_no_broken_rule_but_a_call_inside_it_is(
    slack: SlackEmulator, client: AsyncWebClient, clock: ManualClock
) -> None:
    ts = (await client.chat_postMessage(channel=GENERAL, text="0"))["ts"]
    slack.faults.plan("chat.update", Fault(FaultKind.ANSWER, status=429, headers={"Retry-After": "30"}))
    with pytest.raises(SlackApiError) as refused:
        await client.chat_update(channel=GENERAL, ts=ts, text="1")
    assert refused.value.response.headers["Retry-After"] == "30"
    assert not slack.journal.broken
    await client.chat_postMessage(channel=GENERAL, text="other methods are open")
    assert await refusal(client.chat_update(channel=GENERAL, ts=ts, text="2")) == "ratelimited"
    assert len(slack.journal.broken) == 1
    await clock.advance(30)
    await client.chat_update(channel=GENERAL, ts=ts, text="3")
    assert len(slack.journal.broken) == 1


async def test_a_call_about_another_message_that_was_under_way_is_not_blamed_for_a_429(
    slack: SlackEmulator, client: AsyncWebClient, clock: ManualClock
) -> None:
    first = (await client.chat_postMessage(channel=GENERAL, text="a"))["ts"]
    second = (await client.chat_postMessage(channel=GENERAL, text="b"))["ts"]
    slack.faults.plan("chat.update", Fault(FaultKind.ANSWER, status=429, headers={"Retry-After": "30"}))
    await refusal(client.chat_update(channel=GENERAL, ts=first, text="1"))
    assert await refusal(client.chat_update(channel=GENERAL, ts=second, text="1")) == "ratelimited"
    assert not slack.journal.broken
    await clock.advance(2)
    await refusal(client.chat_update(channel=GENERAL, ts=second, text="2"))
    assert len(slack.journal.broken) == 1


# --- faults ------------------------------------------------------------------------------------------------------


async def test_faults_hit_before_or_after_the_work(slack: SlackEmulator, client: AsyncWebClient) -> None:
    slack.faults.plan("chat.postMessage", Fault(FaultKind.DROP_BEFORE), Fault(FaultKind.DROP_AFTER))
    for text in ("never arrived", "arrived"):
        with pytest.raises(aiohttp.ClientError):
            await client.chat_postMessage(channel=GENERAL, text=text)
    assert [message.text for message in slack.chat(GENERAL)] == ["arrived"]
    assert not slack.journal.broken


async def test_a_planned_answer_is_given_as_it_is(slack: SlackEmulator, client: AsyncWebClient) -> None:
    slack.faults.plan("chat.postMessage", Fault(FaultKind.ANSWER, status=502, body="<html>Bad gateway</html>"))
    slack.faults.plan("*", Fault(FaultKind.ANSWER, status=200, body={"ok": False, "error": "fatal_error"}))
    with pytest.raises(SlackApiError) as refused:
        await client.chat_postMessage(channel=GENERAL, text="x")
    assert refused.value.response.status_code == 502
    assert await refusal(client.chat_postMessage(channel=GENERAL, text="x")) == "fatal_error"
    assert slack.chat(GENERAL) == []


async def test_an_outage_cuts_everything_until_it_is_over(slack: SlackEmulator, client: AsyncWebClient) -> None:
    slack.outage()
    with pytest.raises(aiohttp.ClientError):
        await client.chat_postMessage(channel=GENERAL, text="lost")
    slack.outage(False)
    await client.chat_postMessage(channel=GENERAL, text="heard")
    assert [message.text for message in slack.chat(GENERAL)] == ["heard"]
    assert not slack.journal.broken


async def test_a_delay_is_on_the_emulators_clock(
    slack: SlackEmulator, client: AsyncWebClient, clock: ManualClock
) -> None:
    slack.faults.plan("chat.postMessage", Fault(FaultKind.DELAY, seconds=7))
    begun = clock.now()

    async def post() -> str:
        return str((await client.chat_postMessage(channel=GENERAL, text="late"))["ts"])

    posting = asyncio.ensure_future(post())
    await slack.wait_for(lambda: clock.next_wake() is not None)
    await clock.advance(7)
    await posting
    assert slack.chat(GENERAL)[0].first_seen == begun + 7


# --- waiting -----------------------------------------------------------------------------------------------------


async def test_waiting_in_vain_shows_the_chat_and_the_calls(slack: SlackEmulator, client: AsyncWebClient) -> None:
    await client.chat_postMessage(channel=GENERAL, text="something else")
    with pytest.raises(AssertionError) as failed:
        await slack.wait_for(lambda: slack.answers(GENERAL)[0].text == "expected", timeout=0.05)
    assert "something else" in str(failed.value)
    assert "chat.postMessage 200" in str(failed.value)
