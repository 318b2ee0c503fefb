"""Reading a request as the vendor does: query string, form, JSON or multipart, with JSON-encoded sub-objects."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from aiohttp import BodyPartReader, MultipartReader, web

from tests.emulators.telegram.errors import ApiError, bad_request

Json = dict[str, object]

# Parameters written as numbers in the journal, so that a test can compare them with ids it holds.
_NUMBERS = frozenset(
    {
        "chat_id", "message_id", "message_thread_id", "draft_id", "user_id", "offset", "limit", "timeout",
        "max_connections",
    }
)  # fmt: skip
_PROSE = frozenset({"text", "caption"})


@dataclass(frozen=True, slots=True)
class FilePart:
    """A file of a multipart request; `content` stops at the reader's limit, `size` is what was really sent."""

    name: str
    mime: str
    content: bytes
    size: int


@dataclass(frozen=True, slots=True)
class Params:
    """The arguments of one call, read with the vendor's leniency about numbers and truth values written as text."""

    values: Mapping[str, object] = field(default_factory=dict)
    files: Mapping[str, FilePart] = field(default_factory=dict)

    def has(self, name: str) -> bool:
        return name in self.values

    def text(self, name: str) -> str:
        """The value as text; empty when it is absent."""
        value = self.values.get(name, "")
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    def integer(self, name: str, default: int = 0) -> int:
        """Raises 400 when the value is there but not a whole number."""
        value = self.values.get(name)
        if value is None or value == "":
            return default
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        try:
            return int(str(value))
        except ValueError:
            raise bad_request(f"invalid {name} specified", rule=f"{name} is not a number: {value!r}") from None

    def flag(self, name: str) -> bool:
        return str(self.values.get(name, "")).lower() in {"true", "1", "yes"}

    def json(self, name: str) -> object | None:
        """The decoded sub-object, None when absent. Raises 400 when it is not JSON."""
        value = self.values.get(name)
        if value is None or value == "":
            return None
        if not isinstance(value, str):
            return value
        try:
            decoded: object = json.loads(value)
        except ValueError:
            raise bad_request(f"can't parse {name} JSON object", rule=f"{name} is not JSON") from None
        return decoded

    def json_object(self, name: str) -> Json | None:
        value = self.json(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise bad_request("object expected as " + name, rule=f"{name} is not a JSON object")
        return value

    def json_list(self, name: str) -> list[object] | None:
        value = self.json(name)
        if value is None:
            return None
        if not isinstance(value, list):
            raise bad_request(f"can't parse {name}: expected an Array", rule=f"{name} is not a JSON array")
        return value

    def for_journal(self) -> Json:
        """The arguments as a test wants to read them: ids as numbers, sub-objects decoded, files by name and size."""
        shown: Json = {name: _readable(name, value) for name, value in self.values.items()}
        for name, part in self.files.items():
            shown[name] = {"file_name": part.name, "size": part.size}
        return shown


def _readable(name: str, value: object) -> object:
    if not isinstance(value, str) or name in _PROSE:
        return value
    if name in _NUMBERS and value.lstrip("-").isdigit():
        return int(value)
    if value[:1] in {"{", "["} or value in {"true", "false"}:
        try:
            decoded: object = json.loads(value)
        except ValueError:
            return value
        return decoded
    return value


async def read_params(request: web.Request, *, file_limit: int) -> Params:
    """Read all arguments of a call. Raises 400 for an unreadable body, 413 for a file over `file_limit` bytes."""
    values: Json = dict(request.query)
    files: dict[str, FilePart] = {}
    kind = request.content_type
    if kind.startswith("multipart/"):
        await _read_multipart(await request.multipart(), values, files, file_limit)
    elif kind == "application/json":
        try:
            body = await request.json()
        except ValueError:
            raise bad_request("can't parse JSON object", rule="request body is not JSON") from None
        if not isinstance(body, dict):
            raise bad_request("object expected", rule="request body is not a JSON object")
        values.update(body)
    elif request.can_read_body:
        values.update((name, value) for name, value in (await request.post()).items() if isinstance(value, str))
    too_big = [part for part in files.values() if part.size > file_limit]
    if too_big:
        raise ApiError(
            413,
            "Request Entity Too Large",
            rule=f"upload of {too_big[0].size} bytes (limit {file_limit})",
        )
    return Params(values, files)


async def _read_multipart(reader: MultipartReader, values: Json, files: dict[str, FilePart], file_limit: int) -> None:
    while (part := await reader.next()) is not None:
        if not isinstance(part, BodyPartReader) or part.name is None:
            continue
        if part.filename is None:
            values[part.name] = await part.text()
            continue
        kept = bytearray()
        size = 0
        # Read to the end even past the limit: a client that is cut off while sending never sees the refusal.
        while chunk := await part.read_chunk(1 << 16):
            size += len(chunk)
            if size <= file_limit:
                kept += chunk
        mime = part.headers.get("Content-Type", "application/octet-stream")
        files[part.name] = FilePart(part.filename, mime, bytes(kept), size)
