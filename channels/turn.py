"""One turn, from claimed inbound to settled reply: run the question on the gateway and keep the reply in step.

Every effect is preceded or followed by a stored state, so that another process can go on from any point. A turn is
carried by whoever owns the channel; `halt` hands it over, `stop` ends the answer because a person wants it.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

import structlog
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from channels.access import BusyPolicy, Policy, ShowReasoning
from channels.adapter import Adapter, Failure, HintState, Op, Outcome, Receipt, ReplyTarget, StoppedByUser, Unauthorised
from channels.clock import Clock
from channels.faults import point
from channels.gateway.runs import RunEnd, RunRequest, WhenBusy
from channels.inputs import Ask, InputFile, Resume
from channels.model import Action, Attachment, Phase, RunId, ThreadId, TurnId, View
from channels.observe import Metrics
from channels.pacing import Pacer
from channels.permit import permitted
from channels.questions import Interrupt, next_input
from channels.reply import Reply, ReplyEnd, ReplyEvents
from channels.store import Store
from channels.store.records import Conversation, Lease, LostLease, StoreError, Turn, TurnState
from channels.transcript import Transcript

log = structlog.get_logger(__name__)

_HINT_EVERY = 4.0  # seconds; Telegram's typing action lasts 5
_STOP_PATIENCE = 15.0  # seconds a stopped run may take to end before the reply is closed without it
_FAIR_TRY = 600.0  # seconds that a turn found late is tried at least
_LAST_WORDS = 60.0  # seconds a given-up turn has to tell its reader
_STORE_RETRY = 1.0


class RunGateway(Protocol):
    """The gateway as a turn needs it; `channels.gateway.Gateway` is it."""

    async def prepare_thread(self, thread: ThreadId, metadata: Mapping[str, JsonValue]) -> None:
        """Make sure that the thread exists."""
        ...

    async def execute(
        self,
        request: RunRequest,
        transcript: Transcript,
        *,
        run: RunId | None,
        maybe_requested: bool,
        started: Callable[[RunId], Awaitable[None]],
        changed: Callable[[], None],
    ) -> RunEnd:
        """Start the run, or find it again, and follow it to its end."""
        ...

    async def stop(self, turn: TurnId) -> bool:
        """End the turn's run, also while its id is not known yet; `execute` then returns what there is."""
        ...


@dataclass(frozen=True, slots=True)
class ChannelParts:
    """What the turns of one owned channel share."""

    name: str
    platform: str
    adapter: Adapter
    pacer: Pacer
    store: Store
    gateway: RunGateway
    clock: Clock
    metrics: Metrics
    policy: Policy
    assistant_id: str
    run_config: Mapping[str, JsonValue]
    run_context: Mapping[str, JsonValue]
    run_timeout: float | None
    attachment_bytes: int
    give_up_after: float


class Host(Protocol):
    """The owner of the channel, as its turns see it."""

    def lease(self) -> Lease:
        """The lease as last renewed. Raises `LostLease` when it is too near its end to send or write under it."""
        ...

    def carry(self, turn: Turn) -> None:
        """Start carrying another turn of the channel (one whose final view has changed)."""
        ...

    def unauthorised(self, reason: str) -> None:
        """The platform refused the channel's tokens."""
        ...


class Pending(BaseModel):
    """The open question of a conversation: which turn asked, what the gateway waits for, what is answered so far."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    turn: TurnId
    interrupts: tuple[Interrupt, ...]
    answers: tuple[JsonValue, ...] = ()

    @property
    def current(self) -> Interrupt:
        return self.interrupts[len(self.answers)]

    @classmethod
    def load(cls, stored: JsonValue) -> Pending | None:
        """The open question in a conversation's record; None when there is none that this version understands."""
        if stored is None:
            return None
        try:
            pending = cls.model_validate(stored)
        except ValidationError:
            log.error("the stored question is unreadable; the next message starts a new run")
            return None
        return pending if len(pending.answers) < len(pending.interrupts) else None


