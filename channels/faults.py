"""Named points between two effects, at which a test can kill the process. Off unless the environment asks for it."""

from __future__ import annotations

import os
import signal

ENVIRONMENT_VARIABLE = "CHANNEL_BRIDGE_KILL_AT"
"""`NAME` or `NAME:N`: at the N-th pass (default the first) of this point the process kills itself with SIGKILL."""

_name, _, _count = os.environ.get(ENVIRONMENT_VARIABLE, "").partition(":")
_left = int(_count or 1)

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
"""Every point, in the order in which a turn passes them."""


def point(name: str) -> None:
    """Die here if a test asked for it."""
    global _left
    if name != _name:
        return
    _left -= 1
    if _left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
