"""What Slack has accepted of a reply so far."""

from __future__ import annotations

import hashlib

from pydantic import BaseModel, ConfigDict

from channels.adapter import Shown

LAST_LEVEL = 4
"""Of degrading: plain text, and a stream is ended without a word."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class TaskShown(_Part):
    """A task in a streamed message, or a step named in another. `weight` is its size in UTF-8 bytes."""

    digest: str
    weight: int = 0
    title: str = ""  # kept while it is open, so that it can be closed whatever the view says then
    detailed: bool = False  # its details have been sent; Slack adds further ones to them
    goes_on: bool = False  # the step was not over when this message was finished
    hidden: bool = False  # counted in the line of further steps


class Page(_Part):
    """One message of the reply. It shows `opening` + text[start:], `length` characters of it, then `closing`.

    `text` is the reply's whole text. A finished page is left alone as long as the text still says what it shows;
    the next page begins at `next` with `carry` as its opening.
    """

    part: int
    ts: str | None = None  # None: asked for; nobody knows yet whether it is there
    asked_at: float = 0.0
    streamed: bool = False  # it shows what was appended; an edit replaces that
    open: bool = False  # it still shows as being written
    finished: bool = False
    uncertain: bool = False  # it may show something else than is noted here
    stuck: bool = False  # it can be neither appended to nor edited any more
    endless: bool = False  # Slack has refused to end its stream
    start: int = 0
    opening: str = ""
    length: int = 0
    digest: str = ""  # of the first `length` characters
    closing: str = ""
    next: int = 0
    carry: str = ""
    exact: bool = True  # `next` is where the next page begins; otherwise at the first character after it
    dress: str = ""  # digest of the blocks around the text
    at: float = 0.0  # when it was made
    touched: float = 0.0  # when something was last accepted
    stored: int = 0  # the length when it was last stored
    tasks: dict[str, TaskShown] = {}
    cursor: str = ""  # how far it has been looked for
    candidates: tuple[str, ...] = ()  # streams found on the way that it may be


class FileShown(_Part):
    """A file of the reply: uploaded as `file`, asked to be shared, shared; or given up."""

    id: str
    file: str = ""
    away_since: float | None = None  # when the gateway first did not hand it out
    asked_at: float | None = None
    cursor: str = ""  # how far it has been looked for
    shared: bool = False
    refusals: int = 0
    failed: bool = False


class ResponseShown(Shown):
    """A reply by `response_url`: up to `at`, the text has been sent; the next message opens with `opening`.

    `done`: all has been sent. What changes afterwards (a question is answered) cannot be shown any more.
    """

    at: int = 0
    opening: str = ""
    done: bool = False
    uses: int = 0
    level: int = 0
    given_up: bool = False


class SlackShown(Shown):
    """All messages of a reply, and what Slack has taught about this place."""

    pages: tuple[Page, ...] = ()
    files: tuple[FileShown, ...] = ()
    parts: int = 0  # messages asked for so far
    streams: bool = True  # nobody has refused them here
    detached: bool = False  # nothing can be written in the thread: the reply goes on at top level
    level: int = 0  # how far the format is degraded
    shrunk: int = 0  # how often the size of a message was halved
    closed: int = 0  # streams that ended by themselves
    gone: int = 0  # messages that vanished
    halted: bool = False  # the reader has pressed Slack's own stop button
    given_up: bool = False
    response: ResponseShown | None = None  # the bot may not post here: what a command's own way has taken

    @property
    def is_out_of_ways(self) -> bool:
        """Whether Slack takes the answer in no form: all that is left is to say so."""
        return self.level > LAST_LEVEL


def digest_of(text: str) -> str:
    """A short name for a text."""
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=9).hexdigest()
