"""What a run is given: a new message with its files, or the answers to open questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from channels.model import Inbound, Sender, TurnId

FILE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf")
"""MIME types of files that the models of OpenAI, Anthropic and Google all take."""

_NAME = 80
_QUOTED = 8_000  # characters of a message that is only referred to


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file that a person sent along, whole."""

    name: str
    mime: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Break:
    """Something that did not come to its end: a thread that it has left needs mending before the next question.

    `turn` is whose it was (None: nobody knows), `said` what its reader has of an answer, `failed`: by itself, nobody
    stopped it.
    """

    turn: TurnId | None = None
    said: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Ask:
    """A new message in the conversation. `after` is the break that it comes after, if there may be one."""

    text: str
    sender: Sender
    files: tuple[InputFile, ...] = ()
    after: Break | None = None


@dataclass(frozen=True, slots=True)
class Resume:
    """The answers to open interrupts, by interrupt id (an interrupt without an id: under an empty one).

    Without any the graph goes on from a breakpoint. `heard` are the ids of the assistant messages that were shown
    before the question.
    """

    answers: Mapping[str, JsonValue]
    heard: tuple[str, ...] = ()


def as_question(inbounds: Sequence[Inbound], *, named: bool) -> str:
    """What people wrote, each below what they referred to, as Markdown; what several refer to is said once.

    `named`: who wrote it stands before it, for a conversation that several people share.
    """
    parts = []
    said = {""}
    for inbound in inbounds:
        quote = inbound.quote.strip()
        if quote not in said:
            said.add(quote)
            if len(quote) > _QUOTED:
                quote = quote[:_QUOTED].rstrip() + " …"
            parts.append("\n".join(f"> {line}".rstrip() for line in quote.splitlines()))
        parts.append(_by(inbound.sender, inbound.text) if named else inbound.text)
    return "\n\n".join(part for part in parts if part.strip())


def _by(sender: Sender, text: str) -> str:
    name = " ".join((sender.name or sender.id).split())[:_NAME]
    return f"{name}: {text}" if name and text.strip() else text
