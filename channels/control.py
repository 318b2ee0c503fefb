"""The control lane: commands, buttons and stops. They act at once and never wait behind a run."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog
from pydantic import JsonValue

from channels.access import Policy, Verdict
from channels.commands import Command, CommandName, help_text, parse_command
from channels.inbox import paired_key, verdict_on
from channels.model import Action, Inbound, InboundKind, Phase, Press, Segment, Sender, View
from channels.observe import Metrics
from channels.store import Store
from channels.store.records import Lease, StoredInbound, Turn
from channels.turn import TurnCarrier

log = structlog.get_logger(__name__)

CONSOLE = "console"
"""The name under which the console does things: the id of its sender, and the mark in its inbounds' `extra`."""

_PAIRING_CODE_LIFE = 3600.0  # seconds
_FEEDBACK_VALUES = frozenset({"up", "down"})


@dataclass(frozen=True, slots=True)
class ControlLane:
    """Handles the control inbounds of one owned channel."""

    channel: str
    policy: Policy
    store: Store
    metrics: Metrics
    lease: Callable[[], Lease]
    live: Callable[[], Iterable[TurnCarrier]]
    carry: Callable[[Turn], None]

    async def handle(self, stored: StoredInbound) -> None:
        """Act, then mark it done; after a crash in between it is handled again, which every act allows."""
        inbound = stored.inbound
        answer = await self._act(stored, inbound)
        if answer and CONSOLE not in inbound.extra:
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
                if await verdict_on(inbound, self.policy, self.store) is Verdict.PAIRING:
                    return await self._offer_pairing(inbound)
                return await self._command(command, stored, inbound)
            case InboundKind.PRESS if inbound.press is not None:
                return await self._press(inbound.press, inbound)
            case InboundKind.STOPPED:
                await self._stop(stored.conversation_id, inbound.sender)
                return ""
            case InboundKind.DELETED:
                await self.store.drop_waiting(self.lease(), stored.conversation_id, [inbound.message_id])
                for carrier in self.live():
                    if any(asked.message_id == inbound.message_id for asked in carrier.turn.inbounds):
                        carrier.stop("Stopped: the question was deleted.")
                return ""
            case InboundKind.MESSAGE:
                if await verdict_on(inbound, self.policy, self.store) is Verdict.PAIRING:
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
                if await self._stop(conversation, inbound.sender):
                    return ""
                return "Nothing is being written here."
            case CommandName.NEW:
                await self._stop(conversation, inbound.sender)
                await self.store.new_generation(self.lease(), conversation)
                return "A new conversation begins. I have forgotten what we said before."
            case CommandName.RETRY:
                return await self._retry(conversation)
            case CommandName.STATUS:
                return await self._status(conversation)
            case CommandName.PAIR:
                return await self._pair(command.argument, inbound)

    async def _press(self, press: Press, inbound: Inbound) -> str:
        match press.action:
            case Action.STOP:
                for carrier in self.live():
                    if carrier.turn.id == press.turn and self._may_stop(carrier.turn, inbound.sender):
                        carrier.stop()
            case Action.RETRY:
                turn = await self.store.turn(press.turn)
                if turn is not None:
                    return await self._retry(turn.conversation.id, turn)
            case Action.FEEDBACK if press.value in _FEEDBACK_VALUES:
                if await self.store.save_feedback(press.turn, inbound.sender.id, press.value):
                    self.metrics.feedback.labels(self.channel, press.value).inc()
            case _:
                pass
        return ""

    async def _stop(self, conversation: int, sender: Sender) -> bool:
        stopped = False
        for carrier in self.live():
            turn = carrier.turn
            if turn.conversation.id == conversation and carrier.is_answering and self._may_stop(turn, sender):
                carrier.stop()
                stopped = True
        return stopped

    def _may_stop(self, turn: Turn, sender: Sender) -> bool:
        asked = any(inbound.sender.id == sender.id for inbound in turn.inbounds)
        return asked or not self.policy.admins or sender.id in self.policy.admins

    async def _retry(self, conversation: int, turn: Turn | None = None) -> str:
        """Ask again what `turn`, or else the last turn of the conversation, asked."""
        if await self.store.open_turn(conversation) is not None:
            return "I am still answering. `/stop` first, then `/retry`."
        turn = turn or await self.store.last_turn(conversation)
        again = await self.store.requeue(self.lease(), turn.id) if turn is not None else None
        if again is None:
            return "There is no question to ask again."
        self.carry(again)
        return ""

    async def _status(self, conversation: int) -> str:
        open_turn = await self.store.open_turn(conversation)
        waiting = await self.store.waiting(conversation)
        lines = []
        if open_turn is None:
            lines.append("I am idle here.")
        else:
            phase = next((c.phase.value for c in self.live() if c.turn.id == open_turn.id), open_turn.state.value)
            lines.append(f"I am answering ({phase}).")
        if waiting:
            lines.append(f"{waiting} more {'question waits' if waiting == 1 else 'questions wait'}.")
        return " ".join(lines)

    async def _offer_pairing(self, inbound: Inbound) -> str:
        code = "".join(secrets.choice("ABCDEFGHJKLMNPQRSTUVWXYZ23456789") for _ in range(6))
        request: JsonValue = {"sender": inbound.sender.id, "name": inbound.sender.name}
        await self.store.remember(self.channel, f"pairing:{code}", request, _PAIRING_CODE_LIFE)
        return f"I do not know you yet. Ask an admin to type `/pair {code}` within an hour."

    async def _pair(self, code: str, inbound: Inbound) -> str:
        if inbound.sender.id not in self.policy.admins:
            return "Only an admin can do that."
        request = await self.store.recall(self.channel, f"pairing:{code.strip().upper()}")
        if not isinstance(request, dict):
            return "This code is unknown or has expired."
        await self.store.remember(self.channel, paired_key(str(request.get("sender"))), True)
        return f"{request.get('name') or request.get('sender')} may talk to me now."
