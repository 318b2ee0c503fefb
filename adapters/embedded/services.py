"""What the endpoints share."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adapters.embedded.runs import RunManager
from adapters.embedded.store import Store
from adapters.embedded.stream import StreamBridge
from channels.clock import Clock

if TYPE_CHECKING:
    from adapters.embedded.graphs import Graph

# The uuid5 of a graph's name in this namespace (RFC 4122's, for ISO object ids) is the id of its default assistant on
# LangGraph's server: "agent" is fe096781-5601-53d2-b2f6-0d3403f7e9ca everywhere.
_ASSISTANTS = uuid.UUID("6ba7b821-9dad-11d1-80b4-00c04fd430c8")


@dataclass(frozen=True, slots=True)
class Services:
    """One graph, served as the assistant named `assistant`. `heartbeat` in seconds, `max_body` in bytes."""

    graph: Graph
    assistant: str
    store: Store
    runs: RunManager
    bridge: StreamBridge
    clock: Clock
    heartbeat: float
    max_body: int

    @property
    def assistant_id(self) -> str:
        return str(uuid.uuid5(_ASSISTANTS, self.assistant))
