"""The command line: `channel-bridge demo | run | check | init | status | chat | schema`."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    import asyncio

    from channels.app import Bridge
    from config.loading import Problem
    from config.settings import Settings

# Everything heavy is imported inside the commands: `--help` must answer at once.

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Talk to a LangGraph agent from Feishu, Slack and Telegram, and watch the answer grow.",
)

EXIT_NOT_OK = 1
EXIT_BAD_CONFIG = 2
_M_ARENA_MAX = -8  # glibc's malloc.h

ConfigOption = Annotated[Path, typer.Option("--config", "-c", help="The configuration file.", show_default=True)]
LogJson = Annotated[bool, typer.Option("--log-json", help="Log one JSON object a line.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")]
DEFAULT_CONFIG = Path("config.yaml")

_SUGGESTIONS = ("What can you do?", "Weather in Paris and Tokyo", "Book a table", "Tell me a long story")
"""What the demo's page offers to a person who does not know what to type."""

_DEMO_FOLDER_IN_USE = (
    "If another demo runs in this folder, end it, or give this one a folder of its own:\n"
    "  channel-bridge demo --data FOLDER"
)


def _say_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"channel-bridge {version('channel-bridge')}")
        raise typer.Exit


@app.callback()
def _before_every_command(
    _version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Say which version this is.")
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the page; a taken one is replaced by a free one.")
    ] = 8080,
    data: Annotated[Path, typer.Option(help="Where the demo keeps its conversations.")] = Path("data/demo"),
    verbose: Verbose = False,
) -> None:
    """Try the bridge without any token: embedded gateway, demo agent, a chat page in the browser."""
    from pydantic import SecretStr

    from config.settings import GatewaySettings, ServerSettings, Settings, StoreSettings
    from config.web import WebChannel

    settings = Settings(
        gateway=GatewaySettings(data=str(data / "gateway")),
        store=StoreSettings(url=SecretStr(f"sqlite:///{data / 'bridge.db'}")),
        server=ServerSettings(port=port),
        channels={"web": WebChannel(store=SecretStr(f"sqlite:///{data / 'web.db'}"), suggestions=_SUGGESTIONS)},
    )
    typer.echo("Starting the demo…", err=True)
    _serve(settings, greeting=_greet_demo, any_port=True, verbose=verbose, folder_hint=_DEMO_FOLDER_IN_USE)


@app.command()
def run(config: ConfigOption = DEFAULT_CONFIG, log_json: LogJson = False, verbose: Verbose = False) -> None:
    """Run the bridge with a configuration file."""
    _serve(_load(config), greeting=_greet_run, log_json=log_json, verbose=verbose)


@app.command()
def check(
    config: ConfigOption = DEFAULT_CONFIG,
    offline: Annotated[bool, typer.Option("--offline", help="Check the file only; call nobody.")] = False,
) -> None:
    """Check the configuration: the file, then the gateway, the store and every channel's tokens live."""
    import asyncio

    from channels.observe import configure_logging, redact

    settings, doubts = _review(config)
    redact.learn(settings.secrets())
    for doubt in doubts:
        typer.echo(f"WRONG {doubt}")
    if not doubts:
        typer.echo(f"ok    {config}: the file is right")
    if not any(channel.enabled for channel in settings.channels.values()):
        typer.echo(
            f"note  {config}: channels: there is none, so nobody can ask anything; `channel-bridge init` adds some"
        )
    findings = []
    if not offline:
        from channels.checking import check_live

        configure_logging(json_lines=False, level=50)
        findings = asyncio.run(check_live(settings))
    for where, finding in findings:
        detail = f" ({finding.detail})" if finding.detail else ""
        typer.echo(redact(f"{'ok   ' if finding.ok else 'WRONG'} {where}: {finding.what}{detail}"))
    if doubts or not all(finding.ok for _, finding in findings):
        raise typer.Exit(EXIT_NOT_OK)


