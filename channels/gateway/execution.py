"""One run, from its start to its end, through whatever the connection and the server do.

A stream is only a preview that may break at any byte. Whether a run is over is what the run's record says; what it
said is what whole messages and the thread's state say. So after every connection the run is looked at: when it is
still alive it is joined again where the stream broke; when it is over, the picture is completed and closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import structlog
from pydantic import JsonValue

from channels.gateway import sentences
from channels.gateway.asking import question_id, run_body
from channels.gateway.link import Link, RunBody, RunInfo, RunStatus, ThreadState
from channels.gateway.listening import Heard, Listener
from channels.gateway.mending import mending, open_calls
from channels.gateway.patience import OutOfPatience, Patience, Perseverance
from channels.gateway.runs import RunEnd, RunRequest, WhenBusy
from channels.gateway.troubles import Trouble, TroubleKind
from channels.inputs import Ask, Break, Resume
from channels.model import Phase, RunId, ThreadId
from channels.questions import Interrupt, breakpoint_question
from channels.shapes import as_object, as_text
from channels.transcript import Transcript
from channels.transcript.messages import Ending

log = structlog.get_logger(__name__)

_T = TypeVar("_T")

_NO_JOINING = frozenset(
    {TroubleKind.UNSTREAMABLE, TroubleKind.MISSING, TroubleKind.REFUSED, TroubleKind.DENIED, TroubleKind.BUSY}
)
"""Refusals of a join that a later join would meet again: the run is polled."""

_ENDINGS = {Ending.LENGTH: sentences.CUT_AT_LENGTH, Ending.FILTER: sentences.CUT_BY_FILTER}


class _Over(Exception):
    """The turn ends here, whatever the run does."""

    def __init__(self, phase: Phase, notice: str, note: str) -> None:
        super().__init__(note)
        self.phase = phase
        self.notice = notice
        self.note = note


class Execution:
    """Carries one request. `run` returns when the run has ended, timed out or cannot be had."""

    def __init__(
        self,
        link: Link,
        request: RunRequest,
        transcript: Transcript,
        *,
        run: RunId | None,
        maybe_requested: bool,
        started: Callable[[RunId], Awaitable[None]],
        changed: Callable[[], None],
        stop: asyncio.Event,
        patience: Patience,
        file_types: Sequence[str],
        speaking: dict[str, bool | None],
        thread_missing: bool = False,
    ) -> None:
        self._link = link
        self._clock = link.clock
        self._request = request
        self._transcript = transcript
        self._run = run
        self._maybe_requested = maybe_requested
        self._started = started
        self._tell_changed = changed
        self._stop = stop
        self._patience = patience
        self._file_types = file_types
        self._speaking = speaking
        self._thread_missing = thread_missing
        self._thread_lost = False
        self._uploads: list[JsonValue] | None = None
        self._break = request.input.after if isinstance(request.input, Ask) else None
        self._mending: list[JsonValue] = []
        self._state_is_away = False
        self._joins = 0
        self._heard_end = False
        now = self._clock.now()
        self._began = now
        self._timeout = request.timeout or patience.run
        begun_at = now if request.begun_at is None else min(now, request.begun_at)
        self._deadline = max(begun_at + self._timeout, now + min(self._timeout, patience.late))
        self._start_by = min(self._deadline, now + patience.start)
        self._perseverance = Perseverance(self._clock, patience, stop, self._say)
        self._listener = Listener(
            self._clock,
            link.stats,
            transcript,
            self._perseverance,
            patience,
            deadline=self._deadline,
            stop=stop,
            known=self._know,
            changed=self._heard,
        )
        self._log = log.bind(turn=request.turn, thread=request.thread)

    @property
    def thread(self) -> ThreadId:
        return self._request.thread

    @property
    def run_id(self) -> RunId | None:
        """The run, as soon as it is known."""
        return self._run

    @property
    def may_have_begun(self) -> bool:
        """Whether there may be a run although its id is not known."""
        return self._run is None and self._maybe_requested

    async def run(self) -> RunEnd:
        """Raises only what `started` raises, and `CancelledError`: then the run lives on."""
        asked, transcript, stats = self._request.input, self._transcript, self._link.stats
        transcript.expect(
            thread=self._request.thread,
            question_id=question_id(self._request.turn) if isinstance(asked, Ask) else "",
            question_text=asked.text if isinstance(asked, Ask) else None,
            heard=asked.heard if isinstance(asked, Resume) else (),
            speaking=self._speaking,
        )
        malformed, unknown, restarts = transcript.malformed, transcript.unknown, transcript.restarts
        try:
            return await self._carry()
        except _Over as over:
            return self._end(over.phase, over.notice, over.note)
        except OutOfPatience as out:
            return await self._give_up(out)
        except Trouble as trouble:
            return self._end(Phase.FAILED, _refusal(trouble), str(trouble))
        finally:
            stats.malformed_events += transcript.malformed - malformed
            stats.unknown_events += transcript.unknown - unknown
            stats.restarts += transcript.restarts - restarts

    async def _carry(self) -> RunEnd:
        if self.may_have_begun:
            self._maybe_requested = await self._find()
        heard = None if self._run is not None else await self._begin()
        info = await self._follow(heard)
        return await self._conclude(info)

    async def _give_up(self, out: OutOfPatience) -> RunEnd:
        if self._run is not None:
            try:
                await self._link.cancel(self._request.thread, self._run)
            except Trouble as trouble:
                self._log.warning("the run could not be cancelled", cause=str(trouble))
        cause = str(out.trouble or "")
        if out.stopped:
            unconfirmed = self._run is not None or self._maybe_requested
            note = f"the gateway did not confirm the stop {cause}".strip() if unconfirmed else ""
            return self._end(Phase.STOPPED, sentences.STOPPED, note)
        if self._run is not None:
            return self._end(Phase.FAILED, sentences.timed_out(self._timeout), f"out of time {cause}")
        busy = out.trouble is not None and out.trouble.kind is TroubleKind.BUSY
        return self._end(Phase.FAILED, sentences.BUSY if busy else sentences.STILL_UNREACHABLE, cause)

    # ------------------------------------------------------------ starting, once

    async def _begin(self) -> Heard | None:
        """Start the run. Returns what the first connection brought; None: the run is to be joined."""
        self._listener.live = True
        while True:
            self._check_wanted()
            try:
                await self._link.ready()
                if self._thread_missing:
                    if await self._link.make_thread(self.thread, self._request.metadata):
                        self._break = self._break or Break()  # from a conversation that has been forgotten since
                    self._thread_missing = False
                await self._upload()
                await self._look_for_a_break()
            except Trouble as early:
                await self._after_failed_start(early)
                continue
            body = await self._body()
            self._check_wanted()
            self._maybe_requested = True
            heard = await self._listener.listen(self._link.start(self._request.thread, body))
            if self._run is not None:
                return heard
            trouble = heard.trouble or Trouble(TroubleKind.CUT, "the gateway told no run")
            if trouble.kind is TroubleKind.UNSTREAMABLE:
                if not await self._find():
                    await self._begin_unstreamed()
                return None
            if await self._after_failed_start(trouble):
                return None

    async def _begin_unstreamed(self) -> None:
        while self._run is None:
            body = await self._body()
            self._check_wanted()
            self._maybe_requested = True
            try:
                await self._know(await self._link.start_unstreamed(self._request.thread, body))
            except Trouble as trouble:
                await self._after_failed_start(trouble)

    def _check_wanted(self) -> None:
        """Nothing is started after a stop, nor when the time for it is over."""
        if self._stop.is_set():
            note = "the gateway may have begun a run that could not be found" if self._maybe_requested else ""
            raise _Over(Phase.STOPPED, sentences.STOPPED, note)
        self._perseverance.check(self._start_by)

    async def _after_failed_start(self, trouble: Trouble) -> bool:
        """Decide after a start that failed: True when the run was found after all, False: try again."""
        self._log.info("run not started", cause=str(trouble))
        self._maybe_requested = trouble.kind in (TroubleKind.CUT, TroubleKind.FAILING)
        match trouble.kind:
            case TroubleKind.UNREACHED | TroubleKind.LIMITED:
                await self._perseverance.wait(trouble, sentences.UNREACHABLE, self._start_by)
            case TroubleKind.CUT | TroubleKind.FAILING:
                # It may have been started, also a moment from now: look, wait, and look once more.
                if await self._find():
                    return True
                await self._perseverance.wait(trouble, sentences.UNREACHABLE, self._start_by)
                return await self._find()
            case TroubleKind.BUSY:
                if await self._find():
                    return True
                rejecting = self._request.when_busy is WhenBusy.REJECT
                if rejecting and self._clock.now() >= self._began + self._patience.busy_grace:
                    raise _Over(Phase.FAILED, sentences.BUSY, str(trouble))
                await self._perseverance.wait(trouble, sentences.WAITING_FOR_THREAD, self._start_by)
            case TroubleKind.MISSING:
                await self._after_missing(trouble)
            case TroubleKind.REFUSED if trouble.status == 422 and self._link.learn(trouble):
                pass
            case _:
                raise trouble
        return False

    async def _after_missing(self, trouble: Trouble) -> None:
        """404: a deleted thread is made anew; an assistant that does not exist is the operator's business."""
        if self._thread_lost or await self._insist(lambda: self._link.thread_exists(self._request.thread)):
            raise _Over(Phase.FAILED, sentences.UNKNOWN_ASSISTANT, str(trouble))
        self._thread_lost = self._thread_missing = True
        self._link.stats.lost_threads += 1
        self._log.warning("the gateway has lost the thread; the conversation starts anew")
        if isinstance(self._request.input, Resume):
            raise _Over(Phase.FAILED, sentences.QUESTION_LOST, "the thread with the question is gone")
        self._say("")

    async def _find(self) -> bool:
        """Look for the run of this turn, which may have been started already."""
        run = await self._insist(lambda: self._link.find_run(self._request.thread, self._request.turn))
        if run is not None:
            await self._know(run)
        return run is not None

    async def _insist(self, call: Callable[[], Awaitable[_T]]) -> _T:
        return await self._perseverance.insist(call, self._start_by, sentences.UNREACHABLE)

    async def _upload(self) -> None:
        asked = self._request.input
        if self._uploads is None and isinstance(asked, Ask) and asked.files and self._link.traits.files_over_http:
            self._uploads = await self._link.upload(self._request.thread, asked.files)

    async def _look_for_a_break(self) -> None:
        """After a break the thread gets with the question what its history needs; what has left it so is over by now.

        A state that cannot be read for long does not keep the question back: the gateway may be well otherwise.
        """
        if self._break is None or self._state_is_away or isinstance(self._request.input, Resume):
            return
        until = min(self._start_by, self._clock.now() + self._patience.state)
        try:
            state = await self._state(until)
        except (OutOfPatience, Trouble) as error:
            if isinstance(error, OutOfPatience) and (error.stopped or until == self._start_by):
                raise
            self._state_is_away = True
            self._log.warning("the state could not be read before the run", cause=str(error))
        else:
            self._mending = await asyncio.to_thread(mending, state.values.get("messages"), self._break)

    async def _body(self) -> RunBody:
        """The run as the gateway wants it; made in a thread, because files are encoded into it."""
        return await asyncio.to_thread(
            run_body, self._request, self._link.traits, self._file_types, self._uploads or (), self._mending
        )

    async def _know(self, run: RunId) -> None:
        """The run's id is told before anything of it is shown. A stop that came before the id is passed on at once."""
        if self._run is None:
            self._run = run
            self._link.stats.runs_started += 1
            self._log.info("run known", run=run)
            await self._pass_on_stop()
            await self._started(run)

    # ------------------------------------------------------------ following

    async def _follow(self, heard: Heard | None) -> RunInfo:
        """Listen until the run is over. `heard` is what the connection that started it brought."""
        fruitless = gaps = 0
        while True:
            if heard is not None:
                if not heard.is_fruitless:
                    self._perseverance.progressed()
                self._link.stats.gaps += heard.met_gap
                gaps = gaps + 1 if heard.met_gap else 0 if heard.events else gaps
                fruitless = fruitless + 1 if heard.is_fruitless else 0
                info = await self._look()
                if info.status is not RunStatus.ACTIVE:
                    # A restarting gateway closes streams cleanly too. While it could not be asked, it may have gone on.
                    self._heard_end = heard.ended_by_itself and (heard.over or not self._perseverance.is_troubled)
                    return info
                if heard.met_gap:
                    await self._bridge(heard.gap)
                refused = heard.trouble is not None and heard.trouble.kind in _NO_JOINING
                if refused or gaps > self._patience.gaps or fruitless >= self._patience.fruitless:
                    return await self._poll()
                if not heard.met_gap:
                    await self._perseverance.wait(heard.trouble, sentences.RECONNECTING, self._deadline)
                self._link.stats.rejoins += 1
            heard = await self._join()
            if heard.trouble is not None:
                self._log.info("stream broke", cause=str(heard.trouble), events=heard.events)

    async def _join(self) -> Heard:
        assert self._run is not None
        await self._pass_on_stop()
        replay = self._listener.replay
        replay.joined()
        self._joins += 1
        return await self._listener.listen(self._link.join(self._request.thread, self._run, replay.cursor))

    async def _pass_on_stop(self) -> None:
        """A stop may have come before the run was known, or not have got through while the gateway was away."""
        if self._stop.is_set() and (run := self._run) is not None:
            try:
                await self._perseverance.insist(lambda: self._link.cancel(self._request.thread, run), self._deadline)
            except Trouble as trouble:
                self._log.warning("the gateway does not cancel the run", run=run, cause=str(trouble))

    async def _look(self) -> RunInfo:
        """How the run is, from its record; waits until the gateway can say."""
        assert self._run is not None
        thread, run = self._request.thread, self._run
        await self._pass_on_stop()
        info = await self._perseverance.insist(
            lambda: self._link.run(thread, run), self._deadline, sentences.RECONNECTING
        )
        if info.status is RunStatus.ACTIVE:
            self._perseverance.check(self._deadline)
        return info

    async def _bridge(self, gap: JsonValue) -> None:
        """Events are lost: complete the picture from the state and go on at the latest event (null: wherever)."""
        self._transcript.missed()
        try:
            state = await self._state(self._deadline, sentences.RECONNECTING)
        except Trouble as trouble:
            self._log.warning("the state could not be read after a gap", cause=str(trouble))
        else:
            self._transcript.reconcile(state.values, self._clock.now(), by_us=state.written_by == self._run)
            self._tell_changed()
        self._listener.replay.skip_to(as_text(as_object(gap).get("latest_available_event_id")))

    async def _state(self, until: float, notice: str = "") -> ThreadState:
        return await self._perseverance.insist(lambda: self._link.state(self._request.thread), until, notice)

    async def _poll(self) -> RunInfo:
        """No stream can be had: look at the run until it is over. Slower, never lost."""
        self._link.stats.polled_turns += 1
        self._log.warning("no stream can be had; the run is polled", run=self._run)
        self._transcript.missed()
        pause = self._patience.first_poll
        while (info := await self._look()).status is RunStatus.ACTIVE:
            await self._perseverance.pause(pause, self._deadline)
            pause = min(pause * 1.5, self._patience.longest_poll)
        return info

    def _heard(self, changed: bool) -> None:
        if self._perseverance.progressed():
            changed |= self._transcript.note(self._standing_notice)
        if changed:
            self._tell_changed()

    # ------------------------------------------------------------ ending

    async def _conclude(self, info: RunInfo) -> RunEnd:
        """The run is over: complete the picture and close it."""
        if self._is_cut_short:
            return self._end(Phase.STOPPED, sentences.STOPPED, "")
        state: ThreadState | None = None
        note, found = "", False
        if info.status is not RunStatus.SUCCESS or not self._knows_all:
            has_failed = info.status in (RunStatus.ERROR, RunStatus.TIMEOUT)
            try:
                if has_failed or not self._may_lack_text(None):
                    state = await self._state(self._clock.now() + self._patience.state)
                else:
                    state = await self._state(self._deadline, sentences.RECONNECTING)
            except (OutOfPatience, Trouble) as error:
                note = f"the state could not be read, streamed text stands unconfirmed: {error}"
        if state is not None:
            by_us = state.written_by == self._run
            if by_us and state.attempt > self._transcript.attempt > 0:
                # Executed anew while nobody listened: what was heard of the earlier attempt is in no state.
                self._transcript.begin_anew()
            found = self._transcript.reconcile(
                state.values,
                self._clock.now(),
                interrupts=state.interrupts,
                unheard=self._is_ours(state),
                by_us=by_us,
            )
        if info.status is RunStatus.GONE and not found:
            return self._end(Phase.FAILED, sentences.LOST, note or "the gateway has neither the run nor its answer")
        return self._close(info, state, note)

    @property
    def _heard_all(self) -> bool:
        """Whether one stream brought the run from its start to its end; one that was joined may lack events unseen."""
        return self._heard_end and not self._joins

    @property
    def _knows_all(self) -> bool:
        """Whether the picture is complete and confirmed without the state."""
        return self._heard_all and self._transcript.is_settled

    @property
    def _is_cut_short(self) -> bool:
        """Whether a stop came before all was heard: the reader keeps what there was, whatever the run said after it."""
        return self._stop.is_set() and self._listener.live and not self._knows_all

    def _may_lack_text(self, state: ThreadState | None) -> bool:
        """Whether something that was not heard is not known from the state either."""
        if state is None:
            return not self._heard_all or self._transcript.has_hole
        return not self._transcript.is_told_by_state and (not self._heard_end or self._transcript.has_hole)

    def _is_ours(self, state: ThreadState) -> bool:
        """Whether what the state holds beyond what was heard can be this run's.

        A second answer to the same question runs and does nothing: what the state then holds was shown before.
        """
        if isinstance(self._request.input, Ask):
            return True  # what stands after our own message is ours
        return state.written_by == self._run if state.written_by else not self._transcript.is_empty or self._joins > 0

    def _close(self, info: RunInfo, state: ThreadState | None, note: str) -> RunEnd:
        transcript = self._transcript
        cause = transcript.failure or info.error
        match info.status:
            case RunStatus.ERROR:
                return self._end(Phase.FAILED, sentences.run_failed(cause), f"run failed: {cause or 'no cause given'}")
            case RunStatus.TIMEOUT:
                return self._end(Phase.FAILED, sentences.run_failed("timeout"), "the gateway timed the run out")
        interrupts = transcript.interrupts
        if self._stop.is_set() and (interrupts or info.status is RunStatus.INTERRUPTED):
            return self._end(Phase.STOPPED, sentences.STOPPED, "")
        lacks_text = self._may_lack_text(state)
        if info.status is RunStatus.INTERRUPTED and not (interrupts or (lacks_text and state is None)):
            return self._end(Phase.STOPPED, sentences.STOPPED_ELSEWHERE, "the run was cancelled at the gateway")
        if not interrupts and info.status is RunStatus.SUCCESS and state is not None and state.next:
            interrupts = (breakpoint_question(state.next, open_calls(state.values.get("messages"))),)
        verified = not note
        if interrupts:
            return self._ask(interrupts, verified=verified)
        if lacks_text:
            return self._end(Phase.FAILED, sentences.UNREAD, note or "the state does not tell what the run has said")
        if verified and self._heard_all:
            self._speaking.update(transcript.speaking)
        end = self._end(Phase.DONE, "", note, verified=verified)
        remark = _ENDINGS[transcript.ending] if transcript.ending else ""
        if not (end.view.files or any(segment.is_answer for segment in end.view.body)):
            is_answered = isinstance(self._request.input, Resume)
            remark = remark or (sentences.NOTHING_MORE if is_answered else sentences.NO_ANSWER)
            end = replace(end, note=note or "the run ended without an answer", leaves_a_break=True)
        return replace(end, view=replace(end.view, notice=f"{end.view.notice} {remark}".strip()))

    def _ask(self, interrupts: tuple[Interrupt, ...], *, verified: bool) -> RunEnd:
        heard = self._transcript.heard_ids
        asked = tuple(interrupt.model_copy(update={"heard": heard}) for interrupt in interrupts)
        end = self._end(Phase.ASKING, "", "", verified=verified)
        return replace(end, view=replace(end.view, question=asked[0].question), interrupts=asked)

    def _end(self, phase: Phase, notice: str, note: str, *, verified: bool = True) -> RunEnd:
        if phase is Phase.FAILED and self._stop.is_set():
            phase, notice = Phase.STOPPED, sentences.STOPPED  # nobody waits for it any more
        notice = f"{self._standing_notice} {notice}".strip()
        view = self._transcript.finish(phase, self._clock.now(), notice=notice, verified=verified)
        self._log.info("run over", phase=phase.value, run=self._run, joins=self._joins, note=note or None)
        is_broken_off = phase in (Phase.STOPPED, Phase.FAILED) or self._transcript.has_open_calls
        return RunEnd(view, (), note, leaves_a_break=phase is not Phase.ASKING and is_broken_off)

    @property
    def _standing_notice(self) -> str:
        return sentences.STARTS_ANEW if self._thread_lost and isinstance(self._request.input, Ask) else ""

    def _say(self, notice: str) -> None:
        if self._transcript.note(f"{self._standing_notice} {notice}".strip()):
            self._tell_changed()


def _refusal(trouble: Trouble) -> str:
    """What a reader is told when the gateway refuses."""
    if trouble.kind is TroubleKind.DENIED:
        return sentences.DENIED
    if trouble.status == 413:
        return sentences.TOO_LARGE
    if trouble.status == 422 and "assistant" in trouble.detail.casefold():
        return sentences.UNKNOWN_ASSISTANT
    return sentences.REFUSED
