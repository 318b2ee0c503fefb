"""The real LangGraph server as a process on a free port, with the graph of these tests."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx

GRAPH = Path(__file__).with_name("agent.py")


class LangGraphServer:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def start(self) -> None:
        """Start and wait until it answers. Raises `RuntimeError` with its log when it does not."""
        config = {"dependencies": ["."], "graphs": {"agent": f"{GRAPH}:graph", "guarded": f"{GRAPH}:guarded"}}
        (self._folder / "langgraph.json").write_text(json.dumps(config))
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = [str(Path(sys.executable).with_name("langgraph")), "dev", "--host", "127.0.0.1", "--port", str(port)]
        command += ["--no-browser", "--no-reload", "--allow-blocking", "--n-jobs-per-worker", "10"]
        log = (self._folder / "server.log").open("wb")
        self._process = subprocess.Popen(
            command,
            cwd=self._folder,
            env={**os.environ, "LANGGRAPH_CLI_NO_ANALYTICS": "1", "LANGSMITH_TRACING": "false"},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        log.close()
        ends = time.monotonic() + 60
        while time.monotonic() < ends and self._process.poll() is None:
            try:
                if httpx.get(f"{self.url}/ok", timeout=1.0).is_success:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.1)
        self.stop()
        raise RuntimeError((self._folder / "server.log").read_text(errors="replace")[-4000:])

    def stop(self) -> None:
        """End the whole process group: the server starts children of its own."""
        process, self._process = self._process, None
        if process is None:
            return
        for which in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, which)
                process.wait(10)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue
            break


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
