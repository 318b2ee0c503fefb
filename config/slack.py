"""The keys of a Slack channel."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr, model_validator

from config.channel import ChannelSettings


class SlackChannel(ChannelSettings):
    """One Slack app in one workspace."""

    platform: Literal["slack"] = "slack"
    bot_token: SecretStr = Field(description="xoxb-…, from the app's page OAuth & Permissions.")
    app_token: SecretStr | None = Field(None, description="xapp-…, for Socket Mode.")
    signing_secret: SecretStr | None = Field(None, description="For HTTP mode (needs server.public_url).")
    api_base_url: str = Field("https://slack.com/api/", description="Another Web API address.")

    @model_validator(mode="after")
    def _has_one_way_in(self) -> SlackChannel:
        if self.app_token is None and self.signing_secret is None:
            raise ValueError("needs app_token (Socket Mode) or signing_secret (HTTP)")
        return self
