"""Who may talk to the bot, when a message is meant for it, and which conversation it belongs to."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from channels.model import Inbound, InboundKind, Place


class Groups(StrEnum):
    """Which messages in groups are for the bot."""

    MENTION = "mention"
    ALL = "all"
    OFF = "off"


class ConversationScope(StrEnum):
    """What shares one conversation: a thread or topic, a whole chat, or one person in a chat."""

    THREAD = "thread"
    CHAT = "chat"
    USER = "user"


class BusyPolicy(StrEnum):
    """What a new question does while an answer is being written in the same conversation."""

    QUEUE = "queue"
    INTERRUPT = "interrupt"
    REJECT = "reject"


class ShowReasoning(StrEnum):
    OFF = "off"
    FOLDED = "folded"
    ON = "on"


def _false_is_off(value: object) -> object:
    # YAML 1.1 reads a bare `off` as false and `on` as true; the operator meant the word.
    return {False: "off", True: "on"}.get(value, value) if isinstance(value, bool) else value


def _ids_as_text(value: object) -> object:
    return [str(item) for item in value] if isinstance(value, list) else value


Ids = Annotated[tuple[str, ...], BeforeValidator(_ids_as_text)]


class Policy(BaseModel):
    """Who may talk to a channel's bot, and how conversations are cut. Ids are the platform's own, as text."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    groups: Annotated[Groups, BeforeValidator(_false_is_off)] = Field(
        Groups.MENTION, description="Which group messages are for the bot: mention | all | off."
    )
    allow_users: Ids = Field((), description="Only these people may talk to the bot; empty: everybody.")
    allow_places: Ids = Field((), description="Only these chats; empty: all of them.")
    admins: Ids = Field((), description="May approve pairings and stop other people's answers; always allowed.")
    conversation: ConversationScope = Field(
        ConversationScope.THREAD, description="What shares a conversation: thread | chat | user."
    )
    when_busy: BusyPolicy = Field(
        BusyPolicy.QUEUE, description="A question during an answer: queue | interrupt | reject."
    )
    show_reasoning: Annotated[ShowReasoning, BeforeValidator(_false_is_off)] = Field(
        ShowReasoning.OFF, description="The model's thinking: off | folded | on."
    )
    name_senders: bool = Field(
        True, description="Tell the agent who says what, where several people share a conversation."
    )
    show_steps: bool = Field(True, description="Show tool calls and sub-agent tasks while the agent works.")
    pairing: bool = Field(False, description="Strangers get a code that an admin approves with /pair CODE.")
    allow_bots: bool = Field(False, description="Whether other bots may talk to this one.")


class Verdict(StrEnum):
    """What access says to an inbound."""

    ALLOWED = "allowed"
    NOT_ADDRESSED = "not addressed"
    NOT_ALLOWED = "not allowed"
    PAIRING = "pairing"  # a stranger who may ask for access


def conversation_place(inbound: Inbound, policy: Policy) -> Place:
    """The place whose conversation this inbound belongs to under the policy."""
    place = inbound.place
    match policy.conversation:
        case ConversationScope.THREAD:
            return replace(place, user=None)
        case ConversationScope.CHAT:
            return replace(place, thread=None, user=None)
        case ConversationScope.USER:
            return replace(place, user=inbound.sender.id)


def thread_of(inbound: Inbound, policy: Policy) -> Place | None:
    """The thread in which the bot takes part once a question was taken there; None: it can take part in none.

    A thread also where a whole chat is one conversation; and one person's, where each has a conversation of their own.
    """
    if inbound.place.private or inbound.place.thread is None:
        return None
    return replace(conversation_place(inbound, policy), thread=inbound.place.thread)


def judge(inbound: Inbound, policy: Policy, *, takes_part: bool, paired: bool) -> Verdict:
    """Whether the inbound is for the bot and its sender may talk to it.

    `takes_part`: a question was taken in this thread (`thread_of`), or the message replies to one of the bot's own.
    `paired`: an admin has approved this sender.
    """
    if inbound.sender.is_bot and not policy.allow_bots:
        return Verdict.NOT_ADDRESSED
    if not inbound.place.private and not _is_addressed(inbound, policy, takes_part):
        return Verdict.NOT_ADDRESSED
    return judge_sender(inbound, policy, paired=paired)


def judge_sender(inbound: Inbound, policy: Policy, *, paired: bool) -> Verdict:
    """Whether the sender may talk to the bot at all, whether or not this inbound is for it."""
    if inbound.sender.id in policy.admins:
        return Verdict.ALLOWED
    if policy.allow_places and inbound.place.chat not in policy.allow_places:
        return Verdict.NOT_ALLOWED
    if policy.allow_users or policy.pairing:
        if inbound.sender.id in policy.allow_users or paired:
            return Verdict.ALLOWED
        return Verdict.PAIRING if policy.pairing and inbound.kind is not InboundKind.PRESS else Verdict.NOT_ALLOWED
    return Verdict.ALLOWED


def _is_addressed(inbound: Inbound, policy: Policy, takes_part: bool) -> bool:
    if policy.groups is Groups.OFF:
        return False
    if policy.groups is Groups.ALL:
        return True
    is_typed = inbound.kind in (InboundKind.MESSAGE, InboundKind.COMMAND)
    return not is_typed or inbound.mentions_bot or takes_part  # else it is about an answer of the bot
