"""Built as a wheel and installed into a clean environment elsewhere, the demo is whole: fast, small and quiet."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import zipfile
from pathlib import Path

import httpx
import pytest

from tests.end_to_end.measures import megabytes, processor_seconds
from tests.end_to_end.visitor import visiting

_ROOT = Path(__file__).parent.parent.parent
_PACKAGES = ("channels", "adapters", "config")
_MOST_MEGABYTES = 150  # of the idle demo
_FIRST_WORD_SECONDS = 20.0  # from its start, on a machine that does little else
_CROWDED = 4.0  # how much slower a machine may be that runs other tests as well


def uv(*arguments: str) -> None:
    """Run uv: without the network where its cache is enough, otherwise with it."""
    command = os.environ.get("UV") or shutil.which("uv")
    assert command is not None, "uv is not there; it runs these tests (see the README)"
    for options in (("--offline",), ()):
        done = subprocess.run([command, *arguments, *options], capture_output=True, text=True, timeout=110, check=False)
        if done.returncode == 0:
            return
    raise AssertionError(done.stderr)


def wheel_into(folder: Path) -> Path:
    uv("build", "--wheel", "--quiet", "--out-dir", str(folder), str(_ROOT))
    (wheel,) = folder.glob("*.whl")
    return wheel


def installed(folder: Path) -> Path:
    """A new environment with the wheel and the tested versions of what it needs; returns the command."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(project["tool"]["uv"]["constraint-dependencies"]))
    environment = folder / "environment"
    uv("venv", "--quiet", "--python", sys.executable, str(environment))
    python = str(environment / "bin" / "python")
    wheel = wheel_into(folder / "dist")
    uv("pip", "install", "--quiet", "--python", python, "--constraints", str(constraints), str(wheel))
    return environment / "bin" / "channel-bridge"


def test_everything_but_code_travels_with_the_wheel(tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel_into(tmp_path)) as wheel:
        packed = {name for name in wheel.namelist() if name.startswith(_PACKAGES)}
    there = {
        str(path.relative_to(_ROOT))
        for package in _PACKAGES
        for path in (_ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert packed == there
    assert {f"{package}/py.typed" for package in _PACKAGES} <= packed
    assert {"config/config.example.yaml", "channels/store/migrations/env.py"} <= packed


@pytest.mark.timeout(240)
async def test_installed_elsewhere_the_demo_works_is_small_and_ends_in_order(tmp_path: Path) -> None:
    command = installed(tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    environment = {"HOME": str(home), "PATH": os.defpath, "LANG": "C.UTF-8", "CHANNEL_BRIDGE_DEMO_PACE": "0.01"}
    began = time.monotonic()
    demo = await asyncio.create_subprocess_exec(
        command,
        "demo",
        "--port",
        "0",
        cwd=home,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert demo.stdout is not None
        assert demo.stderr is not None
        printed = ""
        async with asyncio.timeout(_FIRST_WORD_SECONDS * _CROWDED):
            while (found := re.search(r"http://\S+", printed)) is None:
                line = await demo.stdout.readline()
                assert line, (await demo.stderr.read()).decode()
                printed += line.decode()
        url = found[0]
        async with visiting(url) as visitor:
            await visitor.say("weather in Paris and Tokyo")
            await visitor.until(lambda: visitor.newest)
            assert time.monotonic() - began < _FIRST_WORD_SECONDS * _CROWDED
            assert processor_seconds(demo.pid) < _FIRST_WORD_SECONDS
            assert "It is warmest in Tokyo" in await visitor.answered()
            assert megabytes(demo.pid) < _MOST_MEGABYTES
            await everything_is_served(url)
        demo.send_signal(signal.SIGINT)
        async with asyncio.timeout(20):
            assert await demo.wait() == 0
        assert (await demo.stderr.read()).decode() == "Starting the demo…\n"
        assert "http" not in (await demo.stdout.read()).decode()
    finally:
        if demo.returncode is None:
            demo.kill()
            await demo.wait()


async def everything_is_served(url: str) -> None:
    """Every file that the page names, and the operator's pages."""
    async with httpx.AsyncClient(base_url=url) as client:
        page = (await client.get("/")).text
        names = set(re.findall(r"(?:src|href)=\"(static/[^\"]+)\"", page))
        assert names
        script = (await client.get("/static/app.js")).text
        names |= {f"static/{name}" for name in re.findall(r'from "\./([\w.-]+)"', script)}
        for name in sorted(names):
            assert (await client.get(f"/{name}")).status_code == 200, name
        for path in ("/console", "/metrics", "/readyz", "/healthz"):
            assert (await client.get(path)).status_code == 200, path
