"""What stands before every API: tokens, scopes and rates."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping

from channels.clock import Clock
from tests.emulators.feishu.limits import Api, Limits, Rate
from tests.emulators.feishu.refusals import Json, Refusal
from tests.emulators.feishu.world import Ids


class Tokens:
    """Tenant access tokens on the clock: renewed when little is left, the old one good until its own end."""

    def __init__(self, clock: Clock, limits: Limits, ids: Ids, app_id: str, app_secret: str) -> None:
        self._clock = clock
        self._limits = limits
        self._ids = ids
        self._app_id = app_id
        self._app_secret = app_secret
        self._ends: dict[str, float] = {}
        self._told: dict[str, float] = {}  # token → when the client first learned that it is bad
        self.issued: list[str] = []

    def issue(self, app_id: object, app_secret: object) -> Json:
        if app_id != self._app_id:
            raise Refusal(10003, "unknown app_id", broken=False)
        if app_secret != self._app_secret:
            raise Refusal(10014, "wrong app_secret", broken=False)
        now = self._clock.now()
        token, ends = max(self._ends.items(), key=lambda item: item[1], default=("", 0.0))
        if ends - now < self._limits.token_renewal_seconds:
            token, ends = self._ids.hex("t-", 40), now + self._limits.token_seconds
            self._ends[token] = ends
            self.issued.append(token)
        return {"code": 0, "msg": "ok", "tenant_access_token": token, "expire": int(ends - now)}

    def revoke_all(self) -> None:
        self._ends.clear()

    def check(self, authorization: str) -> None:
        scheme, _, token = authorization.partition(" ")
        if scheme != "Bearer" or not token:
            raise Refusal(99991661, "no bearer token")
        now = self._clock.now()
        ends = self._ends.get(token)
        if ends is not None and now < ends:
            return
        told = self._told.setdefault(token, now)
        if ends is not None:
            raise Refusal(99991663, f"the token ended {now - ends:.1f} s ago")
        again = now - told > max(self._limits.grace_seconds, 5.0)
        unknown = token not in self.issued
        raise Refusal(99991663, "the token is not valid (any more)", broken=again or unknown)


class Scopes:
    """The scopes granted to the app."""

    def __init__(self, granted: Iterable[str]) -> None:
        self.granted = set(granted)

    def allow(self, scopes: tuple[str, ...]) -> bool:
        return not scopes or not self.granted.isdisjoint(scopes)

    def check(self, api: Api) -> None:
        if self.allow(api.scopes):
            return
        names = ", ".join(api.scopes)
        raise Refusal(
            99991672,
            f"scope missing for {api.name}",
            broken=False,
            msg=f"Access denied. One of the following scopes is required: [{names}]. "
            f"应用尚未开通所需的应用身份权限：[{names}]",
            error={
                "permission_violations": [
                    {"type": "action_scope_required", "subject": subject} for subject in api.scopes
                ],
            },
        )


class Rates:
    """Sliding windows, and the closed times that follow when one is over-run."""

    def __init__(self, clock: Clock, limits: Limits, rates: Mapping[str, tuple[Rate, ...]], jitter: float) -> None:
        self._clock = clock
        self._limits = limits
        self._rates = dict(rates)
        self._jitter = jitter + 1e-6  # times since the epoch are exact to some 0.2 µs
        self._calls: dict[tuple[str, str], deque[float]] = defaultdict(deque)
        self._closed: dict[tuple[str, str], tuple[float, float, int]] = {}  # budget → (since, until, limit)

    def close(self, kind: str, key: str, seconds: float, limit: int) -> None:
        """A refusal that the test planned closes a budget just as an over-run does."""
        now = self._clock.now()
        self._closed[(kind, key)] = (now, now + seconds, limit)

    def draw(self, *budgets: tuple[str, str]) -> None:
        """Count one call on all these budgets, or refuse it on account of one."""
        now = self._clock.now()
        for budget in budgets:
            if (closed := self._closed.get(budget)) is not None:
                self._check_closed(budget, *closed, now)
        for budget in budgets:
            calls = self._calls[budget]
            longest = max(rate.seconds for rate in self._rates[budget[0]])
            while calls and now - calls[0] >= longest - self._jitter:
                calls.popleft()
            for rate in self._rates[budget[0]]:
                self._check_rate(budget, rate, calls, now)
        for budget in budgets:
            self._calls[budget].append(now)

    def _check_closed(self, budget: tuple[str, str], since: float, until: float, limit: int, now: float) -> None:
        if now + self._jitter >= until:
            del self._closed[budget]
            return
        early = f"called {until - now:.2f} s before the end of the closed time of {_name(budget)}"
        raise _too_many(budget, early, limit, until - now, broken=now - since > self._limits.grace_seconds)

    def _check_rate(self, budget: tuple[str, str], rate: Rate, calls: deque[float], now: float) -> None:
        recent = [at for at in calls if now - at < rate.seconds - self._jitter]
        if len(recent) < rate.calls:
            return
        reset = max(1.0, math.ceil(recent[-rate.calls] + rate.seconds - now))
        self._closed[budget] = (now, now + reset, rate.calls)
        raise _too_many(
            budget, f"more than {rate.calls} calls in {rate.seconds:g} s: {_name(budget)}", rate.calls, reset
        )


def _name(budget: tuple[str, str]) -> str:
    return f"{budget[0]} {budget[1]}".strip()


def _too_many(budget: tuple[str, str], why: str, limit: int, reset: float, *, broken: bool = True) -> Refusal:
    if budget[0] == "message":
        return Refusal(230020, why, broken=broken)
    headers = {"x-ogw-ratelimit-limit": str(limit), "x-ogw-ratelimit-reset": str(max(1, math.ceil(reset)))}
    return Refusal(99991400, why, broken=broken, msg="request trigger frequency limit", headers=headers)
