"""The files that came with a question, fetched from the platform before the agent is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from channels.adapter import Adapter, Failure, RateLimited, Transient, Unknown
from channels.clock import Clock
from channels.inputs import InputFile
from channels.model import Attachment

_PATIENCE = 60.0
"""Seconds for which files that cannot be fetched just now are asked for again, from the first failure of any on."""
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 10.0


async def fetch_all(
    attachments: Sequence[Attachment], adapter: Adapter, clock: Clock, *, most_bytes: int
) -> tuple[tuple[InputFile, ...], Mapping[str, str]]:
    """The files; and of those that could not be had the names, each with the reason for operators."""
    files: list[InputFile] = []
    missing: dict[str, str] = {}
    tried: list[Attachment] = []
    insistent = _Insistent(adapter, clock, most_bytes)
    for attachment in attachments:
        if attachment in tried:
            continue  # several parts of an album refer to the same message
        tried.append(attachment)
        try:
            data = await insistent.fetch(attachment)
        except Failure as failure:
            missing[attachment.name] = str(failure)
        else:
            files.append(InputFile(attachment.name, attachment.mime, data))
    return tuple(files), missing


class _Insistent:
    """Fetches again what cannot be had just now, until its patience has ended for this file and for all after it."""

    def __init__(self, adapter: Adapter, clock: Clock, most_bytes: int) -> None:
        self._adapter = adapter
        self._clock = clock
        self._most_bytes = most_bytes
        self._ends: float | None = None

    async def fetch(self, attachment: Attachment) -> bytes:
        pause = _FIRST_PAUSE
        while True:
            try:
                return await _fetch(attachment, self._adapter, self._most_bytes)
            except (Transient, Unknown, RateLimited) as failure:
                now = self._clock.now()
                if self._ends is None:
                    self._ends = now + _PATIENCE
                pause = max(pause, failure.retry_after if isinstance(failure, RateLimited) else 0.0)
                if now + pause > self._ends:
                    raise
                await self._clock.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)


async def _fetch(attachment: Attachment, adapter: Adapter, most_bytes: int) -> bytes:
    data = bytearray()
    async for piece in adapter.fetch(attachment):
        data += piece
        if len(data) > most_bytes:
            raise Failure(f"larger than {most_bytes} bytes")
    return bytes(data)
