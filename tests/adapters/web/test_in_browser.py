"""The page in a real Chromium, with a scripted core behind it."""

from __future__ import annotations

from collections.abc import Awaitable
from itertools import pairwise
from pathlib import Path

from playwright.async_api import Browser, expect
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp

from channels.model import Action
from tests.adapters.web.conftest import Serve
from tests.adapters.web.core import FakeSink, until
from tests.adapters.web.visits import WORDS, Core, say, site, visit
from tests.proxies import behind_proxy


async def test_an_answer_grows_stops_survives_a_reload_and_stays_private(
    chromium: Browser, serve: Serve, sink: FakeSink
) -> None:
    core = Core()
    async with site(serve, sink, core) as (url, answers), visit(chromium, url) as page:
        # The composer has the focus: typing is enough.
        await page.evaluate(
            """() => {
                window.seen = [];
                const note = () => {
                    const text = document.querySelector('.reply .piece[data-key^="b"]')?.innerText;
                    if (text && window.seen.at(-1) !== text) window.seen.push(text);
                };
                const options = { subtree: true, childList: true, characterData: true };
                new MutationObserver(note).observe(document.getElementById("timeline"), options);
            }"""
        )
        await say(page, "grow")
        await expect(page.locator(".ask .bubble")).to_have_text("grow")
        middle = WORDS[len(WORDS) // 2]
        await expect(page.locator(".reply")).to_contain_text(middle)
        seen: list[str] = await page.evaluate("window.seen")
        assert len(seen) >= 5
        assert all(later.startswith(earlier.rstrip()) for earlier, later in pairwise(seen))
        assert any(not text.endswith(tuple(WORDS)) for text in seen)
        await expect(page.locator(".reply.live .stop")).to_be_visible()

        # Reloaded in the middle, it is there again and goes on.
        await page.reload()
        await expect(page.locator(".reply.live")).to_contain_text(middle)
        core.go.set()
        await expect(page.locator('.reply[data-phase="done"]')).to_contain_text(" ".join(WORDS))
        assert await page.locator(".reply").count() == 1
        await expect(page.locator(".stop")).to_have_count(0)

        # Escape stops the next one.
        core.go.clear()
        await page.locator("#text").focus()
        await say(page, "grow")
        await expect(page.locator(".reply.live")).to_contain_text(middle)
        await page.keyboard.press("Escape")
        await until(lambda: len(answers.presses) == 1)
        core.go.set()
        await expect(page.locator('.reply[data-phase="stopped"]')).to_contain_text("Stopped.")
        assert [inbound.press.action for inbound in answers.presses if inbound.press] == [Action.STOP]

        # Another browser sees nothing of it.
        async with visit(chromium, url) as stranger:
            await expect(stranger.locator("#welcome")).to_be_visible()
            await expect(stranger.locator(".entry")).to_have_count(0)


async def test_questions_are_answered_by_keyboard_button_and_free_text(
    chromium: Browser, serve: Serve, sink: FakeSink
) -> None:
    async with site(serve, sink, Core()) as (url, answers), visit(chromium, url) as page:
        await say(page, "ask")
        first = page.locator(".question .option").first
        await expect(first).to_be_focused()
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await expect(page.locator(".reply").last).to_contain_text("You chose: Fast")
        await expect(page.locator(".question")).to_contain_text("Answered: Fast")
        await expect(page.locator(".option.chosen")).to_have_text("Fast")
        await expect(page.locator("#text")).to_be_focused()
        assert await page.locator(".bubble").all_inner_texts() == ["ask", "Fast"]

        await say(page, "ask")
        await page.locator(".free-text input").fill("Both <b>")
        await page.keyboard.press("Enter")
        await expect(page.locator(".reply").last).to_contain_text("You chose: Both <b>")
        assert [inbound.press.value for inbound in answers.presses if inbound.press] == ["1", "Both <b>"]


async def test_rich_and_hostile_text_on_a_phone_in_light_and_dark(
    chromium: Browser, serve: Serve, sink: FakeSink, tmp_path: Path
) -> None:
    async with site(serve, sink, Core()) as (url, answers), visit(chromium, url, (360, 740)) as page:
        await say(page, "document " + "w" * 200)
        reply = page.locator('.reply[data-phase="done"]')
        await expect(reply.locator("h2")).to_have_text("A title")
        await expect(reply.locator(".steps summary")).to_have_text("1 step · 1.5 s")
        for scheme in ("light", "dark"):
            await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
            picture = await page.screenshot(path=tmp_path / f"{scheme}.png")
            assert len(picture) > 5_000
            widths = await page.evaluate(
                """() => [document.documentElement, document.body, document.getElementById("scroller")]
                    .map((element) => element.scrollWidth - element.clientWidth)"""
            )
            assert widths == [0, 0, 0]
        table = reply.locator(".table")
        assert await table.evaluate("(box) => box.scrollWidth > box.clientWidth")
        await expect(reply.locator("img")).to_have_count(0)
        assert "hacked" not in await page.title()
        await expect(reply.locator("a[href^=javascript]")).to_have_count(0)

        # What the reader unfolds stays unfolded.
        await reply.locator(".fold[data-fold=earlier] summary").click()
        await expect(reply.locator(".earlier")).to_have_text("Let me look.")
        await reply.locator("[data-value=up]").click()
        await expect(reply.locator("[data-value=up]")).to_have_attribute("aria-pressed", "true")
        await expect(reply.locator(".earlier")).to_be_visible()
        await until(lambda: len(answers.presses) == 1)

        async with page.expect_download() as download:
            await reply.locator("a.chip").click()
        path = await (await download.value).path()
        assert path.read_text() == "notes"

        await page.locator("#new").click()
        await expect(page.locator(".divider")).to_have_text("New conversation")
        await expect(page.locator(".reply").last).to_have_text("A new conversation.")


async def test_a_message_waits_for_a_bridge_that_is_away_and_is_sent_once(
    chromium: Browser, serve: Serve, sink: FakeSink
) -> None:
    async with site(serve, sink, Core()) as (url, _), visit(chromium, url) as page:
        sink.is_away = True
        await page.keyboard.type("Hello")
        await page.keyboard.press("Shift+Enter")
        await page.keyboard.type("there")
        await page.keyboard.press("Enter")
        await expect(page.locator(".pending .delivery")).to_contain_text("Trying again")
        await expect(page.locator("#text")).to_have_value("")

        # The page may even be left meanwhile.
        await page.reload()
        await expect(page.locator(".pending .bubble")).to_have_text("Hello\nthere")
        sink.is_away = False
        await expect(page.locator(".reply")).to_contain_text("Echo: Hello")
        await expect(page.locator(".pending")).to_have_count(0)
        await expect(page.locator(".ask")).to_have_count(1)
        assert [inbound.text for inbound in sink.inbounds] == ["Hello\nthere"]

        await page.context.set_offline(True)
        await say(page, "later")
        await expect(page.locator(".pending .delivery")).to_contain_text("offline")
        await page.context.set_offline(False)
        await expect(page.locator(".reply").last).to_contain_text("Echo: later")
        assert [inbound.text for inbound in sink.inbounds] == ["Hello\nthere", "later"]

        # One that will never be taken can be written again.
        sink.ignores = True
        await say(page, "not for you")
        await expect(page.locator(".refused .delivery")).to_contain_text("did not take")
        await page.locator(".refused button").click()
        await expect(page.locator("#text")).to_have_value("not for you")


async def test_files_go_with_a_message_and_failures_can_be_tried_again(
    chromium: Browser, serve: Serve, sink: FakeSink, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("notes")
    (tmp_path / "large.bin").write_bytes(b"x" * 2_000)
    limits = {"attachment_bytes": 1_000}
    async with site(serve, sink, Core(), limits=limits) as (url, answers), visit(chromium, url) as page:
        await page.locator("#files").set_input_files([tmp_path / "notes.txt", tmp_path / "large.bin"])
        await expect(page.locator("#banner")).to_have_text("large.bin is larger than 1.0 kB.")
        await expect(page.locator("#attached .chip-name")).to_have_text("notes.txt")
        await page.locator("#text").focus()
        await say(page, "fail please")
        await expect(page.locator(".ask .chip")).to_contain_text("notes.txt")
        await expect(page.locator("#attached")).to_be_hidden()
        assert [attachment.name for attachment in sink.inbounds[0].attachments] == ["notes.txt"]
        await expect(page.locator(".reply .notice.failed")).to_have_text("The model is away.")
        await page.locator(".retry").click()
        await until(lambda: len(answers.presses) == 1)
        assert [inbound.press.action for inbound in answers.presses if inbound.press] == [Action.RETRY]


async def test_signing_in_opens_the_page(chromium: Browser, serve: Serve, sink: FakeSink) -> None:
    async with site(serve, sink, Core(), host="0.0.0.0", access_token="a long token") as (url, _):
        page = await chromium.new_page()
        await page.goto(url)
        await page.keyboard.type("wrong token")
        await page.keyboard.press("Enter")
        await expect(page.locator("#problem")).to_contain_text("not the access token")
        await page.locator("#token").fill("a long token")
        await page.keyboard.press("Enter")
        await expect(page.locator("#welcome")).to_be_visible()
        await say(page, "Hello")
        await expect(page.locator(".reply")).to_contain_text("Echo: Hello")
        await page.locator("form[action=sign-out] button").click()
        await expect(page.locator("#token")).to_be_visible()
        await page.close()


async def test_a_page_that_a_proxy_has_moved_is_used_like_any_other(
    chromium: Browser, serve: Serve, sink: FakeSink
) -> None:
    # Browsers tell more about their requests where TLS or the machine itself keeps them from being listened to.
    for address, host, public_url in (
        ("", "10.0.0.5:8080", None),
        ("http://bridge.test/", None, None),
        ("http://bridge.test/", "10.0.0.5:8080", "http://bridge.test/bridge"),
    ):

        def serve_moved(app: ASGIApp, host: str | None = host) -> Awaitable[str]:
            return serve(behind_proxy(Starlette(routes=[Mount("/chat", app)]), host=host, below="/bridge"))

        settings = {"host": "0.0.0.0", "access_token": "a long token", "public_url": public_url}
        async with site(serve_moved, sink, Core(), **settings) as (url, _):
            context = await chromium.new_context(proxy={"server": url} if address else None)
            page = await context.new_page()
            await page.goto(f"{address or url}bridge/chat/")
            await page.locator("#token").fill("a long token")
            await page.keyboard.press("Enter")
            await expect(page.locator("#welcome")).to_be_visible()
            await say(page, "Hello")
            await expect(page.locator(".reply")).to_contain_text("Echo: Hello")
            await page.reload()
            await expect(page.locator(".reply")).to_contain_text("Echo: Hello")
            await page.locator("form[action=sign-out] button").click()
            await expect(page.locator("#token")).to_be_visible()
            await context.close()
