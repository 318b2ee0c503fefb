"""Which calls bring a reply on Slack nearer to its view. Pure.

The reply's text is laid out over pages, each one message. Growth goes to the end of the last page; a page that is
full, or a stream that is old, is finished at a natural border and the next one begins there. A page that shows
something else than the text says is edited; one that Slack ended by itself as well.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from adapters.slack import limits
from adapters.slack.draft import Draft
from adapters.slack.dress import Dress, dress_of
from adapters.slack.files import plan_files
from adapters.slack.ops import (
    Append,
    Delete,
    Find,
    Post,
    StartStream,
    Stop,
    Update,
)
from adapters.slack.shown import Page, SlackShown, TaskShown, digest_of
from adapters.slack.spot import Spot
from adapters.slack.tasks import TaskBook, Tasks
from adapters.slack.text import escaped_units
from channels.adapter import Draw, Op, Urgency
from channels.markdown import Cut, Measure, split_at, utf8_bytes, utf16_units
from channels.model import Phase, View
from config.channel import Streaming

_BLANK_LINES = re.compile(r"[^\S\n]*\n(?:[^\S\n]*\n)*")
_SPACES = re.compile(r"[^\S\n]+")
_FILLER = " x" * 40
"""What stands for the text to come when the borders at the very end of a text are asked for."""
_LAST_WORDS = "Slack does not let me show this answer in full."
_STORE_EVERY = 2_000  # characters of growth
_SMALLEST_PAGE = 200


@dataclass(frozen=True, slots=True)
class Rules:
    """How a reply is to be shown: the settings, and what is known of its place."""

    streaming: Streaming
    stream_bytes: int
    markdown_chars: int
    feedback: bool
    may_stream: bool


class Planner:
    """Plans for one view and one state of what is shown."""

    def __init__(self, rules: Rules, spot: Spot, view: View, draft: Draft, shown: SlackShown, now: float) -> None:
        self._rules = rules
        self._spot = spot
        self._view = view
        self._draft = draft
        self._shown = shown
        self._now = now
        self._text = draft.text
        self._final = view.is_final
        self._book = TaskBook(draft.steps, shown.pages)
        if shown.pages and len(draft.held) >= _end_of(shown.pages[-1]) > len(draft.text):
            self._text = draft.held  # the last words have been shown already
        if shown.halted and view.phase is Phase.STOPPED and shown.pages and not shown.pages[-1].uncertain:
            # The reader has stopped the answer in Slack: what is shown stays, and nothing is added to it.
            last = shown.pages[-1]
            if last.length:
                self._text = self._text[: _end_of(last)]

    def ops(self) -> Sequence[Op]:
        pages = self._shown.pages
        for index, page in enumerate(pages):
            if page.ts is None:
                return (self._find(index, page),)
        if self._shown.is_out_of_ways:
            running = [(index, page) for index, page in enumerate(pages) if page.open and not page.stuck]
            return (self._bare_stop(*running[0]),) if running else self._last_words()
        at, opening = 0, ""
        starts: list[tuple[int, str]] = []
        for index, page in enumerate(pages):
            starts.append((at, opening))
            fits = self._fits(page, at, opening)
            if page.stuck:
                if fits:
                    at, opening = self._after(page, at, opening)
                continue
            if page.finished and fits and not page.uncertain:
                at, opening = self._after(page, at, opening)
                continue
            ops = self._work(index, page, at, opening, fits=fits)
            if ops or not self._final:
                return ops
            at, opening = len(self._text), ""
        return self._go_on(at, opening, starts)

    # ---------------------------------------------------------------- where a page stands in the text

    def _source(self, at: int, opening: str) -> str:
        """The text of a page that starts at `at`; empty if there is none left."""
        rest = self._text[at:]
        return opening + rest if rest.strip() else ""

    def _fits(self, page: Page, at: int, opening: str) -> bool:
        """Whether what the page shows is the beginning of what it should show."""
        if not page.length:
            return True
        if (page.start, page.opening) != (at, opening):
            return False
        source = self._source(at, opening)
        return page.length <= len(source) and digest_of(source[: page.length]) == page.digest

    def _after(self, page: Page, at: int, opening: str) -> tuple[int, str]:
        """Where the page after this one starts, and with what."""
        if not page.length:
            return at, opening
        if page.finished and page.exact:
            return page.next, page.carry
        if page.finished:
            return self._resume(page.next, page.carry)
        source = self._source(at, opening)[: page.length]
        return self._resume(at + page.length - len(opening), _sealed(source)[1])

    def _resume(self, at: int, carry: str) -> tuple[int, str]:
        """The first text after a page that ends at `at`. A new line needs no container marks: it has its own."""
        if lines := _BLANK_LINES.match(self._text, at):
            return lines.end(), carry if carry.endswith("\n") else ""
        if not carry.endswith("\n") and (spaces := _SPACES.match(self._text, at)):
            return spaces.end(), carry
        return at, carry

    # ---------------------------------------------------------------- a page that is there

    def _work(self, index: int, page: Page, at: int, opening: str, *, fits: bool) -> Sequence[Op]:
        source = self._source(at, opening)
        is_behind = not self._final and not fits and len(source) < page.length
        if page.open:
            if page.uncertain or self._shown.level >= 3 or (not fits and not is_behind):
                return (self._bare_stop(index, page),)
            if is_behind:  # the view has to catch up, after a restart or a second run
                return (self._bare_stop(index, page, not_before=page.at + limits.STREAM_ROTATE),)
            if self._shown.halted and not self._final:
                return ()
            return self._grow(index, page if page.length else _at(page, at, opening), source, at)
        if is_behind:
            return ()
        if not source and index > 0 and page.length:
            return (Delete(urgency=Urgency.FINAL, draws=(Draw(limits.DELETE),), keeps=True, index=index, page=page),)
        return self._edit(index, _reopened(page, at, opening), source, at, fits=fits)

    def _grow(self, index: int, page: Page, source: str, at: int) -> Sequence[Op]:
        """Calls for a stream that is running and shows the beginning of `source`."""
        tasks = self._book.news(index, page)
        have = page.length
        delta = source[have:]
        room = self._room(tasks.weight)
        if delta and utf8_bytes(source) > room:
            cut = split_at(source, room, utf8_bytes, floor=have)
            if not cut.is_whole:
                return self._finish(index, page, source, at, cut)
        if self._final:
            return self._stop_for_good(index, page, source, tasks)
        age = self._now - page.at
        if age >= limits.STREAM_ROTATE:
            return (self._seal(index, page, source, at, not_before=0.0),)
        if age >= limits.STREAM_ROTATE_SOFT and (natural := _natural_cut(source, have)) is not None:
            return self._finish(index, page, source, at, natural)
        seal = self._seal(index, page, source, at, not_before=page.at + limits.STREAM_ROTATE)
        if delta or tasks.chunks:
            return (self._append(index, page, source, tasks), seal)
        return (*self._flush(index, page, room, at), seal)

    def _append(self, index: int, page: Page, source: str, tasks: Tasks, not_before: float = 0.0) -> Append:
        # Stored, so that whatever turns is closed even if we crash.
        opens = any(
            task.title and not (key in page.tasks and page.tasks[key].title) for key, task in tasks.shown.items()
        )
        keeps = opens or len(source) - page.stored >= _STORE_EVERY
        grown = _grown(page, source, len(source), tasks=tasks.shown)
        return Append(
            urgency=Urgency.FINAL if self._final else Urgency.GROWTH,
            draws=(Draw(limits.APPEND),),
            keeps=keeps,
            not_before=not_before,
            index=index,
            page=grown.model_copy(update={"stored": len(source)}) if keeps else grown,
            text=source[page.length :],
            tasks=tasks.chunks,
        )

    def _flush(self, index: int, page: Page, room: int, at: int) -> Sequence[Append]:
        """The last words of a model that has fallen silent."""
        source = page.opening + self._draft.held[at:] if self._draft.held[at:].strip() else ""
        if len(source) <= page.length or utf8_bytes(source) > room:
            return ()
        tasks = Tasks((), page.tasks)
        return (self._append(index, page, source, tasks, not_before=page.touched + limits.HOLD_SECONDS),)

    def _finish(self, index: int, page: Page, source: str, at: int, cut: Cut) -> Sequence[Op]:
        """End a stream at a cut; the text goes on in the next message."""
        end = len(cut.head) - len(cut.closing)
        tasks = self._book.closed(index, page, None)
        finished = _finished(_grown(page, source, end, tasks=tasks.shown), cut, at)
        stop = Stop(
            urgency=Urgency.FINAL if self._final else Urgency.GROWTH,
            draws=(Draw(limits.STOP),),
            keeps=True,
            index=index,
            page=finished,
            text=source[page.length : end] + cut.closing,
            tasks=tasks.chunks,
        )
        if end == page.length:
            return (_ended(stop),)
        # Should no stream be allowed to end now, its text can still be read.
        return (_ended(stop), self._append(index, page, source[:end], Tasks((), page.tasks)))

    def _seal(self, index: int, page: Page, source: str, at: int, *, not_before: float) -> Op:
        """End a stream that is too old, with all the text there is; what comes later goes into a new message."""
        closing, carry = _sealed(source)
        tasks = self._book.closed(index, page, None)
        update = {
            "open": False,
            "finished": True,
            "closing": closing,
            "next": at + len(source) - len(page.opening) if source else at,
            "carry": carry,
            "exact": False,
        }
        stop = Stop(
            urgency=Urgency.GROWTH,
            draws=(Draw(limits.STOP),),
            keeps=True,
            not_before=not_before,
            index=index,
            page=_grown(page, source, len(source), tasks=tasks.shown).model_copy(update=update),
            text=source[page.length :] + closing,
            tasks=tasks.chunks,
        )
        return _ended(stop)

    def _stop_for_good(self, index: int, page: Page, source: str, tasks: Tasks) -> Sequence[Op]:
        dress = self._dress(index, is_empty=not source)
        closed = self._book.closed(index, page, self._view.phase)
        update = {"open": False, "dress": dress.digest}
        stop = Stop(
            urgency=Urgency.FINAL,
            draws=(Draw(limits.STOP),),
            keeps=True,
            index=index,
            page=_grown(page, source, len(source), tasks=closed.shown).model_copy(update=update),
            text=source[page.length :],
            tasks=closed.chunks,
            blocks=dress.after,
            session=self._session,
        )
        if len(source) > page.length:
            return (_ended(stop), self._append(index, page, source, Tasks(tasks.chunks, tasks.shown)))
        return (_ended(stop),)

    def _bare_stop(self, index: int, page: Page, not_before: float = 0.0) -> Op:
        """End a stream without adding to it; an edit then says what it should say."""
        tasks = self._book.closed(index, page, self._view.phase if self._final else None)
        chunks = self._book.anything_open(page, tasks) if page.uncertain else tasks.chunks
        stop = Stop(
            urgency=Urgency.FINAL if self._final else Urgency.FIRST,
            draws=(Draw(limits.STOP),),
            keeps=True,
            not_before=not_before,
            index=index,
            page=page.model_copy(update={"open": False, "uncertain": True, "tasks": tasks.shown}),
            tasks=() if self._shown.level >= 4 else chunks,
        )
        return _ended(stop)

    def _edit(self, index: int, page: Page, source: str, at: int, *, fits: bool) -> Sequence[Op]:
        """Calls for a message that is replaced as a whole. `page` has its place in the text already."""
        limit, measure = self._edit_limit()
        if source:
            cut = split_at(source, limit, measure)
            if not cut.is_whole:
                end = len(cut.head) - len(cut.closing)
                tasks = self._book.named()
                full = _finished(_grown(page, source, end, tasks=tasks), cut, at)
                dress = Dress(before=self._dress(index, is_empty=False).before)
                return (self._update(index, full.model_copy(update={"dress": dress.digest}), cut.head, dress),)
        dress = self._dress(index, is_empty=not source)
        is_right = fits and not page.uncertain and page.length == len(source) and page.dress == dress.digest
        seals = not self._final and page.streamed and page.uncertain and self._can_stream and bool(source)
        if is_right:
            return ()
        if seals:
            closing, carry = _sealed(source)
            update = {
                "finished": True,
                "closing": closing,
                "next": at + len(source) - len(page.opening),
                "carry": carry,
                "exact": False,
                "dress": "",
            }
            sealed = _grown(page, source, len(source), tasks=page.tasks).model_copy(update=update)
            return (self._update(index, sealed, source + closing, Dress()),)
        written = _grown(page, source, len(source), tasks=page.tasks).model_copy(update={"dress": dress.digest})
        return (self._update(index, written, source, dress),)

    def _update(self, index: int, page: Page, text: str, dress: Dress) -> Update:
        return Update(
            urgency=Urgency.FINAL if self._final else Urgency.GROWTH,
            draws=(Draw(limits.UPDATE),),
            keeps=self._final or page.finished,
            index=index,
            page=page.model_copy(update={"streamed": False, "open": False, "uncertain": False}),
            text=text,
            before=dress.before,
            after=dress.after,
            plain=self._is_plain,
            session=self._session if self._final else "",
        )

    # ---------------------------------------------------------------- what comes after the pages that are there

    def _go_on(self, at: int, opening: str, starts: Sequence[tuple[int, str]]) -> Sequence[Op]:
        source = self._source(at, opening)
        if not self._final:
            return () if self._shown.halted else self._begin(at, opening, source)
        if source:
            return (self._post(at, opening, source),)
        return self._dress_last(starts) or plan_files(self._view, self._shown, self._spot)

    def _last_words(self) -> Sequence[Op]:
        """Below what is shown of an answer that Slack takes in no form."""
        if not self._final:
            return ()
        if any(page.digest == digest_of(_LAST_WORDS) for page in self._shown.pages):
            return plan_files(self._view, self._shown, self._spot)
        return (replace(self._post(len(self._text), "", _LAST_WORDS), gives_up=True),)

    def _begin(self, at: int, opening: str, source: str) -> Sequence[Op]:
        """Ways to begin the next message of a running answer."""
        is_first = not self._shown.pages
        blank = Page(part=self._shown.parts, start=at, opening=opening)
        can_stream = self._can_stream
        not_before = 0.0
        has_news = bool(self._book.news(len(self._shown.pages), blank).chunks) if can_stream else is_first
        if not source and not (has_news and self._draft.steps):
            if not self._draft.held[at:].strip():
                return ()
            source = opening + self._draft.held[at:]
            not_before = self._now + limits.HOLD_SECONDS
        post = self._post(at, opening, source, not_before)
        if not can_stream:
            return (post,)
        start = self._start(blank, source, not_before)
        return (start,) if self._rules.streaming is Streaming.NATIVE else (start, post)

    def _start(self, blank: Page, source: str, not_before: float) -> StartStream:
        index = len(self._shown.pages)
        tasks = self._book.news(index, blank)
        end = len(source)
        if source:
            cut = split_at(source, self._room(tasks.weight), utf8_bytes)
            end = len(source) if cut.is_whole else len(cut.head) - len(cut.closing)
        page = _grown(blank, source, end, tasks=tasks.shown)
        return StartStream(
            urgency=self._first_urgency,
            draws=(Draw(limits.START),),
            creates=True,
            not_before=not_before,
            root=self._spot.root,
            index=index,
            page=page.model_copy(update={"streamed": True, "open": True, "stored": end}),
            text=source[:end],
            tasks=tasks.chunks,
        )

    def _post(self, at: int, opening: str, source: str, not_before: float = 0.0) -> Post:
        index = len(self._shown.pages)
        blank = Page(part=self._shown.parts, start=at, opening=opening)
        limit, measure = self._edit_limit()
        cut = split_at(source, limit, measure) if source else None
        if cut is not None and not cut.is_whole:
            end = len(cut.head) - len(cut.closing)
            dress = Dress(before=self._dress(index, is_empty=False).before)
            page = _finished(_grown(blank, source, end, tasks=self._book.named()), cut, at)
            text = cut.head
        else:
            dress = self._dress(index, is_empty=not source)
            page, text = _grown(blank, source, len(source), tasks={}), source
        return Post(
            urgency=self._first_urgency,
            draws=(Draw(limits.POST_CHANNEL, self._spot.channel), Draw(limits.POST)),
            creates=True,
            not_before=not_before,
            root=self._spot.root,
            index=index,
            page=page.model_copy(update={"dress": dress.digest}),
            text=text,
            before=dress.before,
            after=dress.after,
            plain=self._is_plain,
            session=self._session if self._final else "",
        )

    def _dress_last(self, starts: Sequence[tuple[int, str]]) -> Sequence[Op]:
        """The final blocks, where the text was finished before anybody knew that it was the end."""
        pages = self._shown.pages
        index = len(pages) - 1
        if not pages:
            dress = self._dress(0, is_empty=True)
            return (self._post(0, "", ""),) if dress.matters else ()
        last = pages[-1]
        if not (last.finished or last.stuck):
            return ()
        dress = self._dress(index, is_empty=not last.length)
        if last.dress == dress.digest or not (dress.matters or last.dress):
            return ()
        if last.stuck:
            alone = self._dress(index + 1, is_empty=True)
            return (self._post(len(self._text), "", ""),) if alone.matters else ()
        source = self._source(*starts[-1])[: last.length]
        dressed = last.model_copy(update={"dress": dress.digest})
        return (self._update(index, dressed, source + last.closing, dress),)

    def _find(self, index: int, page: Page) -> Find:
        return Find(
            urgency=Urgency.FINAL if self._final else Urgency.FIRST,
            draws=(limits.look_up(self._spot.root),),
            keeps=True,
            not_before=page.asked_at + limits.LOOK_AGAIN,
            root=self._spot.root,
            index=index,
            page=page,
            known=frozenset(other.ts for other in self._shown.pages if other.ts),
        )

    # ---------------------------------------------------------------- small questions

    @property
    def _can_stream(self) -> bool:
        return self._rules.may_stream and self._shown.streams and self._shown.level < 3

    @property
    def _is_plain(self) -> bool:
        return self._shown.level >= 3

    @property
    def _first_urgency(self) -> Urgency:
        if self._final:
            return Urgency.FINAL
        return Urgency.GROWTH if self._shown.pages else Urgency.FIRST

    @property
    def _session(self) -> str:
        return "suspended" if self._view.phase is Phase.ASKING else "active"

    def _room(self, weight: int) -> int:
        size = max(self._rules.stream_bytes >> self._shown.shrunk, _SMALLEST_PAGE)
        return max(size - weight, size // 2)

    def _edit_limit(self) -> tuple[int, Measure]:
        if self._is_plain:
            return max(limits.PLAIN_CHARS >> self._shown.shrunk, _SMALLEST_PAGE), escaped_units
        return max(self._rules.markdown_chars >> self._shown.shrunk, _SMALLEST_PAGE), utf16_units

    def _dress(self, index: int, *, is_empty: bool) -> Dress:
        names = {file.id: file.name for file in self._view.files}
        return dress_of(
            self._view,
            self._spot.turn,
            steps=self._draft.steps,
            intro=self._spot.intro if index == 0 else "",
            lost_files=[names[state.id] for state in self._shown.files if state.failed and state.id in names],
            feedback=self._rules.feedback and not self._spot.is_command,
            level=self._shown.level,
            is_empty=is_empty,
            in_thread=self._spot.root is None and not self._spot.is_private,
        )


def _ended(stop: Stop) -> Stop | Append:
    """The end of a stream. One that Slack refuses to end gets what its end would bring, and is left at that."""
    if not (stop.page.endless and stop.appends):
        return stop
    return Append(
        urgency=stop.urgency,
        draws=(Draw(limits.APPEND),),
        keeps=True,
        not_before=stop.not_before,
        index=stop.index,
        page=stop.page.model_copy(update={"stuck": True, "dress": ""}),
        text=stop.text,
        tasks=stop.tasks,
    )


def _end_of(page: Page) -> int:
    """Up to where in the reply's text a page shows it."""
    return page.start + page.length - len(page.opening) if page.length else 0


