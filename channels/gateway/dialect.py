"""Where LangGraph-compatible gateways differ, as data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

STREAM_MODES = ("messages-tuple", "updates", "custom")
"""What a run is asked to stream: never `values`, which resends the whole state with every step."""


class Dialect(StrEnum):
    AUTO = "auto"
    LANGGRAPH = "langgraph"  # LangGraph Server and Platform, Aegra, the embedded gateway
    DEERFLOW = "deerflow"


@dataclass(frozen=True, slots=True)
class Traits:
    """What one dialect wants.

    `resumable_flag`: replay must be asked for when a run starts. `replay_all`: the last event id that brings a stream
    from its start (None: asking without one does). `config_metadata`: the run's own metadata is not given back by every
    server of the dialect, the config's is. `key_header`: where an API key goes. `files_over_http`: files travel by
    uploads and artifacts, not inside messages. `csrf`: writes need a matching cookie and header.
    """

    resumable_flag: bool
    replay_all: str | None
    config_metadata: bool
    key_header: str
    files_over_http: bool
    csrf: bool


TRAITS = {
    Dialect.LANGGRAPH: Traits(
        resumable_flag=True,
        replay_all="-1",
        config_metadata=True,
        key_header="x-api-key",
        files_over_http=False,
        csrf=False,
    ),
    Dialect.DEERFLOW: Traits(
        resumable_flag=False,
        replay_all=None,
        config_metadata=False,
        key_header="X-DeerFlow-Internal-Token",
        files_over_http=True,
        csrf=True,
    ),
}
