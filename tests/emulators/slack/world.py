"""The emulated Slack as it is now: workspaces, people, conversations, messages. No HTTP, no rules of the API."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from channels.clock import Clock
from tests.emulators.slack.blocks import JsonObject, visible_text
from tests.emulators.slack.streams import Stream


class ChannelKind(StrEnum):
    """The four kinds of conversation; the values are what events carry as `channel_type`."""

    PUBLIC = "channel"
    PRIVATE = "group"
    DIRECT = "im"
    GROUP_DIRECT = "mpim"


SCOPE_PREFIX = {
    ChannelKind.PUBLIC: "channels",
    ChannelKind.PRIVATE: "groups",
    ChannelKind.DIRECT: "im",
    ChannelKind.GROUP_DIRECT: "mpim",
}
"""How scopes and subscriptions name a kind: `channels:history`, `message.groups`."""


@dataclass(slots=True)
class User:
    """A person or a bot. `team` differs from the channel's workspace for people who come through Slack Connect."""

    id: str
    name: str
    team: str
    real_name: str = ""
    bot_id: str = ""
    deleted: bool = False
    timezone: str = "Europe/Amsterdam"


@dataclass(slots=True)
class Workspace:
    """One workspace that the app is installed in. `refuse` answers every call with that error (`token_revoked` …)."""

    id: str
    name: str
    bot: User
    bot_token: str
    scopes: set[str]
    refuse: str = ""


@dataclass(frozen=True, slots=True)
class Version:
    """What a message showed from this moment on. `at` is on the emulator's clock."""

    at: float
    text: str


@dataclass(slots=True)
class File:
    """A file, whole once `uploaded`; `shared` once it has been put into a conversation."""

    id: str
    name: str
    team: str
    title: str = ""
    mimetype: str = "application/octet-stream"
    declared: int = 0
    content: bytes = b""
    uploaded: bool = False
    shared: bool = False
    owner: str = ""
    url: str = ""


@dataclass(slots=True)
class Message:
    """One message. `stream` is set for messages begun by chat.startStream; `visible_to` for ephemeral ones."""

    ts: str
    channel: str
    author: str
    text: str = ""
    bot_id: str = ""
    thread_ts: str | None = None
    markdown: bool = False
    blocks: list[JsonObject] = field(default_factory=list)
    attachments: list[JsonObject] = field(default_factory=list)
    metadata: JsonObject | None = None
    files: list[File] = field(default_factory=list)
    reactions: dict[str, list[str]] = field(default_factory=dict)
    subtype: str = ""
    username: str = ""
    broadcast: bool = False
    visible_to: str = ""
    hidden: bool = False
    deleted: bool = False
    edited_at: str = ""
    edit_refusal: str = ""
    reply_refusal: str = ""
    stream: Stream | None = None
    versions: list[Version] = field(default_factory=list)

    @property
    def root(self) -> str:
        """The ts of the thread this message belongs to, which is its own when it is in none."""
        return self.thread_ts or self.ts

    @property
    def visible(self) -> str:
        """What people read. Blocks hide `text`, as they do in Slack, even when they hold nothing but buttons."""
        if self.deleted:
            return ""
        if self.stream is not None and not self.stream.replaced:
            return self.stream.visible
        return visible_text(self.blocks) if self.blocks else self.text


@dataclass(slots=True)
class Channel:
    """A conversation. `stream_refusals`: the error of chat.startStream by recipient id ("" is anybody), `end_refusals`
    that of chat.stopStream."""

    id: str
    name: str
    kind: ChannelKind
    team: str
    members: set[str]
    archived: bool = False
    shared: bool = False
    stream_refusals: dict[str, str] = field(default_factory=dict)
    end_refusals: dict[str, str] = field(default_factory=dict)
    messages: dict[str, Message] = field(default_factory=dict)

    def thread(self, root: str) -> list[Message]:
        """The root and its replies, oldest first, without what was deleted."""
        return [message for message in self.standing() if message.root == root]

    def standing(self) -> list[Message]:
        """Every message that is still there, in the order of ts, which is the order they were put in."""
        return [message for message in self.messages.values() if not message.deleted]

    def replies(self, root: str) -> list[Message]:
        """The replies of a thread, without its root and without what only one person sees."""
        return [m for m in self.thread(root) if m.ts != root and not m.visible_to]


class Bell:
    """Wakes everyone who waits for a change."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    def ring(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def heard(self, timeout: float) -> None:
        """Return at the next ring, or after `timeout` real seconds."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await asyncio.wait({future}, timeout=timeout)


class World:
    """Everything that exists, and the minting of ids and timestamps."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.bell = Bell()
        self.app_id = "A0BRIDGE"
        self.workspaces: dict[str, Workspace] = {}
        self.users: dict[str, User] = {}
        self.channels: dict[str, Channel] = {}
        self.files: dict[str, File] = {}
        self._numbers = itertools.count(1)
        self._last_ts = 0

    def number(self) -> int:
        """A number not given before."""
        return next(self._numbers)

    def mint_ts(self) -> str:
        """A message timestamp for now, later than every one before it."""
        self._last_ts = max(self._last_ts + 1, int(self.clock.now() * 1_000_000))
        return f"{self._last_ts // 1_000_000}.{self._last_ts % 1_000_000:06d}"

    def bot_of(self, channel: Channel) -> User:
        """The bridge's own bot user in the workspace of this conversation."""
        return self.workspaces[channel.team].bot

    def direct(self, user: str, team: str) -> Channel:
        """The conversation between the bot of a workspace and one person, made when it is not there yet."""
        bot = self.workspaces[team].bot
        members = {user, bot.id}
        for channel in self.channels.values():
            if channel.kind is ChannelKind.DIRECT and channel.team == team and channel.members == members:
                return channel
        suffix = user[1:] if team == self.users[user].team else f"{team[1:]}{user[1:]}"
        return self.add_channel(f"D{suffix}", "", ChannelKind.DIRECT, team, members)

    def group_direct(self, users: Iterable[str], team: str) -> Channel:
        """The conversation of the bot with several people, made when it is not there yet."""
        members = {*users, self.workspaces[team].bot.id}
        for channel in self.channels.values():
            if channel.kind is ChannelKind.GROUP_DIRECT and channel.team == team and channel.members == members:
                return channel
        name = "mpdm-" + "--".join(sorted(self.users[user].name for user in members)) + "-1"
        return self.add_channel(f"G0MPDM{self.number()}", name, ChannelKind.GROUP_DIRECT, team, members)

    def add_channel(self, channel_id: str, name: str, kind: ChannelKind, team: str, members: Iterable[str]) -> Channel:
        channel = Channel(id=channel_id, name=name, kind=kind, team=team, members=set(members))
        self.channels[channel_id] = channel
        return channel

    def add_message(self, message: Message) -> Message:
        """Put a message into its conversation and note what it shows."""
        self.channels[message.channel].messages[message.ts] = message
        self.note(message)
        return message

    def note(self, message: Message) -> None:
        """Remember what the message shows now, when that differs from before, and wake whoever waits."""
        visible = message.visible
        if not message.versions or message.versions[-1].text != visible:
            message.versions.append(Version(self.clock.now(), visible))
        self.bell.ring()
