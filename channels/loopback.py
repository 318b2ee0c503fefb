"""Which addresses only this machine can reach, and how it reaches a server of its own."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address or name."""
    host = host.strip("[]")
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def exposed_at(host: str, public_url: str | None) -> str | None:
    """Where others reach a server that listens on `host`; None: only this machine can.

    What a proxy passes on from `public_url` cannot be told from what this machine asks.
    """
    return public_url if is_loopback(host) else host


def local_url(host: str, port: int) -> str:
    """Where this machine reaches a server that listens on this address and port."""
    host = "127.0.0.1" if host in ("0.0.0.0", "::") else host
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
