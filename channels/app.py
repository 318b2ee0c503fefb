"""Wiring: the one place that knows the settings, the core and the adapters, and starts and stops them in order."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import structlog
from pydantic import JsonValue, SecretStr
from starlette.types import ASGIApp

from channels.adapter import SLOWEST_LINE, Adapter, ChannelState, Context, FileAway, FileGone, Health
from channels.clock import Clock, SystemClock, wait_until
from channels.console import Console
from channels.gateway import MAX_FILE_BYTES, Gateway, GatewayError
from channels.inbox import Inbox
from channels.manager import ChannelManager, ManagedChannel
from channels.model import File
from channels.observe import Metrics, redact
from channels.pacing import Pacer
from channels.server import AddressInUse, AdminGuard, Server, build_app
from channels.store import Store
from channels.store.records import StoreError
from channels.turn import ChannelParts
from config.channel import ChannelSettings
from config.settings import Settings

if TYPE_CHECKING:
    from adapters.embedded import EmbeddedGateway

log = structlog.get_logger(__name__)

_OPEN_FILE = 30.0 + MAX_FILE_BYTES / SLOWEST_LINE  # seconds for the gateway to hand a file out
_LOOK_EVERY = 5.0  # seconds between two looks at the gateway and the store, for /readyz
_STORE_ANSWERS = 5.0  # seconds after which a store that does not answer counts as away
_DAY = 86_400.0


class _Package(Protocol):
    """The package of a platform under `adapters/`."""

    def build(self, settings: ChannelSettings, context: Context) -> Adapter: ...


@dataclass(frozen=True, slots=True)
class Part:
    """How the gateway or the store is."""

    ok: bool
    reason: str = ""
    details: Mapping[str, JsonValue] = field(default_factory=dict)

    def as_json(self) -> dict[str, JsonValue]:
        return {"ok": self.ok, "reason": self.reason, **self.details}


class Bridge:
    """A whole bridge in one process. `start` returns when it listens; `stop` hands everything over."""

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self.settings = settings
        self._enabled = {name: channel for name, channel in settings.channels.items() if channel.enabled}
        self.clock: Clock = clock or SystemClock()
        self.metrics = Metrics()
        redact.learn(settings.secrets())
        self._gateway_part = Part(False, "starting")
        self._store_part = Part(False, "starting")
        self._tasks: list[asyncio.Task[None]] = []
        self._embedded: EmbeddedGateway | None = None
        self._server: Server | None = None
        self._store: Store | None = None
        self._gateway: Gateway | None = None
        self._manager: ChannelManager | None = None
        self._adapters: dict[str, Adapter] = {}
        self._hooks: dict[str, ASGIApp] = {}
        self._broken: dict[str, Inbox] = {}
        """The channels of which there is no adapter: building it has failed."""
        self._without_agent: dict[str, Health] = {}
        """The channels whose own assistant the gateway does not have."""
        self._health_changed = asyncio.Event()

    # ---------------------------------------------------------------- what others ask

    @property
    def url(self) -> str:
        """Where the bridge's own HTTP server listens. Valid after `start`."""
        assert self._server is not None
        return self._server.url

    @property
    def store(self) -> Store:
        assert self._store is not None
        return self._store

    @property
    def manager(self) -> ChannelManager:
        assert self._manager is not None
        return self._manager

    @property
    def gateway(self) -> Mapping[str, JsonValue]:
        return self._gateway_part.as_json()

    @property
    def channels(self) -> Mapping[str, Health]:
        """The health of every enabled channel; one that another replica owns is as its owner keeps it."""
        health = {**self.manager.health(), **{name: inbox.health for name, inbox in self._broken.items()}}
        return {
            name: self._without_agent.get(name, state) if state.state is ChannelState.RUNNING else state
            for name, state in health.items()
        }

    @property
    def unusable(self) -> Mapping[str, str]:
        """The channels that nobody can use as they are configured, started or not, and why."""
        broken = {name: inbox.health for name, inbox in self._broken.items()}
        return {name: health.reason for name, health in {**self._without_agent, **broken}.items()}

    @property
    def ready(self) -> bool:
        """Whether all of it can be used. A channel that is degraded cannot: it hears or shows nothing, or not all."""
        return (
            self._gateway_part.ok
            and self._store_part.ok
            and all(health.state is ChannelState.RUNNING for health in self.channels.values())
        )

    @property
    def store_state(self) -> Mapping[str, JsonValue]:
        return self._store_part.as_json()

    # ---------------------------------------------------------------- life

    async def prepare(self) -> Mapping[str, Adapter]:
        """Open the store and the gateway and build the adapters, without starting anything.

        A channel of which no adapter can be built is `failed`. Raises `StoreError` and `EmbeddedGatewayError`.
        """
        try:
            self._store = await Store.open(self.settings.store.url.get_secret_value(), self.clock)
        except StoreError as error:
            raise StoreError(f"store.url: {error}") from error
        self._store_part = Part(True)
        self._gateway = await self._open_gateway()
        managed = self._build_channels(self._store, self._gateway)
        self._manager = ChannelManager(
            managed, self._store, self.clock, self.metrics, keep_seconds=self.settings.store.keep_days * _DAY
        )
        return self._adapters

    async def look_at_gateway(self) -> Part:
        """Ask the gateway how it is, and for every channel's agent; what `/readyz` says is fresh afterwards."""
        assert self._gateway is not None
        default = self.settings.gateway.assistant_id
        agents = {name: channel.assistant_id or default for name, channel in self._enabled.items()}
        health = await self._gateway.check(*(set(agents.values()) or {default}))
        ok, reason = health.ok, health.reason
        if health.unknown:
            # What is wrong with a channel's own assistant is wrong with that channel, not with the gateway.
            ok = default not in health.unknown
            reason = "" if ok else f"does not know the assistant “{default}”: see gateway.assistant_id"
        if health.ok or health.unknown:
            own = {name: channel.assistant_id for name, channel in self._enabled.items()}
            missing = {name: agent for name, agent in own.items() if agent in health.unknown}
            self._without_agent = {
                name: self._without_agent.get(name) or self._agentless(name, agent) for name, agent in missing.items()
            }
        self._gateway_part = Part(ok, redact(reason), {"dialect": health.dialect})
        return self._gateway_part

    def _agentless(self, channel: str, assistant: str | None) -> Health:
        reason = f"the gateway does not know the assistant “{assistant}”: see channels.{channel}.assistant_id"
        log.error("channel without an agent", channel=channel, reason=reason)
        return Health(ChannelState.FAILED, reason, self.clock.now())

    async def start(self, *, any_port: bool = False) -> None:
        """Start everything; `any_port`: a taken port is replaced by a free one.

        Raises `channels.server.AddressInUse`, `StoreError` and `EmbeddedGatewayError`. Channels report their own
        troubles on `/readyz`.
        """
        settings = self.settings.server
        await self.prepare()
        guard = AdminGuard(settings.host, _reveal(settings.admin_token), settings.public_url)
        console = Console(
            guard,
            store=lambda: self.store,
            readiness=lambda: _Readiness(self),
            owners=lambda: {name: self.manager.owner_of(name) for name in self._adapters},
            replicas=lambda: self.manager.replicas,
        )
        app = build_app(
            lambda: _Readiness(self),
            self._render_metrics,
            guard,
            hooks=self._hooks,
            console=console.routes(),
            mounts=self._mounts(),
        )
        try:
            self._server = Server(app, settings.host, settings.port)
        except AddressInUse:
            if not any_port:
                raise
            self._server = Server(app, settings.host, 0)
        await self._server.start()
        self._tasks = [
            asyncio.create_task(self._watch(), name="watch"),
            asyncio.create_task(self.manager.run(), name="manager"),
        ]
        for task in self._tasks:
            task.add_done_callback(_log_if_failed)

    async def channels_started(self, patience: float) -> None:
        """Wait until no channel of this replica is starting any more, `patience` seconds at the most."""
        ends = self.clock.now() + patience
        while self.clock.now() < ends:
            if all(health.state is not ChannelState.STARTING for health in self.channels.values()):
                return
            self._health_changed.clear()
            await wait_until(self.clock, ends, self._health_changed)

    async def stop(self) -> None:
        """Stop claiming, let calls in flight end, store, release the leases; runs live on for the next owner."""
        if self._manager is not None:
            self._manager.shut_down()
        for task in self._tasks:
            if task.get_name() != "manager":
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.stop()
        if self._gateway is not None:
            await self._gateway.aclose()
        if self._embedded is not None:
            await self._embedded.stop()
        if self._store is not None:
            await self._store.close()

    async def _open_gateway(self) -> Gateway:
        settings = self.settings.gateway
        url = settings.url
        if url is None:
            from adapters.embedded import EmbeddedGateway, EmbeddedGatewayError

            self._embedded = EmbeddedGateway(Path(settings.data), settings.graph, assistant_id=settings.assistant_id)
            try:
                url = await self._embedded.start()
            except OSError as error:
                raise EmbeddedGatewayError(f"cannot use the folder {settings.data}: {error.strerror}") from None
        return Gateway(
            url,
            api_key=_reveal(settings.api_key),
            headers={name: value.get_secret_value() for name, value in settings.headers.items()},
            dialect=settings.dialect.value,
            file_types=settings.file_types,
            clock=self.clock,
        )

    def _build_channels(self, store: Store, gateway: Gateway) -> dict[str, ManagedChannel]:
        managed: dict[str, ManagedChannel] = {}
        for name, settings in self._enabled.items():
            inbox = Inbox(name, settings.policy, store, self.clock, self.metrics)
            inbox.health_changed = self._health_changed.set
            try:
                adapter = self._build_adapter(name, settings, inbox)
            except Exception as error:
                # A platform's package that is not there, or a setting it chokes on, is that channel's trouble only.
                log.exception("channel cannot be set up", channel=name)
                inbox.report(ChannelState.FAILED, f"cannot be set up: {type(error).__name__}: {error}")
                self._broken[name] = inbox
                continue
            parts = ChannelParts(
                name=name,
                platform=settings.platform,
                adapter=adapter,
                pacer=Pacer(adapter.budgets, self.clock),
                store=store,
                gateway=gateway,
                clock=self.clock,
                metrics=self.metrics,
                policy=settings.policy,
                assistant_id=settings.assistant_id or self.settings.gateway.assistant_id,
                run_config=settings.run.config,
                run_context=settings.run.context,
                run_timeout=settings.run.timeout,
                attachment_bytes=settings.limits.attachment_bytes,
                give_up_after=self.settings.give_up_after,
            )
            managed[name] = ManagedChannel(inbox, parts)
        return managed

    def _build_adapter(self, name: str, settings: ChannelSettings, inbox: Inbox) -> Adapter:
        context = Context(
            channel=name,
            sink=inbox,
            clock=self.clock,
            open_file=self._open_file,
            public_url=self.settings.server.public_url,
            bind_host=self.settings.server.host,
        )
        package = cast(_Package, importlib.import_module(f"adapters.{settings.platform}"))
        adapter = package.build(settings, context)
        if adapter.webhook is not None:
            self._hooks[name] = adapter.webhook
        self._adapters[name] = adapter
        return adapter

    def _mounts(self) -> dict[str, ASGIApp]:
        """What channels serve themselves, by path (the web channel's pages)."""
        return {
            str(getattr(adapter, "path", "/")): app
            for adapter in self._adapters.values()
            if (app := getattr(adapter, "app", None)) is not None
        }

    async def _open_file(self, file: File) -> bytes:
        assert self._gateway is not None
        try:
            async with asyncio.timeout(_OPEN_FILE):
                return await self._gateway.open_file(file)
        except GatewayError as error:
            raise (FileAway if error.is_passing else FileGone)(str(error)) from None
        except TimeoutError:
            raise FileAway(f"the gateway did not hand the file out within {_OPEN_FILE:.0f} s") from None
        except Exception as error:
            log.exception("a file of the agent could not be read", file=file.name)
            raise FileAway(f"the file cannot be read: {type(error).__name__}") from None

    # ---------------------------------------------------------------- watching

    async def _watch(self) -> None:
        """Keep what `/readyz` says about the gateway and the store fresh; the one does not wait for the other."""
        while True:
            await asyncio.gather(self.look_at_gateway(), self._look_at_store())
            await self.clock.sleep(_LOOK_EVERY)

    async def _look_at_store(self) -> None:
        try:
            async with asyncio.timeout(_STORE_ANSWERS):
                await self.store.ping()
        except StoreError as error:
            self._store_part = Part(False, redact(str(error)))
        except TimeoutError:
            self._store_part = Part(False, f"no answer within {_STORE_ANSWERS:g} s")
        else:
            self._store_part = Part(True)

    def _render_metrics(self) -> bytes:
        if self._gateway is not None:
            for kind, count in self._gateway.stats.as_mapping().items():
                self.metrics.gateway_events.labels(kind).set(count)
        return self.metrics.render()


class _Readiness:
    """The bridge as `/readyz` sees it."""

    def __init__(self, bridge: Bridge) -> None:
        self.gateway = bridge.gateway
        self.store = bridge.store_state
        self.channels = bridge.channels
        self.ready = bridge.ready


def _reveal(secret: SecretStr | None) -> str | None:
    return secret.get_secret_value() if secret is not None else None


def _log_if_failed(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.critical("a part of the bridge ended", part=task.get_name(), exc_info=error)
