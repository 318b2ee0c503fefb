"""What the emulated Slack brings to the app, over sockets and over HTTP, with real Bolt and with a bare client."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from slack_bolt.adapter.socket_mode.aiohttp import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from tests.clock import ManualClock
from tests.emulators.slack import ANN, APP_TOKEN, BOT, BOT_ID, GENERAL, SIGNING_SECRET, DeliveryState, SlackEmulator
from tests.emulators.slack.clients import web_client

BUTTONS = [
    {
        "type": "actions",
        "elements": [{"type": "button", "action_id": "go", "value": "v", "text": {"type": "plain_text", "text": "Go"}}],
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


class Socket:
    """A bare Socket Mode client that acks only when it is told to."""

    def __init__(self, client: AsyncWebClient, session: aiohttp.ClientSession) -> None:
        self._client = client
        self.session = session
        self.url = ""
        self.connection: aiohttp.ClientWebSocketResponse | None = None

    async def open(self) -> dict[str, Any]:
        """Connect with a new ticket; returns the hello."""
        self.url = (await self._client.apps_connections_open(app_token=APP_TOKEN))["url"]
        self.connection = await self.session.ws_connect(self.url, autoping=False)
        return await self.frame()

    @property
    def socket(self) -> aiohttp.ClientWebSocketResponse:
        assert self.connection is not None, "not open"
        return self.connection

    async def frame(self) -> dict[str, Any]:
        message = await self.socket.receive(timeout=5)
        frame: dict[str, Any] = json.loads(message.data)
        return frame

    async def ack(self, frame: dict[str, Any], payload: object = None) -> None:
        await self.socket.send_str(json.dumps({"envelope_id": frame["envelope_id"], "payload": payload}))


@pytest.fixture
async def sockets(client: AsyncWebClient) -> AsyncIterator[Callable[[], Socket]]:
    made: list[Socket] = []
    async with aiohttp.ClientSession() as session:

        def make() -> Socket:
            made.append(Socket(client, session))
            return made[-1]

        yield make
        for socket in made:
            if socket.connection is not None:
                await socket.connection.close()


def bolt(client: AsyncWebClient, heard: list[dict[str, Any]]) -> AsyncApp:
    """A Bolt app that keeps the body of everything that comes, before it is acked."""
    app = AsyncApp(client=client, signing_secret=SIGNING_SECRET, ignoring_self_events_enabled=False)

    @app.middleware
    async def keep(body: dict[str, Any], next: Callable[[], Awaitable[None]]) -> None:
        heard.append(body)
        await next()

    @app.event("message")
    async def on_message() -> None:
        """Acked by Bolt itself."""

    @app.event("app_mention")
    async def on_mention() -> None:
        """Acked by Bolt itself."""

    @app.action("go")
    async def on_press(ack: Callable[[], Awaitable[None]]) -> None:
        await ack()

    @app.command("/ask")
    async def on_command(ack: Callable[[str], Awaitable[None]]) -> None:
        await ack("at your service")

    return app


@asynccontextmanager
async def connected(slack: SlackEmulator, app: AsyncApp) -> AsyncIterator[AsyncSocketModeHandler]:
    handler = AsyncSocketModeHandler(app, APP_TOKEN, ping_interval=0.1)
    await handler.connect_async()  # type: ignore[no-untyped-call]
    try:
        await slack.wait_for(lambda: slack.sockets.connections)
        yield handler
    finally:
        await handler.close_async()  # type: ignore[no-untyped-call]


@asynccontextmanager
async def served(slack: SlackEmulator, handle: web.Application) -> AsyncIterator[None]:
    """Serve an app on a port of its own and make it the request URL."""
    runner = web.AppRunner(handle, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    slack.use_http(f"http://127.0.0.1:{runner.addresses[0][1]}/slack/events")
    try:
        yield
    finally:
        await runner.cleanup()


def acked(slack: SlackEmulator) -> bool:
    return bool(slack.deliveries) and all(d.state is DeliveryState.ACKED for d in slack.deliveries)


# --- Socket Mode -------------------------------------------------------------------------------------------------


async def test_bolt_gets_events_presses_and_commands_over_a_socket(
    slack: SlackEmulator, client: AsyncWebClient
) -> None:
    heard: list[dict[str, Any]] = []
    async with connected(slack, bolt(client, heard)):
        await slack.send(GENERAL, ANN, "hello")
        ts = (await client.chat_postMessage(channel=GENERAL, text="choose", blocks=BUTTONS))["ts"]
        await slack.press(GENERAL, ts, ANN, text="Go")
        await slack.slash_command(GENERAL, ANN, "/ask", "me")
        await slack.wait_for(lambda: acked(slack))
    assert [body.get("type", "command") for body in heard] == ["event_callback"] * 2 + ["block_actions", "command"]
    assert heard[0]["event"]["text"] == "hello"
    assert heard[2]["actions"][0]["value"] == "v"
    assert (heard[3]["command"], heard[3]["text"]) == ("/ask", "me")
    answer = slack.chat(GENERAL)[-1]
    assert (answer.text, answer.seen_by) == ("at your service", ANN)
    assert not slack.journal.broken


async def test_a_ticket_opens_one_socket_once(slack: SlackEmulator, sockets: Callable[[], Socket]) -> None:
    socket = sockets()
    assert (await socket.open())["type"] == "hello"
    assert not slack.journal.broken
    with pytest.raises(aiohttp.WSServerHandshakeError):
        await socket.session.ws_connect(socket.url)
    assert "socket opened a second time" in slack.journal.broken[0]


async def test_a_ticket_runs_out(
    slack: SlackEmulator, client: AsyncWebClient, clock: ManualClock, sockets: Callable[[], Socket]
) -> None:
    url = (await client.apps_connections_open(app_token=APP_TOKEN))["url"]
    await clock.advance(31)
    with pytest.raises(aiohttp.WSServerHandshakeError):
        await sockets().session.ws_connect(url)
    assert "had run out" in slack.journal.broken[0]


async def test_refused_handshakes_heal_with_a_fresh_ticket(
    slack: SlackEmulator, clock: ManualClock, sockets: Callable[[], Socket]
) -> None:
    slack.refuse_sockets(60)
    socket = sockets()
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await socket.open()
    assert refused.value.status == 503
    await clock.advance(60)
    await socket.open()
    assert not slack.journal.broken


async def test_an_event_comes_again_at_once_after_a_minute_and_after_five(
    slack: SlackEmulator, clock: ManualClock, sockets: Callable[[], Socket]
) -> None:
    socket = sockets()
    await socket.open()
    begun = clock.now()
    await slack.send(GENERAL, ANN, "hello")
    frames = [await socket.frame()]
    for pause in (1, 60, 300):
        await clock.advance(3)
        await clock.advance(pause)
        frames.append(await socket.frame())
    await clock.advance(3)
    [delivery] = slack.deliveries
    await slack.wait_for(lambda: delivery.state is DeliveryState.LOST)
    assert [frame["retry_attempt"] for frame in frames] == [0, 1, 2, 3]
    assert [frame["retry_reason"] for frame in frames] == ["", "timeout", "timeout", "timeout"]
    assert len({frame["envelope_id"] for frame in frames}) == 4
    assert len({frame["payload"]["event_id"] for frame in frames}) == 1
    assert [round(attempt.at - begun) for attempt in delivery.attempts] == [0, 4, 67, 370]
    assert not slack.journal.broken, "a dead app breaks no rule"


async def test_an_ack_ends_the_delivery_and_a_strange_ack_is_recorded(
    slack: SlackEmulator, clock: ManualClock, sockets: Callable[[], Socket]
) -> None:
    socket = sockets()
    await socket.open()
    await slack.send(GENERAL, ANN, "hello")
    frame = await socket.frame()
    await socket.ack(frame)
    await slack.wait_for(lambda: acked(slack))
    await clock.advance(1_000)
    assert len(slack.deliveries[0].attempts) == 1
    await socket.socket.send_str(json.dumps({"envelope_id": "made-up"}))
    await socket.socket.send_str("nonsense")
    await slack.wait_for(lambda: len(slack.journal.broken) == 2)


async def test_an_ack_that_comes_too_late_does_not_count(
    slack: SlackEmulator, clock: ManualClock, sockets: Callable[[], Socket]
) -> None:
    socket = sockets()
    await socket.open()
    await slack.send(GENERAL, ANN, "hello")
    first = await socket.frame()
    await clock.advance(4)
    second = await socket.frame()
    await socket.ack(first)
    await socket.ack(second)
    await slack.wait_for(lambda: acked(slack))
    assert [attempt.failure for attempt in slack.deliveries[0].attempts] == ["timeout", ""]
    assert not slack.journal.broken


async def test_each_event_goes_to_one_of_several_sockets(slack: SlackEmulator, sockets: Callable[[], Socket]) -> None:
    first, second = sockets(), sockets()
    await first.open()
    assert (await second.open())["num_connections"] == 2
    for number in range(12):
        await slack.send(GENERAL, ANN, str(number))
    heard: dict[str, list[str]] = {"first": [], "second": []}

    async def listen(name: str, socket: Socket) -> None:
        while True:
            frame = await socket.frame()
            heard[name].append(frame["payload"]["event"]["text"])
            await socket.ack(frame)

    listeners = [asyncio.ensure_future(listen("first", first)), asyncio.ensure_future(listen("second", second))]
    await slack.wait_for(lambda: acked(slack))
    for listener in listeners:
        listener.cancel()
    assert sorted(heard["first"] + heard["second"], key=int) == [str(number) for number in range(12)]
    assert heard["first"]
    assert heard["second"]


async def test_an_eleventh_socket_is_one_too_many(slack: SlackEmulator, sockets: Callable[[], Socket]) -> None:
    crowd = [sockets() for _ in range(11)]
    for socket in crowd[:10]:
        await socket.open()
    assert not slack.journal.broken
    await crowd[10].open()
    assert (await crowd[10].frame())["reason"] == "too_many_websockets"
    assert "more than 10 sockets" in slack.journal.broken[0]


async def test_bolt_comes_back_after_a_disconnect_and_loses_nothing(
    slack: SlackEmulator, client: AsyncWebClient
) -> None:
    heard: list[dict[str, Any]] = []
    async with connected(slack, bolt(client, heard)):
        [old] = slack.sockets.connections
        slack.disconnect_sockets()
        await slack.send(GENERAL, ANN, "in between")
        await slack.wait_for(lambda: acked(slack))
        assert [body["event"]["text"] for body in heard] == ["in between"]
        assert old not in slack.sockets.connections
    assert not slack.journal.broken


async def test_bolt_comes_back_after_a_cut_connection(slack: SlackEmulator, client: AsyncWebClient) -> None:
    heard: list[dict[str, Any]] = []
    async with connected(slack, bolt(client, heard)):
        slack.drop_sockets()
        await slack.wait_for(lambda: not slack.sockets.connections)
        await slack.wait_for(lambda: slack.sockets.connections)
        await slack.send(GENERAL, ANN, "again")
        await slack.wait_for(lambda: acked(slack))


async def test_a_socket_that_is_told_to_go_is_closed_after_ten_seconds(
    slack: SlackEmulator, clock: ManualClock, sockets: Callable[[], Socket]
) -> None:
    socket = sockets()
    await socket.open()
    slack.disconnect_sockets("warning")
    assert (await socket.frame())["reason"] == "warning"
    await clock.advance(10)
    assert (await socket.socket.receive(timeout=5)).type is aiohttp.WSMsgType.CLOSE


async def test_a_half_open_socket_answers_nothing_and_its_events_come_over_another(
    slack: SlackEmulator, clock: ManualClock, sockets: Callable[[], Socket]
) -> None:
    dead = sockets()
    await dead.open()
    await dead.socket.ping(b"1")
    assert (await dead.socket.receive(timeout=5)).type is aiohttp.WSMsgType.PONG
    slack.freeze_sockets()
    await dead.socket.ping(b"2")
    with pytest.raises(asyncio.TimeoutError):
        await dead.socket.receive(timeout=0.1)
    await slack.send(GENERAL, ANN, "hello")
    live = sockets()
    await live.open()
    await clock.advance(3)
    await clock.advance(1)
    frame = await live.frame()
    await live.ack(frame)
    await slack.wait_for(lambda: acked(slack))
    assert len(slack.sockets.connections) == 2
    assert not slack.journal.broken
    slack.thaw_sockets()


async def test_an_event_waits_a_little_for_a_socket(
    slack: SlackEmulator, clock: ManualClock, sockets: Callable[[], Socket]
) -> None:
    await slack.send(GENERAL, ANN, "early")
    await clock.advance(2)
    socket = sockets()
    await socket.open()
    assert (await socket.frame())["retry_attempt"] == 0


async def test_a_command_that_nobody_acks_fails_for_the_person_and_does_not_come_again(
    slack: SlackEmulator, clock: ManualClock
) -> None:
    delivery = await slack.slash_command(GENERAL, ANN, "/ask")
    await clock.advance(1_000)
    assert delivery.state is DeliveryState.LOST
    assert len(delivery.attempts) == 1
    notice = slack.chat(GENERAL)[-1]
    assert ("operation_timeout" in notice.text, notice.seen_by) == (True, ANN)


# --- HTTP --------------------------------------------------------------------------------------------------------


async def test_bolt_gets_events_presses_and_commands_over_http(slack: SlackEmulator, client: AsyncWebClient) -> None:
    heard: list[dict[str, Any]] = []
    async with served(slack, bolt(client, heard).web_app("/slack/events")):
        assert await slack.verify_url()
        await slack.send(GENERAL, ANN, "hello")
        await slack.wait_for(lambda: acked(slack))
        ts = (await client.chat_postMessage(channel=GENERAL, text="choose", blocks=BUTTONS))["ts"]
        await slack.press(GENERAL, ts, ANN, action_id="go")
        await slack.slash_command(GENERAL, ANN, "/ask", "me & you")
        await slack.wait_for(lambda: acked(slack))
    kinds = sorted(body.get("type", "command") for body in heard)
    assert kinds == ["block_actions", "command", "event_callback", "event_callback"]
    assert next(body["text"] for body in heard if "command" in body) == "me & you"
    assert slack.chat(GENERAL)[-1].text == "at your service"
    assert not slack.journal.broken


@pytest.mark.parametrize("forgery", [{"age": 301.0}, {"secret": "wrong"}, {"unsigned": True}])
async def test_bolt_refuses_what_is_not_signed_by_slack_and_now(
    slack: SlackEmulator, client: AsyncWebClient, forgery: dict[str, Any]
) -> None:
    heard: list[dict[str, Any]] = []
    async with served(slack, bolt(client, heard).web_app("/slack/events")):
        event = {"type": "message", "channel": GENERAL, "user": ANN, "text": "forged"}
        assert (await slack.post_forged(event, **forgery)).status == 401
        assert heard == []
        assert (await slack.post_forged(event, age=299.0)).status == 200


async def test_failed_requests_come_again_with_their_number_and_reason(
    slack: SlackEmulator, clock: ManualClock
) -> None:
    got: list[tuple[str | None, str | None]] = []

    async def handle(request: web.Request) -> web.Response:
        got.append((request.headers.get("x-slack-retry-num"), request.headers.get("x-slack-retry-reason")))
        return web.Response(status=200 if len(got) == 3 else 500)

    app = web.Application()
    app.router.add_post("/slack/events", handle)
    async with served(slack, app):
        await slack.send(GENERAL, ANN, "hello")
        [delivery] = slack.deliveries
        await slack.wait_for(lambda: len(delivery.attempts) == 1)
        await clock.advance(1)
        await slack.wait_for(lambda: len(delivery.attempts) == 2)
        await clock.advance(60)
        await slack.wait_for(lambda: acked(slack))
    assert got == [(None, None), ("1", "http_error"), ("2", "http_error")]


async def test_an_answer_after_three_seconds_is_too_late(slack: SlackEmulator, clock: ManualClock) -> None:
    arrived = asyncio.Event()

    async def handle(request: web.Request) -> web.Response:
        arrived.set()
        await asyncio.sleep(30)
        return web.Response()

    app = web.Application()
    app.router.add_post("/slack/events", handle)
    async with served(slack, app):
        await slack.send(GENERAL, ANN, "hello")
        await asyncio.wait_for(arrived.wait(), 5)
        await clock.advance(3)
        await slack.wait_for(lambda: slack.deliveries[0].attempts)
        assert slack.deliveries[0].attempts[0].failure == "http_timeout"


async def test_the_app_can_ask_for_no_retry(slack: SlackEmulator) -> None:
    async def handle(request: web.Request) -> web.Response:
        return web.Response(status=500, headers={"x-slack-no-retry": "1"})

    app = web.Application()
    app.router.add_post("/slack/events", handle)
    async with served(slack, app):
        await slack.send(GENERAL, ANN, "hello")
        await slack.wait_for(lambda: slack.deliveries[0].state is DeliveryState.LOST)


async def test_an_unreachable_app_is_a_failed_connection(slack: SlackEmulator) -> None:
    async with served(slack, web.Application()):
        pass
    await slack.send(GENERAL, ANN, "hello")
    await slack.wait_for(lambda: slack.deliveries[0].attempts)
    assert slack.deliveries[0].attempts[0].failure == "connection_failed"


# --- order, repetition, self -------------------------------------------------------------------------------------


async def test_deliveries_can_be_held_reversed_and_repeated(
    slack: SlackEmulator, sockets: Callable[[], Socket]
) -> None:
    socket = sockets()
    await socket.open()
    slack.hold()
    for word in ("one", "two"):
        await slack.send(GENERAL, ANN, word)
    slack.release(reverse=True)
    frames = [await socket.frame(), await socket.frame()]
    assert [frame["payload"]["event"]["text"] for frame in frames] == ["two", "one"]
    for frame in frames:
        await socket.ack(frame)
    await slack.wait_for(lambda: acked(slack))
    slack.redeliver(slack.deliveries[0])
    again = await socket.frame()
    assert (again["payload"]["event"]["text"], again["retry_attempt"]) == ("one", 1)


async def test_what_is_not_acked_can_be_redelivered_without_waiting(
    slack: SlackEmulator, clock: ManualClock, sockets: Callable[[], Socket]
) -> None:
    socket = sockets()
    await socket.open()
    await slack.send(GENERAL, ANN, "hello")
    await socket.frame()
    await clock.advance(3)
    await slack.wait_for(lambda: slack.deliveries[0].attempts)
    slack.redeliver()
    assert (await socket.frame())["retry_attempt"] == 1


async def test_the_apps_own_messages_come_back_as_events(slack: SlackEmulator, client: AsyncWebClient) -> None:
    heard: list[dict[str, Any]] = []
    async with connected(slack, bolt(client, heard)):
        ts = (await client.chat_postMessage(channel=GENERAL, text="mine"))["ts"]
        await client.chat_update(channel=GENERAL, ts=ts, text="mine, better")
        await client.chat_delete(channel=GENERAL, ts=ts)
        await slack.wait_for(lambda: len(heard) == 3 and acked(slack))
    # Bolt works on what arrives together in no certain order.
    posted, changed, deleted = sorted((body["event"] for body in heard), key=lambda event: float(event["event_ts"]))
    assert (posted["bot_id"], posted["user"], posted["ts"]) == (BOT_ID, BOT, ts)
    assert (changed["subtype"], changed["message"]["bot_id"]) == ("message_changed", BOT_ID)
    assert (changed["message"]["text"], changed["previous_message"]["text"]) == ("mine, better", "mine")
    assert (deleted["subtype"], deleted["deleted_ts"]) == ("message_deleted", ts)


async def test_only_what_is_subscribed_to_is_delivered(slack: SlackEmulator) -> None:
    slack.settings.subscriptions = frozenset({"app_mention"})
    await slack.send(GENERAL, ANN, "hello", mention=True)
    assert [delivery.event["type"] for delivery in slack.deliveries] == ["app_mention"]


async def test_signatures_carry_the_wall_clock(slack: SlackEmulator) -> None:
    stamps: list[int] = []

    async def handle(request: web.Request) -> web.Response:
        stamps.append(int(request.headers["x-slack-request-timestamp"]))
        return web.Response()

    app = web.Application()
    app.router.add_post("/slack/events", handle)
    async with served(slack, app):
        await slack.send(GENERAL, ANN, "hello")
        await slack.wait_for(lambda: acked(slack))
    assert abs(stamps[0] - time.time()) < 60
