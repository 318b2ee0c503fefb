"""What a token may not do is left out and said; it costs neither the answer nor the channel."""

from __future__ import annotations

import pytest

from adapters.slack.manifest import REQUIRED, SCOPES
from channels.adapter import ChannelState
from tests.adapters.slack.conftest import OpenDesk
from tests.emulators.journal import Fault, FaultKind
from tests.emulators.slack import ANN, SECRET, SlackEmulator
from tests.scripted import GiveFile, Pause, Say

OPTIONAL = sorted(set(SCOPES) - REQUIRED)


@pytest.mark.parametrize("missing", [OPTIONAL, ["files:write"], ["reactions:write"]], ids=",".join)
async def test_optional_scopes_that_are_missing_cost_what_they_are_for_and_nothing_else(
    open_desk: OpenDesk, slack: SlackEmulator, missing: list[str]
) -> None:
    slack.grant([scope for scope in SCOPES if scope not in missing])
    desk = await open_desk([Pause(5), Say("Here."), GiveFile("a.csv", b"1,2")])
    await desk.is_state(ChannelState.RUNNING)
    states: list[ChannelState] = []
    desk.bench.inbox.health_changed = lambda: states.append(desk.bench.inbox.health.state)
    root = await desk.ask("a file please, @bob in #secret")
    await desk.answered()
    await desk.ask("and another", thread_ts=root)
    await desk.answered(2)
    await slack.dm(ANN, "and here")
    await desk.answered(3)
    told = desk.text(root).count("Could not be attached: a.csv")
    assert told == (2 if "files:write" in missing else 0)
    assert "Here." in slack.answers(slack.direct(ANN).id)[0].text
    assert states == []
    findings = {check.what: check for check in await desk.bench.adapter.check()}
    assert findings["scopes"].ok
    assert all(scope in findings["scopes"].detail for scope in missing)


async def test_a_lost_answer_where_nothing_can_be_looked_up_is_sent_once_more(
    open_desk: OpenDesk, slack: SlackEmulator
) -> None:
    slack.grant(sorted(REQUIRED))
    desk = await open_desk([Say("whole")], streaming="edit")
    slack.faults.plan("chat.postMessage", Fault(FaultKind.DROP_BEFORE))
    root = await desk.ask("hello", channel=SECRET)
    await desk.answered()
    assert desk.text(root, SECRET) == "whole"


async def test_without_the_scope_to_write_the_channel_has_failed_and_heals(
    open_desk: OpenDesk, slack: SlackEmulator
) -> None:
    desk = await open_desk([Say("at last")])
    slack.grant([scope for scope in SCOPES if scope != "chat:write"])
    root = await desk.ask("hello")
    assert "chat:write" in await desk.is_state(ChannelState.FAILED)
    states: list[ChannelState] = []
    desk.bench.inbox.health_changed = lambda: states.append(desk.bench.inbox.health.state)
    await desk.ask("and @bob?")
    await desk.bench.until(lambda: len(desk.bench.gateway.runs) == 2)
    await desk.bench.clock.sleep(10)
    assert [call for call in desk.calls("assistant.threads.setStatus") if call.answer == {"ok": True}]
    assert states == [], "what is allowed beside it does not make it well"
    slack.grant(list(SCOPES))
    await desk.is_state(ChannelState.RUNNING)
    await desk.answered(2)
    assert desk.text(root) == "at last"
