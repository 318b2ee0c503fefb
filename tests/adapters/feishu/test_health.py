"""How a channel says that its app is not accepted, and that it is again."""

from __future__ import annotations

import httpx
import pytest

from adapters.feishu.api import Api
from adapters.feishu.errors import ApiRefusal
from channels.adapter import ChannelState
from tests.adapters.feishu.conftest import Open, Room
from tests.clock import ManualClock, ScaledClock
from tests.emulators.feishu import refuse
from tests.scripted import Say

WEBHOOK = {
    "mode": "webhook",
    "encrypt_key": "emulated-encrypt-key",
    "verification_token": "emulated-verification-token",
}
REFUSED = [99991663, 99991662, 99991673, 99991674, 99991401]
"""The token (twice in a row), and the app itself: switched off, not installed, or not allowed from this address."""


def states_of(room: Room, monkeypatch: pytest.MonkeyPatch) -> list[ChannelState]:
    """Every state that the channel is said to be in from now on."""
    report, states = room.bench.inbox.report, []

    def listening(state: ChannelState, reason: str = "") -> None:
        states.append(state)
        report(state, reason)

    monkeypatch.setattr(room.bench.inbox, "report", listening)
    return states


@pytest.mark.parametrize("code", REFUSED)
async def test_an_app_counts_as_refused_until_any_call_is_accepted(code: int) -> None:
    refused: list[str] = []
    answers = [{"code": code, "msg": "no"}] * 2

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/tenant_access_token/internal"):
            return httpx.Response(200, json={"code": 0, "tenant_access_token": "t", "expire": 7200})
        return httpx.Response(200, json=answers.pop() if answers else {"code": 0, "data": {}})

    api = Api("http://127.0.0.1", "cli_1", "secret", ManualClock())
    api._client = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    api.changed = lambda: refused.append(api.refused)
    with pytest.raises(ApiRefusal):
        await api.call("sending", "POST", "im/v1/messages", {})
    answers.clear()
    await api.call("reading", "GET", "im/v1/messages/om_1")
    await api.close()
    during, after = refused
    assert during.startswith("unauthorised: sending")
    assert str(code) in during
    assert after == ""


async def test_an_answer_that_comes_through_after_all_ends_the_failure(
    open_room: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = await open_room([Say("hello there")])
    states = states_of(room, monkeypatch)
    room.emulator.faults.plan("cardkit.card.create", refuse(99991663), refuse(99991663))
    await room.ask("Ann", "hi")
    await room.settled()
    assert room.text(room.emulator.p2p("Ann")) == "hello there"
    assert ChannelState.FAILED in states
    assert room.state is ChannelState.RUNNING


@pytest.mark.parametrize(("mode", "code"), [({}, 99991663), (WEBHOOK, 99991662)])
async def test_a_refused_app_is_tried_again_when_there_is_nothing_else_to_do(
    open_room: Open, mode: dict[str, str], code: int
) -> None:
    room = await open_room([Say("x")], clock=ScaledClock(200), **mode)
    room.emulator.faults.plan("im.chat.get", refuse(code), refuse(code))
    room.emulator.faults.plan("bot.info", refuse(code), refuse(code))
    with pytest.raises(ApiRefusal):
        await room.adapter._api.call("trying", "GET", "im/v1/chats/oc_1")
    assert room.state is ChannelState.FAILED
    assert str(code) in room.bench.inbox.health.reason
    await room.bench.until(lambda: room.state is ChannelState.RUNNING)
    assert len(room.emulator.journal.of("bot.info")) > 2
