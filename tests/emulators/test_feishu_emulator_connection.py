"""The Feishu emulator's long connection: negotiation, frames, acks, redelivery, and the ways it goes wrong."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.clock import ManualClock, ScaledClock
from tests.emulators.feishu import (
    ClientConfig,
    FeishuEmulator,
    Limits,
    Outcome,
    connection_limit,
    endpoint_refused,
    handshake_refused,
)
from tests.emulators.feishu.driver import Driver, Socket, answer_to
from tests.emulators.feishu.frames import CONTROL, DATA, Frame, decode
from tests.emulators.journal import Fault, FaultKind


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
def private(emulator: FeishuEmulator) -> str:
    return emulator.p2p("Ann")


# -- negotiation


async def test_the_endpoint_gives_a_url_with_a_ticket_and_the_clients_configuration(
    emulator: FeishuEmulator, driver: Driver
) -> None:
    data = (await driver.negotiate())["data"]
    assert data["URL"].startswith("ws://127.0.0.1:")
    assert all(part in data["URL"] for part in ("device_id=", "service_id=", "access_key=", "ticket="))
    assert data["ClientConfig"] == {
        "ReconnectCount": -1,
        "ReconnectInterval": 120,
        "ReconnectNonce": 30,
        "PingInterval": 120,
    }
    assert all(secret not in str(emulator.journal.calls[-1].args) for secret in emulator.secrets())


async def test_a_wrong_secret_gets_no_endpoint(driver: Driver) -> None:
    assert (await driver.negotiate("wrong"))["code"] == 514


async def test_a_ticket_serves_once(emulator: FeishuEmulator, driver: Driver) -> None:
    url = (await driver.negotiate())["data"]["URL"]
    async with await Socket.open(url):
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await Socket.open(url)
    assert refused.value.status == 403
    assert refused.value.headers is not None
    assert refused.value.headers["handshake-status"] == "403"
    assert "ticket was used twice" in emulator.journal.broken[0]


async def test_connections_over_the_limit_are_refused(clock: ManualClock) -> None:
    limits = Limits(connections=1)
    async with FeishuEmulator(clock, limits=limits) as emulator, Driver(emulator) as driver, await driver.connect():
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await driver.connect()
    assert refused.value.headers is not None
    assert refused.value.headers["handshake-status"] == "514"
    assert refused.value.headers["handshake-autherrcode"] == "1000040350"
    assert "more than 1 connections" in emulator.journal.broken[0]


async def test_refusals_on_demand(emulator: FeishuEmulator, driver: Driver) -> None:
    emulator.faults.plan("ws.endpoint", endpoint_refused(1000040343), endpoint_refused(1, status=500))
    assert (await driver.negotiate())["code"] == 1000040343
    assert ((await driver.negotiate())["code"], driver.status) == (1, 500)
    emulator.faults.plan("ws.endpoint", Fault(FaultKind.ANSWER, status=500, body="<html>"))
    assert (await driver.negotiate(), driver.status) == ({}, 500)
    for fault, status in ((connection_limit(), "514"), (handshake_refused(403, "forbidden"), "403")):
        emulator.faults.plan("ws.connect", fault)
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await driver.connect()
        assert refused.value.headers is not None
        assert refused.value.headers["handshake-status"] == status
    assert not emulator.journal.broken


# -- ping and pong


async def test_a_ping_gets_a_pong_with_the_configuration_of_now(emulator: FeishuEmulator, socket: Socket) -> None:
    emulator.longconn.config = ClientConfig(PingInterval=7)
    await socket.ping()
    pong = await socket.frame()
    assert (pong.method, pong.header("type")) == (CONTROL, "pong")
    assert json.loads(pong.payload)["PingInterval"] == 7
    assert not emulator.journal.broken


async def test_a_client_that_pings_is_kept_and_one_that_does_not_is_cut_off(
    emulator: FeishuEmulator, socket: Socket, clock: ManualClock
) -> None:
    for _ in range(6):
        await socket.ping()
        await socket.frame()
        await clock.advance(120)
    await asyncio.sleep(0.1)
    assert not emulator.journal.broken
    await clock.advance(360)
    with pytest.raises(EOFError):
        await socket.frame()
    assert "sent no ping" in emulator.journal.broken[0]


async def test_a_ping_for_another_service_breaks_a_rule(emulator: FeishuEmulator, socket: Socket) -> None:
    await socket.send(Frame(0, 0, 8, CONTROL, (("type", "ping"),)))
    await emulator.wait_for(lambda: emulator.journal.broken)
    assert "service 8" in emulator.journal.broken[0]


# -- events and acks


async def test_an_event_comes_as_a_data_frame_and_its_ack_ends_it(
    emulator: FeishuEmulator, socket: Socket, private: str
) -> None:
    message_id = await emulator.say("Ann", private, "hi")
    frame, event = await socket.event()
    assert (frame.method, frame.header("type"), frame.header("sum"), frame.header("seq")) == (DATA, "event", "1", "0")
    assert event["event"]["message"]["message_id"] == message_id
    await socket.ack(frame)
    await emulator.wait_for(lambda: emulator.event(message_id).acked)
    assert not emulator.journal.broken


async def test_an_event_is_redelivered_by_the_vendors_schedule_until_it_is_acked(clock: ManualClock) -> None:
    config = ClientConfig(PingInterval=86_400)
    async with FeishuEmulator(clock, client_config=config) as emulator, Driver(emulator) as driver:
        socket = await driver.connect()
        message_id = await emulator.say("Ann", emulator.p2p("Ann"), "hi")
        frame, event = await socket.event()
        attempts = emulator.event(message_id).attempts
        for wait in (15.0, 300.0, 3600.0, 21_600.0):
            seen = len(attempts)
            await socket.ack(frame, 500)
            await emulator.wait_for(lambda seen=seen: len(attempts) > seen)  # type: ignore[misc]
            assert attempts[-1].outcome is Outcome.REFUSED
            await clock.advance(wait - 1)
            assert len(attempts) == seen + 1
            await clock.advance(1)
            frame, again = await socket.event()
            assert again == event
        await socket.ack(frame)
        await emulator.wait_for(lambda: emulator.event(message_id).acked)
        await clock.advance(86_000)
        assert len(attempts) == 5
        assert not emulator.journal.broken
        await socket.close()


async def test_an_event_that_nobody_acks_in_three_seconds_comes_again(
    emulator: FeishuEmulator, socket: Socket, private: str, clock: ManualClock
) -> None:
    message_id = await emulator.say("Ann", private, "hi")
    frame, _ = await socket.event()
    await clock.advance(3.0)
    await emulator.wait_for(lambda: emulator.event(message_id).attempts)
    assert emulator.event(message_id).attempts[0].outcome is Outcome.SILENT
    await socket.ack(frame)
    await emulator.wait_for(lambda: emulator.journal.broken)
    assert "acked 3.0 s after" in emulator.journal.broken[0]
    await clock.advance(15.0)
    await socket.take()
    await emulator.wait_for(lambda: emulator.event(message_id).acked)


async def test_a_clock_that_runs_fast_does_not_overtake_an_ack_that_is_under_way() -> None:
    async with FeishuEmulator(ScaledClock(1000)) as emulator, Driver(emulator) as driver:
        socket = await driver.connect()
        message_id = await emulator.say("Ann", emulator.p2p("Ann"), "hi")
        frame, _ = await socket.event()
        await asyncio.sleep(0.02)
        await socket.ack(frame)
        await emulator.wait_for(lambda: emulator.event(message_id).attempts)
        assert emulator.event(message_id).attempts[0].outcome is Outcome.ACKED
        await socket.close()


async def test_an_event_without_any_connection_waits_for_the_next_try(
    emulator: FeishuEmulator, driver: Driver, private: str, clock: ManualClock
) -> None:
    message_id = await emulator.say("Ann", private, "hi")
    await emulator.wait_for(lambda: emulator.event(message_id).attempts)
    assert emulator.event(message_id).attempts[0].outcome is Outcome.UNDELIVERABLE
    async with await driver.connect() as socket:
        await clock.advance(15.0)
        assert (await socket.take())["event"]["message"]["message_id"] == message_id
        await emulator.wait_for(lambda: emulator.event(message_id).acked)


async def test_an_event_whose_connection_breaks_before_the_ack_is_lost_and_comes_again(
    emulator: FeishuEmulator, driver: Driver, private: str, clock: ManualClock
) -> None:
    async with await driver.connect() as first:
        message_id = await emulator.say("Ann", private, "hi")
        await first.event()
    await emulator.wait_for(lambda: emulator.event(message_id).attempts)
    assert emulator.event(message_id).attempts[0].outcome is Outcome.LOST
    async with await driver.connect() as second:
        await clock.advance(15.0)
        await second.take()
        await emulator.wait_for(lambda: emulator.event(message_id).acked)
    assert not emulator.journal.broken


async def test_each_event_goes_to_one_of_several_connections(
    emulator: FeishuEmulator, driver: Driver, private: str
) -> None:
    counts = [0, 0]

    async def listen(index: int, socket: Socket) -> None:
        while True:
            await socket.take()
            counts[index] += 1

    async with await driver.connect() as first, await driver.connect() as second:
        listeners = [asyncio.ensure_future(listen(index, one)) for index, one in enumerate((first, second))]
        for number in range(40):
            await emulator.say("Ann", private, f"{number}")
        await emulator.wait_for(lambda: sum(counts) == 40)
        for listener in listeners:
            listener.cancel()
        await asyncio.gather(*listeners, return_exceptions=True)
    assert min(counts) > 0


async def test_a_large_event_can_come_in_parts_with_one_ack(
    emulator: FeishuEmulator, socket: Socket, private: str
) -> None:
    emulator.longconn.part_bytes = 300
    message_id = await emulator.say("Ann", private, "long " * 100)
    frame, event = await socket.event()
    assert int(frame.header("sum") or 0) >= 3
    assert event["event"]["message"]["message_id"] == message_id
    await socket.ack(frame)
    await emulator.wait_for(lambda: emulator.event(message_id).acked)
    assert not emulator.journal.broken


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"headers": (("message_id", "other"),)}, "was not delivered"),
        ({"log_id": 1}, "must be the frame it answers"),
        ({"payload": b"ok"}, "payload of an ack"),
        ({"payload": b'{"status":200}'}, "payload of an ack"),
        ({"method": 5}, "method 5"),
    ],
)
async def test_a_wrong_ack_breaks_a_rule(
    emulator: FeishuEmulator, socket: Socket, private: str, change: dict[str, object], rule: str
) -> None:
    await emulator.say("Ann", private, "hi")
    frame, _ = await socket.event()
    await socket.send(replace(answer_to(frame, {"code": 200}), **change))  # type: ignore[arg-type]
    await emulator.wait_for(lambda: emulator.journal.broken)
    assert rule in emulator.journal.broken[0]


async def test_an_ack_needs_the_header_biz_rt(emulator: FeishuEmulator, socket: Socket, private: str) -> None:
    await emulator.say("Ann", private, "hi")
    frame, _ = await socket.event()
    await socket.send(replace(frame, payload=b'{"code":200}'))
    await emulator.wait_for(lambda: emulator.journal.broken)
    assert "biz_rt" in emulator.journal.broken[0]


async def test_what_is_not_a_frame_breaks_a_rule(emulator: FeishuEmulator, socket: Socket) -> None:
    await socket._socket.send_bytes(b"\xff\xff")
    await socket._socket.send_str("ping")
    await emulator.wait_for(lambda: len(emulator.journal.broken) == 2)


# -- trouble


async def test_the_server_can_close_and_cut_connections(emulator: FeishuEmulator, driver: Driver) -> None:
    async with await driver.connect() as socket:
        await emulator.close_connections()
        with pytest.raises(EOFError):
            await socket.frame()
    async with await driver.connect() as socket:
        emulator.abort_connections()
        with pytest.raises(EOFError):
            await socket.frame()
    await emulator.wait_for(lambda: not emulator.longconn.connections)


async def test_a_half_open_connection_neither_answers_nor_brings_anything(
    emulator: FeishuEmulator, socket: Socket, driver: Driver, private: str, clock: ManualClock
) -> None:
    emulator.half_open()
    await socket.ping()
    await socket._socket.ping()
    message_id = await emulator.say("Ann", private, "hi")
    with pytest.raises(TimeoutError):
        await socket.frame(0.1)
    await clock.advance(3.0)
    await emulator.wait_for(lambda: emulator.event(message_id).attempts)
    assert emulator.event(message_id).attempts[0].outcome is Outcome.LOST
    async with await driver.connect() as fresh:
        await socket.close()
        await emulator.wait_for(lambda: len(emulator.longconn.connections) == 1)
        await clock.advance(15.0)
        await fresh.take()
    assert not emulator.journal.broken


async def test_a_stopped_emulator_goes_on_where_it_was(
    emulator: FeishuEmulator, driver: Driver, private: str, clock: ManualClock
) -> None:
    port = int(emulator.url.rsplit(":", 1)[1])
    message_id = await emulator.say("Ann", private, "hi")
    await emulator.wait_for(lambda: emulator.event(message_id).attempts)
    await emulator.stop()
    await emulator.start(port)
    async with await driver.connect() as socket:
        await clock.advance(15.0)
        assert (await socket.take())["event"]["message"]["message_id"] == message_id


# -- redelivery and order on demand


async def test_an_event_can_be_repeated_with_the_same_or_with_a_new_id(
    emulator: FeishuEmulator, socket: Socket, private: str
) -> None:
    message_id = await emulator.say("Ann", private, "hi")
    first = await socket.take()
    repeat = asyncio.ensure_future(emulator.redeliver(message_id))
    again = await socket.take()
    assert (await repeat).outcome is Outcome.ACKED
    assert again == first
    emulator.redeliver_as_new(message_id)
    fresh = await socket.take()
    assert fresh["header"]["event_id"] != first["header"]["event_id"]
    assert fresh["event"] == first["event"]


async def test_events_can_be_held_back_and_turned_round(emulator: FeishuEmulator, socket: Socket, private: str) -> None:
    emulator.hold_events()
    written = [await emulator.say("Ann", private, text) for text in ("one", "two")]
    with pytest.raises(TimeoutError):
        await socket.frame(0.05)
    emulator.release_events(reverse=True)
    seen = [(await socket.take())["event"]["message"]["message_id"] for _ in written]
    assert seen == written[::-1]


# -- the frame itself


@given(
    st.builds(
        Frame,
        st.integers(0, 2**64 - 1),
        st.integers(0, 2**64 - 1),
        st.integers(0, 2**31 - 1),
        st.integers(0, 1),
        st.lists(st.tuples(st.text(max_size=9), st.text(max_size=9)), max_size=4).map(tuple),
        st.text(max_size=9),
        st.text(max_size=9),
        st.binary(max_size=300),
        st.text(max_size=9),
    )
)
def test_a_frame_is_read_as_it_was_written(frame: Frame) -> None:
    assert decode(frame.encode()) == frame


@given(st.binary(max_size=60))
def test_reading_anything_gives_a_frame_or_a_value_error(data: bytes) -> None:
    try:
        decode(data)
    except ValueError:
        return