@app.command()
def init(
    platform: Annotated[
        str | None,
        typer.Argument(help="slack, telegram or feishu: print what to set up there. Left out: write a config."),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")] = DEFAULT_CONFIG,
) -> None:
    """Ask a few questions and write a configuration file; or show how to set up one platform."""
    from channels.setup import ask_for_config, platform_guide, trouble_with

    if platform is not None:
        guide = platform_guide(platform)
        if guide is None:
            _fail(f"unknown platform {platform!r}: use slack, telegram or feishu", EXIT_BAD_CONFIG)
        typer.echo(guide)
        return
    if trouble := trouble_with(output):
        _fail(trouble, EXIT_NOT_OK)
    try:
        ask_for_config(output)
    except OSError as error:
        _fail(f"{output} cannot be written: {error.strerror}", EXIT_NOT_OK)


@app.command()
def status(
    config: ConfigOption = DEFAULT_CONFIG,
    url: Annotated[
        str | None, typer.Option(help="The running bridge's address; left out: from the configuration.")
    ] = None,
) -> None:
    """Ask the running bridge how it is."""
    from channels.loopback import local_url
    from channels.observe import redact
    from channels.status import NoBridge, ask

    if url is None:
        server = _load(config).server
        if server.port == 0:
            _fail(
                f"{config}: server.port is 0, any free port: give the running bridge's address with --url",
                EXIT_BAD_CONFIG,
            )
        url = local_url(server.host, server.port)
    try:
        found = ask(url)
    except NoBridge as error:
        _fail(redact(str(error)), EXIT_NOT_OK)
    for line in found.lines():
        typer.echo(line)
    if not found.ready:
        raise typer.Exit(EXIT_NOT_OK)


@app.command()
def chat(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="Use this file's gateway; left out: the demo agent.")
    ] = None,
    data: Annotated[Path, typer.Option(help="Where the demo agent keeps its state.")] = Path("data/chat"),
) -> None:
    """Talk to the agent in the terminal."""
    import asyncio

    from adapters.embedded import EmbeddedGatewayError
    from channels.observe import configure_logging, redact
    from channels.terminal import converse
    from config.settings import GatewaySettings

    gateway = GatewaySettings(data=str(data))
    if config is not None:
        settings = _load(config)
        redact.learn(settings.secrets())
        gateway = settings.gateway
    configure_logging(json_lines=False, level=50)
    try:
        is_usable = asyncio.run(converse(gateway))
    except EmbeddedGatewayError as error:
        _fail(redact(str(error)), EXIT_NOT_OK)
    if not is_usable:
        raise typer.Exit(EXIT_NOT_OK)


@app.command()
def schema() -> None:
    """Print the JSON schema of the configuration file, for editors."""
    import json

    from config.schema import schema_of_the_file

    typer.echo(json.dumps(schema_of_the_file(), indent=2, ensure_ascii=False))


def main() -> None:
    """The entry point of the `channel-bridge` command."""
    app()


def _load(path: Path) -> Settings:
    return _review(path)[0]


def _review(path: Path) -> tuple[Settings, list[Problem]]:
    from config.loading import ConfigError, review_settings

    try:
        return review_settings(path)
    except ConfigError as error:
        _fail(str(error), EXIT_BAD_CONFIG)


def _fail(message: str, code: int) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(code)


def _serve(
    settings: Settings,
    greeting: Callable[[Bridge], None],
    *,
    log_json: bool = False,
    verbose: bool = False,
    any_port: bool = False,
    folder_hint: str = "",
) -> None:
    import asyncio
    import logging
    import signal

    _use_one_arena()
    from adapters.embedded import EmbeddedGatewayError
    from adapters.embedded import StoreError as GatewayFolderError
    from channels.app import Bridge
    from channels.observe import configure_logging, redact
    from channels.server import AddressInUse
    from channels.store.records import StoreError

    redact.learn(settings.secrets())
    level = logging.INFO if verbose or not any_port else logging.WARNING
    configure_logging(json_lines=log_json, level=level)

    async def serve() -> None:
        bridge = Bridge(settings)
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, _stop_once_then_at_once, stopping, number)
        try:
            await bridge.start(any_port=any_port)
            if not stopping.is_set():
                await bridge.channels_started(5)
                greeting(bridge)
            await stopping.wait()
        finally:
            await bridge.stop()

    try:
        asyncio.run(serve())
    except (AddressInUse, EmbeddedGatewayError, StoreError) as error:
        hint = f"\n{folder_hint}" if folder_hint and isinstance(error, GatewayFolderError) else ""
        _fail(f"{redact(str(error))}{hint}", EXIT_NOT_OK)


def _use_one_arena() -> None:
    """Let all threads allocate from one heap, before the first of them does.

    glibc gives each thread a heap of its own and keeps what was freed in it: 20 MB for a handful of threads that take
    turns anyway, because of the interpreter's lock. Other C libraries have no such setting.
    """
    import ctypes

    if "MALLOC_ARENA_MAX" not in os.environ:
        with contextlib.suppress(AttributeError, OSError, TypeError):
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def _stop_once_then_at_once(stopping: asyncio.Event, number: int) -> None:
    import signal

    if stopping.is_set():
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
    stopping.set()


def _greet_demo(bridge: Bridge) -> None:
    hint = "Open it in a browser and type. /console shows how the bridge is doing. Ctrl+C ends it."
    typer.echo(f"\n  Channel Bridge demo:  {bridge.url}\n\n  {hint}\n")
    sys.stdout.flush()


def _greet_run(bridge: Bridge) -> None:
    names = ", ".join(bridge.settings.channels) or "none"
    typer.echo(f"Channel Bridge listens on {bridge.url}; channels: {names}")
    sys.stdout.flush()
