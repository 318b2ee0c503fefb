"""Places and readers that cannot have streams: remembered for a while, also across restarts."""

from __future__ import annotations

import structlog

from adapters.slack import limits
from adapters.slack.spot import Spot
from channels.adapter import Sink
from channels.clock import Clock

log = structlog.get_logger(__name__)

_MOST = 10_000


class StreamPlaces:
    """Knows at once what this process has learned, and asks the store once for what others have."""

    def __init__(self, sink: Sink, clock: Clock) -> None:
        self._sink = sink
        self._clock = clock
        self._refused_until: dict[str, float] = {}  # 0: asked the store, nothing known

    def known_to_refuse(self, spot: Spot) -> bool:
        """Whether this process knows that streams are refused there."""
        now = self._clock.now()
        return any(self._refused_until.get(key, 0.0) > now for key in _keys(spot))

    async def refuses(self, spot: Spot) -> bool:
        """Whether streams are known to be refused there. Never raises."""
        for key in _keys(spot):
            if key in self._refused_until:
                continue
            try:
                until = await self._sink.recall(key)
            except Exception:
                log.exception("cannot recall where streams are refused; they are tried")
                continue
            self._keep(key, float(until) if isinstance(until, int | float) else 0.0)
        return self.known_to_refuse(spot)

    async def refused(self, spot: Spot, reason: str, *, reader_only: bool) -> None:
        """Streams were refused there. Never raises."""
        key = _keys(spot)[1 if reader_only else 0]
        until = self._clock.now() + limits.STREAM_REFUSAL_TTL
        self._keep(key, until)
        log.info("no streams here; answers grow by edits", place=spot.channel, cause=reason)
        try:
            await self._sink.remember(key, until, limits.STREAM_REFUSAL_TTL)
        except Exception:
            log.exception("cannot remember where streams are refused")

    def _keep(self, key: str, until: float) -> None:
        self._refused_until[key] = until
        while len(self._refused_until) > _MOST:
            del self._refused_until[next(iter(self._refused_until))]


def _keys(spot: Spot) -> tuple[str, str]:
    return f"no-stream:{spot.channel}", f"no-stream:{spot.channel}:{spot.user}"
