"""A streamed message: what may be sent into it, what has arrived, and when it has ended."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from tests.emulators.slack import rules
from tests.emulators.slack.blocks import JsonObject, check_blocks, resolved_texts, visible_text
from tests.emulators.slack.errors import Refusal


class StreamState(StrEnum):
    LIVE = "live"
    STOPPED = "stopped"
    STOPPED_BY_USER = "stopped_by_user"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class Task:
    """A step as people see it in the message."""

    id: str
    title: str
    status: str
    details: str = ""
    output: str = ""
    sources: tuple[tuple[str, str], ...] = ()

    @property
    def weight(self) -> int:
        details = _bytes(self.details) + _bytes(self.output)
        sources = sum(_bytes(url) + _bytes(text) for url, text in self.sources)
        return _bytes(self.title) + rules.STREAM_DETAIL_WEIGHT * details + sources


@dataclass(frozen=True, slots=True)
class Content:
    """What one call brings: Markdown, tasks, plan titles, blocks. `mode` is "text", "chunks" or "" for nothing."""

    mode: str = ""
    parts: tuple[str | list[JsonObject], ...] = ()
    tasks: tuple[JsonObject, ...] = ()
    plan_titles: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (any(self.parts) or self.tasks or self.plan_titles)


@dataclass(slots=True)
class Stream:
    """The state behind a message begun by chat.startStream."""

    started_at: float
    lifetime: float
    ceiling: int
    recipient: str = ""
    display_mode: str = "timeline"
    mode: str = ""
    parts: list[str | list[JsonObject]] = field(default_factory=list)
    tasks: dict[str, Task] = field(default_factory=dict)
    plan_title: str = ""
    final_blocks: list[JsonObject] = field(default_factory=list)
    ended: StreamState | None = None
    replaced: bool = False
    told: bool = False
    broadcasts: int = 0

    def state(self, now: float) -> StreamState:
        if self.ended is not None:
            return self.ended
        return StreamState.EXPIRED if now >= self.started_at + self.lifetime else StreamState.LIVE

    @property
    def text(self) -> str:
        """The Markdown of all calls, joined as it came."""
        return "".join(part for part in self.parts if isinstance(part, str))

    @property
    def visible(self) -> str:
        """What people read: the Markdown, and the text of blocks where they stand, each on lines of its own."""
        shown = ""
        for part in [*self.parts, self.final_blocks]:
            piece = part if isinstance(part, str) else visible_text(part)
            shown += f"\n{piece}\n" if piece and not isinstance(part, str) else piece
        return shown

    @property
    def blocks(self) -> list[JsonObject]:
        """All blocks, those of chunks first."""
        inner = [block for part in self.parts if not isinstance(part, str) for block in part]
        return inner + self.final_blocks

    @property
    def weight(self) -> int:
        """Size as Slack counts it, in UTF-8 bytes."""
        text = sum(_bytes(part) if isinstance(part, str) else _bytes(json.dumps(part)) for part in self.parts)
        return text + _bytes(self.plan_title) + sum(task.weight for task in self.tasks.values())

    @property
    def open_tasks(self) -> list[str]:
        return [task.id for task in self.tasks.values() if task.status in rules.OPEN_TASK_STATES]

    def spoken(self) -> str:
        """Everything in which Slack would resolve a mention."""
        pieces = [self.text, self.plan_title, *resolved_texts(self.blocks)]
        for task in self.tasks.values():
            pieces += [task.title, task.details, task.output]
        return "\n\n".join(pieces)

    def take(self, content: Content) -> None:
        """Add what a call brings; raises `Refusal`, and changes nothing, when it does not fit."""
        if self.mode and content.mode and content.mode != self.mode:
            raise Refusal("streaming_mode_mismatch", broken=f"{content.mode} sent into a stream of {self.mode}")
        before = (list(self.parts), dict(self.tasks), self.plan_title)
        self.parts += content.parts
        for update in content.tasks:
            self.tasks[update["id"]] = _updated(self.tasks.get(update["id"]), update)
        self.plan_title = content.plan_titles[-1] if content.plan_titles else self.plan_title
        complaint = self._too_big()
        if complaint is not None:
            self.parts, self.tasks, self.plan_title = before
            raise complaint
        self.mode = self.mode or content.mode

    def _too_big(self) -> Refusal | None:
        inner = sum(len(part) for part in self.parts if not isinstance(part, str))
        if inner > rules.MESSAGE_BLOCKS:
            return Refusal("msg_blocks_too_many", broken=f"{inner} blocks in one stream")
        if self.weight > self.ceiling:
            over = self.weight > rules.STREAM_BYTES
            broken = f"a streamed message of {self.weight} bytes, {rules.STREAM_BYTES} fit" if over else ""
            return Refusal("msg_too_long", broken=broken)
        return None


def _updated(old: Task | None, update: JsonObject) -> Task:
    sources = tuple((str(s.get("url", "")), str(s.get("text", ""))) for s in update.get("sources") or ())
    return Task(
        id=update["id"],
        title=update["title"],
        status=update["status"],
        details=update.get("details") or (old.details if old else ""),
        output=update.get("output") or (old.output if old else ""),
        sources=sources or (old.sources if old else ()),
    )


def _bytes(text: str) -> int:
    return len(text.encode())


def read_content(markdown_text: object, chunks: object) -> Content:
    """The content of one streaming call, checked against the chunk schemas and the limits of one call."""
    if markdown_text is not None and chunks is not None:
        raise Refusal(
            "cannot_provide_both_markdown_text_and_chunks", broken="markdown_text and chunks in one streaming call"
        )
    if markdown_text is not None:
        if not isinstance(markdown_text, str):
            raise Refusal("invalid_arguments", broken="markdown_text is not a string")
        _check_chars([markdown_text])
        return Content("text", (markdown_text,))
    if chunks is None:
        return Content()
    if not isinstance(chunks, list) or not all(isinstance(chunk, dict) for chunk in chunks):
        raise Refusal("invalid_chunks", broken="chunks are not a list of objects")
    return _read_chunks(chunks)


def _read_chunks(chunks: Sequence[JsonObject]) -> Content:
    parts: list[str | list[JsonObject]] = []
    tasks: list[JsonObject] = []
    plan_titles: list[str] = []
    for number, chunk in enumerate(chunks):
        match chunk.get("type"):
            case "markdown_text":
                parts.append(_string(chunk, "text", number))
            case "task_update":
                tasks.append(_checked_task(chunk, number))
            case "plan_update":
                plan_titles.append(_string(chunk, "title", number))
            case "blocks":
                parts.append(check_blocks(chunk.get("blocks"), too_many="msg_blocks_too_many"))
            case other:
                raise _invalid(number, f"unknown type {other!r}")
    _check_chars([part for part in parts if isinstance(part, str)])
    return Content("chunks", tuple(parts), tuple(tasks), tuple(plan_titles))


def _checked_task(chunk: JsonObject, number: int) -> JsonObject:
    if not (_string(chunk, "id", number) and _string(chunk, "title", number)):
        raise _invalid(number, "a task needs an id and a title")
    if chunk.get("status") not in rules.TASK_STATES:
        raise _invalid(number, f"unknown task status {chunk.get('status')!r}")
    for name in ("details", "output"):
        if chunk.get(name) is not None:
            _string(chunk, name, number)
    sources = chunk.get("sources")
    if sources is not None and not (isinstance(sources, list) and all(_is_source(source) for source in sources)):
        raise _invalid(number, "sources are url elements with a url and a text")
    return chunk


def _is_source(source: object) -> bool:
    return isinstance(source, dict) and source.get("type") == "url" and bool(source.get("url") and source.get("text"))


def _string(chunk: JsonObject, name: str, number: int) -> str:
    value = chunk.get(name)
    if not isinstance(value, str):
        raise _invalid(number, f"{name} is not a string")
    return value


def _invalid(number: int, complaint: str) -> Refusal:
    return Refusal(
        "invalid_chunks",
        broken=f"invalid chunk: {complaint}",
        messages=[f"[ERROR] {complaint} [json-pointer:/chunks/{number}]"],
    )


def _check_chars(texts: Sequence[str]) -> None:
    chars = sum(map(len, texts))
    if chars > rules.MARKDOWN_CHARS:
        raise Refusal("msg_too_long", broken=f"{chars} characters of Markdown in one call, {rules.MARKDOWN_CHARS} fit")
