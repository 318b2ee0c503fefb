"""Why the embedded gateway cannot start."""

from __future__ import annotations


class EmbeddedGatewayError(Exception):
    """The gateway cannot start. The text is a sentence for the person who started it."""


class GraphLoadError(EmbeddedGatewayError):
    """The graph cannot be loaded. The text names it and says what is wrong."""


class StoreError(EmbeddedGatewayError):
    """The data directory cannot be used. The text says why."""
