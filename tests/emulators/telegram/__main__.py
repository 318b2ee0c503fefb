"""Run the emulator by hand: `python -m tests.emulators.telegram [--port N]`; the first line printed is its URL."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys

from channels.clock import Clock, SystemClock
from tests.clock import ScaledClock
from tests.emulators.telegram.emulator import TOKEN, TelegramEmulator


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.emulators.telegram", description="A strict local Telegram Bot API.")
    parser.add_argument("--port", type=int, default=0, help="default: any free port")
    parser.add_argument("--token", default=TOKEN, help="the bot's token")
    parser.add_argument("--username", default="bridge_bot")
    parser.add_argument("--speed", type=float, default=1.0, help="how much faster than the wall its clock runs")
    parser.add_argument("--rich-messages", action="store_true", help="know sendRichMessage and its kin")
    parser.add_argument("--private-topics", action="store_true", help="private chats have topics")
    parser.add_argument("--no-privacy-mode", action="store_true", help="the bot sees all that is said in groups")
    parser.add_argument("--deliver-to", help="scheme, host and port that webhook deliveries go to instead")
    parser.add_argument("--empty", action="store_true", help="without the people and chats to play with")
    return parser.parse_args()


async def _serve(arguments: argparse.Namespace) -> None:
    clock: Clock = SystemClock() if arguments.speed == 1.0 else ScaledClock(arguments.speed)
    emulator = TelegramEmulator(
        clock,
        token=arguments.token,
        username=arguments.username,
        rich_messages=arguments.rich_messages,
        private_topics=arguments.private_topics,
        privacy_mode=not arguments.no_privacy_mode,
        deliver_to=arguments.deliver_to,
    )
    ended = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, ended.set)
    await emulator.start(arguments.port)
    if not arguments.empty:
        _populate(emulator)
    sys.stdout.write(f"{emulator.url}\ntoken {emulator.token}\n")
    sys.stdout.flush()
    await ended.wait()
    await emulator.stop()


def _populate(emulator: TelegramEmulator) -> None:
    ann, bob = emulator.person("Ann", "ann"), emulator.person("Bob", "bob")
    emulator.private_chat(ann)
    emulator.group("Team", ann, bob)
    forum = emulator.group("Lab", ann, bob, forum=True)
    emulator.topic(forum, "Plans")
    emulator.topic(forum, "Bugs")


if __name__ == "__main__":
    asyncio.run(_serve(_arguments()))
