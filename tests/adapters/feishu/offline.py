"""The emulator's rules without its server: a surface driven call by call, with any trouble at any point."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from adapters.feishu.api import Json, Upload
from adapters.feishu.calls import Calls
from adapters.feishu.cards import Style
from adapters.feishu.errors import ApiRefusal
from adapters.feishu.ops import FeishuShown, Format
from adapters.feishu.sheets import Manner
from adapters.feishu.surface import FeishuSurface
from channels.adapter import Failure, FileAway, Intent, Op, Outcome, ReplyTarget, Transient, Unknown
from channels.model import File, Inbound, InboundKind, Place, Sender, TurnId, View
from config.channel import Streaming
from tests.clock import ManualClock
from tests.emulators.feishu import FeishuEmulator, Rate
from tests.emulators.feishu.limits import APIS, Api
from tests.emulators.feishu.picture import Shown
from tests.emulators.feishu.refusals import Refusal

FREE = {name: (Rate(1_000_000, 1.0),) for name in ("card", "cardkit", "chat", "im.send", "message", "api")}
FORMS = [form for form in Format if form is not Format.NOTE]
"""The forms that show an answer."""
T = TypeVar("T")
TURN = TurnId("0123456789abcdef0123456789abcdef")

_ROUTES = [(api, re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", api.path))) for api in APIS]

Trouble = Callable[[str], "Fault | None"]


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong with one call: `failure` is raised or `code` is answered; `done`: the call works all the same;
    `gone`: what the call is about has been deleted."""

    failure: Failure | None = None
    code: int = 0
    done: bool = False
    gone: bool = False
    text: str = "planned"


class OfflineApi:
    """Answers as the emulator does, in the same breath."""

    def __init__(self, emulator: FeishuEmulator) -> None:
        self.emulator = emulator
        self.trouble: Trouble = lambda _: None
        self.calls: list[str] = []

    async def call(
        self,
        doing: str,
        verb: str,
        path: str,
        body: Json | None = None,
        *,
        query: Mapping[str, str] | None = None,
        upload: Upload | None = None,
        repeat: bool = False,
        optional: bool = False,
    ) -> Json:
        api, found = _route(verb, f"/open-apis/{path}")
        args: dict[str, object] = {**(query or {}), **(json.loads(json.dumps(body or {}))), **found}
        if upload is not None:
            args[upload.field] = upload.data
        self.calls.append(api.name)
        fault = self.trouble(api.name)
        # What was sent under this key before is found before anything is looked at; and where an own message can be
        # neither recalled nor changed, nothing helps.
        spared = self._is_repeated(args) or api.name == "im.message.delete"
        if fault is not None and spared and not isinstance(fault.failure, Unknown | Transient):
            fault = None
        if fault is not None and fault.gone:
            fault = self._delete(api.name, str(args.get("message_id", "")))
        if fault is not None and not fault.done:
            if fault.failure is not None:
                raise fault.failure
            self.emulator.cardkit.use_up(api.name, args)
            raise ApiRefusal(doing, 400, fault.code, fault.text)
        try:
            self.emulator._draw(api, args)
            answer = self.emulator._call(api.name, args)
        except Refusal as refusal:
            if refusal.broken:
                self.emulator.break_rule(f"{api.name}: {refusal.why} ({refusal.code})")
            raise ApiRefusal(doing, refusal.status, refusal.code, refusal.msg) from None
        if fault is not None and fault.failure is not None:
            raise fault.failure
        assert isinstance(answer, dict)
        return answer

    def _is_repeated(self, args: Mapping[str, object]) -> bool:
        return args.get("uuid") in self.emulator.messages._sent

    def _delete(self, name: str, message_id: str) -> Fault | None:
        """Whatever the call is about is not there any more."""
        if name.startswith("cardkit."):
            return Fault(code=200740) if name != "cardkit.card.create" else None
        if message_id in self.emulator.world.messages:
            self.emulator.remove_message(message_id)
        return None


def _route(verb: str, path: str) -> tuple[Api, dict[str, str]]:
    for api, pattern in _ROUTES:
        if api.verb == verb and (found := pattern.fullmatch(path)):
            return api, found.groupdict()
    raise AssertionError(f"no such API: {verb} {path}")


