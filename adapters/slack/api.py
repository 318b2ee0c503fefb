"""Slack's Web API through slack-sdk: one shared session, no retries of its own, every error as a failure.

Exceptions of the SDK carry requests and responses; none of them leaves this file.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from urllib.parse import urlsplit

import aiohttp
import structlog
from pydantic import JsonValue
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient

from adapters.slack import limits
from adapters.slack.failures import failure_of
from channels.adapter import (
    SLOWEST_LINE,
    Draw,
    Failure,
    Forbidden,
    Gone,
    RateLimited,
    Refused,
    TooLarge,
    Transient,
    Unauthorised,
    Unknown,
)
from channels.clock import Clock
from channels.shapes import as_list, as_object, as_text
from config.slack import SlackChannel

log = structlog.get_logger(__name__)

Answer = Mapping[str, JsonValue]

_FORMS = frozenset(
    {
        "bots.info",
        "conversations.history",
        "conversations.info",
        "conversations.replies",
        "files.getUploadURLExternal",
        "files.info",
        "users.info",
    }
)
"""Methods that read a form and no JSON."""
_TIMEOUT = 10.0  # seconds for one call
_CONNECT_TIMEOUT = 5.0
_KEEP_ALIVE = 10.0  # seconds; a connection that idles longer may be closed by Slack while we send
_CHUNK = 65_536  # bytes


class SideGate:
    """Lets calls through that nobody waits for, as long as their rate allows."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._calls: dict[str, deque[float]] = {}
        self._began = -math.inf
        self._closed: dict[str, float] = {}

    def admits(self, method: str) -> bool:
        """Whether the call may be made now; if so, it is counted."""
        now = self._clock.now()
        if self._closed.get(method, 0.0) > now:
            return False
        calls = self._calls.get(method)
        if calls is None:
            calls = self._calls[method] = deque(self._inherited(method, now))
        while calls and calls[0] <= now - 60.0:
            calls.popleft()
        if len(calls) >= limits.SIDE_CALLS.get(method, 20):
            return False
        calls.append(now)
        return True

    def begin(self) -> None:
        """The channel was another process's until now, which may have spent what can do without."""
        self._began = self._clock.now()
        self._calls.clear()

    def _inherited(self, method: str, now: float) -> Iterator[float]:
        """An earlier owner's calls, as if it had made all it might, evenly, in the minute before the beginning."""
        most = limits.SIDE_CALLS.get(method, 20)
        if method in limits.ORNAMENTS and now < self._began + 60.0:
            yield from (self._began - 60.0 + 60.0 * number / most for number in range(most))

    def close(self, method: str, seconds: float) -> None:
        self._closed[method] = self._clock.now() + seconds


