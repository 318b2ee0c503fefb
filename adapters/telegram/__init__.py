"""The Telegram channel: answers that grow in place, in private chats, groups and forum topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from channels.adapter import Context
from config.telegram import TelegramChannel

if TYPE_CHECKING:
    from adapters.telegram.adapter import TelegramAdapter


def build(settings: TelegramChannel, context: Context) -> TelegramAdapter:
    """The adapter of one Telegram bot. Loads python-telegram-bot only now."""
    from adapters.telegram.adapter import TelegramAdapter

    return TelegramAdapter(settings, context)
