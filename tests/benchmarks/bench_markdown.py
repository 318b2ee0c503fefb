"""How the Markdown functions' time grows with the text: 100 KB against 10 KB of several kinds of answers.

Run it with `python -m tests.benchmarks.bench_markdown`. What counts is the ratio: about 10 is linear, and `split_at`
looks at one message's worth of text however long the rest is.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from channels.markdown import (
    fence_tables,
    heal,
    json_utf8_bytes,
    neutralise_mentions,
    split,
    split_at,
    stable_prefix,
    utf16_units,
)

SMALL, LARGE = 10_000, 100_000

_PROSE = "The bridge keeps **each message** in step with `the picture`, see [docs](https://example.com/a). " * 4
_KINDS = {
    "prose": _PROSE + "\n\n",
    "one line": _PROSE,
    "chinese": "这是一个**重要**的句子，包含一些`代码`和[链接](https://example.com)。" * 8 + "\n\n",
    "lists": "".join(f"- item {n} with **bold** text\n    - nested `{n}` text\n" for n in range(20)) + "\n",
    "code": "```python\n" + "".join(f"def f{n}(x):\n    return x + {n}\n" for n in range(30)) + "```\n\n",
    "tables": "| a | b |\n|---|---|\n" + "".join(f"| cell {n} | **x** 你好 |\n" for n in range(20)) + "\n",
    "mentions": "Ask @all or `@here` or <!channel>, not a@all.com. " * 4 + "\n\n",
}
_FUNCTIONS: dict[str, Callable[[str], object]] = {
    "heal": heal,
    "stable_prefix": stable_prefix,
    "split_at 4096": lambda text: split_at(text, 4096, utf16_units),
    "split_at 8 KB": lambda text: split_at(text, 8_000, json_utf8_bytes),
    "split 4096": lambda text: split(text, 4096, utf16_units),
    "neutralise": neutralise_mentions,
    "fence_tables": lambda text: fence_tables(text, 5),
}


def seconds_for(function: Callable[[str], object], text: str, repeats: int = 5) -> float:
    """The least CPU time of a few calls."""
    best = float("inf")
    for _ in range(repeats):
        started = time.process_time()
        function(text)
        best = min(best, time.process_time() - started)
    return best


def main() -> None:
    for kind, block in _KINDS.items():
        small, large = ((block * (size // len(block) + 1))[:size] for size in (SMALL, LARGE))
        for name, function in _FUNCTIONS.items():
            few, many = seconds_for(function, small), seconds_for(function, large)
            ratio = many / max(few, 1e-6)
            sys.stdout.write(f"{kind:9} {name:15} {few * 1e3:7.2f} ms {many * 1e3:7.2f} ms  x{ratio:5.1f}\n")


if __name__ == "__main__":
    main()
