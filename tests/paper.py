"""A small strict platform for tests of the reply loop: messages on paper, with a size limit and every kind of trouble.

Creations are idempotent by a key, as a careful platform offers it; edits replace the whole text.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from channels.adapter import (
    Budget,
    ChannelState,
    Check,
    Context,
    Draw,
    Failure,
    Gone,
    HintState,
    Intent,
    Op,
    Outcome,
    Receipt,
    Refused,
    ReplyTarget,
    Shown,
    TooLarge,
    Unknown,
    Urgency,
)
from channels.model import Attachment, View

LIMIT = 40


class SheetShown(Shown):
    """One sheet: its id, how much of the body it covers and what was accepted."""

    key: str
    id: str | None = None
    text: str = ""
    uncertain: bool = False


class PaperShown(Shown):
    sheets: tuple[SheetShown, ...] = ()
    plain: bool = False
    lost: int = 0  # sheets that vanished: new ones need new keys


@dataclass(frozen=True, slots=True, kw_only=True)
class Write(Op):
    index: int
    key: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite(Op):
    index: int
    id: str
    text: str


@dataclass
class Paper:
    """The platform. `trouble` decides about each call: None, or the failure to raise (Unknown: done all the same?)."""

    trouble: Callable[[Op], tuple[Failure | None, bool]] = lambda _: (None, True)
    sheets: dict[str, str] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    calls: list[Op] = field(default_factory=list)

    def text(self) -> str:
        return "".join(self.sheets[sheet] for sheet in self.order if sheet in self.sheets)

    def call(self, op: Op) -> Receipt:
        self.calls.append(op)
        failure, done = self.trouble(op)
        if failure is not None and not done:
            raise failure
        receipt = self._do(op)
        if failure is not None:
            raise failure
        return receipt

    def _do(self, op: Op) -> Receipt:
        assert isinstance(op, Write | Rewrite)
        if not op.text or len(op.text) > LIMIT:
            self.broken.append(f"size {len(op.text)}")
            raise TooLarge(limit=LIMIT)
        if isinstance(op, Write):
            if op.key in self.keys:
                return Receipt(self.keys[op.key])
            sheet = f"m{len(self.order)}"
            self.keys[op.key] = sheet
            self.order.append(sheet)
        else:
            sheet = op.id
            if sheet not in self.sheets:
                raise Gone()
        self.sheets[sheet] = op.text
        return Receipt(sheet)


@dataclass(frozen=True, slots=True, kw_only=True)
class Enclose(Write):
    """A file on a sheet of its own, behind the text."""

    is_beside: ClassVar[bool] = True


class PaperSurface:
    """The surface on `Paper`: the text in pieces of LIMIT characters; finished sheets are never touched again."""

    shown_type = PaperShown

    def __init__(self, paper: Paper, turn: str = "t") -> None:
        self._paper = paper
        self._turn = turn

    def plan(self, view: View, shown: Shown, now: float) -> Sequence[Op]:
        assert isinstance(shown, PaperShown)
        text = view.text + (f"({view.notice})" if view.notice else "")
        if view.question is not None:
            answers = "/".join(option.label for option in view.question.options)
            text += f"[{view.question.text}|{answers}|{view.question.answer or ''}]"
        pieces = [text[start : start + LIMIT] for start in range(0, len(text), LIMIT)]
        texts = len(pieces)
        pieces += [f"<{file.name}>" for file in view.files]
        for index, piece in enumerate(pieces):
            if index >= len(shown.sheets) or shown.sheets[index].id is None:
                key = f"{self._turn}-{index}-{shown.lost}"
                urgency = Urgency.FINAL if view.is_final else Urgency.FIRST
                write = Write if index < texts else Enclose
                return [write(urgency=urgency, draws=(Draw("calls"),), creates=True, index=index, key=key, text=piece)]
            sheet = shown.sheets[index]
            if sheet.text != piece or sheet.uncertain:
                urgency = Urgency.FINAL if view.is_final else Urgency.GROWTH
                assert sheet.id is not None
                return [Rewrite(urgency=urgency, draws=(Draw("calls"),), index=index, id=sheet.id, text=piece)]
        return ()

    async def perform(self, op: Op) -> Receipt:
        return self._paper.call(op)

    def advance(self, shown: Shown, op: Op, outcome: Outcome, now: float) -> Shown:
        assert isinstance(shown, PaperShown)
        assert isinstance(op, Write | Rewrite)
        sheets = list(shown.sheets)
        match outcome:
            case Receipt():
                # A repeated creation may have been accepted earlier with an older text: only an edit is certain.
                repeated = isinstance(op, Write) and op.index < len(sheets) and sheets[op.index].uncertain
                sheet = SheetShown(key="", id=outcome.id, text=op.text, uncertain=repeated)
                return shown.model_copy(update={"sheets": (*sheets[: op.index], sheet, *sheets[op.index + 1 :])})
            case Intent() if isinstance(op, Write) and op.index == len(sheets):
                return shown.model_copy(update={"sheets": (*sheets, SheetShown(key=op.key))})
            case Unknown() if op.index < len(sheets):
                sheets[op.index] = sheets[op.index].model_copy(update={"uncertain": True})
                return shown.model_copy(update={"sheets": tuple(sheets)})
            case Gone():
                return shown.model_copy(update={"sheets": tuple(sheets[: op.index]), "lost": shown.lost + 1})
            case Refused():
                return shown.model_copy(update={"plain": True})
            case _:
                return shown

    def restore(self, shown: Shown) -> Shown:
        assert isinstance(shown, PaperShown)
        uncertain = tuple(sheet.model_copy(update={"uncertain": True}) for sheet in shown.sheets)
        return shown.model_copy(update={"sheets": uncertain})

    def messages(self, shown: Shown) -> Sequence[str]:
        assert isinstance(shown, PaperShown)
        return [sheet.id for sheet in shown.sheets if sheet.id]


class PaperAdapter:
    """An adapter whose chats are sheets of paper: one `Paper` for each chat."""

    command_sign = "/"

    def __init__(self, context: Context, papers: dict[str, Paper] | None = None) -> None:
        self._context = context
        self.papers: dict[str, Paper] = defaultdict(Paper) if papers is None else papers
        self.hints: list[HintState] = []
        self.files: dict[str, bytes] = {}
        self.troubles: list[Failure] = []
        """What the next fetches of files fail with."""
        self.budgets = {"calls": Budget(20, 1.0, burst=20)}
        self.webhook = None

    async def start(self) -> None:
        self._context.sink.report(ChannelState.RUNNING)

    async def stop(self) -> None:
        """Nothing is open."""

    def surface(self, target: ReplyTarget) -> PaperSurface:
        return PaperSurface(self.papers[target.place.chat], target.turn)

    async def hint(self, target: ReplyTarget, state: HintState) -> None:
        self.hints.append(state)

    async def fetch(self, attachment: Attachment) -> AsyncIterator[bytes]:
        if self.troubles:
            raise self.troubles.pop()
        name = str(attachment.reference["name"])
        if name not in self.files:
            raise Gone(f"{name} is not there")
        yield self.files[name]

    async def check(self) -> Sequence[Check]:
        return [Check("paper", ok=True)]
