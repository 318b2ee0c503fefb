"""How soon the command line answers, how soon the demo brings its first word, and what the demo weighs.

Run it with `python -m tests.benchmarks.bench_start` on a machine that does nothing else. The demo starts twice: with an
empty folder, and with the one that it left.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.end_to_end.measures import megabytes, processor_seconds
from tests.end_to_end.visitor import visiting

_ROOT = Path(__file__).parent.parent.parent
_COMMAND = (sys.executable, "-m", "channels")
_SETTLE = 3.0  # seconds after the answer until the demo counts as idle


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(_ROOT), "OPENAI_API_KEY": ""}


def help_seconds(folder: str) -> float:
    """The best of five."""
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        subprocess.run(
            [*_COMMAND, "--help"], cwd=folder, env=environment(), stdout=subprocess.DEVNULL, check=True, timeout=60
        )
        best = min(best, time.perf_counter() - began)
    return best


async def demo(folder: str) -> list[str]:
    """Start the demo, ask it something, end it; returns what was measured."""
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *_COMMAND,
        "demo",
        "--port",
        "0",
        cwd=folder,
        env=environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        url = None
        while url is None:
            url = re.search(r"http://\S+", (await process.stdout.readline()).decode())
        opened = time.perf_counter() - began
        async with visiting(url[0]) as visitor:
            await visitor.say("weather in Paris and Tokyo")
            await visitor.until(lambda: visitor.newest)
            first_word = time.perf_counter() - began
            spent = processor_seconds(process.pid)
            await visitor.answered()
        await asyncio.sleep(_SETTLE)
        weight = megabytes(process.pid)
    finally:
        ending = time.perf_counter()
        process.terminate()
        await process.wait()
    return [
        f"  address printed after {opened:6.2f} s",
        f"  first word after      {first_word:6.2f} s ({spent:.2f} s of a processor)",
        f"  idle after an answer  {weight:6.0f} MB",
        f"  ended within          {time.perf_counter() - ending:6.2f} s",
    ]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        lines = [f"--help: {help_seconds(folder):.2f} s"]
        for title in ("demo, first start:", "demo, started again:"):
            lines += [title, *asyncio.run(demo(folder))]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
