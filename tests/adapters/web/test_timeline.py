"""A visitor's history: every page sees the same, each thing once, in order, and as it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace

import pytest

from adapters.web.feed import Event, Feed
from adapters.web.log import LogAway, MemoryLog, Record
from adapters.web.paint import AskedFile, Style
from adapters.web.timeline import WINDOW, Asked, Timeline, Timelines
from channels.access import ShowReasoning
from channels.model import Phase, Step, StepState, TurnId, View
from tests.adapters.web.core import message_view
from tests.adapters.web.page_model import PageModel
from tests.clock import ManualClock

TURN = TurnId("a" * 32)
OTHER = TurnId("b" * 32)
ASKED = Asked("q1", "What is it?", 1.0)


class FlakyLog(MemoryLog):
    """Counts what is written and fails on demand."""

    def __init__(self) -> None:
        super().__init__()
        self.is_away = False
        self.written: list[Record] = []

    async def put(self, conversation: str, record: Record) -> None:
        if self.is_away:
            raise LogAway("the disk is full")
        self.written.append(record)
        await super().put(conversation, record)


class SlowLog(MemoryLog):
    """Writes when it may; meanwhile others go on."""

    def __init__(self) -> None:
        super().__init__()
        self.may_write = asyncio.Event()

    async def put(self, conversation: str, record: Record) -> None:
        await self.may_write.wait()
        await super().put(conversation, record)


@pytest.fixture
def log() -> FlakyLog:
    return FlakyLog()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def timeline(log: FlakyLog, clock: ManualClock) -> Timeline:
    return await _loaded(log, clock)


async def _loaded(log: MemoryLog, clock: ManualClock) -> Timeline:
    timeline = Timeline("anna", log, clock, Style(ShowReasoning.FOLDED))
    await timeline.load()
    return timeline


async def _catch_up(timeline: Timeline, page: PageModel) -> PageModel:
    """Let the page take everything there is."""
    events = timeline.follow(page.cursor)
    while True:
        following = asyncio.ensure_future(anext(events))
        for _ in range(5):  # an event that is there comes without waiting for anything
            await asyncio.sleep(0)
        if not following.done():
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following
            return page
        event = following.result()
        assert event is not None
        page.take(event)


async def test_a_page_sees_the_answer_grow_piece_by_piece(timeline: Timeline) -> None:
    page = await _catch_up(timeline, PageModel())
    text = "A growing answer."
    seen = []
    for end in range(1, len(text) + 1):
        await timeline.show(TURN, ASKED, message_view(text[:end], Phase.WRITING))
        seen.append((await _catch_up(timeline, page)).texts[-1])
    assert seen == [text[:end].rstrip() for end in range(1, len(text) + 1)]
    await timeline.show(TURN, ASKED, message_view(text))
    assert (await _catch_up(timeline, page)).texts == ["What is it?", text]
    assert page.names[0] == "state"
    assert set(page.names[3:]) == {"patch"}


async def test_the_bytes_sent_for_a_growing_answer_are_linear_in_its_length(timeline: Timeline) -> None:
    page = await _catch_up(timeline, PageModel())
    text = "One long paragraph without any end, again and again. " * 100
    for end in range(0, len(text), 10):
        await timeline.show(TURN, ASKED, message_view(text[:end], Phase.WRITING))
        await _catch_up(timeline, page)
    assert max(page.sizes[3:]) < 250


async def test_a_page_that_comes_back_gets_exactly_what_it_missed(timeline: Timeline) -> None:
    watching = await _catch_up(timeline, PageModel())
    away = await _catch_up(timeline, PageModel())
    await timeline.show(TURN, ASKED, message_view("One", Phase.WRITING))
    await _catch_up(timeline, away)
    for text in ("One two", "One two three", "One two three."):
        await timeline.show(TURN, ASKED, message_view(text, Phase.WRITING))
    await _catch_up(timeline, away)
    await _catch_up(timeline, watching)
    assert away.names == ["state", "entry", "entry", "patch", "patch", "patch"]
    assert away.entries == watching.entries
    assert away.cursor == watching.cursor
    assert (await _catch_up(timeline, away)).names[6:] == []


@pytest.mark.parametrize("cursor", ["", "0", "x-1", "-1", "é-٣", "ffffffffffff-3", "a" * 10_000])
async def test_a_page_with_a_foreign_cursor_gets_the_whole_state(timeline: Timeline, cursor: str) -> None:
    await timeline.show(TURN, ASKED, message_view("Hello."))
    page = await _catch_up(timeline, PageModel(cursor=cursor))
    assert page.names == ["state"]
    assert page.texts == ["What is it?", "Hello."]


async def test_a_cursor_from_before_a_restart_is_not_mistaken(
    timeline: Timeline, log: FlakyLog, clock: ManualClock
) -> None:
    page = await _catch_up(timeline, PageModel())
    await timeline.show(TURN, ASKED, message_view("Half", Phase.WRITING))
    await _catch_up(timeline, page)
    after = await _loaded(log, clock)
    for text in ("Half", "Half and", "Half and whole"):
        await after.show(TURN, ASKED, message_view(text, Phase.WRITING))
    await after.show(TURN, ASKED, message_view("Half and whole."))
    await _catch_up(after, page)
    assert page.names[-1] == "state"
    assert page.texts == ["What is it?", "Half and whole."]


async def test_a_page_far_behind_gets_the_state_instead_of_forgotten_events() -> None:
    feed = Feed(most_events=3)
    for number in range(5):
        feed.publish("patch", {"n": number})
    assert feed.after(1) is None
    missed = feed.after(2)
    assert missed is not None
    assert [event.data for event in missed] == ['{"n":2}', '{"n":3}', '{"n":4}']
    assert feed.after(5) == ()


async def test_a_feed_is_bounded_by_size_too() -> None:
    feed = Feed(most_chars=1_000)
    for _ in range(10):
        feed.publish("patch", "x" * 400)
    assert feed.after(8) is not None
    assert feed.after(7) is None


async def test_a_silent_connection_gets_a_sign_of_life(timeline: Timeline, clock: ManualClock) -> None:
    events = timeline.follow(None)
    assert isinstance(await anext(events), Event)
    waiting = asyncio.ensure_future(anext(events))
    await clock.advance(14.9)
    assert not waiting.done()
    await clock.advance(0.2)
    assert await waiting is None


async def test_following_ends_when_the_timeline_is_closed(timeline: Timeline) -> None:
    async def drain(events: AsyncIterator[Event | None]) -> int:
        return len([event async for event in events])

    following = asyncio.ensure_future(drain(timeline.follow(None)))
    await asyncio.sleep(0)
    timeline.close()
    assert await asyncio.wait_for(following, 1) == 1


# ---------------------------------------------------------------- once, and in order


async def test_a_question_that_is_sent_twice_is_shown_once(timeline: Timeline) -> None:
    await timeline.ask(ASKED)
    await timeline.ask(ASKED)
    assert (await _catch_up(timeline, PageModel())).texts == ["What is it?"]


async def test_a_reply_brings_a_question_that_nobody_has_shown(timeline: Timeline) -> None:
    await timeline.show(TURN, ASKED, message_view("It."))
    await timeline.ask(ASKED)
    assert (await _catch_up(timeline, PageModel())).texts == ["What is it?", "It."]


async def test_each_reply_stands_below_its_question_also_when_another_was_asked_meanwhile(timeline: Timeline) -> None:
    second = Asked("q2", "And that?", 2.0)
    await timeline.ask(ASKED)
    await timeline.ask(second)
    await timeline.show(TURN, ASKED, message_view("It."))
    await timeline.show(OTHER, second, message_view("That."))
    page = await _catch_up(timeline, PageModel())
    assert page.texts == ["What is it?", "It.", "And that?", "That."]


async def test_a_question_that_the_log_does_not_know_stands_where_it_was_asked(
    timeline: Timeline, log: FlakyLog, clock: ManualClock
) -> None:
    log.is_away = True
    with pytest.raises(LogAway):
        await timeline.ask(ASKED)
    log.is_away = False
    after = await _loaded(log, clock)  # its process went before the log was back
    second = Asked("q2", "And that?", 2.0)
    await after.ask(second)
    await after.show(TURN, ASKED, message_view("It."))
    await after.show(OTHER, second, message_view("That."))
    expected = ["What is it?", "It.", "And that?", "That."]
    assert (await _catch_up(after, PageModel())).texts == expected
    assert (await _catch_up(await _loaded(log, clock), PageModel())).texts == expected


async def test_a_question_shown_very_late_is_not_hidden_above_what_pages_reach(
    timeline: Timeline, log: FlakyLog, clock: ManualClock
) -> None:
    for number in range(WINDOW + 5):
        await timeline.ask(Asked(f"early{number}", f"Question {number}", 10.0 + number))
    after = await _loaded(log, clock)
    await after.show(TURN, ASKED, message_view("It."))
    page = await _catch_up(after, PageModel())
    assert page.texts[:4] == ["Question 5", "What is it?", "It.", "Question 6"]
    earlier = await after.earlier(page.in_order[0].position)
    assert isinstance(earlier["entries"], list)
    assert len(earlier["entries"]) == 5


async def test_a_second_reply_to_a_question_stands_at_the_end(timeline: Timeline) -> None:
    await timeline.show(TURN, ASKED, message_view("Failed", Phase.FAILED))
    await timeline.ask(Asked("q2", "Well?", 2.0))
    await timeline.show(OTHER, ASKED, message_view("Done."))
    page = await _catch_up(timeline, PageModel())
    assert page.texts == ["What is it?", "Failed", "Well?", "Done."]


async def test_what_is_not_shown_as_a_question_still_gets_its_reply(timeline: Timeline) -> None:
    await timeline.show(TURN, Asked("press", "", 1.0), message_view("Again."))
    assert (await _catch_up(timeline, PageModel())).texts == ["Again."]


async def test_showing_the_same_view_again_sends_nothing(timeline: Timeline) -> None:
    await timeline.show(TURN, ASKED, message_view("Done."))
    page = await _catch_up(timeline, PageModel())
    await timeline.show(TURN, ASKED, message_view("Done.", revision=7))
    assert (await _catch_up(timeline, page)).names == ["state"]


async def test_files_of_a_question_are_shown(timeline: Timeline) -> None:
    await timeline.ask(replace(ASKED, files=(AskedFile("q1.0", "<b>.txt", 1234),)))
    (entry,) = (await _catch_up(timeline, PageModel())).in_order
    assert "&lt;b&gt;.txt" in entry.html
    assert 'href="uploads/q1.0"' in entry.html
    assert "1.2 kB" in entry.html


async def test_a_new_conversation_is_a_line_across_the_page(timeline: Timeline) -> None:
    await timeline.ask(Asked("n", "/new", 1.0, is_divider=True, is_command=True))
    (entry,) = (await _catch_up(timeline, PageModel())).in_order
    assert (entry.kind, entry.pieces) == ("divider", {"text": "New conversation"})


# ---------------------------------------------------------------- durable


async def test_first_sight_and_final_are_durable_at_once_and_growth_twice_a_second(
    timeline: Timeline, log: FlakyLog, clock: ManualClock
) -> None:
    await timeline.ask(ASKED)
    await timeline.show(TURN, ASKED, message_view("0", Phase.WRITING))
    assert len(log.written) == 2
    for number in range(1, 40):
        await clock.advance(0.05)
        await timeline.show(TURN, ASKED, message_view("0" * (number + 1), Phase.WRITING))
    assert 3 <= len(log.written) - 2 <= 4
    await timeline.show(TURN, ASKED, message_view("0" * 41))
    assert (await _catch_up(await _loaded(log, clock), PageModel())).texts[-1] == "0" * 41


async def test_a_log_that_is_away_does_not_stop_the_text_from_growing(
    timeline: Timeline, log: FlakyLog, clock: ManualClock
) -> None:
    await timeline.show(TURN, ASKED, message_view("One", Phase.WRITING))
    log.is_away = True
    for text in ("One two", "One two three"):
        await clock.advance(1)
        await timeline.show(TURN, ASKED, message_view(text, Phase.WRITING))
    page = await _catch_up(timeline, PageModel())
    assert page.texts[-1] == "One two three"
    with pytest.raises(LogAway):
        await timeline.show(TURN, ASKED, message_view("One two three."))
    assert (await _catch_up(timeline, page)).texts[-1] == "One two three."
    log.is_away = False
    await timeline.show(TURN, ASKED, message_view("One two three."))
    assert (await _catch_up(await _loaded(log, clock), PageModel())).texts[-1] == "One two three."


async def test_a_creation_that_was_not_durable_is_made_so_later(
    timeline: Timeline, log: FlakyLog, clock: ManualClock
) -> None:
    log.is_away = True
    with pytest.raises(LogAway):
        await timeline.show(TURN, ASKED, message_view("One", Phase.WRITING))
    with pytest.raises(LogAway):
        await timeline.ask(ASKED)
    log.is_away = False
    await timeline.ask(ASKED)
    await timeline.show(TURN, ASKED, message_view("One."))
    assert (await _catch_up(await _loaded(log, clock), PageModel())).texts == ["What is it?", "One."]


async def test_after_a_restart_the_same_reply_grows_on(timeline: Timeline, log: FlakyLog, clock: ManualClock) -> None:
    await timeline.show(TURN, ASKED, message_view("Half", Phase.WRITING))
    after = await _loaded(log, clock)
    page = await _catch_up(after, PageModel())
    assert page.texts == ["What is it?", "Half"]
    await after.show(TURN, ASKED, message_view("Half and whole."))
    assert (await _catch_up(after, page)).texts == ["What is it?", "Half and whole."]


async def test_what_somebody_who_was_paused_writes_does_not_replace_what_his_successor_wrote(
    timeline: Timeline, log: FlakyLog, clock: ManualClock
) -> None:
    await timeline.show(TURN, ASKED, message_view("Half", Phase.WRITING))
    successor = await _loaded(log, clock)
    await successor.show(TURN, ASKED, message_view("Half and whole."))
    await clock.advance(1)
    await timeline.show(TURN, ASKED, message_view("Half and", Phase.WRITING))  # had asked before he was paused
    assert (await _catch_up(await _loaded(log, clock), PageModel())).texts[-1] == "Half and whole."


async def test_a_successor_replaces_what_came_between_his_reading_and_his_writing(
    timeline: Timeline, log: FlakyLog, clock: ManualClock
) -> None:
    await timeline.show(TURN, ASKED, message_view("Half", Phase.WRITING))
    successor = await _loaded(log, clock)
    await clock.advance(1)
    await timeline.show(TURN, ASKED, message_view("Half and", Phase.WRITING))
    with pytest.raises(LogAway):
        await successor.show(TURN, ASKED, message_view("Half and whole."))
    await successor.show(TURN, ASKED, message_view("Half and whole."))
    assert (await _catch_up(await _loaded(log, clock), PageModel())).texts[-1] == "Half and whole."


async def test_feedback_is_shown_and_kept(timeline: Timeline, log: FlakyLog, clock: ManualClock) -> None:
    await timeline.show(TURN, ASKED, message_view("Done."))
    await timeline.rate(TURN, "up")
    for shown in (timeline, await _loaded(log, clock)):
        page = await _catch_up(shown, PageModel())
        assert 'data-value="up" aria-pressed="true"' in page.in_order[-1].pieces["end"]
        assert 'data-value="down" aria-pressed="false"' in page.in_order[-1].pieces["end"]


async def test_an_unreadable_entry_is_left_out_and_the_rest_is_shown(
    timeline: Timeline, log: FlakyLog, clock: ManualClock
) -> None:
    await timeline.show(TURN, ASKED, message_view("Done."))
    await log.put("anna", replace(log.written[0], id="broken", seq=99, order=99, body="{nonsense"))
    assert (await _catch_up(await _loaded(log, clock), PageModel())).texts == ["What is it?", "Done."]


# ---------------------------------------------------------------- long histories


async def test_a_page_gets_the_newest_entries_and_the_earlier_ones_on_demand(
    timeline: Timeline, log: FlakyLog, clock: ManualClock
) -> None:
    for number in range(WINDOW + 25):
        await timeline.ask(Asked(f"q{number}", f"Question {number}", float(number)))
    after = await _loaded(log, clock)
    page = await _catch_up(after, PageModel())
    assert page.texts == [f"Question {number}" for number in range(25, WINDOW + 25)]
    earlier = await after.earlier(page.in_order[0].position)
    entries = earlier["entries"]
    assert isinstance(entries, list)
    assert len(entries) == 25
    assert earlier["earlier"] is False


async def test_memory_holds_a_bounded_part_of_a_long_conversation(timeline: Timeline) -> None:
    for number in range(5 * WINDOW):
        await timeline.ask(Asked(f"q{number}", f"Question {number}", float(number)))
    page = await _catch_up(timeline, PageModel())
    assert len(page.entries) <= 4 * WINDOW
    assert page.texts[-1] == f"Question {5 * WINDOW - 1}"
    await timeline.ask(Asked("q0", "Question 0", 0.0))
    assert (await _catch_up(timeline, page)).texts[-1] == f"Question {5 * WINDOW - 1}"


async def test_an_old_reply_can_still_be_changed(timeline: Timeline, log: FlakyLog, clock: ManualClock) -> None:
    await timeline.show(TURN, ASKED, message_view("Old."))
    for number in range(WINDOW + 5):
        await timeline.ask(Asked(f"later{number}", "x", 2.0))
    after = await _loaded(log, clock)
    await after.show(TURN, ASKED, message_view("Old, touched up."))
    view = await (await _loaded(log, clock)).view_of(TURN)
    assert view is not None
    assert view.text == "Old, touched up."


async def test_timelines_that_nobody_uses_are_forgotten_and_read_again(log: FlakyLog, clock: ManualClock) -> None:
    timelines = Timelines(log, clock, Style(), most=2)
    async with timelines.using("anna") as first:
        await first.show(TURN, ASKED, message_view("Half", Phase.WRITING))
        for name in ("bert", "carl", "dora"):
            async with timelines.using(name):
                pass
        async with timelines.using("anna") as again:
            assert again is first
    for name in ("bert", "carl"):
        async with timelines.using(name):
            pass
    async with timelines.using("anna") as later:
        assert later is not first
        assert (await _catch_up(later, PageModel())).texts == ["What is it?", "Half"]


async def test_two_uses_at_once_get_one_timeline(log: FlakyLog, clock: ManualClock) -> None:
    timelines = Timelines(log, clock, Style())

    async def use() -> Timeline:
        async with timelines.using("anna") as timeline:
            await asyncio.sleep(0)
            return timeline

    first, second = await asyncio.gather(use(), use())
    assert first is second


async def test_steps_and_reasoning_are_part_of_the_state(timeline: Timeline) -> None:
    steps = (Step("1", "Search <x>", StepState.RUNNING, started=1.0),)
    await timeline.show(TURN, ASKED, View(Phase.WORKING, steps=steps, reasoning="Hm <y>"))
    entry = (await _catch_up(timeline, PageModel())).in_order[-1]
    assert entry.live
    assert list(entry.pieces) == ["reasoning", "steps", "end"]
    assert "Search &lt;x&gt;" in entry.pieces["steps"]
    assert "Hm &lt;y&gt;" in entry.pieces["reasoning"]
    assert 'data-press="s"' in entry.pieces["end"]


async def test_a_question_and_its_replies_that_come_at_once_do_not_write_over_each_other(clock: ManualClock) -> None:
    log = SlowLog()
    timeline = await _loaded(log, clock)
    view = message_view("A bridge.")
    page = PageModel()
    async with asyncio.timeout(5), asyncio.TaskGroup() as writers:
        writers.create_task(timeline.ask(ASKED))
        for turn in (TURN, OTHER):
            writers.create_task(timeline.show(turn, ASKED, view))
            while len((await _catch_up(timeline, page)).texts) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0)
        log.may_write.set()
    assert {record.id for record in await log.newest("anna", 9)} == {ASKED.id, TURN, OTHER}
    assert timeline.is_settled
