"""`/console`: how the bridge is, for its operator; and dead letters, which can be asked again from here."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from channels.adapter import Health
from channels.control import CONSOLE
from channels.model import Action, Inbound, InboundKind, Press, Sender, TurnId
from channels.observe import redact
from channels.origin import FOREIGN, REFERRER_POLICY
from channels.server import AdminGuard, Readiness
from channels.store import Store
from channels.store.records import Counts, Lane, StoreError

_MOST_DEAD = 100
_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": REFERRER_POLICY,
    "cache-control": "no-store",
}
_pages = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "pages"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


@dataclass(frozen=True, slots=True)
class ChannelRow:
    """One line of the table of channels."""

    name: str
    health: Health
    owner: str
    counts: Counts


class Console:
    """The pages. `readiness`, `owners` and `replicas` are asked anew for every page."""

    def __init__(
        self,
        guard: AdminGuard,
        store: Callable[[], Store],
        readiness: Callable[[], Readiness],
        owners: Callable[[], Mapping[str, str | None]],
        replicas: Callable[[], Sequence[str]],
    ) -> None:
        self._guard = guard
        self._store = store
        self._readiness = readiness
        self._owners = owners
        self._replicas = replicas

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/console", self._page, methods=["GET"]),
            Route("/console/sign-in", self._sign_in, methods=["POST"]),
            Route("/console/retry/{turn}", self._retry, methods=["POST"]),
        ]

    async def _page(self, request: Request) -> Response:
        if not self._guard.allows(request):
            return self._sign_in_page(status=401) if self._guard.has_token else self._guard.refusal
        state, owners = self._readiness(), self._owners()
        problem = ""
        counts: dict[str, Counts] = {}
        dead = []
        try:
            counts = {entry.channel: entry for entry in await self._store().counts()}
            dead = await self._store().dead_letters(limit=_MOST_DEAD)
        except StoreError as error:
            problem = f"The store cannot be read now: {error}"
        rows = [
            ChannelRow(name, health, owners.get(name) or "nobody", counts.get(name) or Counts(name, 0, 0, 0))
            for name, health in sorted(state.channels.items())
        ]
        page = _pages.get_template("console.html").render(
            state=state, rows=rows, dead=dead, replicas=self._replicas(), problem=problem, when=_when
        )
        return HTMLResponse(redact(page), headers=_HEADERS)

    async def _sign_in(self, request: Request) -> Response:
        async with request.form(max_files=0, max_fields=2, max_part_size=4096) as form:
            given = form.get("token")
        if not isinstance(given, str) or not self._guard.matches(given.strip()):
            return self._sign_in_page(problem="That is not the admin token.", status=401)
        response = RedirectResponse("/console", 303)
        self._guard.remember(request, response)
        return response

    def _sign_in_page(self, *, problem: str = "", status: int) -> Response:
        page = _pages.get_template("sign_in.html").render(problem=problem)
        return HTMLResponse(page, status, headers=_HEADERS)

    async def _retry(self, request: Request) -> Response:
        if not self._guard.own_pages.sent(request):
            return PlainTextResponse(f"{FOREIGN}\n", 403)
        if not self._guard.allows(request):
            return self._guard.refusal
        turn = await self._store().turn(TurnId(request.path_params["turn"]))
        if turn is None:
            return PlainTextResponse("There is no such turn.\n", 404)
        inbound = Inbound(
            place=turn.conversation.place,
            sender=Sender(CONSOLE, "The console"),
            event_key=f"{CONSOLE}:{uuid.uuid4()}",
            kind=InboundKind.PRESS,
            text="",
            received_at=datetime.now(UTC).timestamp(),
            message_id=turn.question.message_id,
            press=Press(Action.RETRY, turn.id),
            extra={CONSOLE: True},
        )
        await self._store().accept(inbound, Lane.CONTROL)  # whichever replica owns the channel acts on it
        return RedirectResponse("/console", 303)


def _when(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
