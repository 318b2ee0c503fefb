"""A gateway that plays scripts: real stream events through the real transcript, timed on the test's clock."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from pydantic import JsonValue

from channels.adapter import Failure
from channels.clock import Clock
from channels.gateway.runs import RunEnd, RunRequest
from channels.inputs import Ask, Resume
from channels.model import File, Phase, RunId, StepState, ThreadId, TurnId
from channels.questions import Interrupt, open_questions
from channels.transcript import Transcript
from channels.transcript.stream_events import StreamEvent


@dataclass(frozen=True, slots=True)
class Say:
    """Stream `text` in pieces of `size` characters, `pace` seconds apart; `message` tells assistant messages apart."""

    text: str
    size: int = 8
    pace: float = 0.05
    message: str = "a"


@dataclass(frozen=True, slots=True)
class Think:
    """Stream reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


@dataclass(frozen=True, slots=True)
class UseTool:
    """Call a tool that takes `seconds` without a word."""

    name: str
    seconds: float = 0.0
    args: str = "{}"
    result: str = "ok"


@dataclass(frozen=True, slots=True)
class AskPerson:
    """End the run with an interrupt."""

    value: JsonValue


@dataclass(frozen=True, slots=True)
class Fail:
    """End the run in failure."""

    notice: str = "The agent failed. /retry asks again."


@dataclass(frozen=True, slots=True)
class GiveFile:
    name: str
    data: bytes


Act = Say | Think | Pause | UseTool | AskPerson | Fail | GiveFile


@dataclass
class ScriptedRun:
    """One run as the gateway knows it: it goes on whether or not anybody follows it."""

    id: RunId
    request: RunRequest
    script: Sequence[Act]
    done: int = 0
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)


