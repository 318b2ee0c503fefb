"""What people write and do, as the agent and the core get it; over the long connection and over the webhook."""

from __future__ import annotations

import asyncio

import pytest

from channels.access import Groups, Policy
from channels.adapter import ChannelState, StoreAway
from tests.adapters.feishu.conftest import Open, Room
from tests.emulators.feishu import ClientConfig, Outcome, connection_limit, endpoint_refused, handshake_refused
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


async def test_other_events_are_acked_and_counted(open_room: Open) -> None:
    room = await open_room([Say("x")])
    group = room.emulator.add_group("Team", "Ann", bot_in=False)
    await room.emulator.add_bot("Ann", group)
    message = await room.ask("Ann", "hi")
    await room.emulator.react("Ann", message)
    await asked(room)
    unknown = room.adapter._receiver.unknown
    assert unknown["im.chat.member.bot.added_v1"] == 1
    assert unknown["im.message.reaction.created_v1"] >= 1
    assert room.questions == ["hi"]


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
