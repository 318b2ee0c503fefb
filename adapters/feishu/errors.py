"""What the platform's error codes mean: one table from code to failure, to be checked against the vendor's pages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum

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


class OutOfSequence(Transient):
    """The sequence or the uuid of a card operation was used before: surely not done, a later one will do."""


class CardsUnavailable(Refused):
    """The app may not use card entities at all: not this content is at fault."""


class CardGone(Gone):
    """The card entity is not there any more; the message that shows it may be."""


class SentBefore(Refused):
    """The card entity is in a message already: an earlier try to send it has worked."""


class NoTopics(Refused):
    """Messages cannot be answered in a topic there: not the content is at fault."""


class Means(Enum):
    """What a code says, in the words of the contract."""

    BAD_TOKEN = "the token is missing, wrong or has expired"
    BAD_APP = "unauthorised: the app is not installed, not enabled or not allowed here"
    NO_SCOPE = "a scope is missing"
    RATE_APP = "too many calls of the app"
    RATE_MESSAGE = "too many calls on one message or card"
    CLOSED = "streaming is closed"
    SEQUENCE = "the sequence or uuid was used before"
    TOO_LARGE = "too large"
    GONE = "the message is not there any more"
    CARD_GONE = "the card is not there any more"
    FORBIDDEN = "nothing may be sent there"
    REFUSED = "the content is refused"
    SENT_BEFORE = "the card is in a message already"
    NO_TOPICS = "it cannot be answered in a topic"
    BUSY = "not now"


CODES: Mapping[int, Means] = {
    # tokens and apps
    99991661: Means.BAD_TOKEN,  # missing
    99991663: Means.BAD_TOKEN,  # invalid
    99991664: Means.BAD_TOKEN,
    99991665: Means.BAD_TOKEN,
    99991666: Means.BAD_TOKEN,
    99991668: Means.BAD_TOKEN,
    99991671: Means.BAD_TOKEN,
    99991677: Means.BAD_TOKEN,  # expired
    10003: Means.BAD_APP,  # unknown app_id
    10014: Means.BAD_APP,  # wrong app_secret
    99991401: Means.BAD_APP,  # the address of this machine is not allowed
    99991662: Means.BAD_APP,
    99991673: Means.BAD_APP,
    99991674: Means.BAD_APP,
    99991672: Means.NO_SCOPE,
    99991679: Means.NO_SCOPE,
    # rates
    99991400: Means.RATE_APP,
    11020: Means.RATE_APP,
    11021: Means.RATE_APP,
    230020: Means.RATE_MESSAGE,
    # card entities
    300309: Means.CLOSED,
    200850: Means.CLOSED,
    200510: Means.CLOSED,
    300310: Means.CLOSED,  # not a text element: the whole card has to be written anew
    300313: Means.CLOSED,  # the element is not there: as above
    300317: Means.SEQUENCE,
    200770: Means.SEQUENCE,
    200810: Means.BUSY,  # a callback of the card is being answered
    200860: Means.TOO_LARGE,
    300305: Means.TOO_LARGE,  # more than 200 elements
    200740: Means.CARD_GONE,
    200750: Means.CARD_GONE,  # older than 14 days
    200780: Means.SENT_BEFORE,
    # messages
    230025: Means.TOO_LARGE,
    230011: Means.GONE,  # recalled
    230110: Means.GONE,  # deleted
    231003: Means.GONE,
    230031: Means.GONE,  # too old to be changed
    99992351: Means.GONE,  # the id is not, or not any more, that of anything
    99992354: Means.GONE,
    230002: Means.FORBIDDEN,  # the bot is not in the chat
    230013: Means.FORBIDDEN,  # the person is outside the app's range
    230034: Means.FORBIDDEN,
    230006: Means.FORBIDDEN,  # the app has no bot
    230018: Means.FORBIDDEN,
    230035: Means.FORBIDDEN,
    230038: Means.FORBIDDEN,  # a private chat with somebody of another company
    232006: Means.FORBIDDEN,
    232009: Means.FORBIDDEN,
    232011: Means.FORBIDDEN,
    # inside the platform
    1500: Means.BUSY,
    1551: Means.BUSY,
    2200: Means.BUSY,
    90235: Means.BUSY,
    230049: Means.BUSY,  # the message is being sent
    231015: Means.BUSY,  # the same reaction is being set
    232096: Means.BUSY,  # writing has stopped for now
    234019: Means.BUSY,
    300120: Means.BUSY,
    230099: Means.REFUSED,  # the cause is in the text
}
"""Every code that means something else than `REFUSED`."""

ANSWERING: Mapping[int, Means] = {
    230071: Means.NO_TOPICS,  # the group has none
    230072: Means.NO_TOPICS,  # the message is one of several that are shown as one
    230019: Means.GONE,  # its topic is
    230050: Means.GONE,  # the bot does not see it
    230054: Means.GONE,  # nobody can answer messages of its type
    230111: Means.GONE,  # it will delete itself
    230075: Means.FORBIDDEN,  # the chat is encrypted
}
"""What codes mean when a message is answered. Where messages are changed some of these numbers mean something else."""

SEQUENCE_USED = 300317
_INNER_CODE = re.compile(r"ErrCode:\s*(\d+)")
_CARD_TABLES_OR_ID = 11310
_SCOPES = re.compile(r"\[([\w:.,\s-]+)\]")
_DEFAULT_PAUSE = 1.0  # seconds, where a rate refusal does not say how long


class ApiRefusal(Exception):
    """The platform answered with an error. `doing` says in words what was tried, `reset` for how many seconds a rate
    is closed, `scopes` of which scopes one is missing."""

    def __init__(
        self,
        doing: str,
        status: int,
        code: int,
        text: str,
        *,
        reset: float | None = None,
        scopes: tuple[str, ...] = (),
    ) -> None:
        super().__init__(f"{doing}: {code}")
        self.doing = doing
        self.status = status
        self.code = code
        self.text = text
        self.reset = reset
        self.scopes = scopes

    @property
    def means(self) -> Means:
        means = CODES.get(self.code)
        if means is Means.REFUSED:
            return self._inner()
        if means is not None:
            return means
        if self.status == 429:
            return Means.RATE_APP
        if self.status == 401:
            return Means.BAD_TOKEN
        if self.status >= 500:
            return Means.BUSY
        return Means.REFUSED

    def _inner(self) -> Means:
        """What is behind 230099: the message API wraps the card's own error in its text."""
        found = _INNER_CODE.search(self.text)
        inner = int(found[1]) if found else 0
        if inner == _CARD_TABLES_OR_ID:
            if "cardid" in self.text.lower():
                return Means.CARD_GONE
            return Means.TOO_LARGE if "element exceeds" in self.text else Means.REFUSED
        means = CODES.get(inner, Means.REFUSED)
        return means if means in (Means.CARD_GONE, Means.TOO_LARGE, Means.SENT_BEFORE) else Means.REFUSED

    def describe(self) -> str:
        """One sentence for operators: the code, the platform's words, and the scope to add where one is missing."""
        if self.means is Means.NO_SCOPE:
            names = " or ".join(self.scopes) or "named in the developer console"
            return f"{self.doing} needs the scope {names}: add it in the developer console and publish a version"
        return f"{self.doing}: {self.code} {self.text[:200]}".rstrip()


