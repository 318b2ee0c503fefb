"""Texts that a model may write when it degenerates, or that somebody pastes to stall everybody else."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from channels.markdown import (
    fence_tables,
    heal,
    neutralise_mentions,
    split_at,
    stable_prefix,
    utf16_units,
)

FUNCTIONS: dict[str, Callable[[str], object]] = {
    "heal": heal,
    "stable_prefix": stable_prefix,
    "split_at": lambda text: split_at(text, 4096, utf16_units),
    "neutralise": neutralise_mentions,
    "fence_tables": lambda text: fence_tables(text, 5),
}
PIECES = [
    "- ",
    "- * ",
    "1. ",
    "> ",
    "[](",
    "![",
    "[",
    "*a ",
    "**",
    "_",
    "`",
    "~~",
    "<!--",
    "<a ",
    "\\",
    "| ",
    "$",
    "@a",
]


def seconds_for(function: Callable[[str], object], text: str) -> float:
    """CPU time: of a few tries the one that the machine disturbed least."""
    times = []
    for _ in range(3):
        began = time.thread_time()
        function(text)
        times.append(time.thread_time() - began)
    return min(times)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("piece", PIECES)
def test_the_time_for_one_endless_line_grows_with_its_length_and_not_faster(name: str, piece: str) -> None:
    few, many = (seconds_for(FUNCTIONS[name], (piece * size)[:size] + "x") for size in (4_000, 32_000))
    assert many < 24 * few + 0.05, "8 would be linear, 64 quadratic"
