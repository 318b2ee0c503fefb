"""The console as an operator sees it, also on a phone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from playwright.async_api import Browser, ViewportSize, expect
from starlette.applications import Starlette

from channels.adapter import ChannelState, Health
from channels.console import Console
from channels.model import Action, Inbound, InboundKind, Place, Press, Sender, TurnId
from channels.server import AdminGuard, Server
from channels.store.records import Conversation, Counts, Lane, Turn, TurnState
from tests.browser import chromium
from tests.proxies import behind_proxy

__all__ = ["chromium"]

_COLUMNS = ["Channel", "State", "Reason", "Waiting", "In work", "Given up", "Owner"]
_REASON = "Slack says unauthorised: the bot token is wrong or has been revoked"


@dataclass
class _State:
    ready: bool = False
    gateway: dict[str, Any] = field(default_factory=lambda: {"ok": True, "reason": "", "dialect": "langgraph"})
    store: dict[str, Any] = field(default_factory=lambda: {"ok": True, "reason": ""})
    channels: dict[str, Health] = field(
        default_factory=lambda: {"team-slack": Health(ChannelState.FAILED, _REASON, 1_750_000_000.0)}
    )


@dataclass
class _Store:
    dead: list[Turn] = field(default_factory=list)
    accepted: list[tuple[Inbound, Lane]] = field(default_factory=list)

    async def counts(self) -> list[Counts]:
        return [Counts("team-slack", 12, 34, 56)]

    async def dead_letters(self, *, limit: int) -> list[Turn]:
        return self.dead

    async def turn(self, turn: TurnId) -> Turn | None:
        return next((dead for dead in self.dead if dead.id == turn), None)

    async def accept(self, inbound: Inbound, lane: Lane) -> None:
        self.accepted.append((inbound, lane))


def _console(store: _Store, guard: AdminGuard) -> Starlette:
    console = Console(
        guard,
        store=lambda: store,  # type: ignore[arg-type, return-value]
        readiness=_State,
        owners=lambda: {"team-slack": "machine/4026531836:18636:ea6eb214"},
        replicas=lambda: ["machine/4026531836:18636:ea6eb214"],
    )
    return Starlette(routes=console.routes())


def _dead_letter() -> Turn:
    place = Place("team-slack", "C1")
    question = Inbound(place, Sender("U1"), "e1", InboundKind.MESSAGE, "Is anybody there?", 0.0, "m1")
    conversation = Conversation(1, place.channel, place, 0, None, None)
    return Turn(TurnId("a" * 32), conversation, (question,), TurnState.DEAD, 0.0, note="the gateway was away")


async def test_every_cell_of_the_console_is_in_sight_at_any_width(chromium: Browser) -> None:
    transport = httpx.ASGITransport(_console(_Store(), AdminGuard("127.0.0.1", None)))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
        html = (await client.get("/console")).text
    page = await chromium.new_page()
    for width in (1280, 700, 360):
        await page.set_viewport_size(ViewportSize(width=width, height=900))
        await page.set_content(html)
        cells = await page.locator(".rows td").evaluate_all(
            """(cells) => cells.map((cell) => {
                const { left, right } = cell.getBoundingClientRect();
                return [left, right, cell.innerText, getComputedStyle(cell, "::before").content];
            })"""
        )
        assert [text for left, right, text, _ in cells if left < 0 or right > width] == []
        assert len(cells) == 7
        # Where there are no columns, each cell says what it is.
        has_columns = await page.locator(".rows th").first.is_visible()
        assert [name.strip('"') for *_, name in cells if name != "none"] == ([] if has_columns else _COLUMNS)
    await page.close()


async def test_a_dead_letter_is_asked_again_with_a_button(chromium: Browser) -> None:
    # Browsers tell more about their requests where TLS or the machine itself keeps them from being listened to.
    for address, proxied_name, public_url in (
        ("", None, None),
        ("", "10.0.0.5:8080", None),
        ("http://bridge.test", None, None),
        ("http://bridge.test", "10.0.0.5:8080", "http://bridge.test"),
    ):
        store = _Store([_dead_letter()])
        console = _console(store, AdminGuard("0.0.0.0", "a-long-admin-token", public_url))
        server = Server(behind_proxy(console, host=proxied_name), "127.0.0.1", 0)
        await server.start()
        context = await chromium.new_context(proxy={"server": server.url} if address else None)
        page = await context.new_page()
        await page.goto(f"{address or server.url}/console")
        await page.get_by_label("Admin token").fill("a-long-admin-token")
        await page.get_by_role("button", name="Sign in").click()
        async with page.expect_response("**/console/retry/*") as retried:
            await page.get_by_role("button", name="Ask again").click()
        assert (await retried.value).status == 303, (address, proxied_name)
        await expect(page.get_by_role("heading", name="Given up")).to_be_visible()
        ((inbound, lane),) = store.accepted
        assert (inbound.press, lane) == (Press(Action.RETRY, TurnId("a" * 32)), Lane.CONTROL)
        await context.close()
        await server.stop()


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site", "origin": "http://127.0.0.1:8080"},
    ],
)
async def test_another_site_cannot_press_the_console_s_buttons(headers: dict[str, str]) -> None:
    store = _Store([_dead_letter()])
    transport = httpx.ASGITransport(_console(store, AdminGuard("127.0.0.1", None)))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
        answer = await client.post(f"/console/retry/{'a' * 32}", headers=headers)
    assert answer.status_code == 403
    assert "server.public_url" in answer.text  # the operator's own browser may be behind a proxy
    assert store.accepted == []
