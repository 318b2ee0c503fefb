"""An open question: what counts as its answer, what does not, and that people always see which."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import JsonValue

from channels.access import BusyPolicy, Policy
from channels.adapter import Accepted, Draw, Failure, RateLimited, Transient
from channels.inputs import Ask, Resume
from channels.model import Action, Attachment, Inbound, InboundKind, Option, Phase, Place, Press, Sender, TurnId, View
from channels.pending import Pending
from channels.questions import clarification, open_questions
from channels.store.records import Turn, TurnState
from tests.channels.test_core import Open, Room, open_room
from tests.scripted import AskPerson, GiveFile, Pause, Say

__all__ = ["open_room"]

ASKED_AT = 1_750_000_000.0
COLOUR: JsonValue = {"question": "Which?", "options": ["red", "blue"]}
DELETE: JsonValue = {
    "action_requests": [{"name": "delete_db", "args": {"name": "prod"}}],
    "review_configs": [{"action_name": "delete_db", "allowed_decisions": ["approve", "reject"]}],
}
CSV = Attachment("a.csv", "text/csv", {"name": "a.csv"})


async def asked(room: Room, turn: Turn | None = None) -> View:
    """What the conversation's last turn shows, or what another shows by now."""
    found = await room.last() if turn is None else await room.bench.store.turn(turn.id)
    assert found is not None
    assert found.final is not None
    return found.final


async def asks(room: Room, text: str = "do it") -> Turn:
    await room.say(text)
    await room.bench.settled()
    return await room.last()


def inputs(room: Room) -> list[Ask | Resume]:
    return [run.request.input for run in room.bench.gateway.runs]


def answers(room: Room) -> list[JsonValue]:
    """What each resumed run was told, for agents that ask one thing at a time."""
    return [answer for given in inputs(room) if isinstance(given, Resume) for answer in given.answers.values()]


# ---------------------------------------------------------------- what was written before the question was there


@pytest.mark.parametrize("text", ["ok", "and what is 2+2?"])
async def test_what_was_written_before_a_question_is_not_its_answer_and_does_not_vanish(
    open_room: Open, text: str
) -> None:
    room = await open_room([Pause(10), AskPerson(DELETE)], [Say("Deleted.")])
    await room.say("clean up")
    await room.bench.until(lambda: len(room.bench.gateway.runs) == 1)
    first = await room.last()
    await room.say(text)
    await room.bench.settled()
    assert answers(room) == []
    again = await asked(room)
    assert again.phase is Phase.ASKING
    assert text in again.notice
    assert again.question is not None
    assert [option.label for option in again.question.options] == ["Approve", "Reject"]
    earlier = await asked(room, first)
    assert earlier.question == replace(again.question, options=(), free_text=False)
    assert earlier.notice == "Asked again below."
    await room.say("ok")
    await room.shows("Deleted.")
    await room.bench.settled()
    assert answers(room) == [{"decisions": [{"type": "approve"}]}]


async def test_the_question_that_is_asked_again_can_be_answered_with_its_button(open_room: Open) -> None:
    room = await open_room([Pause(10), AskPerson(COLOUR)], [Say("Painted.")])
    await room.say("paint it")
    await room.bench.until(lambda: len(room.bench.gateway.runs) == 1)
    await room.say("nicely, please")
    await room.bench.settled()
    again = await room.last()
    await room.press(Action.ANSWER, again.id, "1")
    await room.shows("Painted.")
    await room.bench.settled()
    assert answers(room) == ["blue"]
    question = (await asked(room, again)).question
    assert question is not None
    assert question.answer == "blue"


async def test_a_message_that_comes_late_but_was_written_before_the_question_is_not_its_answer(open_room: Open) -> None:
    room = await open_room([AskPerson("Name?")], [Say("Hello.")])
    before = room.bench.clock.now() - 60.0
    await asks(room)
    await room.say("hello?", sent_at=before)
    await room.bench.settled()
    assert answers(room) == []
    assert "hello?" in (await asked(room)).notice
    await room.say("Ann", sent_at=room.bench.clock.now())
    await room.bench.settled()
    assert answers(room) == ["Ann"]


async def test_a_file_that_was_sent_before_the_question_is_named_in_the_notice(open_room: Open) -> None:
    room = await open_room([Pause(10), AskPerson("Name?")])
    await room.say("greet me")
    await room.bench.until(lambda: len(room.bench.gateway.runs) == 1)
    await room.say("", attachments=(CSV,))
    await room.bench.settled()
    assert "a.csv" in (await asked(room)).notice


