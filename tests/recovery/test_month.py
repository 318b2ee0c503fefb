"""A month of traffic in what a web channel keeps for itself: bounded, like the bridge's own store."""

from __future__ import annotations

from pathlib import Path

from adapters.web.log import EntryKind, Record, Upload
from adapters.web.sqllog import SqlLog
from tests.clock import ManualClock

_DAY = 86_400.0
_KEPT_DAYS = 3
_BROWSERS = 5


async def test_a_month_of_pages_stays_bounded(tmp_path: Path) -> None:
    path = tmp_path / "web.db"
    log = SqlLog(f"sqlite:///{path}", "web", ManualClock())
    await log.open()
    sizes: list[int] = []
    for today in range(30):
        now = today * _DAY
        for browser in range(_BROWSERS):
            seq = 2 * today
            await log.put(f"b{browser}", Record(f"ask-{today}", EntryKind.ASK, seq, seq, now, "a question"))
            await log.save_upload(f"b{browser}", Upload(f"file-{today}", "a.bin", "text/plain", b"x" * 20_000), now)
            for written in range(3):  # an answer that grows
                body = "x" * 10_000 * (written + 1)
                await log.put(
                    f"b{browser}", Record(f"reply-{today}", EntryKind.REPLY, seq, seq + 1, now, body, written)
                )
        await log.prune(now - _KEPT_DAYS * _DAY)
        sizes.append(path.stat().st_size)
    kept = await log.newest("b0", 1000)
    await log.close()
    assert [record.id for record in kept][-2:] == ["ask-29", "reply-29"]
    assert len(kept) == 2 * (_KEPT_DAYS + 1)
    assert max(sizes[10:]) <= 1.2 * sizes[6]
