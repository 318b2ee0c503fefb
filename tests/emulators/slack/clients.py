"""The real SDK, set up as a careful client would: one shared session, no blind retries."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import aiohttp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from tests.emulators.slack.emulator import BOT_TOKEN, SlackEmulator


@asynccontextmanager
async def web_client(slack: SlackEmulator, token: str = BOT_TOKEN) -> AsyncIterator[AsyncWebClient]:
    async with aiohttp.ClientSession() as session:
        yield AsyncWebClient(token, base_url=f"{slack.url}/api/", session=session, retry_handlers=[])


async def refusal(call: Awaitable[object]) -> str:
    """The error that Slack answers; fails the test when it answers ok."""
    try:
        answer = await call
    except SlackApiError as refused:
        return str(refused.response["error"])
    raise AssertionError(f"was not refused: {answer}")
