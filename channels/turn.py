"""One turn, from claimed inbound to settled reply: run the question on the gateway and keep the reply in step.

Every effect is preceded or followed by a stored state, so that another process can go on from any point. A turn is
carried by whoever owns the channel; `halt` hands it over, `stop` ends the answer because a person wants it.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import structlog
from pydantic import JsonValue

from channels.access import BusyPolicy, Policy, ShowReasoning
from channels.adapter import Adapter, Failure, HintState, Op, Outcome, Receipt, ReplyTarget, StoppedByUser, Unauthorised
from channels.clock import Clock
from channels.commands import as_typed
from channels.faults import point
from channels.fetching import fetch_all
from channels.gateway.runs import RunEnd, RunRequest, WhenBusy
from channels.inputs import Ask, Break, InputFile, Resume, as_question
from channels.model import Phase, RunId, ThreadId, TurnId, View
from channels.observe import Metrics
from channels.pacing import Pacer
from channels.pending import Pending, close_question
from channels.permit import permitted
from channels.questions import LEFT_NOTICE
from channels.reply import Reply, ReplyEnd, ReplyEvents
from channels.shapes import shortened
from channels.store import Store
from channels.store.records import Conversation, Lease, LostLease, StoreError, Turn, TurnState
from channels.transcript import Transcript

log = structlog.get_logger(__name__)
T = TypeVar("T")

_HINT_EVERY = 4.0  # seconds; Telegram's typing action lasts 5
_STOP_PATIENCE = 15.0  # seconds a stopped run may take to end before the reply is closed without it
_FAIR_TRY = 600.0  # seconds that a turn found late is tried at least
_ABANDON = 10.0  # seconds in which a given-up run is cancelled; best effort
_LAST_WORDS = 60.0  # seconds a given-up turn has to tell its reader
_STORE_RETRY = 1.0
_QUOTED = 60  # characters of what was written before the question was there
_TOO_EARLY = "When you wrote “{}”, I had not asked this yet, so I did not take it as the answer. Send it again later."
_UNSEEN = {
    ReplyEnd.FORBIDDEN: "the answer could not be shown: nothing may be sent to this place any more",
    ReplyEnd.GIVEN_UP: "the answer could not be shown to its end: the platform refuses it in every form",
}


class RunGateway(Protocol):
    """The gateway as a turn needs it; `channels.gateway.Gateway` is it."""

    async def prepare_thread(self, thread: ThreadId, metadata: Mapping[str, JsonValue]) -> bool:
        """Make sure that the thread exists; whether it did before, as far as the gateway says."""
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

    async def remark_on(self, files: Sequence[InputFile]) -> str:
        """What to tell people of files that the agent gets in part, or only by name."""
        ...

    async def cancel(self, thread: ThreadId, run: RunId) -> bool:
        """End a run that nobody follows; False: the gateway did not confirm it."""
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


@dataclass(frozen=True, slots=True)
class _Answered:
    """How the gateway side of a turn ended: what to show, what is asked, and why it failed (for operators)."""

    view: View
    pending: Pending | None = None
    note: str = ""
    leaves_a_break: bool = False


class TurnCarrier:
    """Carries one stored turn to its end. `run` returns when the turn is done, dead or handed over."""

    def __init__(self, turn: Turn, channel: ChannelParts, host: Host, *, last_words: bool = False) -> None:
        """`last_words`: the turn has been given up; it only tells its reader so, and ends as a dead letter."""
        self.turn = turn
        self._has_last_words = last_words
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
        self._known_run = turn.run_id
        self._remark = turn.remark
        self._pending = Pending.load(turn.conversation.pending) if turn.state is TurnState.FINAL else None
        self._last_shown_at = self._clock.now()
        """When the last op was begun that the platform has accepted of text and question: not seen any earlier."""
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
        if turn.stop_notice:
            self.stop(turn.stop_notice)

    def stop(self, notice: str = "Stopped.") -> None:
        """A person wants no more: the run is cancelled, the partial text kept and marked as stopped."""
        self._stop_notice = notice
        self._stop.set()

    def shows(self, message: str) -> bool:
        """Whether the message, by the platform's id, is one of the reply's."""
        return self._reply.shows(message)

    def halt(self) -> None:
        """Hand over: end after the op in flight and leave the run alive for the next owner."""
        self._halted = True
        self._reply.halt()

    @property
    def given_up_as(self) -> TurnState:
        """How the turn ends when it cannot be carried on: what has a run to ask for again is a dead letter."""
        return TurnState.DONE if self.turn.state is TurnState.RETOUCH else TurnState.DEAD

    @property
    def needs_run(self) -> bool:
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
        unseen = _UNSEEN.get(end, "")
        if unseen:
            self._log.warning(unseen)
        else:
            await self._persist(self._save_seen)
        ends_as = self.given_up_as if self._has_last_words or unseen else TurnState.DONE
        await self._persist(lambda lease: self._channel.store.finish(lease, self.turn.id, ends_as, unseen))
        point("done")
        if self.turn.state is TurnState.RETOUCH:
            return
        view = self._final or View()
        metrics, name = self._channel.metrics, self._channel.name
        metrics.turns.labels(name, view.phase.value).inc()
        metrics.turn_seconds.labels(name).observe(max(0.0, self._clock.now() - self.turn.question.received_at))
        failed = bool(unseen) or view.phase in (Phase.FAILED, Phase.STOPPED)
        await self._last_hint(HintState.FAILED if failed else HintState.DONE)

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
            await self._abandon_run()
            view = self.failed_view("This could not be finished in time. /retry asks again.")
            await self._conclude(_Answered(view, note="given up"))
        last_words = asyncio.create_task(self._clock.sleep(_LAST_WORDS))
        try:
            await asyncio.wait({reply, last_words}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            last_words.cancel()
        note = "given up: " + ("the reader was told" if reply.done() else "the reader could not be told")
        await self._persist(lambda lease: self._channel.store.finish(lease, self.turn.id, self.given_up_as, note))
        await self._last_hint(HintState.FAILED)

    async def _abandon_run(self) -> None:
        """Let the gateway end what nobody waits for any more: the thread would stay busy, and /retry wait behind it."""
        if self._known_run is None:
            return
        cancelling = asyncio.create_task(self._channel.gateway.cancel(self._thread, self._known_run))
        enough = asyncio.create_task(self._clock.sleep(_ABANDON))
        try:
            await asyncio.wait({cancelling, enough}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            cancelling.cancel()
            enough.cancel()
            await asyncio.gather(cancelling, enough, return_exceptions=True)

    # ---------------------------------------------------------------- the gateway side

    async def _work(self) -> None:
        if self.turn.final is not None:
            self._show_final(self.turn.final)
            if self._has_last_words:
                await self._abandon_run()
            return
        await self._conclude(await self._answer())

    async def _conclude(self, answered: _Answered) -> None:
        self._show_final(answered.view)
        point("final-known")
        view, pending = self._last_view, answered.pending
        if pending is None and self._leaves_a_break(answered):
            pending = Pending.after_a_break(self.turn.id)
        self._pending = pending
        await self._persist(
            lambda lease: self._channel.store.save_final(
                lease, self.turn.id, view, pending.model_dump(mode="json") if pending else None, answered.note
            )
        )
        point("final-stored")
        if answered.note:
            self._log.warning("turn ended with a note", phase=view.phase.value, cause=answered.note)

    def _leaves_a_break(self, answered: _Answered) -> bool:
        """Whether the next question has to look at the thread first; without a run it is as it was before this one."""
        was_left_open = self._known_run is None and self.turn.resumes is not None
        is_broken_off = answered.view.phase in (Phase.STOPPED, Phase.FAILED)
        return was_left_open or is_broken_off or answered.leaves_a_break

    async def _answer(self) -> _Answered:
        pending, question = Pending.load(self.turn.resumes), self.turn.question
        press = question.press
        if press is not None and (pending is None or pending.turn != press.turn):
            return _Answered(View(phase=Phase.DONE, notice=await self._why_outdated(press.turn, pending)), pending)
        if pending is None:
            place = self.turn.conversation.place
            is_shared = not place.private and place.user is None
            text = as_question(self.turn.inbounds, named=is_shared and self._channel.policy.name_senders)
            return await self._run(Ask(text, question.sender, after=await self._break_before()))
        if press is not None:
            return await self._take_answer(pending, press.value, pressed=not press.is_typed)
        if not pending.was_asked_before(question):
            written = shortened(self._question_text() or self._file_names(), _QUOTED)
            return await self._ask_again(pending, _TOO_EARLY.format(written))
        return await self._take_answer(pending, self._question_text(), pressed=False)

    async def _break_before(self) -> Break | None:
        """What this question comes after, if that did not come to its end. Who took the turn over cannot be sure."""
        if self.turn.resumes is None and self.turn.state is TurnState.CLAIMED:
            return None
        left_by = Pending.left_by(self.turn.resumes)
        try:
            before = await self._channel.store.turn(left_by) if left_by else None
        except StoreError:
            before = None  # what was said is lost to the agent; what it needs is not
        if before is None or before.final is None:
            return Break()
        return Break(before.id, before.final.text, failed=before.final.phase is Phase.FAILED)

    async def _take_answer(self, pending: Pending, said: str, *, pressed: bool) -> _Answered:
        asked, files, takes_files = pending.current, self._file_names(), pending.takes_files
        remark = notice = ""
        if files and not takes_files:
            remark = f"(Sent along, but not handed over, as only text can answer here: {files})"
            notice = f"Only text can answer this question. The agent did not get {files}."
        words = said.strip() or remark
        if not (files and takes_files) and (refusal := asked.refusal(words, pressed=pressed)):
            return await self._ask_again(pending, f"{refusal} {notice}".rstrip())
        beside_words = f"\n\n{remark}" if remark and words != remark else ""
        answer = asked.answer(words, pressed=pressed, remark=beside_words)
        await self._close(pending, answer=asked.shown_answer(said, pressed=pressed) or files)
        pending = pending.with_answer(answer, self.turn.id)
        if not pending.is_answered:
            return _Answered(View(phase=Phase.ASKING, question=pending.current.question, notice=notice), pending)
        run_input = pending.next_input(self.turn.question.sender)
        if run_input is None:
            return _Answered(View(phase=Phase.DONE, notice=f"{LEFT_NOTICE} {notice}".rstrip()), pending)
        return await self._run(run_input, notice)

    async def _ask_again(self, pending: Pending, notice: str) -> _Answered:
        """What was said is no answer: say so, and show the question again right there."""
        await self._close(pending, why="Asked again below.")
        view = View(phase=Phase.ASKING, question=pending.current.question, notice=notice)
        return _Answered(view, pending.asked_again(self.turn.id))

    async def _why_outdated(self, turn: TurnId, pending: Pending | None) -> str:
        """What to say about a button whose question is not open; nothing about a second click, for the answer shows."""
        with suppress(StoreError):
            asked = await self._channel.store.turn(turn)
            view = asked.final if asked is not None else None
            if view is not None and view.question is not None and view.question.answer is not None:
                return ""
        return "This question is not open any more." if pending is None else "This is asked anew further down."

    async def _close(self, pending: Pending, *, answer: str | None = None, why: str = "") -> None:
        channel, host = self._channel, self._host
        await close_question(channel.store, host.lease(), host.carry, pending.turn, answer=answer, why=why)

    async def _run(self, run_input: Ask | Resume, notice: str = "") -> _Answered:
        """Run it on the gateway; `notice` is what the reader has to be told besides."""
        channel, turn = self._channel, self.turn
        thread = self._thread
        state = turn.state
        if isinstance(run_input, Ask) and state is not TurnState.RUNNING:
            run_input, self._remark = await self._with_files(run_input)
        metadata = self._metadata()
        a_break = Pending.after_a_break(turn.id).model_dump(mode="json")
        if state is TurnState.CLAIMED:
            if turn.conversation.thread_id is None:
                was_there = await self._unless_stopped(channel.gateway.prepare_thread(thread, metadata))
                if isinstance(run_input, Ask) and was_there:  # from a conversation that has been forgotten since
                    run_input = replace(run_input, after=run_input.after or Break())
            if not self._stop.is_set():
                await self._persist(lambda lease: channel.store.set_thread(lease, turn.id, thread))
                point("thread-made")
        if state in (TurnState.CLAIMED, TurnState.THREAD):
            if self._stop.is_set():
                return _Answered(View(phase=Phase.STOPPED, notice=self._stop_notice))
            await self._persist(lambda lease: channel.store.run_requested(lease, turn.id, a_break))
            point("run-requested")
        request = RunRequest(
            turn=turn.id,
            thread=thread,
            input=run_input,
            assistant_id=channel.assistant_id,
            config=channel.run_config,
            context=channel.run_context,
            timeout=channel.run_timeout,
            begun_at=turn.run_at,
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
        view = replace(view, notice=" ".join(part for part in (view.notice, notice, self._remark) if part))
        if not end.interrupts:
            return _Answered(view, note=end.note, leaves_a_break=end.leaves_a_break)
        return _Answered(view, Pending(turn=turn.id, interrupts=end.interrupts, asked_at=None), end.note)

    async def _with_files(self, question: Ask) -> tuple[Ask, str]:
        """The question with the files that came with it, and what to tell the reader of those that are missing."""
        attachments = [attachment for inbound in self.turn.inbounds for attachment in inbound.attachments]
        fetching = fetch_all(attachments, self._channel.adapter, self._clock, most_bytes=self._channel.attachment_bytes)
        fetched = await self._unless_stopped(fetching)
        if fetched is None:
            return question, ""
        files, missing = fetched
        told = "".join(f"\n\n(The attached file {name!r} could not be fetched.)" for name in missing)
        question = replace(question, text=question.text + told, files=files)
        remark = (await self._unless_stopped(self._channel.gateway.remark_on(files)) or "") if files else ""
        if missing:
            self._log.warning("attachments not fetched", causes=missing)
            remark = f"The agent did not get {', '.join(missing)}. {remark}".rstrip()
        return question, remark

    async def _unless_stopped(self, work: Coroutine[object, None, T]) -> T | None:
        """The result; None if the reader wants no more before it is there."""
        working = asyncio.create_task(work)
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() else None
        finally:
            working.cancel()
            stopping.cancel()
            await asyncio.gather(working, stopping, return_exceptions=True)

    async def _started(self, run: RunId) -> None:
        point("run-created")
        self._known_run = run
        if run != self.turn.run_id:
            await self._persist(lambda lease: self._channel.store.run_started(lease, self.turn.id, run, self._remark))
        point("run-known")

    async def _cancel_when_stopped(self) -> None:
        """Returns when a stopped run has had its time to end by itself."""
        await self._stop.wait()
        await self._channel.gateway.stop(self.turn.id)
        await self._clock.sleep(_STOP_PATIENCE)

    @property
    def _thread(self) -> ThreadId:
        conversation = self.turn.conversation
        return self.turn.thread_id or conversation.thread_id or thread_id_of(conversation)

    def _question_text(self) -> str:
        return "\n\n".join(inbound.text for inbound in self.turn.inbounds if inbound.text.strip())

    def _file_names(self) -> str:
        return ", ".join(attachment.name for inbound in self.turn.inbounds for attachment in inbound.attachments)

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
        view = self._transcript.view(now)
        if not view.is_final:  # what is final is for `_show_final` to say: the reply settles on it
            self._last_view = self._present(view)
        return self._last_view

    def _present(self, view: View) -> View:
        """As this channel's readers may see it, and in their words."""
        notice = as_typed(view.notice, self._channel.adapter.command_sign)
        return present(replace(view, notice=notice) if notice != view.notice else view, self._channel.policy)

    def _changed(self) -> None:
        first_content = not self._had_content and self._view(self._clock.now()).has_content
        self._had_content = self._had_content or first_content
        self._reply.changed(urgent=first_content)

    def _show_final(self, view: View) -> None:
        revision = max(view.revision, self._last_view.revision) + 1
        self._final = self._last_view = replace(self._present(view), revision=revision)
        self._reply.changed(urgent=True)

    def _permit(self) -> None:
        self._host.lease()

    async def _save_shown(self, shown: JsonValue, messages: Sequence[str]) -> None:
        await self._channel.store.save_shown(self._host.lease(), self.turn.id, shown, messages)
        await self._save_seen(self._host.lease())

    async def _save_seen(self, lease: Lease) -> None:
        """Store since when the question can be read, once nothing is left to be shown but what comes beside it."""
        pending, now = self._pending, self._clock.now()
        is_unseen = pending is not None and pending.turn == self.turn.id and pending.asked_at is None
        if pending is None or not is_unseen or not all(op.is_beside for op in self._reply.offers(now)):
            return
        seen = pending.seen_at(self._last_shown_at)
        await self._channel.store.save_question(lease, self.turn.id, seen.model_dump(mode="json"))
        self._pending = seen

    def _performed(self, op: Op, outcome: Outcome, seconds: float) -> None:
        metrics, name = self._channel.metrics, self._channel.name
        kind = type(outcome).__name__.lower()
        metrics.ops.labels(name, type(op).__name__, kind).inc()
        metrics.op_seconds.labels(name, type(op).__name__).observe(seconds)
        if isinstance(outcome, Unauthorised):
            self._host.unauthorised(str(outcome))
        if isinstance(outcome, Failure) and not isinstance(outcome, StoppedByUser):
            self._log.info("platform call not accepted", op=type(op).__name__, kind=kind, cause=str(outcome))
        if isinstance(outcome, Receipt) and not op.is_beside:
            self._last_shown_at = self._clock.now() - seconds
        if isinstance(outcome, Receipt) and not self._text_was_shown and self._last_view.text:
            self._text_was_shown = True
            waited = self._clock.now() - self.turn.question.received_at
            metrics.first_text_seconds.labels(name).observe(max(0.0, waited))

    async def _hint(self) -> None:
        if self.turn.state in (TurnState.FINAL, TurnState.RETOUCH):
            return
        adapter = self._channel.adapter
        await permitted(adapter.hint(self._target, HintState.ACCEPTED), self._permit)
        while self._final is None and not self._reply.is_forbidden:
            waiting = self._view(self._clock.now()).phase in (Phase.WAITING, Phase.THINKING)
            state = HintState.WAITING if waiting else HintState.WORKING
            await permitted(adapter.hint(self._target, state), self._permit)
            await self._clock.sleep(_HINT_EVERY)

    async def _last_hint(self, state: HintState) -> None:
        if self.turn.state is TurnState.RETOUCH:
            return  # how it ended is shown already
        await permitted(self._channel.adapter.hint(self._target, state), self._permit)

    async def _persist(self, write: Callable[[Lease], Awaitable[object]]) -> None:
        """Write until the store takes it. Raises `LostLease`, at the latest when the lease has run out."""
        cause = ""
        while True:
            try:
                await write(self._host.lease())
                return
            except LostLease:
                raise
            except StoreError as error:
                if str(error) != cause:
                    self._log.warning("the store is away; trying again", cause=str(error))
                cause = str(error)
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
