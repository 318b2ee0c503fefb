"""An answer that changes while an earlier form of it is being shown: what readers see in the end is what it is now."""

from __future__ import annotations

from dataclasses import replace

import pytest

from channels.adapter import Failure, HintState, Op, Transient
from channels.model import TurnId, View
from channels.store.records import Lease, Turn, TurnState
from tests.channels.test_core import Open, Room, open_room
from tests.paper import Paper
from tests.scripted import Say

__all__ = ["open_room"]

SHOWN_NOW = "Blue it is.(Withdrawn.)"


def out_of_order(_: Op) -> tuple[Failure | None, bool]:
    return Transient("later"), False


def in_order(_: Op) -> tuple[Failure | None, bool]:
    return None, True


async def answered_but_not_shown(room: Room) -> tuple[Paper, Turn]:
    """The final view of an answer is stored, and the platform takes nothing."""
    paper = room.adapter.papers["room"]
    paper.trouble = out_of_order
    await room.say("Which colour?")

    async def is_final() -> bool:
        return bool(room.bench.gateway.runs) and (await room.last()).state is TurnState.FINAL

    await room.bench.until(is_final)
    return paper, await room.last()


def lease(room: Room) -> Lease:
    return room.bench.manager._owned["bench"].owner.current_lease


def withdrawn(turn: Turn) -> View:
    assert turn.final is not None
    return replace(turn.final, notice="Withdrawn.")


@pytest.mark.parametrize("fate", ["goes on", "is handed over", "crashes"])
async def test_what_was_changed_while_it_was_being_shown_is_shown_as_it_is_now_whatever_happens_in_between(
    open_room: Open, fate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = await open_room([Say("Blue it is.")])
    paper, turn = await answered_but_not_shown(room)
    await room.bench.store.retouch(lease(room), turn.id, withdrawn(turn))
    finish, is_shown = room.bench.store.finish, False

    async def shown(lease: Lease, turn_id: TurnId, state: TurnState = TurnState.DONE, note: str = "") -> None:
        nonlocal is_shown
        await finish(lease, turn_id, state, note)
        is_shown = True
        if fate != "goes on":
            paper.trouble = out_of_order  # and whatever is to be shown next is left to the next owner

    monkeypatch.setattr(room.bench.store, "finish", shown)
    paper.trouble = in_order
    await room.bench.until(lambda: is_shown)
    match fate:
        case "is handed over":
            await room.bench.restart()
        case "crashes":
            await room.bench.crash()
    paper.trouble = in_order
    await room.bench.settled()
    assert (paper.text(), paper.broken) == (SHOWN_NOW, [])
    assert (await room.last()).state is TurnState.DONE


async def test_a_change_that_could_not_be_shown_says_nothing_anew_of_how_the_answer_ended(open_room: Open) -> None:
    room = await open_room([Say("Blue it is.")], give_up_after=30.0)
    await room.say("Which colour?")
    await room.bench.settled()
    hints, turn = list(room.adapter.hints), await room.last()
    room.adapter.papers["room"].trouble = out_of_order
    changed = await room.bench.store.retouch(lease(room), turn.id, withdrawn(turn))
    assert changed is not None
    room.bench.manager._owned["bench"].owner.carry(changed)
    await room.bench.settled(25)
    assert hints[-1] is HintState.DONE
    assert room.adapter.hints == hints


async def test_what_is_changed_again_while_the_change_is_being_shown_is_shown_as_it_is_now(open_room: Open) -> None:
    room = await open_room([Say("Blue it is.")])
    await room.say("Which colour?")
    await room.bench.settled()
    paper, turn = room.adapter.papers["room"], await room.last()
    paper.trouble = out_of_order
    changed = await room.bench.store.retouch(lease(room), turn.id, replace(withdrawn(turn), notice="Asked again."))
    assert changed is not None
    room.bench.manager._owned["bench"].owner.carry(changed)
    calls = len(paper.calls)
    await room.bench.until(lambda: len(paper.calls) > calls)
    await room.bench.store.retouch(lease(room), turn.id, withdrawn(turn))
    paper.trouble = in_order
    await room.bench.settled()
    assert paper.text() == SHOWN_NOW


async def test_who_crashes_before_the_earlier_form_was_shown_shows_only_the_present_one(open_room: Open) -> None:
    room = await open_room([Say("Blue it is.")])
    paper, turn = await answered_but_not_shown(room)
    await room.bench.store.retouch(lease(room), turn.id, withdrawn(turn))
    await room.bench.crash()
    paper.calls.clear()
    paper.trouble = in_order
    await room.bench.settled()
    assert paper.text() == SHOWN_NOW
    assert {getattr(op, "text", "") for op in paper.calls} == {SHOWN_NOW}
