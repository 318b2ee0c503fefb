"""The whole way of one message through the core, with an adapter of paper and a scripted gateway."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from channels.access import BusyPolicy, ConversationScope, Groups, Policy
from channels.adapter import Accepted, Draw, Failure, Forbidden, HintState, RateLimited, Transient, Unknown
from channels.gateway.runs import RunEnd, RunRequest
from channels.inputs import Ask
from channels.model import Action, Attachment, Inbound, InboundKind, Phase, Place, Press, Sender, TurnId
from channels.store.records import Lease, StoreUnavailable, Turn, TurnState
from tests.bench import Bench
from tests.clock import ScaledClock
from tests.paper import Paper, PaperAdapter
from tests.scripted import Act, AskPerson, Fail, Pause, Say, UseTool

Open = Callable[..., Awaitable["Room"]]


class Room:
    """A bench with paper, and a person who types."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.count = 0

    @property
    def adapter(self) -> PaperAdapter:
        assert isinstance(self.bench.adapter, PaperAdapter)
        return self.bench.adapter

    def text(self, chat: str = "room") -> str:
        return self.adapter.papers[chat].text()

    def inbound(self, text: str, chat: str = "room", **fields: Any) -> Inbound:
        self.count += 1
        inbound = Inbound(
            place=Place("bench", chat, private=True),
            sender=Sender("u1", "Ann"),
            event_key=f"e{self.count}",
            kind=InboundKind.MESSAGE,
            text=text,
            received_at=self.bench.clock.now(),
            message_id=f"m{self.count}",
        )
        return replace(inbound, **fields)

    async def say(self, text: str, chat: str = "room", **fields: Any) -> Accepted:
        return await self.bench.inbox.accept(self.inbound(text, chat, **fields))

    async def press(self, action: Action, turn: str, value: str = "", **fields: Any) -> Accepted:
        return await self.say("", kind=InboundKind.PRESS, press=Press(action, TurnId(turn), value), **fields)

    async def last(self, chat: str = "room") -> Turn:
        conversation = await self.bench.store.conversation_at(Place("bench", chat, private=True))
        assert conversation is not None
        turn = await self.bench.store.last_turn(conversation.id)
        assert turn is not None
        return turn

    async def shows(self, text: str, chat: str = "room") -> None:
        await self.bench.until(lambda: text in self.text(chat))


@pytest.fixture
async def open_room(tmp_path: Path) -> AsyncIterator[Open]:
    async with AsyncExitStack() as stack:

        async def open_(*scripts: Iterable[Act], policy: Policy | None = None, give_up_after: float = 86_400.0) -> Room:
            papers: dict[str, Paper] = defaultdict(Paper)
            bench = Bench(
                tmp_path,
                ScaledClock(20),
                lambda context: PaperAdapter(context, papers),
                *scripts,
                policy=policy,
                give_up_after=give_up_after,
            )
            await stack.enter_async_context(bench)
            return Room(bench)

        yield open_


async def test_a_question_is_answered_once_and_completely(open_room: Open) -> None:
    room = await open_room([Say("Hello, this is an answer that is longer than one sheet of paper can be.")])
    assert await room.say("hi") is Accepted.TAKEN
    await room.bench.settled()
    assert room.text() == "Hello, this is an answer that is longer than one sheet of paper can be."
    assert room.bench.gateway.questions == ["hi"]
    assert (await room.last()).state is TurnState.DONE


async def test_a_redelivered_event_is_one_inbound(open_room: Open) -> None:
    room = await open_room([Say("once")])
    inbound = room.inbound("hi")
    assert await room.bench.inbox.accept(inbound) is Accepted.TAKEN
    assert await room.bench.inbox.accept(inbound) is Accepted.DUPLICATE
    await room.bench.settled()
    assert len(room.bench.gateway.runs) == 1


async def test_what_a_question_refers_to_stands_above_it(open_room: Open) -> None:
    room = await open_room([Say("yes")])
    await room.say("Is this true?", quote="The Rhine ends\n\nin Rotterdam.")
    await room.bench.settled()
    assert room.bench.gateway.questions == ["> The Rhine ends\n>\n> in Rotterdam.\n\nIs this true?"]


