"""The channel's life: coming up, health, conflicts, bad tokens, outages, webhooks, stopping."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import httpx
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from adapters.telegram import build
from adapters.telegram.adapter import TelegramAdapter
from adapters.telegram.guide import guide
from adapters.telegram.webhook import secret_for
from channels.access import Policy
from channels.adapter import Accepted, ChannelState, Check, Context, StoreAway
from channels.model import File, Inbound
from channels.server import AdminGuard, Server, build_app
from config.telegram import TelegramChannel
from tests.adapters.telegram.conftest import LIMITS, OpenTalk, Talk
from tests.clock import ScaledClock
from tests.emulators.journal import Fault, FaultKind
from tests.emulators.telegram import TOKEN, TelegramEmulator, Upload
from tests.scripted import Pause, Say

PUBLIC = "https://bridge.example.com"


async def until_state(talk: Talk, state: ChannelState, timeout: float = 10.0) -> str:
    """Wait for a state of the channel; its reason."""
    await talk.bench.until(lambda: talk.bench.inbox.health.state is state, timeout)
    return talk.bench.inbox.health.reason


async def test_questions_that_waited_while_the_bridge_was_down_are_answered(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("answer")])
    chat = talk.emulator.private_chat()
    await talk.bench.stop()
    talk.emulator.say(chat, "while you were away")
    await talk.bench.start()
    await talk.shows(chat, "answer")
    await talk.settled()
    assert talk.questions == ["while you were away"]
    assert not talk.emulator.journal.broken


async def test_a_second_poller_is_a_visible_conflict_and_passes(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("answer")])
    chat = talk.emulator.private_chat()
    talk.emulator.set_other_poller(True)
    reason = await until_state(talk, ChannelState.CONFLICT)
    assert "another program" in reason
    calls = len(talk.emulator.journal.of("getUpdates"))
    await talk.bench.clock.sleep(20)
    assert len(talk.emulator.journal.of("getUpdates")) - calls <= 4, "retried calmly"
    talk.emulator.say(chat, "hi")
    talk.emulator.set_other_poller(False)
    await until_state(talk, ChannelState.RUNNING)
    await talk.shows(chat, "answer")
    await talk.settled()
    assert not talk.emulator.journal.broken


async def test_a_revoked_token_is_a_visible_failure_without_the_token(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("answer")], speed=60.0)
    chat = talk.emulator.private_chat()
    talk.emulator.change_token("110201543:another")
    reason = await until_state(talk, ChannelState.FAILED)
    assert "unauthorised" in reason
    assert TOKEN not in reason
    assert TOKEN.partition(":")[2] not in reason
    talk.emulator.change_token(TOKEN)
    talk.emulator.say(chat, "hi")
    await until_state(talk, ChannelState.RUNNING)
    await talk.shows(chat, "answer")
    await talk.settled()
    assert not talk.emulator.journal.broken


async def test_a_bad_token_from_the_start_is_a_visible_failure(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("answer")], wait=False, bot_token="110201543:wrong")
    assert "unauthorised" in await until_state(talk, ChannelState.FAILED)
    await talk.bench.clock.sleep(100)
    assert talk.bench.inbox.health.state is ChannelState.FAILED
    assert 2 <= len(talk.emulator.journal.of("getMe")) <= 4, "tried again, calmly"
    assert not talk.emulator.journal.broken


async def test_an_outage_of_the_bot_api_is_visible_and_heals(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("answer")])
    chat = talk.emulator.private_chat()
    port = int(talk.emulator.url.rpartition(":")[2])
    await talk.emulator.stop()
    assert "cannot be reached" in await until_state(talk, ChannelState.DEGRADED)
    await talk.emulator.start(port)
    talk.emulator.say(chat, "hi")
    await until_state(talk, ChannelState.RUNNING)
    await talk.shows(chat, "answer")
    await talk.settled()
    assert not talk.emulator.journal.broken


async def test_a_poll_that_never_comes_back_is_replaced(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("answer")], speed=60.0)
    chat = talk.emulator.private_chat()
    talk.emulator.faults.plan("getUpdates", Fault(FaultKind.DELAY, seconds=100_000.0))
    talk.emulator.say(chat, "one")  # ends the poll that waits; the next one hangs
    await talk.shows(chat, "answer")
    talk.emulator.say(chat, "two")
    await talk.bench.until(lambda: len(talk.questions) == 2)
    await talk.settled()
    assert not talk.emulator.journal.broken


async def test_a_question_that_cannot_be_stored_is_not_confirmed_and_comes_again(
    open_talk: OpenTalk, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = await open_talk([Say("answer")])
    chat = talk.emulator.private_chat()
    accept = talk.bench.inbox.accept
    away = 3

    async def accept_later(inbound: Inbound) -> Accepted:
        nonlocal away
        away -= 1
        if away >= 0:
            raise StoreAway("the database is away")
        return await accept(inbound)

    monkeypatch.setattr(talk.bench.inbox, "accept", accept_later)
    talk.emulator.say(chat, "one")
    talk.emulator.say(chat, "two")
    assert "stored" in await until_state(talk, ChannelState.DEGRADED)
    assert talk.emulator.pending_updates
    await until_state(talk, ChannelState.RUNNING)
    await talk.settled()
    assert talk.questions == ["one", "two"]
    assert not talk.emulator.journal.broken


async def test_polling_goes_on_when_telegram_has_chosen_its_numbers_anew(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("answer")], limits=replace(LIMITS, ids_kept_seconds=2.0))
    chat = talk.emulator.private_chat()
    firsts = []
    for week in range(4):
        await talk.bench.clock.sleep(2.0)
        talk.emulator.hold_updates()
        talk.emulator.say(chat, f"{week}a")
        talk.emulator.say(chat, f"{week}b")
        firsts.append(talk.emulator.pending_updates[0])
        talk.emulator.release_updates()
        polls = len(talk.emulator.journal.of("getUpdates"))
        await talk.settled()
        assert len(talk.emulator.journal.of("getUpdates")) - polls <= 3, "nothing is asked for again and again"
    steps = [after - before for before, after in itertools.pairwise(firsts)]
    assert min(steps) < -10, "the numbers were lower once"
    assert max(steps) > 10, "and higher"
    assert talk.questions == ["0a", "0b", "1a", "1b", "2a", "2b", "3a", "3b"]
    assert not talk.emulator.journal.broken


async def test_an_update_that_cannot_be_read_does_not_hold_up_the_others(
    open_talk: OpenTalk, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = await open_talk([Say("answer")])
    chat = talk.emulator.private_chat()
    body = {"ok": True, "result": [{"update_id": 7, "message": {"text": "no chat, no date"}}]}
    talk.emulator.faults.plan("getUpdates", Fault(FaultKind.ANSWER, status=200, body=body))
    talk.emulator.say(chat, "one")
    await talk.shows(chat, "answer")
    talk.emulator.say(chat, "two")
    await talk.bench.until(lambda: len(talk.questions) == 2)
    await talk.settled()
    assert not talk.emulator.journal.broken


async def test_polling_takes_over_from_a_webhook_that_was_left_behind(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("answer")])
    await talk.bench.stop()
    async with httpx.AsyncClient() as client:
        await client.post(f"{talk.emulator.url}/bot{TOKEN}/setWebhook", data={"url": "https://old.example.com/hook"})
    chat = talk.emulator.private_chat()
    talk.emulator.say(chat, "hi")
    await talk.bench.start()
    await talk.shows(chat, "answer")
    await talk.settled()
    assert not talk.emulator.webhook_url
    assert not talk.emulator.journal.broken


async def test_stopping_is_quick_leaves_no_task_behind_and_can_be_undone(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("answer")])
    loop = asyncio.get_running_loop()
    began = loop.time()
    await talk.adapter.stop()
    assert loop.time() - began < 5
    await asyncio.sleep(0)
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("telegram-")]
    await talk.adapter.start()
    chat = talk.emulator.private_chat()
    talk.emulator.say(chat, "hi")
    await talk.shows(chat, "answer")
    await talk.settled()
    assert not talk.emulator.journal.broken


async def test_a_group_that_is_allowed_by_its_id_stays_allowed_as_a_supergroup(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("answer")], policy=Policy(allow_places=("-4000002",)))
    named, other = (talk.emulator.group(title, basic=True) for title in ("Named", "Other"))
    assert named == -4000002
    for group in (named, other):
        talk.emulator.say(talk.emulator.migrate(group), f"@bridge_bot hi from {group}")
    await talk.settled()
    await talk.bench.until(lambda: talk.questions == [f"hi from {named}"])
    assert not talk.emulator.journal.broken


# webhook


@asynccontextmanager
async def served(talk: Talk, hook: ASGIApp | None = None) -> AsyncIterator[Server]:
    """The bridge's HTTP server with the channel's hook, or another, where the emulator delivers to."""
    assert talk.adapter.webhook is not None
    hooks = {"bench": hook or talk.adapter.webhook}
    app = build_app(lambda: None, lambda: b"", AdminGuard("127.0.0.1", None), hooks, (), {})  # type: ignore[arg-type, return-value]
    server = Server(app, "127.0.0.1", 0)
    await server.start()
    talk.emulator.deliver_webhooks_to = server.url
    try:
        yield server
    finally:
        await server.stop()


async def test_by_webhook_questions_are_answered_and_presses_act(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("text"), Pause(3000)], mode="webhook", public_url=PUBLIC)
    async with served(talk):
        assert talk.emulator.webhook_url == f"{PUBLIC}/hooks/bench"
        chat = talk.emulator.private_chat()
        talk.emulator.say(chat, "hi")
        await talk.shows(chat, "text")
        press = talk.emulator.press(chat, talk.answers(chat)[0].id, "⏹ Stop")
        await talk.shows(chat, "Stopped.")
        await talk.emulator.wait_for(lambda: press.answer == "Stop requested.")
        await talk.settled()
        assert talk.questions == ["hi"]
        await talk.bench.stop()
        assert talk.emulator.webhook_url, "it may be another owner's by now"
        await talk.bench.start()
    assert not talk.emulator.journal.broken


async def test_a_webhook_call_is_acked_only_when_the_question_is_stored(
    open_talk: OpenTalk, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = await open_talk([Say("answer")], mode="webhook", public_url=PUBLIC)
    accept = talk.bench.inbox.accept
    away = 2

    async def accept_later(inbound: Inbound) -> Accepted:
        nonlocal away
        away -= 1
        if away >= 0:
            raise StoreAway("the database is away")
        return await accept(inbound)

    monkeypatch.setattr(talk.bench.inbox, "accept", accept_later)
    async with served(talk):
        chat = talk.emulator.private_chat()
        talk.emulator.say(chat, "hi")
        await talk.shows(chat, "answer")
        await talk.settled()
    assert talk.questions == ["hi"]
    assert not talk.emulator.journal.broken


async def test_webhook_calls_without_the_secret_are_refused(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("answer")], mode="webhook", public_url=PUBLIC, webhook_secret="the_secret")
    update = {
        "update_id": 1,
        "message": {"message_id": 1, "date": 1, "chat": {"id": 5, "type": "private"}, "text": "hi"},
    }
    header = "X-Telegram-Bot-Api-Secret-Token"
    async with served(talk) as server, httpx.AsyncClient(base_url=server.url) as client:
        answers = [
            await client.get("/hooks/bench"),
            await client.post("/hooks/bench", json=update),
            await client.post("/hooks/bench", json=update, headers={header: "wrong"}),
            await client.post("/hooks/bench", content=b"{", headers={header: "the_secret"}),
            await client.post("/hooks/bench", content=b"[" * 20_000 + b"]" * 20_000, headers={header: "the_secret"}),
            await client.post("/hooks/bench", json=["no update"], headers={header: "the_secret"}),
            await client.post("/hooks/bench", content=b" " * 2_000_000, headers={header: "the_secret"}),
            await client.post("/hooks/bench", json=update, headers={header: "the_secret"}),
        ]
    assert [answer.status_code for answer in answers] == [405, 401, 401, 400, 400, 400, 400, 200]
    assert not talk.questions
    assert not talk.emulator.journal.broken


async def test_a_webhook_that_somebody_removed_is_set_again(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("answer")], mode="webhook", public_url=PUBLIC)
    async with served(talk), httpx.AsyncClient() as client:
        await client.post(f"{talk.emulator.url}/bot{TOKEN}/deleteWebhook")
        await talk.emulator.wait_for(lambda: talk.emulator.webhook_url == f"{PUBLIC}/hooks/bench")
    assert not talk.emulator.journal.broken


async def test_failing_deliveries_are_visible(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("answer")], mode="webhook", public_url=PUBLIC)
    talk.emulator.deliver_webhooks_to = "http://127.0.0.1:9"
    talk.emulator.say(talk.emulator.private_chat(), "hi")
    assert "cannot deliver to bridge.example.com" in await until_state(talk, ChannelState.DEGRADED)
    async with served(talk):
        await until_state(talk, ChannelState.RUNNING)
        await talk.settled()
    assert not talk.emulator.journal.broken


async def test_the_webhook_works_on_a_replica_that_does_not_own_the_channel(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("answer")], mode="webhook", public_url=PUBLIC)
    bystander = bystander_of(talk)
    update = {
        "update_id": 1,
        "message": {
            "message_id": 101,
            "date": 1,
            "chat": {"id": talk.emulator.private_chat(), "type": "private"},
            "from": {"id": 5, "is_bot": False, "first_name": "Ann"},
            "text": "hi",
        },
    }
    assert bystander.webhook is not None
    transport = httpx.ASGITransport(bystander.webhook)
    async with httpx.AsyncClient(transport=transport, base_url="http://bridge") as client:
        header = {"X-Telegram-Bot-Api-Secret-Token": secret_for(TOKEN)}
        answer = await client.post("/hooks/bench", content=json.dumps(update), headers=header)
    assert answer.status_code == 200
    await talk.bench.until(lambda: talk.questions == ["hi"])
    await talk.settled()
    await bystander.stop()
    assert not talk.emulator.journal.broken


@pytest.mark.parametrize(("caption", "files"), [("@bridge_bot compare", [3]), ("holidays", [])])
async def test_an_album_is_for_the_bot_as_a_whole_or_not_at_all_whichever_replicas_its_parts_come_to(
    open_talk: OpenTalk, caption: str, files: list[int]
) -> None:
    options = {"privacy_mode": False}
    talk = await open_talk([Say("nice")], emulator=options, speed=2.0, mode="webhook", public_url=PUBLIC)
    bystander = bystander_of(talk)
    hooks = itertools.cycle((talk.adapter.webhook, bystander.webhook))

    async def either(scope: Scope, receive: Receive, send: Send) -> None:
        hook = next(hooks)
        assert hook is not None
        await hook(scope, receive, send)

    group = talk.emulator.group("Team")
    first, *others = (Upload(bytes([number]), f"{number}.txt", "text/plain") for number in range(3))
    async with served(talk, either):
        talk.emulator.send_album(group, replace(first, caption=caption), *others)
        await talk.settled()
    assert [len(run.request.input.files) for run in talk.bench.gateway.runs] == files  # type: ignore[union-attr]
    await bystander.stop()
    assert not talk.emulator.journal.broken


async def test_webhook_mode_without_a_public_address_says_what_is_missing(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("answer")], mode="webhook", wait=False)
    assert "public_url" in await until_state(talk, ChannelState.FAILED)
    assert not talk.emulator.journal.broken


def bystander_of(talk: Talk) -> TelegramAdapter:
    """The channel on a replica that does not own it."""
    channel = TelegramChannel.model_validate(
        {"bot_token": TOKEN, "api_base_url": talk.emulator.url, "mode": "webhook", "reaction": None}
    )
    return build(channel, Context("bench", talk.bench.inbox, talk.bench.clock, _no_file, PUBLIC))


async def _no_file(file: File) -> bytes:
    raise AssertionError("no file here")


# for the operator


async def checks(emulator: TelegramEmulator, public_url: str | None = None, **settings: object) -> list[Check]:
    channel = TelegramChannel.model_validate({"bot_token": TOKEN, "api_base_url": emulator.url, **settings})
    context = Context("bench", None, ScaledClock(1.0), _no_file, public_url)  # type: ignore[arg-type]
    return list(await build(channel, context).check())


async def test_check_names_the_bot_and_what_is_wrong() -> None:
    async with TelegramEmulator() as emulator:
        token, groups, updates = await checks(emulator)
        assert (token.ok, token.detail) == (True, "@bridge_bot (Bridge)")
        assert "privacy mode is on" in groups.detail
        assert (updates.ok, updates.detail) == (True, "by polling")
        assert not (await checks(emulator, mode="webhook"))[-1].ok
        assert not (await checks(emulator, "http://bridge.example.com", mode="webhook"))[-1].ok
        assert (await checks(emulator, PUBLIC, mode="webhook"))[-1].ok
        (wrong,) = await checks(emulator, bot_token="110201543:wrong")
        assert not wrong.ok
        assert "unauthorised" in wrong.detail
        assert "wrong" not in wrong.detail
        assert not emulator.journal.broken


async def test_check_says_when_nobody_answers() -> None:
    emulator = TelegramEmulator()
    await emulator.start()
    await emulator.stop()
    (unreachable,) = await checks(emulator)
    assert not unreachable.ok
    assert "cannot be reached" in unreachable.detail


def test_the_guide_names_the_steps() -> None:
    for word in ("@BotFather", "/newbot", "/setprivacy", "TELEGRAM_BOT_TOKEN", "webhook", "check --config"):
        assert word in guide()
