"""The emulator from outside its process: a JSON API under `/_control`, and a page that shows the chats."""

from __future__ import annotations

import base64
import binascii
import inspect
from dataclasses import asdict
from html import escape

from aiohttp import web

from tests.emulators.journal import Fault, FaultKind
from tests.emulators.slack.blocks import JsonObject
from tests.emulators.slack.deliveries import Delivery
from tests.emulators.slack.emulator import SlackEmulator
from tests.emulators.slack.picture import describe

ACTIONS = frozenset(
    {
        "send",
        "dm",
        "upload",
        "share",
        "edit",
        "delete",
        "say_as_bot",
        "react",
        "press",
        "slash_command",
        "press_stop",
        "open_home",
        "open_assistant",
        "invite_bot",
        "remove_bot",
        "refuse_token",
        "grant",
        "throttle",
        "configure",
        "archive",
        "outage",
        "refuse_streams",
        "refuse_ends",
        "refuse_edits",
        "refuse_replies",
        "expire_streams",
        "refuse_sockets",
        "disconnect_sockets",
        "drop_sockets",
        "freeze_sockets",
        "thaw_sockets",
        "use_http",
        "verify_url",
        "hold",
        "release",
        "redeliver",
        "event",
    }
)
"""The methods of SlackEmulator that can be called from outside, with their own argument names."""


class Control:
    """Adds the control API and the page to an emulator; to be done before it starts."""

    def __init__(self, slack: SlackEmulator) -> None:
        self._slack = slack
        slack.web.router.add_get("/", self.page)
        slack.web.router.add_get("/_control/state", self.state)
        slack.web.router.add_post("/_control/fault", self.plan)
        slack.web.router.add_post("/_control/{action}", self.act)

    async def act(self, request: web.Request) -> web.Response:
        """`POST /_control/<method>` with its arguments as a JSON object; answers `{"result": …}` or `{"error": …}`."""
        name = request.match_info["action"]
        if name not in ACTIONS:
            return web.json_response({"error": f"unknown action {name}"}, status=404)
        try:
            args: JsonObject = await request.json() if request.can_read_body else {}
            if name == "upload":
                args["files"] = {file: base64.b64decode(content) for file, content in args["files"].items()}
            result = getattr(self._slack, name)(**args)
            if inspect.isawaitable(result):
                result = await result
        except (AssertionError, KeyError, TypeError, ValueError, AttributeError, binascii.Error) as error:
            return web.json_response({"error": f"{type(error).__name__}: {error}"}, status=400)
        return web.json_response({"result": _delivery(result) if isinstance(result, Delivery) else result})

    async def plan(self, request: web.Request) -> web.Response:
        """Plan a fault: `{"method", "kind", "status", "headers", "body", "seconds"}`."""
        wanted = await request.json()
        method = wanted.pop("method")
        kind = FaultKind(wanted.pop("kind"))
        self._slack.faults.plan(method, Fault(kind, **wanted))
        return web.json_response({"result": None})

    async def state(self, request: web.Request) -> web.Response:
        """All that can be looked at: chats, status lines, sessions, deliveries, calls, broken rules."""
        del request
        slack = self._slack
        return web.json_response(
            {
                "now": slack.clock.now(),
                "chats": {
                    channel: [asdict(message) for message in slack.chat(channel)] for channel in slack.world.channels
                },
                "statuses": [[*thread, text] for thread, text in slack.statuses.items()],
                "sessions": [[*thread, asdict(session)] for thread, session in slack.sessions.items()],
                "sockets": len(slack.sockets.connections),
                "deliveries": [_delivery(delivery) for delivery in slack.deliveries],
                "calls": [asdict(call) for call in slack.journal.calls],
                "broken": slack.journal.broken,
            },
        )

    async def page(self, request: web.Request) -> web.Response:
        """The chats as text, drawn anew every second."""
        del request
        slack = self._slack
        busy = [channel for channel in slack.world.channels.values() if channel.messages]
        chats = "".join(
            f"<h2>{escape(channel.name or channel.id)}</h2><pre>{escape(describe(slack.chat(channel.id)))}</pre>"
            for channel in busy
        )
        statuses = "".join(f"<li>{escape(f'{at}: {text}')}</li>" for at, text in slack.statuses.items())
        broken = "".join(f"<li>{escape(rule)}</li>" for rule in slack.journal.broken)
        return web.Response(
            content_type="text/html",
            text='<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="1">'
            "<title>Emulated Slack</title><style>pre{white-space:pre-wrap}</style></head><body><h1>Emulated Slack</h1>"
            f"{chats or '<p>Nothing has been said yet.</p>'}<h2>Status lines</h2><ul>{statuses}</ul>"
            f"<h2>Broken rules</h2><ul>{broken}</ul></body></html>",
        )


def _delivery(delivery: Delivery) -> JsonObject:
    return {
        "id": delivery.id,
        "kind": delivery.kind,
        "state": delivery.state,
        "payload": delivery.payload,
        "attempts": [asdict(attempt) for attempt in delivery.attempts],
        "answer": delivery.answer,
    }
