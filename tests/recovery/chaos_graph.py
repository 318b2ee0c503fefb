"""A graph whose answers name their question: `TAG WORDS` is answered by `TAG-1 TAG-2 … TAG-end`, streamed."""

from __future__ import annotations

import os

from tests.recovery.speaking import SpeakingModel, graph_of

PACE_VARIABLE = "CHAOS_PACE"
"""The environment variable with the seconds between two words."""


def pieces(question: str) -> list[str]:
    """The answer to a question, in the pieces in which it is streamed."""
    tag, words = question.split()
    return [*(f"{tag}-{number} " for number in range(1, int(words))), f"{tag}-end"]


graph = graph_of(SpeakingModel(pieces=pieces, pace=float(os.environ.get(PACE_VARIABLE, "0.2"))))
