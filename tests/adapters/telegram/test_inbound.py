"""What people do, as the bot takes it: messages, albums, topics, mentions, commands, edits, redelivery."""

from __future__ import annotations

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from adapters.telegram.client import Client
from adapters.telegram.reading import held_by
from channels.access import ConversationScope, Groups, Policy
from channels.adapter import Unknown
from tests.adapters.telegram.conftest import LIMITS, OpenTalk
from tests.emulators.journal import Fault, FaultKind
from tests.emulators.telegram import Entity, TelegramEmulator, Upload
from tests.scripted import Pause, Say

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)


async def test_a_private_chat_is_one_conversation(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("yes")])
    chat = talk.emulator.private_chat()
    for text in ("one", "two"):
        talk.emulator.say(chat, text)
        await talk.settled()
    assert talk.questions == ["one", "two"]
    assert len({run.request.thread for run in talk.bench.gateway.runs}) == 1
    assert not talk.emulator.journal.broken


async def test_in_a_group_the_bot_answers_to_its_name_to_replies_and_to_commands_only(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("here I am")], emulator={"privacy_mode": False})
    group = talk.emulator.group("Team")
    talk.emulator.say(group, "chatter")
    question = talk.emulator.say(group, "@bridge_bot, what is up?")
    await talk.shows(group, "here I am")
    await talk.settled()
    (answer,) = talk.answers(group)
    assert answer.reply_to == question
    other = talk.emulator.say(group, "more chatter")
    talk.emulator.say(group, "not for the bot", reply_to=other)
    talk.emulator.say(group, "and then?", reply_to=answer.id)
    talk.emulator.say(group, "/status@other_bot")
    await talk.settled()
    talk.emulator.say(group, "/status@bridge_bot")
    await talk.shows(group, "I am idle here.")
    await talk.settled()
    assert talk.questions == ["what is up?", "and then?"]
    assert len({run.request.thread for run in talk.bench.gateway.runs}) == 1
    assert not talk.emulator.journal.broken


async def test_every_message_is_for_the_bot_where_the_policy_says_so(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("yes")], emulator={"privacy_mode": False}, policy=Policy(groups=Groups.ALL))
    group = talk.emulator.group("Team")
    talk.emulator.say(group, "hello all")
    await talk.settled()
    assert talk.questions == ["hello all"]
    assert not talk.emulator.journal.broken


async def test_a_mention_by_name_without_a_username_counts(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("yes")], emulator={"privacy_mode": False})
    group = talk.emulator.group("Team")
    user = {"id": talk.emulator.bot.id, "is_bot": True, "first_name": "Bridge"}
    talk.emulator.say(group, "Hey 😀 Bridge what is up?", entities=[Entity("text_mention", 7, 6, {"user": user})])
    await talk.settled()
    assert talk.questions == ["Hey 😀 what is up?"]
    assert not talk.emulator.journal.broken


async def test_forum_topics_are_conversations_of_their_own(open_talk: OpenTalk) -> None:
    talk = await open_talk([Pause(5), Say("answer")])
    group = talk.emulator.group("Forum", forum=True)
    one, two = talk.emulator.topic(group, "one"), talk.emulator.topic(group, "two")
    for place in (one, two, None):
        talk.emulator.say(group, "@bridge_bot hi", thread_id=place)
    await talk.settled()
    for place in (one, two):
        (answer,) = talk.answers(group, place)
        assert answer.text == "answer"
    (general,) = [answer for answer in talk.answers(group) if answer.thread_id is None]
    assert general.text == "answer"
    assert len({run.request.thread for run in talk.bench.gateway.runs}) == 3
    # The bot takes part in the first topic now, and does not need to be named there again.
    talk.emulator.say(group, "@bridge_bot more", thread_id=one)
    await talk.settled()
    assert len({run.request.thread for run in talk.bench.gateway.runs}) == 3
    assert not talk.emulator.journal.broken


async def test_an_answer_goes_to_its_topic_also_when_the_whole_chat_is_one_conversation(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("answer")], policy=Policy(conversation=ConversationScope.CHAT))
    group = talk.emulator.group("Forum", forum=True)
    topics = [talk.emulator.topic(group, name) for name in ("one", "two")]
    for topic in topics:
        talk.emulator.say(group, "@bridge_bot hi", thread_id=topic)
    await talk.settled()
    assert [len(talk.answers(group, topic)) for topic in topics] == [1, 1]
    assert len({run.request.thread for run in talk.bench.gateway.runs}) == 1
    assert not talk.emulator.journal.broken


async def test_topics_of_a_private_chat_are_conversations_of_their_own(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("answer")], emulator={"private_topics": True})
    chat = talk.emulator.private_chat()
    topics = [talk.emulator.topic(chat, name) for name in ("one", "two")]
    for topic in topics:
        talk.emulator.say(chat, "hi", thread_id=topic)
    await talk.settled()
    assert [talk.text(chat, topic) for topic in topics] == ["answer", "answer"]
    assert len({run.request.thread for run in talk.bench.gateway.runs}) == 2
    assert not talk.emulator.journal.broken


