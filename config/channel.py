"""The keys that every channel has, whatever its platform."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue

from channels.access import Policy


class Streaming(StrEnum):
    """How an answer grows, as far as the platform has it."""

    AUTO = "auto"
    NATIVE = "native"
    EDIT = "edit"
    DRAFT = "draft"
    OFF = "off"


def _false_is_off(value: object) -> object:
    return "off" if value is False else value


class RunSettings(BaseModel):
    """What is passed to every run of the channel."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    config: dict[str, JsonValue] = Field(default_factory=dict, description="The run's `config`, as the graph expects.")
    context: dict[str, JsonValue] = Field(default_factory=dict, description="The run's `context`.")
    timeout: float | None = Field(3600.0, gt=0, description="Seconds after which a run is cancelled; null: never.")


class BudgetSettings(BaseModel):
    """A replacement for one of the channel's budgets: at most `limit` calls in `window` seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    limit: int = Field(gt=0)
    window: float = Field(gt=0)
    burst: int = Field(1, gt=0)
    reserve: int = Field(0, ge=0)


class LimitSettings(BaseModel):
    """Vendors change their limits and their papers disagree: each can be set here."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    message_size: int | None = Field(None, gt=0, description="Size of one message, in the platform's unit.")
    budgets: dict[str, BudgetSettings] = Field(default_factory=dict, description="Budgets by name.")
    attachment_bytes: int = Field(20_000_000, gt=0, description="Largest file taken from a person.")


class ChannelSettings(BaseModel):
    """One configured bot. Each platform's settings add their own keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    platform: str
    enabled: bool = Field(True, description="false: the channel is left alone.")
    assistant_id: str | None = Field(None, description="The gateway's assistant; left out: the gateway's default.")
    run: RunSettings = Field(default_factory=RunSettings)
    policy: Policy = Field(default_factory=Policy)
    streaming: Annotated[Streaming, BeforeValidator(_false_is_off)] = Field(
        Streaming.AUTO, description="How an answer grows: auto | native | edit | draft | off."
    )
    limits: LimitSettings = Field(default_factory=LimitSettings)


PlatformName = Literal["feishu", "slack", "telegram", "web"]
