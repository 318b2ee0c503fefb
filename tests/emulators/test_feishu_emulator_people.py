"""What people do in the Feishu emulator, as the bridge hears of it; and card callbacks with their answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.clock import ManualClock
from tests.emulators.feishu import FeishuEmulator, Outcome, Pressed
from tests.emulators.feishu.driver import Driver, Socket, card
from tests.emulators.feishu.refusals import Json

STOP: Json = {
    "tag": "button",
    "text": {"tag": "plain_text", "content": "Stop"},
    "behaviors": [{"type": "callback", "value": {"do": "stop"}}],
}
FORM: Json = {
    "tag": "form",
    "name": "ask",
    "elements": [
        {"tag": "input", "name": "why", "required": True},
        {"tag": "input", "name": "how", "default_value": "well"},
        {
            "tag": "button",
            "name": "send",
            "text": {"tag": "plain_text", "content": "Send"},
            "form_action_type": "submit",
            "behaviors": [{"type": "callback", "value": {"do": "answer"}}],
        },
    ],
}
INPUT: Json = {
    "tag": "input",
    "name": "free",
    "behaviors": [{"type": "callback", "value": {"do": "say"}}],
}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def emulator(clock: ManualClock) -> AsyncIterator[FeishuEmulator]:
    async with FeishuEmulator(clock) as emulator:
        yield emulator


@pytest.fixture
async def driver(emulator: FeishuEmulator) -> AsyncIterator[Driver]:
    async with Driver(emulator) as driver:
        yield driver


@pytest.fixture
async def socket(driver: Driver) -> AsyncIterator[Socket]:
    async with await driver.connect() as socket:
        yield socket


@pytest.fixture
def group(emulator: FeishuEmulator) -> str:
    return emulator.add_group("Team", "Ann", "Bob")


async def message_of(socket: Socket) -> Json:
    """The message in the next event, with its content parsed."""
    event = await socket.take()
    assert event["header"]["event_type"] == "im.message.receive_v1"
    message: Json = event["event"]["message"]
    return {**message, "content": json.loads(message["content"])}


# -- messages


async def test_a_text_carries_placeholders_for_whom_it_mentions(
    emulator: FeishuEmulator, socket: Socket, group: str
) -> None:
    await emulator.say("Ann", group, "@Bridge ask @Bob please")
    message = await message_of(socket)
    assert message["content"] == {"text": "@_user_1 ask @_user_2 please"}
    assert [(one["key"], one["name"], one["mentioned_type"]) for one in message["mentions"]] == [
        ("@_user_1", "Bridge", "bot"),
        ("@_user_2", "Bob", "user"),
    ]
    assert message["mentions"][0]["id"]["open_id"] == emulator.world.bot.open_id
    assert (message["chat_type"], message["message_type"], "root_id" in message) == ("group", "text", False)
    assert emulator.chat(group)[0].text == "@Bridge ask @Bob please"


async def test_the_header_and_the_sender_are_complete(emulator: FeishuEmulator, socket: Socket) -> None:
    await emulator.say("Ann", emulator.p2p("Ann"), "hi")
    event = await socket.take()
    assert event["schema"] == "2.0"
    assert set(event["header"]) == {"event_id", "event_type", "create_time", "token", "app_id", "tenant_key"}
    assert event["header"]["token"] == emulator.verification_token
    assert event["event"]["sender"]["sender_id"]["open_id"] == emulator.world.person("Ann").open_id
    assert event["event"]["message"]["chat_type"] == "p2p"


async def test_everybody_is_mentioned_without_an_entry(emulator: FeishuEmulator, socket: Socket, group: str) -> None:
    await emulator.say("Ann", group, "look", mention_all=True)
    message = await message_of(socket)
    assert (message["content"], "mentions" in message) == ({"text": "@_all look"}, False)


async def test_a_rich_text_has_title_paragraphs_and_mentions(
    emulator: FeishuEmulator, socket: Socket, group: str
) -> None:
    link = {"tag": "a", "href": "https://example.com", "text": "here"}
    await emulator.post("Ann", group, ["@Bridge read", [link]], title="News")
    message = await message_of(socket)
    assert message["content"]["title"] == "News"
    at, text = message["content"]["content"][0]
    assert (at["tag"], at["user_id"], text["text"]) == ("at", "@_user_1", " read")
    assert message["content"]["content"][1] == [link]
    assert emulator.chat(group)[0].text == "News\nBridge read\nhere"


async def test_every_other_kind_of_message_comes_in_its_vendors_form(
    emulator: FeishuEmulator, socket: Socket, group: str
) -> None:
    await emulator.image("Ann", group, b"\x89PNG")
    await emulator.file("Ann", group, "a.txt", b"x")
    await emulator.audio("Ann", group, b"x", 2.5)
    await emulator.media("Ann", group, "a.mp4", b"x", b"\x89PNG")
    await emulator.sticker("Ann", group)
    await emulator.share_chat("Ann", group, group)
    await emulator.merge_forward("Ann", group, [])
    await emulator.send_raw("Ann", group, "hongbao", {"text": "[hongbao]"})
    seen = [await message_of(socket) for _ in range(8)]
    assert [(one["message_type"], sorted(one["content"])) for one in seen] == [
        ("image", ["image_key"]),
        ("file", ["file_key", "file_name"]),
        ("audio", ["duration", "file_key"]),
        ("media", ["duration", "file_key", "file_name", "image_key"]),
        ("sticker", ["file_key"]),
        ("share_chat", ["chat_id"]),
        ("merge_forward", ["content"]),
        ("hongbao", ["text"]),
    ]


async def test_replies_and_topics_of_people_carry_their_ids(
    emulator: FeishuEmulator, socket: Socket, group: str
) -> None:
    root = await emulator.say("Ann", group, "one")
    await message_of(socket)
    quoted = await emulator.say("Bob", group, "two", reply_to=root)
    message = await message_of(socket)
    assert (message["root_id"], message["parent_id"], "thread_id" in message) == (root, root, False)
    await emulator.say("Ann", group, "three", reply_to=quoted, in_thread=True)
    message = await message_of(socket)
    assert message["thread_id"].startswith("omt_")
    assert (message["root_id"], message["parent_id"]) == (root, root)


async def test_what_the_app_hears_depends_on_its_scopes(emulator: FeishuEmulator, socket: Socket, group: str) -> None:
    emulator.revoke_scope("im:message.group_msg")
    await emulator.say("Ann", group, "unheard")
    await emulator.say("Ann", group, "@Bridge heard")
    assert (await message_of(socket))["content"]["text"] == "@_user_1 heard"
    emulator.revoke_scope("im:message.p2p_msg:readonly", "im:message.group_at_msg:readonly")
    await emulator.say("Ann", emulator.p2p("Ann"), "unheard")
    await emulator.say("Ann", group, "@Bridge unheard")
    with pytest.raises(TimeoutError):
        await socket.frame(0.05)


async def test_recalls_reactions_and_moves_of_the_bot_are_events(
    emulator: FeishuEmulator, socket: Socket, driver: Driver, group: str
) -> None:
    message_id = await emulator.say("Ann", group, "hi")
    await socket.take()
    await emulator.react("Bob", message_id, "SMILE")
    reaction = (await socket.take())["event"]
    assert (reaction["reaction_type"], reaction["operator_type"]) == ({"emoji_type": "SMILE"}, "user")
    await driver.call("POST", f"im/v1/messages/{message_id}/reactions", {"reaction_type": {"emoji_type": "OK"}})
    own = (await socket.take())["event"]
    assert (own["operator_type"], own["app_id"]) == ("app", emulator.app_id)
    await emulator.recall("Ann", message_id)
    recalled = await socket.take()
    assert recalled["header"]["event_type"] == "im.message.recalled_v1"
    assert (recalled["event"]["message_id"], recalled["event"]["chat_id"]) == (message_id, group)
    assert emulator.message(message_id).gone == "recalled"
    await emulator.remove_bot("Ann", group)
    await emulator.say("Ann", group, "unheard")
    await emulator.add_bot("Ann", group)
    kinds = [(await socket.take())["header"]["event_type"] for _ in range(2)]
    assert kinds == ["im.chat.member.bot.deleted_v1", "im.chat.member.bot.added_v1"]


async def test_only_subscribed_events_come(emulator: FeishuEmulator, socket: Socket, group: str) -> None:
    emulator.subscriptions -= {"im.message.reaction.created_v1"}
    message_id = await emulator.say("Ann", group, "hi")
    await emulator.react("Bob", message_id)
    await emulator.recall("Ann", message_id)
    kinds = [(await socket.take())["header"]["event_type"] for _ in range(2)]
    assert kinds == ["im.message.receive_v1", "im.message.recalled_v1"]


# -- cards


async def answered(socket: Socket, pressing: Any, **answer: Any) -> tuple[Json, Pressed]:
    """The callback's event and what the person saw when it is answered with this."""
    task = asyncio.ensure_future(pressing)
    frame, event = await socket.event()
    await socket.ack(frame, answer.pop("code", 200), answer or None)
    return event, await task


