"""What a reader keeps in a real Chromium: the end in sight, the focus, the text as it was written, the draft."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from channels.model import Action
from tests.adapters.web.conftest import Serve
from tests.adapters.web.core import FakeSink, until
from tests.adapters.web.visits import RICH, WORDS, Core, say, site, visit

_GAP = """() => {
    const box = document.getElementById("scroller");
    return box.scrollHeight - box.scrollTop - box.clientHeight;
}"""
_SETTLED = "() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))"
_GROW_AROUND_A_SCROLL = """() => {
    const box = document.getElementById("scroller");
    const grow = () => {
        const more = document.createElement("p");
        more.style.height = "300px";
        document.getElementById("content").append(more);
    };
    grow();
    box.scrollTop = box.scrollHeight;
    grow();
}"""
_FOCUSED = """() => {
    const { id, localName, dataset } = document.activeElement;
    return id || (dataset.press ? `${dataset.press} ${dataset.value ?? ""}`.trim() : localName);
}"""


async def _is_at_the_end(page: Page) -> bool:
    await page.evaluate(_SETTLED)
    return bool(await page.evaluate(_GAP) < 2) and await page.locator("#jump").is_hidden()


@pytest.mark.parametrize("size", [(1000, 600), (360, 640)])
async def test_questions_and_answers_stay_in_sight_of_who_follows(
    chromium: Browser, serve: Serve, sink: FakeSink, size: tuple[int, int]
) -> None:
    async with site(serve, sink, Core()) as (url, _), visit(chromium, url, size) as page:
        await say(page, "long")
        await say(page, "ask twice")
        for count in (1, 2):
            await expect(page.locator(".question")).to_have_count(count)
            option = page.locator(".question:not(.answered) .option").first
            await expect(option).to_be_in_viewport(ratio=1)
            assert await _is_at_the_end(page)
            await option.click()
        await expect(page.locator(".reply").last).to_contain_text("You chose")
        assert await _is_at_the_end(page)
        # A focus scrolls, too, and its event comes when there is more already.
        await page.evaluate(_GROW_AROUND_A_SCROLL)
        assert await _is_at_the_end(page)


async def test_who_reads_further_up_is_left_there_until_asked_back(
    chromium: Browser, serve: Serve, sink: FakeSink
) -> None:
    core = Core()
    async with site(serve, sink, core) as (url, answers), visit(chromium, url, (1000, 600)) as page:
        await say(page, "long")
        await expect(page.locator(".reply")).to_have_count(1)
        await say(page, "hold and ask")
        await expect(page.locator(".reply.live")).to_have_count(1)
        await page.mouse.move(500, 200)
        await page.mouse.wheel(0, -500)
        await expect(page.locator("#jump")).to_be_visible()
        top = await page.evaluate("document.getElementById('scroller').scrollTop")
        core.go.set()
        await expect(page.locator(".question")).to_have_count(1)
        await page.evaluate(_SETTLED)
        assert await page.evaluate("document.getElementById('scroller').scrollTop") == top
        # A question out of sight is not answered by a key that was meant for something else.
        await page.keyboard.press("Enter")
        assert answers.presses == []
        await page.locator("#jump").click()
        assert await _is_at_the_end(page)


async def test_a_question_that_is_not_in_sight_as_a_whole_is_not_answered_by_a_key(
    chromium: Browser, serve: Serve, sink: FakeSink
) -> None:
    async with site(serve, sink, Core()) as (url, answers), visit(chromium, url) as page:
        await say(page, "review")
        await expect(page.locator(".question .option").first).to_be_in_viewport(ratio=1)
        await page.keyboard.press("Enter")
        assert await page.locator("#text").evaluate("text => text === document.activeElement")
        assert answers.presses == []
        assert await page.locator(".question pre").count() > 1


async def test_the_focus_is_never_lost(chromium: Browser, serve: Serve, sink: FakeSink) -> None:
    core = Core()
    async with site(serve, sink, core) as (url, answers), visit(chromium, url) as page:
        await say(page, "hello")
        for value in ("up", "down"):
            thumb = page.locator(f"[data-value={value}]")
            await thumb.focus()
            await page.keyboard.press("Enter")
            await expect(thumb).to_have_attribute("aria-pressed", "true")
            assert await page.evaluate(_FOCUSED) == f"f {value}"
        await page.keyboard.press("Enter")
        await expect(thumb).to_have_attribute("aria-pressed", "false")
        assert [press.press.value for press in answers.presses if press.press] == ["up", "down", ""]

        await page.locator("#text").focus()
        await say(page, "grow")
        await expect(page.locator(".reply.live")).to_contain_text(WORDS[len(WORDS) // 2])
        await page.locator(".stop").focus()
        await page.keyboard.press("Enter")
        await until(lambda: len(answers.presses) == 4)
        assert await page.evaluate(_FOCUSED) == "s"
        await page.keyboard.press("Enter")  # twice is once
        core.go.set()
        await expect(page.locator('.reply[data-phase="stopped"]')).to_have_count(1)
        assert await page.evaluate(_FOCUSED) == "text"
        assert [press.press.action for press in answers.presses[3:] if press.press] == [Action.STOP]


async def test_an_answer_is_copied_as_it_was_written(chromium: Browser, serve: Serve, sink: FakeSink) -> None:
    async with site(serve, sink, Core()) as (url, _), visit(chromium, url) as page:
        await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        await say(page, "rich")
        button = page.locator(".copy-answer")
        await button.click()
        await expect(button).to_have_class("quiet icon-button copy-answer copied")
        assert await page.evaluate("navigator.clipboard.readText()") == RICH
        await expect(button).to_have_class("quiet icon-button copy-answer")

        code = page.locator(".code .copy")
        await code.click()
        await expect(code).to_have_class("copy copied")
        assert await page.evaluate("navigator.clipboard.readText()") == "x ** 2\n"

        # A page that did not come over TLS has no clipboard; the old way keeps the focus, too.
        await page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
        await button.click()
        await expect(button).to_have_class("quiet icon-button copy-answer copied")
        await expect(button).to_be_focused()


async def test_maths_is_shown_as_it_was_written_while_it_grows_and_after(
    chromium: Browser, serve: Serve, sink: FakeSink
) -> None:
    async with site(serve, sink, Core()) as (url, _), visit(chromium, url) as page:
        await say(page, "rich")
        await expect(page.locator(".reply .maths")).to_have_text("\\[\na \\\\\n= b\n\\]")
        await expect(page.locator(".reply")).to_contain_text(r"\(x_{i}^{*}+y^{*}\)")


async def test_a_draft_survives_a_reload_until_it_is_sent(chromium: Browser, serve: Serve, sink: FakeSink) -> None:
    async with site(serve, sink, Core()) as (url, _), visit(chromium, url) as page:
        await page.keyboard.type("half a tho")
        await page.reload()
        await expect(page.locator("#text")).to_have_value("half a tho")
        await expect(page.locator("#send")).to_be_enabled()
        await page.locator("#text").press("End")
        await say(page, "ught")
        await expect(page.locator(".ask .bubble")).to_have_text("half a thought")
        await page.reload()
        await expect(page.locator("#text")).to_have_value("")


async def test_a_file_with_a_long_name_fits_a_phone(
    chromium: Browser, serve: Serve, sink: FakeSink, tmp_path: Path
) -> None:
    file = tmp_path / ("a very long name that goes on and on " * 4 + ".txt")
    file.write_text("x" * 5)
    async with site(serve, sink, Core()) as (url, _), visit(chromium, url, (360, 640)) as page:
        await page.locator("#files").set_input_files(file)
        await expect(page.locator("#attached button")).to_be_in_viewport(ratio=1)
        assert await page.evaluate("document.documentElement.scrollWidth") == 360
        await page.locator("#text").focus()
        await say(page, "look")
        size = page.locator(".ask .chip .faint")
        await expect(size).to_have_text("5 B")
        assert await size.evaluate("(box) => box.getClientRects().length") == 1
        assert await page.evaluate("document.documentElement.scrollWidth") == 360


async def test_nothing_moves_for_who_asked_for_stillness(chromium: Browser, serve: Serve, sink: FakeSink) -> None:
    async with site(serve, sink, Core()) as (url, _), visit(chromium, url) as page:
        await page.emulate_media(reduced_motion="reduce")
        await say(page, "hold")
        await expect(page.locator(".reply.live .pulse")).to_be_visible()
        assert await page.evaluate("document.getAnimations().length") == 0