def scopes_in(text: str, violations: object) -> tuple[str, ...]:
    """The scopes of which one is missing, from an error's `permission_violations`, else from its text."""
    if isinstance(violations, list):
        names = [str(item["subject"]) for item in violations if isinstance(item, dict) and item.get("subject")]
        if names:
            return tuple(dict.fromkeys(names))
    found = _SCOPES.search(text)
    return tuple(name.strip() for name in found[1].split(",") if name.strip()) if found else ()


def failure_of(refusal: ApiRefusal, *, app: Draw, message: Draw, answers: bool = False) -> Failure:
    """The failure for a call that draws on the budgets `app` (all calls of its kind) and `message` (its own).

    `answers`: it was to answer a message.
    """
    text = refusal.describe()
    means = ANSWERING.get(refusal.code, refusal.means) if answers else refusal.means
    match means:
        case Means.RATE_APP:
            return RateLimited(_DEFAULT_PAUSE if refusal.reset is None else refusal.reset, app, text)
        case Means.RATE_MESSAGE:
            return RateLimited(_DEFAULT_PAUSE if refusal.reset is None else refusal.reset, message, text)
        case Means.BAD_TOKEN | Means.BAD_APP | Means.NO_SCOPE:
            return Unauthorised(text if text.startswith("unauthorised") else f"unauthorised: {text}")
        case Means.CLOSED:
            return Closed(text)
        case Means.SEQUENCE:
            return OutOfSequence(text)
        case Means.TOO_LARGE:
            return TooLarge(text)
        case Means.GONE:
            return Gone(text)
        case Means.CARD_GONE:
            return CardGone(text)
        case Means.FORBIDDEN:
            return Forbidden(text)
        case Means.SENT_BEFORE:
            return SentBefore(text)
        case Means.NO_TOPICS:
            return NoTopics(text)
        case Means.BUSY if refusal.status >= 500:
            return Unknown(text)
        case Means.BUSY:
            return Transient(text)
        case Means.REFUSED:
            return Refused(text)