class ScriptedGateway:
    """Stands in for `channels.gateway.Gateway`. `scripts` are played in order, one a run; the last one repeats."""

    def __init__(self, clock: Clock, *scripts: Iterable[Act]) -> None:
        self._clock = clock
        self.scripts: deque[list[Act]] = deque(list(script) for script in scripts)
        self.runs: list[ScriptedRun] = []
        self.threads: list[ThreadId] = []
        self.files: dict[str, bytes] = {}
        self.withheld: dict[str, Failure] = {}
        """Why files are not handed out, by name."""
        self.opened: Counter[str] = Counter()

    async def aclose(self) -> None:
        """Nothing to close."""

    async def prepare_thread(self, thread: ThreadId, metadata: object) -> bool:
        self.threads.append(thread)
        return False

    async def remark_on(self, files: object) -> str:
        return ""

    async def open_file(self, file: File) -> bytes:
        self.opened[file.name] += 1
        if failure := self.withheld.get(file.name):
            raise failure
        return self.files[file.id]

    async def cancel(self, thread: ThreadId, run: RunId) -> bool:
        for known in self.runs:
            if known.id == run:
                known.cancelled.set()
        return True

    async def stop(self, turn: TurnId) -> bool:
        for known in self.runs:
            if known.request.turn == turn:
                known.cancelled.set()
        return True

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
        known = next((r for r in self.runs if r.id == run or r.request.turn == request.turn), None)
        if known is None:
            script = self.scripts.popleft() if len(self.scripts) > 1 else list(self.scripts[0])
            known = ScriptedRun(RunId(str(uuid.uuid4())), request, script)
            self.runs.append(known)
        await started(known.id)
        playing = asyncio.create_task(self._play(known, transcript, changed))
        cancelled = asyncio.create_task(known.cancelled.wait())
        try:
            await asyncio.wait({playing, cancelled}, return_when=asyncio.FIRST_COMPLETED)
            if playing.done():
                return playing.result()
            return RunEnd(transcript.finish(Phase.STOPPED, self._clock.now(), notice="Stopped.", verified=False))
        finally:
            playing.cancel()
            cancelled.cancel()
            await asyncio.gather(playing, cancelled, return_exceptions=True)

    async def _play(self, run: ScriptedRun, transcript: Transcript, changed: Callable[[], None]) -> RunEnd:
        """Play the script from its start (what was streamed before is replayed at once), then go on live."""
        files: list[File] = []

        def feed(name: str, data: JsonValue) -> None:
            if transcript.feed(StreamEvent.of(name, data), self._clock.now()):
                changed()

        feed("metadata", {"run_id": run.id})
        for index, act in enumerate(run.script):
            live = index >= run.done
            match act:
                case Say():
                    for start in range(0, len(act.text), act.size):
                        feed("messages", [_chunk(run, act.message, act.text[start : start + act.size]), {}])
                        if live and act.pace:
                            await self._clock.sleep(act.pace)
                    whole: JsonValue = {
                        "type": "ai",
                        "id": _id(run, act.message),
                        "content": _said(run, act.message, index),
                    }
                    feed("updates", {"agent": {"messages": [whole]}})
                case Think():
                    block: JsonValue = [{"type": "thinking", "thinking": act.text, "index": 0}]
                    feed("messages", [{"type": "AIMessageChunk", "id": _id(run, "a"), "content": block}, {}])
                case Pause():
                    if live:
                        await self._clock.sleep(act.seconds)
                case UseTool():
                    await self._use_tool(run, act, index, feed, live=live)
                case GiveFile():
                    file = File(id=f"{run.id}-{act.name}", name=act.name, size=len(act.data))
                    self.files[file.id] = act.data
                    files.append(file)
                case AskPerson():
                    interrupts: JsonValue = [{"id": f"{run.id}-{index}", "value": act.value}]
                    questions = open_questions(interrupts)
                    return self._end(transcript, Phase.ASKING, files, questions)
                case Fail():
                    return RunEnd(transcript.finish(Phase.FAILED, self._clock.now(), notice=act.notice, verified=False))
            run.done = max(run.done, index + 1)
        return self._end(transcript, Phase.DONE, files, ())

    async def _use_tool(
        self, run: ScriptedRun, act: UseTool, index: int, feed: Callable[[str, JsonValue], None], *, live: bool
    ) -> None:
        call: JsonValue = {"name": act.name, "args": act.args, "id": f"call-{index}", "index": 0}
        chunk = _chunk(run, f"tool-{index}", "")
        feed("messages", [{**chunk, "tool_call_chunks": [call]}, {}])
        if live:
            await self._clock.sleep(act.seconds)
        result: JsonValue = {
            "type": "tool",
            "id": f"result-{run.id}-{index}",
            "name": act.name,
            "tool_call_id": f"call-{index}",
            "content": act.result,
            "status": "success",
        }
        feed("messages", [result, {}])

    def _end(
        self, transcript: Transcript, phase: Phase, files: Sequence[File], questions: tuple[Interrupt, ...]
    ) -> RunEnd:
        question = questions[0].question if questions else None
        view = transcript.finish(phase, self._clock.now(), question=question, verified=False)
        steps = tuple(
            replace(s, state=StepState.DONE) if s.state is StepState.RUNNING and phase is Phase.DONE else s
            for s in view.steps
        )
        return RunEnd(replace(view, files=tuple(files), steps=steps), interrupts=questions)

    @property
    def questions(self) -> list[str]:
        """What was asked, run by run: the text of a message, or the answers a resume carried."""
        asked: list[str] = []
        for run in self.runs:
            match run.request.input:
                case Ask(text=text):
                    asked.append(text)
                case Resume(answers=answers):
                    asked.append(str(list(answers.values())))
        return asked


def _id(run: ScriptedRun, message: str) -> str:
    return f"lc_run--{run.id}-{message}"


def _said(run: ScriptedRun, message: str, upto: int) -> str:
    return "".join(act.text for act in run.script[: upto + 1] if isinstance(act, Say) and act.message == message)


def _chunk(run: ScriptedRun, message: str, text: str) -> dict[str, JsonValue]:
    return {"type": "AIMessageChunk", "id": _id(run, message), "content": text, "tool_call_chunks": []}
