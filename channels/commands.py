"""The commands people type, on every platform the same."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

_TYPED = re.compile(r"\s*[/!]([A-Za-z]+)(?:@\S+)?(?:\s+(.*))?\s*", re.DOTALL)


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


@dataclass(frozen=True, slots=True)
class Command:
    name: CommandName
    argument: str = ""


def parse_command(text: str) -> Command | None:
    """The command in a message (`/new`, `!stop`, `/help@bot`), or None when it is an ordinary message.

    Unknown words after a slash are left to the agent: `/etc/hosts` is a question, not a mistake.
    """
    match = _TYPED.fullmatch(text)
    if match is None or match[1].lower() not in set(CommandName):
        return None
    return Command(CommandName(match[1].lower()), (match[2] or "").strip())


def help_text() -> str:
    """What `/help` answers, as Markdown."""
    lines = [f"- `/{name}` to {text}" for name, text in DESCRIPTIONS.items()]
    return "\n".join(["Ask me anything. You can also type:", "", *lines])
