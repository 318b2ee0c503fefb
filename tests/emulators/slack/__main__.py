"""`python -m tests.emulators.slack`: the emulator as a process of its own. The first line it prints is its URL."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys

from channels.clock import SystemClock
from tests.clock import ScaledClock
from tests.emulators.slack.control import Control
from tests.emulators.slack.emulator import SlackEmulator


async def serve(port: int, speed: float) -> None:
    """Serve until SIGTERM or SIGINT. `speed` lets the clock run that many times faster than the wall."""
    if speed == 1.0:
        slack = SlackEmulator(SystemClock())
    else:
        slack = SlackEmulator(ScaledClock(speed), ack_seconds=3.0 * speed, jitter=speed * 0.1)
    Control(slack)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, ended.set)
    await slack.start(port)
    sys.stdout.write(f"{slack.url}\n")
    sys.stdout.flush()
    try:
        await ended.wait()
    finally:
        await slack.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.emulators.slack")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--speed", type=float, default=1.0)
    options = parser.parse_args()
    asyncio.run(serve(options.port, options.speed))


if __name__ == "__main__":
    main()
