"""The reaction on a question: set while it is answered, and gone afterwards whatever happens in between."""

from __future__ import annotations

import pytest

from tests.adapters.feishu.conftest import Open
from tests.emulators.feishu import rate_limited, refuse
from tests.emulators.journal import Fault, FaultKind
from tests.scripted import Pause, Say

LOST, BROKEN = Fault(FaultKind.DROP_AFTER), Fault(FaultKind.ANSWER, 502, {}, "<html>")
TROUBLES = {
    "the server is down": [BROKEN, BROKEN],
    "the answer is lost": [LOST],
    "too many calls": [rate_limited(3)],
    "another call is under way": [refuse(231015), refuse(231015)],
    "the app is switched off": [refuse(99991662), refuse(99991662)],
}


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_a_reaction_is_removed_however_often_that_has_to_be_tried(open_room: Open, trouble: str) -> None:
    done = "DONE" if trouble == "the answer is lost" else None
    room = await open_room([Say("a"), Pause(3), Say("b")], reaction="OnIt", reaction_done=done)
    question = await room.ask("Ann", "hi")
    seen = room.emulator.message
    await room.emulator.wait_for(lambda: seen(question).reactions == (("Bridge", "OnIt"),))
    room.emulator.faults.plan("im.reaction.delete", *TROUBLES[trouble])
    await room.settled()
    wanted = () if done is None else (("Bridge", done),)
    await room.emulator.wait_for(lambda: seen(question).reactions == wanted)


async def test_while_no_reactions_may_be_set_those_that_are_there_are_removed(open_room: Open) -> None:
    room = await open_room([Say("a"), Pause(6), Say("b")], [Say("c")], reaction="OnIt")
    question = await room.ask("Ann", "hi")
    seen = room.emulator.message
    await room.emulator.wait_for(lambda: seen(question).reactions == (("Bridge", "OnIt"),))
    room.emulator.faults.plan("im.reaction.create", rate_limited(1))
    other = await room.ask("Bob", "hello")
    await room.emulator.wait_for(lambda: len(room.emulator.journal.of("im.reaction.create")) == 2)
    await room.settled()
    await room.emulator.wait_for(lambda: seen(question).reactions == ())
    third = await room.ask("Bob", "and then?")
    await room.settled()
    assert (seen(other).reactions, seen(third).reactions) == ((), ())
    assert len(room.emulator.journal.of("im.reaction.create")) == 2


async def test_a_reaction_that_may_be_there_is_looked_for(open_room: Open) -> None:
    room = await open_room([Say("a")], reaction="OnIt")
    room.emulator.faults.plan("im.reaction.create", LOST, LOST)
    question = await room.ask("Ann", "hi")
    await room.settled()
    await room.emulator.wait_for(lambda: len(room.emulator.journal.of("im.reaction.delete")) == 1)
    assert room.emulator.message(question).reactions == ()


async def test_a_reaction_that_the_app_may_not_set_is_not_looked_for(open_room: Open) -> None:
    room = await open_room([Say("x")], reaction="OnIt")
    room.emulator.faults.plan("im.reaction.create", refuse(99991672))
    await room.ask("Ann", "hi")
    await room.settled()
    await room.bench.clock.sleep(20)
    assert len(room.emulator.journal.of("im.reaction.create")) == 1
    assert not room.emulator.journal.of("im.reaction.list")
