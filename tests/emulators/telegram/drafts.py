"""Drafts: text that grows in a private chat and vanishes by itself unless a message takes its place."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from tests.emulators.telegram.backend import Backend, Method
from tests.emulators.telegram.errors import bad_request, no_such_method
from tests.emulators.telegram.prose import Prose
from tests.emulators.telegram.wire import Json, Params
from tests.emulators.telegram.world import Chat, Message, Version


class DraftEnd(StrEnum):
    FINAL = "final"  # a message that begins with it took its place
    DISPLACED = "displaced"  # another message appeared and the draft vanished
    EXPIRED = "expired"  # nobody renewed it in time
    STOPPED = "stopped"  # the person pressed stop


@dataclass(slots=True)
class Draft:
    chat_id: int
    thread_id: int | None
    id: int
    versions: list[Version] = field(default_factory=list)
    expires_at: float = 0.0
    can_stop: bool = False
    keep_on_stop: bool = False
    came_back: bool = False  # a message had taken the place of an earlier draft of this id
    final: Message | None = None  # the message that begins with it
    ended: DraftEnd | None = None
    ended_at: float | None = None

    @property
    def text(self) -> str:
        return self.versions[-1].text

    def end(self, how: DraftEnd, at: float) -> None:
        self.ended, self.ended_at = how, at


class Drafts:
    """All drafts there ever were, oldest first; at most one living one per chat, topic and draft id."""

    def __init__(self, backend: Backend, prose: Prose) -> None:
        self._backend = backend
        self._prose = prose
        self.all: list[Draft] = []

    def methods(self) -> dict[str, Method]:
        return {"sendMessageDraft": self.send_draft, "sendRichMessageDraft": self.send_rich_draft}

    def living(self, chat_id: int) -> list[Draft]:
        self.sweep()
        return [draft for draft in self.all if draft.chat_id == chat_id and draft.ended is None]

    def sweep(self) -> None:
        """End what nobody renewed for 30 s."""
        now = self._backend.clock.now()
        for draft in self.all:
            if draft.ended is None and now >= draft.expires_at:
                draft.end(DraftEnd.EXPIRED, draft.expires_at)
                if draft.came_back and draft.final is None:
                    self._backend.break_rule(
                        f"ghost: draft {draft.id} in chat {draft.chat_id} came back after a message took its place"
                    )

    def give_way(self, message: Message) -> None:
        """A normal message of the bot appeared: drafts in its chat and topic are gone.

        A draft that the message begins with has found its final, also when it had vanished before.
        """
        self.sweep()
        for draft in self.all:
            same_place = (draft.chat_id, draft.thread_id) == (message.chat_id, message.thread_id)
            if not same_place or draft.final is not None:
                continue
            is_final = bool(draft.text.strip()) and message.text.startswith(draft.text)
            if is_final:
                draft.final = message
            if draft.ended is None:
                message.continued_draft = message.continued_draft or is_final
                draft.end(DraftEnd.FINAL if is_final else DraftEnd.DISPLACED, message.at)

    def send_draft(self, params: Params) -> bool:
        chat, draft_id = self._target(params)
        text, _ = self._prose.text(params, allow_empty=True)
        self._show(chat, draft_id, text, params)
        return True

    def send_rich_draft(self, params: Params) -> bool:
        if not self._prose.rich_messages:
            raise no_such_method()
        chat, draft_id = self._target(params)
        self._show(chat, draft_id, self._prose.rich(params)[0], params)
        return True

    def _target(self, params: Params) -> tuple[Chat, int]:
        chat = self._backend.world.chat_of(params)
        if not chat.is_private:
            raise bad_request("TEXTDRAFT_PEER_INVALID", rule=f"draft in {chat.type} {chat.id}")
        draft_id = params.integer("draft_id")
        if draft_id == 0:
            raise bad_request("draft_id must be non-zero", rule="draft_id is missing or 0")
        return chat, draft_id

    def _show(self, chat: Chat, draft_id: int, text: str, params: Params) -> None:
        thread_id = self._backend.world.thread_for(chat, params)
        self._backend.flood.admit_draft(chat.id, "draft")
        self.sweep()
        now = self._backend.clock.now()
        same = [
            draft for draft in self.all if (draft.chat_id, draft.thread_id, draft.id) == (chat.id, thread_id, draft_id)
        ]
        if same and self._is_ghost(chat, same[-1], text):
            self._backend.break_rule(f"ghost: draft {draft_id} in chat {chat.id} sent after its final message")
        if not same or same[-1].ended is not None:
            came_back = bool(same) and same[-1].ended in (DraftEnd.FINAL, DraftEnd.DISPLACED)
            same.append(Draft(chat.id, thread_id, draft_id, came_back=came_back))
            self.all.append(same[-1])
        draft = same[-1]
        draft.versions.append(Version(now, text))
        draft.expires_at = now + self._backend.limits.draft_seconds
        draft.can_stop, draft.keep_on_stop = params.flag("can_stop"), params.flag("keep_on_stop")

    def _is_ghost(self, chat: Chat, earlier: Draft, text: str) -> bool:
        """A frame of an answer whose final is there already, and nobody has said anything since.

        Ids may be used again for another answer, so a frame that is no part of that final is given the benefit of
        the doubt until it vanishes without a final of its own.
        """
        final = earlier.final
        if final is None or not final.text.startswith(text):
            return False
        bot = self._backend.world.bot
        return not any(said.id > final.id and said.sender != bot for said in chat.messages.values())

    def stop(self, chat: Chat, draft_id: int | None = None) -> tuple[Draft, Json]:
        """The person presses stop on a draft (the newest by default); the payload of the update that tells the bot.

        Raises LookupError when there is no such draft, or it has no stop button.
        """
        shown = [draft for draft in self.living(chat.id) if draft.can_stop and draft_id in (None, draft.id)]
        if not shown:
            raise LookupError(f"no draft with a stop button in chat {chat.id}")
        draft = shown[-1]
        if not draft.keep_on_stop:
            draft.end(DraftEnd.STOPPED, self._backend.clock.now())
        payload: Json = {"chat": chat.to_json(), "draft_id": str(draft.id)}
        if draft.thread_id is not None:
            payload["message_thread_id"] = draft.thread_id
        return draft, payload
