"""Who and where: auth.test, apps.connections.open, conversations.*, users.*, team.info, bots.info, reactions.*."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from tests.emulators.slack import rules
from tests.emulators.slack.blocks import JsonObject
from tests.emulators.slack.core import ApiCall, Core, Handler
from tests.emulators.slack.errors import Refusal
from tests.emulators.slack.shapes import channel_json, message_json, team_json, user_json
from tests.emulators.slack.world import Channel, ChannelKind, Message

_EMOJI = re.compile(r"[a-z0-9_+'-]+(::skin-tone-[2-6])?")
_KIND_OF_TYPE = {
    "public_channel": ChannelKind.PUBLIC,
    "private_channel": ChannelKind.PRIVATE,
    "im": ChannelKind.DIRECT,
    "mpim": ChannelKind.GROUP_DIRECT,
}


class Directory:
    def __init__(self, core: Core, open_socket: Callable[[], str], url: Callable[[], str]) -> None:
        self._core = core
        self._world = core.world
        self._open_socket = open_socket
        self._url = url

    def handlers(self) -> dict[str, Handler]:
        return {
            "auth.test": self.auth,
            "apps.connections.open": self.open_socket,
            "bots.info": self.bot,
            "conversations.history": self.history,
            "conversations.info": self.conversation,
            "conversations.open": self.open_direct,
            "conversations.replies": self.replies,
            "reactions.add": self.react,
            "reactions.remove": self.unreact,
            "team.info": self.team,
            "users.conversations": self.conversations,
            "users.info": self.user,
        }

    def auth(self, call: ApiCall) -> JsonObject:
        if call.token == "app":
            return {"app_id": self._world.app_id, "app_name": "bridge"}
        return {
            "url": f"{self._url()}/",
            "team": call.workspace.name,
            "user": call.bot.name,
            "team_id": call.workspace.id,
            "user_id": call.bot.id,
            "bot_id": call.bot.bot_id,
            "is_enterprise_install": False,
        }

    def open_socket(self, call: ApiCall) -> JsonObject:
        del call
        return {"url": self._open_socket()}

    def bot(self, call: ApiCall) -> JsonObject:
        wanted = call.args.need("bot")
        for user in self._world.users.values():
            if user.bot_id == wanted:
                app_id = self._world.app_id if user.id == call.bot.id else f"A{user.bot_id[1:]}"
                return {
                    "bot": {"id": wanted, "deleted": False, "name": user.name, "app_id": app_id, "user_id": user.id}
                }
        raise Refusal("bot_not_found")

    def user(self, call: ApiCall) -> JsonObject:
        user = self._world.users.get(call.args.need("user"))
        if user is None:
            raise Refusal("user_not_found")
        return {"user": user_json(user, call.workspace.id)}

    def team(self, call: ApiCall) -> JsonObject:
        return {"team": team_json(call.workspace)}

    def conversation(self, call: ApiCall) -> JsonObject:
        channel = self._world.channels.get(call.args.need("channel"))
        hidden = channel is not None and channel.kind is not ChannelKind.PUBLIC and call.bot.id not in channel.members
        if channel is None or hidden or channel.team != call.workspace.id:
            raise Refusal("channel_not_found")
        return {"channel": channel_json(channel, call.bot)}

    def conversations(self, call: ApiCall) -> JsonObject:
        kinds = []
        for name in (call.args.text("types") or "public_channel").split(","):
            if name not in _KIND_OF_TYPE:
                raise Refusal("invalid_types", broken=f"unknown conversation type {name!r}")
            kinds.append(_KIND_OF_TYPE[name])
        user = call.args.text("user") or call.bot.id
        found = [
            channel
            for channel in self._world.channels.values()
            if channel.team == call.workspace.id
            and channel.kind in kinds
            and {user, call.bot.id} <= channel.members
            and not (channel.archived and call.args.flag("exclude_archived"))
        ]
        page, cursor = _page(call, found, 1_000)
        return {
            "channels": [channel_json(channel, call.bot) for channel in page],
            "response_metadata": {"next_cursor": cursor},
        }

    def open_direct(self, call: ApiCall) -> JsonObject:
        if call.args.text("channel"):
            return {"channel": {"id": self._core.channel(call).id}}
        users = [user for user in call.args.need("users").split(",") if user]
        if any(user not in self._world.users for user in users):
            raise Refusal("user_not_found")
        team = call.workspace.id
        channel = self._world.direct(users[0], team) if len(users) == 1 else self._world.group_direct(users, team)
        return {"channel": {"id": channel.id}}

    # --- history -------------------------------------------------------------------------------------------------

    def history(self, call: ApiCall) -> JsonObject:
        channel = self._core.channel(call)
        top = [m for m in channel.messages.values() if _is_listed(m, channel) and (not m.thread_ts or m.broadcast)]
        return self._listing(call, top[::-1])

    def replies(self, call: ApiCall) -> JsonObject:
        channel = self._core.channel(call)
        ts = call.args.need("ts")
        named = channel.messages.get(ts)
        if named is None or not _is_listed(named, channel):
            raise Refusal("thread_not_found")
        thread = [m for m in channel.messages.values() if m.root == named.root and _is_listed(m, channel)]
        return self._listing(call, thread, root=named.root)

    def _listing(self, call: ApiCall, messages: Sequence[Message], root: str = "") -> JsonObject:
        oldest, latest = call.args.text("oldest"), call.args.text("latest")
        inclusive = call.args.flag("inclusive")
        inside = [m for m in messages if m.ts == root or _in_range(float(m.ts), oldest, latest, inclusive)]
        most = rules.REDUCED_HISTORY_PAGE if self._core.settings.reduced_history else 1_000
        page, cursor = _page(call, inside, most)
        metadata = call.args.flag("include_all_metadata")
        answer: JsonObject = {
            "messages": [message_json(self._world, message, metadata=metadata) for message in page],
            "has_more": bool(cursor),
        }
        if cursor:
            answer["response_metadata"] = {"next_cursor": cursor}
        return answer

    # --- reactions -----------------------------------------------------------------------------------------------

    def react(self, call: ApiCall) -> JsonObject:
        people = self._reaction(call)
        if call.bot.id in people:
            raise Refusal("already_reacted")
        people.append(call.bot.id)
        return {}

    def unreact(self, call: ApiCall) -> JsonObject:
        people = self._reaction(call)
        if call.bot.id not in people:
            raise Refusal("no_reaction")
        people.remove(call.bot.id)
        return {}

    def _reaction(self, call: ApiCall) -> list[str]:
        name = call.args.need("name")
        if not _EMOJI.fullmatch(name):
            raise Refusal("invalid_name", broken=f"{name!r} is not the name of an emoji")
        message = self._core.channel(call).messages.get(call.args.need("timestamp"))
        if message is None or message.deleted:
            raise Refusal("message_not_found")
        return message.reactions.setdefault(name, [])


def _is_listed(message: Message, channel: Channel) -> bool:
    if message.visible_to:
        return False
    return not message.deleted or bool(channel.replies(message.ts))


def _in_range(ts: float, oldest: str, latest: str, inclusive: bool) -> bool:
    if inclusive:
        return (not oldest or ts >= float(oldest)) and (not latest or ts <= float(latest))
    return (not oldest or ts > float(oldest)) and (not latest or ts < float(latest))


T = TypeVar("T")


def _page(call: ApiCall, items: Sequence[T], most: int) -> tuple[Sequence[T], str]:
    """One page and the cursor of the next, "" on the last one."""
    limit = min(call.args.whole("limit", 100), most)
    if limit < 1:
        raise Refusal("invalid_limit", broken="limit below 1")
    cursor = call.args.text("cursor")
    try:
        start = int(base64.b64decode(cursor, validate=True).decode().removeprefix("at:")) if cursor else 0
    except (ValueError, binascii.Error):
        raise Refusal("invalid_cursor", broken="a cursor that was never given") from None
    page = items[start : start + limit]
    end = start + len(page)
    return page, base64.b64encode(f"at:{end}".encode()).decode() if end < len(items) else ""
