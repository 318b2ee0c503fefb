"""Turns: made from inbounds, carried on state by state, ended, asked again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import cast

import sqlalchemy as sa
from pydantic import JsonValue

from channels.model import Inbound, RunId, ThreadId, TurnId, View
from channels.store import aside
from channels.store.codec import inbound_from_json, readable_inbound, view_from_json, view_to_json
from channels.store.conversations import COLUMNS, bind, conversation_of
from channels.store.database import Transaction
from channels.store.leases import Hold, fence
from channels.store.records import Counts, Lane, Lease, Stopped, StoreError, Turn, TurnState, Unreadable
from channels.store.schema import conversations, feedback, inbounds, turn_inbounds, turns

MayStop = Callable[[Sequence[Inbound]], bool]
"""Whether who wants to stop may stop the answer to these inbounds."""

AS_ASKED = (sa.func.coalesce(inbounds.c.asked_at, inbounds.c.accepted_at), inbounds.c.id)
"""The order in which people did things, which is not always the one in which they were accepted."""

_OPEN = [state for state in TurnState if state.is_open]
_IS_OPEN = turns.c.state.not_in([state for state in TurnState if not state.is_open])
"""Also true of a state that only a newer version knows: such a turn holds its conversation."""


def load(tx: Transaction, *conditions: sa.ColumnElement[bool], newest: int | None = None) -> list[Turn]:
    """The turns that meet the conditions, oldest first; with `newest`, at most that many, newest first.

    Without those that this version cannot read.
    """
    return [found for _, found in _rows(tx, *conditions, newest=newest) if isinstance(found, Turn)]


def _rows(
    tx: Transaction, *conditions: sa.ColumnElement[bool], newest: int | None = None
) -> list[tuple[sa.RowMapping, Turn | Unreadable]]:
    """The rows behind `load`, each with what it means or why it means nothing."""
    query = (
        sa.select(turns, *COLUMNS).join(conversations, conversations.c.id == turns.c.conversation_id).where(*conditions)
    )
    order = turns.c.number if newest is None else turns.c.number.desc()
    query = query.order_by(order).limit(newest)
    rows = tx.connection.execute(query).mappings().all()
    asked: dict[int, list[JsonValue]] = {row[turns.c.number]: [] for row in rows}
    members = tx.connection.execute(
        sa.select(turn_inbounds.c.turn, inbounds.c.payload)
        .join(inbounds, inbounds.c.id == turn_inbounds.c.inbound)
        .where(turn_inbounds.c.turn.in_(asked))
        .order_by(*AS_ASKED)
    )
    for member in members:
        asked[member.turn].append(member.payload)
    return [(row, _turn_of(row, asked[row[turns.c.number]])) for row in rows]


def make(tx: Transaction, turn_id: TurnId, channel: str, conversation_id: int, members: Sequence[int]) -> None:
    """A new turn of these inbounds, which holds its conversation and answers the question that is open there."""
    here = conversations.c.id == conversation_id
    new = turns.insert().values(
        id=turn_id,
        channel=channel,
        conversation_id=conversation_id,
        holds=conversation_id,
        generation=sa.select(conversations.c.generation).where(here).scalar_subquery(),
        resumes=sa.select(conversations.c.pending).where(here).scalar_subquery(),
        state=TurnState.CLAIMED,
        note="",
        created_at=tx.now,
    )
    number = tx.connection.execute(new.returning(turns.c.number)).scalar_one()
    tx.connection.execute(turn_inbounds.insert(), [{"turn": number, "inbound": member} for member in members])
    tx.connection.execute(inbounds.update().where(inbounds.c.id.in_(members)).values(state="taken"))


def answer_control(tx: Transaction, lease: Lease, inbound_id: int, view: View, new_id: TurnId) -> Turn:
    """The answer to a control inbound as a turn that needs no run and blocks nobody; the inbound is handled.

    The answer that was given first stays: asked for again, it is returned as it is.
    """
    fence(tx, lease)
    control = tx.connection.execute(
        sa.select(inbounds.c.state, conversations.c.id, conversations.c.generation)
        .join(conversations, conversations.c.id == inbounds.c.conversation_id)
        .where(inbounds.c.id == inbound_id, inbounds.c.channel == lease.channel, inbounds.c.lane == Lane.CONTROL)
    ).first()
    if control is None:
        raise StoreError(f"the channel {lease.channel} has no control inbound {inbound_id}")
    if control.state != "waiting":
        link = sa.exists().where(turn_inbounds.c.turn == turns.c.number, turn_inbounds.c.inbound == inbound_id)
        answer = next(iter(load(tx, link)), None)
        if answer is None:
            raise StoreError(f"the control inbound {inbound_id} was handled without an answer")
        return answer
    new = turns.insert().values(
        id=new_id,
        channel=lease.channel,
        conversation_id=control.id,
        generation=control.generation,
        state=TurnState.RETOUCH,
        final=view_to_json(view),
        note="",
        created_at=tx.now,
    )
    number = tx.connection.execute(new.returning(turns.c.number)).scalar_one()
    tx.connection.execute(turn_inbounds.insert(), [{"turn": number, "inbound": inbound_id}])
    handled(tx, lease, inbound_id)
    return load(tx, turns.c.id == new_id)[0]


# ---------------------------------------------------------------- carried on


def set_thread(tx: Transaction, lease: Lease, turn_id: TurnId, thread_id: ThreadId) -> None:
    row = _carry_on(tx, lease, turn_id, state=TurnState.THREAD, thread_id=thread_id)
    # After a /new in the meantime the conversation is another one, to which this thread does not belong.
    _update_conversation(tx, row, thread_id=thread_id, thread_at=tx.now)


def run_requested(tx: Transaction, lease: Lease, turn_id: TurnId, pending: JsonValue) -> None:
    _update_conversation(tx, _carry_on(tx, lease, turn_id, state=TurnState.REQUESTED), pending=pending)


def run_started(tx: Transaction, lease: Lease, turn_id: TurnId, run_id: RunId, remark: str) -> None:
    _carry_on(tx, lease, turn_id, state=TurnState.RUNNING, run_id=run_id, run_at=tx.now, remark=remark)


def save_shown(tx: Transaction, lease: Lease, turn_id: TurnId, shown: JsonValue, messages: Sequence[str]) -> None:
    fence(tx, lease, Hold.AMONG_OTHERS)
    changed = turns.update().where(_is_of(lease, turn_id), turns.c.state.in_(_OPEN)).values(shown=shown)
    conversation_id = tx.connection.execute(changed.returning(turns.c.conversation_id)).scalar()
    if conversation_id is None:
        raise _not_open(turn_id)
    bind(tx, conversation_id, messages)


def save_final(tx: Transaction, lease: Lease, turn_id: TurnId, view: View, pending: JsonValue, note: str) -> None:
    row = _carry_on(tx, lease, turn_id, state=TurnState.FINAL, final=view_to_json(view), **_noted(note))
    _update_conversation(tx, row, pending=pending)


def save_question(tx: Transaction, lease: Lease, turn_id: TurnId, pending: JsonValue) -> None:
    _update_conversation(tx, _carry_on(tx, lease, turn_id, state=TurnState.FINAL), pending=pending)


def finish(
    tx: Transaction, lease: Lease, turn_id: TurnId, state: TurnState, note: str, changed: Collection[TurnId]
) -> bool:
    """End a turn; False: it was shown, but is among those whose final view has `changed`, and is to be shown again."""
    if state.is_open:
        raise ValueError(f"a turn does not end as {state}")
    fence(tx, lease, Hold.AMONG_OTHERS)  # `retouch`, which adds to `changed`, is alone
    is_over = state is not TurnState.DONE or bool(note) or turn_id not in changed
    values = (
        {"state": state, "ended_at": tx.now, **_noted(note)}
        if is_over
        else {"state": TurnState.RETOUCH, "ended_at": None}
    )
    ended = turns.update().where(_is_of(lease, turn_id)).values(holds=None, **values)
    if tx.connection.execute(ended).rowcount == 0:
        raise StoreError(f"the channel {lease.channel} has no turn {turn_id}")
    tx.wake(lease.channel)
    return is_over


def retouch(tx: Transaction, lease: Lease, turn_id: TurnId, view: View, changed: set[TurnId]) -> Turn | None:
    """Give a finished reply another final view.

    A turn whose final view is not settled yet keeps its state. Whoever shows it may show the earlier view, so it is
    noted in `changed`. None: unknown, pruned, dead, or without a final view.
    """
    fence(tx, lease)
    mine = _is_of(lease, turn_id)
    before = tx.connection.execute(sa.select(turns.c.state, turns.c.final).where(mine)).first()
    if before is None or before.state not in (TurnState.FINAL, TurnState.RETOUCH, TurnState.DONE):
        return None
    final, is_open = view_to_json(view), before.state != TurnState.DONE
    if is_open and before.final != final:
        changed.add(turn_id)
    state = before.state if is_open else TurnState.RETOUCH
    tx.connection.execute(turns.update().where(mine).values(state=state, final=final, ended_at=None))
    return load(tx, turns.c.id == turn_id)[0]


def requeue(
    tx: Transaction, lease: Lease, turn_id: TurnId, new_id: TurnId, control: int | None, pending: JsonValue
) -> Turn | None:
    """Ask again what a finished turn asked, as a new turn, and with it handle the control inbound that wants it.

    It is asked as it was then: the question that it answered is open once more, and one that it led to is not; where it
    answered none, the new turn finds `pending`. The old turn stays as history; a dead one counts as done from then on.
    None: unknown, pruned, not finished, the answer to a control inbound, or its conversation is held by another turn
    now.
    """
    fence(tx, lease)
    old = (
        tx.connection.execute(
            sa.select(turns.c.number, turns.c.conversation_id, turns.c.state, turns.c.generation, turns.c.resumes)
            .where(_is_of(lease, turn_id), turns.c.holds.is_(None), _asks_the_agent())
            .with_for_update()
        )
        .mappings()
        .first()
    )
    if old is None:
        aside.take_up_control(tx, lease, turn_id)
        return None
    if _held(tx, old[turns.c.conversation_id]):
        return None
    members = tx.connection.execute(
        sa.select(turn_inbounds.c.inbound).where(turn_inbounds.c.turn == old[turns.c.number])
    ).scalars()
    conversation_id = old[turns.c.conversation_id]
    resumes = old[turns.c.resumes]
    if not _update_conversation(tx, old, pending=pending if resumes is None else resumes):
        # It was asked before a /new: what is open since then is not what it answered.
        here = conversations.c.id == conversation_id
        tx.connection.execute(conversations.update().where(here).values(pending=pending))
    make(tx, new_id, lease.channel, conversation_id, list(members))
    if old[turns.c.state] == TurnState.DEAD:
        tx.connection.execute(turns.update().where(turns.c.id == turn_id).values(state=TurnState.DONE))
    if control is not None:
        handled(tx, lease, control)
    tx.wake(lease.channel)
    return load(tx, turns.c.id == new_id)[0]


def handled(tx: Transaction, lease: Lease, control: int) -> None:
    """Nothing is left to be done for a control inbound; what was asked after it can be claimed."""
    tx.connection.execute(
        inbounds.update()
        .where(inbounds.c.id == control, inbounds.c.channel == lease.channel, inbounds.c.lane == Lane.CONTROL)
        .values(state="handled")
    )
    tx.wake(lease.channel)


# ---------------------------------------------------------------- stopped


def stop(tx: Transaction, lease: Lease, turn_id: TurnId, notice: str) -> bool:
    """Note that a turn is to end; False: it has ended, or nothing but showing its final view is left."""
    fence(tx, lease)
    working = (_is_of(lease, turn_id), turns.c.holds.is_not(None), turns.c.final.is_(None))
    return tx.connection.execute(turns.update().where(*working).values(stop_notice=notice)).rowcount > 0


def stop_conversation(
    tx: Transaction, lease: Lease, conversation_id: int, notice: str, may_stop: MayStop, *, and_what_waits: bool
) -> Stopped:
    """Stop the turn that holds the conversation; when there is none, drop what waits there, if that is wanted.

    Only what `may_stop` allows by the inbounds it answers.
    """
    fence(tx, lease)
    turn = open_turn(tx, conversation_id)
    if turn is not None and may_stop(turn.inbounds):
        return Stopped(turn=turn if stop(tx, lease, turn.id, notice) else None)
    if turn is not None or not and_what_waits:
        return Stopped()
    waiting = sa.select(inbounds.c.id, inbounds.c.payload).where(
        inbounds.c.conversation_id == conversation_id,
        inbounds.c.channel == lease.channel,
        inbounds.c.state == "waiting",
        inbounds.c.lane == Lane.TURN,
    )
    questions = ((row.id, readable_inbound(row.payload)) for row in tx.connection.execute(waiting))
    dropped = [number for number, asked in questions if asked is not None and may_stop([asked])]
    tx.connection.execute(inbounds.update().where(inbounds.c.id.in_(dropped)).values(state="dropped"))
    return Stopped(dropped=len(dropped))


# ---------------------------------------------------------------- looked up


def one(tx: Transaction, turn_id: TurnId) -> Turn | None:
    return next(iter(load(tx, turns.c.id == turn_id)), None)


def unfinished(tx: Transaction, lease: Lease) -> list[Turn]:
    fence(tx, lease)
    return _to_be_carried(tx, turns.c.channel == lease.channel)


def open_among(tx: Transaction, turn_ids: Sequence[TurnId]) -> list[Turn]:
    return _to_be_carried(tx, turns.c.id.in_(turn_ids)) if turn_ids else []


def _to_be_carried(tx: Transaction, condition: sa.ColumnElement[bool]) -> list[Turn]:
    """The open turns. One that cannot be read is given up: nobody can carry it, and it must not hold up others."""
    readable: list[Turn] = []
    for row, found in _rows(tx, condition, _IS_OPEN):
        if isinstance(found, Turn):
            readable.append(found)
        else:
            aside.give_up_turn(tx, row, found)
    return readable


def open_turn(tx: Transaction, conversation_id: int) -> Turn | None:
    return next(iter(load(tx, turns.c.holds == conversation_id)), None)


def last_turn(tx: Transaction, conversation_id: int) -> Turn | None:
    asked = (
        sa.select(turn_inbounds.c.turn)
        .join(inbounds, inbounds.c.id == turn_inbounds.c.inbound)
        .where(turn_inbounds.c.turn == turns.c.number, inbounds.c.lane == Lane.TURN)
        .exists()
    )
    return next(iter(load(tx, turns.c.conversation_id == conversation_id, asked, newest=1)), None)


def dead_letters(tx: Transaction, channel: str | None, limit: int) -> list[Turn]:
    here = sa.true() if channel is None else turns.c.channel == channel
    letters = _rows(tx, turns.c.state == TurnState.DEAD, here, newest=limit)
    return [found if isinstance(found, Turn) else aside.bare(row) for row, found in letters]


def counts(tx: Transaction) -> list[Counts]:
    queued = tx.connection.execute(
        sa.select(inbounds.c.channel, sa.func.count().label("number"))
        .where(inbounds.c.state == "waiting", inbounds.c.lane == Lane.TURN)
        .group_by(inbounds.c.channel)
    )
    waiting: dict[str, int] = {row.channel: row.number for row in queued}
    at_work: dict[str, int] = {}
    dead: dict[str, int] = {}
    rows = tx.connection.execute(
        sa.select(turns.c.channel, turns.c.state, sa.func.count().label("number"))
        .where(turns.c.state != TurnState.DONE)
        .group_by(turns.c.channel, turns.c.state)
    )
    for row in rows:
        into = dead if row.state == TurnState.DEAD else at_work
        into[row.channel] = into.get(row.channel, 0) + row.number
    return [
        Counts(channel, waiting.get(channel, 0), at_work.get(channel, 0), dead.get(channel, 0))
        for channel in sorted({*waiting, *at_work, *dead})
    ]


def save_feedback(tx: Transaction, turn_id: TurnId, user: str, value: str) -> bool:
    number = tx.connection.execute(sa.select(turns.c.number).where(turns.c.id == turn_id)).scalar()
    if number is None:
        return False
    new = tx.insert(feedback).values(turn=number, user_id=user, value=value, given_at=tx.now)
    tx.connection.execute(
        new.on_conflict_do_update(
            index_elements=["turn", "user_id"],
            set_={"value": new.excluded.value, "given_at": new.excluded.given_at},
        )
    )
    return True


# ---------------------------------------------------------------- parts


def _is_of(lease: Lease, turn_id: TurnId) -> sa.ColumnElement[bool]:
    return sa.and_(turns.c.id == turn_id, turns.c.channel == lease.channel)


def _asks_the_agent() -> sa.ColumnElement[bool]:
    """Not the answer to a control inbound."""
    return sa.exists().where(
        turn_inbounds.c.turn == turns.c.number,
        turn_inbounds.c.inbound == inbounds.c.id,
        inbounds.c.lane == Lane.TURN,
    )


def _carry_on(tx: Transaction, lease: Lease, turn_id: TurnId, **values: object) -> sa.RowMapping:
    """Change a turn that is at work; a finished one cannot come back to life."""
    fence(tx, lease, Hold.AMONG_OTHERS)
    changed = turns.update().where(_is_of(lease, turn_id), turns.c.holds.is_not(None)).values(**values)
    row = tx.connection.execute(changed.returning(turns.c.conversation_id, turns.c.generation)).mappings().first()
    if row is None:
        raise _not_open(turn_id)
    return row


def _update_conversation(tx: Transaction, turn: sa.RowMapping, **values: object) -> bool:
    """Change the turn's conversation, unless it has begun afresh since; whether that was so."""
    changed = (
        conversations.update()
        .where(
            conversations.c.id == turn[turns.c.conversation_id],
            conversations.c.generation == turn[turns.c.generation],
        )
        .values(**values)
    )
    return tx.connection.execute(changed).rowcount > 0


