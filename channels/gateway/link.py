"""The calls the bridge makes to a gateway, few and typed. Each raises `Trouble` and nothing else."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import asdict, dataclass
from enum import StrEnum
from json import JSONDecodeError
from typing import Any, Literal, cast
from urllib.parse import quote, urlsplit

import httpx
import orjson
from langgraph_sdk.client import LangGraphClient
from langgraph_sdk.schema import RunSelectField, StreamPart
from pydantic import JsonValue

from channels.clock import Clock
from channels.gateway.dialect import STREAM_MODES, TRAITS, Dialect, Traits
from channels.gateway.troubles import CALL_ERRORS, Trouble, TroubleKind, trouble_of
from channels.gateway.wire import GuardedTransport
from channels.inputs import InputFile
from channels.model import RunId, ThreadId, TurnId
from channels.shapes import as_list, as_object, as_text
from channels.strict_json import read_json, shallow, strict_object, strict_text

MAX_FILE_BYTES = 50 * 1024 * 1024
_RUNS_LOOKED_AT = 10
_CONNECT_TIMEOUT = 5.0
_OPTIONAL = ("stream_resumable", "stream_subgraphs", "on_disconnect", "multitask_strategy", "metadata")
"""Options of a run that are left out when a gateway says that it does not take them."""


@dataclass(slots=True)
class Stats:
    """What the gateway side has met since the start; counters only rise."""

    runs_started: int = 0
    lookups: int = 0
    rejoins: int = 0
    idle_deaths: int = 0
    gaps: int = 0
    restarts: int = 0
    replayed_events: int = 0
    malformed_events: int = 0
    unknown_events: int = 0
    state_reads: int = 0
    polled_turns: int = 0
    lost_threads: int = 0
    bytes_received: int = 0

    def as_mapping(self) -> Mapping[str, int]:
        return asdict(self)


class RunStatus(StrEnum):
    ACTIVE = "active"
    SUCCESS = "success"
    ERROR = "error"
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"
    GONE = "gone"


_STATUSES = {
    "success": RunStatus.SUCCESS,
    "completed": RunStatus.SUCCESS,
    "error": RunStatus.ERROR,
    "failed": RunStatus.ERROR,
    "timeout": RunStatus.TIMEOUT,
    "interrupted": RunStatus.INTERRUPTED,
    "cancelled": RunStatus.INTERRUPTED,
}


@dataclass(frozen=True, slots=True)
class RunInfo:
    status: RunStatus
    error: str = ""


@dataclass(frozen=True, slots=True)
class ThreadState:
    """The durable state of a thread: its values, the open interrupts, and the nodes that would run next.

    `written_by` is the run that wrote it, in its execution number `attempt`; empty and 0 where nobody tells.
    """

    values: Mapping[str, JsonValue]
    interrupts: list[JsonValue]
    next: tuple[str, ...]
    written_by: str = ""
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class RunBody:
    """What a run is started with, in the gateway's own words."""

    assistant_id: str
    input: dict[str, JsonValue] | None
    command: dict[str, JsonValue] | None
    config: dict[str, JsonValue]
    context: dict[str, JsonValue]
    metadata: dict[str, JsonValue]
    interrupt_others: bool


