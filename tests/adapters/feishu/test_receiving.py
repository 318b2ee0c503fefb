"""What people write and do, as the agent and the core get it; over the long connection and over the webhook."""

from __future__ import annotations

import asyncio

import pytest
from pydantic import JsonValue
from structlog.testing import capture_logs

from channels.access import Groups, Policy
from channels.adapter import Accepted, ChannelState, StoreAway
from channels.model import Inbound
from tests.adapters.feishu.conftest import Open, Room
from tests.clock import ScaledClock
from tests.emulators.feishu import ClientConfig, Outcome, connection_limit, endpoint_refused, handshake_refused, refuse
from tests.emulators.journal import Fault, FaultKind
from tests.scripted import Pause, Say

ALL = Policy(groups=Groups.ALL)
WEBHOOK = {
    "mode": "webhook",
    "encrypt_key": "emulated-encrypt-key",
    "verification_token": "emulated-verification-token",
}


async def asked(room: Room, count: int = 1) -> list[str]:
    await room.emulator.wait_for(lambda: len(room.questions) >= count, 20)
    await room.settled()
    return room.questions


def heard_in(room: Room, monkeypatch: pytest.MonkeyPatch) -> dict[str, Inbound]:
    """Every message that the channel hands to the core from now on, as the core gets it first."""
    accept, heard = room.bench.inbox.accept, dict[str, Inbound]()

    async def listening(inbound: Inbound) -> Accepted:
        heard.setdefault(inbound.message_id, inbound)
        return await accept(inbound)

    monkeypatch.setattr(room.bench.inbox, "accept", listening)
    return heard


def threads(room: Room) -> int:
    return len({run.request.thread for run in room.bench.gateway.runs})


async def test_mentions_become_names_and_the_bots_own_goes(open_room: Open) -> None:
    room = await open_room([Say("x")])
    group = room.emulator.add_group("Team", "Ann", "Bob")
    room.emulator.add_person("Bob")
    await room.ask("Ann", "@Bridge ask @Bob about it", group)
    assert await asked(room) == ["ask @Bob about it"]


async def test_a_group_message_needs_a_mention_until_the_bot_takes_part(open_room: Open) -> None:
    room = await open_room([Say("x")])
    group = room.emulator.add_group("Team", "Ann")
    await room.ask("Ann", "chatter", group)
    question = await room.ask("Ann", "@Bridge hi", group)
    reply = await room.shows(group, "x")
    await room.ask("Bob", "and then?", group, reply_to=question)
    await room.ask("Bob", "really?", group, reply_to=reply.message_id)
    await room.ask("Bob", "chatter again", group)
    assert await asked(room, 3) == ["hi", "and then?", "really?"]
    assert threads(room) == 1


async def test_a_command_in_a_group_needs_a_mention_and_brings_the_bot_into_no_thread(open_room: Open) -> None:
    room = await open_room([Say("x")])
    group = room.emulator.add_group("Team", "Ann")
    root = await room.ask("Ann", "/help", group)
    await room.settled()
    assert not room.replies(group)
    await room.ask("Ann", "@Bridge /help", group, reply_to=root)
    await room.shows(group, "Ask me anything")
    await room.ask("Bob", "chatter", group, reply_to=root)
    await room.ask("Bob", "@Bridge hi", group)
    assert await asked(room) == ["hi"]


async def test_a_mention_alone_is_answered_with_what_can_be_typed_unless_there_is_something_to_be_asked_about(
    open_room: Open,
) -> None:
    room = await open_room([Say("x")])
    group = room.emulator.add_group("Team", "Ann")
    earlier = await room.ask("Ann", "it is broken", group)
    await room.ask("Ann", "@Bridge", group)
    await room.shows(group, "Ask me anything")
    await room.ask("Ann", "@Bridge", group, reply_to=earlier)
    await room.shows(group, "x")
    await room.ask("Ann", "@Bridge", group, reply_to=earlier)
    await room.emulator.wait_for(lambda: len(room.replies(group)) == 3)
    await room.settled()
    assert [reply.text.splitlines()[0] for reply in room.replies(group)][::2] == [
        "Ask me anything. You can also type:"
    ] * 2
    assert room.questions == ["> it is broken"]


