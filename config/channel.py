"""The keys that every channel has, whatever its platform."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, field_validator, model_validator

from channels.access import Policy
from channels.adapter import Budget

if TYPE_CHECKING:
    from config.settings import ServerSettings


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

    limit: int = Field(gt=0, description="Calls in any `window` seconds.")
    window: float = Field(gt=0, description="Seconds.")
    burst: int | None = Field(None, gt=0, description="Calls that may follow each other at once; left out: as it is.")
    reserve: int | None = Field(
        None, ge=0, description="Calls of `limit` that are kept for final answers; left out: as it is."
    )

    @model_validator(mode="after")
    def _growth_has_room(self) -> BudgetSettings:
        if self.reserve is not None and self.reserve >= self.limit:
            raise ValueError("reserve: expected less than limit, or answers cannot grow")
        return self

    def over(self, budget: Budget) -> Budget:
        """What replaces `budget`. What is left out stays, as far as a smaller limit has room for it."""
        return Budget(
            self.limit,
            self.window,
            burst=min(budget.burst, self.limit) if self.burst is None else self.burst,
            reserve=min(budget.reserve, self.limit // 2) if self.reserve is None else self.reserve,
        )


class LimitSettings(BaseModel):
    """Vendors change their limits and their papers disagree: each can be set here."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    message_size: int | None = Field(None, gt=0, description="Size of one message, in the platform's unit.")
    budgets: dict[str, BudgetSettings] = Field(default_factory=dict, description="Budgets by name.")
    attachment_bytes: int = Field(20_000_000, gt=0, description="Largest file taken from a person.")

    def over(self, budgets: Mapping[str, Budget]) -> Mapping[str, Budget]:
        """These budgets, those replaced that are set here."""
        return {
            name: self.budgets[name].over(budget) if name in self.budgets else budget
            for name, budget in budgets.items()
        }


class ChannelSettings(BaseModel):
    """One configured bot. Each platform's settings add their own keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    budget_names: ClassVar[frozenset[str]]
    """The names that `limits.budgets` may use."""
    identity: ClassVar[tuple[str, ...]] = ()
    """The keys that say which bot this is: no two channels can serve the same one."""

    platform: str
    enabled: bool = Field(True, description="false: the channel is left alone.")
    assistant_id: str | None = Field(None, description="The gateway's assistant; left out: the gateway's default.")
    run: RunSettings = Field(default_factory=RunSettings)
    policy: Policy = Field(default_factory=Policy)
    streaming: Annotated[Streaming, BeforeValidator(_false_is_off)] = Field(
        Streaming.AUTO, description="How an answer grows: auto | native | edit | draft | off."
    )
    limits: LimitSettings = Field(default_factory=LimitSettings)

    @field_validator("limits")
    @classmethod
    def _budgets_are_known(cls, value: LimitSettings) -> LimitSettings:
        for name in value.budgets:
            if name not in cls.budget_names:
                near = difflib.get_close_matches(name, cls.budget_names, n=1)
                hint = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(sorted(cls.budget_names))}"
                raise ValueError(f"budgets: unknown budget `{name}`; {hint}")
        return value

    def unusable(self, server: ServerSettings) -> Iterator[tuple[str, str]]:
        """Why nobody could use the channel on this server, as far as settings tell: one of its keys, and a reason."""
        yield from ()
