"""The whole demo in a real Chromium: everything a visitor can do, on the page they do it on."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from playwright.async_api import Browser, Locator, Page, ViewportSize, expect

from adapters.embedded.demo_texts import STORY
from tests.demo import BridgeProcess

expect.set_options(timeout=30_000)

_LAST_WORDS = "somebody is coming from the west with a letter in the hand"
_RECORD = """() => {
    window.seen = [];
    const note = () => {
        const pieces = [...document.querySelectorAll('.reply:last-of-type .piece[data-key^="b"]')];
        const text = pieces.map((piece) => piece.innerText).join("\\n");
        if (text && window.seen.at(-1) !== text) window.seen.push(text);
    };
    const options = { subtree: true, childList: true, characterData: true };
    new MutationObserver(note).observe(document.getElementById("timeline"), options);
}"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


@asynccontextmanager
async def opened(chromium: Browser, url: str, width: int = 1000, height: int = 800) -> AsyncIterator[Page]:
    """A new visitor with the page open. An error of a script, or against the page's own rules, fails the test."""
    context = await chromium.new_context(viewport=ViewportSize(width=width, height=height))
    page = await context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda line: errors.append(line.text) if "Content Security Policy" in line.text else None)
    await page.goto(url)
    await expect(page.locator("#welcome, .entry").first).to_be_visible()
    yield page
    assert errors == []
    await context.close()


async def say(page: Page, text: str) -> Locator:
    """Type a message and send it; returns the reply to it, which may not be there yet."""
    count = await page.locator(".reply").count()
    await page.locator("#text").fill(text)
    await page.keyboard.press("Enter")
    return page.locator(".reply").nth(count)


async def done(reply: Locator) -> None:
    await expect(reply).to_have_attribute("data-phase", "done")


@pytest.mark.timeout(240)
async def test_a_visitor_tries_everything(chromium: Browser, tmp_path: Path) -> None:
    pace = {"CHANNEL_BRIDGE_DEMO_PACE": "0.055"}  # longer than the page's shortest time between two updates
    async with (
        BridgeProcess("demo", "--port", "0", folder=tmp_path, environment=pace) as demo,
        opened(chromium, demo.url) as page,
    ):
        # Typing is enough; the answer grows in steps of less than a word.
        await page.evaluate(_RECORD)
        await page.keyboard.type("my name is Maximilian")
        await page.keyboard.press("Enter")
        first = page.locator(".reply").first
        await done(first)
        seen: list[str] = await page.evaluate("window.seen")
        assert len(seen) >= 5
        assert all(later.startswith(earlier.rstrip()) for earlier, later in pairwise(seen))
        words = set(seen[-1].split())
        assert any(text.split()[-1] not in words for text in seen), "every step was whole words"

        # Tools show what they do, and are folded away when the answer is there.
        weather = await say(page, "Weather in Paris and Tokyo")
        await done(weather)
        await expect(weather.locator(".steps summary")).to_contain_text("2 steps")
        await expect(weather.locator(".step-done")).to_have_count(2)
        await expect(weather.locator("table")).to_contain_text("Tokyo")

        # A question with buttons.
        asked = await say(page, "Book a table")
        await asked.locator(".option", has_text="4 people").click()
        await expect(asked.locator(".question")).to_contain_text("Answered: 4 people")
        await expect(page.locator(".reply").last).to_contain_text("A table for 4 people it is")

        # Stop; what was written stays.
        story = await say(page, "Tell me a long story")
        await expect(story).to_contain_text("Where the river")
        await story.locator(".stop").click()
        await expect(story).to_have_attribute("data-phase", "stopped")
        await expect(story).to_contain_text("Where the river")

        # Commands.
        help_ = await say(page, "/help")
        for command in ("/new", "/stop", "/retry", "/status", "/help"):
            await expect(help_).to_contain_text(command)
        await page.locator("#new").click()
        await expect(page.locator(".divider")).to_have_text("New conversation")
        await expect(page.locator(".reply").last).to_contain_text("A new conversation begins.")
        await expect(await say(page, "what is my name?")).to_contain_text("You have not told me yet")

        # Reloaded in the middle of an answer, the page shows it and its growth.
        story = await say(page, "Tell me a long story")
        await expect(story).to_contain_text("Where the river")
        await page.reload()
        story = page.locator(".reply.live")
        await expect(story).to_contain_text("Where the river")
        length = len(await story.inner_text())
        async with asyncio.timeout(30):
            while len(await story.inner_text()) < length + 40:  # noqa: ASYNC110  (the page tells nobody here)
                await asyncio.sleep(0.1)
        await page.keyboard.press("Escape")
        await expect(page.locator(".reply.live")).to_have_count(0)

        # The same on a phone, in light and dark: nothing is wider than the screen.
        await page.set_viewport_size(ViewportSize(width=360, height=740))
        for scheme in ("light", "dark"):
            await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
            await page.screenshot(path=tmp_path / f"{scheme}.png")
            assert await page.evaluate("document.documentElement.scrollWidth") == 360


@pytest.mark.timeout(180)
async def test_killed_in_the_middle_of_an_answer_and_started_again_it_is_completed_once(
    chromium: Browser, tmp_path: Path
) -> None:
    # The embedded gateway dies with the bridge; its run begins anew. The page stays open all the while.
    arguments = ("demo", "--port", str(free_port()))
    slow, quick = {"CHANNEL_BRIDGE_DEMO_PACE": "0.02"}, {"CHANNEL_BRIDGE_DEMO_PACE": "0.001"}
    doomed = BridgeProcess(*arguments, folder=tmp_path, environment=slow)
    successor = BridgeProcess(*arguments, folder=tmp_path, environment=quick)
    try:
        await doomed.start()
        async with opened(chromium, doomed.url) as page:
            story = await say(page, "Tell me a long story")
            await expect(story).to_contain_text("Where the river")
            await doomed.kill()
            await expect(page.locator("#banner")).to_contain_text("Connection lost")
            await expect(story).to_contain_text("Where the river")
            await successor.start()
            assert successor.url == doomed.url
            await done(story)
            text = await story.inner_text()
            assert _LAST_WORDS in text
            assert text.count("The Keeper of the Three Bridges") == 1
            assert text.count(_LAST_WORDS) == STORY.count(_LAST_WORDS) == 1
            assert [text.count(f"{chapter}. ") for chapter in range(1, 11)] == [
                STORY.count(f"{chapter}. ") for chapter in range(1, 11)
            ]
            await expect(page.locator(".reply")).to_have_count(1)
            await expect(page.locator(".ask")).to_have_count(1)
            # A page that is opened now shows the same.
            await page.reload()
            await expect(page.locator(".reply")).to_have_count(1)
            assert _LAST_WORDS in await page.locator(".reply").inner_text()
            # And the conversation goes on.
            await expect(await say(page, "what did I say before?")).to_contain_text("Tell me a long story")
    finally:
        await doomed.kill()
        await successor.kill()
