"""The Feishu emulator's cards: what a card may hold, CardKit's operations, streaming, what a reader sees of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.clock import ManualClock
from tests.emulators.feishu import FeishuEmulator, Limits, Rate, rate_limited, refuse
from tests.emulators.feishu.driver import Driver, card
from tests.emulators.feishu.markdown import people_in, tables_in, without_code
from tests.emulators.feishu.refusals import Json
from tests.emulators.feishu.typewriter import Pace, Write, typed_text
from tests.emulators.journal import Fault, FaultKind

FREE = {name: (Rate(100_000, 1.0),) for name in ("card", "cardkit", "chat", "im.send", "message", "api")}
TABLE = "| a | b |\n|---|---|\n| 1 | 2 |\n\n"


def markdown(text: str, element_id: str = "md") -> Json:
    return {"tag": "markdown", "element_id": element_id, "content": text}


def button(text: str, value: Json | None = None, **more: Any) -> Json:
    behaviors = [] if value is None else [{"type": "callback", "value": value}]
    return {"tag": "button", "text": {"tag": "plain_text", "content": text}, "behaviors": behaviors, **more}


def form(*elements: Json, name: str = "ask") -> Json:
    submit = button("Send", {"do": "answer"}, name="send", form_action_type="submit")
    return {"tag": "form", "name": name, "elements": [*elements, submit]}


def panel(*elements: Json, title: str = "Steps", **more: Any) -> Json:
    header = {"title": {"tag": "plain_text", "content": title}}
    return {"tag": "collapsible_panel", "header": header, "elements": list(elements), **more}


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
    return emulator.add_group("Team", "Ann")


@pytest.fixture
async def live(emulator: FeishuEmulator, driver: Driver, group: str) -> str:
    """A streaming card in sight, with the markdown element "md"."""
    return await driver.shown_card(group, card(streaming=True))


def broken_by(emulator: FeishuEmulator, *words: str) -> None:
    assert len(emulator.journal.broken) == 1, emulator.journal.broken
    assert all(word in emulator.journal.broken[0] for word in words), emulator.journal.broken


# -- what a card may hold

GOOD_CARDS = {
    "text": card(markdown("hello")),
    "header": {
        **card(),
        "header": {"title": {"tag": "plain_text", "content": "T"}, "template": "blue"},
    },
    "panel": card(panel(markdown("step", "s1"), expanded=False, element_id="steps")),
    "columns": card(
        {
            "tag": "column_set",
            "columns": [{"tag": "column", "width": "auto", "elements": [button("Stop", {"do": "stop"})]}],
        }
    ),
    "form": card(form({"tag": "input", "name": "why", "required": True})),
    "five tables": card(markdown(TABLE * 5)),
    "tables in code": card(markdown("```\n" + TABLE * 9 + "```\n" + "`<at id=all>`")),
    "streaming config": card(
        streaming_config={"print_frequency_ms": {"default": 30}, "print_step": {"default": 4}, "print_strategy": "fast"}
    ),
    "200 elements": card(*[{"tag": "hr"}] * 200),
    "longest element_id": card(markdown("x", "a" * 20)),
}


@pytest.mark.parametrize("name", GOOD_CARDS)
async def test_a_good_card_is_taken_as_entity_and_as_message(
    emulator: FeishuEmulator, driver: Driver, group: str, name: str
) -> None:
    assert (await driver.create_card(GOOD_CARDS[name]))["code"] == 0
    assert (await driver.send(group, "interactive", GOOD_CARDS[name]))["code"] == 0
    assert not emulator.journal.broken


BAD_CARDS: dict[str, tuple[Json, int, str]] = {
    "schema": ({"elements": []}, 300303, "300303"),
    "root property": ({**card(), "fallback": {}}, 200621, "200621"),
    "private": (card(update_multi=False), 300302, "300302"),
    "tag": (card({"tag": "marquee"}), 200621, "200621"),
    "old tag": (card({"tag": "action", "actions": []}), 200861, "200861"),
    "property": (card({**markdown("x"), "colour": "red"}), 200621, "200621"),
    "element_id twice": (card(markdown("x"), markdown("y")), 300301, "300301"),
    "element_id with digit first": (card(markdown("x", "1a")), 300301, "300301"),
    "element_id too long": (card(markdown("x", "a" * 21)), 300301, "300301"),
    "201 elements": (card(*[{"tag": "hr"}] * 201), 300305, "ErrCode: 11310; ErrMsg: element exceeds the limit"),
    "nested elements count": (card(panel(*[{"tag": "hr"}] * 199)), 300305, "ErrCode: 11310"),
    "six tables": (card(markdown(TABLE * 6)), 230099, "ErrCode: 11310; ErrMsg: card table number over limit"),
    "tables of both kinds": (
        card(markdown(TABLE * 5), {"tag": "table", "columns": [{"name": "a"}], "rows": []}),
        230099,
        "ErrCode: 11310",
    ),
    "unknown person": (card(markdown("<at id=ou_nobody></at>")), 100290, "ErrCode: 100290"),
    "unknown person among several": (card(markdown("<at ids=ou_a,ou_b></at>")), 100290, "ErrCode: 100290"),
    "unknown picture": (card({"tag": "img", "img_key": "img_none"}), 200570, "ErrCode: 200570"),
    "picture by address": (card(markdown("![a](https://example.com/a.png)")), 200570, "ErrCode: 200570"),
    "form without submit": (card({"tag": "form", "name": "f", "elements": []}), 200621, "200621"),
    "nameless input in form": (card(form({"tag": "input"})), 200621, "200621"),
    "form in panel": (card(panel(form())), 200621, "200621"),
    "table in panel": (card(panel({"tag": "table", "columns": [], "rows": []})), 200621, "200621"),
    "callback value": (card(button("x", behaviors=[{"type": "callback", "value": "text"}])), 200621, "200621"),
    "long button": (card(button("x" * 101)), 200621, "200621"),
    "print strategy": (card(streaming_config={"print_strategy": "slow"}), 200220, "200220"),
    "size": (card(markdown("x" * 30_000)), 200860, "230025"),
}


@pytest.mark.parametrize("name", BAD_CARDS)
async def test_a_bad_card_is_refused_as_entity_and_as_message(
    emulator: FeishuEmulator, driver: Driver, group: str, name: str
) -> None:
    bad, code, in_message = BAD_CARDS[name]
    assert (await driver.create_card(bad))["code"] == code
    broken_by(emulator, "cardkit.card.create")
    answer = await driver.send(group, "interactive", bad)
    assert in_message in f"{answer['code']} {answer['msg']}"
    assert answer["code"] == (230025 if name == "size" else 230099)
    assert len(emulator.journal.broken) == 2
    assert emulator.chat(group) == []


async def test_a_card_is_measured_as_it_is_sent(emulator: FeishuEmulator, driver: Driver) -> None:
    content = card(markdown("字" * 9_000))
    assert (await driver.create_card(json.dumps(content, ensure_ascii=False)))["code"] == 0
    assert not emulator.journal.broken
    assert (await driver.create_card(json.dumps(content)))["code"] == 200860
    broken_by(emulator, "too large")


async def test_known_people_and_pictures_are_fine_in_a_card(emulator: FeishuEmulator, driver: Driver) -> None:
    ann = emulator.add_person("Ann")
    key = emulator.world.add_blob("image", "p", b"x", by_bot=True).key
    good = card(markdown(f"<at id={ann}></at> ![p]({key})"), {"tag": "img", "img_key": key})
    assert (await driver.create_card(good))["code"] == 0
    assert not emulator.journal.broken


@pytest.mark.parametrize("data", ["", "{", "[]", "{}"])
async def test_a_card_must_be_the_json_of_an_object(emulator: FeishuEmulator, driver: Driver, data: str) -> None:
    assert (await driver.create_card(data))["code"] in (99992402, 200220, 300307)
    assert len(emulator.journal.broken) == 1


def test_code_hides_mentions_and_tables() -> None:
    assert people_in("<at id=all></at> `<at id=x>` <at ids='a,b'>") == ["all", "a", "b"]
    assert people_in("&lt;at id=all&gt;") == []
    assert tables_in(TABLE + "```md\n" + TABLE + "```\n" + TABLE) == 2
    assert tables_in("a | b\n--|--\n1 | 2") == 1
    assert tables_in("no | table\n\n---\n") == 0
    assert "x" not in without_code("~~~\nx\n") + without_code("`` x ` x ``")


# -- sending an entity


async def test_an_entity_is_sent_once(emulator: FeishuEmulator, driver: Driver, group: str, live: str) -> None:
    assert [one.card_id for one in emulator.replies(group)] == [live]
    answer = await driver.send(group, "interactive", {"type": "card", "data": {"card_id": live}})
    assert (answer["code"], "200780" in answer["msg"]) == (230099, True)
    broken_by(emulator, "only once")


async def test_an_unknown_entity_cannot_be_sent(emulator: FeishuEmulator, driver: Driver, group: str) -> None:
    answer = await driver.send(group, "interactive", {"type": "card", "data": {"card_id": "7"}})
    assert answer["code"] == 230099
    assert "ErrCode: 11310; ErrMsg: cardid is invalid" in answer["msg"]
    broken_by(emulator, "cardid is invalid")


async def test_sending_an_entity_again_with_the_same_uuid_is_no_second_sending(
    emulator: FeishuEmulator, driver: Driver, group: str
) -> None:
    card_id = (await driver.create_card(card()))["data"]["card_id"]
    content = {"type": "card", "data": {"card_id": card_id}}
    first, again = [await driver.send(group, "interactive", content, uuid="u") for _ in range(2)]
    assert first["data"]["message_id"] == again["data"]["message_id"]
    assert not emulator.journal.broken


async def test_a_card_message_becomes_an_entity_by_conversion(
    emulator: FeishuEmulator, driver: Driver, group: str
) -> None:
    message_id = (await driver.send(group, "interactive", card(streaming=True)))["data"]["message_id"]
    card_id = emulator.message(message_id).card_id
    assert (await driver.write(card_id, "x"))["code"] == 200740
    converted = await driver.call("POST", "cardkit/v1/cards/id_convert", {"message_id": message_id})
    assert converted["data"]["card_id"] == card_id
    assert (await driver.write(card_id, "…x"))["code"] == 0
    broken_by(emulator, "does not exist")


# -- the sequence and the uuid


async def test_sequences_rise_over_all_operations_of_a_card(
    emulator: FeishuEmulator, driver: Driver, live: str
) -> None:
    assert (await driver.write(live, "…a", sequence=1))["code"] == 0
    settings = {"config": {"streaming_mode": True}}
    assert (await driver.settings(live, settings, sequence=1))["code"] == 300317
    emulator.journal.broken.clear()
    assert (await driver.write(live, "…ab", sequence=2))["code"] == 0
    assert (await driver.operate("DELETE", f"{live}/elements/none", sequence=2))["code"] == 300317
    broken_by(emulator, "sequence 2 after 2")


async def test_an_exact_retry_of_an_applied_operation_is_refused_but_no_broken_rule(
    emulator: FeishuEmulator, driver: Driver, live: str
) -> None:
    emulator.faults.plan("cardkit.element.content", Fault(FaultKind.DROP_AFTER))
    with pytest.raises(Exception, match=r"disconnected|Server"):
        await driver.write(live, "…a", sequence=7, uuid="u")
    assert (await driver.write(live, "…a", sequence=7, uuid="u"))["code"] == 300317
    assert emulator.cardkit.cards[live].data["body"]["elements"][0]["content"] == "…a"
    assert not emulator.journal.broken
    assert (await driver.write(live, "…b", sequence=7))["code"] == 300317
    broken_by(emulator, "sequence 7 after 7")


async def test_a_refused_operation_has_used_its_sequence_up(
    emulator: FeishuEmulator, driver: Driver, live: str
) -> None:
    assert (await driver.write(live, "x", "gone", sequence=5))["code"] == 300313
    assert (await driver.write(live, "…x", sequence=5))["code"] == 300317
    assert (await driver.write(live, "…x", sequence=6))["code"] == 0
    assert len(emulator.journal.broken) == 2


async def test_a_planned_refusal_uses_the_sequence_up_too(
    emulator: FeishuEmulator, driver: Driver, live: str, clock: ManualClock
) -> None:
    emulator.faults.plan("cardkit.element.content", refuse(300309), rate_limited(1))
    assert (await driver.write(live, "…x", sequence=5))["code"] == 300309
    assert (await driver.write(live, "…x", sequence=6))["code"] == 99991400
    await clock.advance(1)
    assert (await driver.write(live, "…xy", sequence=5))["code"] == 300317
    assert (await driver.write(live, "…xy", sequence=6))["code"] == 0
    broken_by(emulator, "sequence 5 after 5")


@pytest.mark.parametrize("sequence", [0, -1, 2**31, "1", 1.5, None])
async def test_a_sequence_is_a_positive_int32(
    emulator: FeishuEmulator, driver: Driver, live: str, sequence: object
) -> None:
    assert (await driver.write(live, "…x", sequence=sequence))["code"] == 99992402
    broken_by(emulator, "sequence")


async def test_a_uuid_belongs_to_one_operation(emulator: FeishuEmulator, driver: Driver, live: str) -> None:
    assert (await driver.write(live, "…a", uuid="u" * 64))["code"] == 0
    assert (await driver.write(live, "…ab", uuid="u" * 64))["code"] == 200770
    broken_by(emulator, "uuid")
    assert (await driver.write(live, "…ab", uuid="v" * 65))["code"] == 99992402
    assert (await driver.write(live, "…ab", uuid="w"))["code"] == 0


# -- content


@pytest.mark.parametrize(("content", "code"), [("x", 0), ("", 99992402)])
async def test_content_has_one_to_100000_characters(
    emulator: FeishuEmulator, driver: Driver, live: str, content: str, code: int
) -> None:
    assert (await driver.write(live, content and "…" + content))["code"] == code
    assert bool(emulator.journal.broken) == bool(code)


async def test_content_over_100000_characters_fails_validation_before_the_size_of_the_card() -> None:
    limits = Limits(card_bytes=10**6)
    async with FeishuEmulator(ManualClock(), limits=limits, rates=FREE) as emulator, Driver(emulator) as driver:
        live = await driver.shown_card(emulator.add_group("G", "Ann"), card(streaming=True))
        assert (await driver.write(live, "…" + "x" * 99_999))["code"] == 0
        assert (await driver.write(live, "…" + "x" * 100_000))["code"] == 99992402


async def test_content_needs_streaming(emulator: FeishuEmulator, driver: Driver, live: str) -> None:
    await driver.set_streaming(live, False)
    assert (await driver.write(live, "…x"))["code"] == 300309
    assert not emulator.journal.broken
    assert (await driver.write(live, "…x"))["code"] == 300309
    broken_by(emulator, "although it was told so")
    await driver.set_streaming(live, True)
    assert (await driver.write(live, "…x"))["code"] == 0


async def test_streaming_ends_ten_minutes_after_it_was_last_opened(
    emulator: FeishuEmulator, driver: Driver, live: str, clock: ManualClock
) -> None:
    await clock.advance(500)
    await driver.set_streaming(live, True)
    await clock.advance(599)
    assert (await driver.write(live, "…x"))["code"] == 0
    await clock.advance(1)
    assert (await driver.write(live, "…xy"))["code"] == 200850
    [shown] = emulator.replies(emulator.world.messages[emulator.cardkit.cards[live].message_id].chat_id)
    assert (shown.streaming, shown.generating, shown.summary) == (False, True, "[生成中...]")
    assert not emulator.journal.broken


async def test_opening_an_open_stream_may_not_extend_it(clock: ManualClock) -> None:
    limits = Limits(reopening_extends=False)
    async with FeishuEmulator(clock, limits=limits, rates=FREE) as emulator, Driver(emulator) as driver:
        live = await driver.shown_card(emulator.add_group("G", "Ann"), card(streaming=True))
        await clock.advance(599)
        await driver.set_streaming(live, True)
        await clock.advance(1)
        assert (await driver.write(live, "…x"))["code"] == 200850
        await driver.set_streaming(live, True)
        assert (await driver.write(live, "…x"))["code"] == 0


async def test_a_stream_closed_by_force_is_found_closed_and_can_be_opened(
    emulator: FeishuEmulator, driver: Driver, live: str
) -> None:
    emulator.close_streaming(live)
    assert (await driver.write(live, "…x"))["code"] == 300309
    await driver.set_streaming(live, True)
    assert (await driver.write(live, "…x"))["code"] == 0
    assert not emulator.journal.broken


async def test_settings_without_the_config_wrapper_do_nothing(
    emulator: FeishuEmulator, driver: Driver, live: str
) -> None:
    assert (await driver.settings(live, {"streaming_mode": False}))["code"] == 0
    assert emulator.cardkit.is_streaming(emulator.cardkit.cards[live])
    broken_by(emulator, "config wrapper")


async def test_streamed_text_may_only_grow(emulator: FeishuEmulator, driver: Driver, live: str) -> None:
    assert (await driver.write(live, "…one"))["code"] == 0
    assert (await driver.write(live, "…one two"))["code"] == 0
    assert not emulator.journal.broken
    assert (await driver.write(live, "…one 2"))["code"] == 0
    broken_by(emulator, "rewritten")


async def test_streamed_text_may_be_rewritten_once_streaming_is_closed(
    emulator: FeishuEmulator, driver: Driver, live: str
) -> None:
    await driver.write(live, "…one")
    await driver.set_streaming(live, False)
    update = {"type": "card_json", "data": json.dumps(card(markdown("ONE")))}
    assert (await driver.operate("PUT", live, card=update))["code"] == 0
    assert not emulator.journal.broken


async def test_other_elements_may_change_while_text_streams(
    emulator: FeishuEmulator, driver: Driver, group: str
) -> None:
    live = await driver.shown_card(group, card(markdown("working", "status"), markdown("…"), streaming=True))
    await driver.write(live, "…one")
    element = json.dumps(markdown("writing", "status"))
    assert (await driver.operate("PUT", f"{live}/elements/status", element=element))["code"] == 0
    assert not emulator.journal.broken


async def test_only_texts_take_content(emulator: FeishuEmulator, driver: Driver, group: str) -> None:
    text = {"tag": "plain_text", "content": "a", "element_id": "plain"}
    elements = ({"tag": "div", "text": text}, {"tag": "hr", "element_id": "line"})
    live = await driver.shown_card(group, card(*elements, streaming=True))
    assert (await driver.write(live, "ab", "plain"))["code"] == 0
    assert not emulator.journal.broken
    assert (await driver.write(live, "ab", "line"))["code"] == 300310
    broken_by(emulator, "line")


async def test_content_is_checked_like_a_card(emulator: FeishuEmulator, driver: Driver, live: str) -> None:
    assert (await driver.write(live, "…<at id=ou_nobody></at>"))["code"] == 100290
    assert (await driver.write(live, "…\n" + TABLE * 6))["code"] == 230099
    assert (await driver.write(live, "…" + "x" * 30_000))["code"] == 200860
    assert len(emulator.journal.broken) == 3
    assert emulator.cardkit.cards[live].data["body"]["elements"][0]["content"] == "…"


async def test_whether_live_content_is_checked_for_tables_can_be_switched_off() -> None:
    limits = Limits(tables_counted_in_content=False)
    async with FeishuEmulator(ManualClock(), limits=limits, rates=FREE) as emulator, Driver(emulator) as driver:
        live = await driver.shown_card(emulator.add_group("G", "Ann"), card(streaming=True))
        assert (await driver.write(live, "…\n" + TABLE * 6))["code"] == 0


# -- the other operations


async def test_elements_are_inserted_replaced_patched_and_deleted(
    emulator: FeishuEmulator, driver: Driver, group: str
) -> None:
    live = await driver.shown_card(group, card(markdown("m", "m"), panel(markdown("s", "s"), element_id="p")))
    add = {"type": "insert_before", "target_element_id": "m", "elements": json.dumps([markdown("first", "f")])}
    assert (await driver.operate("POST", f"{live}/elements", **add))["code"] == 0
    add = {"type": "append", "target_element_id": "p", "elements": json.dumps([markdown("t", "t")])}
    assert (await driver.operate("POST", f"{live}/elements", **add))["code"] == 0
    add = {"type": "append", "elements": json.dumps([button("Stop", {"do": "stop"}, element_id="stop")])}
    assert (await driver.operate("POST", f"{live}/elements", **add))["code"] == 0
    assert (await driver.operate("PUT", f"{live}/elements/m", element=json.dumps(markdown("M", "m"))))["code"] == 0
    partial = json.dumps({"content": "S"})
    assert (await driver.operate("PATCH", f"{live}/elements/s", partial_element=partial))["code"] == 0
    assert (await driver.operate("DELETE", f"{live}/elements/f"))["code"] == 0
    [shown] = emulator.replies(group)
    assert shown.elements == (("m", "M"), ("s", "S"), ("t", "t"))
    assert (shown.text, shown.panels[0].text, shown.buttons[0].text) == ("M", "S\nt", "Stop")
    assert not emulator.journal.broken


@pytest.mark.parametrize(
    ("verb", "path", "body", "code"),
    [
        ("POST", "elements", {"type": "insert_after", "target_element_id": "no", "elements": "[]"}, 300315),
        ("POST", "elements", {"type": "beside", "elements": "[]"}, 99992402),
        ("POST", "elements", {"type": "append", "elements": json.dumps([markdown("x")])}, 300301),
        ("PUT", "elements/no", {"element": json.dumps(markdown("x"))}, 300121),
        ("PATCH", "elements/no", {"partial_element": "{}"}, 300313),
        ("PATCH", "elements/md", {"partial_element": '{"tag":"hr"}'}, 300312),
        ("DELETE", "elements/no", {}, 300314),
        ("POST", "batch_update", {"actions": "[]"}, 99992402),
        ("POST", "batch_update", {"actions": '[{"action":"dance","params":{}}]'}, 99992402),
        ("PATCH", "settings", {"settings": '{"config":{"update_multi":false}}'}, 300302),
        ("PATCH", "settings", {"settings": '{"config":{"colour":"red"}}'}, 300122),
    ],
)
async def test_wrong_operations_are_refused(
    emulator: FeishuEmulator, driver: Driver, live: str, verb: str, path: str, body: Json, code: int
) -> None:
    before = json.dumps(emulator.cardkit.cards[live].data)
    assert (await driver.operate(verb, f"{live}/{path}", **body))["code"] == code
    assert json.dumps(emulator.cardkit.cards[live].data) == before
    assert len(emulator.journal.broken) == 1


async def test_a_batch_is_applied_whole_or_not_at_all(emulator: FeishuEmulator, driver: Driver, live: str) -> None:
    actions: list[Json] = [
        {"action": "partial_update_setting", "params": {"settings": {"config": {"streaming_mode": False}}}},
        {"action": "add_elements", "params": {"type": "append", "elements": [markdown("end", "end")]}},
        {"action": "partial_update_element", "params": {"element_id": "md", "partial_element": {"content": "new"}}},
        {"action": "update_element", "params": {"element_id": "end", "element": markdown("END", "end")}},
    ]
    failing = [*actions, {"action": "delete_elements", "params": {"element_ids": ["no"]}}]
    assert (await driver.operate("POST", f"{live}/batch_update", actions=json.dumps(failing)))["code"] == 300314
    assert emulator.cardkit.cards[live].data == card(streaming=True)
    emulator.journal.broken.clear()
    assert (await driver.operate("POST", f"{live}/batch_update", actions=json.dumps(actions)))["code"] == 0
    [shown] = [one for chat in emulator.world.chats for one in emulator.replies(chat)]
    assert (shown.text, shown.generating) == ("new\nEND", False)
    assert not emulator.journal.broken


async def test_a_card_lives_fourteen_days(
    emulator: FeishuEmulator, driver: Driver, live: str, clock: ManualClock
) -> None:
    await clock.advance(14 * 86_400)
    await driver.login()
    assert (await driver.set_streaming(live, False))["code"] == 200750
    assert not emulator.journal.broken
    assert (await driver.set_streaming(live, False))["code"] == 200750
    broken_by(emulator, "older than 14 days")


async def test_an_unknown_card_cannot_be_operated_on(emulator: FeishuEmulator, driver: Driver) -> None:
    assert (await driver.write("71", "x"))["code"] == 200740
    broken_by(emulator, "does not exist")


async def test_the_picture_tells_summary_title_and_state(emulator: FeishuEmulator, driver: Driver, group: str) -> None:
    content = {**card(streaming=True), "header": {"title": {"tag": "plain_text", "content": "Working"}}}
    live = await driver.shown_card(group, content)
    [shown] = emulator.replies(group)
    assert (shown.title, shown.streaming, shown.generating, shown.summary) == ("Working", True, True, "[生成中...]")
    await driver.settings(live, {"config": {"streaming_mode": False, "summary": {"content": "Done."}}})
    [shown] = emulator.replies(group)
    assert (shown.streaming, shown.generating, shown.summary) == (False, False, "Done.")


# -- what a reader sees


async def test_accepted_text_is_typed_out_at_the_cards_own_pace(
    emulator: FeishuEmulator, driver: Driver, group: str, clock: ManualClock
) -> None:
    pace = {"print_frequency_ms": {"default": 100}, "print_step": {"default": 2}, "print_strategy": "fast"}
    live = await driver.shown_card(group, card(markdown(""), streaming=True, streaming_config=pace))
    await driver.write(live, "abcdefgh")
    assert emulator.visible_text(live) == ""
    await clock.advance(0.25)
    assert emulator.visible_text(live) == "abcd"
    await driver.write(live, "abcdefghijkl")
    assert emulator.visible_text(live) == "abcdefgh"
    await clock.advance(0.1)
    assert emulator.visible_text(live, element_id="md") == "abcdefghij"
    assert emulator.visible_text(live, at=clock.now() - 0.2) == "ab"


async def test_a_card_in_waiting_is_not_visible(emulator: FeishuEmulator, driver: Driver, clock: ManualClock) -> None:
    card_id = (await driver.create_card(card(markdown("hello"))))["data"]["card_id"]
    assert emulator.visible_text(card_id) == ""
    assert emulator.cardkit.cards[card_id].versions == []


async def test_versions_show_how_a_card_grew(
    emulator: FeishuEmulator, driver: Driver, live: str, clock: ManualClock
) -> None:
    start = clock.now()
    await clock.advance(1)
    await driver.write(live, "…a")
    await driver.set_streaming(live, True)
    await clock.advance(1)
    await driver.write(live, "…ab")
    versions = emulator.cardkit.cards[live].versions
    assert [(one.at - start, one.text) for one in versions] == [(0, "…"), (1, "…a"), (2, "…ab")]


FAST = Pace(0.1, 1, "fast")
DELAY = Pace(0.1, 1, "delay")


def test_delay_goes_on_typing_where_fast_shows_the_backlog() -> None:
    for pace, visible in ((FAST, "abcde"), (DELAY, "abc")):
        writes = [Write(0.0, "abcd", True, pace), Write(0.2, "abcdefgh", True, pace)]
        assert typed_text(writes, 0.3) == visible


def test_text_that_is_not_streamed_or_not_a_continuation_is_there_at_once() -> None:
    assert typed_text([Write(0.0, "abcd", False, FAST)], 0.0) == "abcd"
    assert typed_text([Write(0.0, "ab", True, FAST), Write(5.0, "xyz", True, FAST)], 5.0) == "xyz"


@given(
    st.lists(st.tuples(st.floats(0, 2), st.text("ab", max_size=9), st.booleans()), max_size=6),
    st.sampled_from([FAST, DELAY, Pace(0.03, 4, "fast")]),
)
def test_a_growing_text_is_typed_forward_and_completed(steps: list[tuple[float, str, bool]], pace: Pace) -> None:
    now, text, writes = 0.0, "", []
    for wait, more, _ in steps:
        now, text = now + wait, text + more
        writes.append(Write(now, text, True, pace))
    seen = [typed_text(writes, tick / 20) for tick in range(0, int(now * 20) + 400)]
    assert all(later.startswith(earlier) for earlier, later in pairwise(seen))
    assert seen[-1] == text
