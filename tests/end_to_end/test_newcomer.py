"""What a newcomer meets first: the README's two commands, and a help that is there at once."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel
from typer.main import get_command

from channels.access import Policy
from channels.cli import app
from channels.observe import Metrics
from config.channel import ChannelSettings
from config.loading import parse_settings
from config.web import WebChannel

_ROOT = Path(__file__).parent.parent.parent
_HELP_SECONDS = 0.5


def readme_blocks(language: str) -> list[str]:
    text = (_ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def readme_commands() -> list[str]:
    """The lines of the README's shell blocks, without comments; one that goes on on the next is one."""
    blocks = (block.replace("\\\n", " ") for block in readme_blocks("sh"))
    lines = [line.partition("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def test_the_test_command_is_the_one_that_ci_runs() -> None:
    (test,) = [line for line in readme_commands() if "pytest" in line]
    set_up, _, run = test.partition(" && ")
    assert set_up == "pip install uv"
    ci = (_ROOT / ".ci" / "run").read_text().splitlines()
    assert run in ci
    assert any("pip install" in line and "uv" in line for line in ci)


def test_every_command_of_ours_in_the_readme_exists_with_its_options() -> None:
    known = get_command(app)
    seen = set()
    for line in readme_commands():
        words = shlex.split(line.rpartition("&& ")[2])
        if "channel-bridge" not in words:
            continue
        name, *arguments = words[words.index("channel-bridge") + 1 :]
        command = known.commands[name]  # type: ignore[attr-defined]
        options = {option for parameter in command.params for option in parameter.opts}
        assert {argument for argument in arguments if argument.startswith("-")} <= options, line
        seen.add(name)
    assert {"demo", "run", "check", "init"} <= seen


def test_every_configuration_in_the_readme_is_right(tmp_path: Path) -> None:
    blocks = readme_blocks("yaml")
    assert blocks
    for block in blocks:
        # A token of Telegram's shape is good for every variable.
        environment = dict.fromkeys(re.findall(r"\$(\w+)", block), "123456:abc")
        parse_settings(block, "README.md", tmp_path, environment)


def keys_in_tables() -> set[str]:
    """The names in the first columns of the README's tables."""
    text = (_ROOT / "README.md").read_text(encoding="utf-8")
    first_columns = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    return {key for column in first_columns for key in re.findall(r"`(\w+)`", column)}


@pytest.mark.parametrize("settings", [ChannelSettings, WebChannel, Policy], ids=lambda model: model.__name__)
def test_the_tables_of_the_readme_name_every_key(settings: type[BaseModel]) -> None:
    assert set(settings.model_fields) - keys_in_tables() <= {"platform"}


def test_the_metrics_of_the_readme_are_the_metrics() -> None:
    documented = keys_in_tables()
    for metric in Metrics().registry.collect():
        name = metric.name.removeprefix("channel_bridge_")
        assert {name, f"{name}_total"} & documented, name


def test_the_demo_command_needs_nothing_but_pip() -> None:
    demo = readme_commands()[0]
    assert re.fullmatch(r"pip install uv && uv run (--no-dev )?channel-bridge demo", demo)


def test_help_is_there_at_once(tmp_path: Path) -> None:
    # The processor's time of the best of three: what else the machine does must not decide. `wait4` counts one child.
    spent = []
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-m", "channels", "--help"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
            stdout=subprocess.DEVNULL,
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        spent.append(usage.ru_utime + usage.ru_stime)
    assert min(spent) < _HELP_SECONDS


def test_a_check_says_what_is_wrong_with_the_graph_to_serve(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("gateway: {graph: 'nowhere:graph'}\n")
    done = subprocess.run(
        [sys.executable, "-m", "channels", "check"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 1
    assert "WRONG gateway: the embedded gateway (graph 'nowhere:graph'" in done.stdout
    assert done.stderr == ""
