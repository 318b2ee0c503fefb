"""The files an agent makes in one run: artifacts beside its messages, and blocks inside them."""

from __future__ import annotations

import mimetypes

from pydantic import JsonValue

from channels.model import File
from channels.shapes import as_list, as_object, as_text
from channels.transcript.file_blocks import FileBlock


class MadeFiles:
    """Each method tells whether a file was new. `thread` goes into the references: a file is fetched from there."""

    def __init__(self, thread: str) -> None:
        self.thread = thread
        self._files: dict[str, File] = {}

    def all(self) -> tuple[File, ...]:
        return tuple(self._files.values())

    def artifacts(self, value: JsonValue) -> bool:
        """The paths of artifacts in an update."""
        new = False
        for item in as_list(value):
            path = as_text(item) or as_text(as_object(item).get("path"))
            name = path.rsplit("/", 1)[-1]
            if name:
                mime = mimetypes.guess_type(name)[0] or "application/octet-stream"
                new |= self._add(path, name, mime, {"thread": self.thread, "artifact": path})
        return new

    def block(self, message_id: str, block: FileBlock) -> bool:
        """A file inside a message."""
        name = block.name or f"file-{len(self._files) + 1}{mimetypes.guess_extension(block.mime) or ''}"
        reference: dict[str, JsonValue] = {"thread": self.thread, "message": message_id, "block": block.block}
        return self._add(f"{message_id}.{block.block}", name, block.mime, reference)

    def _add(self, identity: str, name: str, mime: str, reference: dict[str, JsonValue]) -> bool:
        if identity in self._files:
            return False
        self._files[identity] = File(identity, name, mime, None, reference)
        return True
