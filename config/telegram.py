"""The keys of a Telegram channel."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field, SecretStr, field_validator

from config.channel import ChannelSettings


class TelegramMode(StrEnum):
    POLLING = "polling"
    WEBHOOK = "webhook"


class TelegramChannel(ChannelSettings):
    """One Telegram bot."""

    platform: Literal["telegram"] = "telegram"
    bot_token: SecretStr = Field(description="From @BotFather.")
    mode: TelegramMode = Field(TelegramMode.POLLING, description="polling | webhook (needs server.public_url).")
    api_base_url: str = Field("https://api.telegram.org", description="Another Bot API server.")

    @field_validator("bot_token")
    @classmethod
    def _is_token(cls, value: SecretStr) -> SecretStr:
        number, _, secret = value.get_secret_value().partition(":")
        if value.get_secret_value() and not (number.isdigit() and secret):
            raise ValueError("expected a bot token such as 123456:ABC-DEF from @BotFather")
        return value
