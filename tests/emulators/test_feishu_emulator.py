"""The Feishu emulator's Open API: tokens, scopes, messages, files, reactions; each rule kept once and broken once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
import pytest

from tests.clock import ManualClock
from tests.emulators.feishu import FeishuEmulator, Limits, Rate, refuse
from tests.emulators.feishu.driver import Driver, card
from tests.emulators.feishu.refusals import Json
from tests.emulators.journal import Fault, FaultKind

PNG = b"\x89PNG\r\n\x1a\n" + bytes(16)
TEXT = {"text": "hello"}
FREE = {name: (Rate(100_000, 1.0),) for name in ("card", "cardkit", "chat", "im.send", "message", "api")}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def emulator(clock: ManualClock) -> AsyncIterator[FeishuEmulator]:
    async with FeishuEmulator(clock, rates=FREE) as emulator:
        yield emulator


@pytest.fixture
async def driver(emulator: FeishuEmulator) -> AsyncIterator[Driver]:
    async with Driver(emulator) as driver:
        yield driver


@pytest.fixture
def group(emulator: FeishuEmulator) -> str:
    return emulator.add_group("Team", "Ann", "Bob")


def broken_by(emulator: FeishuEmulator, *words: str) -> None:
    """Exactly one rule was broken, and the journal says which."""
    assert len(emulator.journal.broken) == 1, emulator.journal.broken
    assert all(word in emulator.journal.broken[0] for word in words), emulator.journal.broken


# -- tokens and scopes


async def test_a_token_is_renewed_when_little_is_left_and_the_old_one_serves_until_its_end(
    emulator: FeishuEmulator, driver: Driver, clock: ManualClock
) -> None:
    first = driver.token
    await clock.advance(5000)
    again = await driver.login()
    assert (again["tenant_access_token"], again["expire"]) == (first, 2200)
    await clock.advance(600)
    assert (await driver.login())["tenant_access_token"] != first
    driver.token = first
    assert (await driver.call("GET", "bot/v3/info"))["bot"]["app_name"] == "Bridge"
    assert not emulator.journal.broken


async def test_using_a_token_past_its_end_breaks_a_rule(
    emulator: FeishuEmulator, driver: Driver, clock: ManualClock
) -> None:
    await clock.advance(7200)
    assert (await driver.call("GET", "bot/v3/info"))["code"] == 99991663
    broken_by(emulator, "bot.info", "the token ended")


async def test_a_revoked_token_is_news_once_and_a_broken_rule_when_it_is_used_on(
    emulator: FeishuEmulator, driver: Driver, clock: ManualClock
) -> None:
    emulator.revoke_tokens()
    assert (await driver.call("GET", "bot/v3/info"))["code"] == 99991663
    assert driver.status == 400
    assert not emulator.journal.broken
    await clock.advance(10)
    await driver.call("GET", "bot/v3/info")
    broken_by(emulator, "not valid")
    await driver.login()
    assert (await driver.call("GET", "bot/v3/info"))["code"] == 0


async def test_a_wrong_secret_and_a_missing_token_are_refused(emulator: FeishuEmulator, driver: Driver) -> None:
    assert (await driver.login("wrong"))["code"] == 10014
    driver.token = ""
    assert (await driver.call("GET", "bot/v3/info"))["code"] == 99991661
    broken_by(emulator, "no bearer token")
    assert not any("wrong" in str(call.args) for call in emulator.journal.calls)


async def test_a_missing_scope_is_named(emulator: FeishuEmulator, driver: Driver) -> None:
    emulator.revoke_scope("cardkit:card:write")
    answer = await driver.create_card(card())
    assert answer["code"] == 99991672
    assert [one["subject"] for one in answer["error"]["permission_violations"]] == ["cardkit:card:write"]
    listed = await driver.call("GET", "application/v6/scopes")
    assert "cardkit:card:write" not in [one["scope_name"] for one in listed["data"]["scopes"]]
    emulator.grant_scope("cardkit:card:write")
    assert (await driver.create_card(card()))["code"] == 0
    assert not emulator.journal.broken


async def test_codes_can_come_with_http_200(emulator: FeishuEmulator, driver: Driver, group: str) -> None:
    emulator.codes_as_http_200 = True
    assert (await driver.send(group, "text", {"text": ""}))["code"] == 230001
    assert driver.status == 200


# -- sending


async def test_a_message_is_sent_and_can_be_read_back(emulator: FeishuEmulator, driver: Driver, group: str) -> None:
    sent = (await driver.send(group, "text", TEXT))["data"]
    assert sent["sender"] == {
        "id": emulator.app_id,
        "id_type": "app_id",
        "sender_type": "app",
        "tenant_key": emulator.world.tenant_key,
    }
    got = await driver.call("GET", f"im/v1/messages/{sent['message_id']}")
    assert json.loads(got["data"]["items"][0]["body"]["content"]) == TEXT
    [shown] = emulator.chat(group)
    assert (shown.text, shown.by_bot, shown.first_visible) == ("hello", True, emulator.clock.now())
    assert not emulator.journal.broken


async def test_a_message_can_be_sent_to_a_person_by_open_id(emulator: FeishuEmulator, driver: Driver) -> None:
    ann = emulator.add_person("Ann")
    body = {"receive_id": ann, "msg_type": "text", "content": json.dumps(TEXT)}
    assert (await driver.call("POST", "im/v1/messages?receive_id_type=open_id", body))["code"] == 0
    assert [one.text for one in emulator.chat(emulator.p2p("Ann"))] == ["hello"]


async def test_replies_know_their_parent_their_root_and_their_topic(
    emulator: FeishuEmulator, driver: Driver, group: str
) -> None:
    question = await emulator.say("Ann", group, "@Bridge hi")
    first = (await driver.reply(question, "text", TEXT))["data"]
    assert (first["root_id"], first["parent_id"], "thread_id" in first) == (question, question, False)
    second = (await driver.reply(first["message_id"], "text", TEXT))["data"]
    assert (second["root_id"], second["parent_id"]) == (question, first["message_id"])
    threaded = (await driver.reply(question, "text", TEXT, reply_in_thread=True))["data"]
    assert threaded["thread_id"].startswith("omt_")
    inside = (await driver.reply(threaded["message_id"], "text", TEXT))["data"]
    assert (inside["thread_id"], inside["root_id"], inside["parent_id"]) == (threaded["thread_id"], question, question)


async def test_every_message_in_a_topic_group_has_a_topic(emulator: FeishuEmulator, driver: Driver) -> None:
    topics = emulator.add_group("Topics", "Ann", topic=True)
    opening = await emulator.say("Ann", topics, "hi")
    topic = emulator.message(opening).thread_id
    assert topic
    assert (await driver.reply(opening, "text", TEXT))["data"]["thread_id"] == topic
    assert (await driver.send(topics, "text", TEXT))["data"]["thread_id"] != topic
    assert (await driver.call("GET", f"im/v1/chats/{topics}"))["data"]["chat_mode"] == "topic"


async def test_the_same_uuid_within_the_hour_gives_the_first_message(
    emulator: FeishuEmulator, driver: Driver, group: str, clock: ManualClock
) -> None:
    first = await driver.send(group, "text", TEXT, uuid="u1")
    again = await driver.send(group, "text", TEXT, uuid="u1")
    assert again["data"]["message_id"] == first["data"]["message_id"]
    await clock.advance(3600)
    later = await driver.send(group, "text", TEXT, uuid="u1")
    assert later["data"]["message_id"] != first["data"]["message_id"]
    assert not emulator.journal.broken
    assert len(emulator.replies(group)) == 2


async def test_a_uuid_for_another_message_breaks_a_rule(emulator: FeishuEmulator, driver: Driver, group: str) -> None:
    await driver.send(group, "text", TEXT, uuid="u1")
    await driver.send(group, "text", {"text": "other"}, uuid="u1")
    broken_by(emulator, "uuid u1")
    assert [one.text for one in emulator.replies(group)] == ["hello"]


POST = {"zh_cn": {"title": "T", "content": [[{"tag": "text", "text": "a"}], [{"tag": "md", "text": "**b**"}]]}}


@pytest.mark.parametrize(
    ("msg_type", "content", "code"),
    [
        ("text", TEXT, 0),
        ("text", {"text": "x" * 149_000}, 0),
        ("text", {"text": "x" * 150_001}, 230025),
        ("text", "not json", 230001),
        ("text", {"text": ""}, 230001),
        ("post", POST, 0),
        ("post", {"zh_cn": {"title": "T", "content": [[{"tag": "md", "text": "x" * 30_001}]]}}, 230025),
        ("post", {"title": "T", "content": []}, 230001),
        ("post", {"zh_cn": {"content": [[{"tag": "md", "text": "a"}, {"tag": "text", "text": "b"}]]}}, 230001),
        ("post", {"zh_cn": {"content": [[{"tag": "table"}]]}}, 230001),
        ("post", {"zh_cn": {"content": [[{"tag": "at", "user_id": "ou_nobody"}]]}}, 230001),
        ("image", {"image_key": "img_unknown"}, 230017),
        ("telepathy", {}, 230001),
    ],
)
async def test_content_is_checked(
    emulator: FeishuEmulator, driver: Driver, group: str, msg_type: str, content: Json, code: int
) -> None:
    assert (await driver.send(group, msg_type, content))["code"] == code
    assert bool(emulator.journal.broken) == bool(code)


@pytest.mark.parametrize("missing", ["receive_id", "msg_type", "content"])
async def test_required_fields_are_checked(emulator: FeishuEmulator, driver: Driver, group: str, missing: str) -> None:
    body = {"receive_id": group, "msg_type": "text", "content": json.dumps(TEXT)}
    del body[missing]
    assert (await driver.call("POST", "im/v1/messages?receive_id_type=chat_id", body))["code"] == 99992402
    broken_by(emulator, missing)


async def test_a_uuid_has_at_most_50_characters(emulator: FeishuEmulator, driver: Driver, group: str) -> None:
    assert (await driver.send(group, "text", TEXT, uuid="u" * 50))["code"] == 0
    assert (await driver.send(group, "text", TEXT, uuid="u" * 51))["code"] == 99992402
    broken_by(emulator, "uuid")


@pytest.mark.parametrize(
    ("msg_type", "content"),
    [
        ("text", {"text": 'now <at user_id="all">all</at>'}),
        ("post", {"zh_cn": {"content": [[{"tag": "at", "user_id": "all"}]]}}),
        ("post", {"zh_cn": {"content": [[{"tag": "md", "text": '<at user_id="all"></at>'}]]}}),
        ("interactive", card({"tag": "markdown", "content": "<at id=all></at>"})),
    ],
)
async def test_mentioning_everybody_goes_through_and_breaks_a_rule(
    emulator: FeishuEmulator, driver: Driver, group: str, msg_type: str, content: Json
) -> None:
    assert (await driver.send(group, msg_type, content))["code"] == 0
    broken_by(emulator, "everybody")


async def test_a_chat_without_the_bot_and_a_person_out_of_range_cannot_be_written_to(
    emulator: FeishuEmulator, driver: Driver, group: str
) -> None:
    await emulator.remove_bot("Ann", group)
    assert (await driver.send(group, "text", TEXT))["code"] == 230002
    await emulator.add_bot("Ann", group)
    assert (await driver.send(group, "text", TEXT))["code"] == 0
    private = emulator.p2p("Ann")
    emulator.make_unavailable("Ann")
    assert (await driver.send(private, "text", TEXT))["code"] == 230013
    assert not emulator.journal.broken


# -- changing


async def test_a_text_can_be_edited_twenty_times(emulator: FeishuEmulator, driver: Driver, group: str) -> None:
    message_id = (await driver.send(group, "text", TEXT))["data"]["message_id"]
    for number in range(20):
        body = {"msg_type": "text", "content": json.dumps({"text": f"v{number}"})}
        assert (await driver.call("PUT", f"im/v1/messages/{message_id}", body))["code"] == 0
    assert emulator.message(message_id).text == "v19"
    assert len(emulator.message(message_id).versions) == 21
    assert not emulator.journal.broken
    assert (await driver.call("PUT", f"im/v1/messages/{message_id}", body))["code"] == 230072
    broken_by(emulator, "20 times")


async def test_a_card_can_be_patched_for_fourteen_days(
    emulator: FeishuEmulator, driver: Driver, group: str, clock: ManualClock
) -> None:
    message_id = (await driver.send(group, "interactive", card()))["data"]["message_id"]
    new = card({"tag": "markdown", "content": "new"})
    assert (await driver.patch(message_id, new))["code"] == 0
    assert emulator.message(message_id).text == "new"
    await clock.advance(14 * 86_400)
    await driver.login()
    assert (await driver.patch(message_id, new))["code"] == 230031
    assert not emulator.journal.broken


async def test_a_patched_card_must_say_update_multi_before_and_after(
    emulator: FeishuEmulator, driver: Driver, group: str
) -> None:
    message_id = (await driver.send(group, "interactive", card()))["data"]["message_id"]
    new = card()
    del new["config"]["update_multi"]
    assert (await driver.patch(message_id, new))["code"] == 0
    broken_by(emulator, "update_multi", "after")


async def test_only_cards_are_patched_and_only_texts_are_edited(
    emulator: FeishuEmulator, driver: Driver, group: str
) -> None:
    text = (await driver.send(group, "text", TEXT))["data"]["message_id"]
    assert (await driver.patch(text, card()))["code"] == 230054
    shown = (await driver.send(group, "interactive", card()))["data"]["message_id"]
    body = {"msg_type": "text", "content": json.dumps(TEXT)}
    assert (await driver.call("PUT", f"im/v1/messages/{shown}", body))["code"] == 230054
    question = await emulator.say("Ann", group, "mine")
    assert (await driver.call("PUT", f"im/v1/messages/{question}", body))["code"] == 230071
    assert len(emulator.journal.broken) == 3


async def test_a_recalled_message_is_news_once(emulator: FeishuEmulator, driver: Driver, group: str) -> None:
    question = await emulator.say("Ann", group, "hi")
    await emulator.recall("Ann", question)
    assert (await driver.reply(question, "text", TEXT))["code"] == 230011
    assert not emulator.journal.broken
    await driver.reply(question, "text", TEXT)
    broken_by(emulator, "as it was told")


async def test_the_bot_can_recall_its_own_messages_only(emulator: FeishuEmulator, driver: Driver, group: str) -> None:
    mine = (await driver.send(group, "text", TEXT))["data"]["message_id"]
    assert (await driver.call("DELETE", f"im/v1/messages/{mine}"))["code"] == 0
    assert emulator.replies(group) == []
    hers = await emulator.say("Ann", group, "hi")
    assert (await driver.call("DELETE", f"im/v1/messages/{hers}"))["code"] == 230026
    broken_by(emulator, "not the bot's")


# -- files and pictures


async def upload(driver: Driver, path: str, name: str, data: bytes, **fields: str) -> Json:
    return await driver.call("POST", path, data=fields, files={name: ("upload", data)})


async def test_pictures_and_files_are_uploaded_and_sent(emulator: FeishuEmulator, driver: Driver, group: str) -> None:
    picture = await upload(driver, "im/v1/images", "image", PNG, image_type="message")
    assert (await driver.send(group, "image", picture["data"]))["code"] == 0
    file = await upload(driver, "im/v1/files", "file", b"data", file_type="stream", file_name="a.txt")
    assert (await driver.send(group, "file", file["data"]))["code"] == 0
    assert [one.kind for one in emulator.replies(group)] == ["image", "file"]
    assert not emulator.journal.broken


@pytest.mark.parametrize(
    ("path", "name", "data", "fields", "code"),
    [
        ("im/v1/images", "image", PNG, {"image_type": "portrait"}, 234001),
        ("im/v1/images", "image", b"plain text", {"image_type": "message"}, 234011),
        ("im/v1/images", "image", PNG + bytes(10 * 1024 * 1024), {"image_type": "message"}, 234006),
        ("im/v1/files", "file", b"", {"file_type": "stream", "file_name": "a"}, 234010),
        ("im/v1/files", "file", b"x", {"file_type": "docx", "file_name": "a"}, 234001),
        ("im/v1/files", "file", b"x", {"file_type": "stream"}, 99992402),
    ],
)
async def test_uploads_are_checked(
    emulator: FeishuEmulator, driver: Driver, path: str, name: str, data: bytes, fields: dict[str, str], code: int
) -> None:
    assert (await upload(driver, path, name, data, **fields))["code"] == code
    assert len(emulator.journal.broken) == 1


async def test_a_file_of_more_than_30_mb_is_refused() -> None:
    async with FeishuEmulator(ManualClock(), limits=Limits(file_bytes=1000)) as emulator, Driver(emulator) as driver:
        fields = {"file_type": "stream", "file_name": "a"}
        assert (await upload(driver, "im/v1/files", "file", bytes(1000), **fields))["code"] == 0
        assert (await upload(driver, "im/v1/files", "file", bytes(1001), **fields))["code"] == 234006
    assert Limits().file_bytes == 30 * 1024 * 1024


async def test_a_video_is_not_sent_as_a_file(emulator: FeishuEmulator, driver: Driver, group: str) -> None:
    video = await upload(driver, "im/v1/files", "file", b"x", file_type="mp4", file_name="a.mp4")
    assert (await driver.send(group, "file", video["data"]))["code"] == 230055
    broken_by(emulator, "send it as media")


async def test_what_people_send_can_be_fetched_by_message_and_key(
    emulator: FeishuEmulator, driver: Driver, group: str
) -> None:
    message_id = await emulator.file("Ann", group, "plan.txt", b"the plan")
    key = json.loads(emulator.world.messages[message_id].content)["file_key"]
    await driver.call("GET", f"im/v1/messages/{message_id}/resources/{key}?type=file")
    assert (driver.status, driver.content) == (200, b"the plan")
    assert 'filename="plan.txt"' in driver.headers["content-disposition"]
    assert not emulator.journal.broken
    other = await emulator.say("Ann", group, "hi")
    assert (await driver.call("GET", f"im/v1/messages/{other}/resources/{key}?type=file"))["code"] == 234003
    assert (await driver.call("GET", f"im/v1/messages/{message_id}/resources/{key}?type=image"))["code"] == 234001
    assert len(emulator.journal.broken) == 2


# -- reactions, chats, people


async def test_reactions_are_put_on_listed_and_taken_off(emulator: FeishuEmulator, driver: Driver, group: str) -> None:
    question = await emulator.say("Ann", group, "hi")
    path = f"im/v1/messages/{question}/reactions"
    made = await driver.call("POST", path, {"reaction_type": {"emoji_type": "Typing"}})
    assert emulator.message(question).reactions == (("Bridge", "Typing"),)
    listed = await driver.call("GET", path)
    assert [one["reaction_id"] for one in listed["data"]["items"]] == [made["data"]["reaction_id"]]
    assert (await driver.call("DELETE", f"{path}/{made['data']['reaction_id']}"))["code"] == 0
    assert emulator.message(question).reactions == ()
    assert not emulator.journal.broken
    assert (await driver.call("POST", path, {"reaction_type": {"emoji_type": "typing"}}))["code"] == 231001
    assert (await driver.call("DELETE", f"{path}/{made['data']['reaction_id']}"))["code"] == 231011
    assert len(emulator.journal.broken) == 2


async def test_people_and_chats_have_names(emulator: FeishuEmulator, driver: Driver, group: str) -> None:
    ann = emulator.world.person("Ann").open_id
    got = await driver.call("GET", f"contact/v3/users/{ann}?user_id_type=open_id")
    assert got["data"]["user"]["name"] == "Ann"
    assert (await driver.call("GET", f"im/v1/chats/{group}"))["data"]["name"] == "Team"
    assert (await driver.call("GET", "contact/v3/users/ou_nobody"))["code"] == 41050
    assert (await driver.call("GET", "im/v1/chats/oc_nowhere"))["code"] == 232006
    assert len(emulator.journal.broken) == 2


async def test_a_merged_forward_is_read_with_its_parts(emulator: FeishuEmulator, driver: Driver, group: str) -> None:
    parts = [await emulator.say("Bob", group, text) for text in ("one", "two")]
    forwarded = await emulator.merge_forward("Ann", group, parts)
    items = (await driver.call("GET", f"im/v1/messages/{forwarded}"))["data"]["items"]
    assert [item.get("upper_message_id") for item in items] == [None, forwarded, forwarded]


# -- faults


async def test_a_planned_refusal_is_no_broken_rule_and_does_nothing(
    emulator: FeishuEmulator, driver: Driver, group: str
) -> None:
    emulator.faults.plan("im.message.create", refuse(230028), Fault(FaultKind.ANSWER, status=502, body="<html>"))
    assert (await driver.send(group, "text", TEXT))["code"] == 230028
    await driver.send(group, "text", TEXT)
    assert driver.status == 502
    assert emulator.chat(group) == []
    assert not emulator.journal.broken


async def test_a_connection_can_be_dropped_before_and_after_the_work(
    emulator: FeishuEmulator, driver: Driver, group: str
) -> None:
    emulator.faults.plan("im.message.create", Fault(FaultKind.DROP_BEFORE), Fault(FaultKind.DROP_AFTER))
    with pytest.raises(httpx.TransportError):
        await driver.send(group, "text", {"text": "one"})
    with pytest.raises(httpx.TransportError):
        await driver.send(group, "text", {"text": "two"})
    assert [one.text for one in emulator.replies(group)] == ["two"]
    assert [call.status for call in emulator.journal.of("im.message.create")] == [0, 0]


async def test_a_delay_is_on_the_emulators_clock(
    emulator: FeishuEmulator, driver: Driver, group: str, clock: ManualClock
) -> None:
    emulator.faults.plan("im.message.create", Fault(FaultKind.DELAY, seconds=30))
    sending = asyncio.ensure_future(driver.send(group, "text", TEXT))
    await emulator.wait_for(lambda: clock.next_wake() is not None)
    assert not emulator.chat(group)
    await clock.advance(30)
    assert (await sending)["code"] == 0


async def test_waiting_for_something_that_does_not_come_shows_the_chats(emulator: FeishuEmulator, group: str) -> None:
    await emulator.say("Ann", group, "where is the bot?")
    with pytest.raises(AssertionError, match=r"where is the bot\?"):
        await emulator.wait_for(lambda: emulator.replies(group), timeout=0.05)
