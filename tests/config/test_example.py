"""The example shows every key, and the value that it has when it is left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel, SecretStr

from channels.access import Policy
from config.channel import BudgetSettings, ChannelSettings, LimitSettings, RunSettings
from config.feishu import FeishuChannel
from config.loading import parse_settings
from config.settings import GatewaySettings, ServerSettings, Settings, StoreSettings
from config.slack import SlackChannel
from config.telegram import TelegramChannel
from config.web import WebChannel

TEXT = (Path(__file__).parent.parent.parent / "config" / "config.example.yaml").read_text(encoding="utf-8")
SECTIONS = (
    Settings,
    GatewaySettings,
    StoreSettings,
    ServerSettings,
    ChannelSettings,
    RunSettings,
    Policy,
    LimitSettings,
    BudgetSettings,
)
CHANNELS = (TelegramChannel, SlackChannel, FeishuChannel, WebChannel)
SHOWN_WITH_A_VALUE = {"gateway.url", "channels.team-slack.app_token"}
"""Optional, and without a default that could stand there instead."""


def example() -> Settings:
    environment = dict.fromkeys(re.findall(r"\$(\w+)", TEXT), "x")
    environment |= {"TELEGRAM_BOT_TOKEN": "123:abc", "SLACK_BOT_TOKEN": "xoxb-1-a", "SLACK_APP_TOKEN": "xapp-1-a"}
    return parse_settings(TEXT, "config.example.yaml", Path(), environment)


def keys_in(text: str) -> set[str]:
    return set(re.findall(r"(?:^|[{,]) *(?:# *)?(\w+):", text, re.MULTILINE))


@pytest.mark.parametrize("section", SECTIONS, ids=lambda model: model.__name__)
def test_every_key_is_there(section: type[BaseModel]) -> None:
    assert set(section.model_fields) <= keys_in(TEXT)


@pytest.mark.parametrize("channel", CHANNELS, ids=lambda model: model.__name__)
def test_every_key_of_a_platform_is_there(channel: type[ChannelSettings]) -> None:
    _, _, block = TEXT.partition(f"platform: {channel.model_fields['platform'].default}\n")
    assert block
    block = block.partition("platform:")[0]
    assert channel.model_fields.keys() - ChannelSettings.model_fields.keys() <= keys_in(block)


def changed(value: BaseModel, path: str = "") -> set[str]:
    """The keys whose value in the example is not the default; those that have none are left out."""
    found = set()
    for name, field in type(value).model_fields.items():
        inner = getattr(value, name)
        if isinstance(inner, BaseModel):
            found |= changed(inner, f"{path}{name}.")
        elif not field.is_required() and plain(inner) != plain(field.get_default(call_default_factory=True)):
            found.add(f"{path}{name}")
    return found


def plain(value: object) -> object:
    return value.get_secret_value() if isinstance(value, SecretStr) else value


def test_every_value_is_the_default() -> None:
    settings = example()
    found = changed(settings) - {"channels"}
    for name, channel in settings.channels.items():
        found |= {f"channels.{name}.{key}" for key in changed(channel) - {"enabled"}}
    assert found == SHOWN_WITH_A_VALUE
