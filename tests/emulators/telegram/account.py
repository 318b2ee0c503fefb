"""The bot itself, its commands, and what it may ask and do about chats: actions, reactions, members."""

from __future__ import annotations

import re

from tests.emulators.telegram.backend import Backend, Method
from tests.emulators.telegram.errors import bad_request
from tests.emulators.telegram.limits import CHAT_ACTIONS, REACTIONS
from tests.emulators.telegram.text import utf16_length
from tests.emulators.telegram.wire import Json, Params
from tests.emulators.telegram.world import Chat, Person

_COMMAND_NAME = re.compile(r"[a-z0-9_]+")
_SCOPES = frozenset(
    {
        "default", "all_private_chats", "all_group_chats", "all_chat_administrators", "chat", "chat_administrators",
        "chat_member",
    }
)  # fmt: skip
_GENERAL_TOPIC = 1  # chat actions take it, messages do not
_ADMIN_RIGHTS = (
    "can_be_edited", "is_anonymous", "can_manage_chat", "can_delete_messages", "can_manage_video_chats",
    "can_restrict_members", "can_promote_members", "can_change_info", "can_invite_users", "can_post_stories",
    "can_edit_stories", "can_delete_stories", "can_pin_messages", "can_manage_topics",
)  # fmt: skip


class Account:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._world = backend.world
        self.commands: dict[str, list[Json]] = {}  # by scope and language, as one key

    def methods(self) -> dict[str, Method]:
        return {
            "getMe": self.get_me,
            "setMyCommands": self.set_commands,
            "getMyCommands": lambda params: self.commands.get(_audience(params), []),
            "deleteMyCommands": self.delete_commands,
            "getChat": self.get_chat,
            "getChatMember": self.get_member,
            "getChatAdministrators": self.get_administrators,
            "getChatMemberCount": lambda params: len(self._world.chat_of(params).members) + 1,
            "setMessageReaction": self.react,
            "sendChatAction": self.act,
        }

    def get_me(self, _: Params) -> Json:
        return self._world.bot.to_json() | {
            "can_join_groups": True,
            "can_read_all_group_messages": not self._world.privacy_mode,
            "supports_inline_queries": False,
            "can_connect_to_business": False,
            "has_main_web_app": False,
            "has_topics_enabled": self._world.private_topics,
        }

    def set_commands(self, params: Params) -> bool:
        limits = self._backend.limits
        commands = params.json_list("commands") or []
        if len(commands) > limits.commands:
            raise bad_request("BOT_COMMANDS_TOO_MUCH", rule=f"{len(commands)} commands (limit {limits.commands})")
        kept: list[Json] = []
        for item in commands:
            if not isinstance(item, dict):
                raise bad_request("can't parse BotCommand: expected an Object", rule="command is not an object")
            name, description = str(item.get("command", "")).removeprefix("/"), str(item.get("description", ""))
            if not _COMMAND_NAME.fullmatch(name) or len(name) > limits.command_name:
                raise bad_request("BOT_COMMAND_INVALID", rule=f"command name {name!r}")
            if not 1 <= utf16_length(description) <= limits.command_description:
                raise bad_request("BOT_COMMAND_DESCRIPTION_INVALID", rule=f"description of command {name}")
            kept.append({"command": name, "description": description})
        self.commands[_audience(params)] = kept
        return True

    def delete_commands(self, params: Params) -> bool:
        self.commands.pop(_audience(params), None)
        return True

    def get_chat(self, params: Params) -> Json:
        chat = self._world.chat_of(params)
        return chat.to_json() | {
            "accent_color_id": 0,
            "max_reaction_count": 11,
            "accepted_gift_types": {
                "unlimited_gifts": False,
                "limited_gifts": False,
                "unique_gifts": False,
                "premium_subscription": False,
                "gifts_from_channels": False,
            },
        }

    def get_member(self, params: Params) -> Json:
        chat = self._world.chat_of(params)
        wanted = params.integer("user_id")
        if wanted == self._world.bot.id:
            return member_json(self._world.bot, chat.bot_status)
        for place, person in enumerate(chat.members):
            if person.id == wanted:
                return member_json(person, "creator" if place == 0 and not chat.is_private else "member")
        raise bad_request("PARTICIPANT_ID_INVALID", rule=f"user {wanted} is not in chat {chat.id}")

    def get_administrators(self, params: Params) -> list[Json]:
        chat = self._world.chat_of(params)
        if chat.is_private:
            raise bad_request(
                "there are no administrators in the private chat", rule="administrators of a private chat"
            )
        found = [member_json(person, "creator") for person in chat.members[:1]]
        if chat.bot_status == "administrator":
            found.append(member_json(self._world.bot, "administrator"))
        return found

    def react(self, params: Params) -> bool:
        chat = self._world.chat_of(params)
        message = chat.messages.get(params.integer("message_id"))
        if message is None or message.deleted:
            raise bad_request(
                "message to react not found", rule="reaction to a message that never existed" if not message else None
            )
        emoji = []
        for item in params.json_list("reaction") or []:
            value = item.get("emoji") if isinstance(item, dict) and item.get("type") == "emoji" else None
            if value not in REACTIONS:
                raise bad_request("REACTION_INVALID", rule=f"reaction {item!r}")
            emoji.append(str(value))
        if len(emoji) > 1:
            raise bad_request("REACTIONS_TOO_MANY", rule=f"{len(emoji)} reactions on one message (a bot has 1)")
        message.reactions = tuple(emoji)
        return True

    def act(self, params: Params) -> bool:
        chat = self._world.chat_of(params)
        action = params.text("action")
        if action not in CHAT_ACTIONS:
            raise bad_request("wrong parameter action in request", rule=f"chat action {action!r}")
        if not (chat.forum and not chat.is_private and params.integer("message_thread_id") == _GENERAL_TOPIC):
            self._world.thread_for(chat, params)
        self._backend.flood.admit_draft(chat.id, "chat action")
        chat.action = action
        chat.action_until = self._backend.clock.now() + self._backend.limits.action_seconds
        return True


def _audience(params: Params) -> str:
    """The scope and language a command list is for."""
    scope = params.json_object("scope") or {"type": "default"}
    if scope.get("type") not in _SCOPES:
        raise bad_request("can't parse BotCommandScope: unsupported type specified", rule=f"command scope {scope!r}")
    where = ":".join(str(scope[name]) for name in ("type", "chat_id", "user_id") if name in scope)
    return f"{where}/{params.text('language_code')}"


def member_json(person: Person, status: str) -> Json:
    shown: Json = {"user": person.to_json(), "status": status}
    if status == "creator":
        shown["is_anonymous"] = False
    elif status == "administrator":
        shown |= dict.fromkeys(_ADMIN_RIGHTS, False) | {"can_manage_chat": True, "can_delete_messages": True}
    elif status == "kicked":
        shown["until_date"] = 0
    return shown


def membership_change(chat: Chat, bot: Person, by: Person, old: str, new: str, at: float) -> Json:
    """The payload of `my_chat_member`."""
    return {
        "chat": chat.to_json(),
        "from": by.to_json(),
        "date": int(at),
        "old_chat_member": member_json(bot, old),
        "new_chat_member": member_json(bot, new),
    }
