"""A view as pieces of HTML. Successive views of one reply are painted in time linear in the length of the answer."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace

from adapters.web.markup import GrowingMarkup, markup, plain
from adapters.web.templating import render, span, trusted
from channels.access import ShowReasoning
from channels.model import Phase, Question, Segment, StepState, TurnId, View

RASTER_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Images that a browser can show without running anything in them."""

_LABELS = {Phase.THINKING: "Thinking", Phase.WORKING: "Working", Phase.WRITING: "Writing"}


@dataclass(frozen=True, slots=True)
class Style:
    """What of a view a channel shows."""

    reasoning: ShowReasoning = ShowReasoning.OFF
    steps: bool = True


@dataclass(frozen=True, slots=True)
class AskedFile:
    """A file that came with a question, as its bubble shows it."""

    id: str
    name: str
    size: int


def paint_question(text: str, files: tuple[AskedFile, ...]) -> dict[str, str]:
    """What a person wrote, as pieces."""
    pieces: dict[str, str] = {}
    if text:
        pieces["text"] = markup(text, breaks=True)
    if files:
        pieces["files"] = render("asked_files", files=files)
    return pieces


def paint_divider() -> dict[str, str]:
    return {"text": "New conversation"}


@dataclass(slots=True)
class Painter:
    """Paints the views of one reply. May be called from any thread."""

    style: Style
    turn: TurnId
    _growing: dict[str, GrowingMarkup] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def paint(
        self, view: View, *, is_command: bool = False, feedback: str = "", unformatted: bool = False
    ) -> dict[str, str]:
        """The pieces that show the view, in order. `unformatted`: the text as it is, whatever it contains."""
        if unformatted:  # needs nothing that an earlier call, perhaps still at work, could be holding
            return self._paint(view, is_command, feedback, unformatted)
        with self._lock:
            return self._paint(view, is_command, feedback, unformatted)

    def _paint(self, view: View, is_command: bool, feedback: str, unformatted: bool) -> dict[str, str]:
        live = not view.is_final
        pieces: dict[str, str] = {}
        if view.reasoning and self.style.reasoning is not ShowReasoning.OFF:
            pieces["reasoning"] = render(
                "reasoning",
                text=view.reasoning,
                thinking=view.phase is Phase.THINKING,
                open=self.style.reasoning is ShowReasoning.ON,
            )
        if view.steps and self.style.steps:
            pieces["steps"] = _steps(view, live)
        pieces |= self._body(view, unformatted)
        if view.question is not None:
            text = view.question.text
            pieces["question"] = render(
                "question",
                question=view.question,
                text=trusted(plain(text) if unformatted else markup(text, breaks=True)),
                turn=self.turn,
                answer=_answer(view.question),
            )
        if view.files:
            pieces["files"] = render("files", files=view.files, pictures=RASTER_IMAGES, turn=self.turn)
        if notice := _notice(view):
            pieces["notice"] = render("notice", text=notice, failed=view.phase is Phase.FAILED)
        if live:
            pieces["end"] = render("status", label=_LABELS.get(view.phase, "Waiting"), turn=self.turn)
        elif view.phase is not Phase.ASKING and not is_command:
            pieces["end"] = render(
                "actions",
                turn=self.turn,
                source=_source(view),
                done=view.phase is Phase.DONE,
                feedback=feedback,
                usage=view.usage,
            )
        return pieces

    def _body(self, view: View, unformatted: bool) -> dict[str, str]:
        segments = [segment for segment in view.body if segment.text]
        remarks = [segment for segment in segments if not segment.is_answer]
        fold = view.is_final and 0 < len(remarks) < len(segments)
        pieces: dict[str, str] = {}
        if fold:
            blocks = [block for segment in remarks for block in self._blocks(segment, True, unformatted)]
            pieces["earlier"] = render("earlier", html=trusted("\n".join(blocks)))
        for number, segment in enumerate(view.body):
            if not segment.text or (fold and not segment.is_answer):
                continue
            # Only the last message of a running answer still grows.
            complete = view.is_final or segment is not segments[-1]
            kind = "b" if segment.is_answer else "m"
            for index, block in enumerate(self._blocks(segment, complete, unformatted)):
                pieces[f"{kind}{number}.{index}"] = block
        return pieces

    def _blocks(self, segment: Segment, complete: bool, unformatted: bool) -> tuple[str, ...]:
        if unformatted:
            return (plain(segment.text),)
        growing = self._growing.setdefault(segment.id, GrowingMarkup())
        return tuple(growing.render(segment.text, complete=complete))


def _steps(view: View, live: bool) -> str:
    starts = [step.started for step in view.steps if step.started is not None]
    ends = [step.ended for step in view.steps if step.ended is not None]
    return render(
        "steps",
        steps=view.steps,
        live=live,
        failed=sum(step.state is StepState.FAILED for step in view.steps),
        total=span(min(starts), max(ends)) if starts and ends and not live else "",
    )


def _source(view: View) -> str:
    """The answer as it was written, to be copied."""
    answer = replace(view, body=tuple(segment for segment in view.body if segment.is_answer))
    return answer.text or view.text


def _answer(question: Question) -> str:
    """The given answer in the words of its option."""
    labels = {option.id: option.label for option in question.options}
    return labels.get(question.answer or "", question.answer or "")


def _notice(view: View) -> str:
    if view.notice:
        return view.notice
    match view.phase:
        case Phase.FAILED:
            return "Something went wrong, and the answer could not be completed."
        case Phase.STOPPED:
            return "Stopped."
        case _:
            return ""
