"""Socket Mode and HTTP: what is lost, refused or forged on the way, and how the channel says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
import uvicorn
from starlette.types import ASGIApp

from adapters.slack import build
from adapters.slack.guide import guide
from adapters.slack.manifest import EVENTS, SCOPES, manifest
from channels.adapter import Accepted, ChannelState, Context, StoreAway
from channels.clock import SystemClock
from channels.model import Inbound
from tests.adapters.slack.conftest import OpenDesk
from tests.adapters.slack.desk import Desk, settings_for
from tests.emulators.slack import ANN, APP_TOKEN, GENERAL, SIGNING_SECRET, DeliveryState, SlackEmulator, rules
from tests.scripted import Say


async def connected(desk: Desk, count: int = 1) -> None:
    await desk.until(lambda: len([c for c in desk.slack.sockets.connections if not c.leaving]) == count)


async def test_a_socket_refused_for_a_minute_heals_with_fresh_tickets(
    open_desk: OpenDesk, slack: SlackEmulator
) -> None:
    desk = await open_desk([Say("back")])
    await desk.is_state(ChannelState.RUNNING)
    slack.refuse_sockets(60)
    slack.drop_sockets()
    await desk.until(lambda: "trying again" in desk.bench.inbox.health.reason)
    assert desk.bench.inbox.health.state is ChannelState.DEGRADED
    root = await desk.ask("still there?")
    await desk.is_state(ChannelState.RUNNING)
    await desk.answered()
    assert desk.text(root) == "back"
    tickets = len(desk.calls("apps.connections.open"))
    assert tickets == len(desk.calls("socket.handshake"))


async def test_a_dead_socket_is_noticed_and_replaced(open_desk: OpenDesk, slack: SlackEmulator) -> None:
    desk = await open_desk([Say("alive")])
    slack.freeze_sockets()
    root = await desk.ask("hello?")
    await desk.until(lambda: len(desk.calls("socket.handshake")) == 2)
    slack.thaw_sockets()
    await desk.answered()
    assert desk.text(root) == "alive"


async def test_a_socket_over_which_nothing_happens_is_kept(open_desk: OpenDesk, slack: SlackEmulator) -> None:
    desk = await open_desk([Say("ok")])
    await desk.bench.clock.sleep(75)
    assert len(desk.calls("socket.handshake")) == 1
    assert desk.bench.inbox.health.state is ChannelState.RUNNING


@pytest.mark.parametrize("leaves", [True, False], ids=["leaves", "lost"])
async def test_a_socket_that_never_lasts_is_opened_again_ever_more_calmly_and_heals(
    open_desk: OpenDesk, slack: SlackEmulator, leaves: bool
) -> None:
    desk = await open_desk([Say("back")])

    async def cut() -> None:
        while True:
            await desk.until(lambda: [c for c in slack.sockets.connections if not c.leaving], timeout=60)
            if leaves:
                slack.disconnect_sockets("refresh_requested")
            else:
                slack.drop_sockets()
            await asyncio.sleep(0)

    cutting = asyncio.create_task(cut())
    await desk.bench.clock.sleep(45)
    cutting.cancel()
    await asyncio.gather(cutting, return_exceptions=True)
    assert 4 <= len(desk.calls("apps.connections.open")) <= 7
    root = await desk.ask("still there?")
    await desk.answered()
    assert desk.text(root) == "back"
    assert desk.bench.inbox.health.state is ChannelState.RUNNING


@pytest.mark.parametrize("reason", ["refresh_requested", "warning"])
async def test_the_next_socket_is_open_before_the_old_one_is_closed(
    open_desk: OpenDesk, slack: SlackEmulator, reason: str
) -> None:
    desk = await open_desk([Say("ok")])
    await desk.bench.clock.sleep(31)  # one that has not lasted is followed more calmly
    slack.disconnect_sockets(reason)
    await desk.until(lambda: len(slack.sockets.connections) == 2)
    root = await desk.ask("hello")
    await desk.answered()
    assert desk.text(root) == "ok"
    await desk.until(lambda: len(slack.sockets.connections) == 1)
    assert desk.bench.inbox.health.state is ChannelState.RUNNING
    assert all(len(delivery.attempts) == 1 for delivery in slack.deliveries)


async def test_socket_mode_switched_off_is_a_failure_that_heals(open_desk: OpenDesk, slack: SlackEmulator) -> None:
    desk = await open_desk([Say("ok")])
    slack.disconnect_sockets("link_disabled")
    assert "switched off" in await desk.is_state(ChannelState.FAILED)
    await desk.is_state(ChannelState.RUNNING)


async def test_too_many_connections_are_a_conflict(open_desk: OpenDesk, slack: SlackEmulator) -> None:
    desk = await open_desk([Say("ok")])
    slack.disconnect_sockets("too_many_websockets")
    await desk.is_state(ChannelState.CONFLICT)
    await desk.is_state(ChannelState.RUNNING)


async def test_a_wrong_app_token_fails_visibly_and_is_tried_calmly(open_desk: OpenDesk, slack: SlackEmulator) -> None:
    slack.app_tokens.clear()
    desk = await open_desk([Say("ok")], wait_for_socket=False)
    assert "unauthorised" in await desk.is_state(ChannelState.FAILED)
    await asyncio.sleep(1.0)
    assert len(desk.calls("apps.connections.open")) == 1
    slack.app_tokens[APP_TOKEN] = frozenset({"connections:write"})
    await desk.is_state(ChannelState.RUNNING)


async def test_a_wrong_bot_token_fails_visibly_before_anything_is_received(
    open_desk: OpenDesk, slack: SlackEmulator
) -> None:
    slack.refuse_token("invalid_auth")
    desk = await open_desk([Say("ok")], wait_for_socket=False)
    assert "unauthorised" in await desk.is_state(ChannelState.FAILED)
    assert not desk.calls("apps.connections.open")
    slack.refuse_token("")
    await desk.is_state(ChannelState.RUNNING)


async def test_slack_away_is_waited_for(open_desk: OpenDesk, slack: SlackEmulator) -> None:
    slack.outage()
    desk = await open_desk([Say("ok")], wait_for_socket=False)
    await desk.is_state(ChannelState.DEGRADED)
    slack.outage(False)
    await desk.is_state(ChannelState.RUNNING)
    root = await desk.ask("hello")
    await desk.answered()
    assert desk.text(root) == "ok"


async def test_stop_closes_everything_and_a_second_start_works(open_desk: OpenDesk, slack: SlackEmulator) -> None:
    desk = await open_desk([Say("ok")])
    before = len(asyncio.all_tasks())
    await desk.bench.adapter.stop()
    await desk.until(lambda: not slack.sockets.connections)
    assert len(asyncio.all_tasks()) < before
    await desk.bench.adapter.start()
    await connected(desk)
    root = await desk.ask("hello")
    await desk.answered()
    assert desk.text(root) == "ok"


class Sink:
    """A sink that can be away."""

    def __init__(self) -> None:
        self.away = False
        self.inbounds: dict[str, Inbound] = {}
        self.state = ChannelState.STARTING

    async def accept(self, inbound: Inbound) -> Accepted:
        if self.away:
            raise StoreAway("the store is away")
        if inbound.event_key in self.inbounds:
            return Accepted.DUPLICATE
        self.inbounds[inbound.event_key] = inbound
        return Accepted.TAKEN

    def report(self, state: ChannelState, reason: str = "") -> None:
        self.state = state

    async def recall(self, key: str) -> None:
        return None

    async def remember(self, key: str, value: object, ttl: float | None = None) -> None:
        """Nothing is kept."""

    async def rekey(self, old_chat: str, new_chat: str) -> None:
        """Slack keeps its ids."""


async def no_file(_: object) -> bytes:
    return b""


async def test_what_cannot_be_stored_is_not_acked_and_comes_again(slack: SlackEmulator) -> None:
    sink = Sink()
    sink.away = True
    adapter = build(settings_for(slack), Context("bench", sink, slack.clock, no_file))
    await adapter.start()
    await slack.wait_for(lambda: sink.state is ChannelState.RUNNING)
    await slack.send(GENERAL, ANN, "hello", mention=True)
    await slack.wait_for(lambda: any(d.attempts for d in slack.deliveries))
    sink.away = False
    await slack.wait_for(lambda: all(d.state is DeliveryState.ACKED for d in slack.deliveries))
    assert len(sink.inbounds) == 1
    await adapter.stop()


# ---------------------------------------------------------------- HTTP


@asynccontextmanager
async def hooked(app: ASGIApp) -> AsyncIterator[str]:
    config = uvicorn.Config(app, port=0, log_level="warning", lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 (uvicorn has no event for it)
        await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/hooks/bench"
    finally:
        server.should_exit = True
        await task


async def test_over_http_questions_presses_and_commands_come_signed(open_desk: OpenDesk, slack: SlackEmulator) -> None:
    desk = await open_desk([Say("over http")], signing_secret=SIGNING_SECRET, feedback=True)
    hook = desk.bench.adapter.webhook
    assert hook is not None
    async with hooked(hook) as url:
        slack.use_http(url)
        assert await slack.verify_url()
        root = await desk.ask("hello")
        await desk.answered()
        (answer,) = desk.replies(root)
        assert answer.text == "over http"
        await slack.press(GENERAL, answer.ts, ANN, text="Good answer")
        await slack.slash_command(GENERAL, ANN, "/agent", "help")
        await desk.until(lambda: any(message.seen_by == ANN for message in slack.answers(GENERAL)))
        await desk.until(lambda: all(d.state is DeliveryState.ACKED for d in slack.deliveries))


async def test_forged_old_and_unsigned_deliveries_are_refused_and_nothing_is_stored(slack: SlackEmulator) -> None:
    sink = Sink()
    adapter = build(settings_for(slack, signing_secret=SIGNING_SECRET), Context("bench", sink, slack.clock, no_file))
    hook = adapter.webhook
    assert hook is not None
    event = {"type": "app_mention", "channel": GENERAL, "user": ANN, "text": "hi", "ts": "1700000000.000100"}
    async with hooked(hook) as url:  # on a replica that has not started the channel
        slack.use_http(url)
        refused = [
            await slack.post_forged(event, secret="wrong"),
            await slack.post_forged(event, age=400),
            await slack.post_forged(event, unsigned=True),
        ]
        assert [answer.status for answer in refused] == [401, 401, 401]
        assert sink.inbounds == {}
        assert (await slack.post_forged(event)).status == 200
        assert len(sink.inbounds) == 1
        sink.away = True
        assert (await slack.post_forged(event | {"ts": "1700000000.000200"})).status == 503


@pytest.mark.parametrize("body", [b"{", b"\xff", b"[" * 20_000 + b"]" * 20_000], ids=["cut", "no text", "too deep"])
async def test_a_delivery_that_nobody_can_read_is_refused(body: bytes, slack: SlackEmulator) -> None:
    settings = settings_for(slack, signing_secret=SIGNING_SECRET)
    hook = build(settings, Context("bench", Sink(), slack.clock, no_file)).webhook
    assert hook is not None
    transport = httpx.ASGITransport(hook)
    async with httpx.AsyncClient(transport=transport, base_url="http://bridge") as client:
        answer = await client.post("/hooks/bench", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400


def test_socket_mode_has_no_webhook(slack: SlackEmulator) -> None:
    assert build(settings_for(slack), Context("bench", Sink(), SystemClock(), no_file)).webhook is None


# ---------------------------------------------------------------- for the operator


async def test_check_tries_both_tokens_and_names_missing_scopes(slack: SlackEmulator) -> None:
    adapter = build(settings_for(slack), Context("bench", Sink(), SystemClock(), no_file))
    assert [finding.ok for finding in await adapter.check()] == [True, True, True]
    slack.grant([scope for scope in SCOPES if scope != "files:read"])
    scopes = (await adapter.check())[1]
    assert scopes.ok
    assert "files:read" in scopes.detail
    slack.grant(["chat:write"])
    assert not (await adapter.check())[1].ok
    slack.refuse_token("invalid_auth")
    slack.app_tokens.clear()
    findings = await adapter.check()
    assert [finding.ok for finding in findings] == [False, False]
    assert "invalid_auth" in findings[0].detail


async def test_check_of_http_mode_names_the_request_url(slack: SlackEmulator) -> None:
    settings = settings_for(slack, signing_secret=SIGNING_SECRET)
    without = build(settings, Context("bench", Sink(), SystemClock(), no_file))
    assert "public_url" in (await without.check())[-1].detail
    adapter = build(settings, Context("bench", Sink(), SystemClock(), no_file, "https://bridge.example"))
    assert "https://bridge.example/hooks/bench" in (await adapter.check())[-1].detail


def test_the_guide_prints_a_manifest_with_all_that_is_needed() -> None:
    text = guide()
    assert manifest() in text
    for name in (*SCOPES, *EVENTS):
        assert name in text
    assert set(SCOPES) <= set(rules.BOT_SCOPES)
    assert set(EVENTS) <= set(rules.EVENT_TYPES)
    assert "https://bridge.example/hooks/x" in manifest(request_url="https://bridge.example/hooks/x")