async def test_an_album_is_one_question_with_all_its_files(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("nice")], speed=2.0)
    chat = talk.emulator.private_chat()
    uploads = [Upload(PNG + bytes([number]), f"{number}.png", "image/png", "photo") for number in range(3)]
    uploads[0] = Upload(PNG, "0.png", "image/png", "photo", caption="look at these")
    talk.emulator.send_album(chat, *uploads)
    await talk.shows(chat, "nice")
    await talk.settled()
    (run,) = talk.bench.gateway.runs
    assert talk.questions == ["look at these"]
    assert [len(file.data) for file in run.request.input.files] == [len(PNG), len(PNG) + 1, len(PNG) + 1]  # type: ignore[union-attr]
    assert not talk.emulator.journal.broken


async def test_an_album_in_a_group_is_for_the_bot_as_a_whole_when_its_first_part_names_it(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("nice")], emulator={"privacy_mode": False}, speed=2.0)
    group = talk.emulator.group("Team")
    first = Upload(PNG, "0.png", "image/png", "photo", caption="@bridge_bot look")
    talk.emulator.send_album(group, first, Upload(PNG, "1.png", "image/png", "photo"))
    await talk.shows(group, "nice")
    await talk.settled()
    (run,) = talk.bench.gateway.runs
    assert len(run.request.input.files) == 2  # type: ignore[union-attr]
    assert not talk.emulator.journal.broken


@pytest.mark.parametrize(
    ("kind", "name", "mime"),
    [
        ("photo", "", "image/jpeg"),
        ("document", "plan.pdf", "application/pdf"),
        ("voice", "", "audio/ogg"),
        ("audio", "song.mp3", "audio/mpeg"),
        ("video", "clip.mp4", "video/mp4"),
    ],
)
async def test_files_come_with_the_question(open_talk: OpenTalk, kind: str, name: str, mime: str) -> None:
    talk = await open_talk([Say("got it")])
    chat = talk.emulator.private_chat()
    content = PNG if kind == "photo" else b"the content"
    talk.emulator.send_file(chat, Upload(content, name or "x", mime, kind, caption="see"))
    await talk.settled()
    (run,) = talk.bench.gateway.runs
    (file,) = run.request.input.files  # type: ignore[union-attr]
    assert (file.data, file.mime) == (content, mime)
    assert name in file.name
    assert talk.questions == ["see"]
    assert not talk.emulator.journal.broken


async def test_a_sticker_or_a_place_is_a_question_too(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("nice")])
    chat, group = talk.emulator.private_chat(), talk.emulator.group("Team")
    talk.emulator.share(chat, {"location": {"latitude": 52.5, "longitude": 13.4}})
    talk.emulator.share(group, {"dice": {"emoji": "🎲", "value": 4}})
    await talk.shows(chat, "nice")
    await talk.settled()
    assert talk.questions == ["[Location: 52.5, 13.4]"]
    assert not talk.emulator.journal.broken


async def test_a_file_that_a_question_replies_to_reaches_the_agent(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("a plan")])
    group = talk.emulator.group("Team")
    plan = talk.emulator.send_file(group, Upload(b"the plan", "plan.pdf", "application/pdf"))
    talk.emulator.say(group, "@bridge_bot what is this?", reply_to=plan)
    await talk.shows(group, "a plan")
    await talk.settled()
    (run,) = talk.bench.gateway.runs
    (file,) = run.request.input.files  # type: ignore[union-attr]
    assert (file.name, file.data) == ("plan.pdf", b"the plan")
    assert not talk.emulator.journal.broken


async def test_a_large_file_may_take_longer_to_come_than_a_small_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.telegram.client._CALL", 0.1)
    slowly = Fault(FaultKind.DELAY, seconds=0.3)
    async with TelegramEmulator() as emulator:
        chat, client = emulator.private_chat(), Client(emulator.token, emulator.url)
        await client.open()
        for size in (1_000, 1_000_000):
            emulator.send_file(chat, Upload(bytes(size)))
        small, large = [client.read_update(raw).message for raw in await client.updates(None, 0, ("message",))]
        assert small is not None
        assert large is not None
        for method, sent in (("getFile", small), ("file", small), ("getFile", large), ("file", large)):
            emulator.faults.plan(method, slowly)
            (file,) = held_by(sent).attachments
            fetched = client.download(str(file.reference["file_id"]), file.size)
            if sent is small:
                with pytest.raises(Unknown):
                    await fetched
            else:
                assert len(await fetched) == 1_000_000
        await client.close()
        assert not emulator.journal.broken


