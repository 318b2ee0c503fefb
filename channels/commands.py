"""The commands people type, on every platform the same."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum

from channels.model import Inbound, InboundKind

_TYPED = re.compile(r"\s*[/!]([A-Za-z]+)(?:@\S+)?(?:[.!?]*|\s+(.*))\s*", re.DOTALL)


class CommandName(StrEnum):
    NEW = "new"
    STOP = "stop"
    STATUS = "status"
    RETRY = "retry"
    HELP = "help"
    START = "start"  # what Telegram sends when a person opens the bot
    PAIR = "pair"


DESCRIPTIONS: dict[CommandName, str] = {
    CommandName.NEW: "start a new conversation",
    CommandName.STOP: "stop the answer that is being written",
    CommandName.RETRY: "ask the last question again",
    CommandName.STATUS: "say what is going on",
    CommandName.HELP: "show this list",
}
"""The commands that are offered to people, in this order."""


_SPOKEN_OF = re.compile(rf"(?<![\w/])/({'|'.join(CommandName)})\b")
_WORD = re.compile(r"\S+")
_ARGUMENTS: dict[CommandName, re.Pattern[str]] = {
    CommandName.NEW: re.compile(r".+", re.DOTALL),  # what the new conversation begins with
    CommandName.START: _WORD,  # Telegram's deep links
    CommandName.PAIR: _WORD,
    CommandName.STOP: re.compile(r"(?:(?:it|this|that|now|at once|immediately|please)\W*)+", re.IGNORECASE),
}
"""What may follow a command. Anything else makes the whole message a question: nothing that people type is lost."""


@dataclass(frozen=True, slots=True)
class Command:
    name: CommandName
    argument: str = ""


def parse_command(text: str) -> Command | None:
    """The command in a message (`/new`, `!stop`, `/help@bot`), or None when it is an ordinary message.

    Unknown words after a slash are left to the agent: `/etc/hosts` is a question, not a mistake. So is a command with
    more behind it than it takes: `/help me write an email`.
    """
    match = _TYPED.fullmatch(text)
    if match is None or match[1].lower() not in set(CommandName):
        return None
    name, argument = CommandName(match[1].lower()), (match[2] or "").strip()
    takes = _ARGUMENTS.get(name)
    if argument and (takes is None or not takes.fullmatch(argument)):
        return None
    return Command(name, argument)


def is_for_agent(text: str) -> bool:
    """Whether words ask the agent something: they are no command, or a `/new` with a question behind it."""
    command = parse_command(text)
    return command is None or (command.name is CommandName.NEW and bool(command.argument))


def is_command(inbound: Inbound) -> bool:
    """Whether a message is for the bridge itself. With a file it is a question: only a `/new` may bring some."""
    return parse_command(inbound.text) is not None and (not inbound.attachments or question_in(inbound) is not None)


def question_in(inbound: Inbound) -> Inbound | None:
    """What a `/new` with text or files behind it asks in the conversation that it begins; None: nothing."""
    command = parse_command(inbound.text)
    if command is None or command.name is not CommandName.NEW or not (command.argument or inbound.attachments):
        return None
    return replace(inbound, kind=InboundKind.MESSAGE, text=command.argument)


def as_typed(words: str, sign: str) -> str:
    """The bridge's own words with the commands in them as people type them: behind `sign` instead of a slash."""
    return _SPOKEN_OF.sub(rf"{sign}\1", words)


def help_text() -> str:
    """What `/help` answers, as Markdown."""
    lines = [f"- `/{name}` to {text}" for name, text in DESCRIPTIONS.items()]
    return "\n".join(["Ask me anything. You can also type:", "", *lines])