@dataclass
class Desk:
    """A reply to Ann's question, and everything a test wants to see or break."""

    kind: str = "p2p"
    streaming: Streaming = Streaming.AUTO
    first: Format = Format.CARD
    card_bytes: int | None = None
    feedback: bool = False
    in_thread: bool = False
    has_topics: bool = True
    question_kind: InboundKind = InboundKind.MESSAGE
    files: dict[str, bytes] = field(default_factory=dict)
    shown: FeishuShown = field(default_factory=FeishuShown)
    stored: object = None

    def __post_init__(self) -> None:
        self.clock = ManualClock()
        self.emulator = FeishuEmulator(self.clock, rates=FREE)
        self.emulator.subscriptions.clear()
        self.api = OfflineApi(self.emulator)
        if self.kind == "p2p":
            self.chat = self.emulator.p2p("Ann")
        else:
            self.chat = self.emulator.add_group("Team", "Ann", has_topics=self.has_topics)
        self.question = _run(self.emulator.say("Ann", self.chat, "What?"))
        self.cards_unavailable = 0
        self.performed: list[tuple[Op, Outcome]] = []
        self.surface = self.open()

    def open(self) -> FeishuSurface:
        place = Place("c", self.chat, None if self.kind == "p2p" else self.question, private=self.kind == "p2p")
        inbound = Inbound(
            place=place,
            sender=Sender("ou_1", "Ann"),
            event_key="e",
            kind=self.question_kind,
            text="What?",
            received_at=self.clock.now(),
            message_id=self.question,
        )
        manner = Manner(
            style=Style(feedback=self.feedback),
            streaming=self.streaming,
            first=self.first,
            in_thread=self.in_thread,
            card_bytes=self.card_bytes,
        )
        calls = Calls(self.api, self._open_file, self._note)  # type: ignore[arg-type]
        return FeishuSurface(calls, ReplyTarget(TURN, place, inbound), manner)

    def _note(self) -> None:
        self.cards_unavailable += 1

    async def _open_file(self, file: File) -> bytes:
        if file.id not in self.files:
            raise FileAway("the gateway is away")
        return self.files[file.id]

    # -- driving

    def step(self, view: View) -> bool:
        """Make the first op that is due; False when there is none."""
        now = self.clock.now()
        for op in self.surface.plan(view, self.shown, now):
            if op.not_before <= now:
                self.make(op)
                return True
        return False

    def make(self, op: Op) -> Outcome:
        if op.creates:
            self.shown = self.surface.advance(self.shown, op, Intent(), self.clock.now())
            self.store()
        outcome: Outcome
        try:
            outcome = _run(self.surface.perform(op))
        except Failure as failure:
            outcome = failure
        self.shown = self.surface.advance(self.shown, op, outcome, self.clock.now())
        self.performed.append((op, outcome))
        if isinstance(outcome, FileAway):
            self.wait(1.0)  # whoever drives a surface holds on before it tries again
        if op.creates or op.keeps:
            self.store()
        return outcome

    def store(self) -> None:
        self.stored = self.shown.model_dump(mode="json")

    def crash(self) -> None:
        """End, and start again from what was stored."""
        self.surface = self.open()
        loaded = FeishuShown.model_validate(self.stored) if self.stored is not None else FeishuShown()
        self.shown = self.surface.restore(loaded)

    def show(self, *views: View, seconds: float = 1.0) -> None:
        """Bring one view after the other into sight, some time apart."""
        for view in views:
            self.settle(view)
            self.wait(seconds)

    def settle(self, view: View, *, most: int = 300) -> None:
        """Make ops until nothing is due now; of a final view, until it is settled."""
        for _ in range(most):
            if self.step(view):
                continue
            ops = self.surface.plan(view, self.shown, self.clock.now())
            if not ops or not view.is_final:
                return
            self.wait(min(op.not_before for op in ops) - self.clock.now())
        raise AssertionError(f"not settled: {self.performed[-4:]}\n{self.shown}")

    def wait(self, seconds: float) -> None:
        self.clock._now += max(0.0, seconds)

    # -- looking

    @property
    def replies(self) -> list[Shown]:
        return self.emulator.replies(self.chat)

    @property
    def text(self) -> str:
        return "\n".join(reply.text for reply in self.replies)

    def of(self, kind: type[Op]) -> Sequence[Op]:
        return [op for op, _ in self.performed if isinstance(op, kind)]


_LOOP = asyncio.new_event_loop()


def _run(work: Coroutine[object, object, T]) -> T:
    return _LOOP.run_until_complete(work)
