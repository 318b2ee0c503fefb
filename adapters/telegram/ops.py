"""What a Telegram reply is made of: the calls, the buttons, and what is remembered of what Telegram has accepted."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from adapters.telegram.marks import Styled
from channels.adapter import Forbidden, Gone, Op, Shown
from channels.model import File

DRAFT_ALIAS = "draft:"
"""Before the number of a draft, where ids of messages stand: both are plain numbers."""
MOST_UNKNOWNS = 8
"""So many sends of one message with an unknown outcome count as sent; one of them will have arrived."""


class Start(BaseModel):
    """Where a message takes up the reply: an offset in its Markdown with what re-opens there (a fence, a table's
    header), and how many of its steps and how much of its reasoning earlier messages show."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    offset: int = 0
    opening: str = ""
    steps: int = 0
    reasoning: int = 0


# ---------------------------------------------------------------- calls


@dataclass(frozen=True, slots=True)
class Button:
    label: str
    data: str


Keyboard = tuple[tuple[Button, ...], ...]


@dataclass(frozen=True, slots=True)
class Where:
    """A chat and, in it, a topic."""

    chat: str
    thread: str | None = None


@dataclass(frozen=True, slots=True)
class Content:
    """What a message says. `rich` takes the place of `body` where the server knows rich messages."""

    body: Styled
    keyboard: Keyboard = ()
    rich: str | None = None
    previews: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Write(Op):
    """Bring one message of the reply to its content. It shows the reply's Markdown from `start` to `covers`;
    `next` is set when the reply goes on in another message, so that this one is finished."""

    index: int
    where: Where
    content: Content
    digest: str
    start: Start
    covers: int
    mark: str
    next: Start | None
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Send(Write):
    """A new message. `reply_to` is the message it answers; a `silent` one makes no sound."""

    reply_to: int | None = None
    silent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit(Write):
    id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft(Op):
    """One frame of a draft, which grows in a private chat until its message is sent."""

    index: int
    where: Where
    id: int
    body: Styled
    digest: str
    size: int
    is_last: bool = False
    """The beginning of the message that follows at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete(Op):
    """Remove a message that the reply no longer needs."""

    index: int
    where: Where
    id: int


class FileForm(StrEnum):
    """How a file is shown; each is what is tried after the one before."""

    PHOTO = "photo"
    DOCUMENT = "document"
    SENTENCE = "sentence"  # it cannot be sent, and the reader is told
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class SendFile(Op):
    """`in_doubt`: an earlier try may have worked."""

    is_beside: ClassVar[bool] = True

    where: Where
    file: File
    form: FileForm
    in_doubt: bool = False


# ---------------------------------------------------------------- failures of this platform


class Moved(Gone):
    """The group has become a supergroup with another id; its old messages cannot be reached any more."""

    def __init__(self, chat: str) -> None:
        super().__init__("the group was upgraded to a supergroup")
        self.chat = chat


class NoRight(Forbidden):
    """The bot may not send this kind of message to the chat; another kind it may."""


# ---------------------------------------------------------------- what is shown


class ShownMessage(BaseModel):
    """A message of the reply. `id` is None while it is unknown whether it was sent; `digest` names its content (empty:
    uncertain); `next` is set once it is finished; `mark` names the Markdown it covers; `unknowns` counts sends whose
    outcome is unknown."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    chat: str
    id: int | None = None
    digest: str = ""
    start: Start = Start()
    covers: int = 0
    mark: str = ""
    next: Start | None = None
    unknowns: int = 0


class ShownFile(BaseModel):
    """How far a file is. `away_since` is when the gateway first did not hand it out (seconds since the epoch),
    `unknowns` counts tries of this form of which nobody can say whether it was sent; `sending` is set while a call is
    under way; `in_doubt`: an upload may have arrived."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str
    form: FileForm
    sent: bool = False
    message: int | None = None
    away_since: float | None = None
    unknowns: int = 0
    sending: bool = False
    in_doubt: bool = False


class ShownDraft(BaseModel):
    """The draft that stands for message `index`: its last frame, and when it was accepted (seconds since the epoch)."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    index: int
    length: int = 0
    text: str = ""
    digest: str = ""
    at: float = 0.0
    beats: int = 0
    is_done: bool = False


class Plainness(StrEnum):
    """How much a reply has been degraded after refusals."""

    STYLED = "styled"
    UNSTYLED = "unstyled"  # no marks
    BARE = "bare"  # no marks, no buttons, no reply


class TelegramShown(Shown):
    """What Telegram has accepted of a reply. `lost` counts messages that vanished, `refusals` refusals in a row;
    `chat` is where the reply goes on when its group got another id; `size` is a limit that Telegram has taught us."""

    messages: tuple[ShownMessage, ...] = ()
    files: tuple[ShownFile, ...] = ()
    draft: ShownDraft | None = None
    drafts_refused: bool = False
    rich_refused: bool = False
    plainness: Plainness = Plainness.STYLED
    size: int | None = None
    refusals: int = 0
    lost: int = 0
    chat: str | None = None
