"""The command line as a person uses it."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from channels.cli import app
from channels.setup import config_text
from config.loading import load_settings, parse_settings, review_settings
from config.settings import Settings
from config.web import WebChannel
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


def test_the_version_is_said() -> None:
    done = CliRunner().invoke(app, ["--version"])
    assert done.exit_code == 0
    assert done.output.startswith("channel-bridge ")


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


def check_offline(text: str, folder: Path) -> Result:
    (folder / "config.yaml").write_text(text)
    return CliRunner().invoke(app, ["check", "--offline", "--config", str(folder / "config.yaml")])


def test_check_offline_finds_what_the_file_alone_tells(tmp_path: Path) -> None:
    done = check_offline("server: {host: 0.0.0.0}\nchannels: {page: {platform: web}}\n", tmp_path)
    assert done.exit_code == 1
    assert f"WRONG {tmp_path}/config.yaml:2: channels.page.access_token: is missing" in done.output
    assert "the file is right" not in done.output


@pytest.mark.parametrize(
    "text", ["gateway: {assistant_id: agent}", "channels: {page: {platform: web, enabled: false}}"]
)
def test_check_says_that_there_is_no_channel(text: str, tmp_path: Path) -> None:
    done = check_offline(text, tmp_path)
    assert done.exit_code == 0
    assert "channels: there is none" in done.output


def everything_in(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_check_makes_nothing_and_goes_on_after_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(
        "gateway: {graph: 'no_such_module:graph'}\n"
        "channels:\n"
        "  page: {platform: web}\n"
        "  tg: {platform: telegram, bot_token: '1:hunter2', api_base_url: 'http://127.0.0.1:9'}\n"
    )
    before = everything_in(tmp_path)
    done = channel_bridge("check", folder=tmp_path)
    assert done.returncode == 1
    assert done.stderr == ""
    assert "ok    store: store.url (will be made)" in done.stdout
    assert "WRONG gateway: the embedded gateway (" in done.stdout
    assert "no_such_module" in done.stdout
    assert "ok    page: history (will be made)" in done.stdout
    assert "WRONG tg: token (Telegram cannot be reached (" in done.stdout
    assert "hunter2" not in done.stdout
    assert everything_in(tmp_path) == before


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


def answer_init(typed: str, output: Path) -> Result:
    return CliRunner().invoke(app, ["init", "--output", str(output)], input=typed)


def test_init_writes_whatever_was_typed_so_that_it_loads(tmp_path: Path) -> None:
    output = tmp_path / "config.yaml"
    done = answer_init("http://a b\n127.0.0.1:2024/\nmy agent: x #y\ny\ny\ny\ny\ny\n", output)
    assert done.exit_code == 0, done.output
    assert "expected an address" in done.output
    variables = re.findall(r"export (\w+)=", done.output)
    settings = load_settings(output, dict.fromkeys(variables, "1:x"))
    assert (settings.gateway.url, settings.gateway.assistant_id) == ("http://127.0.0.1:2024", "my agent: x #y")
    assert {channel.platform for channel in settings.channels.values()} == {"slack", "telegram", "feishu", "web"}
    assert review_settings(output, dict.fromkeys(variables, "1:x"))[1] == []


def test_init_lets_this_machine_use_its_page_without_a_token(tmp_path: Path) -> None:
    done = answer_init("\n\nn\nn\nn\ny\n", tmp_path / "config.yaml")
    assert "export" not in done.output
    (channel,) = load_settings(tmp_path / "config.yaml", {}).channels.values()
    assert isinstance(channel, WebChannel)
    assert channel.access_token is None


@pytest.mark.parametrize("output", ["nodir/config.yaml", ".", "file/config.yaml"])
def test_init_asks_nothing_when_the_answers_could_not_be_written(output: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = answer_init("", tmp_path / output)
    assert done.exit_code == 1
    assert not isinstance(done.exception, OSError)
    assert "Gateway address" not in done.output
    assert str(tmp_path) in done.output


def test_init_says_that_the_file_could_not_be_written_after_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    done = answer_init("\n\nn\nn\nn\nn\n", tmp_path / "config.yaml")
    assert done.exit_code == 1
    assert "config.yaml cannot be written: No space left on device" in done.output


def test_init_keeps_an_existing_file_unless_told_otherwise(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("# mine\n")
    assert channel_bridge("init", folder=tmp_path, typed="n\n").returncode == 1
    assert (tmp_path / "config.yaml").read_text() == "# mine\n"


@pytest.mark.parametrize("platform", ["slack", "telegram", "feishu"])
def test_init_shows_what_to_set_up_at_a_platform(platform: str, tmp_path: Path) -> None:
    done = channel_bridge("init", platform, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "token" in done.stdout.lower() or "secret" in done.stdout.lower()
    named = config_text(url="", assistant="agent", key=False, platforms=[platform])
    (channel,) = yaml.safe_load(named)["channels"]
    assert channel in done.stdout, "the guide speaks of the channel that init writes"
    assert set(re.findall(r"--config (\S+)", done.stdout)) <= {"config.yaml"}


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


class OtherService(BaseHTTPRequestHandler):
    """Answers every question with JSON that is not ours."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"status": "UP"}')

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def other_service() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), OtherService) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("url", ["http://h:x", "http://a..b", "http://[bad", "ftp://x", "127.0.0.1:9", ""])
def test_status_of_an_address_where_no_bridge_can_be(url: str) -> None:
    done = CliRunner().invoke(app, ["status", "--url", url])
    assert done.exit_code == 1
    assert isinstance(done.exception, SystemExit)
    assert f"no bridge answers at {url}" in done.output


def test_status_of_another_service(other_service: str) -> None:
    done = CliRunner().invoke(app, ["status", "--url", other_service])
    assert done.exit_code == 1
    assert f"no bridge answers at {other_service}: something else does" in done.output


def test_status_asks_for_the_address_when_any_port_may_be_taken(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("server: {port: 0}")
    done = CliRunner().invoke(app, ["status", "--config", str(tmp_path / "config.yaml")])
    assert done.exit_code == 2
    assert "--url" in done.output


def test_run_says_in_one_line_which_database_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "bridge.db").write_text("no database " * 1000)
    (tmp_path / "config.yaml").write_text("store: {url: 'sqlite:///bridge.db'}")
    done = channel_bridge("run", folder=tmp_path)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line == "store.url: sqlite:///bridge.db: DatabaseError: file is not a database"


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
        beside = channel_bridge("check", folder=tmp_path)
        assert beside.returncode == 0, "a check may run beside the bridge\n" + beside.stdout
        assert await bridge.stop() == 0
