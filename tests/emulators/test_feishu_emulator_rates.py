"""The Feishu emulator's budgets: each rate kept to the last call, over-run by one, and the closed time after it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.clock import ManualClock
from tests.emulators.feishu import FeishuEmulator, Rate, rate_limited, refuse
from tests.emulators.feishu.driver import Driver, card
from tests.emulators.feishu.gate import Rates
from tests.emulators.feishu.limits import RATES, Limits
from tests.emulators.feishu.refusals import Refusal

TEXT = {"text": "hello"}


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


async def test_a_card_takes_ten_operations_a_second(
    emulator: FeishuEmulator, driver: Driver, clock: ManualClock
) -> None:
    group = emulator.add_group("Team", "Ann")
    live = await driver.shown_card(group, card(streaming=True))
    other = await driver.shown_card(group, card(streaming=True))
    text = "…"
    for _ in range(3):
        for _ in range(10):
            text += "x"
            assert (await driver.write(live, text))["code"] == 0
        await clock.advance(1.0)
    assert not emulator.journal.broken
    for _ in range(10):
        await driver.set_streaming(live, True)
    refused = await driver.set_streaming(live, True)
    assert (driver.status, refused["code"]) == (429, 99991400)
    assert (driver.headers["x-ogw-ratelimit-limit"], driver.headers["x-ogw-ratelimit-reset"]) == ("10", "1")
    assert "more than 10 calls in 1 s: card" in emulator.journal.broken[0]
    assert (await driver.write(other, "…x"))["code"] == 0
    await clock.advance(0.5)
    await driver.write(live, text + "x")
    assert "before the end of the closed time of card" in emulator.journal.broken[1]
    await clock.advance(0.5)
    assert (await driver.write(live, text + "x"))["code"] == 0
    assert len(emulator.journal.broken) == 2


async def test_a_chat_takes_five_messages_a_second(
    emulator: FeishuEmulator, driver: Driver, clock: ManualClock
) -> None:
    group, private = emulator.add_group("Team", "Ann"), emulator.p2p("Ann")
    question = await emulator.say("Ann", group, "hi")
    for _ in range(4):
        assert (await driver.send(group, "text", TEXT))["code"] == 0
    assert (await driver.reply(question, "text", TEXT))["code"] == 0
    assert (await driver.send(private, "text", TEXT))["code"] == 0
    assert not emulator.journal.broken
    assert (await driver.reply(question, "text", TEXT))["code"] == 99991400
    assert "more than 5 calls in 1 s: chat" in emulator.journal.broken[0]
    await clock.advance(1.0)
    assert (await driver.send(group, "text", TEXT))["code"] == 0


async def test_a_message_takes_five_patches_a_second(
    emulator: FeishuEmulator, driver: Driver, clock: ManualClock
) -> None:
    group = emulator.add_group("Team", "Ann")
    message_id = (await driver.send(group, "interactive", card()))["data"]["message_id"]
    for _ in range(5):
        assert (await driver.patch(message_id, card()))["code"] == 0
    assert not emulator.journal.broken
    assert (await driver.patch(message_id, card()))["code"] == 230020
    assert driver.status == 400
    await clock.advance(1.0)
    assert (await driver.patch(message_id, card()))["code"] == 0
    assert len(emulator.journal.broken) == 1


async def test_an_app_takes_fifty_card_calls_a_second_over_all_cards(emulator: FeishuEmulator, driver: Driver) -> None:
    for _ in range(50):
        assert (await driver.create_card(card()))["code"] == 0
    assert not emulator.journal.broken
    assert (await driver.create_card(card()))["code"] == 99991400
    assert "more than 50 calls in 1 s: cardkit" in emulator.journal.broken[0]
    assert (await driver.call("GET", "bot/v3/info"))["code"] == 0


@pytest.mark.parametrize("kind", ["cardkit", "im.send", "api"])
async def test_an_app_takes_a_thousand_calls_a_minute(clock: ManualClock, kind: str) -> None:
    rates = Rates(clock, Limits(), RATES, 0.0)
    for _ in range(20):
        for _ in range(50):
            rates.draw((kind, ""))
        await clock.advance(1.0, settle=0)
    with pytest.raises(Refusal) as refused:
        rates.draw((kind, ""))
    assert refused.value.headers == {"x-ogw-ratelimit-limit": "1000", "x-ogw-ratelimit-reset": "40"}
    await clock.advance(40.0, settle=0)
    rates.draw((kind, ""))


async def test_jitter_shortens_the_windows(clock: ManualClock) -> None:
    strict, lenient = (Rates(clock, Limits(), {"card": (Rate(1, 1.0),)}, jitter) for jitter in (0.0, 0.2))
    strict.draw(("card", "a"))
    lenient.draw(("card", "a"))
    await clock.advance(0.9)
    lenient.draw(("card", "a"))
    with pytest.raises(Refusal):
        strict.draw(("card", "a"))


async def test_a_planned_rate_refusal_closes_the_apps_budget_for_the_time_it_names(
    emulator: FeishuEmulator, driver: Driver, clock: ManualClock
) -> None:
    group = emulator.add_group("Team", "Ann")
    emulator.faults.plan("cardkit.card.create", rate_limited(30))
    assert (await driver.create_card(card()))["code"] == 99991400
    assert driver.headers["x-ogw-ratelimit-reset"] == "30"
    assert (await driver.send(group, "text", TEXT))["code"] == 0
    assert (await driver.create_card(card()))["code"] == 99991400
    assert not emulator.journal.broken, "what was under way at the same moment is no disobedience"
    await clock.advance(29.0)
    await driver.create_card(card())
    assert driver.headers["x-ogw-ratelimit-reset"] == "1"
    assert "closed time of cardkit" in emulator.journal.broken[0]
    await clock.advance(1.0)
    assert (await driver.create_card(card()))["code"] == 0


async def test_a_planned_frequency_refusal_closes_its_message_for_a_second(
    emulator: FeishuEmulator, driver: Driver, clock: ManualClock
) -> None:
    group = emulator.add_group("Team", "Ann")
    message_id = (await driver.send(group, "interactive", card()))["data"]["message_id"]
    emulator.faults.plan("im.message.patch", refuse(230020))
    assert (await driver.patch(message_id, card()))["code"] == 230020
    await clock.advance(0.5)
    assert (await driver.patch(message_id, card()))["code"] == 230020
    assert "closed time of message" in emulator.journal.broken[0]
    await clock.advance(0.5)
    assert (await driver.patch(message_id, card()))["code"] == 0
