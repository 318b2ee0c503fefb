"""`channel-bridge check`: the gateway, the store and every channel's tokens, tried live, while nothing is changed.

A check may run beside the bridge and as another user than it will: it makes no file where the bridge keeps its own,
migrates nothing, and lets an embedded gateway work in a folder of its own.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from pydantic import SecretStr

from adapters.embedded import EmbeddedGateway, EmbeddedGatewayError
from channels.adapter import Adapter, Check
from channels.app import Bridge
from channels.store.probe import probe, trouble_with_folder
from channels.store.records import StoreError
from config.settings import GatewaySettings, Settings, StoreSettings

_PATIENCE = 30.0  # seconds for one channel
_NOWHERE = "http://127.0.0.1:9"  # stands for a gateway that could not be started, and is not asked anything

Findings = list[tuple[str, Check]]
"""What was found, each with where it belongs: `gateway`, `store` or a channel's name."""


async def check_live(settings: Settings) -> Findings:
    """Try everything. Never raises for what it finds."""
    findings: Findings = [("store", await _look_at_store(settings.store))]
    async with _started(settings.gateway, findings) as url:
        in_memory = StoreSettings(url=SecretStr("sqlite://"))
        gateway = settings.gateway.model_copy(update={"url": url or _NOWHERE})
        bridge = Bridge(settings.model_copy(update={"store": in_memory, "gateway": gateway}))
        try:
            adapters = await bridge.prepare()
            if url is not None:
                name = settings.gateway.url or "the embedded gateway"
                part = await bridge.look_at_gateway()
                findings.append(("gateway", Check(name, ok=part.ok, detail=part.reason)))
            findings += [(name, Check("set-up", ok=False, detail=reason)) for name, reason in bridge.unusable.items()]
            for name, adapter in adapters.items():
                findings += [(name, finding) for finding in await _try(adapter)]
        finally:
            await bridge.stop()
    return findings


async def _look_at_store(settings: StoreSettings) -> Check:
    try:
        return Check("store.url", ok=True, detail=await probe(settings.url.get_secret_value()))
    except StoreError as error:
        return Check("store.url", ok=False, detail=str(error))


@asynccontextmanager
async def _started(settings: GatewaySettings, findings: Findings) -> AsyncIterator[str | None]:
    """The gateway's url; an embedded one is started for as long as this lasts. None, after saying why: it cannot."""
    if settings.url is not None:
        yield settings.url
        return
    if trouble := trouble_with_folder(Path(settings.data)):
        findings.append(("gateway", Check("gateway.data", ok=False, detail=trouble)))
    with tempfile.TemporaryDirectory(prefix="channel-bridge-check-") as folder:
        embedded = EmbeddedGateway(Path(folder), settings.graph, assistant_id=settings.assistant_id)
        url = None
        try:
            url = await embedded.start()
        except (EmbeddedGatewayError, OSError) as error:
            findings.append(("gateway", Check("the embedded gateway", ok=False, detail=str(error))))
        try:
            yield url
        finally:
            await embedded.stop()


async def _try(adapter: Adapter) -> list[Check]:
    try:
        async with asyncio.timeout(_PATIENCE):
            return list(await adapter.check())
    except TimeoutError:
        return [Check("answers", ok=False, detail=f"nothing came back within {_PATIENCE:g} s")]
    except Exception as error:  # noqa: BLE001 - whatever it is, the other channels are to be tried too
        return [Check("check", ok=False, detail=f"ended unexpectedly: {type(error).__name__}: {error}")]