async def test_what_was_written_between_two_parts_of_a_question_answers_neither(open_room: Open) -> None:
    actions: JsonValue = {"action_requests": [{"name": "send", "args": {}}, {"name": "delete_db", "args": {}}]}
    room = await open_room([AskPerson(actions)], [Say("Done.")])
    first = await asks(room)
    too_early = room.inbound("yes")
    await room.press(Action.ANSWER, first.id, "0")
    await room.bench.settled()
    await room.bench.inbox.accept(too_early)
    await room.bench.settled()
    assert answers(room) == []
    again = await asked(room)
    assert "“yes”" in again.notice
    assert again.question is not None
    assert "delete_db" in again.question.text
    await room.say("no")
    await room.bench.settled()
    assert answers(room) == [{"decisions": [{"type": "approve"}, {"type": "reject"}]}]


@pytest.mark.parametrize("crashes", [True, False])
async def test_a_question_that_is_asked_again_survives_a_restart(open_room: Open, crashes: bool) -> None:
    room = await open_room([Pause(10), AskPerson(COLOUR)], [Say("Painted.")])
    await room.say("paint it")
    await room.bench.until(lambda: len(room.bench.gateway.runs) == 1)
    await room.say("now")
    await room.shows("When you wrote")
    await (room.bench.crash() if crashes else room.bench.restart())
    await room.bench.settled()
    assert room.text().count("When you wrote") == 1
    await room.say("red")
    await room.bench.settled()
    assert answers(room) == ["red"]


def said(*, received: float, sent: float | None = None) -> Inbound:
    return Inbound(
        place=Place("bench", "room"),
        sender=Sender("u1"),
        event_key="e",
        kind=InboundKind.MESSAGE,
        text="ok",
        received_at=ASKED_AT + received,
        sent_at=None if sent is None else ASKED_AT + sent,
        message_id="m",
    )


@pytest.mark.parametrize(
    ("inbound", "can_answer"),
    [
        (said(received=5), True),
        (said(received=-0.1), False),
        (said(received=0), False),
        (said(received=3, sent=2), True),
        (said(received=600, sent=-60), False),
        (said(received=1.5, sent=-0.9), True),  # written after it, on a platform that counts whole seconds
        (said(received=-1, sent=30), False),  # the platform's clock is ahead
    ],
)
def test_an_answer_is_what_was_written_once_the_question_was_there(inbound: Inbound, can_answer: bool) -> None:
    pending = Pending(turn=TurnId("t"), interrupts=open_questions([{"id": "i", "value": "?"}]), asked_at=ASKED_AT)
    assert pending.was_asked_before(inbound) is can_answer


def test_what_nobody_has_seen_yet_is_answered_by_nothing() -> None:
    pending = Pending(turn=TurnId("t"), interrupts=open_questions([{"id": "i", "value": "?"}]), asked_at=None)
    assert not pending.was_asked_before(said(received=600))
    seen = pending.seen_at(ASKED_AT)
    assert seen.was_asked_before(said(received=5))
    assert seen.seen_at(ASKED_AT + 60) == seen
    assert not seen.with_answer("red", TurnId("t")).was_asked_before(said(received=600))


@pytest.mark.parametrize("crashes", [False, True])
async def test_what_is_written_before_a_question_is_shown_does_not_answer_it(open_room: Open, crashes: bool) -> None:
    room = await open_room([Say("looking "), Pause(5), AskPerson(DELETE)], [Say("Deleted.")])
    await room.say("clean up")
    await room.shows("looking")
    refused_until = room.bench.clock.now() + 60

    def refused(_: object) -> tuple[Failure | None, bool]:
        left = refused_until - room.bench.clock.now()
        return (RateLimited(left, Draw("calls")), False) if left > 0 else (None, True)

    room.adapter.papers["room"].trouble = refused
    turn = await room.last()
    await room.bench.until(lambda: is_final(room, turn))
    await room.say("ok")  # about what is to be seen so far
    if crashes:
        await room.bench.crash()
        room.adapter.papers["room"].trouble = refused
    await room.bench.settled()
    assert answers(room) == []
    assert "I had not asked this yet" in (await asked(room)).notice
    await room.say("approve")
    await room.bench.settled()
    assert answers(room) == [{"decisions": [{"type": "approve"}]}]


async def is_final(room: Room, turn: Turn) -> bool:
    stored = await room.bench.store.turn(turn.id)
    return stored is not None and stored.state is TurnState.FINAL


# ---------------------------------------------------------------- what is no answer


