"""Custom events of a graph: what a tool or a sub-agent tells the outside while it works."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from langchain_core.callbacks import adispatch_custom_event, dispatch_custom_event
from langgraph.config import get_stream_writer

logger = logging.getLogger(__name__)


def emit(event: Mapping[str, object]) -> None:
    """Send a custom event from a plain (not async) node or tool of a running graph.

    It goes to the `custom` stream first and then, best effort, to callback handlers (`on_custom_event`, and with it
    `astream_events`), each once and with the same content. The handlers get `event["type"]` as the event's name.

    Raises:
        ValueError: `type` is missing, empty or no text.
        RuntimeError: called outside of a running graph.
    """
    name, payload = _checked(event)
    get_stream_writer()(payload)
    try:
        dispatch_custom_event(name, payload)
    except Exception:
        logger.debug("no callback took the custom event %r", name, exc_info=True)


async def aemit(event: Mapping[str, object]) -> None:
    """`emit` for async nodes and tools."""
    name, payload = _checked(event)
    get_stream_writer()(payload)
    try:
        await adispatch_custom_event(name, payload)
    except Exception:
        logger.debug("no callback took the custom event %r", name, exc_info=True)


def _checked(event: Mapping[str, object]) -> tuple[str, dict[str, object]]:
    name = event.get("type")
    if not isinstance(name, str) or not name.strip():
        raise ValueError("a custom event needs a non-empty 'type'")
    return name, dict(event)
