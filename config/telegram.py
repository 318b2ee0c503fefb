"""The keys of a Telegram channel."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from config.channel import ChannelSettings
from config.values import Secret, http_address

if TYPE_CHECKING:
    from config.settings import ServerSettings

_SECRET_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,256}")
_SMALLEST_MESSAGE = 400  # UTF-16 units; below it there is no room for steps beside the answer
_LARGEST_MESSAGE = 4096  # core.telegram.org/bots/api#sendmessage


class TelegramMode(StrEnum):
    POLLING = "polling"
    WEBHOOK = "webhook"


class TelegramChannel(ChannelSettings):
    """One Telegram bot."""

    budget_names = frozenset({"bot", "draft", "group", "private"})

    identity = ("bot_token",)

    platform: Literal["telegram"] = "telegram"
    bot_token: Secret = Field(description="From @BotFather.")
    mode: TelegramMode = Field(TelegramMode.POLLING, description="polling | webhook (needs server.public_url).")
    api_base_url: str = Field("https://api.telegram.org", description="Another Bot API server.")
    webhook_secret: Secret | None = Field(
        None,
        description="What Telegram sends with webhook calls: letters, digits, _, -; left out: made from the token.",
    )
    webhook_connections: int = Field(40, ge=1, le=100, description="Webhook calls at the same time, at most.")
    poll_seconds: int = Field(30, ge=1, le=50, description="How long one poll waits for something new.")
    publish_commands: bool = Field(True, description="Publish the bot's commands, so that Telegram offers them.")
    reaction: str | None = Field("👀", description="Put on a question when it is taken; null: none.")
    react_in_groups: bool = Field(False, description="Put the reaction on questions in groups, too.")
    reply_in_groups: bool = Field(True, description="In groups, answer as a reply to the question.")
    stop_button: bool = Field(True, description="Show a stop button while an answer is being written.")
    feedback_buttons: bool = Field(False, description="Show 👍 and 👎 under a finished answer.")
    link_previews: bool = Field(False, description="Let Telegram show a preview of the first link in an answer.")
    rich_messages: bool = Field(
        False, description="Send answers with tables or maths as rich messages (Bot API 10.1); falls back without."
    )

    @field_validator("bot_token")
    @classmethod
    def _is_token(cls, value: SecretStr) -> SecretStr:
        number, _, secret = value.get_secret_value().partition(":")
        if not (number.isdigit() and secret):
            raise ValueError("expected a bot token such as 123456:ABC-DEF from @BotFather")
        return value

    @field_validator("api_base_url")
    @classmethod
    def _is_http(cls, value: str) -> str:
        return http_address(value)

    @field_validator("webhook_secret")
    @classmethod
    def _is_secret_token(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not _SECRET_TOKEN.fullmatch(value.get_secret_value()):
            raise ValueError("expected 1 to 256 letters, digits, _ and -")
        return value

    @field_validator("reaction")
    @classmethod
    def _is_short(cls, value: str | None) -> str | None:
        if value is not None and not 1 <= len(value) <= 8:
            raise ValueError("expected one of Telegram's reaction emoji, or null for none")
        return value

    @model_validator(mode="after")
    def _messages_have_room(self) -> TelegramChannel:
        size = self.limits.message_size
        if size is not None and not _SMALLEST_MESSAGE <= size <= _LARGEST_MESSAGE:
            raise ValueError(f"limits.message_size: expected {_SMALLEST_MESSAGE} to {_LARGEST_MESSAGE} (UTF-16 units)")
        return self

    def unusable(self, server: ServerSettings) -> Iterator[tuple[str, str]]:
        if self.mode is TelegramMode.WEBHOOK and server.public_url is None:
            yield "mode", "webhook needs server.public_url, the address under which Telegram reaches this server"
        elif self.mode is TelegramMode.WEBHOOK and not str(server.public_url).startswith("https://"):
            yield "mode", "webhook: Telegram calls https addresses only: change server.public_url"