@pytest.mark.parametrize(
    ("value", "said", "then", "answer"),
    [
        ({"question": "Which?", "options": ["red", "blue"], "free_text": False}, "hm, why?", "2", "blue"),
        (DELETE, "what does that do?", "reject", {"decisions": [{"type": "reject"}]}),
        (DELETE, "yes?", "yes", {"decisions": [{"type": "approve"}]}),
        (DELETE, "disapprove", "no, never", {"decisions": [{"type": "reject", "message": "no, never"}]}),
    ],
)
async def test_words_that_are_no_answer_are_not_handed_on_and_the_question_is_asked_again(
    open_room: Open, value: JsonValue, said: str, then: str, answer: JsonValue
) -> None:
    room = await open_room([AskPerson(value)], [Say("Done.")])
    first = await asked(room, await asks(room))
    await room.say(said)
    await room.bench.settled()
    assert answers(room) == []
    again = await asked(room)
    assert (again.phase, again.question) == (Phase.ASKING, first.question)
    assert again.notice.startswith(("Please choose", "This takes an explicit word."))
    await room.say(then)
    await room.bench.settled()
    assert answers(room) == [answer]


async def test_in_a_group_what_others_say_decides_nothing_without_an_explicit_word(open_room: Open) -> None:
    room = await open_room([AskPerson(DELETE)], [Say("Deleted.")])
    group = Place("bench", "room", thread="t1")
    await room.say("@bot clean up", place=group, mentions_bot=True)
    await room.bench.settled()
    bob = Sender("u2", "Bob")
    assert await room.say("wow, careful", place=group, sender=bob) is Accepted.TAKEN
    await room.bench.settled()
    assert answers(room) == []
    await room.say("reject: not on a Friday", place=group, sender=bob)
    await room.bench.settled()
    assert answers(room) == [{"decisions": [{"type": "reject", "message": "reject: not on a Friday"}]}]


# ---------------------------------------------------------------- files in answers


async def test_a_file_that_cannot_be_handed_over_with_an_answer_is_spoken_of_to_both(open_room: Open) -> None:
    room = await open_room([AskPerson("Please upload the CSV")], [Say("Hm.")])
    await asks(room)
    await room.say("", attachments=(CSV,))
    await room.bench.settled()
    (told,) = answers(room)
    assert isinstance(told, str)
    assert "a.csv" in told
    assert "not handed over" in told
    view = await asked(room)
    assert view.text == "Hm."
    assert "did not get a.csv" in view.notice


async def test_words_beside_a_file_are_the_answer(open_room: Open) -> None:
    room = await open_room([AskPerson("Name?")], [AskPerson(COLOUR)], [Say("Fine.")])
    await asks(room)
    await room.say("Ann", attachments=(CSV,))
    await room.bench.settled()
    await room.say("blue", attachments=(CSV,))
    await room.bench.settled()
    words, choice = answers(room)
    assert str(words).startswith("Ann\n\n(")
    assert choice == "blue"
    assert "did not get a.csv" in (await asked(room)).notice


async def test_a_file_alone_decides_nothing(open_room: Open) -> None:
    room = await open_room([AskPerson(DELETE)], [Say("Deleted.")])
    await asks(room)
    await room.say("", attachments=(CSV,))
    await room.bench.settled()
    assert answers(room) == []
    again = await asked(room)
    assert again.phase is Phase.ASKING
    assert "did not get a.csv" in again.notice


def test_files_go_along_where_the_last_answer_is_a_message_of_its_own() -> None:
    plain = open_questions([{"id": "a", "value": "A?"}])
    message = (clarification("c1", "One?", None), clarification("c2", "Two?", None))
    pending = Pending(turn=TurnId("t"), interrupts=message, asked_at=ASKED_AT)
    assert not Pending(turn=TurnId("t"), interrupts=plain, asked_at=ASKED_AT).takes_files
    assert not pending.takes_files
    assert pending.with_answer("one", TurnId("t2")).takes_files


# ---------------------------------------------------------------- questions that are not open any more


async def test_new_withdraws_the_open_question_and_a_press_that_comes_after_it_is_told_so(open_room: Open) -> None:
    room = await open_room([AskPerson(COLOUR)], [Say("Painted.")])
    first = await asks(room)
    await room.say("/new")
    await room.shows("new conversation")
    await room.bench.settled()
    view = await asked(room, first)
    assert view.question is not None
    assert (view.question.options, view.question.free_text, view.question.answer) == ((), False, None)
    assert view.notice == "Withdrawn: a new conversation has begun."
    await room.press(Action.ANSWER, first.id, "1")
    await room.shows("This question is not open any more.")
    await room.bench.settled()
    assert answers(room) == []


async def test_new_leaves_a_question_that_was_answered_as_it_is(open_room: Open) -> None:
    room = await open_room([AskPerson(COLOUR)], [Say("begun "), Pause(3000)])
    first = await asks(room)
    await room.press(Action.ANSWER, first.id, "0")
    await room.shows("begun")
    await room.say("/new")
    await room.bench.settled()
    question = (await asked(room, first)).question
    assert question is not None
    assert question.answer == "red"
    assert question.options == (Option("0", "red"), Option("1", "blue"))


