"""Many replies at once, a loop that never stalls, and secrets that stay where they are."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Callable
from io import StringIO
from itertools import pairwise

import pytest
from markdown_it import MarkdownIt

from adapters.feishu.api import Api
from adapters.feishu.errors import CODES, ApiRefusal, Means, failure_of
from adapters.feishu.ops import FeishuShown
from channels.adapter import Draw, RateLimited, ReplyTarget, Unauthorised
from channels.model import Phase, Segment, TurnId, View
from channels.observe import configure_logging
from tests.adapters.feishu.apart import Elsewhere, apart, until
from tests.adapters.feishu.conftest import Open
from tests.adapters.feishu.offline import Desk
from tests.adapters.feishu.stalls import Stall, loop_watched
from tests.clock import ManualClock, ScaledClock
from tests.emulators.feishu import FeishuEmulator, refuse
from tests.emulators.journal import Fault, FaultKind
from tests.scripted import Pause, Say

LIVES = 5
"""What the channel does wrong it does in every life; what the machine does comes and goes."""
LONGEST_STEP = 2.0
"""Times a `yardstick`, which takes about 10 ms where nothing else runs: 20 ms there, and more on a loaded machine."""
PARAGRAPH = "这是**回答**。 " * 40 + "\n\n"
LONGEST_WAIT = 0.020  # seconds
FAIR_SHARE = 20 * 60.0 / 800
"""Seconds between two changes of one card when 20 grow: growth may spend 800 calls a minute."""


async def test_twenty_live_cards_share_the_apps_budget_and_none_starves(open_room: Open) -> None:
    # On a clock faster than the wall the sockets would keep the rates, and not the budgets.
    words = " ".join(f"w{number}x" for number in range(120))
    room = await open_room([Say(words, size=12, pace=0.3)], clock=ScaledClock(1))
    people = [f"Person {number}" for number in range(20)]
    for person in people:
        await room.ask(person, "hi")
    await room.bench.until(lambda: len(room.questions) == 20)
    await room.bench.settled(60)
    for person in people:
        (reply,) = room.replies(room.emulator.p2p(person))
        assert reply.text == words
        seen = [version.at for version in reply.versions]
        assert max(later - earlier for earlier, later in pairwise(seen)) < 3 * FAIR_SHARE
    calls = [call for call in room.emulator.journal.calls if call.method.startswith("cardkit.")]
    assert len(calls) < 20 * len(words) / 12 / 2, "many more would have been made if each card had been alone"
    assert all(call.status in (101, 200) for call in room.emulator.journal.calls)


def yardstick() -> float:
    """CPU seconds of a piece of work that is none of ours and of the same kind: how fast this machine is just now."""
    gc.collect()
    began = time.thread_time()
    MarkdownIt("commonmark").parse("This is a **fairly** long answer with `code` in it. " * 450)
    return time.thread_time() - began


def planning_time(desk: Desk, view: View) -> float:
    """CPU seconds. Planning is pure: of several times the shortest is the one that nobody else had a part in."""
    times = []
    for _ in range(3):
        began = time.thread_time()
        desk.surface.plan(view, desk.shown, desk.clock.now())
        times.append(time.thread_time() - began)
    return min(times)


def test_no_step_of_planning_takes_longer_the_longer_the_answer_is() -> None:
    prose = "这是一个**很长**的回答，包含 `code` 和 [链接](https://example.org)。" * 20
    text = (prose + "\n\n| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 30 + "\n") * 80
    assert len(text) > 100_000
    desk = Desk()
    early = late = 0.0
    for end in range(1_000, len(text), 1_500):
        view = View(phase=Phase.WRITING, body=(Segment("a", text[:end]),), revision=end)
        while True:
            took = planning_time(desk, view)
            if end < 20_000:  # a second card has begun by then
                early = max(early, took)
            else:
                late = max(late, took)
            if not desk.step(view):
                break
        desk.wait(1.0)
    assert late < 2 * early
    assert not desk.emulator.journal.broken


async def live_through(elsewhere: Elsewhere, life: int) -> list[Stall]:
    """Start, receive, answer, lose the connection and come back, stop; the steps that took too long."""
    adapter, ears = elsewhere.channel()
    chat = await elsewhere.act("p2p", "Ann")
    with loop_watched(worked=LONGEST_STEP * yardstick(), waited=LONGEST_WAIT) as stalls:
        await adapter.start()
        await until(lambda: ears.came_up == 1)
        earlier = ""
        for number in range(10):
            text = f"question {number} " + "谢谢" * 500
            earlier = await elsewhere.act("say", "Ann", chat, text)
        await elsewhere.act("merge_forward", "Ann", chat, [earlier] * 3)
        await until(lambda: len(ears.heard) == 11)
        question = ears.heard[-1]
        surface = adapter.surface(ReplyTarget(TurnId(f"{life:032x}"), question.place, question))
        shown = FeishuShown()
        for end in range(2_000, 30_000, 4_000):
            phase = Phase.DONE if end > 24_000 else Phase.WRITING
            view = View(phase=phase, body=(Segment("a", PARAGRAPH * (end // len(PARAGRAPH))),), revision=end)
            for op in surface.plan(view, shown, 0.0)[:1]:
                shown = surface.advance(shown, op, await surface.perform(op), 0.0)
            await asyncio.sleep(0.15)
        await elsewhere.act("abort_connections")
        await until(lambda: ears.came_up == 2)
        await adapter.stop()
    return stalls


async def test_starting_receiving_replying_and_reconnecting_never_stall_the_loop() -> None:
    async with apart() as elsewhere:
        stalls = await live_through(elsewhere, 0)
        always = {stall.what for stall in stalls}
        for life in range(1, LIVES):
            if not always:
                break
            stalls = await live_through(elsewhere, life)
            always &= {stall.what for stall in stalls}
        assert not await elsewhere.broken()
    assert not always, stalls


async def test_a_step_that_works_for_long_and_one_that_waits_are_seen() -> None:
    longest = 0.020

    def work() -> None:
        ends = time.thread_time() + 0.05
        while time.thread_time() < ends:
            pass

    async def stalls_of(step: Callable[[], None]) -> list[Stall]:
        with loop_watched(worked=longest, waited=longest) as stalls:
            asyncio.get_running_loop().call_soon(step)
            await asyncio.sleep(0.1)
        return [stall for stall in stalls if step.__name__ in stall.what]

    (worked,) = await stalls_of(work)
    assert worked.worked > longest
    (waited,) = await stalls_of(wait_for_nothing)
    assert waited.waited > longest > waited.worked


def wait_for_nothing() -> None:
    time.sleep(0.05)


async def test_no_secret_reaches_the_log(open_room: Open) -> None:
    stream = StringIO()
    configure_logging(json_lines=True, level=logging.DEBUG, stream=stream)
    try:
        room = await open_room([Say("one "), Pause(5), Say("two")])
        await room.emulator.close_connections()
        longconn = room.emulator.longconn
        await room.emulator.wait_for(lambda: longconn.opened == 2 and longconn.connections, 20)
        room.emulator.faults.plan("im.message.reply", Fault(FaultKind.DROP_AFTER), refuse(230099))
        await room.ask("Ann", "hi")
        await room.settled()
        secrets = room.emulator.secrets()
    finally:
        configure_logging(json_lines=False)
    written = stream.getvalue()
    assert written
    assert not [secret for secret in secrets if secret in written]
    assert room.emulator.app_secret not in repr(room.adapter._api)


# -- the API client


async def test_a_token_is_fetched_once_for_all_who_wait_and_again_when_it_is_refused() -> None:
    clock = ManualClock()
    async with FeishuEmulator(clock) as emulator:
        api = Api(emulator.url, emulator.app_id, emulator.app_secret, clock)
        await asyncio.gather(*(api.call("asking", "GET", "bot/v3/info") for _ in range(10)))
        assert len(emulator.journal.of("auth.token")) == 1
        emulator.revoke_tokens()
        await asyncio.gather(*(api.call("asking", "GET", "bot/v3/info") for _ in range(3)))
        assert len(emulator.journal.of("auth.token")) == 2
        await clock.advance(7000)
        await api.call("asking", "GET", "bot/v3/info")
        assert len(emulator.journal.of("auth.token")) == 3
        await api.close()
        assert not emulator.journal.broken


async def test_credentials_that_are_put_right_are_noticed(open_room: Open) -> None:
    room = await open_room([Say("x")])
    secret, room.emulator.tokens._app_secret = room.emulator.tokens._app_secret, "another"
    room.emulator.revoke_tokens()
    await room.ask("Ann", "hi")
    await room.emulator.wait_for(lambda: room.state.value == "failed")
    assert "unauthorised" in room.bench.inbox.health.reason
    room.emulator.tokens._app_secret = secret
    await room.settled()
    assert room.text(room.emulator.p2p("Ann")) == "x"
    await room.emulator.wait_for(lambda: room.state.value == "running")


async def test_the_check_names_what_is_missing(open_room: Open) -> None:
    room = await open_room([Say("x")])
    assert all(finding.ok for finding in await room.adapter.check())
    room.emulator.revoke_scope("cardkit:card:write")
    found = {finding.what: finding for finding in await room.adapter.check()}
    assert not found["scope for: streaming cards"].ok
    assert "cardkit:card:write" in found["scope for: streaming cards"].detail


@pytest.mark.parametrize("code", sorted(CODES))
def test_every_code_of_the_table_has_a_failure(code: int) -> None:
    refusal = ApiRefusal("doing it", 400, code, "text", reset=3.0)
    failure = failure_of(refusal, app=Draw("cards"), message=Draw("card", "1"))
    if refusal.means is Means.RATE_APP:
        assert isinstance(failure, RateLimited)
        assert (failure.retry_after, failure.scope) == (3.0, Draw("cards"))
    if refusal.means in (Means.BAD_TOKEN, Means.NO_SCOPE, Means.BAD_APP):
        assert isinstance(failure, Unauthorised)
        assert str(failure).startswith("unauthorised")
