"""The frame of the long connection: the vendor's protobuf message `Frame`, read and written by hand.

Forty lines of varints instead of the vendor's SDK, which takes seconds and 170 MB to import for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

CONTROL = 0
DATA = 1

_LONGEST_VARINT = 63  # bits


class BadFrame(ValueError):
    """The bytes are not a frame."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One message on the long connection; the attributes are the fields 1 to 9 of the vendor's message."""

    seq_id: int
    log_id: int
    service: int
    method: int
    headers: tuple[tuple[str, str], ...] = ()
    payload_encoding: str = ""
    payload_type: str = ""
    payload: bytes = b""
    log_id_new: str = ""

    def header(self, key: str) -> str:
        """The value of a header; empty when it is not there."""
        return next((value for name, value in self.headers if name == key), "")

    def answered(self, payload: bytes, took_ms: int) -> Frame:
        """The ack of this frame: itself, with the time it took and another payload."""
        return replace(self, headers=(*self.headers, ("biz_rt", str(took_ms))), payload=payload)

    def encode(self) -> bytes:
        out = bytearray()
        for number, value in enumerate((self.seq_id, self.log_id, self.service, self.method), start=1):
            out += _varint(number << 3) + _varint(value)
        for key, text in self.headers:
            out += _block(5, _block(1, key.encode()) + _block(2, text.encode()))
        blocks = (self.payload_encoding.encode(), self.payload_type.encode(), self.payload, self.log_id_new.encode())
        for number, block in enumerate(blocks, start=6):
            if block:
                out += _block(number, block)
        return bytes(out)

    @classmethod
    def decode(cls, data: bytes) -> Frame:
        """Raises `BadFrame`."""
        numbers: dict[int, int] = {}
        blocks: dict[int, bytes] = {}
        headers: list[tuple[str, str]] = []
        for number, value in _fields(data):
            if isinstance(value, int):
                numbers[number] = value
            elif number == 5:
                parts = dict(_fields(value))
                headers.append((_text(parts.get(1)), _text(parts.get(2))))
            else:
                blocks[number] = value
        return cls(
            seq_id=numbers.get(1, 0),
            log_id=numbers.get(2, 0),
            service=numbers.get(3, 0),
            method=numbers.get(4, CONTROL),
            headers=tuple(headers),
            payload_encoding=_text(blocks.get(6)),
            payload_type=_text(blocks.get(7)),
            payload=blocks.get(8, b""),
            log_id_new=_text(blocks.get(9)),
        )


def ping(service: int) -> bytes:
    """The frame that keeps a connection alive; the platform answers with a pong."""
    return Frame(0, 0, service, CONTROL, (("type", "ping"),)).encode()


def _text(value: int | bytes | None) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else ""


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _block(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        match key & 7:
            case 0:
                value, at = _read_varint(data, at)
                yield key >> 3, value
            case 1 | 5 as kind:  # fixed-size numbers: none is ours, later versions may have some
                at += 8 if kind == 1 else 4
            case 2:
                size, at = _read_varint(data, at)
                if at + size > len(data):
                    raise BadFrame("a field is cut off")
                yield key >> 3, data[at : at + size]
                at += size
            case kind:
                raise BadFrame(f"a field of the wire type {kind}")


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > _LONGEST_VARINT:
            raise BadFrame("a number is cut off")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        shift += 7
        at += 1
        if not byte & 0x80:
            return value, at
