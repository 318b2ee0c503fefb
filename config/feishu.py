"""The keys of a Feishu or Lark channel."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from channels.loopback import is_loopback
from config.channel import ChannelSettings
from config.values import Secret, http_address

if TYPE_CHECKING:
    from config.settings import ServerSettings


class FeishuMode(StrEnum):
    WEBSOCKET = "websocket"
    WEBHOOK = "webhook"


class FeishuChannel(ChannelSettings):
    """One Feishu or Lark app."""

    budget_names = frozenset(
        {
            "card",
            "cards",
            "cards_minute",
            "chat",
            "edits",
            "edits_minute",
            "message",
            "messages",
            "messages_minute",
            "reads",
            "uploads",
        }
    )

    identity = ("app_id",)

    platform: Literal["feishu"] = "feishu"
    app_id: str = Field(min_length=1, description="cli_…, from the developer console.")
    app_secret: Secret = Field(description="From the developer console.")
    mode: FeishuMode = Field(FeishuMode.WEBSOCKET, description="websocket | webhook (needs server.public_url).")
    encrypt_key: Secret | None = Field(None, description="For webhook mode.")
    verification_token: Secret | None = Field(None, description="For webhook mode.")
    domain: str = Field("https://open.feishu.cn", description="https://open.larksuite.com for Lark.")
    reply_in_thread: bool = Field(False, description="In groups, answer in a topic under the question.")
    reaction: str | None = Field("Typing", description="Emoji put on a question while it is answered; null: none.")
    reaction_done: str | None = Field(None, description="Emoji that replaces it when the answer is done.")
    feedback: bool = Field(False, description="Thumbs up and down under finished answers.")
    max_tables: int = Field(5, ge=0, le=50, description="Tables in one card; further ones become code blocks.")
    settle_seconds: float = Field(
        0.75, ge=0, le=10, description="A question and files sent within this time of each other are one question."
    )

    @field_validator("domain")
    @classmethod
    def _is_origin(cls, value: str) -> str:
        origin = http_address(value)
        url = urlsplit(origin)
        if url.path:
            raise ValueError("expected https://open.feishu.cn or https://open.larksuite.com, without a path")
        if url.scheme == "http" and not is_loopback(url.hostname or ""):
            raise ValueError("expected an address that begins with https:// (the app secret is sent there)")
        return origin

    @model_validator(mode="after")
    def _webhook_has_its_secrets(self) -> FeishuChannel:
        if self.enabled and self.mode is FeishuMode.WEBHOOK and not (self.encrypt_key and self.verification_token):
            raise ValueError("mode webhook needs both encrypt_key and verification_token")
        return self

    @model_validator(mode="after")
    def _card_has_room(self) -> FeishuChannel:
        size = self.limits.message_size
        if size is not None and not 10_000 <= size <= 30_000:
            raise ValueError("limits.message_size: a card holds 10000 to 30000 bytes")
        return self

    def unusable(self, server: ServerSettings) -> Iterator[tuple[str, str]]:
        if self.mode is FeishuMode.WEBHOOK and server.public_url is None:
            yield "mode", "webhook needs server.public_url, the address under which the platform reaches this server"
