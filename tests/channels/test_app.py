"""The bridge's own HTTP side: readiness, metrics, console, what is refused to strangers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

import adapters.web
from adapters.embedded import EmbeddedGateway
from adapters.web.adapter import WebAdapter
from channels.adapter import Context, FileAway, FileGone
from channels.app import Bridge
from channels.model import File, Inbound, InboundKind, Place, Sender
from channels.server import AddressInUse, AdminGuard, build_app
from channels.store import inbox
from channels.store.database import Transaction
from channels.store.records import Lane, TurnState
from channels.store.schema import inbounds
from config.loading import parse_settings
from config.web import WebChannel

Open = Callable[..., Awaitable[Bridge]]


@pytest.fixture
async def open_bridge(tmp_path: Path) -> AsyncIterator[Open]:
    async with AsyncExitStack() as stack:
        gateway = EmbeddedGateway(tmp_path / "gateway")
        url = await gateway.start()
        stack.push_async_callback(gateway.stop)

        async def open_(
            server: str = "port: 0", channels: str = "{}", gateway_url: str = url, gateway: str = "headers: {}"
        ) -> Bridge:
            text = f"""\
gateway: {{url: "{gateway_url}", {gateway}}}
store: {{url: "sqlite:///{tmp_path / "bridge.db"}"}}
server: {{{server}}}
channels: {channels}
"""
            bridge = Bridge(parse_settings(text, "test.yaml", tmp_path, {}))
            stack.push_async_callback(bridge.stop)
            await bridge.start()
            await bridge.channels_started(10)
            return bridge

        yield open_


def web_channel(tmp_path: Path, name: str = "page", **keys: str) -> str:
    more = "".join(f", {key}: {value}" for key, value in keys.items())
    return f"{{{name}: {{platform: web, store: 'sqlite:///{tmp_path / 'web.db'}'{more}}}}}"


async def get(bridge: Bridge, path: str, **options: Any) -> httpx.Response:
    async with httpx.AsyncClient() as client:
        return await client.get(f"{bridge.url}{path}", **options)


async def test_ready_when_gateway_store_and_channels_are_usable(open_bridge: Open, tmp_path: Path) -> None:
    bridge = await open_bridge(channels=web_channel(tmp_path))
    assert (await get(bridge, "/healthz")).status_code == 200
    answer = await get(bridge, "/readyz")
    state = answer.json()
    assert answer.status_code == 200
    assert state["ready"] is True
    assert state["gateway"]["ok"] is True
    assert state["store"]["ok"] is True
    assert state["channels"]["page"]["state"] == "running"
    assert set(state["channels"]["page"]) == {"state", "reason", "since"}


async def test_not_ready_when_the_gateway_is_away_and_the_reason_is_said(open_bridge: Open) -> None:
    bridge = await open_bridge(gateway_url="http://127.0.0.1:9")
    await bridge.look_at_gateway()
    answer = await get(bridge, "/readyz")
    assert answer.status_code == 503
    assert answer.json()["gateway"]["ok"] is False
    assert answer.json()["gateway"]["reason"]


async def test_a_channel_that_fails_stops_neither_the_bridge_nor_the_others(open_bridge: Open, tmp_path: Path) -> None:
    # Open to every address without a token: the web channel refuses to serve.
    bridge = await open_bridge(server="port: 0, host: 0.0.0.0", channels=web_channel(tmp_path))
    answer = await get(bridge, "/readyz")
    assert answer.status_code == 503
    channel = answer.json()["channels"]["page"]
    assert channel["state"] == "failed"
    assert "access_token" in channel["reason"]
    assert (await get(bridge, "/")).status_code >= 400


async def test_a_channel_that_cannot_even_be_set_up_stops_none_of_the_others(
    open_bridge: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def choke(*_: object) -> None:
        raise RuntimeError("chokes on 123456:hunter2")

    monkeypatch.setattr("adapters.telegram.build", choke)
    monkeypatch.setitem(sys.modules, "adapters.slack", None)  # as if it, or what it needs, were not installed
    page = web_channel(tmp_path).strip("{}")
    broken = "tg: {platform: telegram, bot_token: '123456:hunter2'}, sl: {platform: slack, bot_token: x, app_token: y}"
    bridge = await open_bridge(channels=f"{{{broken}, {page}}}}}")
    answer = await get(bridge, "/readyz")
    channels = answer.json()["channels"]
    assert answer.status_code == 503
    assert {name: channel["state"] for name, channel in channels.items()} == {
        "tg": "failed",
        "sl": "failed",
        "page": "running",
    }
    assert "RuntimeError: chokes on [redacted]" in channels["tg"]["reason"]
    assert "adapters.slack" in channels["sl"]["reason"]
    assert (await get(bridge, "/")).status_code == 200
    assert "chokes on" in (await get(bridge, "/console")).text


async def test_a_file_that_the_gateway_does_not_have_is_gone_and_with_the_gateway_it_is_away(
    open_bridge: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contexts: list[Context] = []
    build = adapters.web.build

    def noting(settings: WebChannel, context: Context) -> WebAdapter:
        contexts.append(context)
        return build(settings, context)

    monkeypatch.setattr("adapters.web.build", noting)
    channels = web_channel(tmp_path)
    file = File("f", "f.txt", reference={"thread": "0a3fe0ce-3b2b-4d44-a1f5-6f1d6a0a6f0e", "message": "m", "block": 0})
    bridge = await open_bridge(channels=channels)
    with pytest.raises(FileGone):
        await contexts[0].open_file(file)
    with monkeypatch.context() as patched:
        patched.setattr("channels.app._OPEN_FILE", 0.001)
        with pytest.raises(FileAway):
            await contexts[0].open_file(file)
    await bridge.stop()
    await open_bridge(channels=channels, gateway_url="http://127.0.0.1:9")
    with pytest.raises(FileAway):
        await contexts[1].open_file(file)


async def test_not_ready_while_a_channel_can_show_nothing(open_bridge: Open, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    bridge = await open_bridge(channels=f"{{page: {{platform: web, store: 'sqlite:///{tmp_path}/file/web.db'}}}}")
    answer = await get(bridge, "/readyz")
    assert answer.json()["channels"]["page"]["state"] == "degraded"
    assert (answer.status_code, answer.json()["ready"]) == (503, False)


async def test_a_channel_whose_agent_the_gateway_does_not_have_has_failed(open_bridge: Open, tmp_path: Path) -> None:
    pages = ", ".join(
        f"{name}: {{platform: web, store: null, path: /{name}, assistant_id: {agent}}}"
        for name, agent in (("good", "agent"), ("bad", "nosuch"))
    )
    bridge = await open_bridge(channels=f"{{{pages}}}")
    await bridge.look_at_gateway()
    state = (await get(bridge, "/readyz")).json()
    assert state["channels"]["good"]["state"] == "running"
    assert state["channels"]["bad"]["state"] == "failed"
    assert "“nosuch”: see channels.bad.assistant_id" in state["channels"]["bad"]["reason"]
    assert (state["gateway"]["ok"], state["ready"]) == (True, False)


async def test_an_agent_of_the_gateway_that_is_not_there_is_named_with_its_key(open_bridge: Open) -> None:
    bridge = await open_bridge(gateway="assistant_id: nosuch")
    await bridge.look_at_gateway()
    answer = await get(bridge, "/readyz")
    assert answer.status_code == 503
    assert answer.json()["gateway"]["reason"] == "does not know the assistant “nosuch”: see gateway.assistant_id"


async def test_an_agent_that_no_channel_asks_is_not_needed(open_bridge: Open) -> None:
    page = "{page: {platform: web, store: null, assistant_id: agent}}"
    bridge = await open_bridge(channels=page, gateway="assistant_id: nosuch")
    await bridge.look_at_gateway()
    assert (await get(bridge, "/readyz")).status_code == 200


async def test_what_a_proxy_publishes_is_closed_without_the_token(open_bridge: Open) -> None:
    bridge = await open_bridge(server="port: 0, public_url: 'https://bridge.example'")
    for path in ("/metrics", "/console"):
        answer = await get(bridge, path)
        assert answer.status_code == 401
        assert "set server.admin_token" in answer.text


async def test_with_a_token_this_machine_needs_it_too(open_bridge: Open) -> None:
    bridge = await open_bridge(server="port: 0, admin_token: a-long-admin-token")
    assert (await get(bridge, "/metrics")).status_code == 401
    header = {"authorization": "Bearer a-long-admin-token"}
    assert (await get(bridge, "/metrics", headers=header)).status_code == 200


async def test_metrics_and_console_are_closed_to_other_machines_without_the_token(open_bridge: Open) -> None:
    bridge = await open_bridge(server="port: 0, host: 0.0.0.0, admin_token: a-long-admin-token")
    for path in ("/metrics", "/console"):
        assert (await get(bridge, path)).status_code == 401
        wrong = await get(bridge, path, headers={"authorization": "Bearer wrong"})
        assert wrong.status_code == 401
        right = await get(bridge, path, headers={"authorization": "Bearer a-long-admin-token"})
        assert right.status_code == 200
        assert "a-long-admin-token" not in right.text


async def test_without_a_token_another_name_for_this_machine_is_refused(open_bridge: Open) -> None:
    bridge = await open_bridge()
    assert (await get(bridge, "/metrics")).status_code == 200
    assert (await get(bridge, "/metrics", headers={"host": "evil.example"})).status_code == 401


async def test_an_operator_signs_in_to_the_console_with_a_form(open_bridge: Open) -> None:
    bridge = await open_bridge(server="port: 0, host: 0.0.0.0, admin_token: a-long-admin-token")
    async with httpx.AsyncClient(base_url=bridge.url, follow_redirects=True) as client:
        assert "Admin token" in (await client.get("/console")).text
        assert (await client.post("/console/sign-in", data={"token": "wrong"})).status_code == 401
        page = await client.post("/console/sign-in", data={"token": "a-long-admin-token"})
        assert page.status_code == 200
        assert "Every question has its answer" in page.text


async def test_the_metrics_name_channels_and_what_became_of_inbounds(open_bridge: Open, tmp_path: Path) -> None:
    bridge = await open_bridge(channels=web_channel(tmp_path))
    text = (await get(bridge, "/metrics")).text
    assert 'channel_bridge_owned{channel="page"} 1.0' in text
    assert "channel_bridge_gateway_events" in text


async def test_a_dead_letter_is_seen_and_asked_again_from_the_console(open_bridge: Open, tmp_path: Path) -> None:
    bridge = await open_bridge(channels=web_channel(tmp_path))
    place = Place("page", "somebody", private=True)
    inbound = Inbound(place, Sender("somebody"), "e1", InboundKind.MESSAGE, "hello <b>there</b>", 0.0, "m1")
    owner = bridge.manager._owned["page"].owner
    owner.halt()  # nobody must answer while the turn is made to fail
    await owner_ended(bridge)
    lease = await bridge.store.acquire("page", "test")
    assert lease is not None
    await bridge.store.accept(inbound, Lane.TURN)
    (turn,) = await bridge.store.claim(lease, 1)
    await bridge.store.finish(lease, turn.id, TurnState.DEAD, "it was not to be")
    await bridge.store.release(lease)
    async with httpx.AsyncClient(base_url=bridge.url, follow_redirects=True) as client:
        page = (await client.get("/console")).text
        assert "it was not to be" in page
        assert "hello &lt;b&gt;there" in page
        refused = await client.post(f"/console/retry/{turn.id}", headers={"origin": "https://evil.example"})
        assert refused.status_code == 403
        assert (await client.post(f"/console/retry/{turn.id}")).status_code == 200
    await eventually_done(bridge, place)


async def test_a_dead_letter_that_cannot_be_read_is_listed_with_the_reason(open_bridge: Open, tmp_path: Path) -> None:
    bridge = await open_bridge(channels=web_channel(tmp_path))
    place = Place("page", "somebody", private=True)
    inbound = Inbound(place, Sender("somebody"), "e1", InboundKind.COMMAND, "/status", 0.0, "m1")
    await bridge.store._database.write(partial(accept_unread, inbound=inbound))
    async with asyncio.timeout(20):
        while True:
            if await bridge.store.dead_letters():
                break
            await asyncio.sleep(0.02)
    page = (await get(bridge, "/console")).text
    assert "cannot be read by this version" in page
    assert "Ask again" not in page, "nothing can be asked again before it can be read"


def accept_unread(tx: Transaction, inbound: Inbound) -> None:
    """Accept it in words that only another version knows."""
    inbox.accept(tx, inbound, Lane.CONTROL)
    tx.connection.execute(inbounds.update().values(payload={"kind": "reaction"}))


async def owner_ended(bridge: Bridge) -> None:
    owned = bridge.manager._owned["page"]
    bridge.manager._replicas = []  # and it must not come back by itself before the test is ready
    await owned.task


async def eventually_done(bridge: Bridge, place: Place) -> None:
    async with asyncio.timeout(20):
        while True:
            conversation = await bridge.store.conversation_at(place)
            assert conversation is not None
            last = await bridge.store.last_turn(conversation.id)
            if last is not None and last.state is TurnState.DONE and last.final is not None and last.final.text:
                return
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("host", ["192.0.2.1", "a..b"])
async def test_an_address_that_this_machine_does_not_have_is_a_clear_error(open_bridge: Open, host: str) -> None:
    with pytest.raises(AddressInUse, match=f"cannot listen on server.host {host}"):
        await open_bridge(server=f"port: 0, host: {host}, admin_token: a-long-admin-token")


async def test_a_taken_port_is_a_clear_error(open_bridge: Open) -> None:
    first = await open_bridge()
    port = first.url.rpartition(":")[2]
    with pytest.raises(AddressInUse, match=port):
        await open_bridge(server=f"port: {port}")


async def test_a_webhook_body_no_platform_sends_is_refused_unread() -> None:
    async def hook(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("taken")(scope, receive, send)

    app = build_app(
        lambda: pytest.fail("nobody asked"),
        bytes,
        AdminGuard("127.0.0.1", None),
        hooks={"a": hook},
        console=(),
        mounts={},
    )
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
        assert (await client.post("/hooks/a", content=b"small")).text == "taken"
        assert (await client.post("/hooks/a", content=b"x" * 5_000_000)).status_code == 413
        assert (await client.post("/hooks/a", content=chunks())).status_code == 411
        assert (await client.post("/hooks/b", content=b"small")).status_code == 404


async def chunks() -> AsyncIterator[bytes]:
    yield b"x"
