"""Dependencies point one way: `config → channels ← adapters`; platform SDKs are loaded only where they are used."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SDKS = frozenset(
    {"slack_bolt", "slack_sdk", "telegram", "lark_oapi", "langgraph", "langchain_core", "langchain_openai"}
)
WIRING = frozenset({"app.py", "cli.py", "checking.py", "setup.py", "terminal.py", "__main__.py"})
"""The files of `channels/` that may know settings and adapters: wiring and the command line."""


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module


def files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def tops(path: Path) -> set[str]:
    return {name.partition(".")[0] for name in imports(path)}


@pytest.mark.parametrize("path", files("channels"), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_core_knows_no_adapter_no_settings_and_no_platform_sdk(path: Path) -> None:
    forbidden = set(SDKS)
    if path.name not in WIRING:
        forbidden |= {"adapters", "config"}
    assert not tops(path) & forbidden


@pytest.mark.parametrize("path", files("config"), ids=lambda path: str(path.relative_to(ROOT)))
def test_settings_know_no_adapter(path: Path) -> None:
    assert not tops(path) & (SDKS | {"adapters"})


@pytest.mark.parametrize("path", files("adapters"), ids=lambda path: str(path.relative_to(ROOT)))
def test_an_adapter_knows_no_other_adapter_and_no_wiring(path: Path) -> None:
    own = path.relative_to(ROOT / "adapters").parts[0]
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "adapters":
            assert len(parts) == 1 or parts[1] == own, name
        assert name not in {"channels.app", "channels.cli", "channels.manager", "channels.turn", "channels.gateway"}


def loaded_by(code: str) -> set[str]:
    """The top-level modules in `sys.modules` after running `code` in a fresh interpreter."""
    probe = f"{code}\nimport sys\nprint(' '.join(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    done = subprocess.run(
        [sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.split())


def test_the_application_loads_no_platform_sdk_before_a_channel_needs_it() -> None:
    loaded = loaded_by("import channels.app, config.settings, config.loading")
    assert not loaded & {"slack_bolt", "slack_sdk", "telegram", "lark_oapi", "langgraph", "langchain_openai"}


def test_the_command_line_loads_next_to_nothing_for_its_help() -> None:
    loaded = loaded_by("import channels.cli")
    assert not loaded & {"sqlalchemy", "httpx", "langgraph_sdk", "starlette", "pydantic", "structlog", "yaml"}
