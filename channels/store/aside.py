"""What this version cannot read: given up as a dead letter, where people see it and where it holds up nobody.

It happens when the version that wrote it was replaced by an earlier one, or when a row is damaged. What was written is
left as it is, so a version that can read it can ask it again.
"""

from __future__ import annotations

import sqlalchemy as sa
import structlog

from channels.model import Place, TurnId, new_turn_id
from channels.store.database import Transaction
from channels.store.leases import fence
from channels.store.records import Conversation, Lane, Lease, Turn, TurnState, Unreadable
from channels.store.schema import conversations, inbounds, turn_inbounds, turns

log = structlog.get_logger(__name__)

_WHAT_TO_DO = "once a version runs that can read it, ask it again from the console"


def give_up_turn(tx: Transaction, row: sa.RowMapping, why: Unreadable) -> None:
    """End an open turn that cannot be read. One that was only to be shown once more is done: it asks nothing."""
    was_shown = row[turns.c.state] == TurnState.RETOUCH
    ended = turns.update().where(turns.c.number == row[turns.c.number])
    state = TurnState.DONE if was_shown else TurnState.DEAD
    tx.connection.execute(ended.values(state=state, holds=None, ended_at=tx.now, note=_note(why)))
    tx.wake(row[turns.c.channel])
    log.error(
        "a change to an answer cannot be read; it is not shown"
        if was_shown
        else f"a turn that cannot be read is given up; {_WHAT_TO_DO}",
        channel=row[turns.c.channel],
        conversation=row[turns.c.conversation_id],
        turn=row[turns.c.id],
        cause=str(why),
    )


def give_up_control(tx: Transaction, lease: Lease, inbound_id: int, why: Unreadable) -> None:
    """Make a dead letter of a waiting control inbound that cannot be read."""
    fence(tx, lease)
    given_up = inbounds.update().where(
        inbounds.c.id == inbound_id, inbounds.c.channel == lease.channel, inbounds.c.state == "waiting"
    )
    conversation_id = tx.connection.execute(
        given_up.values(state="handled").returning(inbounds.c.conversation_id)
    ).scalar()
    if conversation_id is None:
        return
    here = conversations.c.id == conversation_id
    letter = turns.insert().values(
        id=new_turn_id(),
        channel=lease.channel,
        conversation_id=conversation_id,
        generation=sa.select(conversations.c.generation).where(here).scalar_subquery(),
        state=TurnState.DEAD,
        note=_note(why),
        created_at=tx.now,
        ended_at=tx.now,
    )
    number = tx.connection.execute(letter.returning(turns.c.number)).scalar_one()
    tx.connection.execute(turn_inbounds.insert(), [{"turn": number, "inbound": inbound_id}])
    log.error(
        f"a command that cannot be read is given up; {_WHAT_TO_DO}",
        channel=lease.channel,
        conversation=conversation_id,
        cause=str(why),
    )


def take_up_control(tx: Transaction, lease: Lease, turn_id: TurnId) -> bool:
    """Handle a control inbound after all that was given up as this dead letter; False: there is none."""
    letter = (turns.c.id == turn_id, turns.c.channel == lease.channel, turns.c.state == TurnState.DEAD)
    mine = sa.select(turn_inbounds.c.inbound).join(turns, turns.c.number == turn_inbounds.c.turn).where(*letter)
    again = inbounds.update().where(inbounds.c.id.in_(mine), inbounds.c.lane == Lane.CONTROL).values(state="waiting")
    if tx.connection.execute(again).rowcount == 0:
        return False
    tx.connection.execute(turns.update().where(*letter).values(state=TurnState.DONE))
    tx.wake(lease.channel)
    return True


def bare(row: sa.RowMapping) -> Turn:
    """What can be told of a turn that cannot be read: not where it was asked, nor by whom, nor what."""
    return Turn(
        id=TurnId(row[turns.c.id]),
        conversation=Conversation(
            id=row[turns.c.conversation_id],
            channel=row[turns.c.channel],
            place=Place(row[turns.c.channel], chat=""),
            generation=row[turns.c.generation],
            thread_id=None,
            pending=None,
        ),
        inbounds=(),
        state=TurnState.DEAD,
        created_at=row[turns.c.created_at],
        note=row[turns.c.note],
    )


def _note(why: Unreadable) -> str:
    return f"cannot be read by this version ({why}); {_WHAT_TO_DO}"