async def test_a_button_of_a_question_that_was_asked_anew_is_told_so(open_room: Open) -> None:
    room = await open_room([AskPerson(COLOUR)], [AskPerson("Which exactly?")])
    first = await asks(room)
    await room.say("/retry")
    await room.bench.until(lambda: len(room.bench.gateway.runs) == 2)
    await room.bench.settled()
    await room.press(Action.ANSWER, first.id, "1")
    await room.shows("This is asked anew further down.")
    await room.bench.settled()
    await room.say("light blue")
    await room.bench.settled()
    assert answers(room) == ["light blue"]


async def test_a_retry_withdraws_the_question_that_was_asked_after_what_it_asks_again(open_room: Open) -> None:
    room = await open_room([AskPerson("First?")], [AskPerson(COLOUR)], [Say("Done.")])
    await asks(room)
    second = await asks(room, "yes")
    assert (await asked(room, second)).question is not None
    await room.press(Action.RETRY, second.id)
    await room.shows("Done.")
    await room.bench.settled()
    question = (await asked(room, second)).question
    assert question is not None
    assert (question.options, question.free_text) == ((), False)


@pytest.mark.parametrize("crashes", [False, True])
async def test_an_answer_does_not_have_to_wait_for_the_files_behind_the_question(
    open_room: Open, crashes: bool
) -> None:
    room = await open_room([GiveFile("plan.txt", b"plan"), AskPerson(COLOUR)], [Say("Painted.")])
    paper = room.adapter.papers["room"]
    paper.trouble = lambda op: (Transient("later"), False) if op.is_beside else (None, True)
    await room.say("paint")
    await room.shows("Which?")
    await room.bench.clock.sleep(5)
    await room.say("blue")
    await room.bench.clock.sleep(1)
    if crashes:
        await room.bench.crash()
    paper.trouble = lambda _: (None, True)
    await room.shows("Painted.")
    await room.bench.settled()
    assert answers(room) == ["blue"]


async def test_new_says_that_what_still_waits_is_answered_in_the_new_conversation(open_room: Open) -> None:
    room = await open_room([Say("begun "), Pause(3000)], [Say("second")])
    await room.say("one")
    await room.shows("begun")
    await room.say("two", settle=5.0)
    await room.say("/new")
    await room.shows("What still")
    await room.shows("second")
    await room.bench.settled()
    first, second = (run.request for run in room.bench.gateway.runs)
    assert first.thread != second.thread


# ---------------------------------------------------------------- presses while an answer is written


@pytest.mark.parametrize("value", ["0", "1"])
async def test_a_second_click_interrupts_no_answer_and_waits_as_no_question(open_room: Open, value: str) -> None:
    policy = Policy(when_busy=BusyPolicy.INTERRUPT)
    room = await open_room([AskPerson(COLOUR)], [Say("Painting "), Pause(20), Say("done.")], policy=policy)
    first = await asks(room)
    await room.press(Action.ANSWER, first.id, "0")
    await room.shows("Painting")
    await room.press(Action.ANSWER, first.id, value)
    await room.say("/status")
    await room.shows("I am answering")
    await room.shows("done.")
    await room.bench.settled()
    assert "waits" not in room.text()
    assert "newer" not in room.text()
    assert answers(room) == ["red"]


async def test_an_old_button_interrupts_no_answer(open_room: Open) -> None:
    policy = Policy(when_busy=BusyPolicy.INTERRUPT)
    room = await open_room(
        [AskPerson(COLOUR)], [Say("Painted.")], [Say("Well, "), Pause(20), Say("yes.")], policy=policy
    )
    first = await asks(room)
    await room.press(Action.ANSWER, first.id, "0")
    await room.shows("Painted.")
    await room.bench.settled()
    await room.say("is it dry?")
    await room.shows("Well,")
    await room.press(Action.ANSWER, first.id, "1")
    await room.bench.settled()
    assert "Well, yes." in room.text()


async def test_a_number_typed_beside_the_buttons_is_no_position_of_one(open_room: Open) -> None:
    question = AskPerson({"question": "How many?", "options": ["3", "1"]})
    room = await open_room([question], [Say("Thanks.")])
    await room.say("buy some")
    await room.bench.settled()
    press = Press(Action.ANSWER, (await room.last()).id, "1", is_typed=True)
    await room.say("", kind=InboundKind.PRESS, press=press)
    await room.shows("Thanks.")
    given = room.bench.gateway.runs[1].request.input
    assert isinstance(given, Resume)
    assert list(given.answers.values()) == ["1"]
