"""The calls that show a reply on Feishu, what has been accepted of it so far, and the platform's limits as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from channels.adapter import Budget, Op, Shown
from channels.model import File

# ---------------------------------------------------------------- limits

CARD_BYTES = 29_000
"""Of a card's JSON as sent. The platform says 30 KB without saying what a kilobyte is; some room is kept."""
TEXT_BYTES = 100_000
"""Of a plain text message's content; the platform says 150 KB."""
POST_BYTES = 28_000
"""Of a rich text message's content; the platform says 30 KB."""
FRAME_BYTES = 6_500
"""Kept for what a card holds besides its text and its panels: header, notice, buttons, form."""
PANEL_BYTES, NARROW_PANEL_BYTES = 2_500, 800
"""For one panel of a card (reasoning, steps): while its text is short, and when it is long."""
SMALLEST_TEXT = 1_500
"""Bytes of text that a card holds at least, however often the platform has said that it is too large."""
STREAMING_SECONDS = 480.0
"""After so long streaming is opened anew; the platform closes it 10 minutes after its last opening."""
OPTION_BUTTONS = 10
LABEL_CHARACTERS = 40
MESSAGE_EDITS = 18
"""How often a text or post is edited at most; the platform allows 20 edits."""
LARGEST_FILE = 30 * 1024 * 1024
LARGEST_IMAGE = 10 * 1024 * 1024

BUDGETS: Mapping[str, Budget] = {
    # 10 operations a second on one card; growth is spaced by a quarter of a second.
    "card": Budget(limit=8, window=1.0, burst=1, reserve=4),
    # 50 calls a second and 1,000 a minute for all cards of the app together. Without a burst: what follows each other
    # at once comes back as a gap, for all cards at the same time, in every window from then on.
    "cards": Budget(limit=45, window=1.0, burst=1, reserve=15),
    "cards_minute": Budget(limit=950, window=60.0, burst=1, reserve=150),
    # 5 messages a second in one chat; 50 a second and 1,000 a minute of the app.
    "chat": Budget(limit=4, window=1.0, burst=4),
    "messages": Budget(limit=45, window=1.0, burst=15, reserve=10),
    "messages_minute": Budget(limit=950, window=60.0, burst=30, reserve=150),
    # 5 changes a second of one message, where cards cannot stream.
    "message": Budget(limit=2, window=1.0, burst=1, reserve=1),
    "edits": Budget(limit=45, window=1.0, burst=1, reserve=15),
    "edits_minute": Budget(limit=950, window=60.0, burst=1, reserve=150),
    "reads": Budget(limit=30, window=1.0, burst=10),
    "uploads": Budget(limit=20, window=1.0, burst=5),
}
"""Just below the documented rates: requests may arrive nearer to each other than they were sent."""


# ---------------------------------------------------------------- shown


class Format(StrEnum):
    """How a message of the reply is sent; each is what the one before it falls back to."""

    CARD = "card"  # a card entity that streams
    PATCH = "patch"  # an interactive message that is replaced
    POST = "post"
    TEXT = "text"
    NOTE = "note"  # a text that says that the answer is refused in every form


class Detail(StrEnum):
    """How much of Markdown a message is trusted with; each is what the one before it falls back to."""

    FULL = "full"
    FENCED = "fenced"  # all tables as code blocks
    BARE = "bare"  # nothing but the text as it is written, and buttons


