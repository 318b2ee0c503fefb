"""Who may talk, when a message is for the bot, and which conversation it belongs to."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.access import (
    BusyPolicy,
    ConversationScope,
    Groups,
    Policy,
    ShowReasoning,
    Verdict,
    conversation_place,
    judge,
    judge_sender,
    thread_of,
)
from channels.model import Action, Inbound, InboundKind, Place, Press, Sender, TurnId

_PEOPLE = ("admin", "friend", "stranger")
_CHATS = ("office", "market")
_KINDS = tuple(InboundKind)


def inbound(
    *,
    sender: str = "stranger",
    chat: str = "office",
    thread: str | None = None,
    private: bool = False,
    kind: InboundKind = InboundKind.MESSAGE,
    mentions: bool = False,
    is_bot: bool = False,
) -> Inbound:
    press = Press(Action.STOP, TurnId("0" * 32)) if kind is InboundKind.PRESS else None
    return Inbound(
        place=Place("channel", chat, thread, private=private),
        sender=Sender(sender, is_bot=is_bot),
        event_key="e",
        kind=kind,
        text="hello",
        received_at=0.0,
        message_id="m",
        mentions_bot=mentions,
        press=press,
    )


inbounds = st.builds(
    inbound,
    sender=st.sampled_from(_PEOPLE),
    chat=st.sampled_from(_CHATS),
    thread=st.sampled_from((None, "t1", "t2")),
    private=st.booleans(),
    kind=st.sampled_from(_KINDS),
    mentions=st.booleans(),
    is_bot=st.booleans(),
)
policies = st.builds(
    Policy,
    groups=st.sampled_from(Groups),
    allow_users=st.sampled_from(((), ("friend",))),
    allow_places=st.sampled_from(((), ("office",))),
    admins=st.sampled_from(((), ("admin",))),
    conversation=st.sampled_from(ConversationScope),
    pairing=st.booleans(),
    allow_bots=st.booleans(),
)


# ---------------------------------------------------------------- is it for the bot

M, C, P, S = InboundKind.MESSAGE, InboundKind.COMMAND, InboundKind.PRESS, InboundKind.STOPPED


@pytest.mark.parametrize(
    ("groups", "kind", "mentions", "takes_part", "is_for_the_bot"),
    [
        # groups        kind mentions takes_part
        (Groups.MENTION, M, False, False, False),
        (Groups.MENTION, M, True, False, True),
        (Groups.MENTION, M, False, True, True),
        (Groups.MENTION, C, False, False, False),
        (Groups.MENTION, C, True, False, True),
        (Groups.MENTION, C, False, True, True),
        (Groups.MENTION, P, False, False, True),
        (Groups.MENTION, S, False, False, True),
        (Groups.ALL, M, False, False, True),
        (Groups.ALL, C, False, False, True),
        (Groups.OFF, M, True, True, False),
        (Groups.OFF, C, False, False, False),
        (Groups.OFF, P, False, True, False),
    ],
)
def test_which_group_messages_are_for_the_bot(
    groups: Groups, kind: InboundKind, mentions: bool, takes_part: bool, is_for_the_bot: bool
) -> None:
    verdict = judge(inbound(kind=kind, mentions=mentions), Policy(groups=groups), takes_part=takes_part, paired=False)
    assert verdict is (Verdict.ALLOWED if is_for_the_bot else Verdict.NOT_ADDRESSED)


@given(inbounds, policies, st.booleans(), st.booleans())
def test_in_a_private_chat_everything_a_person_says_is_for_the_bot(
    heard: Inbound, policy: Policy, takes_part: bool, paired: bool
) -> None:
    verdict = judge(heard, policy, takes_part=takes_part, paired=paired)
    if heard.place.private and not heard.sender.is_bot:
        assert verdict is not Verdict.NOT_ADDRESSED


@given(inbounds, policies, st.booleans(), st.booleans())
def test_another_bot_is_not_heard_unless_the_policy_says_so(
    heard: Inbound, policy: Policy, takes_part: bool, paired: bool
) -> None:
    if heard.sender.is_bot and not policy.allow_bots:
        assert judge(heard, policy, takes_part=takes_part, paired=paired) is Verdict.NOT_ADDRESSED


# ---------------------------------------------------------------- may they talk


def allowed_by_the_rules(sender: str, chat: str, policy: Policy, paired: bool) -> bool:
    """The rules as the documentation has them, said once more in other words."""
    if sender in policy.admins:
        return True
    in_a_good_place = not policy.allow_places or chat in policy.allow_places
    everybody_is_welcome = not policy.allow_users and not policy.pairing
    return in_a_good_place and (everybody_is_welcome or sender in policy.allow_users or paired)


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("pairing", [False, True])
@pytest.mark.parametrize("allow_places", [(), ("office",)])
@pytest.mark.parametrize("allow_users", [(), ("friend",)])
@pytest.mark.parametrize("admins", [(), ("admin",)])
def test_who_may_talk_where(
    admins: tuple[str, ...], allow_users: tuple[str, ...], allow_places: tuple[str, ...], pairing: bool, paired: bool
) -> None:
    policy = Policy(admins=admins, allow_users=allow_users, allow_places=allow_places, pairing=pairing)
    for sender, chat, kind, private in itertools.product(_PEOPLE, _CHATS, _KINDS, (True, False)):
        heard = inbound(sender=sender, chat=chat, kind=kind, private=private, mentions=True)
        verdict = judge(heard, policy, takes_part=False, paired=paired)
        assert (verdict is Verdict.ALLOWED) == allowed_by_the_rules(sender, chat, policy, paired), heard


@given(inbounds, policies, st.booleans(), st.booleans())
def test_only_a_person_who_could_be_let_in_is_offered_pairing(
    heard: Inbound, policy: Policy, takes_part: bool, paired: bool
) -> None:
    if judge(heard, policy, takes_part=takes_part, paired=paired) is Verdict.PAIRING:
        assert policy.pairing
        assert not paired
        assert heard.kind is not InboundKind.PRESS
        assert judge(heard, policy, takes_part=takes_part, paired=True) is Verdict.ALLOWED


@given(inbounds, policies, st.booleans(), st.booleans())
def test_being_paired_never_takes_anything_away(heard: Inbound, policy: Policy, takes_part: bool, paired: bool) -> None:
    if judge(heard, policy, takes_part=takes_part, paired=False) is Verdict.ALLOWED:
        assert judge(heard, policy, takes_part=takes_part, paired=True) is Verdict.ALLOWED


@given(inbounds, policies, st.booleans(), st.booleans())
def test_what_is_said_of_the_sender_does_not_depend_on_being_addressed(
    heard: Inbound, policy: Policy, takes_part: bool, paired: bool
) -> None:
    verdict = judge(heard, policy, takes_part=takes_part, paired=paired)
    assert verdict in (Verdict.NOT_ADDRESSED, judge_sender(heard, policy, paired=paired))


# ---------------------------------------------------------------- which conversation

_SCOPES = tuple(ConversationScope)


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        #                                                               thread  chat   user
        ({"sender": "friend"}, {"sender": "stranger"}, (True, True, False)),
        ({"thread": "t1"}, {"thread": "t2"}, (False, True, False)),
        ({"thread": "t1"}, {"thread": None}, (False, True, False)),
        ({"chat": "office"}, {"chat": "market"}, (False, False, False)),
        ({"thread": "t1", "sender": "friend"}, {"thread": "t1", "sender": "stranger"}, (True, True, False)),
    ],
)
def test_what_shares_a_conversation(
    one: dict[str, str], other: dict[str, str], shared: tuple[bool, bool, bool]
) -> None:
    for scope, expected in zip(_SCOPES, shared, strict=True):
        policy = Policy(conversation=scope)
        first = conversation_place(inbound(**one), policy)  # type: ignore[arg-type]
        second = conversation_place(inbound(**other), policy)  # type: ignore[arg-type]
        assert (first.key == second.key) == expected, scope


@given(inbounds, policies)
def test_a_place_stays_in_its_chat_and_is_found_again(heard: Inbound, policy: Policy) -> None:
    place = conversation_place(heard, policy)
    assert (place.channel, place.chat, place.private) == (heard.channel, heard.place.chat, heard.place.private)
    assert conversation_place(heard.at(place), policy) == place


@given(inbounds, inbounds, policies)
def test_taking_part_is_a_matter_of_one_thread_whatever_shares_a_conversation(
    one: Inbound, other: Inbound, policy: Policy
) -> None:
    first, second = thread_of(one, policy), thread_of(other, policy)
    assert (first is None) == (one.place.private or one.place.thread is None)
    if first is not None and first == second:
        assert (one.place.chat, one.place.thread) == (other.place.chat, other.place.thread)
        assert policy.conversation is not ConversationScope.USER or one.sender.id == other.sender.id


# ---------------------------------------------------------------- how it is written


def test_words_that_yaml_takes_for_truth_values_are_understood() -> None:
    assert Policy.model_validate({"groups": False}).groups is Groups.OFF
    assert Policy.model_validate({"show_reasoning": False}).show_reasoning is ShowReasoning.OFF
    assert Policy.model_validate({"show_reasoning": True}).show_reasoning is ShowReasoning.ON


def test_ids_that_yaml_takes_for_numbers_are_texts() -> None:
    policy = Policy.model_validate({"allow_users": [42, "U1"], "admins": [7], "allow_places": [-100]})
    assert (policy.allow_users, policy.admins, policy.allow_places) == (("42", "U1"), ("7",), ("-100",))
    heard = inbound(sender="42", chat="-100", mentions=True)
    assert judge(heard, policy, takes_part=False, paired=False) is Verdict.ALLOWED


@pytest.mark.parametrize("wrong", [{"groups": "some"}, {"when_busy": "never"}, {"alow_users": []}, {"pairing": "x"}])
def test_a_policy_that_means_nothing_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Policy.model_validate(wrong)


def test_a_policy_that_says_nothing_is_open_to_whoever_addresses_the_bot() -> None:
    policy = Policy()
    assert policy.when_busy is BusyPolicy.QUEUE
    assert policy.show_reasoning is ShowReasoning.OFF
    assert judge(inbound(private=True), policy, takes_part=False, paired=False) is Verdict.ALLOWED
    assert judge(inbound(mentions=True), policy, takes_part=False, paired=False) is Verdict.ALLOWED
    assert judge(inbound(), policy, takes_part=False, paired=False) is Verdict.NOT_ADDRESSED
