"""Named points between two effects, at which a test can kill the process. Off unless the environment asks for it."""

from __future__ import annotations

import os
import signal
from functools import cache

ENVIRONMENT_VARIABLE = "CHANNEL_BRIDGE_KILL_AT"
"""`NAME` or `NAME:N`: at the N-th pass (default the first) of this point the process kills itself with SIGKILL."""

POINTS = (
    "accepted",
    "claimed",
    "thread-made",
    "run-requested",
    "run-created",
    "run-known",
    "intent-stored",
    "performed-create",
    "creation-stored",
    "performed-change",
    "final-known",
    "final-stored",
    "final-settled",
    "done",
)
"""Every point, in the order in which a turn passes them. `performed-create` and `performed-change` are also named for
what was performed: the class of the op, such as `performed-SendFile`."""


class _Plan:
    def __init__(self, text: str) -> None:
        self.name, _, count = text.partition(":")
        self.left = int(count or 1)


@cache
def _plan() -> _Plan:
    return _Plan(os.environ.get(ENVIRONMENT_VARIABLE, ""))


def point(name: str) -> None:
    """Die here if a test asked for it."""
    plan = _plan()
    if name != plan.name:
        return
    plan.left -= 1
    if plan.left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
