"""Where a reply goes: the conversation, the thread in it, and who is to see it grow."""

from __future__ import annotations

import re
from dataclasses import dataclass

from channels.adapter import ReplyTarget
from channels.model import InboundKind, TurnId
from channels.shapes import as_text

ROOT_ALIAS = "root:"
"""Before a message's id: the message as the root of a thread. The core takes a reply to a thread's root for one to
the thread; under this name, whoever writes in the thread under one of our messages stays in its conversation."""

_TS = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?")


@dataclass(frozen=True, slots=True)
class Spot:
    """`root` is the ts of the thread to answer in (None: at top level), `since` a ts that every message of the reply
    comes after; `response_url` takes the answer to a slash command wherever that was typed."""

    turn: TurnId
    channel: str
    root: str | None
    team: str
    user: str
    user_team: str
    is_private: bool
    since: str
    intro: str = ""
    is_own_thread: bool = True
    is_command: bool = False
    is_whisper: bool = False
    response_url: str = ""

    @property
    def has_recipient(self) -> bool:
        """Whether Slack can be told for whom a stream is, which it wants to know outside direct messages."""
        return self.is_private or bool(self.user and self.user_team)

    @classmethod
    def of(cls, target: ReplyTarget) -> Spot:
        """The spot of a turn, from what the question brought along."""
        question = target.question
        extra = question.extra
        sender_is_person = not question.sender.is_bot
        is_command = question.kind is InboundKind.COMMAND
        is_private = target.place.private
        response_url = as_text(extra.get("response_url"))
        return cls(
            turn=target.turn,
            channel=target.place.chat,
            root=as_text(extra.get("thread")) or None,
            team=as_text(extra.get("team")),
            user=question.sender.id if sender_is_person else "",
            user_team=as_text(extra.get("user_team")) if sender_is_person else "",
            is_private=is_private,
            since=as_text(extra.get("since")) or question.message_id,
            intro=as_text(extra.get("intro")),
            is_own_thread=target.place.thread is not None,
            is_command=is_command,
            is_whisper=is_command and bool(response_url) and not is_private,
            response_url=response_url,
        )


def moment(ts: str) -> float:
    """When a message was written: its `ts` is seconds since the epoch. 0 for what is no `ts`."""
    return float(ts) if _TS.fullmatch(ts) else 0.0
