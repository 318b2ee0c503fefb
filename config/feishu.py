"""The keys of a Feishu or Lark channel."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field, SecretStr, model_validator

from config.channel import ChannelSettings


class FeishuMode(StrEnum):
    WEBSOCKET = "websocket"
    WEBHOOK = "webhook"


class FeishuChannel(ChannelSettings):
    """One Feishu or Lark app."""

    platform: Literal["feishu"] = "feishu"
    app_id: str = Field(description="cli_…, from the developer console.")
    app_secret: SecretStr = Field(description="From the developer console.")
    mode: FeishuMode = Field(FeishuMode.WEBSOCKET, description="websocket | webhook (needs server.public_url).")
    encrypt_key: SecretStr | None = Field(None, description="For webhook mode.")
    verification_token: SecretStr | None = Field(None, description="For webhook mode.")
    domain: str = Field("https://open.feishu.cn", description="https://open.larksuite.com for Lark.")

    @model_validator(mode="after")
    def _webhook_has_its_secrets(self) -> FeishuChannel:
        if self.mode is FeishuMode.WEBHOOK and not (self.encrypt_key and self.verification_token):
            raise ValueError("mode webhook needs both encrypt_key and verification_token")
        return self