async def shown(emulator: FeishuEmulator, driver: Driver, group: str, *elements: Json, streaming: bool = False) -> str:
    await driver.shown_card(group, card(*elements, streaming=streaming))
    return emulator.replies(group)[-1].message_id


async def test_a_pressed_button_calls_back_with_its_value(
    emulator: FeishuEmulator, driver: Driver, socket: Socket, group: str
) -> None:
    message_id = await shown(emulator, driver, group, STOP)
    toast = {"type": "info", "content": "Stopping"}
    event, seen = await answered(socket, emulator.press("Ann", message_id, "Stop"), toast=toast)
    assert event["header"]["event_type"] == "card.action.trigger"
    assert event["event"]["action"]["value"] == {"do": "stop"}
    assert event["event"]["context"] == {"open_message_id": message_id, "open_chat_id": group}
    assert event["event"]["operator"]["open_id"] == emulator.world.person("Ann").open_id
    assert seen == Pressed(Outcome.ACKED, toast)
    assert not emulator.journal.broken


async def test_a_form_is_submitted_with_what_was_filled_in(
    emulator: FeishuEmulator, driver: Driver, socket: Socket, group: str
) -> None:
    message_id = await shown(emulator, driver, group, FORM)
    event, _ = await answered(socket, emulator.press("Ann", message_id, "Send", {"why": "because"}))
    assert event["event"]["action"]["form_value"] == {"why": "because", "how": "well"}
    assert event["event"]["action"]["name"] == "send"
    with pytest.raises(AssertionError, match="why"):
        await emulator.press("Ann", message_id, "Send")


