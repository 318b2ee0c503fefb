"""What a web channel keeps of its conversations: entries in order and uploaded files, behind one small protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol


class LogAway(Exception):
    """The log cannot be read or written now. The text names the cause and carries no content."""


class Outdated(LogAway):
    """Somebody else has written the entry since it was read: an owner that took over, or one that did not know yet."""


class EntryKind(StrEnum):
    ASK = "ask"  # what a person wrote
    DIVIDER = "divider"  # a person began a new conversation
    REPLY = "reply"  # what the bridge shows for one turn


@dataclass(frozen=True, slots=True)
class Record:
    """One entry as it is kept. Entries are shown by (`order`, `seq`); `seq` rises with every entry of a conversation.

    `order` is the moment at which the person acted, in microseconds since the epoch; the first reply to a question has
    the question's `order`, so that it stands right below it. `body` is JSON. `version` counts how often it was put.
    """

    id: str
    kind: EntryKind
    order: int
    seq: int
    at: float
    body: str
    version: int = 0

    @property
    def position(self) -> tuple[int, int]:
        return (self.order, self.seq)


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that came with a message."""

    id: str
    name: str
    mime: str
    data: bytes


class WebLog(Protocol):
    """Keeps the entries of one channel. What `put` and `save_upload` were given is durable when they return.

    Every method raises `LogAway` when the storage cannot be used.
    """

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def put(self, conversation: str, record: Record) -> None:
        """Add the entry (`version` 0), or replace the one that has this id and `version`; its version is one more then.

        Raises `Outdated`, and changes nothing, when the entry that is kept has another version, or is there already.
        """
        ...

    async def get(self, conversation: str, entry: str) -> Record | None: ...

    async def newest(self, conversation: str, limit: int, before: tuple[int, int] | None = None) -> Sequence[Record]:
        """At most `limit` entries that stand before the position `before` (None: the last ones), in their order."""
        ...

    async def last_seq(self, conversation: str) -> int:
        """The highest `seq` of the conversation; 0 when it is empty."""
        ...

    async def save_upload(self, conversation: str, upload: Upload, at: float) -> None: ...

    async def upload(self, conversation: str, upload: str) -> Upload | None: ...

    async def prune(self, before: float) -> int:
        """Forget entries and uploads that are older than the moment `before`; how many they were."""
        ...


class MemoryLog:
    """A log that ends with the process."""

    def __init__(self) -> None:
        self._records: dict[str, dict[str, Record]] = {}
        self._uploads: dict[tuple[str, str], tuple[float, Upload]] = {}

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def put(self, conversation: str, record: Record) -> None:
        records = self._records.setdefault(conversation, {})
        kept = records.get(record.id)
        if record.version != (kept.version if kept is not None else 0):
            raise Outdated("an entry of the history was written by somebody else")
        records[record.id] = replace(record, version=record.version + 1)

    async def get(self, conversation: str, entry: str) -> Record | None:
        return self._records.get(conversation, {}).get(entry)

    async def newest(self, conversation: str, limit: int, before: tuple[int, int] | None = None) -> Sequence[Record]:
        records = sorted(self._records.get(conversation, {}).values(), key=lambda record: record.position)
        return [record for record in records if before is None or record.position < before][-limit:]

    async def last_seq(self, conversation: str) -> int:
        return max((record.seq for record in self._records.get(conversation, {}).values()), default=0)

    async def save_upload(self, conversation: str, upload: Upload, at: float) -> None:
        self._uploads[conversation, upload.id] = (at, upload)

    async def upload(self, conversation: str, upload: str) -> Upload | None:
        found = self._uploads.get((conversation, upload))
        return found[1] if found else None

    async def prune(self, before: float) -> int:
        old_uploads = [key for key, (at, _) in self._uploads.items() if at < before]
        for key in old_uploads:
            del self._uploads[key]
        dropped = len(old_uploads)
        for records in self._records.values():
            for record in [record for record in records.values() if record.at < before]:
                del records[record.id]
                dropped += 1
        return dropped
