"""Many answers at once in one workspace: inside all tiers, and nobody starves."""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import replace

import pytest

from adapters.slack.planning import Rules
from adapters.slack.shown import SlackShown
from adapters.slack.spot import Spot
from adapters.slack.surface import SlackSurface, Taste
from channels.access import ShowReasoning
from channels.adapter import Intent, Receipt
from channels.model import Phase, Segment, TurnId, View
from config.channel import Streaming
from tests.adapters.slack.conftest import OpenDesk
from tests.adapters.slack.paper_slack import on_paper
from tests.clock import ScaledClock
from tests.emulators.slack import SlackEmulator
from tests.scripted import Say

_TICK = 0.2  # seconds


def words(count: int, start: int = 0) -> str:
    return " ".join(f"w{number}w" for number in range(start, start + count))


class Delays:
    """What the machine adds to every wait, on the test's clock: how long a task that sleeps is late, and when."""

    def __init__(self, clock: ScaledClock) -> None:
        self._clock = clock
        self._late: list[tuple[float, float]] = []

    async def watch(self) -> None:
        while True:
            due = self._clock.now() + _TICK
            await self._clock.sleep(_TICK)
            self._late.append((due, self._clock.now()))

    def within(self, start: float, end: float) -> float:
        """The delays between two moments."""
        return sum(max(0.0, min(now, end) - max(due, start)) for due, now in self._late)


@pytest.mark.parametrize("clock", [10.0], indirect=True)
async def test_five_answers_at_once_stay_inside_all_tiers_and_each_reader_gets_their_share(
    open_desk: OpenDesk, clock: ScaledClock
) -> None:
    text = words(650)
    desk = await open_desk([Say(text, size=10, pace=0.2)])
    delays = Delays(clock)
    watching = asyncio.create_task(delays.watch())
    roots = await asyncio.gather(*(desk.ask(f"question {number}") for number in range(5)))
    await desk.answered(5, timeout=60)
    watching.cancel()
    # 90 appends a minute of the 100 are for growth: with five readers one every 3.3 s for each.
    share = 5 * 60 / 90
    for root in roots:
        (answer,) = desk.replies(root)
        assert answer.text == text
        for earlier, later in itertools.pairwise(version.at for version in answer.versions):
            assert later - earlier < 1.3 * share + delays.within(earlier, later)


async def test_more_new_answers_than_streams_may_begin_are_posted_instead_and_nobody_waits(
    open_desk: OpenDesk, slack: SlackEmulator
) -> None:
    desk = await open_desk([Say(words(40), pace=1.0)])
    channels = [slack.add_channel(f"C0{number:03}", f"room{number}", members=["U0ANN"]).id for number in range(28)]
    roots = [await desk.ask("hello", channel=channel) for channel in channels]
    await desk.answered(28, timeout=60)
    for root, channel in zip(roots, channels, strict=True):
        assert desk.text(root, channel) == words(40)
    posted = [call for call in desk.calls("chat.postMessage") if call.status == 200]
    assert len(desk.calls("chat.startStream")) == 20
    assert len(posted) == 8
    seen = [slack.answers(channel)[0].first_seen or 0.0 for channel in channels]
    assert min(seen) > 0
    assert max(seen) - desk.calls("chat.startStream")[0].at < 60, "a stream for everybody would have taken a minute"


def test_planning_costs_little_also_for_a_long_answer() -> None:
    """A hundred kilobytes in 400 pieces; each view is planned once, as it is at most a few times a second."""
    spot = Spot(TurnId("0" * 32), "C1", "1.1", "T1", "U1", "T1", is_private=False, since="1.1")
    rules = Rules(Streaming.AUTO, 9_000, 11_500, feedback=True, may_stream=True)
    surface = SlackSurface(spot, Taste(rules, ShowReasoning.OFF), on_paper())
    paragraphs = "\n\n".join(f"{words(60, 60 * number)} **bold {number}** and `code`." for number in range(220))
    text = paragraphs[:100_000]
    shown, now, count, spent = SlackShown(), 1000.0, 0, 0.0
    for end in range(250, len(text), 250):
        view = View(Phase.WRITING, (Segment("a", text[:end]),), revision=end)
        now += 0.7
        for _ in range(2):
            began = time.process_time()
            ops = [op for op in surface.plan(replace(view), shown, now) if op.not_before <= now]
            spent += time.process_time() - began
            count += 1
            if not ops:
                break
            if ops[0].creates:
                shown = surface.advance(shown, ops[0], Intent(), now)
            shown = surface.advance(shown, ops[0], Receipt(f"m{count}"), now)
    assert len(shown.pages) >= 10
    assert len(shown.model_dump_json()) < 20_000
    assert spent / count < 0.03, f"{1000 * spent / count:.1f} ms for a plan"
