"""Who may use the page: this machine, or who has the token; never another site on somebody's behalf."""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator

import httpx
import pytest
from itsdangerous import TimestampSigner
from starlette.applications import Starlette
from starlette.routing import Mount

from adapters.web.adapter import WebAdapter
from channels.adapter import ChannelState
from channels.loopback import is_loopback
from channels.server import Server
from tests.adapters.web.conftest import visiting
from tests.adapters.web.core import FakeSink, adapter_for
from tests.clock import ManualClock
from tests.proxies import behind_proxy

TOKEN = "correct horse battery"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def locked(sink: FakeSink, clock: ManualClock) -> AsyncIterator[WebAdapter]:
    """A channel on all addresses, with a token."""
    adapter = adapter_for(sink, clock=clock, host="0.0.0.0", access_token=TOKEN, public_url="https://chat.example.org")
    await adapter.start()
    yield adapter
    await adapter.stop()


async def _post(visitor: httpx.AsyncClient, **headers: str) -> httpx.Response:
    form = {"id": (None, str(uuid.uuid4())), "text": (None, "Hello")}
    return await visitor.post("/messages", files=form, headers=headers)


# ---------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    ("host", "public_url"),
    [
        *(
            (host, None)
            for host in ("0.0.0.0", "::", "192.168.1.5", "bridge.example.org", "", "127.0.0.1.evil.example")
        ),
        ("127.0.0.1", "https://bridge.example.org"),
        ("::1", "http://bridge.example.org/below"),
    ],
)
async def test_without_a_token_the_channel_refuses_to_start_where_others_could_reach_it(
    sink: FakeSink, host: str, public_url: str | None
) -> None:
    adapter = adapter_for(sink, host=host, public_url=public_url)
    await adapter.start()
    state, reason = sink.reports[-1]
    assert state is ChannelState.FAILED
    assert "access_token" in reason
    assert (public_url or host) in reason
    async with visiting(adapter) as visitor:
        answer = await visitor.get("/")
    assert answer.status_code == 503
    assert "access_token" in answer.json()["error"]
    assert not (await adapter.check())[0].ok
    await adapter.stop()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "[::1]", "localhost", "LOCALHOST."])
def test_loopback_addresses_are_known(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "name", ["evil.example:8080", "192.168.1.5", "127.0.0.1.evil.example", "localhost.evil.example", "", "@127.0.0.1:x"]
)
async def test_a_name_that_was_rebound_to_this_machine_is_refused(adapter: WebAdapter, name: str) -> None:
    async with visiting(adapter) as visitor:
        for path in ("/", "/events", "/static/app.js", "/history"):
            answer = await visitor.get(path, headers={"host": name})
            assert answer.status_code in (400, 421)
            assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("path", ["/", "/messages"])
@pytest.mark.parametrize(
    ("client", "headers"),
    [
        ("192.168.1.5", {}),
        ("127.0.0.1", {"origin": "https://bridge.example.org", "sec-fetch-site": "same-origin"}),
    ],
    ids=["it says for whom it asks", "it does not"],
)
async def test_what_a_proxy_passes_on_is_not_from_this_machine(
    adapter: WebAdapter, sink: FakeSink, client: str, headers: dict[str, str], path: str
) -> None:
    transport = httpx.ASGITransport(app=adapter.app, client=(client, 1))
    own = {"x-channel-bridge": "1", **headers}
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080", headers=own) as visitor:
        answer = await visitor.request("GET" if path == "/" else "POST", path)
    assert answer.status_code == 421
    assert "access_token" in answer.json()["error"]
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("name", ["127.0.0.1:8080", "localhost:1", "[::1]:8080", "LOCALHOST"])
async def test_this_machine_is_let_in_by_its_own_names(adapter: WebAdapter, name: str) -> None:
    async with visiting(adapter) as visitor:
        assert (await visitor.get("/", headers={"host": name})).status_code == 200