def _at(page: Page, at: int, opening: str) -> Page:
    return page.model_copy(update={"start": at, "opening": opening})


def _reopened(page: Page, at: int, opening: str) -> Page:
    """The page as it is when its text is written anew: where it ends is to be seen."""
    update = {"finished": False, "closing": "", "next": 0, "carry": "", "exact": True}
    return _at(page, at, opening).model_copy(update=update)


def _grown(page: Page, source: str, length: int, *, tasks: dict[str, TaskShown]) -> Page:
    """The page once it shows the first `length` characters of `source`."""
    return page.model_copy(update={"length": length, "digest": digest_of(source[:length]), "tasks": tasks})


def _finished(page: Page, cut: Cut, at: int) -> Page:
    return page.model_copy(
        update={
            "open": False,
            "finished": True,
            "closing": cut.closing,
            "next": at + cut.offset - len(page.opening),
            "carry": cut.opening,
            "exact": True,
        }
    )


def _sealed(source: str) -> tuple[str, str]:
    """What closes a text that is cut at its very end, and what opens it again."""
    if not source:
        return "", ""
    size = utf8_bytes(source)
    cut = split_at(source + _FILLER, size + len(_FILLER) // 2, utf8_bytes, floor=len(source))
    return cut.closing, cut.opening


def _natural_cut(source: str, floor: int) -> Cut | None:
    """The last cut between two blocks at or after `floor`, if there is one."""
    if "\n" not in source[floor:]:
        return None
    cut = split_at(source, max(utf8_bytes(source) - 1, 2 * _SMALLEST_PAGE), utf8_bytes, floor=floor)
    return cut if not cut.is_whole and "\n" in cut.gap and not cut.closing else None
