"""A real Chromium for tests of pages. A machine without one skips them loudly; in CI that is a failure."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, async_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
_ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def chromium_path() -> str:
    """Where this machine's Chromium is. Skips the test, or in CI fails it, when there is none."""
    for name in _NAMES:
        if path := shutil.which(name):
            return path
    missing = "no Chromium is installed: the pages are NOT tested (Debian: apt-get install chromium)"
    if os.environ.get("CI"):
        pytest.fail(missing)
    warnings.warn(missing, stacklevel=2)
    pytest.skip(missing)


@pytest.fixture
async def chromium(tmp_path: Path) -> AsyncIterator[Browser]:
    """A Chromium of this test's own; every context in it is a new visitor."""
    path = chromium_path()
    async with async_playwright() as playwright:
        # Playwright makes a fresh profile and removes it; crash dumps and caches go to the test's folder.
        environment: dict[str, str | float | bool] = {
            **os.environ,
            "XDG_CONFIG_HOME": str(tmp_path),
            "XDG_CACHE_HOME": str(tmp_path),
        }
        browser = await playwright.chromium.launch(executable_path=path, args=list(_ARGUMENTS), env=environment)
        try:
            yield browser
        finally:
            await browser.close()
