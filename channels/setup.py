"""`channel-bridge init`: asks a few questions and writes a configuration file; shows how to set up a platform."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from pathlib import Path

import typer
import yaml

from config.values import http_address

_PLATFORMS: Mapping[str, Mapping[str, str]] = {
    "slack": {"bot_token": "SLACK_BOT_TOKEN", "app_token": "SLACK_APP_TOKEN"},
    "telegram": {"bot_token": "TELEGRAM_BOT_TOKEN"},
    "feishu": {"app_id": "FEISHU_APP_ID", "app_secret": "FEISHU_APP_SECRET"},
    "web": {},
}
"""The platforms that `init` offers, with the keys each needs and the environment variables it proposes for them."""

_PLATFORMS_WITH_GUIDE = ("slack", "telegram", "feishu")


def platform_guide(platform: str) -> str | None:
    """What to do at the platform before its tokens exist; None for a platform that needs nothing or is unknown."""
    if platform not in _PLATFORMS_WITH_GUIDE:
        return None
    return str(importlib.import_module(f"adapters.{platform}.guide").guide())


def trouble_with(output: Path) -> str:
    """Why `output` cannot be written; empty: it can."""
    if output.is_dir():
        return f"{output} is a folder: give the name of a file"
    if not output.parent.is_dir():
        return f"the folder {output.parent} does not exist"
    if not os.access(output if output.exists() else output.parent, os.W_OK):
        return f"{output} cannot be written: no permission, or a read-only disk"
    return ""


def ask_for_config(output: Path) -> None:
    """Ask on the terminal and write `output`. An existing file is replaced only when the person says so.

    Raises `OSError` when it cannot be written after all.
    """
    if output.exists() and not typer.confirm(f"{output} exists. Replace it?", default=False):
        raise typer.Exit(1)
    url = typer.prompt(
        "Gateway address (empty: the embedded gateway)", default="", show_default=False, value_proc=_gateway_url
    )
    assistant = typer.prompt("Assistant id", default="agent").strip() or "agent"
    key = typer.confirm("Does the gateway want an API key?", default=False) if url else False
    chosen = [name for name in _PLATFORMS if typer.confirm(f"Add a {name} channel?", default=False)]
    text = config_text(url=url, assistant=assistant, key=key, platforms=chosen)
    output.write_text(text, encoding="utf-8")
    variables = [variable for name in chosen for variable in _PLATFORMS[name].values()]
    typer.echo(f"\nWritten: {output}")
    for variable in [*variables, *(["LANGGRAPH_API_KEY"] if key else [])]:
        typer.echo(f"  export {variable}=…")
    for name in chosen:
        if name in _PLATFORMS_WITH_GUIDE:
            typer.echo(f"  channel-bridge init {name}    shows what to set up there")
    typer.echo(f"  channel-bridge check --config {output}")
    typer.echo(f"  channel-bridge run --config {output}")


def _gateway_url(given: str) -> str:
    """What was typed as an address, with the scheme that people leave out. An unusable one is asked for again."""
    url = given.strip()
    if url and "://" not in url:
        url = f"http://{url}"
    try:
        return http_address(url) if url else ""
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def config_text(*, url: str, assistant: str, key: bool, platforms: list[str]) -> str:
    """A configuration file with these choices; secrets stay in the environment."""
    gateway = {"url": url} if url else {}
    gateway["assistant_id"] = assistant
    if key:
        gateway["api_key"] = "$LANGGRAPH_API_KEY"
    channels = {
        f"my-{name}": {"platform": name, **{field: f"${variable}" for field, variable in _PLATFORMS[name].items()}}
        for name in platforms
    }
    settings = {
        "gateway": gateway,
        "store": {"url": "sqlite:///data/bridge.db"},
        "server": {"host": "127.0.0.1", "port": 8080},
        "channels": channels,
    }
    hint = "" if url else "# gateway.url is left out, so the embedded gateway is started.\n"
    return hint + yaml.safe_dump(settings, sort_keys=False, allow_unicode=True, width=1_000)
