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


@pytest.mark.parametrize(
    ("url", "secrets"),
    [
        ("sqlite:///data/bridge.db", set()),
        ("postgresql://user@host/db", set()),
        ("postgresql://user:p%40ss@host/db", {"p%40ss", "p@ss"}),
        ("postgresql://user:p:/a@ss@host:5432/db", {"p:/a@ss"}),
    ],
)
def test_of_a_database_only_the_password_is_secret(url: str, secrets: set[str]) -> None:
    settings = parse(f"store: {{url: '{url}'}}\nchannels: {{c: {{platform: web, store: '{url}'}}}}")
    assert set(settings.secrets()) == secrets
    assert "p@ss" not in repr(settings)


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
        (
            "channels:\n  a:\n    platform: telegram\n    bot_token: '1:x'\n    limits:\n"
            "      budgets: {grup: {limit: 5, window: 60}}",
            ["bridge.yaml:5: channels.a.limits: budgets: unknown budget `grup`; did you mean `group`?"],
        ),
        (
            "channels:\n  a: {platform: web, limits: {budgets: {minute: {limit: 5, window: 60}}}}",
            ["bridge.yaml:2: channels.a.limits: budgets: unknown budget `minute`; there are reply"],
        ),
        ("channels:\n  'a b': {platform: web}", ["bridge.yaml:2: channels.a b: a channel's name is made of letters"]),
        ("a: [", ["bridge.yaml:1: not valid YAML"]),
        ("a: &x [*x]", ["bridge.yaml: not valid YAML: nested too deeply"]),
        ("a: " + "[" * 3000 + "]" * 3000, ["bridge.yaml: not valid YAML: nested too deeply"]),
        ("a: !!int many", ["bridge.yaml: not valid YAML"]),
        ("a: b\nc: '\x01'", ["bridge.yaml:2: not valid YAML"]),
        (
            "channels:\n  a:\n    title: {{ TITLE }}",
            ["bridge.yaml:3: channels.a.title: a key has to be a word; fill in"],
        ),
        ("channels:\n  ? [a, b]\n  : {platform: web}", ["bridge.yaml:1: channels: a key has to be a word"]),
        ("gateway: http://x", ["bridge.yaml:1: gateway: expected keys below it, such as `url:`"]),
        ("store:", ["bridge.yaml:1: store: expected keys below it, such as `url:`; without any, leave it out"]),
        ("channels:", ["bridge.yaml:1: channels: expected the names of channels below it, or {} for none"]),
        ("channels:\n  a:", ["bridge.yaml:2: channels.a: needs `platform:`, one of feishu"]),
        (
            "channels:\n  web:\n    platform: web\n    policy:",
            ["bridge.yaml:4: channels.web.policy: expected keys below it, such as `groups:`"],
        ),
        (
            "channels:\n  web: {platform: web, tite: x}",
            ["bridge.yaml:2: channels.web.tite: unknown key; did you mean `tit"],
        ),
        ("channels: {a: {platform: web, suggestions: x}}", ["bridge.yaml:1: channels.a.suggestions: expected a list"]),
        ("store: {url: 'postgresql://u:secret@h:port/db'}", ["bridge.yaml:1: store.url: expected sqlite:///PATH or"]),
        ("store: {url: null}", ["bridge.yaml:1: store.url: expected a text"]),
        ("server: {port: 99999}", ["bridge.yaml:1: server.port: expected at most 65535"]),
        ("server: {port: []}", ["bridge.yaml:1: server.port: expected a whole number"]),
        ("store: {keep_days: 0}", ["bridge.yaml:1: store.keep_days: expected more than 0"]),
        ("gateway: {dialect: x}", ["bridge.yaml:1: gateway.dialect: expected 'auto', 'langgraph' or 'deerflow'"]),
        ("gateway: {assistant_id: ''}", ["bridge.yaml:1: gateway.assistant_id: is empty"]),
        ("gateway: {assistant_id: 1}", ["bridge.yaml:1: gateway.assistant_id: expected a text"]),
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


