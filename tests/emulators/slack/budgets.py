"""Rate limits of the Web API: per method, app and workspace; chat.postMessage per conversation as well."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from dataclasses import dataclass, field

from tests.emulators.slack import rules
from tests.emulators.slack.rules import Window

Scope = tuple[str, ...]
"""What a limit is counted for: (method, workspace) or (method, workspace, conversation)."""


@dataclass(slots=True)
class Closure:
    """A scope that is closed: since when, until when, and which targets have been told so."""

    since: float
    until: float
    told: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a call is not let through: for how many seconds, and the rule the client broke, when it was the client."""

    retry_after: int
    broken: str


class Budgets:
    """Counts calls in sliding windows and remembers for how long a scope is closed after a 429.

    `jitter` shortens every window by that many seconds of the clock, so that a client that keeps exactly to the rate is
    not blamed for a request that travelled faster than the one before it. A faster clock wants a larger value.
    """

    def __init__(self, jitter: float = 1.0) -> None:
        self._jitter = jitter
        self._calls: dict[Scope, deque[float]] = defaultdict(deque)
        self._tokens: dict[Scope, tuple[float, float]] = {}
        self._closed: dict[Scope, Closure] = {}
        self._throttled: dict[str, Window] = {}

    def throttle(self, method: str, window: Window | None) -> None:
        """Allow less than the vendor's paper says (None: as documented again); to run into it is no broken rule."""
        if window is None:
            self._throttled.pop(method, None)
        else:
            self._throttled[method] = window

    def close(self, scope: Scope, target: str, now: float, seconds: float) -> None:
        """Refuse this scope for so long, and hold every call before then against the client."""
        closure = self._closed.get(scope)
        if closure is None or closure.until <= now:
            closure = self._closed[scope] = Closure(now, now)
        closure.until = max(closure.until, now + seconds)
        closure.told.add(target)

    def penalty(self, method: str, team: str, channel: str, target: str, now: float) -> Verdict | None:
        """The refusal of a call that comes while its scope is closed. `target` names what the call is about."""
        for scope in self.scopes(method, team, channel):
            closure = self._closed.get(scope)
            if closure is None or closure.until <= now:
                continue
            left = closure.until - now
            underway = target not in closure.told and now - closure.since <= self._jitter
            closure.told.add(target)
            broken = "" if underway else f"{method} called {left:.1f} s before Retry-After was over"
            return Verdict(math.ceil(left), broken)
        return None

    def admit(self, method: str, team: str, channel: str, target: str, now: float) -> Verdict | None:
        """Count a call; the refusal when it is one too many, which also closes its scope."""
        documented = rules.METHODS[method].rate
        scope: Scope = (method, team)
        wait = self._window(scope, documented, now)
        broken = f"{method} more than {documented.count} times in {documented.seconds:g} s"
        if wait is None and method in self._throttled:
            wait, broken = self._window(scope, self._throttled[method], now), ""
        if wait is None and method == "chat.postMessage":
            scope = (method, team, channel)
            wait, broken = self._bucket(scope, now), f"{method} more than once a second in {channel}"
        if wait is not None:
            seconds = max(1, math.ceil(wait))
            self.close(scope, target, now, seconds)
            return Verdict(seconds, broken)
        self._calls[(method, team)].append(now)
        return None

    def scopes(self, method: str, team: str, channel: str) -> list[Scope]:
        """The scopes that a call counts for, the widest first."""
        wide: Scope = (method, team)
        return [wide, (method, team, channel)] if method == "chat.postMessage" else [wide]

    def _window(self, scope: Scope, window: Window, now: float) -> float | None:
        """Seconds until the window has room, None when it has."""
        calls = self._calls[scope]
        while calls and calls[0] <= now - max(window.seconds, 60.0):
            calls.popleft()
        span = max(0.0, window.seconds - self._jitter)
        recent = [at for at in calls if at > now - span]
        if len(recent) < window.count:
            return None
        return recent[-window.count] + span - now

    def _bucket(self, scope: Scope, now: float) -> float | None:
        tokens, at = self._tokens.get(scope, (float(rules.POST_CHANNEL_BURST), now))
        tokens = min(float(rules.POST_CHANNEL_BURST), tokens + (now - at) * rules.POST_CHANNEL_PER_SECOND)
        if tokens < 1.0:
            self._tokens[scope] = (tokens, now)
            return (1.0 - tokens) / rules.POST_CHANNEL_PER_SECOND
        self._tokens[scope] = (tokens - 1.0, now)
        return None
