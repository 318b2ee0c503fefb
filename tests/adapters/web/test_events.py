"""Over a real connection: events come as they happen, resume exactly, and end when the channel stops."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import httpx

from adapters.web.adapter import WebAdapter
from adapters.web.guard import REQUEST_HEADER
from channels.adapter import ReplyTarget
from channels.model import Inbound, Phase, new_turn_id
from tests.adapters.web.conftest import Serve
from tests.adapters.web.core import FakeSink, adapter_for, message_view, until
from tests.adapters.web.page_model import PageModel


@asynccontextmanager
async def _visit(url: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=url, headers={REQUEST_HEADER: "1"}, timeout=10) as client:
        await client.get("/")
        yield client


async def _follow(visitor: httpx.AsyncClient, page: PageModel, **query: str) -> AsyncGenerator[PageModel]:
    """The page after each event."""
    headers = {"last-event-id": page.cursor} if page.cursor and not query else {}
    async with visitor.stream("GET", "/events", headers=headers, params=query) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        fields: dict[str, str] = {}
        async for line in response.aiter_lines():
            name, _, value = line.partition(": ")
            if line:
                fields[name] = value
            elif "data" in fields:
                page.take_raw(fields["id"], fields["event"], fields["data"])
                fields = {}
                yield page


async def _say(visitor: httpx.AsyncClient, sink: FakeSink, text: str) -> Inbound:
    await visitor.post("/messages", files={"id": (None, str(uuid.uuid4())), "text": (None, text)})
    return sink.inbounds[-1]


async def test_pieces_of_words_arrive_one_by_one(adapter: WebAdapter, sink: FakeSink, serve: Serve) -> None:
    async with _visit(await serve(adapter.app)) as visitor:
        inbound = await _say(visitor, sink, "Hello")
        surface = adapter.surface(ReplyTarget(new_turn_id(), inbound.place, inbound))
        pages = _follow(visitor, PageModel())
        page = await anext(pages)
        shown = surface.shown_type()
        seen = []
        for text in ("Str", "Stream", "Streaming", "Streaming wo", "Streaming works"):
            (op,) = surface.plan(message_view(text, Phase.WRITING), shown, 0.0)
            shown = surface.advance(shown, op, await surface.perform(op), 0.0)
            page = await asyncio.wait_for(anext(pages), 5)
            seen.append(page.texts[-1])
        await pages.aclose()
    assert seen == ["Str", "Stream", "Streaming", "Streaming wo", "Streaming works"]


async def test_a_broken_connection_resumes_exactly_by_header_and_by_query(
    adapter: WebAdapter, sink: FakeSink, serve: Serve
) -> None:
    async with _visit(await serve(adapter.app)) as visitor:
        first = _follow(visitor, page := PageModel())
        await anext(first)
        await first.aclose()
        for text in ("one", "two"):
            await _say(visitor, sink, text)
        second = _follow(visitor, page)
        await anext(second)
        await second.aclose()
        assert (page.names, page.texts) == (["state", "entry"], ["one"])
        third = _follow(visitor, page, after=page.cursor or "")
        await anext(third)
        await third.aclose()
        assert (page.names, page.texts) == (["state", "entry", "entry"], ["one", "two"])


async def test_every_tab_of_a_browser_sees_the_same_and_other_browsers_nothing(
    adapter: WebAdapter, sink: FakeSink, serve: Serve
) -> None:
    url = await serve(adapter.app)
    async with _visit(url) as anna, _visit(url) as bert:
        tabs = [_follow(anna, PageModel()), _follow(anna, PageModel()), _follow(bert, PageModel())]
        for tab in tabs:
            await anext(tab)
        await _say(anna, sink, "Hello from Anna")
        assert [(await anext(tab)).texts for tab in tabs[:2]] == [["Hello from Anna"]] * 2
        await _say(bert, sink, "Hello from Bert")
        assert (await anext(tabs[2])).texts == ["Hello from Bert"]
        for tab in tabs:
            await tab.aclose()


async def test_a_page_that_is_closed_leaves_nothing_behind(adapter: WebAdapter, sink: FakeSink, serve: Serve) -> None:
    async with _visit(await serve(adapter.app)) as visitor:
        await _say(visitor, sink, "Hello")
        pages = _follow(visitor, PageModel())
        await anext(pages)
        timelines = adapter._timelines
        assert timelines is not None
        assert sum(timelines._users.values()) == 1
        await pages.aclose()
        await until(lambda: not timelines._users)


async def test_open_pages_do_not_hold_up_a_stop_and_come_back_after_it(sink: FakeSink, serve: Serve) -> None:
    adapter = adapter_for(sink)
    await adapter.start()
    async with _visit(await serve(adapter.app)) as visitor:
        await _say(visitor, sink, "Hello")
        pages = _follow(visitor, page := PageModel())
        await anext(pages)
        await asyncio.wait_for(adapter.stop(), 2)
        assert [page async for page in pages] == []
        assert (await visitor.get("/events")).status_code == 503
        await adapter.start()
        pages = _follow(visitor, page)
        await anext(pages)
        assert page.names == ["state", "state"]
        assert page.texts == ["Hello"]
        await pages.aclose()
    await adapter.stop()