class Sheet(BaseModel):
    """One message of the reply, and what the platform has accepted of it.

    It shows the reply's text from `start` to `end` (None: to where it fits), after `opening`; all in characters.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    key: str
    format: Format = Format.CARD
    start: int = 0
    opening: str = ""
    end: int | None = None
    source: str = ""  # digest of the text from `start` to `end`
    card: str = ""  # the card entity
    message: str = ""
    sending: bool = False
    placeheld: bool = False  # what is being sent is only a beginning
    sent: bool = False
    text: str = ""  # digest of the rendered text
    length: int = 0  # of the rendered text, in characters
    covered: int = 0  # of the reply's text, in characters from `start`
    frame: str = ""  # digest of everything around the text
    detail: Detail = Detail.FULL
    complete: bool = False  # its last state was accepted: nothing is open, no stop button is left
    streaming: bool = False
    sequence: int = 0  # of the last operation
    leapt: bool = False  # the sequence has leapt ahead and is to be stored before it is used
    closings: int = 0  # how often in a row nothing was accepted because streaming was closed
    edits: int = 0
    uncertain: bool = False  # what was tried last may not have been accepted
    torn: bool = False  # more may have been accepted than is known here
    found: bool = False  # it was looked for after its completion, and is there
    opened_at: float = 0.0
    sent_at: float = 0.0
    text_at: float = 0.0
    frame_at: float = 0.0
    stored_at: float = 0.0


class SentFile(BaseModel):
    """One file of the reply. `key` names the upload; `done`: sent, or given up with a word about it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str
    key: str = ""
    kind: str = ""
    trouble: str = ""
    tries: int = 0
    away_since: float | None = None  # when the gateway first did not hand it out
    sending: bool = False
    moved: bool = False  # it goes to the chat, as the question cannot be answered
    message: str = ""
    done: bool = False


class Leftover(BaseModel):
    """A message that another one has replaced and that is to be taken back."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    message: str
    format: Format = Format.CARD
    card: str = ""
    sequence: int = 0
    kept: bool = False  # it cannot be taken back: it is to be emptied


class FeishuShown(Shown):
    """What has been accepted of a reply."""

    sheets: tuple[Sheet, ...] = ()
    files: tuple[SentFile, ...] = ()
    leftovers: tuple[Leftover, ...] = ()
    format: Format = Format.CARD
    detail: Detail = Detail.FULL
    room: int | None = None  # bytes of text in one card, once the platform has refused more
    made: int = 0  # how many messages were begun: each has a key of its own
    lost: int = 0  # how many of them were lost
    detached: bool = False  # the question cannot be answered: messages go to the chat
    without_topic: bool = False  # it cannot be answered in a topic


# ---------------------------------------------------------------- ops


@dataclass(frozen=True, slots=True)
class Face:
    """What a message looks like once an op is accepted. `ends` is the text's end when the message is full."""

    text: str
    length: int
    covered: int
    frame: str
    detail: Detail
    complete: bool
    ends: int | None = None
    source: str = ""
    opening: str = ""  # of the next message, when this one is full


@dataclass(frozen=True, slots=True, kw_only=True)
class SheetOp(Op):
    """An op on the message `index`, as it was when the op was planned."""

    index: int
    sheet: Sheet


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateCard(SheetOp):
    """Make a card entity; nobody sees it before it is sent."""

    face: Face
    data: str
    streaming: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Send(SheetOp):
    """Send a message: a card entity, or content. `face` is None for content that is only a beginning."""

    kind: str
    content: str
    answers: str | None
    chat: str
    in_thread: bool
    face: Face | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteText(SheetOp):
    """Stream the whole text of a card's answer."""

    face: Face
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateCard(SheetOp):
    """Replace a card entity as a whole."""

    face: Face
    data: str
    streaming: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenStreaming(SheetOp):
    """Open a card's streaming, or start its ten minutes anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchCard(SheetOp):
    """Replace the card of an interactive message."""

    face: Face
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EditMessage(SheetOp):
    """Edit a post or text."""

    face: Face
    kind: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LookFor(SheetOp):
    """Look whether a completed message is still there: card entities live on when somebody deletes their message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeBack(Op):
    """Recall a message that another one has replaced; or, where that is refused, show `data` there instead."""

    leftover: Leftover
    data: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadFile(Op):
    """Upload a file that the agent made; nobody sees it before it is sent."""

    is_beside: ClassVar[bool] = True

    file: File


@dataclass(frozen=True, slots=True, kw_only=True)
class SendFile(Op):
    """Send an uploaded file, or a word about why there is none."""

    is_beside: ClassVar[bool] = True

    file: SentFile
    kind: str
    content: str
    answers: str | None
    chat: str
    in_thread: bool
    uuid: str
