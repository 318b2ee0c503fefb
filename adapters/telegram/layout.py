"""How a view becomes messages: what stands above and below the answer, and where a long answer is cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from adapters.telegram.limits import MARKS, TEXT_UNITS
from adapters.telegram.marks import FOLDED_QUOTE, ITALIC, QUOTE, Styled, is_blank, joined, sendable, styled
from adapters.telegram.ops import Start
from adapters.telegram.render import render, rich
from channels.markdown import SMALLEST_LIMIT, Cut, heal, split_at, utf16_units
from channels.model import Phase, Question, Step, StepState, View
from channels.shapes import shortened

_STEP_ICONS = {
    StepState.PENDING: "○",
    StepState.RUNNING: "⏳",
    StepState.DONE: "✓",
    StepState.FAILED: "✗",
}
_ENDED = (StepState.DONE, StepState.FAILED)
_STEP_LINE = 100  # characters
_WORKING_LINES = 6
_FOLDED_LINES = 40
_NOTICE_SHARE = 8  # the notice may take an eighth of a message, steps and reasoning a quarter each
_SIDE_SHARE = 4
_SOURCE_FACTOR = 3  # Markdown of more than three times the room is cut without being converted to see whether it fits
_SHRINK = 0.75
_OWN_MARKS = 3  # of reasoning, steps and notice
_LONG_LABEL = 32  # characters of an option that still fit on a button
_MANY_OPTIONS = 24
_SMALLEST_CUT = 4 * SMALLEST_LIMIT


@dataclass(frozen=True, slots=True)
class Style:
    """How the channel shows replies. `size` is in UTF-16 units; `steps_below`: under the answer, so that a draft is
    the beginning of its message."""

    size: int = TEXT_UNITS
    open_reasoning: bool = False
    steps_below: bool = False


@dataclass(frozen=True, slots=True)
class Piece:
    """What one message of the reply shows: the Markdown up to `covers`. `next` is where the next one starts; None: this
    is the last."""

    body: Styled
    covers: int
    next: Start | None = None
    rich: str | None = None


class Layout:
    """Cuts views into messages. Remembers its last conversions, so that planning the same text again costs nothing."""

    def __init__(self, style: Style) -> None:
        self._style = style
        self._rendered: dict[tuple[str, bool], Styled] = {}
        self._read: tuple[View, bool, str] | None = None

    def text(self, view: View, *, buttons: bool = True) -> str:
        """The Markdown of the whole reply: the answer and, below it, the question, with what no `buttons` say."""
        if self._read is None or self._read[0] is not view or self._read[1] is not buttons:
            self._read = (view, buttons, _text(view, buttons=buttons))
        return self._read[2]

    def piece(
        self,
        view: View,
        start: Start,
        *,
        size: int | None = None,
        styled: bool = True,
        buttons: bool = True,
        allow_rich: bool = False,
    ) -> Piece | None:
        """What the message that starts at `start` shows; None when nothing is left to show.

        Where a text is cut depends on what is before the cut and beside it, not on how far the text has grown.
        """
        limit = min(size or self._style.size, self._style.size)
        text = self.text(view, buttons=buttons)
        rest = start.opening + text[start.offset :]
        if is_blank(text[start.offset :]):
            rest = ""
        sides = _sides(view, start, self._style, limit, folded=view.is_final)
        below = _notice(view, limit)
        whole = self._whole(view, rest, sides, below, limit, styled=styled)
        if whole is not None:
            if whole.is_blank:
                return None
            as_rich = self._rich(view, rest) if allow_rich and styled else None
            return Piece(whole, len(text), rich=as_rich)
        if allow_rich and styled and (as_rich := self._rich(view, rest)) is not None:
            return Piece(joined((sides, below), "\n"), len(text), rich=as_rich)
        return self._head(view, start, text, limit, styled=styled)

    def _whole(self, view: View, rest: str, sides: Styled, below: Styled, limit: int, *, styled: bool) -> Styled | None:
        """All of it in one message, if it fits."""
        room = _room(limit, sides, below)
        if len(rest) > _SOURCE_FACTOR * room or utf16_units(rest) > room:
            return None
        body = self._render(rest, cut_off=not view.is_final or view.phase in (Phase.STOPPED, Phase.FAILED))
        if body.units > room or len(body.marks) > MARKS - _OWN_MARKS:
            return None
        whole = self._joined(sides, body, below)
        return whole if styled else whole.plain()

    def _head(self, view: View, start: Start, text: str, limit: int, *, styled: bool) -> Piece:
        """A finished message: as much as fits, cut at a natural border; what it shows of the steps stays."""
        steps = start.steps + _leading_ended(view, start)
        following = Start(offset=start.offset, steps=steps, reasoning=max(start.reasoning, len(view.reasoning)))
        sides = _sides(view, start, self._style, limit, folded=True, upto=steps)
        room = _room(limit, sides, _notice(view, limit))
        cut, body = self._cut(start.opening + text[start.offset :], room)
        offset, opening = start.offset + cut.offset - len(start.opening), cut.opening
        if offset <= start.offset:  # no room for what re-opens there
            cut, body = self._cut(text[start.offset :], room)
            offset, opening = start.offset + cut.offset, cut.opening
        body = replace(body, marks=body.marks[: MARKS - _OWN_MARKS])
        head = self._joined(sides, body, Styled())
        following = following.model_copy(update={"offset": offset, "opening": opening})
        return Piece(head if styled else head.plain(), offset, following)

    def _cut(self, rest: str, room: int) -> tuple[Cut, Styled]:
        """The cut whose head fits into `room` once it is converted; below a certain size it has to."""
        allowed = room
        while True:
            cut = split_at(rest, max(allowed, SMALLEST_LIMIT), utf16_units)
            body = self._render(cut.head)
            fits = body.units <= room and len(body.marks) <= MARKS - _OWN_MARKS
            if allowed <= _SMALLEST_CUT or (fits and not cut.is_whole):
                return cut, body
            allowed = int(min(allowed, utf16_units(rest)) * _SHRINK)

    def _joined(self, sides: Styled, body: Styled, below: Styled) -> Styled:
        if self._style.steps_below:
            return joined((joined((body, sides), "\n"), below), "\n\n")
        return joined((joined((sides, body), "\n"), below), "\n\n")

    def _rich(self, view: View, rest: str) -> str | None:
        """The whole as one rich message, when the answer has what only a rich message shows well."""
        if view.phase not in (Phase.DONE, Phase.ASKING) or rich(rest) is None:
            return None
        above = "\n".join(f"> {line}  " for line in _step_lines(view.steps, _FOLDED_LINES))
        notice = f"*{view.notice.strip()}*" if view.notice.strip() else ""
        return rich("\n\n".join(part for part in (above, rest, notice) if part))

    def _render(self, markdown: str, *, cut_off: bool = False) -> Styled:
        key = (markdown, cut_off)
        found = self._rendered.get(key)
        if found is None:
            found = render(heal(markdown) if cut_off else markdown) if markdown else Styled()
            if len(self._rendered) >= 8:
                del self._rendered[next(iter(self._rendered))]
            self._rendered[key] = found
        return found


def _room(limit: int, *others: Styled) -> int:
    """Units left for the answer beside the others and the line feeds between them."""
    return limit - sum(other.units + 2 for other in others if other.text)


# ---------------------------------------------------------------- the answer and the question


def _text(view: View, *, buttons: bool) -> str:
    text = view.text
    if view.question is not None:
        if "```" in text or "~~~" in text:
            text = heal(text)  # an unclosed code block would swallow the question
        text = "\n\n".join(part for part in (text.rstrip(), _question(view.question, buttons=buttons)) if part)
    return sendable(text)


def _question(question: Question, *, buttons: bool) -> str:
    parts = [question.text.strip()]
    if listed(question) or not buttons:
        labels = [" ".join(option.label.split()) for option in question.options]
        parts.append("\n".join(f"{number}. {label}" for number, label in enumerate(labels, 1)))
    if question.answer is not None:
        parts.append(f"➜ {shortened(question.answer, 300)}")
    elif question.options and question.free_text:
        parts.append(f"*{'Choose' if buttons else 'Reply with a number'}, or reply in your own words.*")
    elif question.options and not buttons:
        parts.append("*Reply with a number.*")
    return "\n\n".join(part for part in parts if part)


def listed(question: Question) -> bool:
    """Whether the options stand in the text, being too long or too many for buttons; the buttons are numbers then."""
    return len(question.options) > _MANY_OPTIONS or any(len(option.label) > _LONG_LABEL for option in question.options)


# ---------------------------------------------------------------- what stands beside the answer


def _sides(view: View, start: Start, style: Style, limit: int, *, folded: bool, upto: int | None = None) -> Styled:
    """The reasoning and the steps that belong to the message, as quotes."""
    most = limit // _SIDE_SHARE
    parts = []
    if reasoning := _end_of(sendable(view.reasoning[start.reasoning :]).strip(), most):
        is_open = style.open_reasoning and not folded
        parts.append(styled(f"💭 {reasoning}", QUOTE if is_open else FOLDED_QUOTE))
    lines = _step_lines(view.steps[start.steps : upto], _FOLDED_LINES if folded else _WORKING_LINES)
    while len(lines) > 1 and utf16_units("\n".join(lines)) > most:
        lines = lines[1:]
    if lines:
        parts.append(styled("\n".join(lines), FOLDED_QUOTE if folded and len(lines) > 1 else QUOTE))
    sides = joined(parts, "\n")
    return sides if sides.units <= limit // 2 else Styled()


def _step_lines(steps: Sequence[Step], most: int) -> list[str]:
    """The newest steps, one a line."""
    lines = [_step_line(step) for step in steps[-most:]]
    if len(steps) > most:
        lines.insert(0, f"… {len(steps) - most} before")
    return lines


def _step_line(step: Step) -> str:
    title = f"{step.title}: {step.detail}" if step.detail else step.title
    return f"{_STEP_ICONS[step.state]} {shortened(sendable(title), _STEP_LINE)}"


def _leading_ended(view: View, start: Start) -> int:
    """How many steps from the start on are over, so that a finished message may keep them."""
    steps = view.steps[start.steps :]
    if view.is_final:
        return len(steps)
    return next((count for count, step in enumerate(steps) if step.state not in _ENDED), len(steps))


def _end_of(text: str, most: int) -> str:
    """The end of a text that is too long, from a word on."""
    if utf16_units(text) <= most:
        return text
    end = text[-most // 2 :]  # a character is at most two units
    return "… " + end[end.find(" ") + 1 :]


def _notice(view: View, limit: int) -> Styled:
    notice = sendable(view.notice).strip()
    return styled(shortened(notice, limit // _NOTICE_SHARE // 2), ITALIC) if notice else Styled()
