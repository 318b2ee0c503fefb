"""Stand-ins of LangGraph's server, Aegra and DeerFlow: each speaks the wire as captured, and runs a scripted agent.

A run goes on in the background whether anybody listens or not, as on the real servers. Its script is a list of steps;
what the model says is streamed piece by piece and then written into the thread's state as a whole.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial

from tests.emulators.raw_http import Answer, RawServer, Request

Json = dict[str, object]


class Kind(StrEnum):
    LANGGRAPH = "langgraph"
    AEGRA = "aegra"
    DEERFLOW = "deerflow"


@dataclass(frozen=True, slots=True)
class Say:
    """The model says something: streamed in pieces, then whole in the state. Before piece `hold_at` it waits."""

    pieces: tuple[str, ...]
    calls: tuple[str, ...] = ()
    hold_at: int | None = None

    @property
    def text(self) -> str:
        return "".join(self.pieces)


@dataclass(frozen=True, slots=True)
class ToolAnswers:
    name: str
    call: str
    text: str = "done"


@dataclass(frozen=True, slots=True)
class Hold:
    """The run waits until the test lets it go on, or somebody joins its stream."""


@dataclass(frozen=True, slots=True)
class Fail:
    name: str = "RuntimeError"
    message: str = "the model broke: token=hunter2"


@dataclass(frozen=True, slots=True)
class Interrupts:
    values: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Event:
    """Anything else on the wire, as it is."""

    name: str
    data: object


Step = Say | ToolAnswers | Hold | Fail | Interrupts | Event


@dataclass(slots=True)
class Manner:
    """How the server behaves, beyond its kind."""

    cumulative: bool = False
    bare_messages: bool = False
    retain: int | None = None
    gap_latest_null: bool = False
    ignores_cursor: bool = False
    always_gap: bool = False
    joins_go_on: bool = True
    forgets_after_end: bool = False
    sends_end: bool | None = None
    heartbeat: float = 0.2
    busy_times: int = 0
    stream_status: int = 0
    pause: float = 0.0


@dataclass(slots=True)
class EmulatedRun:
    id: str
    thread: str
    body: Json
    resumable: bool
    status: str = "running"
    error: str = ""
    log: list[tuple[str, str, object]] = field(default_factory=list)
    dropped: int = 0
    forgotten: bool = False
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    work: asyncio.Task[None] | None = None

    @property
    def is_over(self) -> bool:
        return self.status not in ("pending", "running")

    def has_more(self, position: int) -> bool:
        return position < len(self.log) or self.is_over


class GatewayEmulator:
    """One server. `script` is what every run does; `manner` may be changed between and during runs."""

    def __init__(self, kind: Kind, script: Sequence[Step], manner: Manner | None = None) -> None:
        self.kind = kind
        self.script = list(script)
        self.manner = manner or Manner()
        self.threads: dict[str, list[Json]] = {}
        self.interrupts: dict[str, list[Json]] = {}
        self.runs: dict[str, EmulatedRun] = {}
        self.requests: list[Request] = []
        self.bodies: list[Json] = []
        self._numbers = itertools.count(1_796_005_000_000)
        self._server = RawServer(self._handle)
        self.url = ""

    async def start(self) -> str:
        root = await self._server.start()
        self.url = f"{root}/api" if self.kind is Kind.DEERFLOW else root
        return self.url

    async def stop(self) -> None:
        for run in self.runs.values():
            if run.work is not None:
                run.work.cancel()
        await asyncio.gather(*(r.work for r in self.runs.values() if r.work), return_exceptions=True)
        await self._server.stop()

    @property
    def run(self) -> EmulatedRun:
        """The newest run."""
        return list(self.runs.values())[-1]

    def asked(self, method: str, pattern: str) -> list[Request]:
        """The requests received so far whose path matches."""
        return [r for r in self.requests if r.method == method and re.search(pattern, r.path)]

    # ------------------------------------------------------------ running

    def begin(self, thread: str, body: Json) -> EmulatedRun:
        run = EmulatedRun(str(uuid.uuid4()), thread, body, bool(body.get("stream_resumable")))
        self.runs[run.id] = run
        run.work = asyncio.create_task(self._work(run))
        return run

    async def _work(self, run: EmulatedRun) -> None:
        first: Json = {"run_id": run.id}
        first |= {"thread_id": run.thread} if self.kind is Kind.DEERFLOW else {"attempt": 1}
        await self._emit(run, "metadata", first)
        self._take_input(run)
        for step in self.script:
            match step:
                case Say():
                    await self._say(run, step)
                case ToolAnswers(name, call, text):
                    message: Json = {
                        "type": "tool",
                        "name": name,
                        "content": text,
                        "tool_call_id": call,
                        "status": "success",
                    }
                    await self._write(run, "tools", {**message, "id": str(uuid.uuid4())}, stream=True)
                case Hold():
                    await run.go_on.wait()
                case Event(name, data):
                    if name == "metadata":
                        self._undo(run)
                    await self._emit(run, name, data)
                case Interrupts(values):
                    asked = [{"id": uuid.uuid4().hex, "value": value} for value in values]
                    self.interrupts[run.thread] = asked
                    for one in asked:
                        await self._emit(run, "updates", {"__interrupt__": [one]})
                    await self._finish(run, "interrupted" if self.kind is Kind.AEGRA else "success")
                    return
                case Fail():
                    await self._fail(run, step)
                    return
        await self._finish(run, "success")

    def _take_input(self, run: EmulatedRun) -> None:
        given = run.body.get("input")
        self.interrupts.pop(run.thread, None)
        if isinstance(given, dict):
            for message in given["messages"]:
                kept = {"type": "human", "additional_kwargs": {}, **message}
                if self.kind is Kind.DEERFLOW:
                    hidden = {"hide_from_ui": True}
                    reminder = {"type": "system", "content": "<system-reminder/>", "additional_kwargs": hidden}
                    self.threads[run.thread].append({**reminder, "id": kept["id"]})
                    kept["id"] = f"{kept['id']}__user"
                self.threads[run.thread].append(kept)

    def _undo(self, run: EmulatedRun) -> None:
        """The run is executed anew: what it had written is not in the state."""
        messages = self.threads[run.thread]
        while messages and messages[-1]["type"] != "human":
            messages.pop()

    async def _say(self, run: EmulatedRun, say: Say) -> None:
        identity = f"lc_run--{uuid.uuid4()}"
        said = ""
        for position, piece in enumerate(say.pieces):
            if position == say.hold_at:
                await run.go_on.wait()
            said += piece
            chunk = _chunk(identity, said if self.manner.cumulative else piece)
            await self._emit(run, "messages", self._payload(chunk, run, "model"))
            if self.manner.pause:
                await asyncio.sleep(self.manner.pause)
        for position, name in enumerate(say.calls):
            call = {"name": name, "args": '{"city": "Paris"}', "id": f"call_{name}", "index": position}
            chunk = {**_chunk(identity, ""), "tool_call_chunks": [call]}
            await self._emit(run, "messages", self._payload(chunk, run, "model"))
        calls = [{"name": name, "args": {"city": "Paris"}, "id": f"call_{name}"} for name in say.calls]
        whole: Json = {"type": "ai", "content": say.text, "id": identity, "tool_calls": calls, "additional_kwargs": {}}
        await self._write(run, "model", whole, stream=False)

    async def _write(self, run: EmulatedRun, node: str, message: Json, *, stream: bool) -> None:
        if stream:
            await self._emit(run, "messages", self._payload(message, run, node))
        self.threads[run.thread].append(message)
        await self._emit(run, "updates", {node: {"messages": [message]}})

    def _payload(self, message: Json, run: EmulatedRun, node: str) -> object:
        if self.manner.bare_messages:
            return message
        place = f"{node}:{run.id}"
        return [message, {"langgraph_node": node, "langgraph_step": 1, "langgraph_checkpoint_ns": place}]

    async def _fail(self, run: EmulatedRun, fail: Fail) -> None:
        run.error = fail.message
        if self.kind is Kind.DEERFLOW:
            message: Json = {
                "type": "ai",
                "id": str(uuid.uuid4()),
                "content": f"LLM request failed: {fail.message}",
                "additional_kwargs": {"deerflow_error_fallback": True, "error_type": fail.name},
            }
            await self._write(run, "model", message, stream=True)
        else:
            shown = f"{fail.name}: execution failed" if self.kind is Kind.AEGRA else fail.message
            await self._emit(run, "error", {"error": fail.name, "message": shown})
        await self._finish(run, "error")

    async def _finish(self, run: EmulatedRun, status: str) -> None:
        async with run.changed:
            run.status = status
            if self.manner.forgets_after_end:
                run.forgotten = True
            run.changed.notify_all()

    async def _emit(self, run: EmulatedRun, name: str, data: object) -> None:
        async with run.changed:
            run.log.append((self._event_id(run), name, data))
            if self.manner.retain is not None:
                run.dropped = max(0, len(run.log) - self.manner.retain)
            run.changed.notify_all()
        await asyncio.sleep(0)

    def _event_id(self, run: EmulatedRun) -> str:
        match self.kind:
            case Kind.LANGGRAPH:
                return f"{next(self._numbers)}-0"
            case Kind.AEGRA:
                return f"{run.id}_event_{len(run.log) + 1}"
            case Kind.DEERFLOW:
                return f"{next(self._numbers)}-{len(run.log)}"

    async def cancel(self, run: EmulatedRun) -> None:
        """Cancel as the server's own endpoint does, or as somebody else does through it."""
        if run.work is not None:
            run.work.cancel()
            await asyncio.gather(run.work, return_exceptions=True)
        await self._finish(run, "interrupted")

    # ------------------------------------------------------------ HTTP

    async def _handle(self, request: Request, answer: Answer) -> None:
        self.requests.append(request)
        path = request.path.removeprefix("/api") if self.kind is Kind.DEERFLOW else request.path
        parts = path.strip("/").split("/")
        match request.method, parts:
            case "GET", ["info"] if self.kind is not Kind.DEERFLOW:
                await answer.whole(200, {"version": "0.16.7"})
            case "GET", ["health"] if self.kind is Kind.DEERFLOW and request.path == "/health":
                await answer.whole(200, {"status": "healthy", "service": "deer-flow-gateway"})
            case "POST", ["assistants", "search"]:
                wanted = request.json().get("graph_id")
                await answer.whole(200, [{"assistant_id": "1"}] if wanted == "agent" else [])
            case "POST", ["threads"]:
                thread = str(request.json()["thread_id"])
                self.threads.setdefault(thread, [])
                await answer.whole(200, {"thread_id": thread})
            case _, ["threads", thread, *rest]:
                if thread not in self.threads:
                    await answer.whole(404, {"detail": "Thread or assistant not found."})
                else:
                    await self._in_thread(request, answer, thread, rest)
            case _:
                await answer.whole(404, {"detail": "Not Found"})

    async def _in_thread(self, request: Request, answer: Answer, thread: str, rest: Sequence[str]) -> None:
        match request.method, rest:
            case "GET", []:
                await answer.whole(200, {"thread_id": thread})
            case "GET", ["state"]:
                await answer.whole(200, self._state(thread))
            case "POST", ["uploads"] if self.kind is Kind.DEERFLOW:
                names = re.findall(rb'filename="([^"]+)"', request.body)
                files = [
                    {"filename": name.decode(), "size": 2, "virtual_path": f"/mnt/user-data/uploads/{name.decode()}"}
                    for name in names
                ]
                await answer.whole(200, {"success": True, "files": files})
            case "GET", ["artifacts", *path] if self.kind is Kind.DEERFLOW:
                data = f"artifact of /{'/'.join(path)}".encode()
                await answer.begin(200, {"content-length": str(len(data))})
                await answer.raw(data)
            case "POST", ["runs", "stream"]:
                await self._start(request, answer, thread)
            case "POST", ["runs"]:
                self.bodies.append(request.json())
                run = self.begin(thread, request.json())
                await answer.whole(200, self._record(run))
            case "GET", ["runs"]:
                mine = [self._record(run) for run in self.runs.values() if run.thread == thread]
                await answer.whole(200, self._selected(request, mine[::-1]))
            case _, ["runs", run_id, *more] if run_id in self.runs:
                await self._in_run(request, answer, self.runs[run_id], more)
            case _:
                await answer.whole(404, {"detail": "Run not found"})

    async def _in_run(self, request: Request, answer: Answer, run: EmulatedRun, rest: Sequence[str]) -> None:
        match request.method, rest:
            case "GET", []:
                await answer.whole(200, self._record(run))
            case "GET", ["stream"]:
                if self.manner.stream_status:
                    await answer.whole(self.manner.stream_status, {"detail": "no streams here"})
                else:
                    await self._stream(answer, run, request.headers.get("last-event-id"), joined=True)
            case "POST", ["cancel"]:
                if run.is_over:
                    await answer.whole(404 if self.kind is Kind.LANGGRAPH else 409, {"detail": "not cancellable"})
                else:
                    await self.cancel(run)
                    await answer.whole(202)
            case _:
                await answer.whole(404, {"detail": "Not Found"})

    async def _start(self, request: Request, answer: Answer, thread: str) -> None:
        body = request.json()
        self.bodies.append(body)
        if self.kind is Kind.DEERFLOW and body.get("stream_resumable"):
            detail = [{"type": "extra_forbidden", "loc": ["body", "stream_resumable"]}]
            await answer.whole(422, {"detail": detail})
        elif self.manner.busy_times:
            self.manner.busy_times -= 1
            await answer.whole(409, {"detail": "Thread is already running a task. Wait for it to finish."})
        elif self.manner.stream_status:
            await answer.whole(self.manner.stream_status, {"detail": "no streams here"})
        else:
            await self._stream(answer, self.begin(thread, body), None, joined=False)

    async def _stream(self, answer: Answer, run: EmulatedRun, cursor: str | None, *, joined: bool) -> None:
        place = f"{'/api' if self.kind is Kind.DEERFLOW else ''}/threads/{run.thread}/runs/{run.id}"
        headers = {"content-type": "text/event-stream; charset=utf-8", "transfer-encoding": "chunked"}
        if not joined or self.kind is not Kind.DEERFLOW:
            headers["content-location"] = place
        if self.kind is not Kind.DEERFLOW:
            headers["location"] = f"{place}/stream"
        await answer.begin(200, headers)
        if joined and self.manner.joins_go_on:
            run.go_on.set()
        position = self._position(run, cursor) if joined else 0
        if position is None or (joined and position < run.dropped and cursor not in (None, "-1")):
            await answer.chunk(self._gap(run, cursor))
            await answer.chunk(b"")
            return
        async for frame in self._frames(run, max(position, run.dropped)):
            await answer.chunk(frame)
        if self.manner.sends_end if self.manner.sends_end is not None else self.kind is not Kind.LANGGRAPH:
            data = {"status": run.status} if self.kind is Kind.AEGRA else None
            await answer.chunk(self._frame("end", data, None))
        await answer.chunk(b"")

    async def _frames(self, run: EmulatedRun, position: int) -> AsyncIterator[bytes]:
        while True:
            while position < len(run.log) and not run.forgotten:
                identity, name, data = run.log[position]
                position += 1
                shown = run.resumable or self.kind is not Kind.LANGGRAPH
                yield self._frame(name, data, identity if shown else None)
            if run.is_over:
                return
            try:
                async with asyncio.timeout(self.manner.heartbeat), run.changed:
                    await run.changed.wait_for(partial(run.has_more, position))
            except TimeoutError:
                yield b": heartbeat" + self._newline * 2

    def _position(self, run: EmulatedRun, cursor: str | None) -> int | None:
        """Where a join begins. None: a gap."""
        if self.manner.always_gap:
            return None
        if self.manner.ignores_cursor:
            return 0
        if cursor is None:
            return len(run.log) if self.kind is Kind.LANGGRAPH else 0
        if self.kind is Kind.LANGGRAPH and not run.resumable:
            return len(run.log)
        for position, (identity, _, _) in enumerate(run.log):
            if identity == cursor:
                return position + 1
        return 0

    def _gap(self, run: EmulatedRun, cursor: str | None) -> bytes:
        kept = run.log[run.dropped :]
        data = {
            "code": "stream_replay_gap",
            "run_id": run.id,
            "requested_event_id": cursor,
            "earliest_available_event_id": kept[0][0] if kept else None,
            "latest_available_event_id": None if self.manner.gap_latest_null or not kept else kept[-1][0],
            "recovery": "reload_durable_state",
        }
        return self._frame("gap", data, None)

    @property
    def _newline(self) -> bytes:
        return b"\n" if self.kind is Kind.DEERFLOW else b"\r\n"

    def _frame(self, name: str, data: object, identity: str | None) -> bytes:
        lines = [f"event: {name}".encode(), b"data: " + json.dumps(data, ensure_ascii=False).encode()]
        if identity is not None:
            lines.append(f"id: {identity}".encode())
        return self._newline.join(lines) + self._newline * 2

    def _record(self, run: EmulatedRun) -> Json:
        """The run as GET shows it: Aegra keeps no metadata, LangGraph and DeerFlow put the input into `kwargs`."""
        record: Json = {"run_id": run.id, "thread_id": run.thread, "status": run.status}
        if self.kind is Kind.AEGRA:
            return {
                **record,
                "input": run.body.get("input"),
                "config": run.body.get("config"),
                "error_message": run.error or None,
            }
        kwargs = {"input": run.body.get("input"), "config": run.body.get("config")}
        return {**record, "metadata": run.body.get("metadata"), "kwargs": kwargs}

    def _selected(self, request: Request, records: list[Json]) -> list[Json]:
        """What LangGraph's server alone leaves out of a list when it is asked to."""
        fields = {value for name, value in request.query if name == "select"}
        if not fields or self.kind is not Kind.LANGGRAPH:
            return records
        return [{name: value for name, value in record.items() if name in fields} for record in records]

    def _state(self, thread: str) -> Mapping[str, object]:
        asked = self.interrupts.get(thread, [])
        values: Json = {"messages": self.threads[thread]}
        tasks = [{"id": "1", "name": "ask", "interrupts": asked}] if asked else []
        state: Json = {"values": values, "next": ["ask"] if asked else [], "tasks": tasks}
        return state if self.kind is Kind.DEERFLOW else {**state, "interrupts": asked}


def _chunk(identity: str, text: str) -> Json:
    return {
        "content": text,
        "additional_kwargs": {},
        "response_metadata": {},
        "type": "AIMessageChunk",
        "name": None,
        "id": identity,
        "tool_calls": [],
        "invalid_tool_calls": [],
        "usage_metadata": None,
        "tool_call_chunks": [],
        "chunk_position": None,
    }


def pieces_of(text: str) -> Iterator[str]:
    """Sub-word pieces of uneven length, as tokens are; some are single characters that repeat."""
    sizes = itertools.cycle((1, 3, 2, 5, 1, 1, 4))
    position = 0
    while position < len(text):
        size = next(sizes)
        yield text[position : position + size]
        position += size
