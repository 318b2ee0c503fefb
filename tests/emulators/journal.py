"""What an emulator saw and which of the vendor's rules were broken; and the faults a test plans for it."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Call:
    """One API call as the emulator received and answered it; `at` is on the emulator's clock."""

    at: float
    method: str
    args: Mapping[str, object]
    status: int
    answer: object


@dataclass(slots=True)
class Journal:
    """All calls in order, and every vendor rule that the client broke. A test ends with `assert not journal.broken`."""

    calls: list[Call] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def of(self, method: str) -> list[Call]:
        """The calls of one method, oldest first."""
        return [call for call in self.calls if call.method == method]

    def break_rule(self, at: float, rule: str) -> None:
        self.broken.append(f"{at:.3f} {rule}")


class FaultKind(StrEnum):
    """How a planned fault shows itself to the caller."""

    ANSWER = "answer"  # refuse with the given status, headers and body; nothing happens inside
    DROP_BEFORE = "drop_before"  # close the connection; nothing happens inside
    DROP_AFTER = "drop_after"  # do the work, then close the connection without an answer
    DELAY = "delay"  # wait `seconds` on the emulator's clock, then do the work and answer


@dataclass(frozen=True, slots=True)
class Fault:
    kind: FaultKind
    status: int = 500
    headers: Mapping[str, str] = field(default_factory=dict)
    body: object = ""
    seconds: float = 0.0


class Faults:
    """Faults planned per method ("*" is any method), used up first in, first out."""

    def __init__(self) -> None:
        self._planned: dict[str, deque[Fault]] = defaultdict(deque)

    def plan(self, method: str, *faults: Fault) -> None:
        self._planned[method].extend(faults)

    def take(self, method: str) -> Fault | None:
        """The next fault planned for this method, or for any; None when there is none."""
        for key in (method, "*"):
            if self._planned[key]:
                return self._planned[key].popleft()
        return None
