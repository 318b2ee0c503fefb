"""The gateway: the LangGraph-compatible server that runs the agents, as the rest of the bridge sees it."""

from channels.gateway.client import Gateway, GatewayError, GatewayHealth
from channels.gateway.link import MAX_FILE_BYTES
from channels.gateway.patience import Patience
from channels.gateway.runs import RunEnd, RunRequest, WhenBusy
from channels.inputs import Ask, InputFile, Resume

__all__ = [
    "MAX_FILE_BYTES",
    "Ask",
    "Gateway",
    "GatewayError",
    "GatewayHealth",
    "InputFile",
    "Patience",
    "Resume",
    "RunEnd",
    "RunRequest",
    "WhenBusy",
]