async def test_what_all_parts_of_a_turn_refer_to_is_said_and_fetched_once(open_room: Open) -> None:
    room = await open_room([Say("yes")])
    room.adapter.files["plan.csv"] = b"1,2"
    plan = Attachment("plan.csv", "text/csv", {"name": "plan.csv"})
    for text in ("", "compare"):
        await room.say(text, quote="the list", attachments=(plan,), group="album", settle=30.0)
    await room.bench.settled()
    assert room.bench.gateway.questions == ["> the list\n\ncompare"]
    (run,) = room.bench.gateway.runs
    assert isinstance(run.request.input, Ask)
    assert [file.name for file in run.request.input.files] == ["plan.csv"]


async def test_turns_of_one_conversation_follow_each_other_and_other_conversations_do_not_wait(open_room: Open) -> None:
    room = await open_room([Pause(40), Say("slow")], [Say("quick")], [Say("second")])
    await room.say("one", "a")
    await room.bench.until(lambda: len(room.bench.gateway.runs) == 1)
    await room.say("two", "a")
    await room.say("three", "b")
    await room.shows("quick", "b")
    assert room.text("a") == ""
    await room.bench.settled()
    assert room.text("a") == "slowsecond"
    assert [run.request.turn for run in room.bench.gateway.runs] == list(
        dict.fromkeys(run.request.turn for run in room.bench.gateway.runs)
    )


async def test_stop_acts_at_once_keeps_the_partial_text_and_leaves_the_conversation_usable(open_room: Open) -> None:
    room = await open_room([Say("partial text "), Pause(3000), Say("never")], [Say("next")])
    await room.say("one")
    await room.shows("partial text")
    await room.say("/stop")
    await room.bench.settled()
    last = await room.last()
    assert last.final is not None
    assert last.final.phase is Phase.STOPPED
    assert "never" not in room.text()
    await room.say("two")
    await room.shows("next")
    await room.bench.settled()


async def test_the_stop_button_stops_only_its_own_turn(open_room: Open) -> None:
    room = await open_room([Say("a"), Pause(3000)])
    await room.say("one", "a")
    await room.say("two", "b")
    await room.bench.until(lambda: len(room.bench.gateway.runs) == 2)
    await room.press(Action.STOP, (await room.last("a")).id, chat="a")

    async def stopped() -> bool:
        return (await room.last("a")).state is TurnState.DONE

    await room.bench.until(stopped)
    assert (await room.last("b")).state.is_open
    await room.press(Action.STOP, (await room.last("b")).id, chat="b")
    await room.bench.settled()


async def test_commands_are_answered_while_a_run_goes_on(open_room: Open) -> None:
    room = await open_room([Pause(3000)])
    await room.say("one")
    await room.bench.until(lambda: len(room.bench.gateway.runs) == 1)
    await room.say("/status")
    await room.shows("I am answering")
    await room.say("/help")
    await room.shows("/new")
    await room.say("/stop")
    await room.bench.settled()


@pytest.mark.parametrize(("seconds", "said"), [(-0.2, "for 0 s so far"), (59.6, "1 min 0 s"), (3725, "62 min 5 s")])
async def test_status_says_for_how_long_the_answer_has_been_worked_on(
    open_room: Open, seconds: float, said: str
) -> None:
    room = await open_room([Pause(30_000)])
    await room.say("one")
    await room.bench.until(lambda: len(room.bench.gateway.runs) == 1)
    turn = await room.last()
    await room.say("/status", received_at=turn.created_at + seconds)
    await room.shows(said)
    await room.press(Action.STOP, turn.id)
    await room.bench.settled()


async def test_new_begins_another_thread(open_room: Open) -> None:
    room = await open_room([Say("x")])
    await room.say("one")
    await room.bench.settled()
    await room.say("two")
    await room.bench.settled()
    await room.say("/new")
    await room.shows("new conversation")
    await room.say("three")
    await room.bench.settled()
    threads = [run.request.thread for run in room.bench.gateway.runs]
    assert threads[0] == threads[1] != threads[2]


