"""The clock of the process: near the wall's, and honest about the time for which the machine was suspended."""

from __future__ import annotations

import time

import pytest

from channels.clock import SystemClock


async def test_it_tells_the_walls_time_and_goes_on_while_it_sleeps() -> None:
    clock = SystemClock()
    began = clock.now()
    assert abs(began - time.time()) < 1.0
    await clock.sleep(0.01)
    assert clock.now() - began >= 0.009


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="this system does not count the time it is suspended")
def test_time_passes_while_the_machine_is_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    asleep = 0.0
    read = time.clock_gettime

    def suspended(which: int) -> float:
        return read(which) + (asleep if which == time.CLOCK_BOOTTIME else 0.0)

    monkeypatch.setattr(time, "clock_gettime", suspended)
    clock = SystemClock()
    before = clock.now()
    asleep = 3600.0
    assert 3600.0 <= clock.now() - before < 3601.0


def test_a_changed_system_time_moves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SystemClock()
    before = clock.now()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert 0.0 <= clock.now() - before < 1.0
