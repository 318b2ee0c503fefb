"""Several pages on one server, each at its own path."""

from __future__ import annotations

import httpx
import pytest

from channels.server import AdminGuard, build_app
from tests.adapters.web.core import FakeSink, adapter_for


@pytest.mark.parametrize("url", ["/team", "/team/", "/team/red", "/team/red/", "/", ""])
async def test_a_page_is_found_with_and_without_its_last_slash_whatever_else_is_there(url: str) -> None:
    pages = {path: adapter_for(FakeSink(), path=path, title=f"Page of {path}") for path in ("/", "/team", "/team/red")}
    for page in pages.values():
        await page.start()
    app = build_app(
        lambda: pytest.fail("nobody asked"),
        bytes,
        AdminGuard("127.0.0.1", None),
        hooks={},
        console=(),
        mounts={path: page.app for path, page in pages.items()},
    )
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://127.0.0.1:8080", follow_redirects=True
    ) as browser:
        answer = await browser.get(f"{url}?a=1%262")
        assert f"<title>Page of {url.rstrip('/') or '/'}</title>" in answer.text
        assert answer.url.path == f"{url.rstrip('/')}/"
        assert answer.url.query == b"a=1%262"
        assert (await browser.get(f"{url.rstrip('/')}/nothing")).status_code == 404
    for page in pages.values():
        await page.stop()
