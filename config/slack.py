"""The keys of a Slack channel."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from config.channel import ChannelSettings, Streaming
from config.values import Secret, http_address

if TYPE_CHECKING:
    from config.settings import ServerSettings

_LARGEST_MESSAGE = 9_500  # UTF-8 bytes; Slack refuses streamed messages from about 10,600 on
_SMALLEST_MESSAGE = 400
_MOST_PROMPTS = 4


class DirectReplies(StrEnum):
    """Where a direct message at top level is answered."""

    INLINE = "inline"
    THREAD = "thread"


class SlackSteps(StrEnum):
    """How Slack draws the steps of a streamed answer."""

    TIMELINE = "timeline"
    PLAN = "plan"


class SlackChannel(ChannelSettings):
    """One Slack app in one workspace."""

    budget_names = frozenset(
        {
            "chat.appendStream",
            "chat.delete",
            "chat.postMessage",
            "chat.postMessage/channel",
            "chat.startStream",
            "chat.stopStream",
            "chat.update",
            "conversations.history",
            "conversations.replies",
            "files.completeUploadExternal",
            "files.getUploadURLExternal",
            "response_url",
        }
    )

    identity = ("bot_token", "app_token")

    platform: Literal["slack"] = "slack"
    bot_token: Secret = Field(description="xoxb-…, from the app's page OAuth & Permissions.")
    app_token: Secret | None = Field(None, description="xapp-…, for Socket Mode.")
    signing_secret: Secret | None = Field(
        None, description="For HTTP mode: Slack posts to /hooks/NAME of server.public_url."
    )
    api_base_url: str = Field("https://slack.com/api/", description="Another Web API address.")
    dm_replies: DirectReplies = Field(
        DirectReplies.INLINE,
        description="Answer direct messages at top level: inline (below, by edits) | thread (under it, streamed).",
    )
    steps: SlackSteps = Field(SlackSteps.TIMELINE, description="Steps of a streamed answer: timeline | plan.")
    feedback: bool = Field(True, description="Show feedback buttons under a finished answer.")
    status_line: bool = Field(True, description="Show Slack's status line while the agent works.")
    ack_reaction: str | None = Field(
        "eyes", description="Emoji name put on a question while it is answered where no status line can be; null: none."
    )
    suggested_prompts: tuple[str, ...] = Field(
        (), max_length=_MOST_PROMPTS, description="Questions offered when somebody opens a new chat with the app."
    )
    home_text: str = Field(
        "Send me a message, or mention me in a channel.", max_length=2_000, description="Shown on the app's Home tab."
    )

    @field_validator("bot_token")
    @classmethod
    def _is_bot_token(cls, value: SecretStr) -> SecretStr:
        if value.get_secret_value().startswith(("xapp-", "xoxp-")):
            raise ValueError("expected a bot token (xoxb-…), not an app-level or user token")
        return value

    @field_validator("app_token")
    @classmethod
    def _is_app_token(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and value.get_secret_value().startswith("xox"):
            raise ValueError("expected an app-level token (xapp-…), not a bot or user token")
        return value

    @field_validator("api_base_url")
    @classmethod
    def _is_http(cls, value: str) -> str:
        return http_address(value) + "/"

    @field_validator("streaming")
    @classmethod
    def _is_known(cls, value: Streaming) -> Streaming:
        if value is Streaming.DRAFT:
            raise ValueError("Slack has no drafts: auto, native, edit or off")
        return value

    @field_validator("ack_reaction")
    @classmethod
    def _is_emoji_name(cls, value: str | None) -> str | None:
        return value.strip(": ") or None if value is not None else None

    @model_validator(mode="after")
    def _has_one_way_in(self) -> SlackChannel:
        if self.enabled and self.app_token is None and self.signing_secret is None:
            raise ValueError("needs app_token (Socket Mode) or signing_secret (HTTP)")
        return self

    @model_validator(mode="after")
    def _messages_have_room(self) -> SlackChannel:
        size = self.limits.message_size
        if size is not None and not _SMALLEST_MESSAGE <= size <= _LARGEST_MESSAGE:
            raise ValueError(f"limits.message_size: expected {_SMALLEST_MESSAGE} to {_LARGEST_MESSAGE} (UTF-8 bytes)")
        return self

    def unusable(self, server: ServerSettings) -> Iterator[tuple[str, str]]:
        if self.app_token is None and server.public_url is None:
            yield "signing_secret", "needs server.public_url, the address under which Slack reaches this server"
