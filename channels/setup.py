"""`channel-bridge init`: asks a few questions and writes a configuration file; shows how to set up a platform."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path

import typer

_PLATFORMS: Mapping[str, Mapping[str, str]] = {
    "slack": {"bot_token": "SLACK_BOT_TOKEN", "app_token": "SLACK_APP_TOKEN"},
    "telegram": {"bot_token": "TELEGRAM_BOT_TOKEN"},
    "feishu": {"app_id": "FEISHU_APP_ID", "app_secret": "FEISHU_APP_SECRET"},
    "web": {"access_token": "CHANNEL_BRIDGE_WEB_TOKEN"},
}
"""The platforms that `init` offers, with the keys each needs and the environment variables it proposes for them."""

_PLATFORMS_WITH_GUIDE = ("slack", "telegram", "feishu")


def platform_guide(platform: str) -> str | None:
    """What to do at the platform before its tokens exist; None for a platform that needs nothing or is unknown."""
    if platform not in _PLATFORMS_WITH_GUIDE:
        return None
    return str(importlib.import_module(f"adapters.{platform}.guide").guide())


def ask_for_config(output: Path) -> None:
    """Ask on the terminal and write `output`. An existing file is replaced only when the person says so."""
    if output.exists() and not typer.confirm(f"{output} exists. Replace it?", default=False):
        raise typer.Exit(1)
    url = typer.prompt("Gateway address (empty: the embedded gateway)", default="", show_default=False).strip()
    assistant = typer.prompt("Assistant id", default="agent").strip()
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


def config_text(*, url: str, assistant: str, key: bool, platforms: list[str]) -> str:
    """A configuration file with these choices; secrets stay in the environment."""
    lines = ["gateway:"]
    lines.append(f"  url: {url}" if url else "  # url: left out, so the embedded gateway is started")
    lines.append(f"  assistant_id: {assistant}")
    if key:
        lines.append("  api_key: $LANGGRAPH_API_KEY")
    lines += ["store:", "  url: sqlite:///data/bridge.db", "server:", "  host: 127.0.0.1", "  port: 8080"]
    lines.append("channels:" if platforms else "channels: {}")
    for name in platforms:
        lines += [f"  my-{name}:", f"    platform: {name}"]
        lines += [f"    {field}: ${variable}" for field, variable in _PLATFORMS[name].items()]
    return "\n".join(lines) + "\n"
