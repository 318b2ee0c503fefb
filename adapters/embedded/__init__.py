"""The embedded gateway: a LangGraph-compatible server inside the bridge's own process, for a start without services.

Importing this package costs nothing: langgraph and the web server are imported when a gateway starts.
"""

from adapters.embedded.errors import EmbeddedGatewayError, GraphLoadError, StoreError
from adapters.embedded.gateway import EmbeddedGateway

__all__ = ["EmbeddedGateway", "EmbeddedGatewayError", "GraphLoadError", "StoreError"]
