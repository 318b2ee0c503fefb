"""What is known of each chat's limits: closed by a 429, and how many chat actions it may still take."""

from __future__ import annotations

from collections import deque

from adapters.telegram.limits import ACTION_SECONDS, ACTIONS
from adapters.telegram.ops import Where
from channels.clock import Clock

_MOST_REMEMBERED = 1000


class Chats:
    """Shared by all calls of one bot. The pacer knows of the calls of replies only; this knows of all."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._closed_until: dict[str, float] = {}
        self._actions: dict[str, deque[float]] = {}
        self._acted_at: dict[Where, float] = {}

    def close(self, chat: str, seconds: float) -> None:
        """Telegram refused a call to the chat for its rate; each further one would make the time longer."""
        until = self._clock.now() + seconds
        self._closed_until[chat] = max(until, self._closed_until.get(chat, 0.0))

    def closed_for(self, chat: str) -> float:
        """Seconds for which nothing may be sent to the chat; 0 when it is open."""
        left = self._closed_until.get(chat, 0.0) - self._clock.now()
        if left <= 0:
            self._closed_until.pop(chat, None)
        return max(0.0, left)

    def may_act(self, where: Where) -> bool:
        """Whether a chat action is worth it now, and within what drafts leave of the limit they share; counts it."""
        now = self._clock.now()
        if self.closed_for(where.chat) > 0 or now - self._acted_at.get(where, 0.0) < ACTION_SECONDS - 0.5:
            return False
        recent = self._actions.setdefault(where.chat, deque())
        while recent and recent[0] <= now - ACTIONS.window:
            recent.popleft()
        if len(recent) >= ACTIONS.limit:
            return False
        recent.append(now)
        if len(self._acted_at) >= _MOST_REMEMBERED:
            self._acted_at.clear()
            self._actions = {where.chat: recent}
        self._acted_at[where] = now
        return True
