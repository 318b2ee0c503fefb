"""The Open API of one app: one HTTP client, one token that is fetched once for all who wait, errors as data."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass

import anyio
import httpx
import structlog
from pydantic import JsonValue

from adapters.feishu.errors import SEQUENCE_USED, ApiRefusal, Means, scopes_in
from channels.adapter import Failure, Transient, Unauthorised, Unknown
from channels.clock import Clock
from channels.strict_json import read_json

log = structlog.get_logger(__name__)

_TIMEOUT = httpx.Timeout(10.0, connect=5.0, pool=10.0)
_LIMITS = httpx.Limits(max_connections=50, max_keepalive_connections=20, keepalive_expiry=60.0)
_RENEW_BEFORE = 300.0  # seconds before its end a token is replaced; the platform gives a new one from 30 min on
_TOKEN_PATH = "/open-apis/auth/v3/tenant_access_token/internal"
_CHUNK = 65_536
_LARGEST_REFUSAL = 65_536  # bytes; what is larger is no word of the platform's own

Json = dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Upload:
    """A file to be sent in a form."""

    field: str
    name: str
    data: bytes

    def form(self) -> dict[str, tuple[str, io.BytesIO]]:
        """The form's file. What is written in pieces has the client's time for each of them, not for the whole."""
        return {self.field: (self.name, io.BytesIO(self.data))}


class Api:
    """Calls with the app's tenant token. Raises `ApiRefusal` for what the platform answers, `Failure`s for the rest.

    `refused` says why the app is not accepted (empty: it is, as far as is known), `missing` which calls lack a scope.
    """

    def __init__(self, domain: str, app_id: str, app_secret: str, clock: Clock) -> None:
        self.domain = domain
        self.app_id = app_id
        self._secret = app_secret
        self._clock = clock
        self._client: httpx.AsyncClient | None = None
        self._opening = asyncio.Lock()
        self._fetching = asyncio.Lock()
        self._token = ""
        self._token_ends = 0.0
        self.refused = ""
        self.missing: dict[str, str] = {}
        self.changed: Callable[[], None] = lambda: None
        """Called when `refused` or `missing` has changed."""

    def __repr__(self) -> str:
        return f"Api({self.domain!r}, {self.app_id!r})"

    async def close(self) -> None:
        client, self._client = self._client, None
        self._token_ends = 0.0
        if client is not None:
            await client.aclose()

    # ---------------------------------------------------------------- calls

    async def call(
        self,
        doing: str,
        verb: str,
        path: str,
        body: Json | None = None,
        *,
        query: Mapping[str, str] | None = None,
        upload: Upload | None = None,
        repeat: bool = False,
        optional: bool = False,
    ) -> Json:
        """The `data` of the answer. `doing` says in words what is tried, `path` goes after /open-apis/.

        `optional`: the channel is not the worse for a missing scope.
        `repeat`: the call may be made twice without harm, so that one that nobody can say about is made once more. A
        sequence that turns out to be used up by the first try means that it has worked.
        """
        try:
            return await self._authorised(doing, verb, path, body, query, upload, optional)
        except Unknown:
            if not repeat:
                raise
        try:
            return await self._authorised(doing, verb, path, body, query, upload, optional)
        except ApiRefusal as refusal:
            if refusal.code == SEQUENCE_USED:
                return {}
            raise

    async def download(self, path: str, query: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        """The bytes of a resource, as they come. Their type is whatever it is: also that of the platform's refusals."""
        doing, client = "fetching a file", await self._open()
        for attempt in (1, 2):
            headers = await self._headers()
            url = f"{self.domain}/open-apis/{path}"
            try:
                async with client.stream("GET", url, params=dict(query), headers=headers) as answer:
                    chunks = answer.aiter_bytes(_CHUNK)
                    if answer.status_code != 200 or _may_be_refusal(answer.headers):
                        beginning = await _beginning(chunks)
                        if answer.status_code != 200 or _is_refusal(beginning):
                            _read(doing, answer, beginning)
                            raise Unknown("the platform sent no file")
                        yield beginning
                    async for chunk in chunks:
                        yield chunk
                    self._refuse("")
                    return
            except httpx.HTTPError as error:
                raise _of_http(error) from None
            except ApiRefusal as refusal:
                if refusal.means is Means.BAD_TOKEN and attempt == 1:
                    self._drop(headers)
                    continue
                self._note(refusal)
                raise

    async def endpoint(self) -> Json:
        """Where to open the long connection. Answers what the platform says, refusals included."""
        client = await self._open()
        body = {"AppID": self.app_id, "AppSecret": self._secret}
        try:
            answer = await client.post(f"{self.domain}/callback/ws/endpoint", json=body, headers={"locale": "zh"})
        except httpx.HTTPError as error:
            raise _of_http(error) from None
        found = _object(answer.content)
        if found is None:
            raise Transient(f"the platform answered {answer.status_code} when asked where to connect")
        return found

    async def token(self) -> str:
        """The tenant token. Raises `Unauthorised` when the app's credentials are not accepted."""
        async with self._fetching:
            if self._clock.now() < self._token_ends - _RENEW_BEFORE:
                return self._token
            client = await self._open()
            body = {"app_id": self.app_id, "app_secret": self._secret}
            try:
                answer = await client.post(f"{self.domain}{_TOKEN_PATH}", json=body)
                found = _read("fetching a token", answer, answer.content, inner="")
            except httpx.HTTPError as error:
                raise Transient(str(_of_http(error))) from None
            except Unknown as error:
                raise Transient(str(error)) from None
            except ApiRefusal as refusal:
                if refusal.means is not Means.BAD_APP:
                    raise Transient(refusal.describe()) from None
                self._refuse(f"unauthorised: app_id or app_secret is wrong ({refusal.code})")
                raise Unauthorised(self.refused) from None
            token, life = found.get("tenant_access_token"), found.get("expire")
            if not isinstance(token, str) or not isinstance(life, int | float):
                raise Transient("the platform gave no token")
            self._token, self._token_ends = token, self._clock.now() + life
            return token

    # ---------------------------------------------------------------- inside

    async def _authorised(
        self,
        doing: str,
        verb: str,
        path: str,
        body: Json | None,
        query: Mapping[str, str] | None,
        upload: Upload | None,
        optional: bool,
    ) -> Json:
        client = await self._open()
        for attempt in (1, 2):
            headers = await self._headers()
            try:
                answer = await client.request(
                    verb,
                    f"{self.domain}/open-apis/{path}",
                    params=dict(query or {}),
                    json=body if upload is None else None,
                    data=body if upload is not None else None,
                    files=upload.form() if upload is not None else None,
                    headers=headers,
                )
                found = _read(doing, answer, answer.content)
            except httpx.HTTPError as error:
                raise _of_http(error) from None
            except ApiRefusal as refusal:
                if refusal.means is Means.BAD_TOKEN and attempt == 1:
                    self._drop(headers)
                    continue
                if refusal.means is Means.NO_SCOPE and not optional:
                    self._miss(doing, refusal.describe())
                self._note(refusal)
                raise
            self._refuse("")
            self._miss(doing, "")
            return found
        raise AssertionError("the second attempt returns or raises")

    async def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {await self.token()}"}

    def _drop(self, headers: Mapping[str, str]) -> None:
        """Fetch a new token next time, unless somebody has done so already."""
        if headers["Authorization"] == f"Bearer {self._token}":
            self._token_ends = 0.0

    def _note(self, refusal: ApiRefusal) -> None:
        """Remember a refusal of the app itself: until a call is accepted, whatever the call."""
        if refusal.means in (Means.BAD_TOKEN, Means.BAD_APP):
            self._refuse(f"unauthorised: {refusal.describe()}")

    def _refuse(self, reason: str) -> None:
        if reason != self.refused:
            self.refused = reason
            self.changed()

    def _miss(self, doing: str, reason: str) -> None:
        if self.missing.get(doing, "") == reason:
            return
        if reason:
            self.missing[doing] = reason
        else:
            del self.missing[doing]
        self.changed()

    async def _open(self) -> httpx.AsyncClient:
        async with self._opening:
            if self._client is None:
                self._client = await asyncio.to_thread(_make_client)
            return self._client


