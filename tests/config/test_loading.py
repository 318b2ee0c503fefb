"""Every mistake in a configuration is one clear error that says where and what is expected; secrets stay hidden."""

from __future__ import annotations

from pathlib import Path

import pytest

from channels.access import Groups, ShowReasoning
from config.loading import ConfigError, load_settings, parse_settings
from config.settings import Settings

GOOD = """\
gateway:
  url: http://127.0.0.1:2024
  api_key: $KEY
channels:
  tg:
    platform: telegram
    bot_token: $TG
    policy:
      groups: off
      allow_users: [12345, "abc"]
      show_reasoning: off
"""
ENVIRONMENT = {"KEY": "key-value", "TG": "123456:ABCDEF"}


def problems(text: str, environment: dict[str, str] | None = None, folder: Path = Path()) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_settings(text, "bridge.yaml", folder, ENVIRONMENT if environment is None else environment)
    return [str(problem) for problem in caught.value.problems]


def parse(text: str, folder: Path = Path()) -> Settings:
    return parse_settings(text, "bridge.yaml", folder, ENVIRONMENT)


def test_values_come_from_the_environment_and_words_stay_words() -> None:
    settings = parse(GOOD)
    assert settings.gateway.api_key is not None
    assert settings.gateway.api_key.get_secret_value() == "key-value"
    policy = settings.channels["tg"].policy
    assert (policy.groups, policy.show_reasoning) == (Groups.OFF, ShowReasoning.OFF)
    assert policy.allow_users == ("12345", "abc")
    assert set(settings.secrets()) >= {"key-value", "123456:ABCDEF"}
    assert "123456:ABCDEF" not in repr(settings)


def test_a_value_comes_from_a_file_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("123456:FROMFILE\n")
    text = "channels: {tg: {platform: telegram, bot_token: 'file:token'}}"
    (tmp_path / "bridge.yaml").write_text(text)
    settings = load_settings(tmp_path / "bridge.yaml", {})
    assert "123456:FROMFILE" in set(settings.secrets())


def test_a_doubled_dollar_is_a_dollar() -> None:
    assert parse("gateway: {assistant_id: $$agent}").gateway.assistant_id == "$agent"


def test_an_empty_file_is_the_embedded_gateway_without_channels() -> None:
    settings = parse("")
    assert settings.gateway.url is None
    assert settings.channels == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gateway: {api_key: $NOPE}", ["bridge.yaml:1: gateway.api_key: the environment variable NOPE is not set"]),
        (
            "gateway:\n  api_key: file:nope",
            ["bridge.yaml:2: gateway.api_key: the file nope cannot be read: No such file"],
        ),
        ("gatway: {}", ["bridge.yaml:1: gatway: unknown key; did you mean `gateway`?"]),
        ("gateway:\n  ulr: x", ["bridge.yaml:2: gateway.ulr: unknown key; did you mean `url`?"]),
        (
            "channels:\n  a:\n    platform: web\n    policy:\n      grups: all",
            ["bridge.yaml:5: channels.a.policy.grups: unknown key; did you mean `groups`?"],
        ),
        ("gateway: {url: localhost}", ["bridge.yaml:1: gateway.url: expected an address that begins with http"]),
        ("server: {port: many}", ["bridge.yaml:1: server.port: "]),
        ("channels:\n  a: {}", ["bridge.yaml:2: channels.a: needs `platform:`, one of feishu, slack, telegram, web"]),
        ("channels:\n  a: {platform: icq}", ["bridge.yaml:2: channels.a: needs `platform:`, one of feishu, slack"]),
        ("channels:\n  a: {platform: telegram}", ["bridge.yaml:2: channels.a.bot_token: is missing"]),
        (
            "channels:\n  a: {platform: slack, bot_token: x}",
            ["bridge.yaml:2: channels.a: needs app_token (Socket Mode)"],
        ),
        ("channels:\n  'a b': {platform: web}", ["bridge.yaml: channel name 'a b': use letters"]),
        ("a: [", ["bridge.yaml:1: not valid YAML"]),
        ("- a\n- b", ["bridge.yaml: expected keys such as `gateway:`"]),
        ("server:\n  port: 1\n  port: 2", ["bridge.yaml:3: server.port: appears twice; keep one"]),
        (
            "gateway: {url: ftp://x}\nserver: {prot: 1}\nstore: {url: mysql://x}",
            ["bridge.yaml:1: gateway.url: ", "bridge.yaml:3: store.url: ", "bridge.yaml:2: server.prot: "],
        ),
    ],
)
def test_each_mistake_is_one_error_that_says_where_and_what(text: str, expected: list[str]) -> None:
    found = problems(text)
    assert len(found) == len(expected)
    for line, start in zip(found, expected, strict=True):
        assert line.startswith(start)


def test_a_wrong_secret_is_never_shown() -> None:
    found = problems("channels: {tg: {platform: telegram, bot_token: hunter2-is-no-token}}")
    assert found
    assert "hunter2" not in "".join(found)


@pytest.mark.parametrize(
    "channel",
    [
        "{platform: slack, enabled: false, bot_token: $NOPE, app_token: $NOPE2}",
        "{platform: telegram, enabled: false, bot_token: $NOPE}",
    ],
)
def test_a_channel_that_is_off_needs_no_secrets(channel: str) -> None:
    assert all(not settings.enabled for settings in parse(f"channels: {{off: {channel}}}").channels.values())


def test_a_missing_file_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_settings(tmp_path / "nope.yaml", {})
