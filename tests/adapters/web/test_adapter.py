"""The channel starts, heals, stops and starts again, and says how it is."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from adapters.web.surface import WebShown
from channels.adapter import (
    ChannelState,
    HintState,
    ReplyTarget,
    Transient,
)
from channels.model import Inbound, InboundKind, Phase, Place, Sender, TurnId
from config.web import WebChannel
from tests.adapters.web.conftest import visiting
from tests.adapters.web.core import FakeSink, adapter_for, message_view, reconcile
from tests.clock import ManualClock

_QUESTION = Inbound(
    Place("web", "anna", private=True), Sender("anna"), "anna:q1", InboundKind.MESSAGE, "What is it?", 1.0, "q1"
)
_TARGET = ReplyTarget(TurnId("a" * 32), _QUESTION.place, _QUESTION)


async def test_a_started_channel_is_running_and_a_stopped_one_says_so(sink: FakeSink) -> None:
    adapter = adapter_for(sink)
    async with visiting(adapter) as visitor:
        assert (await visitor.get("/")).status_code == 503
        await adapter.start()
        assert [state for state, _ in sink.reports] == [ChannelState.STARTING, ChannelState.RUNNING]
        assert (await visitor.get("/")).status_code == 200
        await adapter.stop()
        assert (await visitor.get("/")).status_code == 503
        await adapter.start()
        assert (await visitor.get("/")).status_code == 200
        await adapter.stop()
    assert adapter.webhook is None


async def test_a_store_that_is_away_at_the_start_is_waited_for(sink: FakeSink) -> None:
    clock = ManualClock()
    sink.is_away = True
    adapter = adapter_for(sink, clock=clock)
    await adapter.start()
    assert sink.reports[-1][0] is ChannelState.DEGRADED
    async with visiting(adapter) as visitor:
        assert (await visitor.get("/")).status_code == 503
        await clock.advance(5)
        sink.is_away = False
        await clock.advance(5)
        assert sink.reports[-1] == (ChannelState.RUNNING, "")
        assert (await visitor.get("/")).status_code == 200
    await adapter.stop()


async def test_a_folder_that_cannot_be_written_is_named(sink: FakeSink, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    adapter = adapter_for(sink, store=f"sqlite:///{tmp_path}/file/web.db")
    await adapter.start()
    state, reason = sink.reports[-1]
    assert state is ChannelState.DEGRADED
    assert "history" in reason
    assert [check.ok for check in await adapter.check()] == [True, False]
    await adapter.stop()


async def test_a_check_works_without_starting(sink: FakeSink, tmp_path: Path) -> None:
    adapter = adapter_for(sink, store=f"sqlite:///{tmp_path}/web.db")
    assert [check.ok for check in await adapter.check()] == [True, True]
    assert sink.reports == []


async def test_a_reply_to_a_stopped_channel_waits(sink: FakeSink) -> None:
    adapter = adapter_for(sink)
    surface = adapter.surface(_TARGET)
    (op,) = surface.plan(message_view("x"), WebShown(), 0.0)
    with pytest.raises(Transient):
        await surface.perform(op)


async def test_trouble_with_the_history_is_reported_until_it_is_over(
    sink: FakeSink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = adapter_for(sink)
    await adapter.start()
    surface = adapter.surface(_TARGET)
    (op,) = surface.plan(message_view("x"), WebShown(), 0.0)

    async def full(*_: object) -> None:
        from adapters.web.log import LogAway

        raise LogAway("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr("adapters.web.log.MemoryLog.put", full)
        with pytest.raises(Transient):
            await surface.perform(op)
    assert sink.reports[-1] == (ChannelState.DEGRADED, "the disk is full")
    await surface.perform(op)
    assert sink.reports[-1][0] is ChannelState.RUNNING
    await adapter.stop()


async def test_an_answer_that_was_half_written_when_the_process_died_is_completed_once(
    sink: FakeSink, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path}/web.db"
    first = adapter_for(sink, store=store, history_days=None)
    await first.start()
    surface = first.surface(_TARGET)
    shown = await reconcile(surface, message_view("Half", Phase.WRITING), surface.shown_type())
    stored = shown.model_dump(mode="json")
    # Nothing of the first is stopped or flushed: the second begins with what is on the disk.
    second = adapter_for(sink, store=store, history_days=None)
    await second.start()
    surface = second.surface(_TARGET)
    restored = surface.restore(WebShown.model_validate(stored))
    await reconcile(surface, message_view("Half and whole."), restored)
    async with second._timelines.using("anna") as timeline:  # type: ignore[union-attr]
        entries = (await timeline.earlier((10**9, 0)))["entries"]
    assert isinstance(entries, list)
    kinds = [entry["kind"] for entry in entries if isinstance(entry, dict)]
    assert kinds == ["ask", "reply"]
    assert "Half and whole." in str(entries[1])
    await first.stop()
    await second.stop()


async def test_old_history_is_dropped_once_a_day(sink: FakeSink) -> None:
    clock = ManualClock()
    adapter = adapter_for(sink, clock=clock, history_days=2)
    await adapter.start()
    surface = adapter.surface(_TARGET)
    await reconcile(surface, message_view("Done."), surface.shown_type())
    log = adapter._log
    await clock.advance(86_400)
    assert await log.get("anna", _TARGET.turn) is not None
    await clock.advance(3 * 86_400)
    assert await log.get("anna", _TARGET.turn) is None
    await adapter.stop()


async def test_hints_reach_the_page_and_never_fail(sink: FakeSink) -> None:
    adapter = adapter_for(sink)
    await adapter.hint(_TARGET, HintState.WAITING)
    await adapter.start()
    async with adapter._timelines.using("anna") as timeline:  # type: ignore[union-attr]
        events = timeline.follow(None)
        await anext(events)
        await adapter.hint(_TARGET, HintState.WORKING)
        event = await anext(events)
    assert event is not None
    assert (event.name, event.data) == ("hint", '{"state":"working"}')
    await adapter.stop()


async def test_stopping_ends_every_page_s_connection_at_once(sink: FakeSink) -> None:
    adapter = adapter_for(sink)
    await adapter.start()
    async with adapter._timelines.using("anna") as timeline:  # type: ignore[union-attr]
        events = timeline.follow(None)
        await anext(events)
        waiting = asyncio.ensure_future(anext(events, None))
        await asyncio.sleep(0)
        await asyncio.wait_for(adapter.stop(), 1)
        assert await asyncio.wait_for(waiting, 1) is None


def test_the_package_is_cheap_until_a_channel_is_built() -> None:
    heavy = "['jinja2', 'nh3', 'markdown_it', 'sqlalchemy', 'itsdangerous', 'starlette.applications']"
    code = f"import adapters.web, sys; print([name for name in {heavy} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "wrong",
    [
        {"path": "chat"},
        {"path": "/chat?x"},
        {"access_token": "short"},
        {"cookie_key": "short"},
        {"store": "mysql://x"},
        {"history_days": 0},
        {"title": ""},
        {"unknown": 1},
    ],
)
def test_wrong_settings_are_refused_without_their_value(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError) as caught:
        WebChannel.model_validate(wrong)
    for detail in caught.value.errors(include_input=False, include_url=False, include_context=False):
        assert "short" not in detail["msg"]


@pytest.mark.parametrize(("given", "kept"), [("/", "/"), ("/chat", "/chat"), ("/chat/", "/chat")])
def test_the_path_has_one_spelling(given: str, kept: str) -> None:
    assert WebChannel(path=given).path == kept
