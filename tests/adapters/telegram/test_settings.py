"""The keys of a Telegram channel and what is said about wrong ones; texts that must not carry a secret."""

from __future__ import annotations

import httpx
import pytest
from pydantic import ValidationError
from telegram.error import BadRequest, ChatMigrated, Conflict, InvalidToken, NetworkError, RetryAfter, TimedOut
from telegram.error import Forbidden as ForbiddenError

from adapters.telegram.failures import failure_of
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
from config.telegram import TelegramChannel

TOKEN = "123456:a-secret-that-nobody-may-see"
CHAT = Draw("private", "7")


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("bot_token", "nonsense-value", "BotFather"),
        ("api_base_url", "ftp://x", "https://"),
        ("webhook_secret", "with spaces", "letters, digits"),
        ("reaction", "far too long for one", "reaction emoji"),
        ("limits", {"message_size": 399}, "400 to 4096"),
        ("limits", {"message_size": 4097}, "400 to 4096"),
        ("poll_seconds", 0, "greater than or equal to 1"),
    ],
)
def test_a_wrong_key_is_explained_without_its_secret(key: str, value: object, said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        TelegramChannel.model_validate({"bot_token": TOKEN, key: value})
    messages = " ".join(error["msg"] for error in caught.value.errors())
    assert said in messages
    assert TOKEN not in messages
    assert str(value) not in messages or key in ("limits", "poll_seconds")


def test_defaults() -> None:
    channel = TelegramChannel.model_validate({"bot_token": TOKEN, "api_base_url": "http://127.0.0.1:8081/"})
    assert channel.api_base_url == "http://127.0.0.1:8081"
    assert (channel.mode, channel.reaction, channel.react_in_groups) == ("polling", "👀", False)
    assert (channel.stop_button, channel.feedback_buttons, channel.rich_messages) == (True, False, False)
    assert TOKEN not in repr(channel)


@pytest.mark.parametrize("size", [400, 4096])
def test_a_message_may_be_as_small_as_steps_need_and_as_large_as_telegram_takes(size: int) -> None:
    channel = TelegramChannel.model_validate({"bot_token": TOKEN, "limits": {"message_size": size}})
    assert channel.limits.message_size == size


def caused(error: NetworkError, cause: Exception) -> NetworkError:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RetryAfter(40), RateLimited),
        (ChatMigrated(-100), Moved),
        (ForbiddenError("bot was blocked by the user"), Forbidden),
        (InvalidToken("Unauthorized"), Unauthorised),
        (InvalidToken("Not Found: method not found"), Closed),
        (Conflict("terminated by other getUpdates request"), Transient),
        (BadRequest("Message to edit not found"), Gone),
        (BadRequest("Message can't be edited"), Gone),
        (BadRequest("Message_too_long"), TooLarge),
        (BadRequest("Message is too long"), TooLarge),
        (BadRequest("Can't parse entities: whatever"), Refused),
        (BadRequest("Textdraft_peer_invalid"), Closed),
        (BadRequest("Chat not found"), Forbidden),
        (BadRequest("Topic_closed"), Forbidden),
        (BadRequest("Message thread not found"), Forbidden),
        (BadRequest("Not enough rights to send text messages to the chat"), NoRight),
        (NetworkError("Bad Gateway"), Transient),
        (NetworkError("Request Entity Too Large (413)"), TooLarge),
        (caused(NetworkError("httpx.ConnectError"), httpx.ConnectError("refused")), Transient),
        (caused(NetworkError("httpx.ReadError"), httpx.ReadError("cut")), Unknown),
        (caused(TimedOut(), httpx.ReadTimeout("late")), Unknown),
        (caused(TimedOut(), httpx.ConnectTimeout("late")), Transient),
        (caused(TimedOut(), httpx.PoolTimeout("full")), Transient),
    ],
)
def test_errors_of_the_bot_api_are(error: Exception, kind: type[Failure]) -> None:
    failure = failure_of(error, CHAT)  # type: ignore[arg-type]
    assert type(failure) is kind
    if isinstance(failure, RateLimited):
        assert (failure.retry_after, failure.scope) == (40, CHAT)
    if isinstance(failure, Moved):
        assert failure.chat == "-100"


def test_an_error_that_names_the_token_does_not_pass_it_on() -> None:
    assert TOKEN not in str(failure_of(InvalidToken(f"The token `{TOKEN}` was rejected by the server."), CHAT))
    assert TOKEN not in str(failure_of(BadRequest(f"https://api.telegram.org/bot{TOKEN}/x"), CHAT))
