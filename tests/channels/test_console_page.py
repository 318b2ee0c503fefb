"""The console as an operator sees it, also on a phone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from playwright.async_api import Browser, ViewportSize
from starlette.applications import Starlette

from channels.adapter import ChannelState, Health
from channels.console import Console
from channels.server import AdminGuard
from channels.store.records import Counts
from tests.browser import chromium

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


class _Store:
    async def counts(self) -> list[Counts]:
        return [Counts("team-slack", 12, 34, 56)]

    async def dead_letters(self, *, limit: int) -> list[object]:
        return []


@pytest.mark.parametrize("width", [1280, 700, 360])
async def test_every_cell_of_the_console_is_in_sight_at_any_width(chromium: Browser, width: int) -> None:
    console = Console(
        AdminGuard("127.0.0.1", None),
        store=_Store,  # type: ignore[arg-type]
        readiness=_State,
        owners=lambda: {"team-slack": "machine/4026531836:18636:ea6eb214"},
        replicas=lambda: ["machine/4026531836:18636:ea6eb214"],
    )
    transport = httpx.ASGITransport(Starlette(routes=console.routes()))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
        html = (await client.get("/console")).text
    page = await chromium.new_page(viewport=ViewportSize(width=width, height=900))
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
