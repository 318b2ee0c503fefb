"""Slack's rates with a crowd in the workspace: whatever comes at once, no method is called more often than allowed."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from adapters.slack import limits
from adapters.slack.api import SideGate, SlackApi
from adapters.slack.ops import Post, Share, Upload
from adapters.slack.reactions import Reactions
from channels.adapter import Draw, Failure, Op, RateLimited, Transient, Unknown
from channels.model import File, Phase, Segment, View
from config.channel import Streaming
from tests.adapters.slack.crowd import Crowd
from tests.adapters.slack.paper_slack import DIRECT, asked
from tests.clock import ManualClock
from tests.emulators.slack import rules


def words(count: int, start: int = 0) -> str:
    return " ".join(f"w{number}w" for number in range(start, start + count))


def writing(text: str, revision: int = 1) -> View:
    return View(Phase.WRITING, (Segment("a", text),), revision=revision)


def done(text: str) -> View:
    return View(Phase.DONE, (Segment("a", text),), revision=1_000_000)


async def test_many_streams_that_end_at_once_end_no_faster_than_allowed() -> None:
    async with Crowd(Streaming.NATIVE) as crowd:
        members = [crowd.join(writing(words(9))) for _ in range(45)]
        await crowd.wait(125)
        for member in members:
            crowd.show(member, done(words(10)))
        await crowd.settle()
        assert [member.paper.text for member in members] == [words(10)] * 45
    assert crowd.broken == []


@pytest.mark.parametrize("streaming", [Streaming.AUTO, Streaming.EDIT])
async def test_many_answers_that_grow_and_end_together_stay_inside_all_rates(streaming: Streaming) -> None:
    async with Crowd(streaming) as crowd:
        members = [crowd.join(writing(words(5))) for _ in range(25)]
        for count in range(10, 200, 2):
            await crowd.wait(1.0)
            for member in members:
                crowd.show(member, writing(words(count), count))
        for member in members:
            crowd.show(member, done(words(200)))
        await crowd.settle()
        assert [member.paper.text for member in members] == [words(200)] * 25
    assert crowd.broken == []


async def test_answers_in_one_channel_are_posted_one_a_second() -> None:
    async with Crowd(Streaming.OFF) as crowd:
        for _ in range(12):
            crowd.join(done(words(5)), channel="C1")
        await crowd.settle(20)
    assert crowd.broken == []


async def test_posts_of_a_whole_workspace_stay_inside_its_rate() -> None:
    async with Crowd(Streaming.OFF) as crowd:
        for _ in range(310):
            crowd.join(done("yes"))
        await crowd.settle()
    assert crowd.broken == []


@pytest.mark.parametrize(("call", "failure"), [(Upload, Unknown("cut")), (Share, Transient("503"))])
async def test_many_files_are_uploaded_and_shared_inside_the_rate(call: type[Op], failure: Failure) -> None:
    """Also those that have to be sent once more."""
    async with Crowd() as crowd:
        for _ in range(55):
            crowd.join(replace(done("Here."), files=(File("f", "a.txt"),))).troubles[call] = failure
        await crowd.settle()
        assert [len(member.paper.shared) for member in crowd.members] == [1] * 55
    assert crowd.broken == []


@pytest.mark.parametrize("direct", [False, True])
async def test_many_lost_answers_are_looked_for_inside_the_rate(direct: bool) -> None:
    """A hiccup of the network leaves all of them unknown at the same moment."""
    async with Crowd(Streaming.EDIT) as crowd:
        for _ in range(60):
            crowd.join(done("yes"), direct=direct).troubles[Post] = Unknown("cut")
        await crowd.settle()
        assert [member.paper.text for member in crowd.members] == ["yes"] * 60
    assert crowd.broken == []


async def test_messages_with_nothing_left_to_say_go_away_inside_the_rate() -> None:
    async with Crowd(Streaming.EDIT, size=400) as crowd:
        members = [crowd.join(writing(words(100))) for _ in range(55)]
        await crowd.wait(120)
        for member in members:
            first, _ = member.paper.standing
            crowd.show(member, done(first.text))
        await crowd.settle()
        assert [len(member.paper.standing) for member in members] == [1] * 55
    assert crowd.broken == []


async def test_reactions_of_answers_that_are_over_at_once_all_go_as_fast_as_allowed() -> None:
    clock = ManualClock()
    gate, removed = SideGate(clock), list[str]()

    async def try_ask(method: str, **args: str) -> Failure | None:
        if not gate.admits(method):
            return RateLimited(0.0, Draw(method))
        removed.append(args["timestamp"])
        return None

    reactions = Reactions(cast(SlackApi, SimpleNamespace(try_ask=try_ask)), clock, "eyes")
    removing = asyncio.create_task(reactions.run())
    for number in range(1, 51):
        reactions.remove(DIRECT, asked(f"{number}.000001"))
    await clock.advance(59)
    assert 15 < len(removed) <= rules.METHODS["reactions.remove"].rate.count
    await clock.advance(130)
    assert removed == [f"{number}.000001" for number in range(1, 51)]
    removing.cancel()


def test_no_more_reactions_are_added_than_can_be_removed() -> None:
    assert limits.SIDE_CALLS["reactions.add"] <= limits.SIDE_CALLS["reactions.remove"]


@pytest.mark.parametrize("method", sorted(limits.SIDE_CALLS))
def test_side_calls_keep_inside_the_vendors_rate(method: str) -> None:
    assert limits.SIDE_CALLS[method] <= rules.METHODS[method].rate.count


@pytest.mark.parametrize(
    ("streaming", "method"), [(Streaming.AUTO, "chat.appendStream"), (Streaming.EDIT, "chat.update")]
)
async def test_each_of_five_readers_gets_new_words_as_often_as_their_share_allows(
    streaming: Streaming, method: str
) -> None:
    """Also in the minute after all began at once, and each single time."""
    async with Crowd(streaming) as crowd:
        members = [crowd.join(writing("w0w ")) for _ in range(5)]
        for count in range(2, 600):
            await crowd.wait(0.25)
            for member in members:
                crowd.show(member, writing(words(count) + " ", count))
        for member in members:
            crowd.show(member, done(words(600)))
        await crowd.settle()
    assert crowd.broken == []
    budget = limits.BUDGETS[method]
    share = 5 * budget.window / (budget.limit - budget.reserve)
    gaps = [later - earlier for member in members for earlier, later in itertools.pairwise(member.seen_at)]
    assert max(gaps) < 1.1 * share
    assert budget.limit - budget.reserve > 0.8 * rules.METHODS[method].rate.count, "hardly anything is given away"
