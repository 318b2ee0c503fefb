"""Which replicas are processes of this machine, and whether they still live: what they own need not run out then."""

from __future__ import annotations

import os
import socket
import uuid
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NUMBERS = Path("/proc/self/ns/pid")
_ALONE = uuid.uuid4().hex[:8]

here: set[str] = set()
"""The replicas that live in this process."""


def new_name() -> str:
    """A name for a replica in this process, by which others can tell whether the process still lives."""
    return f"{_host()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"


def is_dead(replica: str) -> bool:
    """Whether the replica surely lived in a process that has ended; False also for one of another machine."""
    host, _, rest = replica.partition(":")
    pid, _, _ = rest.partition(":")
    if host != _host() or not pid.isdigit():
        return False
    if int(pid) == os.getpid():
        return replica not in here  # an earlier process had the same number
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # somebody else's process: alive
    return False


def _host() -> str:
    """Names where process numbers mean the same, and since when: this machine's last start, and this container.

    Containers of one machine may share a host name, clones of one machine a host name and the number of the outermost
    namespace. Where the system does not tell, no other process counts as a neighbour.
    """
    try:
        where = f"{_NUMBERS.readlink().name.strip('pid:[]')}-{_BOOT.read_text().strip()[:8]}"
    except OSError:
        where = _ALONE
    return f"{socket.gethostname()}/{where}"
