"""Replayed events are known again and holes are noticed."""

from __future__ import annotations

import tracemalloc

import pytest

from channels.gateway.replay import Replay, Verdict
from channels.transcript.stream_events import StreamEvent


def event(identity: str | None, text: str = "x", name: str = "messages") -> StreamEvent:
    return StreamEvent.of(name, text, identity)


def test_a_replay_from_the_start_is_recognised() -> None:
    replay = Replay()
    first = [event("1-0", "a", "metadata"), event("2-0", "b"), event("3-0", "c")]
    assert [replay.admit(one) for one in first] == [Verdict.NEW] * 3
    replay.joined()
    verdicts = [replay.admit(one) for one in [*first, event("4-0", "d"), event("5-0", "d")]]
    assert verdicts == [Verdict.SEEN] * 3 + [Verdict.NEW] * 2


def test_an_event_repeated_where_a_replay_passes_into_the_live_stream_counts_once() -> None:
    replay = Replay()
    replay.admit(event("1-0", "a"))
    replay.joined()
    new = [event("2-0", "b"), event("3-0", "c"), event("2-0", "b"), event("3-0", "c"), event("4-0", "d")]
    assert [replay.admit(one) for one in new] == [Verdict.NEW, Verdict.NEW, Verdict.SEEN, Verdict.SEEN, Verdict.NEW]


def test_an_answer_that_is_never_joined_is_remembered_in_little_room() -> None:
    replay = Replay()
    events = [event(f"{number}-0", f"piece {number}") for number in range(20_000)]
    tracemalloc.start()
    try:
        for one in events:
            replay.admit(one)
        assert tracemalloc.get_traced_memory()[0] < 10 * len(events)
    finally:
        tracemalloc.stop()
    replay.joined()
    assert {replay.admit(one) for one in events} == {Verdict.SEEN}


def test_equal_ids_do_not_make_equal_events() -> None:
    replay = Replay()
    replay.admit(event("1-0", "a"))
    replay.joined()
    assert replay.admit(event("1-0", "b")) is Verdict.NEW


def test_an_equal_piece_that_comes_live_is_never_dropped() -> None:
    replay = Replay()
    assert [replay.admit(event(None, " ")) for _ in range(3)] == [Verdict.NEW] * 3
    assert [replay.admit(event("1-0", " ")) for _ in range(3)] == [Verdict.NEW] * 3


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ("1796005909256-64", "1796005909300-65", Verdict.NEW),
        ("1796005909256-64", "1796005909300-67", Verdict.AFTER_HOLE),
        ("r_event_4", "r_event_5", Verdict.NEW),
        ("r_event_4", "r_event_9", Verdict.AFTER_HOLE),
        ("1796004788772-0", "1796004788790-0", Verdict.NEW),
        ("opaque", "other", Verdict.NEW),
        ("r_event_" + "9" * 5000, "r_event_" + "9" * 5001, Verdict.NEW),
    ],
)
def test_missing_numbers_after_a_join_are_a_hole(before: str, after: str, verdict: Verdict) -> None:
    replay = Replay()
    replay.admit(event(before))
    replay.joined()
    assert replay.admit(event(after)) is verdict


def test_a_stream_joined_from_its_start_that_does_not_begin_there_has_a_hole() -> None:
    replay = Replay()
    replay.joined()
    assert replay.admit(event("9-0")) is Verdict.AFTER_HOLE
    whole = Replay()
    whole.joined()
    assert whole.admit(event("1-0", name="metadata")) is Verdict.NEW


def test_without_ids_a_join_always_leaves_a_hole() -> None:
    replay = Replay()
    replay.admit(event(None, "a"))
    replay.joined()
    assert replay.cursor is None
    assert replay.admit(event(None, "b")) is Verdict.AFTER_HOLE


def test_a_gap_moves_the_cursor_only_where_the_gateway_tells_one() -> None:
    replay = Replay()
    replay.admit(event("1-5"))
    replay.skip_to("")
    assert replay.cursor == "1-5"
    replay.skip_to("2-9")
    assert replay.cursor == "2-9"
