"""The files that came with a question, fetched from the platform before the agent is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from channels.adapter import Adapter, Failure, RateLimited, Transient, Unknown
from channels.clock import Clock
from channels.inputs import InputFile
from channels.model import Attachment

_PATIENCE = 60.0
"""Seconds for which a file that cannot be fetched just now is asked for again, from the first failure on."""
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 10.0


async def fetch_all(
    attachments: Sequence[Attachment], adapter: Adapter, clock: Clock, *, most_bytes: int
) -> tuple[tuple[InputFile, ...], Mapping[str, str]]:
    """The files; and of those that could not be had the names, each with the reason for operators."""
    files: list[InputFile] = []
    missing: dict[str, str] = {}
    tried: list[Attachment] = []
    for attachment in attachments:
        if attachment in tried:
            continue  # several parts of an album refer to the same message
        tried.append(attachment)
        try:
            data = await _insist(attachment, adapter, clock, most_bytes)
        except Failure as failure:
            missing[attachment.name] = str(failure)
        else:
            files.append(InputFile(attachment.name, attachment.mime, data))
    return tuple(files), missing


async def _insist(attachment: Attachment, adapter: Adapter, clock: Clock, most_bytes: int) -> bytes:
    pause = _FIRST_PAUSE
    ends = None
    while True:
        try:
            return await _fetch(attachment, adapter, most_bytes)
        except (Transient, Unknown, RateLimited) as failure:
            ends = ends or clock.now() + _PATIENCE
            pause = max(pause, failure.retry_after if isinstance(failure, RateLimited) else 0.0)
            if clock.now() + pause > ends:
                raise
            await clock.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


async def _fetch(attachment: Attachment, adapter: Adapter, most_bytes: int) -> bytes:
    data = bytearray()
    async for piece in adapter.fetch(attachment):
        data += piece
        if len(data) > most_bytes:
            raise Failure(f"larger than {most_bytes} bytes")
    return bytes(data)