def _held(tx: Transaction, conversation_id: int) -> bool:
    return tx.connection.execute(sa.select(turns.c.number).where(turns.c.holds == conversation_id)).first() is not None


def _noted(note: str) -> dict[str, str]:
    return {"note": note} if note else {}


def _not_open(turn_id: TurnId) -> StoreError:
    return StoreError(f"turn {turn_id} is not at work any more")


def _turn_of(row: sa.RowMapping, asked: Sequence[JsonValue]) -> Turn | Unreadable:
    thread, run = row[turns.c.thread_id], row[turns.c.run_id]
    try:
        return Turn(
            id=TurnId(row[turns.c.id]),
            conversation=conversation_of(row),
            inbounds=tuple(inbound_from_json(payload) for payload in asked),
            state=_state_of(row),
            created_at=row[turns.c.created_at],
            thread_id=None if thread is None else ThreadId(thread),
            run_id=None if run is None else RunId(run),
            run_at=row[turns.c.run_at],
            shown=row[turns.c.shown],
            final=_final_of(row),
            note=row[turns.c.note],
            stop_notice=row[turns.c.stop_notice] or "",
            remark=row[turns.c.remark] or "",
            resumes=_resumes_of(row),
        )
    except Unreadable as error:
        return error


def _resumes_of(row: sa.RowMapping) -> JsonValue:
    """The question that a turn answers. One that a version without this column has claimed answers the open one."""
    is_unanswered = row[turns.c.holds] is not None and row[turns.c.final] is None
    if row[turns.c.resumes] is None and is_unanswered and row[turns.c.generation] == row[conversations.c.generation]:
        return cast(JsonValue, row[conversations.c.pending])
    return cast(JsonValue, row[turns.c.resumes])


def _state_of(row: sa.RowMapping) -> TurnState:
    try:
        return TurnState(row[turns.c.state])
    except ValueError:
        raise Unreadable("the state is unknown") from None


def _final_of(row: sa.RowMapping) -> View | None:
    final = row[turns.c.final]
    try:
        return None if final is None else view_from_json(final)
    except Unreadable:
        if _state_of(row).is_open:
            raise
        return None  # nobody has to show it any more, and what was asked can be asked again
