"""The frame of the long connection: a protobuf message, written by hand so that no SDK is needed to serve it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

CONTROL = 0
DATA = 1


@dataclass(frozen=True, slots=True)
class Frame:
    """Field numbers 1 to 9 of the vendor's `Frame`; the first four are required."""

    seq_id: int
    log_id: int
    service: int
    method: int
    headers: tuple[tuple[str, str], ...] = ()
    payload_encoding: str = ""
    payload_type: str = ""
    payload: bytes = b""
    log_id_new: str = ""

    def header(self, key: str) -> str | None:
        return next((value for name, value in self.headers if name == key), None)

    def encode(self) -> bytes:
        out = bytearray()
        for number, amount in enumerate((self.seq_id, self.log_id, self.service, self.method), start=1):
            out += _varint(number << 3) + _varint(amount)
        for key, value in self.headers:
            out += _block(5, _block(1, key.encode()) + _block(2, value.encode()))
        texts = ((6, self.payload_encoding.encode()), (7, self.payload_type.encode()), (8, self.payload))
        for number, text in (*texts, (9, self.log_id_new.encode())):
            if text:
                out += _block(number, text)
        return bytes(out)


def decode(data: bytes) -> Frame:
    """Read a frame; `ValueError` when it is not one."""
    numbers: dict[int, int] = {}
    blocks: dict[int, bytes] = {}
    headers: list[tuple[str, str]] = []
    for number, value in _fields(data):
        if isinstance(value, int):
            numbers[number] = value
        elif number == 5:
            parts = {key: part for key, part in _fields(value) if isinstance(part, bytes)}
            if set(parts) != {1, 2}:
                raise ValueError("a header without key and value")
            headers.append((parts[1].decode(), parts[2].decode()))
        else:
            blocks[number] = value
    if not {1, 2, 3, 4} <= set(numbers):
        raise ValueError("a required field is missing")
    return Frame(
        seq_id=numbers[1],
        log_id=numbers[2],
        service=numbers[3],
        method=numbers[4],
        headers=tuple(headers),
        payload_encoding=blocks.get(6, b"").decode(),
        payload_type=blocks.get(7, b"").decode(),
        payload=blocks.get(8, b""),
        log_id_new=blocks.get(9, b"").decode(),
    )


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _block(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("a number is cut off")
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not data[at - 1] & 0x80:
            return value, at


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        if key & 7 == 0:
            value, at = _read_varint(data, at)
            yield key >> 3, value
        elif key & 7 == 2:
            size, at = _read_varint(data, at)
            if at + size > len(data):
                raise ValueError("a block is cut off")
            yield key >> 3, data[at : at + size]
            at += size
        else:
            raise ValueError(f"wire type {key & 7} does not occur in a frame")
