"""What a process has used, as Linux counts it."""

from __future__ import annotations

import os
import re
from pathlib import Path


def processor_seconds(pid: int) -> float:
    """What the process has used of a processor; unlike the time on the wall it does not depend on other processes."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def megabytes(pid: int) -> float:
    """The memory of a process that is resident now."""
    found = re.search(r"^Rss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024
