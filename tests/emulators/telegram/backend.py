"""What all parts of the emulated server share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from channels.clock import Clock
from tests.emulators.journal import Journal
from tests.emulators.telegram.limits import Checks, Limits
from tests.emulators.telegram.windows import FloodControl
from tests.emulators.telegram.wire import Params
from tests.emulators.telegram.world import World

Method = Callable[[Params], object | Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Backend:
    clock: Clock
    limits: Limits
    checks: Checks
    journal: Journal
    world: World
    flood: FloodControl
    changed: Callable[[], None]  # to be called when something happened, so that waiting tests look again

    def break_rule(self, rule: str) -> None:
        self.journal.break_rule(self.clock.now(), rule)
