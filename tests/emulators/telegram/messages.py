"""Sending, editing and deleting messages without files."""

from __future__ import annotations

from tests.emulators.telegram.backend import Backend, Method
from tests.emulators.telegram.drafts import Drafts
from tests.emulators.telegram.errors import NOT_MODIFIED, bad_request, no_such_method
from tests.emulators.telegram.keyboard import Keyboard, read_keyboard
from tests.emulators.telegram.prose import Prose
from tests.emulators.telegram.text import Entity
from tests.emulators.telegram.wire import Json, Params
from tests.emulators.telegram.world import Chat, Message, Version, to_edit


class Messages:
    def __init__(self, backend: Backend, prose: Prose, drafts: Drafts) -> None:
        self._backend = backend
        self._world = backend.world
        self._prose = prose
        self._drafts = drafts

    def methods(self) -> dict[str, Method]:
        return {
            "sendMessage": self.send_message,
            "sendRichMessage": self.send_rich_message,
            "editMessageText": self.edit_text,
            "editMessageCaption": self.edit_caption,
            "editMessageReplyMarkup": self.edit_keyboard,
            "deleteMessage": self.delete_message,
        }

    def send_message(self, params: Params) -> Json:
        chat = self._world.chat_of(params)
        text, entities = self._prose.text(params)
        return self._send(chat, params, text, entities, link_preview=params.json_object("link_preview_options"))

    def send_rich_message(self, params: Params) -> Json:
        if not self._prose.rich_messages:
            raise no_such_method()
        chat = self._world.chat_of(params)
        source, rich = self._prose.rich(params)
        return self._send(chat, params, source, (), rich=rich)

    def _send(
        self,
        chat: Chat,
        params: Params,
        text: str,
        entities: tuple[Entity, ...],
        *,
        rich: Json | None = None,
        link_preview: Json | None = None,
    ) -> Json:
        keyboard = read_keyboard(params, self._backend.limits)
        reply_to = self._world.reply_target(chat, params)
        thread_id = self._world.thread_for(chat, params, reply_to)
        self._backend.flood.admit_message(chat.id, "send", private=chat.is_private)
        message = self._world.post(
            chat,
            self._world.bot,
            text,
            entities=entities,
            keyboard=keyboard,
            thread_id=thread_id,
            reply_to=reply_to,
            rich=rich,
            link_preview=link_preview,
        )
        self._drafts.give_way(message)
        return self._world.message_json(message)

    def edit_text(self, params: Params) -> Json:
        chat = self._world.chat_of(params)
        entities: tuple[Entity, ...] = ()
        rich: Json | None = None
        if self._prose.rich_messages and params.has("rich_message"):
            text, rich = self._prose.rich(params)
        else:
            text, entities = self._prose.text(params, edit=True)
        preview = params.json_object("link_preview_options")
        keyboard, message = self._to_edit(chat, params)
        if message.media is not None:
            raise bad_request("there is no text in the message to edit", rule=f"text edit of file {message.id}")
        same_text = (text, entities, rich, preview) == (
            message.text,
            message.entities,
            message.rich,
            message.link_preview,
        )
        if same_text and keyboard == message.keyboard:
            raise bad_request(NOT_MODIFIED)
        message.entities, message.rich, message.link_preview = entities, rich, preview
        return self._edited(message, text, keyboard)

    def edit_caption(self, params: Params) -> Json:
        chat = self._world.chat_of(params)
        text, entities = self._prose.caption(params)
        keyboard, message = self._to_edit(chat, params)
        if message.media is None:
            raise bad_request("there is no caption in the message to edit", rule=f"caption edit of text {message.id}")
        if (text, entities, keyboard) == (message.text, message.entities, message.keyboard):
            raise bad_request(NOT_MODIFIED)
        message.entities = entities
        return self._edited(message, text, keyboard)

    def edit_keyboard(self, params: Params) -> Json:
        chat = self._world.chat_of(params)
        keyboard, message = self._to_edit(chat, params)
        if keyboard == message.keyboard:
            raise bad_request(NOT_MODIFIED)
        return self._edited(message, message.text, keyboard)

    def _to_edit(self, chat: Chat, params: Params) -> tuple[Keyboard, Message]:
        if not params.has("message_id"):
            raise bad_request("message identifier is not specified", rule="edit without message_id")
        keyboard = read_keyboard(params, self._backend.limits, inline_only=True)
        self._backend.flood.admit_message(chat.id, "edit", private=chat.is_private)
        return keyboard, to_edit(chat, params.integer("message_id"), self._world.bot)

    def _edited(self, message: Message, text: str, keyboard: Keyboard) -> Json:
        now = self._backend.clock.now()
        if text != message.text:
            message.versions.append(Version(now, text))
        message.text, message.keyboard, message.edited_at = text, keyboard, now
        return self._world.message_json(message)

    def delete_message(self, params: Params) -> bool:
        chat = self._world.chat_of(params)
        message = chat.messages.get(params.integer("message_id"))
        if message is None or message.deleted:
            never = message is None
            raise bad_request(
                "message to delete not found", rule="deletion of a message that never existed" if never else None
            )
        own = message.sender == self._world.bot
        if not own and not chat.is_private and chat.bot_status != "administrator":
            raise bad_request("message can't be deleted", rule=f"deletion of message {message.id} of somebody else")
        message.deleted = True
        return True
