"""What people do in the emulated Slack, the payloads the app gets of it, and the assistant's side show."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from slack_sdk.web.async_client import AsyncWebClient

from tests.clock import ManualClock
from tests.emulators.slack import (
    ANN,
    APP_TOKEN,
    BOB,
    BOT,
    BOT_ID,
    BOT_TOKEN,
    GENERAL,
    OTHER_BOT,
    SECRET,
    TEAM,
    ChannelKind,
    SlackEmulator,
)
from tests.emulators.slack.clients import refusal, web_client

CHOICE = [
    {
        "type": "actions",
        "block_id": "q1",
        "elements": [
            {"type": "button", "action_id": "yes", "value": "1", "text": {"type": "plain_text", "text": "Yes"}},
            {
                "type": "static_select",
                "action_id": "pick",
                "options": [{"text": {"type": "plain_text", "text": "Blue"}, "value": "blue"}],
            },
        ],
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


def events(slack: SlackEmulator) -> list[dict[str, Any]]:
    return [delivery.event for delivery in slack.deliveries]


# --- messages ----------------------------------------------------------------------------------------------------


async def test_one_mention_comes_as_two_events_with_one_ts(slack: SlackEmulator) -> None:
    ts = await slack.send(GENERAL, ANN, "what is new?", mention=True)
    message, mention = events(slack)
    assert (message["type"], mention["type"]) == ("message", "app_mention")
    assert message["ts"] == mention["ts"] == ts
    assert message["text"] == mention["text"] == f"<@{BOT}> what is new?"
    assert (message["channel_type"], "channel_type" in mention) == ("channel", False)
    assert len({delivery.payload["event_id"] for delivery in slack.deliveries}) == 2
    assert slack.deliveries[0].payload["team_id"] == TEAM


@pytest.mark.parametrize(("channel", "kind"), [(GENERAL, "channel"), (SECRET, "group")])
async def test_messages_name_the_kind_of_their_place(slack: SlackEmulator, channel: str, kind: str) -> None:
    root = await slack.send(channel, ANN, "root")
    await slack.send(channel, BOB, "reply", thread_ts=root)
    first, second = events(slack)
    assert (first["channel_type"], "thread_ts" in first) == (kind, False)
    assert (second["thread_ts"], second["parent_user_id"]) == (root, ANN)


async def test_direct_messages_mention_nobody(slack: SlackEmulator) -> None:
    await slack.dm(ANN, "hi @bridge")
    [event] = events(slack)
    assert (event["type"], event["channel_type"], event["channel"]) == ("message", "im", slack.direct(ANN).id)


async def test_typed_text_arrives_encoded(slack: SlackEmulator) -> None:
    await slack.send(GENERAL, ANN, "a < b & @bob in #secret: https://x.example")
    [event] = events(slack)
    assert event["text"] == f"a &lt; b &amp; <@{BOB}> in <#{SECRET}|secret>: <https://x.example>"
    assert event["blocks"][0]["type"] == "rich_text"


async def test_nothing_is_heard_from_where_the_bot_is_not(slack: SlackEmulator) -> None:
    slack.add_channel("C0OTHER", "other", members=[ANN], with_bot=False)
    await slack.send("C0OTHER", ANN, "secretly")
    assert events(slack) == []
    await slack.invite_bot("C0OTHER", ANN)
    await slack.send("C0OTHER", ANN, "openly")
    assert [event["type"] for event in events(slack)] == ["member_joined_channel", "message"]
    await slack.remove_bot("C0OTHER")
    await slack.send("C0OTHER", ANN, "secretly again")
    assert len(events(slack)) == 2


async def test_an_edit_is_a_changed_message(slack: SlackEmulator) -> None:
    ts = await slack.send(GENERAL, ANN, "helo")
    await slack.edit(GENERAL, ts, "hello")
    event = events(slack)[1]
    assert (event["subtype"], event["message"]["ts"], event["message"]["text"]) == ("message_changed", ts, "hello")
    assert event["previous_message"]["text"] == "helo"
    assert event["message"]["edited"]["user"] == ANN
    assert slack.chat(GENERAL)[0].text == "hello"


async def test_a_deletion_is_a_deleted_message_and_under_a_thread_a_tombstone(slack: SlackEmulator) -> None:
    lone = await slack.send(GENERAL, ANN, "alone")
    await slack.delete(GENERAL, lone)
    root = await slack.send(GENERAL, ANN, "root")
    await slack.send(GENERAL, BOB, "reply", thread_ts=root)
    await slack.delete(GENERAL, root)
    deleted, tombstone = events(slack)[1], events(slack)[-1]
    assert (deleted["subtype"], deleted["deleted_ts"]) == ("message_deleted", lone)
    assert (tombstone["subtype"], tombstone["message"]["subtype"]) == ("message_changed", "tombstone")
    assert (tombstone["message"]["ts"], tombstone["previous_message"]["text"]) == (root, "root")
    assert [message.text for message in slack.chat(GENERAL)] == ["reply"]


async def test_other_bots_are_heard_in_both_their_forms(slack: SlackEmulator) -> None:
    await slack.say_as_bot(GENERAL, OTHER_BOT, "beep")
    await slack.say_as_bot(GENERAL, OTHER_BOT, "boop", classic=True)
    modern, classic = events(slack)
    assert (modern["bot_id"], modern["user"], "subtype" in modern) == ("B0ROBOT", OTHER_BOT, False)
    assert (classic["bot_id"], classic["subtype"], "user" in classic) == ("B0ROBOT", "bot_message", False)
    assert [message.by_app for message in slack.chat(GENERAL)] == [False, False]


async def test_reactions_of_people_are_events(slack: SlackEmulator) -> None:
    ts = await slack.send(GENERAL, ANN, "hi")
    await slack.react(GENERAL, ts, BOB, "tada")
    event = events(slack)[1]
    assert (event["type"], event["user"], event["reaction"], event["item"]["ts"]) == ("reaction_added", BOB, "tada", ts)


async def test_any_event_can_be_made_up(slack: SlackEmulator) -> None:
    slack.event({"type": "app_home_opened", "user": ANN, "channel": slack.direct(ANN).id, "tab": "messages"})
    assert events(slack)[0]["event_ts"]


# --- buttons and commands ----------------------------------------------------------------------------------------


async def test_a_press_carries_the_message_and_a_way_to_answer(slack: SlackEmulator, client: AsyncWebClient) -> None:
    root = await slack.send(GENERAL, ANN, "question")
    posted = await client.chat_postMessage(channel=GENERAL, text="Sure?", blocks=CHOICE, thread_ts=root)
    pressed = await slack.press(GENERAL, posted["ts"], BOB, text="Yes")
    chosen = await slack.press(GENERAL, posted["ts"], BOB, action_id="pick")
    [action] = pressed.payload["actions"]
    assert (action["type"], action["action_id"], action["value"], action["block_id"]) == ("button", "yes", "1", "q1")
    assert pressed.payload["user"]["id"] == BOB
    assert pressed.payload["container"]["thread_ts"] == root
    assert pressed.payload["message"]["ts"] == posted["ts"]
    assert chosen.payload["actions"][0]["selected_option"]["value"] == "blue"
    with pytest.raises(AssertionError, match="shows no button"):
        await slack.press(GENERAL, posted["ts"], BOB, text="No")


async def test_a_response_url_answers_five_times_in_half_an_hour(
    slack: SlackEmulator, client: AsyncWebClient, clock: ManualClock
) -> None:
    ts = (await client.chat_postMessage(channel=GENERAL, text="Sure?", blocks=CHOICE))["ts"]
    url = (await slack.press(GENERAL, ts, BOB, text="Yes")).payload["response_url"]
    later = (await slack.press(GENERAL, ts, BOB, text="Yes")).payload["response_url"]
    async with aiohttp.ClientSession() as session:

        async def respond(address: str, **answer: object) -> int:
            async with session.post(address, json=answer) as response:
                return response.status

        assert await respond(url, text="only you see this") == 200
        assert await respond(url, text="all see this", response_type="in_channel") == 200
        assert await respond(url, text="Yes it is", replace_original=True) == 200
        assert await respond(url, text="one more") == 200
        shown = {message.text: message.seen_by for message in slack.chat(GENERAL)}
        assert shown == {"only you see this": BOB, "all see this": "all", "Yes it is": "all", "one more": BOB}
        assert await respond(url, delete_original=True) == 200
        assert not slack.journal.broken
        assert await respond(url, text="the sixth") == 404
        await clock.advance(1_801)
        assert await respond(later, text="too late") == 404
    assert ["used_url" in slack.journal.broken[0], "expired_url" in slack.journal.broken[1]] == [True, True]
    assert "Yes it is" not in {message.text for message in slack.chat(GENERAL)}


async def test_a_slash_command_names_its_place(slack: SlackEmulator) -> None:
    delivery = await slack.slash_command(GENERAL, ANN, "/ask", "now")
    payload = delivery.payload
    assert (payload["command"], payload["text"], payload["channel_id"]) == ("/ask", "now", GENERAL)
    assert payload["response_url"].startswith(slack.url)


# --- files -------------------------------------------------------------------------------------------------------


async def fetch(url: str, token: str) -> tuple[str, bytes]:
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as response:
        assert response.status == 200
        return response.content_type, await response.read()


async def test_a_persons_files_come_in_one_message_and_can_be_fetched(slack: SlackEmulator) -> None:
    await slack.upload(GENERAL, ANN, {"a.txt": b"alpha", "b.png": b"beta"}, "look", mention=True)
    message, mention = events(slack)
    assert (message["subtype"], message["text"]) == ("file_share", f"<@{BOT}> look")
    assert mention["type"] == "app_mention"
    assert [(file["name"], file["mimetype"], file["size"]) for file in message["files"]] == [
        ("a.txt", "text/plain", 5),
        ("b.png", "image/png", 4),
    ]
    assert await fetch(message["files"][1]["url_private"], BOT_TOKEN) == ("image/png", b"beta")


async def test_without_the_right_to_read_files_a_sign_in_page_comes(slack: SlackEmulator) -> None:
    await slack.upload(GENERAL, ANN, {"a.txt": b"alpha"})
    url = slack.file("a.txt").url
    assert (await fetch(url, "xoxb-wrong"))[0] == "text/html"
    slack.world.workspaces[TEAM].scopes.discard("files:read")
    assert (await fetch(url, BOT_TOKEN))[0] == "text/html"


async def test_the_sdk_uploads_a_file_in_its_three_steps(slack: SlackEmulator, client: AsyncWebClient) -> None:
    root = await slack.send(GENERAL, ANN, "question")
    await client.files_upload_v2(
        channel=GENERAL, thread_ts=root, filename="r.csv", content="a,b", title="Result", initial_comment="Here:"
    )
    [message] = slack.answers(GENERAL, root)
    assert (message.text, message.files, message.thread_ts) == ("Here:", ("r.csv",), root)
    assert (slack.file("r.csv").content, slack.file("r.csv").title) == (b"a,b", "Result")
    assert events(slack)[-1]["bot_id"] == BOT_ID
    assert not slack.journal.broken


async def test_an_upload_keeps_to_its_length_and_keeps_the_token_to_itself(
    slack: SlackEmulator, client: AsyncWebClient
) -> None:
    ticket = await client.files_getUploadURLExternal(filename="a.txt", length=3)
    early = client.files_completeUploadExternal(files=[{"id": ticket["file_id"]}], channel_id=GENERAL)
    assert await refusal(early) == "file_not_found"
    async with aiohttp.ClientSession() as session:

        async def put(body: bytes, **headers: str) -> int:
            async with session.post(ticket["upload_url"], data=body, headers=headers) as response:
                return response.status

        assert await put(b"toolong") == 400
        assert await put(b"abc", Authorization=f"Bearer {BOT_TOKEN}") == 200
        assert await put(b"abc") == 404
    assert len(slack.journal.broken) == 4
    assert "token was sent to the upload address" in slack.journal.broken[2]
    assert await refusal(client.files_getUploadURLExternal(filename="a.txt", length=0)) == "invalid_arguments"


# --- broadcast mentions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        {"text": "<!channel> hi"},
        {"markdown_text": "ask @here"},
        {"text": "x", "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": "<!everyone>"}}]},
        {"text": "x", "blocks": [{"type": "markdown", "text": "@channel"}]},
        {"text": "x", "attachments": [{"text": "<!here>", "fallback": "f"}]},
    ],
)
async def test_a_live_broadcast_mention_is_recorded_wherever_it_stands(
    slack: SlackEmulator, client: AsyncWebClient, content: dict[str, Any]
) -> None:
    ts = (await client.chat_postMessage(channel=GENERAL, text="calm"))["ts"]
    assert not slack.journal.broken
    await client.chat_postMessage(channel=GENERAL, **content)
    await client.chat_update(channel=GENERAL, ts=ts, **content)
    await client.chat_postEphemeral(channel=GENERAL, user=ANN, **content)
    assert len(slack.journal.broken) == 3
    assert all("live broadcast mention" in rule for rule in slack.journal.broken)


# --- the assistant's side show -----------------------------------------------------------------------------------


async def test_a_status_line_stays_until_an_answer_or_two_minutes(
    slack: SlackEmulator, client: AsyncWebClient, clock: ManualClock
) -> None:
    root = await slack.send(GENERAL, ANN, "question")

    async def status(text: str) -> None:
        await client.assistant_threads_setStatus(channel_id=GENERAL, thread_ts=root, status=text)

    await status("is thinking…")
    assert slack.statuses == {(GENERAL, root): "is thinking…"}
    await clock.advance(119)
    assert slack.statuses
    await clock.advance(1)
    assert not slack.statuses
    await status("is writing…")
    await client.chat_postMessage(channel=GENERAL, text="answer", thread_ts=root)
    assert not slack.statuses
    await status("again")
    await status("")
    assert not slack.statuses
    assert [(change.text, change.by) for change in slack.status_log] == [
        ("is thinking…", "app"),
        ("is writing…", "app"),
        ("", "reply"),
        ("again", "app"),
        ("", "app"),
    ]
    assert not slack.journal.broken


async def test_a_stream_takes_the_status_line_away(slack: SlackEmulator, client: AsyncWebClient) -> None:
    question = await slack.dm(ANN, "hi")
    direct = slack.direct(ANN).id
    await client.assistant_threads_setStatus(channel_id=direct, thread_ts=question, status="is thinking…")
    await client.chat_startStream(channel=direct, thread_ts=question, chunks=[{"type": "markdown_text", "text": "a"}])
    assert not slack.statuses


async def test_a_status_line_needs_its_thread_and_few_loading_messages(
    slack: SlackEmulator, client: AsyncWebClient
) -> None:
    bad = client.assistant_threads_setStatus(channel_id=GENERAL, thread_ts="1234567890.123456", status="x")
    assert await refusal(bad) == "invalid_thread_ts"
    root = await slack.send(GENERAL, ANN, "question")
    many = client.assistant_threads_setStatus(
        channel_id=GENERAL, thread_ts=root, status="x", loading_messages=["a"] * 11
    )
    assert await refusal(many) == "invalid_arguments"
    assert len(slack.journal.broken) == 2


async def test_an_assistant_thread_has_title_and_prompts(slack: SlackEmulator, client: AsyncWebClient) -> None:
    thread_ts = await slack.open_assistant(ANN, context_channel=GENERAL)
    [started] = events(slack)
    thread = started["assistant_thread"]
    assert (thread["user_id"], thread["thread_ts"], thread["context"]["channel_id"]) == (ANN, thread_ts, GENERAL)
    direct = thread["channel_id"]
    prompts = [{"title": "Hi", "message": "Say hi"}]
    await client.assistant_threads_setSuggestedPrompts(channel_id=direct, thread_ts=thread_ts, prompts=prompts)
    await client.assistant_threads_setTitle(channel_id=direct, thread_ts=thread_ts, title="Greetings")
    await slack.dm(ANN, "hi", thread_ts=thread_ts)
    assert slack.prompts[(direct, thread_ts)] == prompts
    assert slack.titles[(direct, thread_ts)] == "Greetings"
    assert [message.text for message in slack.chat(direct)] == ["hi"], "the hidden root is no message to people"
    many = client.assistant_threads_setSuggestedPrompts(channel_id=direct, thread_ts=thread_ts, prompts=prompts * 5)
    assert await refusal(many) == "invalid_arguments"


async def test_sessions_have_a_status_where_they_exist(slack: SlackEmulator, client: AsyncWebClient) -> None:
    root = await slack.send(GENERAL, ANN, "question")
    for status in ("processing", "suspended", "active"):
        await client.agents_sessions_setStatus(channel_id=GENERAL, thread_ts=root, status=status, title="Question")
    session = slack.sessions[(GENERAL, root)]
    assert (session.title, session.states) == ("Question", ["processing", "suspended", "active"])
    assert not slack.journal.broken
    wrong = client.agents_sessions_setStatus(channel_id=GENERAL, thread_ts=root, status="asleep")
    assert await refusal(wrong) == "invalid_arguments"
    slack.settings.sessions = False
    absent = client.agents_sessions_setStatus(channel_id=GENERAL, thread_ts=root, status="active")
    assert await refusal(absent) == "unknown_method"
    assert len(slack.journal.broken) == 1


async def test_a_home_is_published_and_comes_with_its_opening(slack: SlackEmulator, client: AsyncWebClient) -> None:
    await slack.open_home(ANN)
    view = {"type": "home", "blocks": [{"type": "divider"}]}
    await client.views_publish(user_id=ANN, view=view)
    await slack.open_home(ANN)
    first, second = events(slack)
    assert (first["type"], first["tab"], "view" in first) == ("app_home_opened", "home", False)
    assert second["view"] == slack.homes[ANN] == view
    assert await refusal(client.views_publish(user_id=ANN, view={"type": "modal"})) == "invalid_arguments"
    assert slack.journal.broken


# --- several workspaces ------------------------------------------------------------------------------------------


async def test_two_workspaces_are_kept_apart(slack: SlackEmulator, client: AsyncWebClient) -> None:
    slack.add_workspace("T0TWO", "two", bot="U0TWO", bot_id="B0TWO", bot_token="xoxb-two")
    slack.add_user("U0CAT", "cat", team="T0TWO")
    slack.add_channel("C0TWO", "general", kind=ChannelKind.PRIVATE, team="T0TWO", members=["U0CAT"])
    await slack.send("C0TWO", "U0CAT", "hi", mention=True)
    await slack.dm("U0CAT", "psst")
    assert {delivery.payload["team_id"] for delivery in slack.deliveries} == {"T0TWO"}
    assert events(slack)[1]["text"] == "<@U0TWO> hi"
    assert await refusal(client.chat_postMessage(channel="C0TWO", text="x")) == "channel_not_found"
    async with web_client(slack, "xoxb-two") as second:
        assert (await second.auth_test())["team_id"] == "T0TWO"
        await second.chat_postMessage(channel="C0TWO", text="x")
    assert (await client.apps_connections_open(app_token=APP_TOKEN))["ok"]
