"""The emulator as a process: prints its URL on the first line and serves until it is told to end."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys

from channels.clock import SystemClock
from tests.emulators.feishu.emulator import FeishuEmulator


async def serve(port: int) -> None:
    emulator = FeishuEmulator(SystemClock())
    emulator.p2p("Player")
    emulator.add_group("Playground", "Player")
    ending = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ending.set)
    async with emulator:
        lines = [emulator.url, f"app_id: {emulator.app_id}", f"app_secret: {emulator.app_secret}"]
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()
        await ending.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A local stand-in of Feishu/Lark.")
    parser.add_argument("--port", type=int, default=0)
    asyncio.run(serve(parser.parse_args().port))
