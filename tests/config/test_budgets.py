"""`limits.budgets` takes the names of the budgets that the platform's adapter has, and changes only what is written."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
from pydantic import ValidationError

from adapters.feishu.ops import BUDGETS as FEISHU
from adapters.slack.limits import BUDGETS as SLACK
from adapters.telegram.limits import BUDGETS as TELEGRAM
from adapters.web.surface import BUDGETS as WEB
from channels.adapter import Budget, Context, OpenFile, Sink
from channels.clock import SystemClock
from config.channel import BudgetSettings, ChannelSettings
from config.feishu import FeishuChannel
from config.slack import SlackChannel
from config.telegram import TelegramChannel
from config.web import WebChannel


@pytest.mark.parametrize(
    ("settings", "budgets"),
    [(FeishuChannel, FEISHU), (SlackChannel, SLACK), (TelegramChannel, TELEGRAM), (WebChannel, WEB)],
)
def test_each_budget_of_a_platform_can_be_set_and_no_other(
    settings: type[ChannelSettings], budgets: Mapping[str, Budget]
) -> None:
    assert settings.budget_names == set(budgets)


KEYS: Mapping[type[ChannelSettings], Mapping[str, object]] = {
    FeishuChannel: {"app_id": "cli_1", "app_secret": "secret"},
    SlackChannel: {"bot_token": "xoxb-1", "app_token": "xapp-1"},
    TelegramChannel: {"bot_token": "1:x"},
    WebChannel: {"store": None},
}


def budgets_of(settings: type[ChannelSettings], changed: Mapping[str, object]) -> Mapping[str, Budget]:
    """The budgets of a channel with these `limits.budgets`, as its adapter tells them to the pacer."""
    channel = settings.model_validate({**KEYS[settings], "limits": {"budgets": changed}})
    sink = cast(Sink, SimpleNamespace(report=lambda *_: None))
    package = importlib.import_module(f"adapters.{channel.platform}")
    budgets: Mapping[str, Budget] = package.build(
        channel, Context("c", sink, SystemClock(), cast(OpenFile, None))
    ).budgets
    return budgets


@pytest.mark.parametrize(
    ("settings", "budgets"),
    [(FeishuChannel, FEISHU), (SlackChannel, SLACK), (TelegramChannel, TELEGRAM), (WebChannel, WEB)],
)
def test_what_is_left_out_of_a_budget_stays_as_it_is(
    settings: type[ChannelSettings], budgets: Mapping[str, Budget]
) -> None:
    for name, budget in budgets.items():
        found = budgets_of(settings, {name: {"limit": 2 * budget.limit, "window": 90}})
        assert found == {**budgets, name: replace(budget, limit=2 * budget.limit, window=90.0)}


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ({"limit": 500, "window": 60}, Budget(500, 60.0, burst=20, reserve=150)),
        ({"limit": 100, "window": 60}, Budget(100, 60.0, burst=20, reserve=50)),
        ({"limit": 1, "window": 60}, Budget(1, 60.0, burst=1, reserve=0)),
        ({"limit": 500, "window": 60, "burst": 1, "reserve": 0}, Budget(500, 60.0, burst=1, reserve=0)),
    ],
)
def test_growth_has_room_in_a_smaller_budget(written: Mapping[str, object], expected: Budget) -> None:
    assert BudgetSettings.model_validate(written).over(Budget(950, 60.0, burst=20, reserve=150)) == expected


def test_a_reserve_that_leaves_nothing_to_growth_is_refused() -> None:
    with pytest.raises(ValidationError, match="reserve: expected less than limit"):
        BudgetSettings(limit=5, window=1, reserve=5)
