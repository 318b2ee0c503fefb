"""The one object through which the bridge reaches its gateway."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import httpx
import structlog
from pydantic import JsonValue

from channels.clock import Clock
from channels.gateway.dialect import Dialect
from channels.gateway.enclosures import remark_on
from channels.gateway.execution import Execution
from channels.gateway.link import MAX_FILE_BYTES, Link, Stats
from channels.gateway.patience import Patience
from channels.gateway.runs import RunEnd, RunRequest
from channels.gateway.troubles import Trouble, TroubleKind
from channels.inputs import FILE_TYPES, InputFile
from channels.model import File, RunId, ThreadId, TurnId
from channels.shapes import as_list, as_object, as_text
from channels.transcript import Transcript
from channels.transcript.file_blocks import file_base64

log = structlog.get_logger(__name__)

_CHECK_TIMEOUT = 10.0
_CANCEL_TRIES = 3


class GatewayError(Exception):
    """The gateway could not do it. The text is for operators and carries no secrets.

    `is_passing`: asking again later may help.
    """

    def __init__(self, reason: str, *, is_passing: bool = False) -> None:
        super().__init__(reason)
        self.is_passing = is_passing


@dataclass(frozen=True, slots=True)
class GatewayHealth:
    """Whether the gateway can be used, and if not, why, in a sentence that helps."""

    ok: bool
    reason: str = ""
    dialect: str = ""
    version: str = ""
    unknown: tuple[str, ...] = ()
    """The assistants that it does not have. Known only if it answers."""


class Gateway:
    """One gateway. `execute` may run for many turns at once; nothing here is shared between them but connections.

    `api_key` is sent to this gateway only and never read from the environment. `file_types` are the MIME types of files
    that its models take (`audio/*`: all of a kind). `transport` is for tests.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None,
        headers: Mapping[str, str],
        dialect: str,
        clock: Clock,
        patience: Patience | None = None,
        call_timeout: float = 30.0,
        file_types: Sequence[str] = FILE_TYPES,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._clock = clock
        self._patience = patience or Patience()
        self._file_types = tuple(file_types)
        self._link = Link(
            url,
            api_key=api_key,
            headers=headers,
            dialect=Dialect(dialect),
            clock=clock,
            call_timeout=call_timeout,
            transport=transport,
        )
        self._running: dict[TurnId, tuple[Execution, asyncio.Event]] = {}
        self._speaking: dict[str, dict[str, bool | None]] = {}
        self._unprepared: set[ThreadId] = set()

    @property
    def stats(self) -> Stats:
        """Counters since the start."""
        return self._link.stats

    @property
    def dialect(self) -> Dialect:
        """The dialect spoken; AUTO until the gateway has answered for the first time."""
        return self._link.dialect

    async def aclose(self) -> None:
        """Close all connections; runs live on."""
        await self._link.aclose()

    async def check(self, *assistants: str) -> GatewayHealth:
        """Whether the gateway answers, takes the key and knows these assistants. At most 10 s; never raises."""
        try:
            async with asyncio.timeout(_CHECK_TIMEOUT):
                version = await self._link.recognise()
                unknown = tuple([name for name in assistants if not await self._link.knows_assistant(name)])
        except TimeoutError:
            return self._unwell(f"no answer within {_CHECK_TIMEOUT:g} s")
        except Trouble as trouble:
            return self._unwell(_plain_reason(trouble))
        if unknown:
            named = ", ".join(f"“{name}”" for name in unknown)
            reason = f"does not know the assistant {named}"
            return GatewayHealth(False, reason, self._link.dialect.value, version, unknown)
        return GatewayHealth(True, "", self._link.dialect.value, version)

    def _unwell(self, reason: str) -> GatewayHealth:
        return GatewayHealth(False, reason, self._link.dialect.value)

    async def remark_on(self, files: Sequence[InputFile]) -> str:
        """What to tell people of files that the agent gets in part, or only by name. Never raises."""
        with suppress(Trouble):
            await self._link.ready()
        if self._link.traits.files_over_http:
            return ""
        return await asyncio.to_thread(remark_on, files, self._file_types)

    async def prepare_thread(self, thread: ThreadId, metadata: Mapping[str, JsonValue]) -> bool:
        """Make the thread of a new conversation; whether it was there before, as far as the gateway says.

        Never raises: a failure is made good when its first run starts.
        """
        try:
            was_there = await self._link.make_thread(thread, metadata)
        except Trouble as trouble:
            log.info("thread not made yet", thread=thread, cause=str(trouble))
            self._unprepared.add(thread)
            return False
        self._unprepared.discard(thread)
        return was_there

    async def execute(
        self,
        request: RunRequest,
        transcript: Transcript,
        *,
        run: RunId | None,
        maybe_requested: bool,
        started: Callable[[RunId], Awaitable[None]],
        changed: Callable[[], None],
    ) -> RunEnd:
        """Start the run, or follow `run`, or first look for one that `maybe_requested` may have left behind.

        `started` is awaited as soon as the run id is known, before the first text. `changed` is called after every
        change of the transcript. Returns when the run has ended, one way or another, or its time is over. Raises
        `CancelledError` (the run lives on) and whatever `started` raises.
        """
        stop = asyncio.Event()
        execution = Execution(
            self._link,
            request,
            transcript,
            run=run,
            maybe_requested=maybe_requested,
            started=started,
            changed=changed,
            stop=stop,
            patience=self._patience,
            file_types=self._file_types,
            speaking=self._speaking.setdefault(request.assistant_id, {}),
            thread_missing=request.thread in self._unprepared,
        )
        self._running[request.turn] = (execution, stop)
        try:
            return await execution.run()
        finally:
            del self._running[request.turn]
            self._unprepared.discard(request.thread)

    async def cancel(self, thread: ThreadId, run: RunId) -> bool:
        """Interrupt a run; the `execute` that follows it returns soon after, stopped, with the text so far.

        True when the gateway took it or the run was over already. False when it could not be reached: then the
        `execute` goes on trying for a while and ends by itself.
        """
        for execution, stop in self._running.values():
            if execution.run_id == run:
                stop.set()
        for attempt in range(_CANCEL_TRIES):
            try:
                await self._link.cancel(thread, run)
            except Trouble as trouble:
                log.warning("run not cancelled", run=run, cause=str(trouble))
                if not trouble.kind.is_passing:
                    return False
                await self._clock.sleep(self._patience.first_retry * 2**attempt)
            else:
                return True
        return False

    async def stop(self, turn: TurnId) -> bool:
        """End a turn whose run may not be known yet: what has not been started is not, what has been is interrupted.

        True when nothing is left to be confirmed by the gateway. False when a run may be on its way or could not be
        cancelled: the `execute` sees to it and returns, stopped.
        """
        running = self._running.get(turn)
        if running is None:
            return True
        execution, stopping = running
        stopping.set()
        if execution.run_id is None:
            return not execution.may_have_begun
        return await self.cancel(execution.thread, execution.run_id)

    async def open_file(self, file: File) -> bytes:
        """A file the agent made, whole, at most 50 MB. Raises `GatewayError`."""
        thread = ThreadId(as_text(file.reference.get("thread")))
        try:
            if path := as_text(file.reference.get("artifact")):
                return await self._link.artifact(thread, path)
            state = await self._link.state(thread)
        except Trouble as trouble:
            is_passing = trouble.kind not in (TroubleKind.MISSING, TroubleKind.REFUSED)
            raise GatewayError(f"cannot read the file: {trouble}", is_passing=is_passing) from None
        for message in as_list(state.values.get("messages")):
            if as_object(message).get("id") == file.reference.get("message"):
                return await asyncio.to_thread(_block_bytes, as_object(message), file.reference.get("block"))
        raise GatewayError("the message with the file is not there any more")


def _block_bytes(message: Mapping[str, JsonValue], position: JsonValue) -> bytes:
    blocks = as_list(message.get("content"))
    if isinstance(position, int) and 0 <= position < len(blocks):
        encoded = file_base64(as_object(blocks[position]))
        if len(encoded) > MAX_FILE_BYTES * 4 // 3 + 4:
            raise GatewayError(f"the file is larger than {MAX_FILE_BYTES} bytes")
        try:
            data = base64.b64decode(encoded, validate=True)
        except ValueError:
            data = b""
        if data:
            return data
    raise GatewayError("the message does not hold the file")


def _plain_reason(trouble: Trouble) -> str:
    match trouble.kind:
        case TroubleKind.UNREACHED:
            return "cannot be reached: is the URL right, and is it running?"
        case TroubleKind.DENIED:
            return f"unauthorised: the key or the headers are not accepted ({trouble.detail})"
        case _:
            return f"does not answer as a LangGraph gateway: {trouble.detail}"
