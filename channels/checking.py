"""`channel-bridge check`: the gateway, the store and every channel's tokens, tried live."""

from __future__ import annotations

import asyncio

from channels.adapter import Check
from channels.app import Bridge
from channels.store.records import StoreError
from config.settings import Settings

_PATIENCE = 30.0  # seconds for one channel


async def check_live(settings: Settings) -> list[tuple[str, Check]]:
    """Every finding with where it belongs: `gateway`, `store` or a channel's name. Never raises for what it finds."""
    bridge = Bridge(settings)
    findings: list[tuple[str, Check]] = []
    try:
        try:
            adapters = await bridge.prepare()
        except StoreError as error:
            return [("store", Check("can be used", ok=False, detail=str(error)))]
        findings.append(("store", Check("can be used", ok=True)))
        health = await bridge.look_at_gateway()
        findings.append(("gateway", Check("answers and knows the assistant", ok=health.ok, detail=health.reason)))
        for name, adapter in adapters.items():
            try:
                found = await asyncio.wait_for(adapter.check(), _PATIENCE)
            except TimeoutError:
                found = [Check("answers", ok=False, detail=f"nothing came back within {_PATIENCE:g} s")]
            findings += [(name, finding) for finding in found]
    finally:
        await bridge.stop()
    return findings
