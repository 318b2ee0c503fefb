"""What each error of the Bot API means for a reply. Texts carry no address and no token."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import httpx
from telegram.error import (
    BadRequest,
    ChatMigrated,
    Conflict,
    InvalidToken,
    NetworkError,
    RetryAfter,
    TelegramError,
)
from telegram.error import Forbidden as ForbiddenError

from adapters.telegram.ops import Moved, NoRight
from channels.adapter import (
    Closed,
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
from channels.observe import redact

UNAUTHORISED = "unauthorised: Telegram does not accept the bot token; take a new one from @BotFather"

# By a part of the description, in lower case; the first that fits counts. Everything else refuses the content.
_BAD_REQUESTS: tuple[tuple[str, Callable[[str], Failure]], ...] = (
    ("message to edit not found", Gone),
    ("message can't be edited", Gone),
    ("message to delete not found", Gone),
    ("message_id_invalid", Gone),
    ("there is no text in the message to edit", Gone),
    ("message is too long", TooLarge),
    ("message_too_long", TooLarge),
    ("message caption is too long", TooLarge),
    ("is too big", TooLarge),
    ("textdraft_peer_invalid", Closed),
    ("message text is empty", Closed),  # what a server says to an edit with a rich message that it does not know
    ("chat not found", Forbidden),
    ("user is deactivated", Forbidden),
    ("peer_id_invalid", Forbidden),
    ("not enough rights", NoRight),
    ("have no rights", NoRight),
    ("chat_write_forbidden", Forbidden),
    ("chat_restricted", Forbidden),
    ("topic_closed", Forbidden),
    ("topic_deleted", Forbidden),
    ("message thread not found", Forbidden),
    ("bot is not a member", Forbidden),
)
_NOT_MODIFIED = "message is not modified"
_SURELY_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)


def is_unmodified(error: TelegramError) -> bool:
    """Whether the message shows already what it was to be changed to."""
    return isinstance(error, BadRequest) and _NOT_MODIFIED in error.message.lower()


def seconds_of(error: RetryAfter) -> float:
    """How long the server says to wait; the SDK gives a number or, when told so by its environment, a timedelta."""
    wait = error.retry_after
    return wait.total_seconds() if isinstance(wait, timedelta) else float(wait)


def failure_of(error: TelegramError, scope: Draw) -> Failure:
    """The failure behind an error. `scope` is what a 429 closes."""
    match error:
        case RetryAfter():
            return RateLimited(seconds_of(error), scope)
        case ChatMigrated():
            return Moved(str(error.new_chat_id))
        case ForbiddenError():
            return Forbidden(_reason(error))
        case InvalidToken() if "method not found" in error.message.lower():
            return Closed("this Bot API server does not know the method")
        case InvalidToken():
            return Unauthorised(UNAUTHORISED)
        case BadRequest():
            said = error.message.lower()
            kind = next((kind for part, kind in _BAD_REQUESTS if part in said), Refused)
            return kind(_reason(error))
        case Conflict():
            return Transient(_reason(error))
        case NetworkError():
            return _network_failure(error)
        case _:
            return Transient(_reason(error))


def _network_failure(error: NetworkError) -> Failure:
    cause = error.__cause__
    if "entity too large" in error.message.lower():
        return TooLarge(_reason(error))
    if isinstance(cause, httpx.HTTPError) and not isinstance(cause, _SURELY_NOT_SENT):
        return Unknown(f"the connection ended before the answer came ({type(cause).__name__})")
    if isinstance(cause, httpx.HTTPError):
        return Transient(f"Telegram cannot be reached ({type(cause).__name__})")
    return Transient(_reason(error))  # an answer with a 5xx status


def _reason(error: TelegramError) -> str:
    return redact(error.message)[:300]
