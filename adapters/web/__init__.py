"""The web channel: a chat page of the bridge's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from channels.adapter import Context
from config.web import WebChannel

if TYPE_CHECKING:
    from adapters.web.adapter import WebAdapter


def build(settings: WebChannel, context: Context) -> WebAdapter:
    """The adapter of one web channel; its pages are for the bridge's HTTP server to mount: `app` at `path`."""
    from adapters.web.adapter import WebAdapter

    return WebAdapter(settings, context)