@dataclass(frozen=True, slots=True)
class _Answered:
    """How the gateway side of a turn ended: what to show, what is asked, and why it failed (for operators)."""

    view: View
    pending: Pending | None = None
    note: str = ""


class TurnCarrier:
    """Carries one stored turn to its end. `run` returns when the turn is done, dead or handed over."""

    def __init__(self, turn: Turn, channel: ChannelParts, host: Host, *, last_words: bool = False) -> None:
        """`last_words`: the turn has been given up; it only tells its reader so, and ends as a dead letter."""
        self.turn = turn
        self._ends_as = TurnState.DEAD if last_words else TurnState.DONE
        self._channel = channel
        self._host = host
        self._clock = channel.clock
        self._log = log.bind(channel=channel.name, turn=turn.id)
        self._target = ReplyTarget(turn.id, turn.conversation.place, turn.question)
        self._transcript = Transcript()
        self._final: View | None = None
        self._stop = asyncio.Event()
        self._stop_notice = "Stopped."
        self._halted = False
        self._last_view = View()
        self._had_content = False
        self._text_was_shown = False
        self._reply = Reply(
            channel.adapter.surface(self._target),
            channel.pacer,
            self._clock,
            source=self._view,
            stored=turn.shown,
            save=self._save_shown,
            permit=self._permit,
            events=ReplyEvents(performed=self._performed, stopped_by_user=self.stop),
        )

    def stop(self, notice: str = "Stopped.") -> None:
        """A person wants no more: the run is cancelled, the partial text kept and marked as stopped."""
        self._stop_notice = notice
        self._stop.set()

    def halt(self) -> None:
        """Hand over: end after the op in flight and leave the run alive for the next owner."""
        self._halted = True
        self._reply.halt()

    @property
    def is_answering(self) -> bool:
        """Whether the answer is still being made; a reply that only has to be shown is not."""
        return self._final is None and self.turn.final is None

    @property
    def phase(self) -> Phase:
        return self._view(self._clock.now()).phase

    def failed_view(self, notice: str) -> View:
        """What is left to be shown when the turn cannot be carried on: the text so far, and why it ends."""
        return replace(self._last_view, phase=Phase.FAILED, notice=notice)

    async def run(self) -> None:
        """Carry the turn. Raises `LostLease` when another replica owns the channel."""
        self._channel.metrics.live_replies.labels(self._channel.name).inc()
        tasks: list[asyncio.Task[object]] = []
        try:
            work = asyncio.create_task(self._work(), name=f"turn-{self.turn.id}")
            reply = asyncio.create_task(self._reply.run(), name=f"reply-{self.turn.id}")
            hints = asyncio.create_task(self._hint(), name=f"hint-{self.turn.id}")
            deadline = asyncio.create_task(self._deadline(), name=f"deadline-{self.turn.id}")
            tasks = [work, reply, hints, deadline]
            await self._until_over(work, reply, deadline)
        finally:
            self._channel.metrics.live_replies.labels(self._channel.name).dec()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _until_over(
        self, work: asyncio.Task[None], reply: asyncio.Task[ReplyEnd], deadline: asyncio.Task[None]
    ) -> None:
        running: set[asyncio.Task[None] | asyncio.Task[ReplyEnd]] = {work, reply, deadline}
        while True:
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # a lost lease ends everything at once
            if reply.done() and reply.result() is ReplyEnd.HALTED:
                return
            if work.done() and reply.done():
                await self._finish(reply.result())
                return
            if deadline.done():
                await self._give_up(work, reply)
                return

    async def _finish(self, end: ReplyEnd) -> None:
        point("final-settled")
        if end is ReplyEnd.FORBIDDEN:
            self._log.warning("the answer could not be shown: nothing may be sent to this place any more")
        await self._persist(lambda lease: self._channel.store.finish(lease, self.turn.id, self._ends_as))
        point("done")
        view = self._final or View()
        if self.turn.state is not TurnState.RETOUCH:
            metrics, name = self._channel.metrics, self._channel.name
            metrics.turns.labels(name, view.phase.value).inc()
            metrics.turn_seconds.labels(name).observe(max(0.0, self._clock.now() - self.turn.question.received_at))
        failed = view.phase in (Phase.FAILED, Phase.STOPPED)
        await self._channel.adapter.hint(self._target, HintState.FAILED if failed else HintState.DONE)

    async def _deadline(self) -> None:
        patience = self._channel.give_up_after
        # A turn that was found late, after an outage, still gets a fair try.
        ends = max(self.turn.created_at + patience, self._clock.now() + min(patience, _FAIR_TRY))
        await self._clock.sleep(ends - self._clock.now())

    async def _give_up(self, work: asyncio.Task[None], reply: asyncio.Task[ReplyEnd]) -> None:
        self._log.error("turn given up", after=self._channel.give_up_after)
        if not work.done():
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            view = self.failed_view("This could not be finished in time. /retry asks again.")
            await self._conclude(_Answered(view, note="given up"))
        last_words = asyncio.create_task(self._clock.sleep(_LAST_WORDS))
        try:
            await asyncio.wait({reply, last_words}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            last_words.cancel()
        note = "given up: " + ("the reader was told" if reply.done() else "the reader could not be told")
        await self._persist(lambda lease: self._channel.store.finish(lease, self.turn.id, TurnState.DEAD, note))

    # ---------------------------------------------------------------- the gateway side

    async def _work(self) -> None:
        if self.turn.final is not None:
            self._show_final(self.turn.final)
            return
        await self._conclude(await self._answer())

    async def _conclude(self, answered: _Answered) -> None:
        self._show_final(answered.view)
        point("final-known")
        view, pending = self._last_view, answered.pending
        await self._persist(
            lambda lease: self._channel.store.save_final(
                lease, self.turn.id, view, pending.model_dump(mode="json") if pending else None, answered.note
            )
        )
        point("final-stored")
        if answered.note:
            self._log.warning("turn ended with a note", phase=view.phase.value, cause=answered.note)

    async def _answer(self) -> _Answered:
        pending = Pending.load(self.turn.conversation.pending)
        press = self.turn.question.press
        if press is not None and press.action is Action.ANSWER and (pending is None or pending.turn != press.turn):
            return _Answered(View(phase=Phase.DONE), pending)  # a second click: answered already, nothing to show
        run_input: Ask | Resume | None = None
        if pending is not None:
            reply = press.value if press is not None else self._question_text()
            answer = pending.current.answer(reply, pressed=press is not None)
            await self._mark_answered(pending, reply, pressed=press is not None)
            pending = pending.model_copy(update={"turn": self.turn.id, "answers": (*pending.answers, answer)})
            if len(pending.answers) < len(pending.interrupts):
                return _Answered(View(phase=Phase.ASKING, question=pending.current.question), pending)
            run_input = next_input(pending.interrupts, pending.answers, sender=self.turn.question.sender)
        return await self._run(run_input)

    async def _run(self, run_input: Ask | Resume | None) -> _Answered:
        channel, turn = self._channel, self.turn
        thread = turn.thread_id or turn.conversation.thread_id or thread_id_of(turn.conversation)
        state = turn.state
        if run_input is None:
            files, troubles = await self._fetch_files() if state is not TurnState.RUNNING else ((), "")
            run_input = Ask(self._question_text() + troubles, turn.question.sender, files)
        metadata = self._metadata()
        if state is TurnState.CLAIMED:
            if turn.conversation.thread_id is None:
                await channel.gateway.prepare_thread(thread, metadata)
            await self._persist(lambda lease: channel.store.set_thread(lease, turn.id, thread))
            point("thread-made")
        if state in (TurnState.CLAIMED, TurnState.THREAD):
            if self._stop.is_set():
                return _Answered(View(phase=Phase.STOPPED, notice=self._stop_notice))
            await self._persist(lambda lease: channel.store.run_requested(lease, turn.id))
            point("run-requested")
        request = RunRequest(
            turn=turn.id,
            thread=thread,
            input=run_input,
            assistant_id=channel.assistant_id,
            config=channel.run_config,
            context=channel.run_context,
            timeout=channel.run_timeout,
            when_busy=_WHEN_BUSY[channel.policy.when_busy],
            metadata=metadata,
        )
        execution = asyncio.create_task(
            permitted(
                channel.gateway.execute(
                    request,
                    self._transcript,
                    run=turn.run_id,
                    maybe_requested=state is TurnState.REQUESTED,
                    started=self._started,
                    changed=self._changed,
                ),
                self._permit,
            )
        )
        stopping = asyncio.create_task(self._cancel_when_stopped())
        try:
            await asyncio.wait({execution, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not execution.done():
                stopping.result()
                view = replace(self._view(self._clock.now()), phase=Phase.STOPPED, notice=self._stop_notice)
                return _Answered(view, note="the gateway did not confirm the stop")
            end = execution.result()
        finally:
            execution.cancel()
            stopping.cancel()
            await asyncio.gather(execution, stopping, return_exceptions=True)
        view = (
            replace(end.view, notice=self._stop_notice)
            if end.view.phase is Phase.STOPPED and self._stop.is_set()
            else end.view
        )
        asked = Pending(turn=turn.id, interrupts=end.interrupts) if end.interrupts else None
        return _Answered(view, asked, end.note)

    async def _started(self, run: RunId) -> None:
        point("run-created")
        if run != self.turn.run_id:
            await self._persist(lambda lease: self._channel.store.run_started(lease, self.turn.id, run))
        point("run-known")

    async def _cancel_when_stopped(self) -> None:
        """Returns when a stopped run has had its time to end by itself."""
        await self._stop.wait()
        await self._channel.gateway.stop(self.turn.id)
        await self._clock.sleep(_STOP_PATIENCE)

    async def _mark_answered(self, pending: Pending, reply: str, *, pressed: bool) -> None:
        """Show in the message that asked what was answered; its buttons go."""
        asked = await self._channel.store.turn(pending.turn)
        if asked is None or asked.final is None or asked.final.question is None:
            return
        answer = pending.current.shown_answer(reply, pressed=pressed)
        view = replace(asked.final, phase=Phase.DONE, question=replace(asked.final.question, answer=answer))
        with suppress(StoreError):  # cosmetic: never worth a lost answer
            changed = await self._channel.store.retouch(self._host.lease(), asked.id, view)
            if changed is not None:
                self._host.carry(changed)

    def _question_text(self) -> str:
        return "\n\n".join(inbound.text for inbound in self.turn.inbounds if inbound.text.strip())

    async def _fetch_files(self) -> tuple[tuple[InputFile, ...], str]:
        files: list[InputFile] = []
        troubles: list[str] = []
        for attachment in (a for inbound in self.turn.inbounds for a in inbound.attachments):
            try:
                data = await self._fetch(attachment)
            except Failure as failure:
                self._log.warning("attachment not fetched", cause=str(failure))
                troubles.append(f"\n\n(The attached file {attachment.name!r} could not be fetched.)")
            else:
                files.append(InputFile(attachment.name, attachment.mime, data))
        return tuple(files), "".join(troubles)

    async def _fetch(self, attachment: Attachment) -> bytes:
        data = bytearray()
        async for piece in self._channel.adapter.fetch(attachment):
            data += piece
            if len(data) > self._channel.attachment_bytes:
                raise Failure(f"larger than {self._channel.attachment_bytes} bytes")
        return bytes(data)

    def _metadata(self) -> dict[str, JsonValue]:
        place, sender = self.turn.conversation.place, self.turn.question.sender
        return {
            "channel": self._channel.name,
            "platform": self._channel.platform,
            "chat": place.chat,
            "topic": place.thread,
            "sender": sender.id,
            "sender_name": sender.name,
        }

    # ---------------------------------------------------------------- the reply side

    def _view(self, now: float) -> View:
        if self._final is not None:
            return self._final
        self._last_view = present(self._transcript.view(now), self._channel.policy)
        return self._last_view

    def _changed(self) -> None:
        first_content = not self._had_content and self._view(self._clock.now()).has_content
        self._had_content = self._had_content or first_content
        self._reply.changed(urgent=first_content)

    def _show_final(self, view: View) -> None:
        revision = max(view.revision, self._last_view.revision) + 1
        self._final = self._last_view = replace(present(view, self._channel.policy), revision=revision)
        self._reply.changed(urgent=True)

    def _permit(self) -> None:
        self._host.lease()

    async def _save_shown(self, shown: JsonValue, messages: Sequence[str]) -> None:
        await self._channel.store.save_shown(self._host.lease(), self.turn.id, shown, messages)

    def _performed(self, op: Op, outcome: Outcome, seconds: float) -> None:
        metrics, name = self._channel.metrics, self._channel.name
        kind = type(outcome).__name__.lower()
        metrics.ops.labels(name, type(op).__name__, kind).inc()
        metrics.op_seconds.labels(name, type(op).__name__).observe(seconds)
        if isinstance(outcome, Unauthorised):
            self._host.unauthorised(str(outcome))
        if isinstance(outcome, Failure) and not isinstance(outcome, StoppedByUser):
            self._log.info("platform call not accepted", op=type(op).__name__, kind=kind, cause=str(outcome))
        if isinstance(outcome, Receipt) and not self._text_was_shown and self._last_view.text:
            self._text_was_shown = True
            waited = self._clock.now() - self.turn.question.received_at
            metrics.first_text_seconds.labels(name).observe(max(0.0, waited))

    async def _hint(self) -> None:
        if self.turn.state in (TurnState.FINAL, TurnState.RETOUCH):
            return
        adapter = self._channel.adapter
        await permitted(adapter.hint(self._target, HintState.ACCEPTED), self._permit)
        while self._final is None:
            waiting = self._view(self._clock.now()).phase in (Phase.WAITING, Phase.THINKING)
            state = HintState.WAITING if waiting else HintState.WORKING
            await permitted(adapter.hint(self._target, state), self._permit)
            await self._clock.sleep(_HINT_EVERY)

    async def _persist(self, write: Callable[[Lease], Awaitable[object]]) -> None:
        """Write until the store takes it. Raises `LostLease`, at the latest when the lease has run out."""
        while True:
            try:
                await write(self._host.lease())
                return
            except LostLease:
                raise
            except StoreError as error:
                self._log.warning("the store is away; trying again", cause=str(error))
                await self._clock.sleep(_STORE_RETRY)


_THREADS = uuid.UUID("6f6f0f4e-3a0c-5d0a-9a55-0c1b5f6f9a11")
_WHEN_BUSY = {
    BusyPolicy.QUEUE: WhenBusy.QUEUE,
    BusyPolicy.INTERRUPT: WhenBusy.INTERRUPT,
    BusyPolicy.REJECT: WhenBusy.REJECT,
}


def present(view: View, policy: Policy) -> View:
    """The view as this channel's readers may see it: reasoning and steps only where the policy shows them."""
    if policy.show_reasoning is ShowReasoning.OFF and view.reasoning:
        view = replace(view, reasoning="")
    if not policy.show_steps and view.steps:
        view = replace(view, steps=())
    return view


def thread_id_of(conversation: Conversation) -> ThreadId:
    """The gateway thread of a conversation: the same on every replica and after every crash."""
    name = f"{conversation.channel}\n{conversation.place.key}\n{conversation.generation}"
    return ThreadId(str(uuid.uuid5(_THREADS, name)))
