"""The Feishu emulator as a process of its own: its first line, its control API, its page."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator

import httpx
import pytest

from tests.emulators.feishu import RemoteFeishu


@pytest.fixture
async def remote() -> AsyncIterator[RemoteFeishu]:
    command = (sys.executable, "-m", "tests.emulators.feishu", "--port", "0")
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    url = (await asyncio.wait_for(process.stdout.readline(), 30)).decode().strip()
    try:
        async with RemoteFeishu(url) as remote:
            yield remote
    finally:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), 10)
        assert process.returncode == 0


async def test_a_process_is_acted_on_and_looked_at_over_its_control_api(remote: RemoteFeishu) -> None:
    group = await remote.act("add_group", "Team", "Ann")
    message_id = await remote.act("say", "Ann", group, text="@Bridge hello")
    await remote.act("file", "Ann", group, "a.txt", b"data", reply_to=message_id)
    messages = await remote.chat(group)
    assert [(one["sender"], one["text"], one["parent_id"]) for one in messages] == [
        ("Ann", "@Bridge hello", ""),
        ("Ann", "[file] a.txt", message_id),
    ]
    state = await remote.wait_for(lambda state: len(state["events"]) == 2 and state["events"][0]["attempts"])
    assert state["events"][0]["attempts"] == ["undeliverable"]
    assert state["broken"] == []
    with pytest.raises(AssertionError, match="no action fly"):
        await remote.act("fly")
    with pytest.raises(AssertionError, match="KeyError"):
        await remote.act("recall", "Ann", "om_none")
    await remote.plan_fault("ws.endpoint", "answer", status=500, times=1)
    async with httpx.AsyncClient(trust_env=False) as client:
        assert (await client.post(f"{remote.url}/callback/ws/endpoint", json={})).status_code == 500
        page = (await client.get(f"{remote.url}/chats")).text
        assert "@Bridge hello" in page
        assert "/say" in (await client.get(remote.url)).text
        said = await client.post(f"{remote.url}/say", data={"who": "Player", "chat": group, "text": "<b>hi</b>"})
        assert said.status_code == 303
        assert "&lt;b&gt;hi" in (await client.get(f"{remote.url}/chats")).text
    assert (await remote.state())["calls"][-1]["method"] == "ws.endpoint"
