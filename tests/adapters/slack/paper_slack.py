"""Slack on paper, for the surface alone: streams and messages of one thread, strict about what may be done to them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import cast

from adapters.slack.failures import StillStreaming, Uneditable
from adapters.slack.ops import (
    Append,
    Block,
    Delete,
    Find,
    FindFile,
    PageOp,
    Post,
    Share,
    StartStream,
    Stop,
    TaskChunk,
    Update,
    Upload,
    Written,
)
from adapters.slack.performing import Performer
from adapters.slack.spot import Spot
from adapters.slack.text import unformatted
from channels.adapter import Closed, Failure, Gone, Op, Receipt, StoppedByUser, TooLarge
from channels.model import Inbound, InboundKind, Place, Sender, TurnId

STREAM_BYTES = 10_600
STREAM_SECONDS = 300.0
MARKDOWN_CHARS = 12_000
PLAIN_CHARS = 4_000


@dataclass
class Paper:
    """One message. `state` is live, stopped, expired or halted (by the reader) for streams, "" for others."""

    ts: str
    part: int
    text: str
    state: str = ""
    born: float = 0.0
    blocks: tuple[Block, ...] = ()
    tasks: dict[str, TaskChunk] = field(default_factory=dict)
    marked: bool = True
    deleted: bool = False
    uneditable: bool = False
    told: bool = False

    @property
    def buttons(self) -> list[str]:
        return [
            str(element.get("value"))
            for block in self.blocks
            if block["type"] == "actions"
            for element in block["elements"]  # type: ignore[union-attr]
            if isinstance(element, dict)
        ]


class PaperSlack:
    """Performs the ops of one reply. `broken` lists what a real Slack would mind; `no_end` is why no stream can be
    ended."""

    def __init__(self, now: Callable[[], float], *, stream_bytes: int = STREAM_BYTES) -> None:
        self.now = now
        self.no_end: Failure | None = None
        self.papers: list[Paper] = []
        self.broken: list[str] = []
        self.calls: list[Op] = []
        self.uploads: set[str] = set()
        self.shared: list[str] = []
        self._stream_bytes = stream_bytes
        self._count = 0

    @property
    def standing(self) -> list[Paper]:
        return [paper for paper in self.papers if not paper.deleted]

    @property
    def text(self) -> str:
        return "\n".join(paper.text for paper in self.standing)

    def expire(self) -> None:
        """Slack ends all streams by itself, earlier than expected."""
        for paper in self.standing:
            if paper.state == "live":
                paper.state = "expired"

    def halt(self) -> None:
        """The reader presses Slack's own stop button."""
        for paper in self.standing:
            if paper.state == "live":
                paper.state = "halted"

    def perform(self, op: Op) -> Receipt:
        """Do it, or raise what Slack would answer."""
        self.calls.append(op)
        match op:
            case StartStream():
                return self._start(op)
            case Post():
                self._check_written(op)
                return self._new(op, op.text, blocks=(*op.before, *op.after))
            case Append():
                self._append(self._paper(op), op)
            case Stop():
                self._stop(self._paper(op), op)
            case Update():
                self._update(self._paper(op), op)
            case Delete():
                self._paper(op).deleted = True
            case Find():
                return self._find(op)
            case Upload():
                self._count += 1
                self.uploads.add(f"F{self._count}")
                return Receipt(f"F{self._count}")
            case Share():
                return self._share(op)
            case FindFile():
                return Receipt(op.state.file if op.state.file in self.shared else None)
            case _:
                self.broken.append(f"unknown op {op}")
        return Receipt()

    # ---------------------------------------------------------------- inside

    def _new(self, op: PageOp, text: str, **more: object) -> Receipt:
        self._count += 1
        paper = Paper(f"m{self._count}", op.page.part, text, born=self.now(), **more)  # type: ignore[arg-type]
        if any(other.part == paper.part for other in self.standing):
            self.broken.append(f"part {paper.part} made twice")
        self.papers.append(paper)
        return Receipt(paper.ts)

    def _paper(self, op: PageOp) -> Paper:
        found = next((paper for paper in self.papers if paper.ts == op.page.ts), None)
        if found is None:
            self.broken.append(f"{type(op).__name__} of a message that never was")
        if found is None or found.deleted:
            raise Gone("message_not_found")
        return found

    def _start(self, op: StartStream) -> Receipt:
        self._check_size(op.text, {}, op.tasks)
        if not op.text and not op.tasks:
            self.broken.append("an empty stream was started")
        receipt = self._new(op, op.text, state="live", marked=False)
        self._take_tasks(self.papers[-1], op.tasks)
        return receipt

    def _append(self, paper: Paper, op: Append) -> None:
        self._age(paper)
        if not op.text and not op.tasks:
            self.broken.append("an empty append")
        if paper.state == "halted":
            if paper.told:
                self.broken.append("appended again after the reader's stop")
            paper.told = True
            raise StoppedByUser("stopped_by_user")
        if paper.state != "live":
            if paper.told or paper.state == "stopped" or self.now() >= paper.born + STREAM_SECONDS:
                self.broken.append(f"appended to a stream that is {paper.state}")
            paper.told = True
            raise Closed("message_not_in_streaming_state")
        self._check_size(paper.text + op.text, paper.tasks, op.tasks)
        paper.text += op.text
        self._take_tasks(paper, op.tasks)

    def _stop(self, paper: Paper, op: Stop) -> None:
        self._age(paper)
        if paper.state in ("stopped", "expired", ""):
            paper.told = True
            raise Closed("message_not_in_streaming_state")
        if self.no_end is not None:
            raise self.no_end
        self._check_size(paper.text + op.text, paper.tasks, op.tasks)
        paper.text += op.text
        self._take_tasks(paper, op.tasks)
        paper.blocks = op.blocks
        paper.state = "stopped"
        paper.marked = True
        if still := [task.id for task in paper.tasks.values() if task.status in ("pending", "in_progress")]:
            self.broken.append(f"stopped with open tasks {still}")

    def _update(self, paper: Paper, op: Update) -> None:
        self._age(paper)
        if paper.uneditable:
            raise Uneditable("edit_window_closed")
        if paper.state == "live":
            self.broken.append("an edit of a running stream")
        if paper.state in ("live", "halted"):
            raise StillStreaming("streaming_state_conflict")
        self._check_written(op)
        paper.text, paper.blocks = op.text, (*op.before, *op.after)
        paper.tasks, paper.state, paper.marked = {}, "", True

    def _find(self, op: Find) -> Receipt:
        running = [paper.ts for paper in self.standing if not paper.marked and paper.ts not in op.known]
        for paper in self.standing:
            if paper.marked and paper.part == op.page.part:
                return Receipt(paper.ts, {"marked": True})
        return Receipt(running[0], {"marked": False}) if op.page.streamed and len(running) == 1 else Receipt()

    def _share(self, op: Share) -> Receipt:
        if op.state.file not in self.uploads:
            raise Gone("file_not_found")
        if op.state.file in self.shared:
            self.broken.append("a file was shared twice")
        self.shared.append(op.state.file)
        return Receipt(op.state.file)

    def _age(self, paper: Paper) -> None:
        if paper.state == "live" and self.now() >= paper.born + STREAM_SECONDS:
            paper.state = "expired"

    def _check_size(self, text: str, known: Mapping[str, TaskChunk], tasks: Sequence[TaskChunk]) -> None:
        size = len(text.encode()) + sum(
            len(task.title.encode()) + 2 * (len(task.details.encode()) + len(task.output.encode()))
            for task in _merged(known, tasks).values()
        )
        if size > STREAM_BYTES:
            self.broken.append(f"a stream of {size} bytes")
        if size > self._stream_bytes:
            raise TooLarge("msg_too_long")

    def _check_written(self, op: Written) -> None:
        if not op.text and not op.before and not op.after:
            self.broken.append("an empty message")
        sent = unformatted(op.text) if op.plain else op.text
        if len(sent) > (PLAIN_CHARS if op.plain else MARKDOWN_CHARS):
            self.broken.append(f"a message of {len(sent)} characters")
            raise TooLarge("msg_too_long")

    def _take_tasks(self, paper: Paper, tasks: Sequence[TaskChunk]) -> None:
        for task in tasks:
            if task.details and task.id in paper.tasks and paper.tasks[task.id].details:
                self.broken.append(f"details of {task.id} sent twice")
        paper.tasks = _merged(paper.tasks, tasks)


def _merged(known: Mapping[str, TaskChunk], tasks: Sequence[TaskChunk]) -> dict[str, TaskChunk]:
    """The tasks after an update: what it leaves out stays."""
    merged = dict(known)
    for task in tasks:
        old = merged.get(task.id)
        details, output = (
            (task.details or old.details, task.output or old.output) if old else (task.details, task.output)
        )
        merged[task.id] = replace(task, details=details, output=output)
    return merged


Trouble = tuple[Failure, bool]
"""A failure, and whether the call was done all the same."""


def on_paper(perform: Callable[[Spot, Op], Awaitable[Receipt]] | None = None) -> Performer:
    """What a surface needs beside its ops, where streams are never refused."""
    places = SimpleNamespace(known_to_refuse=lambda _: False)
    return cast(Performer, SimpleNamespace(places=places, remember=lambda *_: None, perform=perform))


DIRECT = Spot(TurnId("0" * 32), "D1", None, "T1", "U1", "T1", is_private=True, since="1.000001")


def asked(ts: str, received_at: float = 0.0) -> Inbound:
    """A question in a direct message."""
    place = Place("bench", "D1", private=True)
    return Inbound(place, Sender("U1"), f"key-{ts}", InboundKind.MESSAGE, "why?", received_at, ts)