@pytest.mark.parametrize("filled", ["''", "'  '", "file:empty", "$EMPTY"])
@pytest.mark.parametrize(
    ("keys", "where"),
    [
        ("gateway: {{api_key: {0}}}", "gateway.api_key"),
        ("server: {{admin_token: {0}}}", "server.admin_token"),
        ("channels: {{c: {{platform: telegram, bot_token: {0}}}}}", "channels.c.bot_token"),
        ("channels: {{c: {{platform: telegram, bot_token: '1:x', webhook_secret: {0}}}}}", "channels.c.webhook_secret"),
        ("channels: {{c: {{platform: slack, bot_token: {0}, app_token: x}}}}", "channels.c.bot_token"),
        ("channels: {{c: {{platform: slack, bot_token: x, app_token: {0}}}}}", "channels.c.app_token"),
        ("channels: {{c: {{platform: slack, bot_token: x, signing_secret: {0}}}}}", "channels.c.signing_secret"),
        ("channels: {{c: {{platform: feishu, app_id: x, app_secret: {0}}}}}", "channels.c.app_secret"),
        ("channels: {{c: {{platform: web, access_token: {0}}}}}", "channels.c.access_token"),
        ("channels: {{c: {{platform: web, cookie_key: {0}}}}}", "channels.c.cookie_key"),
    ],
)
def test_an_empty_secret_is_one_error(keys: str, where: str, filled: str, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (found,) = problems(keys.format(filled), {"EMPTY": ""}, tmp_path)
    assert found.startswith(f"bridge.yaml:1: {where}: ")
    assert "empty" in found


@pytest.mark.parametrize("filled", ["' a secret long enough to sign with '", "$COPIED", "file:copied"])
@pytest.mark.parametrize("key", ["access_token", "cookie_key"])
def test_blanks_around_a_secret_are_no_part_of_it(key: str, filled: str, tmp_path: Path) -> None:
    copied = " a secret long enough to sign with\n"
    (tmp_path / "copied").write_text(copied)
    text = f"channels: {{c: {{platform: web, {key}: {filled}}}}}"
    settings = parse_settings(text, "bridge.yaml", tmp_path, {"COPIED": copied})
    assert getattr(settings.channels["c"], key).get_secret_value() == "a secret long enough to sign with"


@pytest.mark.parametrize(
    ("text", "key", "length"),
    [
        ("channels: {{c: {{platform: web, access_token: {0}}}}}", "channels.c.access_token", 8),
        ("channels: {{c: {{platform: web, cookie_key: {0}}}}}", "channels.c.cookie_key", 32),
        ("server: {{admin_token: {0}}}", "server.admin_token", 8),
    ],
)
def test_a_secret_that_can_be_guessed_is_an_error(text: str, key: str, length: int) -> None:
    (found,) = problems(text.format(f"'{' ' * 40}{'x' * (length - 1)}'"))
    assert found.startswith(f"bridge.yaml:1: {key}: expected at least {length} characters")


@pytest.mark.parametrize(
    "text",
    [
        "channels: {c: {platform: telegram, bot_token: '${TG}'}}",
        "channels: {c: {platform: feishu, app_id: x, app_secret: '${secret}'}}",
        "store: {url: 'postgresql://user:$PASSWORD@host/db'}",
        "store: {url: 'postgresql://user:${PASSWORD}@host/db'}",
        "gateway: {headers: {Authorization: Bearer $TOKEN}}",
    ],
)
def test_a_variable_that_would_stay_as_it_is_written_is_an_error(text: str) -> None:
    (found,) = problems(text)
    assert "write $NAME alone, without braces" in found
    assert "PASSWORD" not in found, "it may be a part of a password"


@pytest.mark.parametrize(
    ("gateway", "where"),
    [
        ('{headers: {"X A": b}}', "gateway.headers.X A"),
        ('{headers: {"X-A": "b\\r\\nc: d"}}', "gateway.headers.X-A"),
        ("{headers: {X-A: schlüssel}}", "gateway.headers.X-A"),
        ('{api_key: "a\\nb"}', "gateway.api_key"),
    ],
)
def test_what_cannot_be_a_header_is_an_error(gateway: str, where: str) -> None:
    (found,) = problems(f"gateway: {gateway}")
    assert where in found
    assert "header" in found
    assert "schlüssel" not in found


@pytest.mark.parametrize("value", ["png", "*/*", "image", "image/", "", "image/png, image/jpeg"])
def test_what_is_no_type_of_a_file_is_an_error(value: str) -> None:
    (found,) = problems(f"gateway: {{file_types: [{value!r}]}}")
    assert "gateway.file_types" in found
    assert "expected a MIME type such as image/png" in found


def test_types_of_files_may_be_written_in_any_case() -> None:
    settings = parse("gateway: {file_types: [Image/PNG, audio/*]}")
    assert settings.gateway.file_types == ("image/png", "audio/*")


def test_texts_for_people_and_for_the_agent_may_speak_of_dollars() -> None:
    text = "{platform: web, greeting: Ask me about $AAPL, run: {config: {prompt: 'say ${NAME}'}}}"
    settings = parse(f"channels: {{c: {text}}}")
    assert settings.channels["c"].run.config == {"prompt": "say ${NAME}"}


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1:2024",
        "ftp://x",
        "http://",
        "http://a b",
        "http://h:x",
        "http://h:99999",
        "http://[bad",
        "http://a..b",
    ],
)
@pytest.mark.parametrize(
    "keys",
    [
        "gateway: {{url: '{0}'}}",
        "server: {{public_url: '{0}'}}",
        "channels: {{c: {{platform: telegram, bot_token: '1:x', api_base_url: '{0}'}}}}",
        "channels: {{c: {{platform: slack, bot_token: x, app_token: y, api_base_url: '{0}'}}}}",
        "channels: {{c: {{platform: feishu, app_id: x, app_secret: y, domain: '{0}'}}}}",
    ],
)
def test_an_address_that_nothing_can_call_is_an_error(keys: str, address: str) -> None:
    (found,) = problems(keys.format(address))
    assert "expected an address" in found


def test_what_looks_like_a_date_is_a_text() -> None:
    settings = parse("channels: {c: {platform: web, title: 2024-99-01, greeting: 2024-01-01}}")
    assert settings.channels["c"].model_dump()["title"] == "2024-99-01"


def test_a_wrong_secret_is_never_shown() -> None:
    found = problems("channels: {tg: {platform: telegram, bot_token: hunter2-is-no-token}}")
    assert found
    assert "hunter2" not in "".join(found)


@pytest.mark.parametrize(
    "channel",
    [
        "{platform: slack, enabled: false, bot_token: $NOPE, app_token: $NOPE2}",
        "{platform: telegram, enabled: false, bot_token: $NOPE}",
        "{platform: telegram, enabled: false, bot_token: ''}",
    ],
)
def test_a_channel_that_is_off_needs_no_secrets(channel: str) -> None:
    assert all(not settings.enabled for settings in parse(f"channels: {{off: {channel}}}").channels.values())


def test_a_missing_file_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_settings(tmp_path / "nope.yaml", {})