async def test_private_chat_is_one_conversation_and_topics_are_each_their_own(open_room: Open) -> None:
    room = await open_room([Say("x")], policy=ALL)
    await room.ask("Ann", "one")
    await asked(room, 1)
    await room.ask("Ann", "two")
    await asked(room, 2)
    assert threads(room) == 1
    topics = room.emulator.add_group("Forum", "Ann", topic=True)
    first = await room.ask("Ann", "topic a", topics)
    await room.ask("Ann", "topic b", topics)
    await asked(room, 4)
    await room.ask("Ann", "more on a", topics, reply_to=first)
    await asked(room, 5)
    assert threads(room) == 3


async def test_a_redelivered_message_is_one_question_also_as_a_new_event(open_room: Open) -> None:
    room = await open_room([Say("x")], reaction=None)
    message = await room.ask("Ann", "hi")
    await asked(room)
    assert (await room.emulator.redeliver(message)).outcome is Outcome.ACKED
    room.emulator.redeliver_as_new(message)
    await room.settled()
    assert room.questions == ["hi"]
    assert len(room.replies(room.emulator.p2p("Ann"))) == 1


async def test_an_event_is_acked_only_when_it_is_stored(open_room: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    room = await open_room([Say("x")], reaction=None)
    accept = room.bench.inbox.accept
    refusals = 1

    async def away(inbound):  # type: ignore[no-untyped-def]
        nonlocal refusals
        if refusals:
            refusals -= 1
            raise StoreAway("away")
        return await accept(inbound)

    monkeypatch.setattr(room.bench.inbox, "accept", away)
    message = await room.ask("Ann", "hi")
    assert await asked(room) == ["hi"]
    outcomes = [attempt.outcome for attempt in room.emulator.event(message).attempts]
    assert outcomes == [Outcome.REFUSED, Outcome.ACKED]


async def test_questions_brought_in_the_wrong_order_are_answered_in_the_order_they_were_asked(open_room: Open) -> None:
    room = await open_room([Pause(10), Say("x")], reaction=None)
    await room.ask("Ann", "one")
    await room.emulator.wait_for(lambda: len(room.questions) >= 1, 20)
    room.emulator.hold_events()
    for text in ("two", "three", "four"):
        await room.ask("Ann", text)
        await room.emulator.clock.sleep(0.1)
    room.emulator.release_events(reverse=True)
    assert await asked(room, 4) == ["one", "two", "three", "four"]


async def test_every_kind_of_message_is_read(open_room: Open) -> None:
    room = await open_room([Say("x")])
    emulator, chat = room.emulator, room.emulator.p2p("Ann")
    code = [{"tag": "code_block", "language": "PYTHON", "text": "x = 1"}]
    link = [{"tag": "text", "text": "see "}, {"tag": "a", "text": "this", "href": "https://example.org"}]
    await emulator.post("Ann", chat, ["hello @Bridge", link, code, [{"tag": "hr"}]], title="Title")
    first = await asked(room, 1)
    assert first[0] == "Title\n\nhello \nsee [this](https://example.org)\n\n```python\nx = 1\n```\n\n---"
    await emulator.sticker("Ann", chat)
    await asked(room, 2)
    await emulator.share_chat("Ann", chat, "oc_other")
    await asked(room, 3)
    await emulator.send_raw("Ann", chat, "location", {"name": "Here", "latitude": "1", "longitude": "2"})
    await asked(room, 4)
    await emulator.send_raw("Ann", chat, "hologram", {})
    await asked(room, 5)
    assert room.questions[1:] == [
        "[Sticker]",
        "[Shared chat: oc_other]",
        "[Location: Here, 1, 2]",
        "[A message of the type hologram]",
    ]


async def test_forwarded_messages_are_read_with_their_senders(open_room: Open) -> None:
    room = await open_room([Say("x")])
    group = room.emulator.add_group("Team", "Bob")
    told = await room.emulator.say("Bob", group, "the meeting is at nine")
    await room.emulator.merge_forward("Ann", room.emulator.p2p("Ann"), [told])
    assert await asked(room) == ["[Forwarded messages]\nBob: the meeting is at nine"]


@pytest.mark.parametrize(("seconds", "named"), [(0.35, True), (1.5, False)])
async def test_forwarded_messages_are_read_however_slowly_names_come(
    open_room: Open, seconds: float, named: bool
) -> None:
    room = await open_room([Say("x")], clock=ScaledClock(1))
    group = room.emulator.add_group("Team")
    people = ["Bob", "Cid", "Dan", "Eve"]
    told = [await room.emulator.say(who, group, f"@Bridge says {who}") for who in people]
    slow = Fault(FaultKind.DELAY, seconds=seconds)
    room.emulator.faults.plan("contact.user.get", *[slow] * 9)
    room.adapter._people._names.clear()
    await room.emulator.merge_forward("Ann", room.emulator.p2p("Ann"), told)
    await room.emulator.wait_for(lambda: "[Forwarded messages]" in "".join(room.questions), 20)
    lines = [f"{who if named else 'Somebody'}: @Bridge says {who}" for who in people]
    assert room.questions[-1] == "\n".join(["[Forwarded messages]", *lines])
    await room.settled()


async def test_files_in_forwarded_messages_reach_the_agent_and_their_senders_are_not_confused_with_apps(
    open_room: Open,
) -> None:
    room = await open_room([Say("words of the bot")])
    group = room.emulator.add_group("Team", "Bob")
    await room.ask("Bob", "@Bridge hi", group)
    answer = await room.shows(group, "words of the bot")
    await room.settled()
    told = [await room.emulator.file("Bob", group, "plan.csv", b"1,2"), answer.message_id]
    await room.emulator.merge_forward("Ann", room.emulator.p2p("Ann"), told)
    assert (await asked(room, 2))[1].startswith("[Forwarded messages]\nBob: [plan.csv]\nSomebody: ")
    (file,) = room.bench.gateway.runs[-1].request.input.files  # type: ignore[union-attr]
    assert (file.name, file.data) == ("plan.csv", b"1,2")
    await room.ask("Carl", "hello")
    await asked(room, 3)
    assert room.bench.gateway.runs[-1].request.metadata["sender_name"] == "Carl"


async def test_forwarded_messages_that_cannot_be_read_are_named_as_such(open_room: Open) -> None:
    room = await open_room([Say("x")])
    room.emulator.faults.plan("im.message.get", refuse(230002))
    await room.emulator.merge_forward("Ann", room.emulator.p2p("Ann"), [])
    assert await asked(room) == ["[Forwarded messages, which could not be read]"]


async def test_what_a_question_replies_to_comes_with_it_unless_the_bot_wrote_it(
    open_room: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = await open_room([Say("x")], clock=ScaledClock(1))
    heard = heard_in(room, monkeypatch)
    group = room.emulator.add_group("Team", "Ann", "Bob")
    words = await room.ask("Bob", "@Ann die Katze sitzt auf dem Dach", group)
    plan = await room.emulator.file("Bob", group, "plan.csv", b"1,2")
    bundle = await room.emulator.merge_forward("Bob", group, [words, plan])
    for earlier in (words, plan, bundle):
        await room.ask("Ann", "@Bridge translate this", group, reply_to=earlier)
    answer = await room.shows(group, "x")
    await room.ask("Ann", "and this", group, reply_to=answer.message_id)
    recalled = await room.ask("Bob", "nobody may read this", group)
    await room.emulator.recall("Bob", recalled)
    await room.ask("Ann", "@Bridge what was it?", group, reply_to=recalled)
    await asked(room, 5)
    asks = [inbound for inbound in heard.values() if inbound.mentions_bot or inbound.text == "and this"]
    assert [(inbound.text, inbound.quote, [file.name for file in inbound.attachments]) for inbound in asks] == [
        ("translate this", "@Ann die Katze sitzt auf dem Dach", []),
        ("translate this", "[plan.csv]", ["plan.csv"]),
        (
            "translate this",
            "[Forwarded messages]\nBob: @Ann die Katze sitzt auf dem Dach\nBob: [plan.csv]",
            ["plan.csv"],
        ),
        ("and this", "", []),
        ("what was it?", "", []),
    ]


@pytest.mark.parametrize("topic", [True, False])
async def test_the_root_of_a_groups_conversation_comes_with_the_first_question_only(
    open_room: Open, monkeypatch: pytest.MonkeyPatch, topic: bool
) -> None:
    room = await open_room([Say("x")])
    heard = heard_in(room, monkeypatch)
    topics = room.emulator.add_group("Forum", "Ann", "Bob", topic=topic)
    root = await room.ask("Bob", "it is broken", topics)
    for count, question in enumerate(["@Bridge why?", "and since when?"], 1):
        await room.ask("Ann", question, topics, reply_to=root)
        await asked(room, count)
    own = await room.ask("Ann", "@Bridge is this mine?", topics)
    await asked(room, 3)
    await room.ask("Ann", "and this?", topics, reply_to=own)
    await asked(room, 4)
    quotes = {inbound.text: inbound.quote for inbound in heard.values()}
    assert quotes == {
        "it is broken": "",
        "why?": "it is broken",
        "and since when?": "",
        "is this mine?": "",
        "and this?": "",
    }


async def test_who_has_not_heard_the_root_of_a_conversation_is_told_it(
    open_room: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = await open_room([Say("x")], policy=ALL)
    heard = heard_in(room, monkeypatch)
    group = room.emulator.add_group("Team", "Ann", "Bob", "Eve")
    root = await room.emulator.say("Eve", group, "/status")  # a command is nothing that the agent has heard
    questions = [
        ("Ann", "/help"),
        ("Ann", "why?"),
        ("Ann", "since when?"),
        ("Ann", "/new"),
        ("Ann", "what was it?"),
        ("Ann", "/new and now?"),
        ("Ann", "thanks"),
        ("Bob", "translate this"),
    ]
    for who, text in questions:
        await room.ask(who, text, group, reply_to=root)
        await room.settled()
    quotes = {inbound.text: inbound.quote for inbound in heard.values()}
    told = {"why?", "what was it?", "/new and now?", "translate this"}
    assert quotes == {"/status": ""} | {text: "/status" if text in told else "" for _, text in questions}


async def test_a_question_does_not_wait_for_what_it_replies_to(
    open_room: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = await open_room([Say("x")], clock=ScaledClock(1))
    heard = heard_in(room, monkeypatch)
    chat = room.emulator.p2p("Ann")
    first = await room.ask("Ann", "a long story", chat)
    await asked(room)
    room.emulator.faults.plan("im.message.get", Fault(FaultKind.DELAY, seconds=5.0))
    await room.ask("Ann", "translate this", chat, reply_to=first)
    await room.emulator.wait_for(lambda: len(room.questions) == 2, 20)
    assert [inbound.quote for inbound in heard.values()] == ["", ""]
    again = await room.ask("Ann", "once more", chat, reply_to=first)
    await asked(room, 3)
    assert heard[again].quote == "a long story"


async def test_files_and_pictures_reach_the_agent(open_room: Open) -> None:
    room = await open_room([Say("x")])
    chat = room.emulator.p2p("Ann")
    await room.emulator.file("Ann", chat, "a.csv", b"1,2")
    await asked(room, 1)
    await room.emulator.image("Ann", chat, b"\x89PNG....")
    await asked(room, 2)
    files = [file for run in room.bench.gateway.runs for file in getattr(run.request.input, "files", ())]
    assert [(file.name, file.mime, file.data) for file in files] == [
        ("a.csv", "text/csv", b"1,2"),
        ("image.png", "image/png", b"\x89PNG...."),
    ]


async def test_a_question_and_the_files_around_it_are_one_turn(open_room: Open) -> None:
    room = await open_room([Say("x")], settle_seconds=3.0)
    chat = room.emulator.p2p("Ann")
    await room.emulator.file("Ann", chat, "a.txt", b"a")
    await room.ask("Ann", "compare these")
    await room.emulator.file("Ann", chat, "b.txt", b"b")
    assert await asked(room) == ["compare these"]
    (run,) = room.bench.gateway.runs
    assert [file.name for file in getattr(run.request.input, "files", ())] == ["a.txt", "b.txt"]


async def test_two_texts_stay_two_questions(open_room: Open) -> None:
    room = await open_room([Say("x")], settle_seconds=1.0)
    await room.ask("Ann", "one")
    await room.emulator.wait_for(lambda: all(event.acked for event in room.emulator.events))
    await room.ask("Ann", "two")
    assert await asked(room, 2) == ["one", "two"]


async def test_a_recalled_question_stops_its_answer(open_room: Open) -> None:
    room = await open_room([Say("begun"), Pause(3000)], settle_seconds=0.0)
    chat = room.emulator.p2p("Ann")
    question = await room.ask("Ann", "hi")
    await room.shows(chat, "begun")
    await room.emulator.recall("Ann", question)
    await room.settled()
    assert "deleted" in room.text(chat)
    await room.emulator.recall("Ann", await room.ask("Ann", "/status"))
    await room.settled()


@pytest.mark.parametrize("way", [{}, WEBHOOK])
@pytest.mark.parametrize("overtakes", [True, False])
async def test_a_question_that_is_recalled_while_it_is_on_its_way_is_not_answered(
    open_room: Open, way: dict[str, str], overtakes: bool
) -> None:
    room = await open_room([Say("begun"), Pause(3000)], **way)
    chat = room.emulator.p2p("Ann")
    if overtakes:
        room.emulator.hold_events()
    else:  # the sender's name is waited for
        room.emulator.faults.plan("contact.user.get", Fault(FaultKind.DELAY, seconds=6.0))
    question = await room.ask("Ann", "hi")
    await room.emulator.recall("Ann", question)
    room.emulator.release_events(reverse=overtakes)
    await room.settled()
    assert room.text(chat) in ("", "Stopped: the question was deleted.", "begun\nStopped: the question was deleted.")


async def test_a_question_whose_process_died_before_it_noted_where_it_was_is_found_when_it_is_recalled(
    open_room: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = await open_room([Say("begun"), Pause(3000)], settle_seconds=0.0)
    chat = room.emulator.p2p("Ann")

    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(room.bench.inbox, "remember", never)
    question = await room.ask("Ann", "hi")
    await room.shows(chat, "begun")
    await room.bench.crash()
    await room.emulator.wait_for(lambda: all(event.acked for event in room.emulator.events), 20)
    await room.emulator.recall("Ann", question)
    await room.settled()
    assert "deleted" in room.text(chat)
    assert room.questions == ["hi"]


async def test_other_events_are_acked_and_the_log_counts_them(open_room: Open) -> None:
    with capture_logs() as lines:
        room = await open_room([Say("x")], reaction=None)
        group = room.emulator.add_group("Team", "Ann", bot_in=False)
        await room.emulator.add_bot("Ann", group)
        message = await room.ask("Ann", "hi")
        for _ in range(12):
            await room.emulator.react("Ann", message)
        await asked(room)
    counted = [(line["type"], line["so_far"]) for line in lines if line["event"] == "events nothing is done about"]
    assert sorted(counted) == [
        ("im.chat.member.bot.added_v1", 1),
        ("im.message.reaction.created_v1", 1),
        ("im.message.reaction.created_v1", 10),
    ]
    assert room.questions == ["hi"]


async def test_an_event_that_cannot_be_read_is_told_to_the_operator_until_one_can(open_room: Open) -> None:
    room = await open_room([Say("x")])
    header: JsonValue = {"event_id": "e1", "event_type": "im.message.receive_v1"}
    event: JsonValue = {"message": {"message_id": "om_1", "content": "a secret", "chat_id": ["a secret"]}}
    with capture_logs() as lines:
        assert await room.adapter._receiver.receive({"header": header, "event": event}) == {}
    (line,) = [line for line in lines if line["event"] == "an event cannot be read and is left out"]
    assert (line["log_level"], line["type"], line["so_far"]) == ("warning", "im.message.receive_v1", 1)
    assert "message.chat_id" in line["cause"]
    assert "a secret" not in str(lines) + room.bench.inbox.health.reason
    assert room.state is ChannelState.DEGRADED
    assert "im.message.receive_v1" in room.bench.inbox.health.reason
    pressed = await room.adapter._receiver.receive({"header": {"event_type": "card.action.trigger"}, "event": 7})
    assert "toast" in pressed
    await room.ask("Ann", "hi")
    assert await asked(room) == ["hi"]
    assert "im.message.receive_v1" not in room.bench.inbox.health.reason


async def test_an_event_in_parts_is_put_together(open_room: Open) -> None:
    room = await open_room([Say("x")])
    room.emulator.longconn.part_bytes = 100
    await room.ask("Ann", "谢谢" * 200)
    assert await asked(room) == ["谢谢" * 200]


async def test_names_of_people_reach_the_agent_and_are_not_needed(open_room: Open) -> None:
    room = await open_room([Say("x")])
    await room.ask("Ann", "hi")
    await asked(room)
    assert room.bench.gateway.runs[0].request.metadata["sender_name"] == "Ann"
    room.emulator.revoke_scope("contact:user.base:readonly")
    await room.ask("Carl", "hello")
    await asked(room, 2)
    assert room.state is ChannelState.RUNNING


# -- the long connection


async def test_a_closed_and_a_cut_connection_are_opened_again(open_room: Open) -> None:
    room = await open_room([Say("x")])
    await room.emulator.close_connections()
    await room.emulator.wait_for(lambda: room.emulator.longconn.opened == 2 and room.emulator.longconn.connections, 20)
    room.emulator.abort_connections()
    await room.emulator.wait_for(lambda: room.emulator.longconn.opened == 3, 20)
    await room.ask("Ann", "hi")
    assert await asked(room) == ["hi"]


async def test_a_half_open_connection_is_noticed_within_a_minute(open_room: Open) -> None:
    room = await open_room([Say("x")])
    began = room.bench.clock.now()
    room.emulator.half_open()
    await room.emulator.wait_for(lambda: room.emulator.longconn.opened == 2, 20)
    assert room.bench.clock.now() - began < 60
    await room.ask("Ann", "hi")
    assert await asked(room) == ["hi"]


async def test_a_refused_reconnect_heals(open_room: Open) -> None:
    room = await open_room([Say("x")])
    room.emulator.faults.plan("ws.connect", handshake_refused(403, "no"), connection_limit())
    room.emulator.faults.plan("ws.endpoint", endpoint_refused(1, "busy"))
    await room.emulator.close_connections()
    await room.emulator.wait_for(lambda: room.state is not ChannelState.RUNNING, 20)
    await room.emulator.wait_for(lambda: room.state is ChannelState.RUNNING, 20)
    await room.ask("Ann", "hi")
    assert await asked(room) == ["hi"]


async def test_a_wrong_secret_is_a_visible_failure(open_room: Open) -> None:
    room = await open_room([Say("x")], app_secret="wrong", wait=False)
    await room.emulator.wait_for(lambda: room.state is ChannelState.FAILED)
    assert "unauthorised" in room.bench.inbox.health.reason
    assert "wrong" not in room.bench.inbox.health.reason.replace("is wrong", "")


async def test_pings_follow_the_platforms_interval(open_room: Open) -> None:
    room = await open_room([Say("x")], emulated={"client_config": ClientConfig(PingInterval=5)})
    (connection,) = room.emulator.longconn.connections
    await room.emulator.wait_for(lambda: connection.pings >= 4)


async def test_stopping_closes_the_connection_and_starting_opens_another(open_room: Open) -> None:
    room = await open_room([Say("x")])
    before = asyncio.all_tasks()
    await room.adapter.stop()
    await room.emulator.wait_for(lambda: not room.emulator.longconn.connections)
    assert not [task for task in asyncio.all_tasks() - before if task.get_name().startswith("feishu")]
    await room.adapter.start()
    await room.emulator.wait_for(lambda: len(room.emulator.longconn.connections) == 1)
    await room.ask("Ann", "hi")
    assert await asked(room) == ["hi"]


# -- the webhook


async def test_the_webhook_takes_events_and_answers_presses(open_room: Open) -> None:
    room = await open_room([Say("partial "), Pause(3000)], **WEBHOOK)
    chat = room.emulator.p2p("Ann")
    assert await room.emulator.verify_webhook()
    await room.ask("Ann", "hi")
    reply = await room.shows(chat, "partial")
    pressed = await room.emulator.press("Ann", reply.message_id, "Stop")
    assert pressed.outcome is Outcome.ACKED
    assert pressed.toast
    await room.settled()
    assert room.replies(chat)[0].title == "Stopped"


@pytest.mark.parametrize(
    "forgery",
    ["bad_signature", "unsigned", "stale", "future", "plaintext", "plaintext_unsigned", "wrong_token", "wrong_key"],
)
async def test_a_forged_request_is_refused(open_room: Open, forgery: str) -> None:
    room = await open_room([Say("x")], **WEBHOOK)
    assert await room.emulator.forge(forgery) == 401  # type: ignore[arg-type]
    await room.settled()
    assert room.questions == []


async def test_garbage_and_replays_are_refused(open_room: Open) -> None:
    room = await open_room([Say("x")], reaction=None, **WEBHOOK)
    assert await room.emulator.forge("garbage") == 401
    message = await room.ask("Ann", "hi")
    await asked(room)
    assert await room.emulator.replay(message) == 401
    assert await room.emulator.replay(message, shouting=True) == 401
    assert room.questions == ["hi"]


async def test_the_webhook_is_not_acked_while_the_store_is_away(
    open_room: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = await open_room([Say("x")], **WEBHOOK)

    async def away(_: object) -> None:
        raise StoreAway("away")

    with monkeypatch.context() as patched:
        patched.setattr(room.bench.inbox, "accept", away)
        message = await room.ask("Ann", "hi")
        await room.emulator.wait_for(lambda: room.emulator.event(message).attempts)
        assert room.emulator.event(message).attempts[0].outcome is Outcome.REFUSED
    assert await asked(room) == ["hi"]


async def test_many_people_at_once_are_looked_up_and_heard_within_the_platforms_rates(open_room: Open) -> None:
    room = await open_room([Pause(3000)], clock=ScaledClock(2.0))
    people = [f"Person {number}" for number in range(90)]
    room.emulator.hold_events()
    for person in people:
        await room.ask(person, "hi")
    room.emulator.release_events()
    await room.emulator.wait_for(lambda: len(room.emulator.journal.of("im.reaction.create")) == len(people), 60)
    assert not room.emulator.journal.broken