async def test_a_file_that_telegram_has_no_more_is_no_word_against_the_token(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("sorry")], limits=replace(LIMITS, file_link_seconds=0.0))
    chat = talk.emulator.private_chat()
    with capture_logs() as lines:
        talk.emulator.send_file(chat, Upload(b"x", "gone.bin", caption="see"))
        await talk.settled()
    assert "'gone.bin' could not be fetched" in talk.questions[0]
    said = " ".join(map(str, lines))
    assert "Telegram does not hand out the file any more" in said
    assert "token" not in said
    assert not talk.emulator.journal.broken


async def test_a_file_that_is_too_large_is_not_fetched_and_the_agent_is_told(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("sorry")])
    chat = talk.emulator.private_chat()
    talk.emulator.send_file(chat, Upload(b"x", "huge.bin", size=90_000_000, caption="see"))
    await talk.settled()
    assert "huge.bin" in talk.questions[0]
    assert "could not be fetched" in talk.questions[0]
    assert not talk.emulator.journal.of("getFile")
    assert not talk.emulator.journal.broken


async def test_an_edited_question_is_never_a_new_one(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("answer")])
    chat = talk.emulator.private_chat()
    question = talk.emulator.say(chat, "frist")
    await talk.settled()
    talk.emulator.edit(chat, question, "first")
    await talk.settled()
    assert talk.questions == ["frist"]
    assert not talk.emulator.journal.broken


async def test_redelivered_and_reordered_updates_are_one_question_each_in_order(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("answer")])
    chat = talk.emulator.private_chat()
    talk.emulator.hold_updates()
    for text in ("one", "two", "three"):
        talk.emulator.say(chat, text)
    talk.emulator.release_updates(reverse=True)
    await talk.settled()
    talk.emulator.redeliver()
    talk.emulator.redeliver(talk.emulator.redeliver() - 1)
    await talk.settled()
    assert talk.questions == ["one", "two", "three"]
    assert not talk.emulator.journal.broken


async def test_a_redelivered_press_acts_once_and_is_answered_once(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("text"), Pause(3000)])
    chat = talk.emulator.private_chat()
    talk.emulator.say(chat, "hi")
    await talk.shows(chat, "text")
    talk.emulator.press(chat, talk.answers(chat)[0].id, "⏹ Stop")
    await talk.settled()
    talk.emulator.redeliver()
    await talk.settled()
    assert len(talk.emulator.journal.of("answerCallbackQuery")) == 1
    assert not talk.emulator.journal.broken


async def test_somebody_who_may_not_talk_to_the_bot_is_told_so_when_pressing(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("text"), Pause(3000)], policy=Policy(allow_users=("50002",)))
    ann, eve = talk.emulator.person("Ann"), talk.emulator.person("Eve")
    assert ann.id == 50002
    group = talk.emulator.group("Team", ann, eve)
    talk.emulator.say(group, "@bridge_bot hi", by=eve)
    talk.emulator.say(group, "@bridge_bot hi", by=ann)
    await talk.shows(group, "text")
    press = talk.emulator.press(group, talk.answers(group)[0].id, "⏹ Stop", by=eve)
    await talk.emulator.wait_for(lambda: press.answer is not None)
    assert press.answer == "This button is not for you."
    assert talk.questions == ["hi"]
    talk.emulator.say(group, "/stop", by=ann)
    await talk.shows(group, "Stopped.")
    await talk.settled()
    assert not talk.emulator.journal.broken


async def test_commands_are_published_and_answered(open_talk: OpenTalk) -> None:
    talk = await open_talk([Say("answer")])
    await talk.emulator.wait_for(lambda: talk.emulator.commands)
    (published,) = talk.emulator.commands.values()
    assert [command["command"] for command in published] == ["new", "stop", "retry", "status", "help"]
    chat = talk.emulator.private_chat()
    talk.emulator.say(chat, "/start")
    await talk.shows(chat, "Ask me anything")
    talk.emulator.say(chat, "/new")
    await talk.shows(chat, "A new conversation begins")
    await talk.settled()
    assert not talk.questions
    assert not talk.emulator.journal.broken


async def test_the_question_gets_a_reaction_in_private_and_typing_is_shown(open_talk: OpenTalk) -> None:
    talk = await open_talk([Pause(6), Say("answer")], reaction="👀")
    chat, group = talk.emulator.private_chat(), talk.emulator.group("Team")
    question = talk.emulator.say(chat, "hi")
    talk.emulator.say(group, "@bridge_bot hi")
    await talk.emulator.wait_for(lambda: talk.emulator.chat(chat).action == "typing")
    await talk.settled()
    reactions = {message.id: message.reactions for message in talk.emulator.chat(chat).messages}
    assert reactions[question] == ("👀",)
    assert not any(message.reactions for message in talk.emulator.chat(group).messages)
    assert not talk.emulator.journal.broken
