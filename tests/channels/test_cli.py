"""The command line as a person uses it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from config.loading import load_settings, parse_settings
from config.settings import Settings
from tests.demo import BridgeProcess

ROOT = Path(__file__).parent.parent.parent
COMMANDS = ("demo", "run", "check", "init", "status", "chat", "schema")


def channel_bridge(
    *arguments: str, folder: Path, typed: str = "", environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "channels", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "CHANNEL_BRIDGE_DEMO_PACE": "0", **(environment or {})},
        input=typed,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def test_help_names_every_command(tmp_path: Path) -> None:
    done = channel_bridge("--help", folder=tmp_path)
    assert done.returncode == 0
    assert all(command in done.stdout for command in COMMANDS)


def test_a_wrong_configuration_ends_with_2_and_one_line_for_each_mistake(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("gatway: {}\nchannels: {tg: {platform: telegram, bot_token: $NO_SUCH}}\n")
    for command in ("run", "check", "status"):
        done = channel_bridge(command, folder=tmp_path)
        assert done.returncode == 2
        lines = done.stderr.strip().splitlines()
        assert len(lines) == 2
        assert any("gatway" in line and "gateway" in line for line in lines)
        assert any("NO_SUCH" in line and "channels.tg.bot_token" in line for line in lines)


def test_a_missing_configuration_is_named(tmp_path: Path) -> None:
    done = channel_bridge("run", "--config", "nope.yaml", folder=tmp_path)
    assert done.returncode == 2
    assert "nope.yaml" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_example_configuration_is_right(tmp_path: Path) -> None:
    text = (ROOT / "config" / "config.example.yaml").read_text()
    names = ("SLACK_BOT_TOKEN", "SLACK_APP_TOKEN", "FEISHU_APP_SECRET")
    environment = {"TELEGRAM_BOT_TOKEN": "123:abc", "SLACK_BOT_TOKEN": "xoxb-1-a", "SLACK_APP_TOKEN": "xapp-1-a"}
    settings = parse_settings(text, "config.example.yaml", tmp_path, {**dict.fromkeys(names, "x"), **environment})
    assert {channel.platform for channel in settings.channels.values()} == {"telegram", "slack", "feishu", "web"}


def test_the_schema_is_json_and_describes_the_keys(tmp_path: Path) -> None:
    done = channel_bridge("schema", folder=tmp_path)
    schema = json.loads(done.stdout)
    assert set(schema["properties"]) == set(Settings.model_fields)


def test_check_offline_calls_nobody(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("gateway: {url: http://127.0.0.1:9}\n")
    assert channel_bridge("check", "--offline", folder=tmp_path).returncode == 0


def test_check_tries_the_gateway_and_says_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("gateway: {url: http://127.0.0.1:9}\n")
    done = channel_bridge("check", folder=tmp_path)
    assert done.returncode == 1
    assert "WRONG gateway" in done.stdout
    assert "ok    store" in done.stdout


def test_init_writes_a_configuration_that_loads(tmp_path: Path) -> None:
    # No gateway address, the default assistant; no Slack, Telegram, no Feishu, no web.
    done = channel_bridge("init", folder=tmp_path, typed="\n\nn\ny\nn\nn\n")
    assert done.returncode == 0, done.stderr
    assert "TELEGRAM_BOT_TOKEN" in done.stdout
    settings = load_settings(tmp_path / "config.yaml", {"TELEGRAM_BOT_TOKEN": "123:abc"})
    assert [channel.platform for channel in settings.channels.values()] == ["telegram"]


def test_init_keeps_an_existing_file_unless_told_otherwise(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("# mine\n")
    assert channel_bridge("init", folder=tmp_path, typed="n\n").returncode == 1
    assert (tmp_path / "config.yaml").read_text() == "# mine\n"


@pytest.mark.parametrize("platform", ["slack", "telegram", "feishu"])
def test_init_shows_what_to_set_up_at_a_platform(platform: str, tmp_path: Path) -> None:
    done = channel_bridge("init", platform, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "token" in done.stdout.lower() or "secret" in done.stdout.lower()


def test_init_of_an_unknown_platform_is_refused(tmp_path: Path) -> None:
    done = channel_bridge("init", "icq", folder=tmp_path)
    assert done.returncode == 2
    assert "icq" in done.stderr


def test_chat_streams_an_answer_and_asks_back(tmp_path: Path) -> None:
    done = channel_bridge("chat", folder=tmp_path, typed="book a table\n1\n/quit\n")
    assert done.returncode == 0, done.stderr
    assert "1. 2 people" in done.stderr
    assert "2 people" in done.stdout


def test_status_says_that_no_bridge_answers(tmp_path: Path) -> None:
    done = channel_bridge("status", "--url", "http://127.0.0.1:9", folder=tmp_path)
    assert done.returncode == 1
    assert "no bridge answers" in done.stderr


async def test_run_starts_reports_its_status_and_ends_in_order(tmp_path: Path) -> None:
    settings = {
        "gateway": {"data": "gateway"},
        "store": {"url": "sqlite:///bridge.db"},
        "server": {"port": 0},
        "channels": {"page": {"platform": "web", "store": "sqlite:///web.db"}},
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(settings))
    async with BridgeProcess("run", folder=tmp_path) as bridge:
        done = channel_bridge("status", "--url", bridge.url, folder=tmp_path)
        assert done.returncode == 0, done.stdout
        assert "running" in done.stdout
        assert await bridge.stop() == 0
