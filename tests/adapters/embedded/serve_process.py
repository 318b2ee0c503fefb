"""A gateway in a process of its own, to be killed: `python -m … DATA_DIR GRAPH PORT` prints its URL and serves."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from adapters.embedded import EmbeddedGateway


async def main(data_dir: str, graph: str, port: str) -> None:
    gateway = EmbeddedGateway(Path(data_dir), graph, port=int(port))
    sys.stdout.write(await gateway.start() + "\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
