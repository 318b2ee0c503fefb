"""The captured streams of real servers, read as the bridge reads them: repaired by the wire, parsed by the SDK."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from langgraph_sdk.sse import BytesLineDecoder, SSEDecoder

from channels.gateway.wire import EventRepair
from channels.transcript.stream_events import StreamEvent

CAPTURES = Path(__file__).parents[1] / "captures"
STREAMS = sorted(str(path.relative_to(CAPTURES)) for path in CAPTURES.glob("*/*.sse"))


def body_of(name: str) -> bytes:
    """The bytes of a captured body, as they came."""
    raw = (CAPTURES / name).read_bytes()
    return min((raw.partition(blank) for blank in (b"\r\n\r\n", b"\n\n")), key=lambda parts: len(parts[0]))[2]


def events_in(body: bytes, size: int = 4096) -> Iterator[StreamEvent]:
    """The events of a body that arrives in pieces of `size` bytes."""
    repair, lines, decoder = EventRepair(), BytesLineDecoder(), SSEDecoder()
    for start in range(0, len(body), size):
        for line in lines.decode(repair.feed(body[start : start + size])):
            part = decoder.decode(bytes(line).rstrip(b"\n"))
            if part is not None:
                yield StreamEvent.of(part.event, part.data, part.id)