class SlackApi:
    """The calls of one channel. Works without `open`, then with a connection for each call.

    `token_judged` hears after each call, but for side calls, what Slack thinks of the bot token: "" or the reason of a
    refusal.
    """

    def __init__(self, settings: SlackChannel, clock: Clock, token_judged: Callable[[str], None]) -> None:
        self._settings = settings
        self._token_judged = token_judged
        self._gate = SideGate(clock)
        self._session: aiohttp.ClientSession | None = None

    def open(self) -> None:
        """Keep connections from now on. Must be called in the event loop."""
        if self._session is None:
            self._gate.begin()
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=_TIMEOUT, sock_connect=_CONNECT_TIMEOUT),
                connector=aiohttp.TCPConnector(keepalive_timeout=_KEEP_ALIVE, limit=100),
            )

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    # ---------------------------------------------------------------- calls

    async def call(self, method: str, **args: JsonValue) -> Answer:
        """Make one call with the bot token. Arguments that are None are left out. Raises a `Failure`."""
        answer, _ = await self._judged(method, args)
        return answer

    async def ask(self, method: str, **args: JsonValue) -> Answer | None:
        """A call that is not worth waiting or failing for: None when its rate is used up or it is refused."""
        answer = await self._aside(method, args)
        if isinstance(answer, Failure):
            log.debug("side call not accepted", method=method, cause=str(answer))
            return None
        return answer

    async def try_ask(self, method: str, **args: JsonValue) -> Failure | None:
        """Like `ask`, for calls whose refusal tells something: the failure, None when accepted."""
        answer = await self._aside(method, args)
        return answer if isinstance(answer, Failure) else None

    async def who_am_i(self) -> tuple[Answer, frozenset[str]]:
        """`auth.test`, and the scopes of the bot token. Raises a `Failure`."""
        answer, headers = await self._judged("auth.test", {})
        scopes = headers.get("x-oauth-scopes", "")
        return answer, frozenset(scope.strip() for scope in scopes.split(",") if scope.strip())

    async def _judged(self, method: str, args: Mapping[str, JsonValue]) -> tuple[Answer, Mapping[str, str]]:
        try:
            answered = await self._call(method, self._settings.bot_token.get_secret_value(), args)
        except Unauthorised as failure:
            self._token_judged(str(failure))
            raise
        self._token_judged("")
        return answered

    async def _aside(self, method: str, args: Mapping[str, JsonValue]) -> Answer | Failure:
        """A side call; what becomes of it says nothing about the channel."""
        if not self._gate.admits(method):
            return RateLimited(0.0, Draw(method))
        try:
            answer, _ = await self._call(method, self._settings.bot_token.get_secret_value(), args)
        except RateLimited as failure:
            self._gate.close(method, failure.retry_after)
            return failure
        except Failure as failure:
            return failure
        return answer

    async def socket_address(self) -> str:
        """A fresh address for Socket Mode, good once and for half a minute. Raises a `Failure`."""
        token = self._settings.app_token
        if token is None:
            raise Unauthorised("unauthorised: there is no app_token")
        answer, _ = await self._call("apps.connections.open", token.get_secret_value(), {})
        return as_text(answer.get("url"))

    async def _call(self, method: str, token: str, args: Mapping[str, JsonValue]) -> tuple[Answer, Mapping[str, str]]:
        client = AsyncWebClient(
            token,
            base_url=self._settings.api_base_url,
            session=self._session,
            timeout=int(_TIMEOUT),
            retry_handlers=[],
        )
        given = {name: value for name, value in args.items() if value is not None}
        try:
            async with asyncio.timeout(_TIMEOUT + 2.0):
                if method in _FORMS:
                    response = await client.api_call(method, data=given)
                else:
                    response = await client.api_call(method, json=given)
            data = response.data
            headers = {str(name).lower(): str(value) for name, value in response.headers.items()}
        except SlackApiError as error:
            raise _refused(method, error) from None
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
            raise Transient(f"{method}: Slack cannot be reached") from None
        except (aiohttp.ClientError, TimeoutError, OSError, SlackClientError) as error:
            raise Unknown(f"{method}: no answer ({type(error).__name__})") from None
        return (data if isinstance(data, dict) else {}), headers

    # ---------------------------------------------------------------- files

    async def upload(self, url: str, data: bytes) -> None:
        """The bytes of a file to the address that Slack gave for them. Raises a `Failure`."""
        await self._post(limits.UPLOAD, url, _TIMEOUT + len(data) / SLOWEST_LINE, data=data)

    async def respond(self, url: str, message: Mapping[str, JsonValue]) -> None:
        """A message to the `response_url` that came with a command. Raises a `Failure`; `Gone`: it is used up."""
        await self._post(limits.RESPONSE, url, _TIMEOUT, json=dict(message))

    async def _post(
        self, budget: str, url: str, seconds: float, *, data: bytes | None = None, json: JsonValue = None
    ) -> None:
        """POST to an address that Slack has given, which is secret enough: the token has no business there."""
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=_CONNECT_TIMEOUT)
        try:
            async with self._need_session().post(url, data=data, json=json, timeout=timeout) as response:
                await response.read()
                status, retry_after = response.status, response.headers.get("Retry-After")
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
            raise Transient(f"{budget}: Slack cannot be reached") from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unknown(f"{budget}: no answer ({type(error).__name__})") from None
        if status == 429 or status >= 500:
            raise failure_of(budget, status, "", retry_after=retry_after)
        if status in (404, 410):
            raise Gone(f"{budget}: HTTP {status}")
        if status >= 300:
            raise Refused(f"{budget}: HTTP {status}")

    async def download(self, url: str, mime: str, most: int) -> AsyncIterator[bytes]:
        """The bytes of a file that a person sent, at most `most`. Raises a `Failure`."""
        if not self._is_slack(url):
            raise Refused("the file is not kept by Slack")
        token = self._settings.bot_token.get_secret_value()
        seconds = _TIMEOUT + most / SLOWEST_LINE
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=_CONNECT_TIMEOUT)
        headers = {"Authorization": f"Bearer {token}"}
        try:
            async with self._need_session().get(url, headers=headers, timeout=timeout) as response:
                _check_download(response, mime)
                size = 0
                async for chunk in response.content.iter_chunked(_CHUNK):
                    size += len(chunk)
                    if size > most:
                        raise TooLarge(f"the file is larger than {most} bytes", most)
                    yield chunk
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Transient(f"the file could not be fetched ({type(error).__name__})") from None

    def _is_slack(self, url: str) -> bool:
        """Whether the token may be sent there."""
        parts, own = urlsplit(url), urlsplit(self._settings.api_base_url)
        host = parts.hostname or ""
        if (parts.scheme, host, parts.port) == (own.scheme, own.hostname, own.port):
            return True
        return parts.scheme == "https" and (host == "slack.com" or host.endswith(".slack.com"))

    def _need_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise Transient("the channel is not running")
        return self._session

    async def connect(self, address: str) -> aiohttp.ClientWebSocketResponse:
        """Open a socket at an address from `socket_address`. Pings and pongs are the caller's. Raises `Transient`."""
        try:
            return await self._need_session().ws_connect(
                address,
                autoping=False,
                max_msg_size=0,
                timeout=aiohttp.ClientWSTimeout(ws_close=1.0),
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            status = getattr(error, "status", None)
            raise Transient(f"the socket was refused ({status or type(error).__name__})") from None


def _refused(method: str, error: SlackApiError) -> Failure:
    response = error.response
    status = getattr(response, "status_code", None) or getattr(response, "status", None) or 0
    headers = {str(name).lower(): str(value) for name, value in (getattr(response, "headers", None) or {}).items()}
    data = getattr(response, "data", None)
    answer: Answer = data if isinstance(data, dict) else {}
    messages = as_list(as_object(answer.get("response_metadata")).get("messages"))
    needed = as_text(answer.get("needed"))
    details = f"needs the scope {needed}" if needed else "; ".join(as_text(text)[:200] for text in messages[:2])
    return failure_of(
        method,
        int(status),
        as_text(answer.get("error")),
        retry_after=headers.get("retry-after"),
        details=details,
    )


def _check_download(response: aiohttp.ClientResponse, mime: str) -> None:
    if response.status in (404, 410):
        raise Gone("the file is gone")
    if response.status in (401, 403):
        raise Forbidden(f"the file may not be read (HTTP {response.status})")
    if response.status >= 400:
        raise Transient(f"the file could not be fetched (HTTP {response.status})")
    if response.content_type == "text/html" and not mime.startswith("text/html"):
        # Slack answers 200 with its sign-in page when the token is not accepted.
        raise Forbidden("Slack does not accept the token for files: the scope files:read is missing")
