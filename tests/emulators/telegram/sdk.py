"""The vendor's SDK for Python pointed at the emulator."""

from __future__ import annotations

from telegram import Bot

from tests.emulators.telegram.emulator import TelegramEmulator


def bot_for(emulator: TelegramEmulator, token: str | None = None) -> Bot:
    """A python-telegram-bot client; use it with `async with` so that its connections are closed."""
    return Bot(token or emulator.token, base_url=f"{emulator.url}/bot", base_file_url=f"{emulator.url}/file/bot")