def _make_client() -> httpx.AsyncClient:
    """For a thread: reading the certificates and importing what the first call needs takes a few hundred ms."""
    anyio.run(anyio.sleep, 0)
    return httpx.AsyncClient(timeout=_TIMEOUT, limits=_LIMITS)


def _read(doing: str, answer: httpx.Response, body: bytes, inner: str = "data") -> Json:
    """What an answer holds, whose body may be the beginning of one only. Raises `ApiRefusal` or `Unknown`."""
    found = _object(body)
    code = found.get("code") if found is not None else None
    if found is None or not isinstance(code, int):
        if 400 <= answer.status_code < 500:
            raise ApiRefusal(doing, answer.status_code, 0, "an answer without a code", reset=_reset(answer.headers))
        raise Unknown(f"{doing}: the platform answered {answer.status_code} without a code")
    if code == 0 and answer.status_code < 400:
        data = found.get(inner) if inner else found
        return data if isinstance(data, dict) else found
    error = found.get("error")
    violations = error.get("permission_violations") if isinstance(error, dict) else None
    text = str(found.get("msg", ""))
    scopes = scopes_in(text, violations)
    raise ApiRefusal(doing, answer.status_code, code, text, reset=_reset(answer.headers), scopes=scopes)


def _may_be_refusal(headers: httpx.Headers) -> bool:
    return "json" in headers.get("content-type", "") and "content-disposition" not in headers


def _is_refusal(beginning: bytes) -> bool:
    found = _object(beginning) if len(beginning) <= _LARGEST_REFUSAL else None
    code = found.get("code") if found is not None else None
    return isinstance(code, int) and code != 0


async def _beginning(chunks: AsyncIterator[bytes]) -> bytes:
    """Enough of a body to tell whether it is a refusal; the rest is still to come."""
    beginning = bytearray()
    async for chunk in chunks:
        beginning += chunk
        if len(beginning) > _LARGEST_REFUSAL:
            break
    return bytes(beginning)


def _object(body: bytes) -> Json | None:
    try:
        found = read_json(body)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _reset(headers: httpx.Headers) -> float | None:
    try:
        return max(0.0, float(headers.get("x-ogw-ratelimit-reset", "")))
    except ValueError:
        return None


def _of_http(error: httpx.HTTPError) -> Failure:
    """The exception's text may carry an address; its kind says enough."""
    kind = type(error).__name__
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout | httpx.UnsupportedProtocol):
        return Transient(f"the platform cannot be reached ({kind})")
    return Unknown(f"the platform did not answer ({kind})")
