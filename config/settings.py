"""All settings, as they are written in the configuration file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, field_validator

from channels.inputs import FILE_TYPES
from config.feishu import FeishuChannel
from config.slack import SlackChannel
from config.telegram import TelegramChannel
from config.values import DatabaseUrl, FileType, HeaderName, HeaderValue, Secret, at_least, http_address, secret_parts
from config.web import WebChannel

_CHANNEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")


class Dialect(StrEnum):
    AUTO = "auto"
    LANGGRAPH = "langgraph"
    DEERFLOW = "deerflow"


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class GatewaySettings(_Section):
    """The LangGraph-compatible server that runs the agent."""

    url: str | None = Field(None, description="Its base URL; left out: the embedded gateway is started.")
    assistant_id: str = Field("agent", min_length=1, description="The assistant (graph) that answers.")
    api_key: HeaderValue | None = Field(None, description="Sent as x-api-key.")
    headers: dict[HeaderName, HeaderValue] = Field(
        default_factory=dict, description="Further headers of every request."
    )
    file_types: tuple[FileType, ...] = Field(
        FILE_TYPES,
        description="MIME types of files that the agent's model takes as they are (`audio/*`: all of a kind). Of "
        "others it gets the text, or else only the name.",
    )
    dialect: Dialect = Field(Dialect.AUTO, description="auto | langgraph | deerflow.")
    graph: str = Field(
        "adapters.embedded.demo_agent:graph",
        description="For the embedded gateway: the graph to serve, as `module:attribute`.",
    )
    data: str = Field("data/gateway", description="For the embedded gateway: its folder.")

    @field_validator("url")
    @classmethod
    def _is_http(cls, value: str | None) -> str | None:
        return http_address(value) if value is not None else None


class StoreSettings(_Section):
    """Where questions, answers and their state are kept."""

    url: DatabaseUrl = Field(
        SecretStr("sqlite:///data/bridge.db"),
        description="sqlite:///PATH, or postgresql://USER:PASSWORD@HOST/NAME for several replicas.",
    )
    keep_days: float = Field(30.0, gt=0, description="Days after which what is over is forgotten.")


class ServerSettings(_Section):
    """The bridge's own HTTP server: health, metrics, console, webhooks, web channel."""

    host: str = Field("127.0.0.1", min_length=1, description="The address to listen on; 0.0.0.0: every address.")
    port: int = Field(8080, ge=0, le=65535, description="0: any free port.")
    public_url: str | None = Field(None, description="What platforms and visitors reach, where that is not `host`.")
    admin_token: Annotated[Secret, at_least(8, "it is all that keeps strangers out")] | None = Field(
        None,
        description="Opens /console and /metrics. Left out: they are open to this machine if `host` is 127.0.0.1 and "
        "there is no `public_url`, else closed.",
    )

    @field_validator("public_url")
    @classmethod
    def _is_https(cls, value: str | None) -> str | None:
        return http_address(value) if value is not None else None


def _is_usable(name: str) -> str:
    if not _CHANNEL_NAME.fullmatch(name):
        raise ValueError("a channel's name is made of letters, digits, - and _ (at most 63)")
    return name


ChannelName = Annotated[str, AfterValidator(_is_usable)]
ChannelConfig = Annotated[FeishuChannel | SlackChannel | TelegramChannel | WebChannel, Field(discriminator="platform")]


class Settings(_Section):
    """The whole configuration."""

    gateway: GatewaySettings = Field(default_factory=GatewaySettings)
    store: StoreSettings = Field(default_factory=StoreSettings)
    server: ServerSettings = Field(default_factory=ServerSettings)
    channels: dict[ChannelName, ChannelConfig] = Field(default_factory=dict, description="The bots, by a name.")
    give_up_after: float = Field(86_400.0, gt=0, description="Seconds after which an unfinished turn is given up.")

    def secrets(self) -> Iterator[str]:
        """Every secret value of the configuration, for the redactor."""
        yield from _secrets_in(self)


def _secrets_in(value: object) -> Iterator[str]:
    if isinstance(value, SecretStr):
        yield from secret_parts(value)
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _secrets_in(getattr(value, name))
    elif isinstance(value, dict):
        for item in value.values():
            yield from _secrets_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _secrets_in(item)