class Link:
    """One gateway, through `langgraph-sdk`. `dialect` is AUTO until it has been recognised."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None,
        headers: Mapping[str, str],
        dialect: Dialect,
        clock: Clock,
        call_timeout: float,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self.stats = Stats()
        self.clock = clock
        self._dialect = dialect
        self._api_key = api_key
        self._given_headers = dict(headers)
        self._csrf = secrets.token_urlsafe(24)
        self._refused: set[str] = set()
        self._recognised = False
        self._recognising = asyncio.Lock()
        inner = transport or httpx.AsyncHTTPTransport(
            # The SDK's own client stops at 100 concurrent streams.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=15.0)
        )
        self._http = httpx.AsyncClient(
            base_url=self.url,
            transport=GuardedTransport(inner, self._received),
            timeout=httpx.Timeout(call_timeout, connect=min(_CONNECT_TIMEOUT, call_timeout), pool=None),
            headers={"User-Agent": "channel-bridge", **self._given_headers},
        )
        self._sdk = LangGraphClient(self._http)
        if dialect is not Dialect.AUTO:
            self._adopt(dialect)

    async def aclose(self) -> None:
        await self._http.aclose()

    def _received(self, count: int) -> None:
        self.stats.bytes_received += count

    # ------------------------------------------------------------ dialect

    @property
    def dialect(self) -> Dialect:
        return self._dialect

    @property
    def traits(self) -> Traits:
        return TRAITS[Dialect.LANGGRAPH if self._dialect is Dialect.AUTO else self._dialect]

    async def recognise(self) -> str:
        """Find out the dialect, if it is not known; returns the server's version where it tells one."""
        async with self._recognising:
            version = ""
            info, missing = await self._look("/info")
            if info:
                version = as_text(info.get("version")) or as_text(info.get("langgraph_api_version"))
            elif missing and self._dialect is not Dialect.LANGGRAPH:
                root = urlsplit(self.url)
                health, _ = await self._look(f"{root.scheme}://{root.netloc}/health")
                if "deer-flow" in as_text(health.get("service")):
                    self._adopt(Dialect.DEERFLOW)
            if self._dialect is Dialect.AUTO:
                self._adopt(Dialect.LANGGRAPH)
                self._recognised = True
            return version

    async def _look(self, path: str) -> tuple[Mapping[str, JsonValue], bool]:
        """What an address tells about the server, and whether it tells nothing to us."""
        try:
            response = await self._http.get(path)
            if response.is_server_error or response.status_code == httpx.codes.TOO_MANY_REQUESTS:
                response.raise_for_status()
        except CALL_ERRORS as error:
            raise trouble_of(error) from None
        if not response.is_success:
            return {}, True
        try:
            return as_object(read_json(response.content)), False
        except ValueError:
            return {}, False

    def _adopt(self, dialect: Dialect) -> None:
        self._dialect = dialect
        traits = self.traits
        if self._api_key and traits.key_header.lower() not in self._http.headers:
            self._http.headers[traits.key_header] = self._api_key
        if traits.csrf:
            # The pair only has to match: a service call is no browser that somebody could ride on.
            self._http.headers["X-CSRF-Token"] = self._csrf
            self._http.headers["Cookie"] = f"csrf_token={self._csrf}"

    async def ready(self) -> None:
        """Make sure that the dialect is known before something is said in it."""
        if self._dialect is Dialect.AUTO:
            await self.recognise()

    def learn(self, trouble: Trouble) -> bool:
        """After a refusal: leave out the option it names from now on. False: it names none that can be left out."""
        words = set(re.findall(r"\w+", trouble.detail))
        named = [option for option in _OPTIONAL if option not in self._refused and option in words]
        self._refused.update(named)
        if "stream_resumable" in named and self._recognised:
            self._adopt(Dialect.DEERFLOW)  # it alone refuses that option; its health page was out of reach
        return bool(named)

    # ------------------------------------------------------------ threads

    async def make_thread(self, thread: ThreadId, metadata: Mapping[str, JsonValue]) -> bool:
        """Make sure that a thread exists; whether it did before. DeerFlow does not say (False)."""
        try:
            return await self._create(thread, metadata, "raise") is None
        except Trouble as trouble:
            if trouble.status not in (400, 422, 500):
                raise
            await self._create(thread, metadata, "do_nothing")  # for a server that cannot say no in order
            return True

    async def _create(
        self, thread: ThreadId, metadata: Mapping[str, JsonValue], if_exists: Literal["raise", "do_nothing"]
    ) -> JsonValue:
        """None: there is one."""
        return await self._call(
            lambda: self._sdk.threads.create(thread_id=thread, if_exists=if_exists, metadata=strict_object(metadata)),
            fine=(409,),
        )

    async def thread_exists(self, thread: ThreadId) -> bool:
        try:
            await self._call(lambda: self._sdk.threads.get(thread))
        except Trouble as trouble:
            if trouble.kind is TroubleKind.MISSING:
                return False
            raise
        return True

    async def state(self, thread: ThreadId) -> ThreadState:
        """Not by the SDK, which reads only strict JSON: what a graph keeps in its state is not always that."""
        self.stats.state_reads += 1
        await self.ready()
        try:
            response = await self._http.get(f"/threads/{quote(thread)}/state")
            response.raise_for_status()
            state = as_object(await asyncio.to_thread(read_json, response.content))
        except CALL_ERRORS as error:
            raise trouble_of(error) from None
        except JSONDecodeError:
            raise Trouble(TroubleKind.CUT, "the state is no JSON") from None
        except ValueError as error:
            raise Trouble(TroubleKind.REFUSED, f"the state is JSON that nobody can read: {error}") from None
        interrupts = list(as_list(state.get("interrupts")))
        if not interrupts:
            interrupts = [
                interrupt
                for task in as_list(state.get("tasks"))
                for interrupt in as_list(as_object(task).get("interrupts"))
            ]
        following = tuple(as_text(node) for node in as_list(state.get("next")))
        values = state.get("values")
        metadata = as_object(state.get("metadata"))
        attempt = metadata.get("run_attempt")
        return ThreadState(
            values if isinstance(values, dict) else {},
            interrupts,
            following,
            as_text(metadata.get("run_id")),
            attempt if isinstance(attempt, int) else 0,
        )

    # ------------------------------------------------------------ runs

    def start(self, thread: ThreadId, body: RunBody) -> AsyncGenerator[StreamPart, None]:
        """Start a run and stream it; iterate inside a wire."""
        options: dict[str, Any] = self._options(body)
        if "on_disconnect" not in self._refused:
            options["on_disconnect"] = "continue"
        return self._stream(lambda: self._sdk.runs.stream(thread, body.assistant_id, **options))

    async def start_unstreamed(self, thread: ThreadId, body: RunBody) -> RunId:
        """Start a run without a stream, for gateways where none can be had."""
        options: dict[str, Any] = self._options(body)
        run = as_object(await self._call(lambda: self._sdk.runs.create(thread, body.assistant_id, **options)))
        run_id = as_text(run.get("run_id"))
        if not run_id:
            raise Trouble(TroubleKind.REFUSED, "the gateway started a run without telling its id")
        return RunId(run_id)

    def join(self, thread: ThreadId, run: RunId, cursor: str | None) -> AsyncGenerator[StreamPart, None]:
        """Follow a run after the event `cursor`; None: from the start of what is kept."""
        # The gateway chose the id; one that no header can carry is as good as none.
        last = cursor if cursor and cursor.isascii() and cursor.isprintable() else self.traits.replay_all
        return self._stream(lambda: self._sdk.runs.join_stream(thread, run, last_event_id=last))

    async def run(self, thread: ThreadId, run: RunId) -> RunInfo:
        """How the run is doing; GONE when the gateway does not know it (any more)."""
        try:
            found = as_object(await self._call(lambda: self._sdk.runs.get(thread, run)))
        except Trouble as trouble:
            if trouble.kind is TroubleKind.MISSING:
                return RunInfo(RunStatus.GONE)
            raise
        status = _STATUSES.get(as_text(found.get("status")), RunStatus.ACTIVE)
        return RunInfo(status, as_text(found.get("error_message")) or as_text(found.get("error")))

    async def find_run(self, thread: ThreadId, turn: TurnId) -> RunId | None:
        """The run that was started for a turn, if there is one among the newest."""
        self.stats.lookups += 1
        runs = await self._newest_runs(thread, ["run_id", "metadata"])
        if "metadata" in self._refused or not any(run.get("metadata") for run in runs):
            runs = await self._newest_runs(thread)
        for run in runs:
            if _mentions(run, turn) and (run_id := as_text(run.get("run_id"))):
                return RunId(run_id)
        return None

    async def _newest_runs(
        self, thread: ThreadId, select: list[RunSelectField] | None = None
    ) -> list[Mapping[str, JsonValue]]:
        """Whole, a run comes with its input: all the files that were sent with the question."""
        try:
            found = await self._call(lambda: self._sdk.runs.list(thread, limit=_RUNS_LOOKED_AT, select=select))
        except Trouble as trouble:
            if trouble.kind is TroubleKind.MISSING:
                return []
            raise
        return [as_object(run) for run in as_list(found)]

    async def cancel(self, thread: ThreadId, run: RunId) -> None:
        """Ask for the run to be interrupted; also fine when it is over or unknown."""
        await self._call(lambda: self._sdk.runs.cancel(thread, run, wait=False, action="interrupt"), fine=(404, 409))

    # ------------------------------------------------------------ assistants, files

    async def knows_assistant(self, assistant_id: str) -> bool:
        """Whether a graph or an assistant has this name."""
        absent = (TroubleKind.MISSING, TroubleKind.REFUSED)
        try:
            if as_list(await self._call(lambda: self._sdk.assistants.search(graph_id=assistant_id, limit=1))):
                return True
        except Trouble as trouble:
            if trouble.kind not in absent:
                raise
            # LangGraph's server says so of a graph that it does not have; another one, of the whole search.
            await self._call(lambda: self._sdk.assistants.search(limit=1))
        try:
            await self._call(lambda: self._sdk.assistants.get(assistant_id))
        except Trouble as trouble:
            if trouble.kind in absent:
                return False
            raise
        return True

    async def upload(self, thread: ThreadId, files: tuple[InputFile, ...]) -> list[JsonValue]:
        """Put files into a thread's upload folder; returns what the gateway says about each."""
        parts = [("files", (strict_text(file.name), file.data, file.mime)) for file in files]
        try:
            response = await self._http.post(f"/threads/{quote(thread)}/uploads", files=parts)
            response.raise_for_status()
            said = read_json(response.content)
        except CALL_ERRORS as error:
            raise trouble_of(error) from None
        except ValueError:
            raise Trouble(TroubleKind.REFUSED, "the answer to an upload is no JSON") from None
        return list(as_list(as_object(said).get("files")))

    async def artifact(self, thread: ThreadId, path: str) -> bytes:
        """A file the agent made, whole."""
        if ".." in path.split("/"):
            raise Trouble(TroubleKind.REFUSED, "the path leaves the thread's files")  # the agent wrote it
        data = bytearray()
        address = f"/threads/{quote(thread)}/artifacts/{quote(path.lstrip('/'))}"
        try:
            async with self._http.stream("GET", address, params={"download": "true"}) as response:
                if not response.is_success:
                    await response.aread()
                    response.raise_for_status()
                async for chunk in response.aiter_bytes():
                    data += chunk
                    if len(data) > MAX_FILE_BYTES:
                        raise Trouble(TroubleKind.REFUSED, f"larger than {MAX_FILE_BYTES} bytes")
        except CALL_ERRORS as error:
            raise trouble_of(error) from None
        return bytes(data)

    # ------------------------------------------------------------ inside

    def _options(self, body: RunBody) -> dict[str, object]:
        options: dict[str, object] = {"input": body.input, "command": body.command, "stream_mode": list(STREAM_MODES)}
        if self.traits.resumable_flag and "stream_resumable" not in self._refused:
            options["stream_resumable"] = True
        if "stream_subgraphs" not in self._refused:
            options["stream_subgraphs"] = True
        if body.config:
            options["config"] = body.config
        if body.context:
            options["context"] = body.context
        if "metadata" not in self._refused:
            options["metadata"] = body.metadata
        if "multitask_strategy" not in self._refused:
            options["multitask_strategy"] = "interrupt" if body.interrupt_others else "reject"
        return options

    async def _stream(self, begin: Callable[[], AsyncIterator[StreamPart]]) -> AsyncGenerator[StreamPart, None]:
        await self.ready()
        try:
            async with aclosing(cast("AsyncGenerator[StreamPart, None]", begin())) as parts:
                async for part in parts:
                    yield part
        except CALL_ERRORS as error:
            raise trouble_of(error) from None

    async def _call(self, call: Callable[[], Awaitable[object]], *, fine: tuple[int, ...] = ()) -> JsonValue:
        """Make one call; `fine` are refusals that mean there was nothing to do."""
        await self.ready()
        try:
            found = await call()
        except CALL_ERRORS as error:
            trouble = trouble_of(error)
            if trouble.status in fine:
                return None
            raise trouble from None
        return shallow(cast("JsonValue", found))


def _mentions(run: Mapping[str, JsonValue], turn: TurnId) -> bool:
    """Whether a run carries the turn's id anywhere: in its metadata, its config's, or its input's message id."""
    return turn.encode() in orjson.dumps(dict(run))
