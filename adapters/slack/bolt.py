"""Bolt in front of the bridge: signatures and the handshakes are its business, storing comes before its ack.

What Bolt does after its checks (asking Slack who we are, running listeners) would come too late or fail the ack, so the
bridge takes every delivery in the middleware that runs right after the signature was checked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from pydantic import JsonValue
from slack_bolt import BoltResponse
from slack_bolt.async_app import AsyncApp
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_sdk.web.async_client import AsyncWebClient
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from config.slack import SlackChannel

Take = Callable[[Mapping[str, JsonValue]], Awaitable[bool]]
"""Takes the body of a delivery; False when it could not be stored and has to come again."""

_HANDSHAKES = frozenset({"url_verification", "ssl_check"})
_ACK = 200
_AGAIN = 503


class Door:
    """Hands deliveries from Bolt to `take`."""

    def __init__(self, settings: SlackChannel, take: Take) -> None:
        self._take = take
        secret = settings.signing_secret
        self._app = AsyncApp(
            name="channel-bridge",
            client=AsyncWebClient(
                settings.bot_token.get_secret_value(), base_url=settings.api_base_url, retry_handlers=[]
            ),
            signing_secret=secret.get_secret_value() if secret is not None else "unused: no HTTP mode",
            before_authorize=self._middleware,
        )

    async def _middleware(
        self, body: Mapping[str, JsonValue], next: Callable[[], Awaitable[BoltResponse]]
    ) -> BoltResponse:
        if body.get("type") in _HANDSHAKES:
            return await next()
        return BoltResponse(status=_ACK if await self._take(body) else _AGAIN, body="")

    async def from_socket(self, payload: Mapping[str, JsonValue]) -> bool:
        """A delivery over Socket Mode; True when it may be acked."""
        request = AsyncBoltRequest(mode="socket_mode", body=dict(payload))
        response = await self._app.async_dispatch(request)
        return bool(response.status == _ACK)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The request URL, as an ASGI application."""
        response = await self._answer(Request(scope, receive))
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        if request.method != "POST":
            return PlainTextResponse("Slack posts here.\n", 405, {"allow": "POST"})
        try:
            body = (await request.body()).decode()
            headers = {name: [value] for name, value in request.headers.items()}
            bolt = AsyncBoltRequest(mode="http", body=body, query=request.url.query, headers=dict(headers))
        except (ValueError, RecursionError):  # Bolt reads the body before it checks who sent it
            return PlainTextResponse("not a request of Slack\n", 400)
        answer = await self._app.async_dispatch(bolt)
        response = Response(answer.body, answer.status)
        for name, values in answer.headers.items():
            if name.lower() == "content-type" and values:
                response.headers[name] = values[0]
        return response
