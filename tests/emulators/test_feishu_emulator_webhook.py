"""The Feishu emulator's webhook deliveries, proven with the vendor's own dispatcher; forged ones must be refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import get_args

import pytest
from aiohttp import web

from tests.clock import ManualClock
from tests.emulators.feishu import FeishuEmulator, Outcome
from tests.emulators.feishu.driver import Driver, card
from tests.emulators.feishu.refusals import Json
from tests.emulators.feishu.webhook import Forgery, encrypt, signature


class Hook:
    """A bridge's webhook: answers with what the test says and keeps what it got."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.status = 200
        self.answer: Json = {"msg": "success"}
        self.gate = asyncio.Event()
        self.gate.set()
        self.url = ""

    async def handle(self, request: web.Request) -> web.Response:
        self.got.append((dict(request.headers), await request.read()))
        await self.gate.wait()
        return web.json_response(self.answer, status=self.status)


@pytest.fixture
async def hook() -> AsyncIterator[Hook]:
    hook = Hook()
    app = web.Application()
    app.router.add_post("/hooks/feishu", hook.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    hook.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hooks/feishu"
    yield hook
    await runner.cleanup()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def emulator(clock: ManualClock, hook: Hook) -> AsyncIterator[FeishuEmulator]:
    async with FeishuEmulator(clock) as emulator:
        emulator.set_webhook(hook.url)
        yield emulator


async def test_a_delivery_is_encrypted_and_signed(emulator: FeishuEmulator, hook: Hook) -> None:
    message_id = await emulator.say("Ann", emulator.p2p("Ann"), "a secret")
    await emulator.wait_for(lambda: emulator.event(message_id).acked)
    headers, body = hook.got[0]
    assert b"secret" not in body
    assert list(json.loads(body)) == ["encrypt"]
    timestamp, nonce = headers["X-Lark-Request-Timestamp"], headers["X-Lark-Request-Nonce"]
    assert headers["X-Lark-Signature"] == signature(timestamp, nonce, emulator.encrypt_key, body)
    assert timestamp == str(int(emulator.clock.now()))


async def test_a_refused_delivery_comes_again_with_a_new_signature(
    emulator: FeishuEmulator, hook: Hook, clock: ManualClock
) -> None:
    hook.status = 500
    message_id = await emulator.say("Ann", emulator.p2p("Ann"), "hi")
    await emulator.wait_for(lambda: emulator.event(message_id).attempts)
    assert emulator.event(message_id).attempts[0].outcome is Outcome.REFUSED
    hook.status = 200
    await clock.advance(15.0)
    await emulator.wait_for(lambda: emulator.event(message_id).acked)
    first, second = (headers["X-Lark-Request-Nonce"] for headers, _ in hook.got)
    assert first != second


async def test_a_delivery_without_an_answer_in_three_seconds_comes_again(
    emulator: FeishuEmulator, hook: Hook, clock: ManualClock
) -> None:
    hook.gate.clear()
    message_id = await emulator.say("Ann", emulator.p2p("Ann"), "hi")
    await emulator.wait_for(lambda: hook.got)
    await clock.advance(3.0)
    await emulator.wait_for(lambda: emulator.event(message_id).attempts)
    assert emulator.event(message_id).attempts[0].outcome is Outcome.SILENT
    hook.gate.set()
    await clock.advance(15.0)
    await emulator.wait_for(lambda: emulator.event(message_id).acked)


async def test_a_webhook_that_is_down_is_tried_again(emulator: FeishuEmulator, hook: Hook, clock: ManualClock) -> None:
    emulator.set_webhook("http://127.0.0.1:1/")
    message_id = await emulator.say("Ann", emulator.p2p("Ann"), "hi")
    await emulator.wait_for(lambda: emulator.event(message_id).attempts)
    assert emulator.event(message_id).attempts[0].outcome is Outcome.UNDELIVERABLE
    emulator.set_webhook(hook.url)
    await clock.advance(15.0)
    await emulator.wait_for(lambda: emulator.event(message_id).acked)


async def test_the_challenge_must_come_back(emulator: FeishuEmulator, hook: Hook) -> None:
    assert not await emulator.verify_webhook()
    assert "challenge" in emulator.journal.broken[0]


@pytest.mark.parametrize("kind", get_args(Forgery))
async def test_accepting_a_forged_delivery_breaks_a_rule(emulator: FeishuEmulator, hook: Hook, kind: Forgery) -> None:
    hook.status = 401
    assert await emulator.forge(kind) == 401
    assert not emulator.journal.broken
    hook.status = 200
    assert await emulator.forge(kind) == 200
    assert kind in emulator.journal.broken[0]
    assert not emulator.events


async def test_a_delivery_can_be_replayed_byte_for_byte(emulator: FeishuEmulator, hook: Hook) -> None:
    message_id = await emulator.say("Ann", emulator.p2p("Ann"), "hi")
    await emulator.wait_for(lambda: emulator.event(message_id).acked)
    assert await emulator.replay(message_id) == 200
    first, second = ((headers["X-Lark-Signature"], body) for headers, body in hook.got)
    assert first == second


async def test_a_callback_is_answered_in_the_body(emulator: FeishuEmulator, hook: Hook) -> None:
    group = emulator.add_group("Team", "Ann")
    behaviors = [{"type": "callback", "value": {"do": "stop"}}]
    stop = {"tag": "button", "text": {"tag": "plain_text", "content": "Stop"}, "behaviors": behaviors}
    async with Driver(emulator) as driver:
        await driver.shown_card(group, card(stop))
    hook.answer = {"toast": {"type": "success", "content": "Done"}}
    seen = await emulator.press("Ann", emulator.replies(group)[0].message_id, "Stop")
    assert (seen.outcome, seen.toast) == (Outcome.ACKED, hook.answer["toast"])
    assert not emulator.journal.broken


def test_two_encryptions_of_the_same_text_differ() -> None:
    assert encrypt(b"x", "key") != encrypt(b"x", "key")
