"""`channel-bridge chat` on a real terminal: typing, Ctrl+C, and the way out."""

from __future__ import annotations

import asyncio
import os
import pty
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.demo import BridgeProcess

_ROOT = Path(__file__).parent.parent.parent
_CTRL_C, _CTRL_D = "\x03", "\x04"


class Terminal:
    """A person at a terminal: `types`, and `sees` what has come since they last looked."""

    def __init__(self, descriptor: int, process: asyncio.subprocess.Process) -> None:
        self._descriptor = descriptor
        self.process = process
        self._screen = ""
        self._changed = asyncio.Event()
        asyncio.get_running_loop().add_reader(descriptor, self._read)

    def types(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    async def sees(self, text: str, timeout: float = 60.0) -> str:
        """Wait until `text` is there; returns everything up to it."""
        try:
            async with asyncio.timeout(timeout):
                while text not in self._screen:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"{text!r} does not come after:\n{self._screen}") from None
        before, _, self._screen = self._screen.partition(text)
        return before

    async def ended(self) -> int:
        async with asyncio.timeout(20):
            return await self.process.wait()

    def _read(self) -> None:
        try:
            data = os.read(self._descriptor, 65_536)
        except OSError:  # the other side has gone
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._descriptor)
        self._screen += data.decode(errors="replace").replace("\r\n", "\n")
        self._changed.set()


@asynccontextmanager
async def chatting(folder: Path, pace: str = "0.01") -> AsyncIterator[Terminal]:
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        # The terminal is the controlling one, so that Ctrl+C reaches the program as a signal.
        "import fcntl, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); from channels.cli import main; "
        "sys.argv = ['channel-bridge', 'chat']; main()",
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(_ROOT), "CHANNEL_BRIDGE_DEMO_PACE": pace, "OPENAI_API_KEY": ""},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    terminal = Terminal(ours, process)
    try:
        yield terminal
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        asyncio.get_running_loop().remove_reader(ours)
        os.close(ours)


async def test_a_conversation_beside_a_running_demo(tmp_path: Path) -> None:
    async with BridgeProcess("demo", "--port", "0", folder=tmp_path), chatting(tmp_path) as terminal:
        assert "Ctrl+C stops an answer" in await terminal.sees("> ")
        terminal.types("weather in Paris and Tokyo\n")
        answer = await terminal.sees("> ")
        assert "It is warmest in **Tokyo**." in answer
        # Steps have lines of their own.
        assert "Let me look out of the window. \n  [done] weather Paris\n  [done] weather Tokyo\n" in answer

        # Ctrl+C stops the answer, and only that.
        terminal.types("tell me a long story\n")
        await terminal.sees("river")
        terminal.types(_CTRL_C)
        await terminal.sees("Stopped.")
        await terminal.sees("> ")

        terminal.types("book a table\n")
        await terminal.sees("2. 4 people")
        terminal.types("2\n")
        await terminal.sees("A table for **4 people** it is")
        await terminal.sees("> ")
        terminal.types("/retry\n")
        await terminal.sees("For how many people?")
        await terminal.sees("> ")
        terminal.types("/new weather in Paris and Tokyo\n")
        await terminal.sees("A new conversation begins.\n")
        assert "It is warmest in **Tokyo**." in await terminal.sees("> ")

        # Ctrl+C where nothing is to be stopped ends it.
        terminal.types(_CTRL_C)
        assert await terminal.ended() == 0
        assert "Traceback" not in terminal._screen


async def test_the_end_of_the_input_ends_it(tmp_path: Path) -> None:
    async with chatting(tmp_path) as terminal:
        await terminal.sees("> ")
        terminal.types(_CTRL_D)
        assert await terminal.ended() == 0
        assert terminal._screen == "\n"
