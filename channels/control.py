"""The control lane: commands, buttons and stops. They act at once and never wait behind a run."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import structlog
from pydantic import JsonValue

from channels.access import Policy, Verdict
from channels.commands import Command, CommandName, as_typed, help_text, parse_command, question_in
from channels.inbox import paired_key, verdict_on_sender
from channels.model import Action, Inbound, InboundKind, Phase, Press, Segment, Sender, TurnId, View
from channels.observe import Metrics
from channels.pending import Pending, close_question
from channels.store import Store
from channels.store.records import Lease, StoredInbound, Turn
from channels.turn import TurnCarrier

log = structlog.get_logger(__name__)

CONSOLE = "console"
"""The name under which the console does things: the id of its sender, and the mark in its inbounds' `extra`."""

_PAIRING_CODE_LIFE = 3600.0  # seconds
_FEEDBACK_VALUES = frozenset({"up", "down"})
_STOPPED = "Stopped."


@dataclass(frozen=True, slots=True)
class ControlLane:
    """Handles the control inbounds of one owned channel."""

    channel: str
    policy: Policy
    command_sign: str
    store: Store
    metrics: Metrics
    lease: Callable[[], Lease]
    live: Callable[[], Iterable[TurnCarrier]]
    carry: Callable[[Turn], None]
    stop: Callable[[TurnId, str], None]

    async def handle(self, stored: StoredInbound) -> None:
        """Act, then mark it done; after a crash in between it is handled again, which every act allows."""
        inbound = stored.inbound
        answer = await self._act(stored, inbound)
        if answer and CONSOLE not in inbound.extra:
            answer = as_typed(answer, self.command_sign)
            view = View(phase=Phase.DONE, body=(Segment("command", answer),), revision=1)
            self.carry(await self.store.answer_control(self.lease(), stored.id, view))
        else:
            await self.store.control_done(self.lease(), stored.id)

    async def _act(self, stored: StoredInbound, inbound: Inbound) -> str:
        """Do what the inbound asks; returns what to say, or nothing."""
        match inbound.kind:
            case InboundKind.COMMAND:
                command = parse_command(inbound.text)
                if command is None:
                    return help_text()
                if await verdict_on_sender(inbound, self.policy, self.store) is Verdict.PAIRING:
                    return await self._offer_pairing(inbound)
                return await self._command(command, stored, inbound)
            case InboundKind.PRESS if inbound.press is not None:
                return await self._press(inbound.press, stored, inbound)
            case InboundKind.STOPPED:
                await self._stop_shown(stored.conversation_id, inbound)
                return ""
            case InboundKind.DELETED:
                await self.store.drop_waiting(self.lease(), inbound.place.chat, inbound.message_id)
                for turn in await self.store.unfinished(self.lease()):
                    if any(_is_same_message(asked, inbound) for asked in turn.inbounds):
                        await self._stop_turn(turn, "Stopped: the question was deleted.")
                return ""
            case InboundKind.MESSAGE:
                if await verdict_on_sender(inbound, self.policy, self.store) is Verdict.PAIRING:
                    return await self._offer_pairing(inbound)
                return "I am still answering the last question. Ask again when it is done, or `/stop` it."
            case _:
                return ""

    async def _command(self, command: Command, stored: StoredInbound, inbound: Inbound) -> str:
        conversation = stored.conversation_id
        match command.name:
            case CommandName.HELP | CommandName.START:
                return help_text()
            case CommandName.STOP:
                return await self._stop(conversation, inbound)
            case CommandName.NEW:
                await self._stop(conversation, inbound, and_what_waits=False)
                await self._withdraw(await self._open_question(conversation), "a new conversation has begun")
                question = question_in(inbound)
                if question is not None:
                    await self.store.ask_anew(self.lease(), stored.id, question)
                    return ""
                has_more = await self.store.waiting(conversation) > 0
                await self.store.new_generation(self.lease(), conversation)
                begun = "A new conversation begins. I have forgotten what we said before."
                return f"{begun} What still waits is answered in it." if has_more else begun
            case CommandName.RETRY:
                return await self._retry(stored, conversation)
            case CommandName.STATUS:
                return await self._status(conversation, inbound.received_at)
            case CommandName.PAIR:
                return await self._pair(command.argument, inbound)

    async def _open_question(self, conversation: int) -> Pending | None:
        turn = await self.store.last_turn(conversation)
        return Pending.load(turn.conversation.pending) if turn is not None else None

    async def _withdraw(self, question: Pending | None, why: str) -> None:
        """Let the message in which the agent asks something say that nobody can answer it any more."""
        if question is not None:
            await close_question(self.store, self.lease(), self.carry, question.turn, why=f"Withdrawn: {why}.")

    async def _press(self, press: Press, stored: StoredInbound, inbound: Inbound) -> str:
        match press.action:
            case Action.STOP:
                turn = await self.store.turn(press.turn)
                if turn is not None and self._may_stop(turn.inbounds, inbound.sender):
                    await self._stop_turn(turn, _STOPPED)
            case Action.RETRY:
                turn = await self.store.turn(press.turn)
                if turn is not None:
                    return await self._retry(stored, turn.conversation.id, turn)
            case Action.FEEDBACK if press.value in _FEEDBACK_VALUES:
                if await self.store.save_feedback(press.turn, inbound.sender.id, press.value):
                    self.metrics.feedback.labels(self.channel, press.value).inc()
            case _:
                pass
        return ""

    async def _stop(self, conversation: int, inbound: Inbound, *, and_what_waits: bool = True) -> str:
        """Stop what is answered in the conversation, or asked and not begun; what to say, where the answer does not."""
        stopped = await self.store.stop_conversation(
            self.lease(),
            conversation,
            _STOPPED,
            lambda asked: self._may_stop(asked, inbound.sender) and _came_first(asked, inbound),
            and_what_waits=and_what_waits,
        )
        if stopped.turn is not None:
            self.stop(stopped.turn.id, _STOPPED)
            return ""
        if stopped.dropped:
            return "Stopped before it was begun."
        turn = await self.store.open_turn(conversation)
        if turn is not None and turn.final is not None:
            return "The answer is complete; it is only being shown."
        if turn is not None and not self._may_stop(turn.inbounds, inbound.sender):
            return "Only who has asked, or an admin, can stop this answer."
        return "Nothing is being written here."

    async def _stop_shown(self, conversation: int, inbound: Inbound) -> None:
        """The platform's own control was used on a message. It may say so late: another answer is not meant."""
        turn = await self.store.open_turn(conversation)
        carrier = next((carrier for carrier in self.live() if turn is not None and carrier.turn.id == turn.id), None)
        if carrier is None or not inbound.message_id or carrier.shows(inbound.message_id):
            await self._stop(conversation, inbound, and_what_waits=False)

    async def _stop_turn(self, turn: Turn, notice: str) -> None:
        if await self.store.stop(self.lease(), turn.id, notice):
            self.stop(turn.id, notice)

    def _may_stop(self, asked: Sequence[Inbound], sender: Sender) -> bool:
        has_asked = any(inbound.sender.id == sender.id for inbound in asked)
        return has_asked or not self.policy.admins or sender.id in self.policy.admins

    async def _retry(self, stored: StoredInbound, conversation: int, turn: Turn | None = None) -> str:
        """Ask again what `turn`, or else the last turn of the conversation, asked."""
        if await self.store.open_turn(conversation) is not None:
            return "I am still answering. `/stop` first, then `/retry`."
        turn = turn or await self.store.last_turn(conversation)
        question = await self._open_question(conversation)
        again = None
        if turn is not None:
            left = Pending.after_a_break(turn.id).model_dump(mode="json")
            again = await self.store.requeue(self.lease(), turn.id, control=stored.id, pending=left)
        if again is None:
            return "There is no question to ask again."
        self.carry(again)
        reopened = Pending.load(again.resumes)
        if question is not None and (reopened is None or reopened.turn != question.turn):
            await self._withdraw(question, "an earlier message is asked again")
        return ""

    async def _status(self, conversation: int, now: float) -> str:
        open_turn = await self.store.open_turn(conversation)
        waiting = await self.store.waiting(conversation)
        lines = []
        if open_turn is None:
            lines.append("I am idle here.")
        else:
            phase = next((c.phase.value for c in self.live() if c.turn.id == open_turn.id), open_turn.state.value)
            lines.append(f"I am answering ({phase}), for {_as_time(now - open_turn.created_at)} so far.")
        if waiting:
            lines.append(f"{waiting} more {'question waits' if waiting == 1 else 'questions wait'}.")
        return " ".join(lines)

    async def _offer_pairing(self, inbound: Inbound) -> str:
        code = "".join(secrets.choice("ABCDEFGHJKLMNPQRSTUVWXYZ23456789") for _ in range(6))
        request: JsonValue = {"sender": inbound.sender.id, "name": inbound.sender.name}
        await self.store.remember(self.channel, f"pairing:{code}", request, _PAIRING_CODE_LIFE)
        return f"I do not know you yet. Ask an admin to send me `/pair {code}` within an hour."

    async def _pair(self, code: str, inbound: Inbound) -> str:
        if inbound.sender.id not in self.policy.admins:
            return "Only an admin can do that."
        request = await self.store.recall(self.channel, f"pairing:{code.strip().upper()}")
        if not isinstance(request, dict):
            return "This code is unknown or has expired."
        await self.store.remember(self.channel, paired_key(str(request.get("sender"))), True)
        return f"{request.get('name') or request.get('sender')} may talk to me now."


def _as_time(seconds: float) -> str:
    minutes, rest = divmod(max(0, round(seconds)), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _came_first(asked: Sequence[Inbound], stop: Inbound) -> bool:
    """Whether a stop can mean these. Where only one side says when it was sent, two clocks are not compared."""
    is_comparable = (asked[0].sent_at is None) == (stop.sent_at is None)
    return not is_comparable or asked[0].asked_at <= stop.asked_at


def _is_same_message(one: Inbound, other: Inbound) -> bool:
    return (one.message_id, one.place.chat) == (other.message_id, other.place.chat)
