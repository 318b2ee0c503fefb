"""The reaction on a question: none stays when the answer is over, whatever the calls for it meet, and none is asked
away that cannot be there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

import pytest

from adapters.slack.api import SlackApi
from adapters.slack.reactions import Reactions
from adapters.slack.status import Sessions, StatusLine
from channels.adapter import Draw, Failure, HintState, RateLimited, Refused, Transient, Unknown
from channels.model import Inbound
from tests.adapters.slack.paper_slack import DIRECT, asked
from tests.clock import ManualClock


@dataclass
class Paper:
    """Slack's reactions: an addition takes `seconds` to arrive, `troubles` come first."""

    clock: ManualClock
    seconds: float = 0.0
    troubles: dict[str, list[Failure]] = field(default_factory=dict)
    standing: set[str] = field(default_factory=set)
    calls: list[str] = field(default_factory=list)

    async def try_ask(self, method: str, **args: str) -> Failure | None:
        self.calls.append(method)
        if troubles := self.troubles.get(method):
            return troubles.pop(0)
        ts = args["timestamp"]
        if method == "reactions.add":
            await self.clock.sleep(self.seconds)
            self.standing.add(ts)
        elif ts in self.standing:
            self.standing.remove(ts)
        else:
            return Refused("no_reaction")
        return None


@dataclass
class Line:
    """The hints of a channel that began at `began`, on paper."""

    clock: ManualClock
    paper: Paper
    status: StatusLine
    began: float

    async def hint(self, question: Inbound, state: HintState) -> None:
        await self.status.hint(DIRECT, question, state)


@pytest.fixture
async def line() -> AsyncIterator[Line]:
    clock = ManualClock()
    paper = Paper(clock)
    api = cast(SlackApi, SimpleNamespace(try_ask=paper.try_ask))
    reactions = Reactions(api, clock, "eyes")
    status = StatusLine(api, Sessions(api, enabled=False), reactions, clock, enabled=False)
    removing = asyncio.create_task(reactions.run())
    await clock.advance(0)
    yield Line(clock, paper, status, clock.now())
    removing.cancel()
    await asyncio.gather(removing, return_exceptions=True)


@pytest.mark.parametrize("cancelled", [False, True])
async def test_an_answer_that_is_over_while_its_reaction_is_under_way_leaves_none(line: Line, cancelled: bool) -> None:
    line.paper.seconds = 5.0
    question = asked("7.000001", line.began + 1)
    hinting = asyncio.create_task(line.hint(question, HintState.WAITING))
    await line.clock.advance(1)
    await line.hint(question, HintState.DONE)
    if cancelled:
        hinting.cancel()
    await line.clock.advance(60)
    assert line.paper.calls == ["reactions.add", "reactions.remove"]
    assert line.paper.standing == set()
    await asyncio.gather(hinting, return_exceptions=True)


@pytest.mark.parametrize("trouble", [Transient("503"), Unknown("cut"), RateLimited(5.0, Draw("reactions.remove"))])
async def test_a_removal_that_fails_in_passing_is_made_again(line: Line, trouble: Failure) -> None:
    line.paper.troubles["reactions.remove"] = [trouble] * 3
    question = asked("7.000001", line.began + 1)
    await line.hint(question, HintState.WAITING)
    assert line.paper.standing
    await line.hint(question, HintState.DONE)
    await line.clock.advance(120)
    assert line.paper.standing == set()


@pytest.mark.parametrize("trouble", [Transient("503"), Unknown("cut")])
async def test_a_removal_that_never_passes_does_not_hold_up_the_others(line: Line, trouble: Failure) -> None:
    line.paper.troubles["reactions.remove"] = [trouble] * 6
    for number in (1, 2):
        question = asked(f"{number}.000001", line.began + number)
        await line.hint(question, HintState.WAITING)
        await line.hint(question, HintState.DONE)
    await line.clock.advance(600)
    assert line.paper.standing == {"1.000001"}


async def test_what_is_shown_once_more_without_work_asks_no_reaction_away(line: Line) -> None:
    """An answered question, or the answer to a command: its question has none, or none any more."""
    question = asked("7.000001", line.began + 1)
    await line.hint(question, HintState.WAITING)
    await line.hint(question, HintState.DONE)
    await line.clock.advance(10)
    await line.hint(question, HintState.DONE)
    await line.hint(asked("8.000001", line.began + 2), HintState.DONE)
    await line.clock.advance(60)
    assert line.paper.calls == ["reactions.add", "reactions.remove"]


async def test_a_reaction_that_an_earlier_process_added_goes_with_the_answer(line: Line) -> None:
    line.paper.standing.add("7.000001")
    await line.hint(asked("7.000001", line.began - 60), HintState.DONE)
    await line.clock.advance(10)
    assert line.paper.standing == set()


async def test_a_reaction_that_was_over_the_rate_comes_with_the_next_hint_or_is_not_asked_away(line: Line) -> None:
    limited = RateLimited(0.0, Draw("reactions.add"))
    line.paper.troubles["reactions.add"] = [limited, limited]
    never, later = asked("7.000001", line.began + 1), asked("8.000001", line.began + 1)
    await line.hint(never, HintState.WAITING)
    await line.hint(never, HintState.DONE)
    await line.hint(later, HintState.WAITING)
    await line.clock.advance(10)
    assert "reactions.remove" not in line.paper.calls
    await line.hint(later, HintState.WORKING)
    assert line.paper.standing == {"8.000001"}
    await line.hint(later, HintState.DONE)
    await line.clock.advance(10)
    assert line.paper.standing == set()
