"""The calls that show a reply on Slack, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from pydantic import JsonValue

from adapters.slack.shown import FileShown, Page, ResponseShown
from channels.adapter import Op
from channels.model import File

Block = Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class TaskChunk:
    """What a streamed message is told about one task."""

    id: str
    title: str
    status: str  # pending | in_progress | complete | error
    details: str = ""
    output: str = ""

    def as_json(self) -> dict[str, JsonValue]:
        chunk: dict[str, JsonValue] = {"type": "task_update", "id": self.id, "title": self.title, "status": self.status}
        if self.details:
            chunk["details"] = self.details
        if self.output:
            chunk["output"] = self.output
        return chunk


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOp(Op):
    """A call about one message; `page` is what is known of the message at `index` once it is accepted."""

    index: int
    page: Page


@dataclass(frozen=True, slots=True, kw_only=True)
class StartStream(PageOp):
    """`root`, here and below: the message in whose thread the call is made; None: at top level."""

    root: str | None
    text: str
    tasks: tuple[TaskChunk, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Append(PageOp):
    text: str
    tasks: tuple[TaskChunk, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop(PageOp):
    """End a stream. `session` is the status that the thread's agent session gets with it."""

    text: str = ""
    tasks: tuple[TaskChunk, ...] = ()
    blocks: tuple[Block, ...] = ()
    session: str = ""

    @property
    def appends(self) -> bool:
        """Whether it brings something that could be appended as well."""
        return bool(self.text or self.tasks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written(PageOp):
    """A whole message: Markdown between blocks, or plain text alone."""

    text: str
    before: tuple[Block, ...] = ()
    after: tuple[Block, ...] = ()
    plain: bool = False
    session: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Post(Written):
    """A new message. `gives_up`: it says that the answer cannot be shown."""

    root: str | None
    gives_up: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Update(Written):
    """A message that is there gets this content instead of what it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete(PageOp):
    """A message that has nothing to say any more goes away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Find(PageOp):
    """Look whether a message that was asked for is there, one page of the thread at a time. `known` are messages that
    it cannot be."""

    root: str | None
    known: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOp(Op):
    """A call about the reply's file at `index`; `state` is what is known of it."""

    is_beside: ClassVar[bool] = True

    index: int
    state: FileShown
    file: File


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload(FileOp):
    """Bring the bytes to Slack; nobody sees them yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share(FileOp):
    """Put the uploaded file under the answer."""

    root: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FindFile(FileOp):
    """Look whether a file that was to be shared is there, one page of the thread at a time."""

    root: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Respond(Op):
    """A message to a command's `response_url`; `shown` is what is known of the reply once it is accepted."""

    text: str
    shown: ResponseShown
    plain: bool = False
