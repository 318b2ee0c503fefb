"""Flood control: sliding windows over accepted calls, and penalties that grow when a closed chat is called again."""

from __future__ import annotations

import math
import time
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from channels.clock import Clock
from tests.emulators.telegram.errors import ApiError, too_many
from tests.emulators.telegram.limits import Limits, Window


@dataclass(slots=True)
class _Calls:
    """The accepted calls that some windows look at."""

    windows: Sequence[Window]
    times: deque[float] = field(default_factory=deque)

    def room_in(self, now: float, cost: int) -> tuple[float, Window | None]:
        """Seconds until `cost` more calls fit, and the window that is in the way (0 and None: they fit now)."""
        longest = max(window.seconds for window in self.windows)
        while self.times and self.times[0] <= now - longest:
            self.times.popleft()
        wait, full = 0.0, None
        for window in self.windows:
            inside = [at for at in self.times if at > now - window.seconds]
            over = len(inside) + cost - window.calls
            if over > 0:
                blocking = inside[min(over, len(inside)) - 1] if inside else now
                until = blocking + window.seconds - now
                if until > wait:
                    wait, full = until, window
        return wait, full

    def add(self, now: float, cost: int) -> None:
        self.times.extend([now] * cost)


@dataclass(slots=True)
class _Penalty:
    until: float
    first_length: float
    grace_until: float
    grace_wall_until: float


class FloodControl:
    """Decides which calls are too many. Raises the 429, with the broken rule when the client is to blame."""

    def __init__(self, clock: Clock, limits: Limits) -> None:
        self._clock = clock
        self._limits = limits
        self._bot = _Calls(limits.bot_windows)
        self._chats: dict[int, _Calls] = {}
        self._drafts: dict[int, _Calls] = defaultdict(lambda: _Calls(limits.draft_windows))
        self._penalties: dict[int, _Penalty] = {}
        self._draft_penalties: dict[int, _Penalty] = {}
        self._planned: dict[int, deque[float]] = defaultdict(deque)

    def plan(self, chat_id: int, seconds: float) -> None:
        """The next call to this chat is refused and the chat closed for `seconds`: weather, not the client's fault."""
        self._planned[chat_id].append(seconds)

    def penalise(self, chat_id: int, seconds: float) -> None:
        """The chat is closed for `seconds` from now, because the client was just told so."""
        self._penalties[chat_id] = self._penalty(seconds)

    def closed_for(self, chat_id: int) -> float:
        """Seconds the chat stays closed for sends and edits; 0 when it is open."""
        penalty = self._penalties.get(chat_id)
        return 0.0 if penalty is None else max(0.0, penalty.until - self._clock.now())

    def admit_message(self, chat_id: int, what: str, *, private: bool, cost: int = 1) -> None:
        """Count a send or an edit in its chat and in the bot's windows."""
        self._refuse_if_closed(self._penalties, chat_id, what)
        self._spring_planned(chat_id)
        now = self._clock.now()
        windows = self._limits.private_windows if private else self._limits.group_windows
        calls = self._chats.setdefault(chat_id, _Calls(windows))
        wait, window = calls.room_in(now, cost)
        if window is not None:
            length = max(math.ceil(wait), self._limits.penalty_seconds)
            self._penalties[chat_id] = self._penalty(length)
            raise too_many(
                length, rule=f"{what} in chat {chat_id}: more than {window.calls} calls in {window.seconds:g} s"
            )
        wait, window = self._bot.room_in(now, cost)
        if window is not None:
            raise too_many(
                max(1, math.ceil(wait)),
                rule=f"{what}: more than {window.calls} calls of the bot in {window.seconds:g} s",
            )
        calls.add(now, cost)
        self._bot.add(now, cost)

    def admit_draft(self, chat_id: int, what: str) -> None:
        """Count a draft frame or a chat action; a chat closed by a penalty takes none either."""
        self._refuse_if_closed(self._penalties, chat_id, what)
        self._refuse_if_closed(self._draft_penalties, chat_id, what)
        self._spring_planned(chat_id)
        now = self._clock.now()
        calls = self._drafts[chat_id]
        wait, window = calls.room_in(now, 1)
        if window is not None:
            length = min(math.ceil(wait), self._limits.draft_penalty)
            self._draft_penalties[chat_id] = self._penalty(length)
            raise too_many(
                length,
                rule=f"{what} in chat {chat_id}: more than {window.calls} drafts and actions in {window.seconds:g} s",
            )
        calls.add(now, 1)

    def _penalty(self, seconds: float) -> _Penalty:
        now = self._clock.now()
        return _Penalty(
            now + seconds,
            seconds,
            now + self._limits.grace_seconds,
            time.monotonic() + self._limits.grace_wall_seconds,
        )

    def _spring_planned(self, chat_id: int) -> None:
        if self._planned[chat_id]:
            seconds = self._planned[chat_id].popleft()
            self.penalise(chat_id, seconds)
            raise too_many(max(1, math.ceil(seconds)))

    def _refuse_if_closed(self, penalties: dict[int, _Penalty], chat_id: int, what: str) -> None:
        penalty = penalties.get(chat_id)
        now = self._clock.now()
        if penalty is None or now >= penalty.until:
            penalties.pop(chat_id, None)
            return
        raise self._called_when_closed(penalty, now, chat_id, what)

    def _called_when_closed(self, penalty: _Penalty, now: float, chat_id: int, what: str) -> ApiError:
        left = penalty.until - now
        if now < penalty.grace_until or time.monotonic() < penalty.grace_wall_until:
            return too_many(max(1, math.ceil(left)))
        penalty.until += penalty.first_length
        grown = max(1, math.ceil(penalty.until - now))
        return too_many(grown, rule=f"{what} in chat {chat_id} called {left:.1f} s before its penalty ended")