async def test_an_input_outside_of_forms_sends_its_text(
    emulator: FeishuEmulator, driver: Driver, socket: Socket, group: str
) -> None:
    message_id = await shown(emulator, driver, group, INPUT)
    event, _ = await answered(socket, emulator.type_input("Ann", message_id, "free", "some words"))
    action = event["event"]["action"]
    assert (action["tag"], action["input_value"], action["value"]) == ("input", "some words", {"do": "say"})


async def test_what_is_not_there_cannot_be_pressed(emulator: FeishuEmulator, driver: Driver, group: str) -> None:
    message_id = await shown(emulator, driver, group, {**STOP, "disabled": True})
    for button in ("Stop", "Go"):
        with pytest.raises(AssertionError, match=button):
            await emulator.press("Ann", message_id, button)


async def test_the_answer_can_replace_a_card_that_does_not_stream(
    emulator: FeishuEmulator, driver: Driver, socket: Socket, group: str
) -> None:
    message_id = await shown(emulator, driver, group, STOP)
    new = {"type": "raw", "data": card({"tag": "markdown", "content": "Stopped"})}
    _, seen = await answered(socket, emulator.press("Ann", message_id, "Stop"), card=new)
    assert seen.card_updated
    assert emulator.message(message_id).text == "Stopped"
    assert not emulator.journal.broken


async def test_the_answer_cannot_replace_a_card_that_streams(
    emulator: FeishuEmulator, driver: Driver, socket: Socket, group: str
) -> None:
    message_id = await shown(emulator, driver, group, STOP, streaming=True)
    new = {"type": "raw", "data": card()}
    _, seen = await answered(socket, emulator.press("Ann", message_id, "Stop"), card=new)
    assert seen.failed == 200810
    assert "streams" in emulator.journal.broken[0]


@pytest.mark.parametrize(
    "answer",
    [
        {"toast": {"type": "shout", "content": "x"}},
        {"message": "ok"},
        {"card": {"type": "raw", "data": {"elements": []}}},
        {"card": {"type": "card_json", "data": "{}"}},
    ],
)
async def test_a_wrong_answer_breaks_a_rule(
    emulator: FeishuEmulator, driver: Driver, socket: Socket, group: str, answer: Json
) -> None:
    message_id = await shown(emulator, driver, group, STOP)
    _, seen = await answered(socket, emulator.press("Ann", message_id, "Stop"), **answer)
    assert seen.failed
    assert len(emulator.journal.broken) == 1


async def test_updating_a_card_before_its_callback_is_answered_is_refused(
    emulator: FeishuEmulator, driver: Driver, socket: Socket, group: str
) -> None:
    message_id = await shown(emulator, driver, group, STOP)
    card_id = emulator.message(message_id).card_id
    pressing = asyncio.ensure_future(emulator.press("Ann", message_id, "Stop"))
    frame, _ = await socket.event()
    assert (await driver.set_streaming(card_id, True))["code"] == 200810
    await socket.ack(frame)
    await pressing
    assert (await driver.set_streaming(card_id, True))["code"] == 0
    assert not emulator.journal.broken


async def test_a_callback_must_be_answered_in_three_seconds_and_never_comes_again(
    emulator: FeishuEmulator, driver: Driver, socket: Socket, group: str, clock: ManualClock
) -> None:
    message_id = await shown(emulator, driver, group, STOP)
    pressing = asyncio.ensure_future(emulator.press("Ann", message_id, "Stop"))
    await socket.event()
    await clock.advance(3.0)
    assert (await pressing).outcome is Outcome.SILENT
    assert "within 3 s" in emulator.journal.broken[0]
    await clock.advance(20.0)
    with pytest.raises(TimeoutError):
        await socket.frame(0.05)


async def test_a_callback_with_nobody_connected_is_nobodys_fault(
    emulator: FeishuEmulator, driver: Driver, group: str
) -> None:
    message_id = await shown(emulator, driver, group, STOP)
    assert (await emulator.press("Ann", message_id, "Stop")).outcome is Outcome.UNDELIVERABLE
    assert not emulator.journal.broken
