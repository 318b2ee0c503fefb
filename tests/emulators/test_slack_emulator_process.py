"""The emulated Slack as a process of its own, acted on and looked at through its control API."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from slack_sdk.web.async_client import AsyncWebClient

from tests.emulators.journal import Fault, FaultKind
from tests.emulators.slack import ANN, BOB, BOT_TOKEN, GENERAL, RemoteSlack
from tests.emulators.slack.clients import refusal

ROOT = Path(__file__).parents[2]


@pytest.fixture
async def process() -> AsyncIterator[str]:
    """Its URL; stops it in the end and checks that it went in peace."""
    started = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.emulators.slack", cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    assert started.stdout is not None
    try:
        yield (await asyncio.wait_for(started.stdout.readline(), 30)).decode().strip()
    finally:
        started.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(started.wait(), 10) == 0


async def test_everything_can_be_done_and_seen_from_another_process(process: str) -> None:
    async with RemoteSlack(process) as slack, aiohttp.ClientSession() as session:
        client = AsyncWebClient(BOT_TOKEN, base_url=f"{process}/api/", session=session, retry_handlers=[])
        question = await slack.send(GENERAL, ANN, "hello <bot>", mention=True)
        await slack.upload(GENERAL, BOB, {"a.txt": b"alpha"}, thread_ts=question)
        buttons = [
            {
                "type": "actions",
                "elements": [{"type": "button", "action_id": "go", "text": {"type": "plain_text", "text": "Go"}}],
            }
        ]
        ts = (await client.chat_postMessage(channel=GENERAL, text="hi", blocks=buttons, thread_ts=question))["ts"]
        await slack.press(GENERAL, ts, ANN, text="Go")
        direct = await slack.dm(ANN, "psst")
        await slack.edit(GENERAL, question, "hello again")
        await slack.slash_command(GENERAL, ANN, "/ask", "now")
        await client.chat_startStream(
            channel="D0ANN", thread_ts=direct, chunks=[{"type": "markdown_text", "text": "growing"}]
        )
        assert await slack.press_stop("D0ANN", direct, ANN)
        await slack.plan("chat.delete", Fault(FaultKind.ANSWER, status=200, body={"ok": False, "error": "fatal_error"}))
        assert await refusal(client.chat_delete(channel=GENERAL, ts=ts)) == "fatal_error"

        state = await slack.wait_for(lambda now: now if len(now["chats"][GENERAL]) == 3 else None)
        assert state is not None
        assert [message["text"] for message in state["chats"][GENERAL]] == ["hello again", "", ""]
        assert {delivery["kind"] for delivery in state["deliveries"]} == {
            "events_api",
            "interactive",
            "slash_commands",
        }
        assert state["calls"][-1]["method"] == "chat.delete"
        assert state["broken"] == []

        async with session.get(process) as page:
            assert "hello again" in await page.text()
        await slack.delete(GENERAL, question)
        with pytest.raises(AssertionError, match="no message"):
            await slack.edit(GENERAL, question, "gone")
        with pytest.raises(AssertionError, match="unknown action"):
            await slack.act("sing")
