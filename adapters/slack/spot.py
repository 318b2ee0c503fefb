"""Where a reply goes: the conversation, the thread in it, and who is to see it grow."""

from __future__ import annotations

from dataclasses import dataclass

from channels.adapter import ReplyTarget
from channels.model import InboundKind, TurnId
from channels.shapes import as_text

ROOT_ALIAS = "root:"
"""Before a message's id: the message as the root of a thread. The core takes a reply to a thread's root for one to
the thread; under this name, whoever writes in the thread under one of our messages stays in its conversation."""


@dataclass(frozen=True, slots=True)
class Spot:
    """`root` is the ts of the thread to answer in (None: at top level), `since` a ts that every message of the reply
    comes after."""

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
            is_whisper=is_command and bool(extra.get("slash")) and not is_private,
        )
