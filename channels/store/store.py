"""The store: everything that must survive a crash, behind one asynchronous face."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Self

from pydantic import JsonValue

from channels.adapter import StoreAway
from channels.clock import Clock
from channels.model import Inbound, Place, RunId, ThreadId, TurnId, View, new_turn_id
from channels.store import aside, conversations, inbox, leases, memory, retention, turns
from channels.store.database import Database, Work
from channels.store.migrate import bring_up_to_date
from channels.store.records import (
    Conversation,
    Counts,
    Lane,
    Lease,
    Stopped,
    StoredInbound,
    StoreError,
    Turn,
    TurnState,
    Unstorable,
)
from channels.store.wake import Listener, Wakes, listen

_PRUNE_UNITS = 200  # units of one kind that one call of prune runs at most
_NO_CHANNEL = ""  # whose memory holds what concerns no channel


class Store:
    """Inbounds, turns, conversations, leases and small memories in SQLite or PostgreSQL.

    Every method returns once its transaction is committed, is bounded in time (25 s at the very most), and never
    blocks the event loop. Unless it says otherwise it raises `StoreUnavailable` while the database is away (what was
    asked for may or may not have been done) and `StoreError` for what cannot be done. A method that takes a `Lease`
    raises `LostLease`, and has written nothing, when another owner or a later epoch has the channel.
    """

    def __init__(self, database: Database, clock: Clock, wakes: Wakes) -> None:
        self._database = database
        self._clock = clock
        self._wakes = wakes
        self._listening: asyncio.Task[None] | None = None
        # By channel, what the next claim looks for: the turns of each attempt to make or change some that may have
        # been committed although it failed, and those that are to be shown again.
        self._doubtful: dict[str, list[list[TurnId]]] = {}
        # Open turns whose final view was changed, or may have been, since it was handed out to be shown.
        self._changed: set[TurnId] = set()

    # ------------------------------------------------------------ life

    @classmethod
    async def open(cls, url: str, clock: Clock, *, lease_clock: Clock | None = None) -> Self:
        """Connect, and bring the schema up to date.

        `sqlite:///PATH` makes the folder; `sqlite://` lives in memory; `postgresql://USER@HOST/NAME`. Leases go by
        `lease_clock`; left out, by `clock` on SQLite and by the database's own clock on PostgreSQL. Raises
        `StoreUnavailable` when the database cannot be reached and `StoreError` when it cannot be used.
        """
        wakes = Wakes(asyncio.get_running_loop())
        database = Database(url, clock, lease_clock, wakes)
        store = cls(database, clock, wakes)
        await bring_up_to_date(database)
        if database.is_postgres:
            store._listening = asyncio.create_task(
                listen(database.url, wakes, store._channels_with_work), name="store-listen"
            )
        return store

    async def close(self) -> None:
        """Finish what was asked for and disconnect; bounded to about 6 s. May be called twice."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait({self._listening}, timeout=5.0)
            self._listening = None
        await self._database.close()

    async def ping(self) -> None:
        """Return when something was written to the store; raises `StoreError` when nothing can be.

        A full disk is read as ever.
        """
        await self._database.write(lambda tx: memory.remember(tx, _NO_CHANNEL, "ping", tx.now, None))

    # ------------------------------------------------------------ inbox

    async def accept(self, inbound: Inbound, lane: Lane, *, joins: Place | None = None) -> StoredInbound | None:
        """Commit an inbound and wake its channel; None: this event was accepted before.

        A reply to a message of a conversation belongs to that conversation, everything else to the one at its place,
        which is made when it is missing. `joins` is the thread in which the bot takes part from then on. Raises
        `StoreAway` when it cannot be committed now, `Unstorable` when it never can, and no other `StoreError`.
        """
        try:
            return await self._database.write(lambda tx: inbox.accept(tx, inbound, lane, joins))
        except Unstorable:
            raise
        except StoreError as error:
            raise StoreAway(str(error)) from error

    async def conversation_at(self, place: Place) -> Conversation | None:
        """The conversation that has this place, if anything was ever said there."""
        return await self._database.read(lambda tx: conversations.at_place(tx, place))

    async def conversation_of_message(self, channel: str, chat: str, message_id: str) -> Conversation | None:
        """The conversation that a message of the bot belongs to."""
        return await self._database.read(lambda tx: conversations.of_message(tx, channel, chat, message_id))

    async def takes_part(self, thread: Place) -> bool:
        """Whether an inbound that was accepted has joined this thread."""
        return await self._database.read(lambda tx: conversations.takes_part(tx, thread))

    async def claim(self, lease: Lease, limit: int) -> list[Turn]:
        """Make turns of waiting inbounds, oldest first: at most one for each conversation that no turn holds.

        An inbound is ready when its `settle` seconds have passed; one with a group, when they have passed for all
        of the group that are there, which then go into the same turn. When a claim, a `requeue`, a `retouch` or an
        `answer_control` fails and was committed all the same, the next claim returns its turns as well; so it does
        with what `finish` has left to be shown again.
        """
        attempts = self._doubtful.pop(lease.channel, [])
        made: list[TurnId] = []
        with self._doubting(lease.channel, *attempts, made):
            # Not a copy: what failed for its caller may still be under way, and come before this.
            return await self._database.write(
                lambda tx: inbox.claim(tx, lease, limit, chain.from_iterable(attempts), made)
            )

    async def next_ready(self, lease: Lease) -> float | None:
        """When the next inbound that a claim could take is ready; in the past: claim again. None: nothing waits."""
        return await self._database.read(lambda tx: inbox.next_ready(tx, lease))

    async def unfinished(self, lease: Lease) -> list[Turn]:
        """The channel's turns that somebody still has to work on, oldest first.

        One that cannot be read is given up here or when it is claimed: it becomes a dead letter.
        """
        return await self._database.write(lambda tx: turns.unfinished(tx, lease))

    async def waiting(self, conversation_id: int) -> int:
        """How many messages of the conversation wait to be claimed; a button that was pressed asks nothing."""
        counts = await self._database.read(lambda tx: inbox.waiting(tx, [conversation_id]))
        return counts[conversation_id]

    async def with_waiting(self, conversation_ids: Collection[int]) -> set[int]:
        """Those of the conversations in which a message waits to be claimed."""
        return set(await self._database.read(lambda tx: inbox.waiting(tx, conversation_ids)))

    async def is_open(self, channel: str, chat: str, message_id: str) -> bool:
        """Whether the message is a question that waits, or one that is being answered."""
        return await self._database.read(lambda tx: inbox.is_open(tx, channel, chat, message_id))

    async def drop_waiting(self, lease: Lease, chat: str, message_id: str) -> int:
        """Take back what was not claimed yet of a message, whichever conversation it belongs to; returns how many."""
        return await self._database.write(lambda tx: inbox.drop_waiting(tx, lease, chat, message_id))

    async def controls(self, lease: Lease) -> list[StoredInbound]:
        """The channel's control inbounds that were not handled yet, oldest first.

        One that cannot be read becomes a dead letter instead.
        """
        waiting, unreadable = await self._database.read(lambda tx: inbox.controls(tx, lease))
        for inbound_id, why in unreadable.items():
            await self._database.write(partial(aside.give_up_control, lease=lease, inbound_id=inbound_id, why=why))
        return waiting

    async def control_done(self, lease: Lease, inbound_id: int) -> None:
        """A control inbound was handled and does not come up again."""
        await self._database.write(lambda tx: inbox.control_done(tx, lease, inbound_id))

    async def answer_control(self, lease: Lease, inbound_id: int, view: View) -> Turn:
        """A control inbound was handled and has an answer: a turn without a run, in state `RETOUCH`, to be carried.

        Asked for again, the first answer is returned.
        """
        new_id = new_turn_id()
        with self._doubting(lease.channel, [new_id]):
            return await self._database.write(lambda tx: turns.answer_control(tx, lease, inbound_id, view, new_id))

    # ------------------------------------------------------------ turns

    async def set_thread(self, lease: Lease, turn_id: TurnId, thread_id: ThreadId) -> None:
        """The turn's thread exists; it becomes its conversation's, unless there was a /new since the claim."""
        await self._database.write(lambda tx: turns.set_thread(tx, lease, turn_id, thread_id))

    async def run_requested(self, lease: Lease, turn_id: TurnId, pending: JsonValue = None) -> None:
        """A run is about to be asked for: from now on there may be one.

        `pending` is what it leaves open in the conversation if nobody can say how it ended.
        """
        await self._database.write(lambda tx: turns.run_requested(tx, lease, turn_id, pending))

    async def run_started(self, lease: Lease, turn_id: TurnId, run_id: RunId, remark: str = "") -> None:
        """The turn's run is known, and what the reader is told beside its answer."""
        await self._database.write(lambda tx: turns.run_started(tx, lease, turn_id, run_id, remark))

    async def save_shown(self, lease: Lease, turn_id: TurnId, shown: JsonValue, messages: Sequence[str]) -> None:
        """What the platform has accepted of the reply, and the messages in which a reply finds this conversation."""
        await self._database.write(lambda tx: turns.save_shown(tx, lease, turn_id, shown, messages))

    async def save_final(self, lease: Lease, turn_id: TurnId, view: View, pending: JsonValue, note: str = "") -> None:
        """The turn's final view is known, and with it the question that the conversation waits on, if any."""
        await self._database.write(lambda tx: turns.save_final(tx, lease, turn_id, view, pending, note))

    async def save_question(self, lease: Lease, turn_id: TurnId, pending: JsonValue) -> None:
        """What is known by now of the open question that the turn, in `FINAL`, shows to its reader."""
        await self._database.write(lambda tx: turns.save_question(tx, lease, turn_id, pending))

    async def finish(self, lease: Lease, turn_id: TurnId, state: TurnState = TurnState.DONE, note: str = "") -> None:
        """The turn is `DONE` or `DEAD`: its conversation is free and its channel is woken, in one commit.

        An empty note leaves the one that is there; a turn that is done with a note was given up. One that is done as it
        should be is `RETOUCH` instead, and returned by the next claim, when its final view was changed meanwhile.
        """
        is_over = await self._database.write(lambda tx: turns.finish(tx, lease, turn_id, state, note, self._changed))
        self._changed.discard(turn_id)
        if not is_over:
            self._doubtful.setdefault(lease.channel, []).append([turn_id])

    async def retouch(self, lease: Lease, turn_id: TurnId, view: View) -> Turn | None:
        """Change the final view of a turn: a done one becomes `RETOUCH` and blocks nobody, one that is still `FINAL`
        stays so. None: unknown, pruned, dead, or it has no final view yet."""
        with self._doubting(lease.channel, [turn_id]):
            return await self._database.write(lambda tx: turns.retouch(tx, lease, turn_id, view, self._changed))

    async def stop(self, lease: Lease, turn_id: TurnId, notice: str) -> bool:
        """Note with the turn that it is to end, and what its reader is told then; whoever carries it finds it there.

        False: it has ended already, or its final view is known.
        """
        return await self._database.write(lambda tx: turns.stop(tx, lease, turn_id, notice))

    async def stop_conversation(
        self, lease: Lease, conversation_id: int, notice: str, may_stop: turns.MayStop, *, and_what_waits: bool
    ) -> Stopped:
        """Stop the turn at work in the conversation; if there is none, drop what waits there, if that is wanted.

        Only what `may_stop` allows; it is called off the event loop.
        """
        return await self._database.write(
            lambda tx: turns.stop_conversation(
                tx, lease, conversation_id, notice, may_stop, and_what_waits=and_what_waits
            )
        )

    async def requeue(
        self, lease: Lease, turn_id: TurnId, *, control: int | None = None, pending: JsonValue = None
    ) -> Turn | None:
        """Ask again what a finished turn asked: a new claimed turn with the same inbounds, which wakes the channel.

        It finds the question that the old one answered open, or `pending` where that answered none.
        In the same commit, `control` (the inbound that wants it) is handled. A dead letter is none any more afterwards.
        None, and nothing is done: unknown, pruned, not finished, the answer to a control inbound, or another turn holds
        the conversation now. None as well: a command that was given up because it could not be read waits once more.
        """
        new_id = new_turn_id()
        with self._doubting(lease.channel, [new_id]):
            return await self._database.write(lambda tx: turns.requeue(tx, lease, turn_id, new_id, control, pending))

    async def turn(self, turn_id: TurnId) -> Turn | None:
        """A turn by its id; None: unknown or pruned."""
        return await self._database.read(lambda tx: turns.one(tx, turn_id))

    async def open_turn(self, conversation_id: int) -> Turn | None:
        """The turn that holds the conversation."""
        return await self._database.read(lambda tx: turns.open_turn(tx, conversation_id))

    async def last_turn(self, conversation_id: int) -> Turn | None:
        """The conversation's newest turn that asks the agent something, whatever its state."""
        return await self._database.read(lambda tx: turns.last_turn(tx, conversation_id))

    async def dead_letters(self, channel: str | None = None, limit: int = 100) -> list[Turn]:
        """The turns that were given up and not asked again, newest first. One that cannot be read has no inbounds."""
        return await self._database.read(lambda tx: turns.dead_letters(tx, channel, limit))

    async def save_feedback(self, turn_id: TurnId, user: str, value: str) -> bool:
        """What a person thinks of an answer; the newest value of each person counts. False: unknown turn."""
        return await self._database.write(lambda tx: turns.save_feedback(tx, turn_id, user, value))

    # ------------------------------------------------------------ conversations

    async def new_generation(self, lease: Lease, conversation_id: int) -> Conversation:
        """Begin afresh at the same place: no thread, no question, the next generation."""
        return await self._database.write(lambda tx: conversations.new_generation(tx, lease, conversation_id))

    async def ask_anew(self, lease: Lease, inbound_id: int, question: Inbound) -> None:
        """A control inbound begins its conversation afresh and is asked there as `question`, in one commit.

        Asked for again, nothing is done.
        """
        await self._database.write(lambda tx: conversations.ask_anew(tx, lease, inbound_id, question))

    async def rekey(self, channel: str, old_chat: str, new_chat: str) -> None:
        """The platform gave a chat a new id: its conversations, bindings and open inbounds move to it.

        A conversation that is at the new place already stays, with the newer of the two threads.
        """
        await self._database.write(lambda tx: conversations.rekey(tx, channel, old_chat, new_chat))

    # ------------------------------------------------------------ memory

    async def recall(self, channel: str, key: str) -> JsonValue:
        """A value stored with `remember`; None when there is none or its time is over."""
        return await self._database.read(lambda tx: memory.recall(tx, channel, key))

    async def remember(self, channel: str, key: str, value: JsonValue, ttl: float | None = None) -> None:
        """Store a small value, for `ttl` seconds or for good; None forgets it."""
        await self._database.write(lambda tx: memory.remember(tx, channel, key, value, ttl))

    # ------------------------------------------------------------ leases

    async def heartbeat(self, replica: str, info: JsonValue = None) -> list[str]:
        """Count `replica` as live for the next 12 s; returns all live replicas, sorted. `info` is for `said_by`."""
        return await self._database.keep(lambda tx: leases.heartbeat(tx, replica, info))

    async def said_by(self, replicas: Collection[str]) -> dict[str, JsonValue]:
        """What each of the replicas that are known said of itself with its last heartbeat."""
        return await self._database.read(lambda tx: leases.said_by(tx, replicas))

    async def leave(self, replica: str) -> None:
        """The replica goes in good order and counts as live no longer."""
        await self._database.keep(lambda tx: leases.leave(tx, replica))

    async def acquire(self, channel: str, owner: str, ttl: float = leases.REPLICA_TTL) -> Lease | None:
        """Own the channel for `ttl` seconds; None while a live other owner has it.

        `owner` must be unique among processes: a live lease of the same name is taken as one's own and keeps its
        epoch; in every other case the epoch rises. `expires_at` is on this store's `clock`, counted from before the
        database was asked, so it never lies after the moment at which others may take over.
        """
        asked_at = self._clock.now()
        epoch = await self._database.keep(lambda tx: leases.acquire(tx, channel, owner, ttl))
        return None if epoch is None else Lease(channel, owner, epoch, asked_at + ttl)

    async def renew(self, lease: Lease, ttl: float = leases.REPLICA_TTL) -> Lease:
        """The lease for another `ttl` seconds from now; also a late one, as long as nobody else has acquired it."""
        asked_at = self._clock.now()
        await self._database.keep(lambda tx: leases.renew(tx, lease, ttl))
        return Lease(lease.channel, lease.owner, lease.epoch, asked_at + ttl)

    async def release(self, lease: Lease) -> None:
        """Give the channel up at once; does nothing when the lease is lost already."""
        await self._database.keep(lambda tx: leases.release(tx, lease))

    async def depose(self, owner: str) -> None:
        """A replica is known to be dead (its process is gone): what it owns is free at once."""
        await self._database.keep(lambda tx: leases.depose(tx, owner))

    async def owners(self, channels: Sequence[str]) -> dict[str, str | None]:
        """Who owns each of the channels now."""
        return await self._database.read(lambda tx: leases.owners(tx, channels))

    # ------------------------------------------------------------ waking, numbers, retention

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Have `listener(channel)` called on the event loop after something new waits in a channel or a conversation
        became free: in this process, and on PostgreSQL in any. Wakes may come twice. Returns what ends it."""
        return self._wakes.subscribe(listener)

    async def counts(self) -> list[Counts]:
        """What waits, is at work and was given up, for each channel in which there is any of it."""
        return await self._database.read(turns.counts)

    async def prune(self, *, turns_before: float, inbounds_before: float) -> int:
        """Forget turns that ended, and messages that were shown, before the one moment; inbounds (and with them the
        memory of their event keys) that were accepted before the other; and what has expired. Returns how many rows.

        Nothing that waits or is open goes. Works in short transactions; what one call leaves, the next one finds.
        """
        kinds: tuple[Work[int], ...] = (
            lambda tx: retention.old_turns(tx, turns_before),
            lambda tx: retention.old_inbounds(tx, inbounds_before),
            lambda tx: retention.old_bindings(tx, turns_before),
            lambda tx: retention.idle_conversations(tx, turns_before),
            retention.old_memory,
            retention.stale_replicas,
        )
        total = 0
        for work in kinds:
            for _ in range(_PRUNE_UNITS):
                gone = await self._database.write(work)
                total += gone
                if gone < retention.BATCH:
                    break
        if total:
            await self._database.write(retention.give_back_pages)
        return total

    @contextlib.contextmanager
    def _doubting(self, channel: str, *attempts: list[TurnId]) -> Iterator[None]:
        """Let the next claim look for these turns if the block fails, cancellation included.

        The lists are kept, not copied: the thread may still be adding to them.
        """
        try:
            yield
        except BaseException:
            self._doubtful.setdefault(channel, []).extend(attempts)
            raise

    async def _channels_with_work(self) -> list[str]:
        return await self._database.read(inbox.channels_with_work)
