"""A whole bridge in a process of its own, as a person starts it.

The processes are forked from one that has imported everything already, so that a test may start many of them.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import re
import signal
import sys
from collections.abc import Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Self

_URL = re.compile(r"http://[0-9.]+:\d+")

_fork_server = multiprocessing.get_context("forkserver")
_fork_server.set_forkserver_preload(
    ["channels.app", "channels.cli", "config.loading", "adapters.web.adapter", "adapters.telegram.adapter"]
)


def _command(arguments: tuple[str, ...], folder: str, environment: Mapping[str, str]) -> None:
    """Be the `channel-bridge` command, with its output in files of `folder`."""
    os.chdir(folder)
    os.environ.update(environment)
    for descriptor, name in ((1, "bridge.out"), (2, "bridge.log")):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), descriptor)
    sys.argv = ["channel-bridge", *arguments]
    from channels.cli import main

    main()


class BridgeProcess:
    """`channel-bridge ARGUMENTS…` started in `folder`. `url` is what it prints.

    `output` and `log` are the files with its standard output and standard error.
    """

    def __init__(self, *arguments: str, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._arguments = arguments
        self._folder = folder
        self._environment = {"CHANNEL_BRIDGE_DEMO_PACE": "0.01", **(environment or {})}
        self._process: BaseProcess | None = None
        self.output = folder / "bridge.out"
        self.log = folder / "bridge.log"
        self.url = ""

    async def begin(self) -> None:
        """Start the process, and wait for nothing."""
        self.output.write_text("")
        self._process = _fork_server.Process(
            target=_command, args=(self._arguments, str(self._folder), self._environment), daemon=True
        )
        await asyncio.to_thread(self._process.start)

    async def start(self, timeout: float = 60.0) -> None:
        """Returns when the bridge has printed its address; raises with its log when it ends or is silent."""
        await self.begin()
        try:
            async with asyncio.timeout(timeout):
                while (match := _URL.search(self.output.read_text())) is None:
                    if not self.is_alive:
                        raise TimeoutError
                    await asyncio.sleep(0.02)
                self.url = match[0]
        except TimeoutError:
            raise AssertionError(f"the bridge did not start:\n{self.log.read_text()[-3000:]}") from None

    @property
    def pid(self) -> int:
        assert self._process is not None
        assert self._process.pid is not None
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.is_alive()

    async def wait(self, timeout: float = 60.0) -> int:
        """Wait until it has ended; returns the exit code (negative: the signal that ended it)."""
        assert self._process is not None
        await asyncio.to_thread(self._process.join, timeout)
        if self._process.exitcode is None:
            raise AssertionError(f"the bridge still runs after {timeout:g} s:\n{self.log.read_text()[-3000:]}")
        return self._process.exitcode

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if it lives."""
        if self.is_alive:
            os.kill(self.pid, number)

    async def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self.is_alive:
            self.send(signal.SIGKILL)
            await self.wait()

    async def stop(self, timeout: float = 30.0) -> int:
        """SIGTERM, as an orderly end; returns the exit code."""
        self.send(signal.SIGTERM)
        return await self.wait(timeout)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.kill()
