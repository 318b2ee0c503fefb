"""Pieces of words on their way from the model to the page, with nothing on the way that waits for more of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGenerationChunk

from adapters.embedded import EmbeddedGateway, demo_agent
from adapters.embedded.demo_model import ScriptedChatModel, pieces
from channels.app import Bridge
from config.loading import parse_settings
from tests.emulators.fault_proxy import FaultProxy
from tests.emulators.raw_http import Answer, Request
from tests.end_to_end.visitor import visiting


@pytest.fixture(autouse=True)
def _scripted_model_at_full_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHANNEL_BRIDGE_DEMO_PACE", "0")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@asynccontextmanager
async def running(folder: Path, gateway: str = "") -> AsyncIterator[Bridge]:
    """The demo's bridge in this process, with the embedded gateway unless another is given."""
    text = f"""\
gateway: {{data: "{folder / "gateway"}"{f', url: "{gateway}"' if gateway else ""}}}
store: {{url: "sqlite:///{folder / "bridge.db"}"}}
server: {{port: 0}}
channels: {{page: {{platform: web, store: "sqlite:///{folder / "web.db"}"}}}}
"""
    bridge = Bridge(parse_settings(text, "test.yaml", folder, {}))
    try:
        await bridge.start()
        await bridge.channels_started(20)
        yield bridge
    finally:
        await bridge.stop()


async def test_each_piece_of_a_word_is_on_the_page_before_the_model_makes_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on = asyncio.Semaphore(0)

    class HeldModel(ScriptedChatModel):
        async def _astream(
            self,
            messages: list[BaseMessage],
            stop: list[str] | None = None,
            run_manager: AsyncCallbackManagerForLLMRun | None = None,
            **kwargs: Any,
        ) -> AsyncIterator[ChatGenerationChunk]:
            async for chunk in super()._astream(messages, stop, run_manager, **kwargs):
                await may_go_on.acquire()
                yield chunk

    monkeypatch.setattr(demo_agent, "ScriptedChatModel", HeldModel)
    answer = "You are welcome! 😊"
    expected = [answer[: sum(map(len, pieces(answer)[: count + 1]))] for count in range(len(pieces(answer)))]
    assert "You are welc" in expected
    async with running(tmp_path) as bridge, visiting(bridge.url) as visitor:
        await visitor.say("thank you")
        for text in expected:
            may_go_on.release()
            await visitor.until(lambda text=text: visitor.newest.rstrip() == text)  # type: ignore[misc]
            assert visitor.replies[-1].live
        may_go_on.release()  # the usage that ends the model's message
        assert (await visitor.answered()).rstrip() == answer
        assert [text.rstrip() for text in visitor.steps] == expected


class Recorder(FaultProxy):
    """Passes everything on, and keeps what was asked of the gateway."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.requests: list[Request] = []

    async def _handle(self, request: Request, answer: Answer) -> None:
        self.requests.append(request)
        await super()._handle(request, answer)

    @property
    def started_runs(self) -> list[dict[str, object]]:
        return [request.json() for request in self.requests if request.path.endswith(("/runs", "/runs/stream"))]


async def test_every_run_is_started_as_a_stream_of_messages_tuple(tmp_path: Path) -> None:
    gateway = EmbeddedGateway(tmp_path / "gateway")
    recorder = Recorder(await gateway.start())
    try:
        url = await recorder.start()
        async with running(tmp_path, url) as bridge, visiting(bridge.url) as visitor:
            await visitor.say("book a table")
            assert "need to know" in await visitor.answered()
            await visitor.say("4 people")  # this run resumes the one before
            await visitor.until(lambda: len(visitor.replies) == 2)
            assert "4 people" in await visitor.answered()
    finally:
        await recorder.stop()
        await gateway.stop()
    assert len(recorder.started_runs) == 2
    for body in recorder.started_runs:
        modes = body["stream_mode"]
        assert isinstance(modes, list)
        assert "messages-tuple" in modes
        assert "values" not in modes, "the whole state would come again with every step"
