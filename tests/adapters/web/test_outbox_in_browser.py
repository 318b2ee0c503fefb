"""Nothing that somebody has written is lost on its way, whatever becomes of files, of the page or of the sign-in."""

from __future__ import annotations

import os
from pathlib import Path

from playwright.async_api import Browser, Dialog, Page, expect

from tests.adapters.web.conftest import Serve
from tests.adapters.web.core import FakeSink
from tests.adapters.web.visits import Core, say, site, visit

_TOKEN = "a long token"
_UNTIL_TRIED_AGAIN = 20_000  # milliseconds; the page waits for up to 15 s between two tries
# The browser keeps them by their ids: these come in the order that is not theirs.
_FALLING_IDS = """() => {
    let next = 9;
    crypto.randomUUID = () => `00000000-0000-4000-8000-00000000000${next--}`;
}"""


def _save_again(file: Path) -> None:
    file.write_text("more than before")
    os.utime(file, (1, 1))


async def _attach(page: Page, *files: Path) -> None:
    await page.locator("#files").set_input_files(files)
    await expect(page.locator("#attached .chip-name")).to_have_text([file.name for file in files])
    await page.locator("#text").focus()


async def test_a_message_takes_its_files_as_they_are_when_it_is_sent_and_one_that_cannot_be_read_holds_nothing_up(
    chromium: Browser, serve: Serve, sink: FakeSink, tmp_path: Path
) -> None:
    deleted, changed, notes = (tmp_path / name for name in ("deleted.csv", "changed.csv", "notes.txt"))
    for file in (deleted, changed, notes):
        file.write_text("notes")
    async with site(serve, sink, Core()) as (url, _), visit(chromium, url) as page:
        await _attach(page, deleted, changed, notes)
        deleted.unlink()
        _save_again(changed)
        await say(page, "Look at these")
        await say(page, "Hello")
        await expect(page.locator(".refused .delivery")).to_contain_text(
            "deleted.csv, changed.csv can no longer be read."
        )
        await expect(page.locator(".reply")).to_contain_text("Echo: Hello")

        await page.locator(".refused button").click()
        await expect(page.locator("#text")).to_have_value("Look at these")
        await expect(page.locator("#attached .chip-name")).to_have_text("notes.txt")
        sink.is_away = True
        await page.keyboard.press("Enter")
        await expect(page.locator(".pending .delivery")).to_contain_text("Trying again")
        notes.unlink()
        sink.is_away = False
        await expect(page.locator(".reply").last).to_contain_text("Echo: Look at these")
        async with page.expect_download() as download:
            await page.locator(".ask a.chip").click()
        assert (await (await download.value).path()).read_text() == "notes"


async def test_a_message_with_files_waits_for_whoever_has_to_sign_in_again(
    chromium: Browser, serve: Serve, sink: FakeSink, tmp_path: Path
) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("notes")
    async with site(serve, sink, Core(), host="0.0.0.0", access_token=_TOKEN) as (url, _):
        context = await chromium.new_context()

        async def signed_in() -> Page:
            page = await context.new_page()
            await page.goto(url)
            await page.locator("#token").fill(_TOKEN)
            await page.keyboard.press("Enter")
            await expect(page.locator("#welcome:visible, .entry:visible").first).to_be_visible()
            return page

        page = await signed_in()
        (access,) = [cookie["name"] for cookie in await context.cookies() if "access" in cookie["name"]]
        await context.clear_cookies(name=access)
        await _attach(page, notes)
        await say(page, "A long question about the file")
        await expect(page.locator("#banner")).to_contain_text("Sign in again in another tab")
        await expect(page.locator(".pending .bubble")).to_contain_text("A long question about the file")
        assert sink.inbounds == []

        await signed_in()
        answer = page.locator(".reply")
        await expect(answer).to_contain_text("Echo: A long question about the file", timeout=_UNTIL_TRIED_AGAIN)
        assert [attachment.name for attachment in sink.inbounds[0].attachments] == ["notes.txt"]
        await expect(page.locator("#banner")).to_be_hidden()
        await context.close()


async def test_what_the_page_cannot_keep_is_warned_of_and_the_text_is_kept(
    chromium: Browser, serve: Serve, sink: FakeSink, tmp_path: Path
) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("notes")
    warnings: list[str] = []

    async def go_on(dialog: Dialog) -> None:
        warnings.append(dialog.type)
        await dialog.accept()

    async with site(serve, sink, Core()) as (url, _), visit(chromium, url) as page:
        page.on("dialog", go_on)
        sink.is_away = True
        await _attach(page, notes)
        await say(page, "A long question about the file")
        await expect(page.locator(".pending .delivery")).to_contain_text("Trying again")
        await page.reload()
        assert warnings == ["beforeunload"]
        await expect(page.locator(".refused .bubble")).to_contain_text("A long question about the file")
        await expect(page.locator(".refused .delivery")).to_contain_text("please attach notes.txt again")

        # One without files that was refused is kept, too.
        sink.is_away, sink.ignores = False, True
        await page.locator(".refused button").click()
        await page.keyboard.press("Enter")
        await expect(page.locator(".refused .delivery")).to_contain_text("did not take")
        await page.reload()
        assert warnings == ["beforeunload"]
        await expect(page.locator(".refused .delivery")).to_contain_text("did not take")
        await page.locator(".refused button").click()
        await expect(page.locator("#text")).to_have_value("A long question about the file")


async def test_waiting_messages_stand_in_the_order_in_which_they_are_sent_in_every_tab(
    chromium: Browser, serve: Serve, sink: FakeSink
) -> None:
    texts = ["one", "two", "three", "four"]
    async with site(serve, sink, Core()) as (url, _), visit(chromium, url) as page:
        await page.evaluate(_FALLING_IDS)
        sink.is_away = True
        for text in texts:
            await say(page, text)
        other = await page.context.new_page()
        await other.goto(url)
        for tab in (page, other):
            await expect(tab.locator("#outbox .bubble")).to_have_text(texts)
        sink.is_away = False
        await expect(page.locator("#timeline .ask .bubble")).to_have_text(texts, timeout=_UNTIL_TRIED_AGAIN)
        assert [inbound.text for inbound in sink.inbounds] == texts