# ---------------------------------------------------------------- other sites


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "http://127.0.0.1:8080.evil.example"},
        {"origin": "http://[evil"},
        {"origin": "http://evil@127.0.0.1:8080"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
async def test_other_sites_cannot_post(visitor: httpx.AsyncClient, sink: FakeSink, headers: dict[str, str]) -> None:
    answer = await _post(visitor, **headers)
    assert answer.status_code == 403
    assert "Host header" in answer.json()["error"], "it may be the page itself, behind a proxy"
    assert "server.public_url" in answer.json()["error"]
    assert sink.inbounds == []


@pytest.mark.parametrize(
    "own",
    [
        {"origin": "http://127.0.0.1:8080", "sec-fetch-site": "same-origin"},
        {"origin": "http://127.0.0.1:8080"},
        {"sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "none"},
    ],
)
async def test_the_page_itself_can_post(visitor: httpx.AsyncClient, own: dict[str, str]) -> None:
    assert (await _post(visitor, **own)).status_code == 200


async def test_a_form_cannot_post_because_it_cannot_set_the_header(visitor: httpx.AsyncClient, sink: FakeSink) -> None:
    visitor.headers.pop("x-channel-bridge")
    for path in ("/messages", "/presses"):
        assert (await visitor.post(path, data={"id": str(uuid.uuid4()), "text": "x"})).status_code == 403
    assert sink.inbounds == []


async def test_other_sites_cannot_read(visitor: httpx.AsyncClient) -> None:
    for path in ("/events", "/history?order=1&seq=1", "/files/x/y", "/uploads/x"):
        assert (await visitor.get(path, headers={"sec-fetch-site": "cross-site"})).status_code == 403
    assert (await visitor.get("/", headers={"sec-fetch-site": "cross-site"})).status_code == 200


async def test_every_answer_carries_the_security_headers(adapter: WebAdapter, locked: WebAdapter) -> None:
    for app in (adapter, locked, adapter_for(FakeSink())):
        async with visiting(app) as visitor:
            for answer in [await visitor.get(path) for path in ("/", "/nothing", "/static/app.css", "/history")]:
                policy = answer.headers["content-security-policy"]
                assert "default-src 'none'" in policy
                assert "script-src 'self';" in policy
                assert "frame-ancestors 'none'" in policy
                assert "unsafe" not in policy
                assert answer.headers["x-content-type-options"] == "nosniff"
                assert answer.headers["referrer-policy"] == "same-origin"


async def test_the_page_needs_no_inline_script_or_style(adapter: WebAdapter, locked: WebAdapter) -> None:
    for app in (adapter, locked):
        async with visiting(app) as visitor:
            page = (await visitor.get("/")).text
        assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", page)


# ---------------------------------------------------------------- cookies


async def test_each_browser_gets_a_conversation_of_its_own(adapter: WebAdapter, sink: FakeSink) -> None:
    for _ in range(2):
        async with visiting(adapter) as visitor:
            await visitor.get("/")
            await _post(visitor)
            await visitor.get("/")
            await _post(visitor)
    chats = [inbound.place.chat for inbound in sink.inbounds]
    assert chats[0] == chats[1] != chats[2] == chats[3]


async def test_the_cookie_is_signed_and_kept_from_scripts_and_other_sites(adapter: WebAdapter) -> None:
    async with visiting(adapter) as visitor:
        cookie = (await visitor.get("/")).headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert "Secure" not in cookie


async def test_a_cookie_that_was_tampered_with_is_nobody(visitor: httpx.AsyncClient) -> None:
    ((name, value),) = visitor.cookies.items()
    browser, _, signature = value.rpartition(".")
    for forged in (browser, f"{'0' * 32}.{signature}", f"{browser}.{signature[:-2]}", "", "é", "." * 50):
        visitor.cookies.clear()
        answer = await visitor.get("/history?order=1&seq=1", headers={b"cookie": f"{name}={forged}".encode()})
        assert answer.status_code == 401


async def test_without_a_cookie_nothing_is_taken(adapter: WebAdapter, sink: FakeSink) -> None:
    async with visiting(adapter) as visitor:
        assert (await _post(visitor)).status_code == 401
        assert (await visitor.get("/events")).status_code == 401
    assert sink.inbounds == []


async def test_browsers_keep_their_conversation_over_a_restart(sink: FakeSink) -> None:
    first = adapter_for(sink)
    await first.start()
    async with visiting(first) as visitor:
        await visitor.get("/")
        cookies = visitor.cookies
    await first.stop()
    second = adapter_for(sink)
    await second.start()
    async with visiting(second) as visitor:
        visitor.cookies = cookies
        assert (await visitor.get("/history?order=1&seq=1")).status_code == 200
    await second.stop()
    other = adapter_for(FakeSink())
    await other.start()
    async with visiting(other) as visitor:
        visitor.cookies = cookies
        assert (await visitor.get("/history?order=1&seq=1")).status_code == 401
    await other.stop()


async def test_the_cookie_key_of_the_settings_is_used_and_not_stored() -> None:
    sinks = [FakeSink(), FakeSink()]
    adapters = [adapter_for(sink, cookie_key="a key of the operator, long enough") for sink in sinks]
    for adapter in adapters:
        await adapter.start()
    async with visiting(adapters[0]) as visitor:
        await visitor.get("/")
        cookies = visitor.cookies
    async with visiting(adapters[1]) as visitor:
        visitor.cookies = cookies
        assert (await visitor.get("/history?order=1&seq=1")).status_code == 200
    for adapter in adapters:
        await adapter.stop()
    assert sinks[0].memory == {}


async def test_cookies_of_two_bridges_on_one_machine_do_not_replace_each_other() -> None:
    names = set()
    for _ in range(2):
        adapter = adapter_for(FakeSink())
        await adapter.start()
        async with visiting(adapter) as visitor:
            await visitor.get("/")
            names |= set(visitor.cookies)
        await adapter.stop()
    assert len(names) == 2


@pytest.mark.parametrize("below", ["", "/bridge"])
async def test_cookies_belong_to_the_place_where_visitors_see_the_page(adapter: WebAdapter, below: str) -> None:
    mounted = Starlette(routes=[Mount("/chat", adapter.app)])
    transport = httpx.ASGITransport(app=behind_proxy(mounted, below=below))
    base = f"http://localhost:1{below}"
    async with httpx.AsyncClient(transport=transport, base_url=base, follow_redirects=True) as visitor:
        assert (await visitor.get("/chat/")).status_code == 200
        assert (await visitor.get("/chat/history?order=1&seq=1")).status_code == 200
        assert (await visitor.get("/chat/static/app.js")).headers["cache-control"] == "no-cache"
        cross = await visitor.get("/chat/history?order=1&seq=1", headers={"sec-fetch-site": "cross-site"})
        assert cross.status_code == 403
        elsewhere = visitor.build_request("GET", "/chatter/")
        visitor.cookies.set_cookie_header(elsewhere)
        assert "cookie" not in elsewhere.headers


# ---------------------------------------------------------------- tokens


async def test_without_signing_in_only_the_sign_in_page_is_shown(locked: WebAdapter, sink: FakeSink) -> None:
    assert sink.reports[-1][0] is ChannelState.RUNNING
    async with visiting(locked, base_url="http://192.168.1.5:8080/") as visitor:
        page = await visitor.get("/")
        assert page.status_code == 401
        assert 'action="sign-in"' in page.text
        assert "set-cookie" not in page.headers
        for path in ("/events", "/history?order=1&seq=1", "/files/a/b", "/uploads/a"):
            assert (await visitor.get(path)).status_code == 401
        assert (await _post(visitor)).status_code == 401
        assert (await visitor.get("/static/app.css")).status_code == 200
    assert sink.inbounds == []


async def test_the_token_signs_in_until_signing_out(locked: WebAdapter) -> None:
    async with visiting(locked, base_url="https://chat.example.org/") as visitor:
        answer = await visitor.post("/sign-in", data={"token": f" {TOKEN}\n"})
        assert (answer.status_code, answer.headers["location"]) == (303, "./")
        assert "HttpOnly" in answer.headers["set-cookie"]
        assert "Secure" in answer.headers["set-cookie"]
        assert TOKEN not in answer.headers["set-cookie"]
        assert 'id="composer"' in (await visitor.get("/")).text
        assert (await _post(visitor)).status_code == 200
        await visitor.post("/sign-out")
        assert (await visitor.get("/")).status_code == 401
        assert (await _post(visitor)).status_code == 401


async def test_who_comes_back_within_a_month_stays_signed_in(
    locked: WebAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with visiting(locked) as visitor:

        async def come_back(day: int) -> int:
            monkeypatch.setattr(TimestampSigner, "get_timestamp", lambda _: day * 86_400)
            return (await visitor.get("/")).status_code

        assert await come_back(0) == 401
        await visitor.post("/sign-in", data={"token": TOKEN})
        assert [await come_back(day) for day in (29, 58, 87)] == [200, 200, 200]
        assert await come_back(87 + 31) == 401


async def test_a_wrong_token_does_not_sign_in(locked: WebAdapter) -> None:
    async with visiting(locked) as visitor:
        for given in ("", "wrong", TOKEN + "x", TOKEN[:-1], "\udc80"):
            answer = await visitor.post("/sign-in", content=b"token=" + given.encode("utf-8", "surrogatepass"))
            assert answer.status_code == 401
            assert "set-cookie" not in answer.headers


async def test_guessing_is_slowed_down_and_stays_possible_from_elsewhere(
    locked: WebAdapter, clock: ManualClock
) -> None:
    async def sign_in(address: str, token: str) -> int:
        transport = httpx.ASGITransport(app=locked.app, client=(address, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://h") as visitor:
            return (await visitor.post("/sign-in", data={"token": token})).status_code

    assert [await sign_in("10.0.0.1", "guess") for _ in range(11)] == [401] * 10 + [429]
    assert await sign_in("10.0.0.1", TOKEN) == 429
    assert await sign_in("10.0.0.2", TOKEN) == 303
    await clock.advance(61)
    assert await sign_in("10.0.0.1", TOKEN) == 303


@pytest.mark.parametrize(("trusted", "status"), [("127.0.0.1,10.0.0.0/8", 303), ("10.0.0.0/8", 429)])
async def test_visitors_are_told_apart_behind_a_proxy_that_is_trusted(
    locked: WebAdapter, monkeypatch: pytest.MonkeyPatch, trusted: str, status: int
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", trusted)
    server = Server(locked.app, "127.0.0.1", 0)
    await server.start()
    async with httpx.AsyncClient(base_url=server.url) as proxy:

        async def sign_in(visitor: str, token: str) -> int:
            headers = {"x-forwarded-for": f"{visitor}, 10.0.0.7"}
            return (await proxy.post("/sign-in", data={"token": token}, headers=headers)).status_code

        assert [await sign_in("192.0.2.1", "guess") for _ in range(10)] == [401] * 10
        assert await sign_in("192.0.2.2", TOKEN) == status
    await server.stop()


async def test_programs_use_the_token_as_bearer(locked: WebAdapter) -> None:
    async with visiting(locked, authorization=f"Bearer {TOKEN}") as program:
        assert 'id="composer"' in (await program.get("/")).text
        assert (await _post(program)).status_code == 200
    async with visiting(locked, authorization="Bearer wrong") as program:
        for path in ("/", "/history?order=1&seq=1"):
            assert (await program.get(path)).status_code == 401


async def test_a_changed_token_signs_everybody_out(sink: FakeSink, locked: WebAdapter) -> None:
    async with visiting(locked) as visitor:
        await visitor.post("/sign-in", data={"token": TOKEN})
        cookies = visitor.cookies
    changed = adapter_for(sink, host="0.0.0.0", access_token="another long token")
    await changed.start()
    async with visiting(changed) as visitor:
        visitor.cookies = cookies
        assert (await visitor.get("/")).status_code == 401
    await changed.stop()


async def test_a_page_behind_a_proxy_is_its_own_site_and_has_secure_cookies(locked: WebAdapter) -> None:
    async with visiting(locked, base_url="http://chat.example.org/", authorization=f"Bearer {TOKEN}") as visitor:
        answer = await visitor.get("/")
        assert "Secure" in answer.headers["set-cookie"]
    async with visiting(locked, base_url="http://10.0.0.5:8080/", authorization=f"Bearer {TOKEN}") as visitor:
        await visitor.get("/")
        assert (await _post(visitor, origin="https://chat.example.org")).status_code == 200
        assert (await _post(visitor, origin="https://chat.example.org:443")).status_code == 200
        assert (await _post(visitor, origin="https://evil.example.org")).status_code == 403
        assert (await _post(visitor, origin="https://chat.example.org:8443")).status_code == 403
    async with visiting(locked, base_url="http://chat.example.org:443/", authorization=f"Bearer {TOKEN}") as visitor:
        await visitor.get("/")
        assert (await _post(visitor, origin="https://chat.example.org")).status_code == 200


async def test_the_token_appears_nowhere(locked: WebAdapter, sink: FakeSink) -> None:
    async with visiting(locked) as visitor:
        texts = [(await visitor.get("/")).text, (await visitor.post("/sign-in", data={"token": "wrong one"})).text]
        await visitor.post("/sign-in", data={"token": TOKEN})
        texts.append((await visitor.get("/")).text)
    texts += [repr(locked), repr(vars(locked)), repr(sink.reports), repr(await locked.check())]
    assert not [text for text in texts if TOKEN in text]
