"""Visitors with a real Chromium on a page with a scripted core behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from playwright.async_api import Browser, Page, ViewportSize, expect

from adapters.web.adapter import WebAdapter
from channels.model import File, Inbound, Option, Phase, Question, Segment, Step, StepState, View
from tests.adapters.web.conftest import Serve
from tests.adapters.web.core import Answers, FakeSink, adapter_for, message_view
from tests.long_question import long_question

TEXT = "Text that grows by pieces of words until the whole of it is there for the reader to see."
WORDS = TEXT.split(" ")
DOCUMENT = """## A title

Some **bold** text with a very-long-word-{long} and https://example.org/{long} in it.

| a | b | c | d | e | f | g | h |
|---|---|---|---|---|---|---|---|
| wide-cell-{long} | 2 | 3 | 4 | 5 | 6 | 7 | wide-cell-{long} |

```python
print("a line of code that is wider than any phone could show without scrolling sideways in its box {long}")
```

<img src=x onerror="document.title='hacked'"> [click](javascript:document.title='hacked')
""".format(long="x" * 80)

RICH = r"""1. Let \(x_{i}^{*}+y^{*}\) be *it*.

   ```python
   x ** 2
   ```
2. See [a page](https://example.org/a).

\[
a \\
= b
\]"""


class Core:
    """Scripts by the first word of the question; `go` lets a held answer go on."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self._asks_again = False

    async def script(self, inbound: Inbound) -> AsyncIterator[View]:
        yield View(Phase.WAITING)
        if inbound.press is not None:
            if self._asks_again:
                self._asks_again = False
                yield _asking("And now?")
            else:
                yield message_view(f"You chose: {inbound.text}")
            return
        match inbound.text.split(" ")[0]:
            case "/new":
                yield message_view("A new conversation.")
            case "grow":
                async for view in self._grow():
                    yield view
            case "ask":
                self._asks_again = inbound.text == "ask twice"
                yield _asking("There are two ways.")
            case "hold":
                step = Step("1", "Search", StepState.RUNNING, started=1.0)
                yield View(Phase.WORKING, steps=(step,))
                await self.go.wait()
                yield _asking("There are two ways.")
            case "long":
                yield message_view("A paragraph.\n\n" * 40)
            case "rich":
                for end in range(0, len(RICH), 20):
                    yield message_view(RICH[:end], Phase.WRITING)
                yield message_view(RICH)
            case "document":
                files = (File("f", "notes.txt", "text/plain", 5, {"content": "notes"}),)
                step = Step("1", "Search", StepState.DONE, started=1.0, ended=2.5)
                yield View(
                    Phase.DONE,
                    (Segment("m0", "Let me look.", is_answer=False), Segment("m1", DOCUMENT)),
                    steps=(step,),
                    files=files,
                )
            case "review":
                yield message_view("", Phase.ASKING, question=long_question())
            case "fail":
                yield message_view("Half", Phase.FAILED, notice="The model is away.")
            case _:
                yield message_view(f"Echo: {inbound.text}")

    async def _grow(self) -> AsyncIterator[View]:
        text = ""
        for number, word in enumerate(WORDS):
            for piece in (word[: len(word) // 2], word[len(word) // 2 :] + " "):
                text += piece
                yield message_view(text, Phase.WRITING)
                await asyncio.sleep(0.02)
            if number == len(WORDS) // 2:
                await self.go.wait()
        yield message_view(text)


def _asking(text: str) -> View:
    options = (Option("0", "Slow"), Option("1", "Fast"))
    return message_view(text, Phase.ASKING, question=Question("q", "Which pace?", options))


@asynccontextmanager
async def site(serve: Serve, sink: FakeSink, core: Core, **settings: object) -> AsyncIterator[tuple[str, Answers]]:
    adapter: WebAdapter = adapter_for(sink, **settings)  # type: ignore[arg-type]
    answers = Answers(adapter, sink, core.script)
    await adapter.start()
    try:
        yield await serve(adapter.app), answers
    finally:
        await answers.stop()
        await adapter.stop()


@asynccontextmanager
async def visit(chromium: Browser, url: str, size: tuple[int, int] = (1000, 800)) -> AsyncIterator[Page]:
    """A new visitor with the page open; any error of a script or of the page's own rules fails the test."""
    context = await chromium.new_context(viewport=ViewportSize(width=size[0], height=size[1]))
    page = await context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on(
        "console",
        lambda message: errors.append(message.text) if "Content Security Policy" in message.text else None,
    )
    await page.goto(url)
    await expect(page.locator("#welcome:visible, .entry:visible").first).to_be_visible()
    yield page
    assert errors == []
    await context.close()


async def say(page: Page, text: str) -> None:
    await page.keyboard.type(text)
    await page.keyboard.press("Enter")
