"""The transcript's time is linear in the length of the answer."""

from __future__ import annotations

from tests.benchmarks.bench_transcript import seconds_for


def test_ten_times_the_chunks_take_about_ten_times_the_time() -> None:
    small = min(seconds_for(10_000) for _ in range(3))
    large = seconds_for(100_000)
    assert large < 15 * small, (small, large)
    assert large < 5.0


def test_a_cumulative_answer_costs_no_more_than_its_input_is_long() -> None:
    small = min(seconds_for(300, cumulative=True) for _ in range(3))
    large = min(seconds_for(1200, cumulative=True) for _ in range(3))
    # Four times the chunks are sixteen times the input.
    assert large < 16 * 3 * max(small, 0.001), (small, large)
