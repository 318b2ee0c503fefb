"""How the transcript's time grows with the answer: 400 KB in 100,000 chunks against a tenth of it.

Run it with `python -m tests.benchmarks.bench_transcript`; the test of the same name holds the line.
"""

from __future__ import annotations

import gc
import sys
import time

from pydantic import JsonValue

from channels.model import Phase
from channels.transcript import Transcript
from channels.transcript.stream_events import StreamEvent

CHUNK = "tok "
VIEW_EVERY = 1000
"""Five views a second at 5,000 chunks a second: more than any platform takes."""


def seconds_for(chunks: int, *, cumulative: bool = False) -> float:
    """CPU seconds to fold so many chunks into views."""
    metadata: JsonValue = {"langgraph_node": "model", "langgraph_checkpoint_ns": "model:1"}
    events = [
        StreamEvent.of(
            "messages",
            [{"type": "AIMessageChunk", "id": "m1", "content": CHUNK * (n + 1) if cumulative else CHUNK}, metadata],
        )
        for n in range(chunks)
    ]
    transcript = Transcript()
    gc.collect()
    gc.disable()  # the events kept here, not the transcript, are what the collector would look through
    try:
        began = time.process_time()
        for number, event in enumerate(events):
            transcript.feed(event, 0.0)
            if number % VIEW_EVERY == 0:
                transcript.view(0.0)
        view = transcript.finish(Phase.DONE, 0.0)
        took = time.process_time() - began
    finally:
        gc.enable()
    assert view.text == CHUNK * chunks
    return took


def main() -> None:
    for chunks in (10_000, 100_000):
        took = seconds_for(chunks)
        size = chunks * len(CHUNK) // 1000
        sys.stdout.write(f"{chunks:>7} chunks, {size:>4} KB: {took:.3f} s, {took / chunks * 1e6:.1f} µs each\n")


if __name__ == "__main__":
    main()
