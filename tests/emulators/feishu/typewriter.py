"""What a reader sees: the client types streamed text out, so accepted text is not yet visible text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.emulators.feishu.limits import Limits


@dataclass(frozen=True, slots=True)
class Pace:
    """Every `seconds` the client shows `step` more characters; `fast` shows the backlog when a new text comes."""

    seconds: float
    step: int
    strategy: str


@dataclass(frozen=True, slots=True)
class Write:
    """A text that an element was given at a time; `typed` when it came as streamed content."""

    at: float
    text: str
    typed: bool
    pace: Pace


def pace_of(config: Mapping[str, Any], limits: Limits) -> Pace:
    """The pace that a card's `streaming_config` asks for, or the client's own."""
    streaming = config.get("streaming_config") or {}
    frequency = (streaming.get("print_frequency_ms") or {}).get("default", limits.print_frequency_ms)
    step = (streaming.get("print_step") or {}).get("default", limits.print_step)
    return Pace(float(frequency) / 1000, int(step), str(streaming.get("print_strategy") or "fast"))


def typed_text(writes: Sequence[Write], at: float) -> str:
    """The text visible at a time, given all that the element was told before."""
    target, base, since = "", 0, 0.0
    pace: Pace | None = None  # None: nothing is being typed, all of `target` is visible
    for write in writes:
        if write.at > at:
            break
        shown = _shown(target, base, since, pace, write.at)
        if not write.typed or not write.text.startswith(target):
            pace = None
        elif write.pace.strategy == "delay" and shown < len(target) and pace == write.pace:
            pass  # goes on with the ticks it has; the new text waits for its turn
        elif write.pace.strategy == "delay":
            base, since, pace = shown, write.at, write.pace
        else:
            base, since, pace = len(target), write.at, write.pace
        target = write.text
    return target[: _shown(target, base, since, pace, at)]


def _shown(target: str, base: int, since: float, pace: Pace | None, at: float) -> int:
    if pace is None:
        return len(target)
    # Times since the epoch are exact to some 0.2 µs: a tick that is due is not missed for that.
    ticks = int((at - since) / pace.seconds + 1e-4) if pace.seconds > 0 else len(target)
    return min(len(target), base + ticks * pace.step)