async def test_what_is_written_behind_new_is_asked_in_the_new_conversation(open_room: Open) -> None:
    room = await open_room([Pause(3000)], [Say("Sunny.")])
    await room.say("one")
    await room.bench.until(lambda: len(room.bench.gateway.runs) == 1)
    room.adapter.files["map.png"] = b"png"
    await room.say("/new What is the weather?", attachments=(Attachment("map.png", "image/png", {"name": "map.png"}),))
    await room.shows("Sunny.")
    await room.bench.settled()
    first, second = (run.request for run in room.bench.gateway.runs)
    assert room.bench.gateway.questions == ["one", "What is the weather?"]
    assert isinstance(second.input, Ask)
    assert [file.name for file in second.input.files] == ["map.png"]
    assert first.thread != second.thread
    assert (await room.last()).question.text == "What is the weather?"


@pytest.mark.parametrize("is_committed", [True, False])
async def test_what_is_written_behind_new_is_asked_once_also_when_the_store_fails_in_between(
    open_room: Open, monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    room = await open_room([Say("x")])
    ask_anew = room.bench.store.ask_anew
    failures = [StoreUnavailable("away")]

    async def fail_once(lease: Lease, inbound_id: int, question: Inbound) -> None:
        if is_committed or not failures:
            await ask_anew(lease, inbound_id, question)
        if failures:
            raise failures.pop()

    monkeypatch.setattr(room.bench.store, "ask_anew", fail_once)
    await room.say("/new one")
    await room.bench.until(lambda: bool(room.bench.gateway.questions))
    await room.say("two")
    await room.bench.settled()
    assert room.bench.gateway.questions == ["one", "two"]
    assert len({run.request.thread for run in room.bench.gateway.runs}) == 1


async def test_who_begins_anew_with_a_question_in_a_thread_brings_the_bot_into_it(open_room: Open) -> None:
    room = await open_room([Say("x")])
    group = Place("bench", "room", thread="t1")
    await room.say("/new one", place=group, mentions_bot=True)
    await room.bench.until(lambda: bool(room.bench.gateway.questions))
    assert await room.say("two", place=group) is Accepted.TAKEN
    await room.bench.settled()
    assert room.bench.gateway.questions == ["Ann: one", "Ann: two"]


async def test_commands_are_named_as_people_type_them_there_and_the_agents_words_are_left_alone(
    open_room: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PaperAdapter, "command_sign", "!")
    room = await open_room([Say("Try /new, please."), Fail("That went wrong. /retry asks again.")])
    await room.say("hello")
    await room.bench.settled()
    assert "Try /new, please." in room.text()
    assert "!retry asks again" in room.text()
    await room.say("/help", "another")
    await room.shows("`!stop`", "another")
    assert "`/" not in room.text("another")


@pytest.mark.parametrize("text", ["/help me write an email", "!status of the order 4711?", "/stop the war in the game"])
async def test_a_question_that_begins_like_a_command_is_asked_whole(open_room: Open, text: str) -> None:
    room = await open_room([Say("x")])
    await room.say(text)
    await room.bench.settled()
    assert room.bench.gateway.questions == [text]


async def test_retry_asks_the_last_question_again(open_room: Open) -> None:
    room = await open_room([Fail("It failed.")], [Say("now it works")])
    await room.say("the question")
    await room.bench.settled()
    await room.say("/retry")
    await room.shows("now it works")
    await room.bench.settled()
    assert room.bench.gateway.questions == ["the question", "the question"]


async def test_a_question_is_answered_by_a_button_and_its_buttons_go(open_room: Open) -> None:
    room = await open_room([AskPerson({"question": "Which?", "options": ["red", "blue"]})], [Say("You chose blue.")])
    await room.say("paint it")
    await room.bench.settled()
    asked = await room.last()
    assert asked.final is not None
    assert asked.final.phase is Phase.ASKING
    await room.press(Action.ANSWER, asked.id, "1")
    await room.shows("You chose blue.")
    await room.bench.settled()
    answered = await room.bench.store.turn(asked.id)
    assert answered is not None
    assert answered.final is not None
    assert answered.final.question is not None
    assert answered.final.question.answer == "blue"
    assert room.bench.gateway.questions == ["paint it", "['blue']"]


async def test_a_second_click_does_nothing(open_room: Open) -> None:
    room = await open_room([AskPerson({"question": "Which?", "options": ["red", "blue"]})], [Say("Thanks.")])
    await room.say("paint it")
    await room.bench.settled()
    asked = await room.last()
    await room.press(Action.ANSWER, asked.id, "1")
    await room.press(Action.ANSWER, asked.id, "0")
    await room.bench.settled()
    assert len(room.bench.gateway.runs) == 2
    assert room.text().count("Thanks.") == 1


async def test_a_question_is_answered_by_text(open_room: Open) -> None:
    room = await open_room([AskPerson("What is your name?")], [Say("Hello Ann.")])
    await room.say("greet me")
    await room.bench.settled()
    await room.say("Ann")
    await room.bench.settled()
    assert room.bench.gateway.questions == ["greet me", "['Ann']"]
    assert "Hello Ann." in room.text()


async def test_an_album_is_one_turn(open_room: Open) -> None:
    room = await open_room([Say("nice pictures")])
    files = [Attachment(f"{n}.png", "image/png", {"name": f"{n}.png"}) for n in range(3)]
    for file in files[:2]:
        room.adapter.files[file.name] = b"png"
    for number, file in enumerate(files):
        await room.say("look" if number == 0 else "", attachments=(file,), group="album", settle=30.0)
    await room.bench.settled()
    (run,) = room.bench.gateway.runs
    assert run.request.input.__class__.__name__ == "Ask"
    assert "could not be fetched" in room.bench.gateway.questions[0]
    assert "2.png" in room.bench.gateway.questions[0]
    assert "The agent did not get 2.png" in room.text()


async def test_nothing_is_shown_as_final_before_all_is_known_that_the_reader_is_told(
    open_room: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = await open_room([Say("nice")])
    execute = room.bench.gateway.execute

    async def ends_late(*args: Any, **more: Any) -> RunEnd:
        end = await execute(*args, **more)
        more["changed"]()
        await room.bench.clock.sleep(10)
        return end

    monkeypatch.setattr(room.bench.gateway, "execute", ends_late)
    await room.say("look", attachments=(Attachment("gone.png", "image/png", {"name": "gone.png"}),))
    await room.bench.settled()
    assert "nice(The agent did not get gone.png" in room.text()


@pytest.mark.parametrize("trouble", [Transient("502"), Unknown("no answer"), RateLimited(3.0, Draw("calls"))])
async def test_a_file_that_cannot_be_fetched_just_now_is_waited_for(open_room: Open, trouble: Failure) -> None:
    room = await open_room([Say("nice")])
    room.adapter.files["a.png"] = b"png"
    room.adapter.troubles = [trouble] * 3
    await room.say("look", attachments=(Attachment("a.png", "image/png", {"name": "a.png"}),))
    await room.bench.settled()
    (run,) = room.bench.gateway.runs
    assert isinstance(run.request.input, Ask)
    assert [file.data for file in run.request.input.files] == [b"png"]
    assert room.text() == "nice"


async def test_files_that_cannot_be_fetched_are_waited_for_together(open_room: Open) -> None:
    room = await open_room([Say("nice")])
    room.adapter.troubles = [Transient("502")] * 500
    began = room.bench.clock.now()
    await room.say("look", attachments=tuple(Attachment(n, "image/png", {"name": n}) for n in ("a", "b", "c", "d")))
    await room.bench.settled()
    assert room.bench.clock.now() - began < 110
    assert "The agent did not get a, b, c, d." in room.text()


async def test_a_file_that_cannot_be_fetched_at_all_is_given_up_and_a_stop_is_not_kept_waiting(open_room: Open) -> None:
    room = await open_room([Say("nice")])
    room.adapter.files["a.png"] = b"png"
    room.adapter.troubles = [Transient("502")] * 100
    files = (Attachment("a.png", "image/png", {"name": "a.png"}),)
    began = room.bench.clock.now()
    await room.say("look", attachments=files)
    await room.bench.settled()
    assert 50 < room.bench.clock.now() - began < 90
    assert room.bench.gateway.questions == ["look\n\n(The attached file 'a.png' could not be fetched.)"]
    tried = len(room.adapter.troubles)
    await room.say("again", attachments=files)
    await room.bench.until(lambda: len(room.adapter.troubles) < tried)
    await room.say("/stop")
    began = room.bench.clock.now()
    await room.bench.settled()
    assert room.bench.clock.now() - began < 30
    assert len(room.bench.gateway.runs) == 1


async def test_a_restart_in_the_middle_goes_on_in_the_same_messages(open_room: Open) -> None:
    room = await open_room([Say("The beginning of a long answer, "), Pause(20), Say("and the end of it.", message="a")])
    await room.say("hi")
    await room.shows("The beginning")
    await room.bench.restart()
    await room.bench.settled()
    assert room.text() == "The beginning of a long answer, and the end of it."
    assert len(room.bench.gateway.runs) == 1


async def test_a_crash_in_the_middle_goes_on_in_the_same_messages(open_room: Open) -> None:
    room = await open_room([Say("The beginning of a long answer, "), Pause(20), Say("and the end of it.", message="a")])
    await room.say("hi")
    await room.shows("The beginning")
    await room.bench.crash()
    await room.bench.settled()
    assert room.text() == "The beginning of a long answer, and the end of it."
    assert len(room.bench.gateway.runs) == 1


async def test_a_run_that_is_taken_over_has_what_is_left_of_its_time(
    open_room: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = await open_room([Say("begun"), Pause(20)])
    execute = room.bench.gateway.execute
    begun: list[float | None] = []

    async def watched(request: RunRequest, *args: Any, **more: Any) -> RunEnd:
        begun.append(request.begun_at)
        return await execute(request, *args, **more)

    monkeypatch.setattr(room.bench.gateway, "execute", watched)
    asked = room.bench.clock.now()
    await room.say("hi")
    await room.shows("begun")
    await room.bench.crash()
    await room.bench.settled()
    first, second = begun
    assert first is None
    assert second is not None
    assert asked <= second <= asked + 20


async def test_a_reader_is_told_of_missing_files_also_after_a_crash(open_room: Open) -> None:
    room = await open_room([Say("begun, "), Pause(20), Say("nice")])
    await room.say("look", attachments=(Attachment("gone.png", "image/png", {"name": "gone.png"}),))
    await room.shows("begun")
    await room.bench.crash()
    await room.bench.settled()
    assert room.text() == "begun, nice(The agent did not get gone.png.)"


async def test_a_busy_conversation_can_refuse_a_second_question(open_room: Open) -> None:
    room = await open_room([Pause(3000)], policy=Policy(when_busy=BusyPolicy.REJECT))
    await room.say("one")
    await room.bench.until(lambda: len(room.bench.gateway.runs) == 1)
    await room.say("two")
    await room.shows("still answering")
    await room.say("/stop")
    await room.bench.settled()
    assert room.bench.gateway.questions == ["one"]


async def test_a_busy_conversation_can_be_interrupted_by_a_newer_question(open_room: Open) -> None:
    room = await open_room([Pause(3000)], [Say("second")], policy=Policy(when_busy=BusyPolicy.INTERRUPT))
    await room.say("one")
    await room.bench.until(lambda: len(room.bench.gateway.runs) == 1)
    await room.say("two")
    await room.shows("second")
    await room.bench.settled()


async def test_a_deleted_question_stops_its_turn_and_a_waiting_one_is_dropped(open_room: Open) -> None:
    room = await open_room([Say("begun"), Pause(3000)])
    first, second = room.inbound("one"), room.inbound("two")
    await room.bench.inbox.accept(first)
    await room.shows("begun")
    await room.bench.inbox.accept(second)
    for deleted in (second, first):
        await room.say("", kind=InboundKind.DELETED, message_id=deleted.message_id)
    await room.bench.settled()
    assert room.bench.gateway.questions == ["one"]


async def test_a_deleted_question_is_not_answered_also_when_it_was_a_reply_into_another_thread(open_room: Open) -> None:
    room = await open_room([Say("first")], [Pause(20), Say("busy")])
    group = Place("bench", "room", thread="t1")
    await room.say("@bot hi", place=group, mentions_bot=True)
    await room.bench.settled()
    await room.say("more", place=group)
    await room.bench.until(lambda: len(room.bench.gateway.runs) == 2)
    elsewhere = replace(group, thread="t9")
    question = room.inbound("secret, sorry", place=elsewhere, reply_to="m0")
    await room.bench.inbox.accept(question)
    deleted = room.inbound("", kind=InboundKind.DELETED, place=elsewhere, message_id=question.message_id)
    assert await room.bench.inbox.accept(deleted) is Accepted.TAKEN
    await room.bench.settled()
    assert room.bench.gateway.questions == ["Ann: @bot hi", "Ann: more"]


async def test_an_edited_message_is_never_a_new_turn(open_room: Open) -> None:
    room = await open_room([Say("x")])
    assert await room.say("edited", kind=InboundKind.EDITED) is Accepted.IGNORED


async def test_messages_in_groups_need_a_mention_until_the_bot_takes_part_in_the_thread(open_room: Open) -> None:
    room = await open_room([Say("x")])
    group = Place("bench", "room", thread="t1")
    assert await room.say("chatter", place=group) is Accepted.IGNORED
    assert await room.say("@bot hi", place=group, mentions_bot=True) is Accepted.TAKEN
    await room.bench.settled()
    assert await room.say("and then?", place=group) is Accepted.TAKEN
    assert await room.say("chatter", place=replace(group, thread="t2")) is Accepted.IGNORED
    await room.bench.settled()


async def test_deleting_a_message_that_was_no_question_brings_the_bot_into_no_thread(open_room: Open) -> None:
    room = await open_room([Say("x")])
    group = Place("bench", "room", thread="t1")
    chatter = room.inbound("12:30 them", place=group)
    assert await room.bench.inbox.accept(chatter) is Accepted.IGNORED
    deleted = room.inbound("", kind=InboundKind.DELETED, place=group, message_id=chatter.message_id)
    assert await room.bench.inbox.accept(deleted) is Accepted.IGNORED
    assert await room.bench.store.conversation_at(group) is None
    assert await room.say("12:30 then", place=group) is Accepted.IGNORED


async def test_deleting_a_question_that_was_answered_changes_nothing(open_room: Open) -> None:
    room = await open_room([Say("x")])
    question = room.inbound("hi")
    await room.bench.inbox.accept(question)
    await room.bench.settled()
    assert await room.say("", kind=InboundKind.DELETED, message_id=question.message_id) is Accepted.IGNORED
    assert room.text() == "x"


async def test_a_command_in_a_group_needs_a_mention_and_is_no_reason_to_answer_what_follows(open_room: Open) -> None:
    room = await open_room([Say("x")])
    group = Place("bench", "room", thread="t1")
    assert await room.say("!help", place=group) is Accepted.IGNORED
    assert await room.say("!help", place=group, mentions_bot=True) is Accepted.TAKEN
    await room.shows("/new")
    await room.bench.settled()
    assert await room.say("it was for the other bot", place=group) is Accepted.IGNORED
    await room.say("@bot hi", place=group, mentions_bot=True)
    await room.bench.settled()
    assert await room.say("!status", place=group) is Accepted.TAKEN
    await room.shows("I am idle here.")
    await room.bench.settled()


async def test_where_a_chat_is_one_conversation_the_bot_takes_part_in_no_more_than_its_threads(open_room: Open) -> None:
    room = await open_room([Say("x")], policy=Policy(conversation=ConversationScope.CHAT))
    first, second = Place("bench", "room", thread="t1"), Place("bench", "room", thread="t2")
    await room.say("@bot one", place=first, mentions_bot=True)
    await room.bench.settled()
    assert await room.say("between us", place=second) is Accepted.IGNORED
    assert await room.say("two", place=first) is Accepted.TAKEN
    assert await room.say("!status", place=first) is Accepted.TAKEN
    assert await room.say("three", place=second, reply_to="m0") is Accepted.TAKEN
    await room.bench.settled()
    assert room.bench.gateway.questions == ["Ann: @bot one", "Ann: two", "Ann: three"]
    assert len({run.request.thread for run in room.bench.gateway.runs}) == 1


async def test_where_each_person_has_a_conversation_the_bot_takes_part_in_theirs_alone(open_room: Open) -> None:
    room = await open_room([Say("x")], policy=Policy(conversation=ConversationScope.USER))
    group = Place("bench", "room", thread="t1")
    await room.say("@bot one", place=group, mentions_bot=True)
    await room.bench.settled()
    assert await room.say("well", place=group, sender=Sender("u2", "Bob")) is Accepted.IGNORED
    assert await room.say("two", place=group) is Accepted.TAKEN
    await room.bench.settled()


@pytest.mark.parametrize("conversation", [ConversationScope.THREAD, ConversationScope.CHAT])
async def test_a_stranger_in_a_thread_of_the_bot_is_offered_pairing_and_commands_nothing(
    open_room: Open, conversation: ConversationScope
) -> None:
    room = await open_room([Say("x")], policy=Policy(pairing=True, admins=("u1",), conversation=conversation))
    group = Place("bench", "room", thread="t1")
    await room.say("@bot hi", place=group, mentions_bot=True)
    await room.bench.settled()
    assert await room.say("!status", place=group, sender=Sender("u2", "Bob")) is Accepted.TAKEN
    await room.shows("/pair")
    await room.bench.settled()
    assert "idle" not in room.text()


async def test_a_reply_to_the_bots_message_stays_in_its_conversation(open_room: Open) -> None:
    room = await open_room([Say("x")], policy=Policy(groups=Groups.MENTION))
    group = Place("bench", "room", thread="t1")
    await room.say("@bot hi", place=group, mentions_bot=True)
    await room.bench.settled()
    elsewhere = replace(group, thread="t9")
    assert await room.say("why?", place=elsewhere, reply_to="m0") is Accepted.TAKEN
    await room.bench.settled()
    threads = {run.request.thread for run in room.bench.gateway.runs}
    assert len(threads) == 1


async def test_strangers_are_ignored_and_can_be_paired(open_room: Open) -> None:
    room = await open_room([Say("welcome")], policy=Policy(pairing=True, admins=("boss",)))
    assert await room.say("let me in") is Accepted.TAKEN
    await room.shows("/pair")
    await room.bench.settled()
    code = room.text().split("/pair ")[1][:6]
    await room.say(f"/pair {code}", "office", sender=Sender("boss", "Boss"))
    await room.shows("Ann may talk to me", "office")
    await room.say("hello")
    await room.shows("welcome")
    await room.bench.settled()
    assert room.bench.gateway.questions == ["hello"]


async def test_a_turn_that_cannot_be_finished_is_given_up_visibly_and_can_be_asked_again(open_room: Open) -> None:
    room = await open_room([Say("begun"), Pause(1e9)], [Say("again")], give_up_after=30.0)
    await room.say("one")

    async def dead() -> bool:
        return bool(await room.bench.store.dead_letters())

    await room.bench.until(dead)
    await room.shows("could not be finished")
    await room.say("/retry")
    await room.shows("again")


@pytest.mark.parametrize(
    ("private", "scope", "names", "asked"),
    [
        (False, ConversationScope.THREAD, True, "Ann B.: hi"),
        (False, ConversationScope.CHAT, True, "Ann B.: hi"),
        (False, ConversationScope.THREAD, False, "hi"),
        (False, ConversationScope.USER, True, "hi"),
        (True, ConversationScope.THREAD, True, "hi"),
    ],
)
async def test_the_agent_is_told_who_says_what_where_several_share_a_conversation(
    open_room: Open, private: bool, scope: ConversationScope, names: bool, asked: str
) -> None:
    room = await open_room([Say("x")], policy=Policy(groups=Groups.ALL, conversation=scope, name_senders=names))
    await room.say("hi", place=Place("bench", "room", private=private), sender=Sender("u1", "Ann\nB."))
    await room.bench.settled()
    assert room.bench.gateway.questions == [asked]


async def test_who_has_no_name_is_told_apart_by_their_id(open_room: Open) -> None:
    room = await open_room([Say("x")], policy=Policy(groups=Groups.ALL))
    quote = "old words"
    await room.say("hi", place=Place("bench", "room"), sender=Sender("u1"), quote=quote)
    await room.bench.settled()
    assert room.bench.gateway.questions == ["> old words\n\nu1: hi"]


async def test_a_place_where_nothing_may_be_sent_does_not_hold_up_anything(open_room: Open) -> None:
    room = await open_room([Say("x")])
    room.adapter.papers["closed"].trouble = lambda _: (Forbidden("kicked"), False)
    await room.say("one", "closed")
    await room.say("two", "open")
    await room.bench.settled()
    assert room.text("open") == "x"


async def test_a_place_where_nothing_may_be_sent_gets_no_sign_of_work_either(open_room: Open) -> None:
    room = await open_room([Say("x"), Pause(60)])
    room.adapter.papers["closed"].trouble = lambda _: (Forbidden("kicked"), False)
    await room.say("one", "closed")
    await room.bench.settled()
    working = [hint for hint in room.adapter.hints if hint in (HintState.WAITING, HintState.WORKING)]
    assert len(working) < 12, "one every four seconds of the minute, but only until the first refusal"
    assert room.adapter.hints[-1] is HintState.FAILED


async def test_an_answer_that_nobody_could_be_shown_is_a_dead_letter_that_can_be_asked_again(open_room: Open) -> None:
    room = await open_room([Say("x")])
    room.adapter.papers["closed"].trouble = lambda _: (Forbidden("kicked"), False)
    await room.say("one", "closed")
    await room.bench.settled()
    (letter,) = await room.bench.store.dead_letters()
    assert "nothing may be sent to this place" in letter.note
    room.adapter.papers["closed"].trouble = lambda _: (None, True)
    await room.press(Action.RETRY, letter.id, chat="closed")
    await room.shows("x", "closed")
    await room.bench.settled()
    assert await room.bench.store.dead_letters() == []


async def test_a_silent_tool_call_does_not_hold_back_text(open_room: Open) -> None:
    room = await open_room([Say("Let me look. "), UseTool("search", 30.0), Say("Found it.", message="b")])
    await room.say("find")
    await room.shows("Let me look.")
    await room.bench.settled()
    assert "Found it." in room.text()


async def test_a_button_of_another_chat_or_of_no_turn_is_ignored(open_room: Open) -> None:
    room = await open_room([AskPerson({"question": "Which?", "options": ["red", "blue"]})])
    await room.say("paint it", "mine")
    await room.bench.settled()
    asked = await room.last("mine")
    assert await room.press(Action.ANSWER, asked.id, "1", chat="theirs") is Accepted.IGNORED
    assert await room.press(Action.STOP, "0" * 32, chat="mine") is Accepted.IGNORED
    assert await room.press(Action.ANSWER, asked.id, "1", chat="mine") is Accepted.TAKEN
    await room.bench.settled()


async def test_anybody_in_the_chat_may_answer_a_question_also_where_each_has_a_conversation(open_room: Open) -> None:
    policy = Policy(conversation=ConversationScope.USER, groups=Groups.ALL)
    room = await open_room([AskPerson({"question": "Which?", "options": ["red"]})], [Say("Painted.")], policy=policy)
    group = Place("bench", "room")
    await room.say("paint it", place=group)
    await room.bench.until(lambda: len(room.bench.gateway.runs) == 1)
    await room.bench.settled()
    turn = room.bench.gateway.runs[0].request.turn
    await room.press(Action.ANSWER, turn, "0", place=group, sender=Sender("u2", "Bob"))
    await room.shows("Painted.")
    await room.bench.settled()
    assert len({run.request.thread for run in room.bench.gateway.runs}) == 1


async def test_stop_says_so_when_there_is_nothing_to_stop(open_room: Open) -> None:
    room = await open_room([Say("x")])
    await room.say("/stop")
    await room.shows("Nothing is being written here.")
    await room.bench.settled()


async def test_only_the_person_who_asked_and_admins_may_stop_where_there_are_admins(open_room: Open) -> None:
    room = await open_room([Say("begun"), Pause(3000)], policy=Policy(admins=("boss",), groups=Groups.ALL))
    group = Place("bench", "room")
    await room.say("one", place=group)
    await room.shows("begun")
    await room.say("/stop", place=group, sender=Sender("u2", "Bob"))
    await room.shows("Only who has asked, or an admin, can stop this answer.")
    assert not room.bench.gateway.runs[0].cancelled.is_set()
    await room.say("/stop", place=group, sender=Sender("boss", "Boss"))
    await room.bench.settled()


async def test_a_command_that_fails_unexpectedly_holds_up_no_other(
    open_room: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = await open_room([Say("x")])

    async def fail(*_: object) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(room.bench.store, "waiting", fail)
    await room.say("/status")
    await room.say("/help")
    await room.shows("/new")
    await room.bench.settled()
