"""How the platform says no: a code, a message, sometimes headers; and whether the client is to blame for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.emulators.feishu.limits import ERRORS
from tests.emulators.journal import Fault, FaultKind

Json = dict[str, Any]


class Refusal(Exception):
    """A call is refused. `broken` tells whether the client is to blame, or only learned what it could not know."""

    def __init__(
        self,
        code: int,
        why: str,
        *,
        broken: bool = True,
        msg: str | None = None,
        headers: Mapping[str, str] | None = None,
        error: Json | None = None,
    ) -> None:
        super().__init__(why)
        self.code = code
        self.why = why
        self.broken = broken
        self.status, text = ERRORS[code]
        self.msg = msg if msg is not None else f"{text}, ext={why}"
        self.headers = dict(headers or {})
        self.error = error or {}

    def body(self, log_id: str) -> Json:
        return {"code": self.code, "msg": self.msg, "data": {}, "error": {"log_id": log_id, **self.error}}


class CardFault(Exception):
    """What is wrong with a card, in the vendor's numbers; each API words it in its own way."""

    def __init__(self, code: int, why: str, value: str = "") -> None:
        super().__init__(f"{why} {value}".strip())
        self.code = code
        self.why = why
        self.value = value

    def as_cardkit(self) -> Refusal:
        """As the CardKit APIs answer it: the code itself; too many tables come in the message API's wrapping."""
        return self.as_message() if self.code == 11310 else Refusal(self.code, str(self))

    def as_message(self) -> Refusal:
        """As the message APIs answer it: one code for all, the real one in the text."""
        if self.code == 200860:
            return Refusal(230025, str(self))
        code, why = (11310, "element exceeds the limit") if self.code == 300305 else (self.code, self.why)
        msg = f"Failed to create card content, ext=ErrCode: {code}; ErrMsg: {why}; ErrorValue: {self.value}; "
        return Refusal(230099, f"{code} {self}", msg=msg)


def refuse(code: int, msg: str | None = None, *, status: int | None = None) -> Fault:
    """A planned refusal with a vendor code, as a test would put it into `emulator.faults`."""
    known_status, known_msg = ERRORS.get(code, (400, "refused"))
    body = {"code": code, "msg": msg if msg is not None else known_msg, "data": {}, "error": {"log_id": "planned"}}
    return Fault(FaultKind.ANSWER, status=known_status if status is None else status, body=body)


def rate_limited(reset: int = 1, *, limit: int = 50, status: int = 429) -> Fault:
    """A planned rate refusal that closes the app's budget for `reset` seconds."""
    return Fault(
        FaultKind.ANSWER,
        status=status,
        headers={"x-ogw-ratelimit-limit": str(limit), "x-ogw-ratelimit-reset": str(reset)},
        body={"code": 99991400, "msg": ERRORS[99991400][1]},
    )


def connection_limit() -> Fault:
    """A planned refusal of the WebSocket handshake (`ws.connect`): too many connections of this app."""
    return handshake_refused(514, "exceed connection limit", auth_code=1000040350)


def handshake_refused(status: int, msg: str, *, auth_code: int | None = None) -> Fault:
    """A planned refusal of the WebSocket handshake, with the platform's handshake headers."""
    headers = {"handshake-status": str(status), "handshake-msg": msg}
    if auth_code is not None:
        headers["handshake-autherrcode"] = str(auth_code)
    return Fault(FaultKind.ANSWER, status=403, headers=headers, body=msg)


def endpoint_refused(code: int, msg: str = "refused", *, status: int = 200) -> Fault:
    """A planned refusal of the endpoint negotiation (`ws.endpoint`): 1 is busy, 1000040343 internal, others final."""
    return Fault(FaultKind.ANSWER, status=status, body={"code": code, "msg": msg})
