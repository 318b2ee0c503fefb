"""What people do in Slack, and the events, payloads and commands that the app gets of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.emulators.slack.assistant import Assistant
from tests.emulators.slack.blocks import Button, JsonObject, buttons, rich_text
from tests.emulators.slack.core import Core
from tests.emulators.slack.deliveries import Delivery, DeliveryKind, DeliveryState
from tests.emulators.slack.files import Files
from tests.emulators.slack.responses import Responses
from tests.emulators.slack.shapes import (
    changed_event,
    channel_json,
    deleted_event,
    mention_event,
    message_event,
    message_json,
    shared_json,
    team_json,
)
from tests.emulators.slack.streams import StreamState
from tests.emulators.slack.text import encode_typed
from tests.emulators.slack.world import Channel, ChannelKind, File, Message, User, World

SLACKBOT = "USLACKBOT"


class People:
    """Acts as a person, or as another bot. Conversations and users are named by id; a ts names a message."""

    def __init__(
        self, core: Core, files: Files, assistant: Assistant, responses: Responses, url: Callable[[], str]
    ) -> None:
        self._core = core
        self._world: World = core.world
        self._files = files
        self._assistant = assistant
        self._responses = responses
        self._url = url

    # --- messages ------------------------------------------------------------------------------------------------

    async def send(
        self,
        channel: str,
        user: str,
        text: str,
        *,
        thread_ts: str | None = None,
        mention: bool = False,
        encoded: bool = False,
        broadcast: bool = False,
    ) -> str:
        """Send a message; returns its ts.

        `text` is what the person types: `@name` of a user, `#name` of a channel, links and `& < >` are encoded as Slack
        does, unless it is `encoded` already. `mention` puts a mention of the bot in front. `broadcast` is the tick at
        "also send to the channel" under a thread reply.
        """
        return self._say(channel, user, self._typed(channel, text, mention, encoded), thread_ts, broadcast=broadcast)

    async def dm(self, user: str, text: str, *, thread_ts: str | None = None, encoded: bool = False) -> str:
        """Send a direct message to the bot; returns its ts."""
        channel = self._world.direct(user, self._home_of(user)).id
        return self._say(channel, user, self._typed(channel, text, False, encoded), thread_ts)

    async def upload(
        self,
        channel: str,
        user: str,
        files: Mapping[str, bytes],
        text: str = "",
        *,
        thread_ts: str | None = None,
        mention: bool = False,
    ) -> str:
        """Send files, by name, with an optional text; returns the ts of the one message that holds them."""
        team = self._world.channels[channel].team
        shared: list[File] = []
        for name, content in files.items():
            file = self._files.create(name, team, user)
            file.content, file.uploaded, file.shared = content, True, True
            shared.append(file)
        return self._say(channel, user, self._typed(channel, text, mention, False), thread_ts, files=shared)

    async def share(
        self, channel: str, user: str, source: str, ts: str, text: str = "", *, mention: bool = False
    ) -> str:
        """Forward the message `ts` of the conversation `source`, with or without words of one's own; returns the ts."""
        passed_on = shared_json(self._world, self._message(source, ts))
        return self._say(channel, user, self._typed(channel, text, mention, False), None, attachments=[passed_on])

    async def edit(self, channel: str, ts: str, text: str, *, encoded: bool = False) -> None:
        """Change a person's message."""
        message = self._message(channel, ts)
        previous = message_json(self._world, message)
        message.text = self._typed(channel, text, False, encoded)
        message.blocks = rich_text(message.text)
        message.edited_at = self._world.mint_ts()
        self._world.note(message)
        self._tell(message, changed_event(self._world, message, previous, message.edited_at))

    async def delete(self, channel: str, ts: str) -> None:
        """Delete a message. The root of a thread with replies leaves a tombstone, which comes as `message_changed`."""
        message = self._message(channel, ts)
        previous = message_json(self._world, message)
        has_replies = bool(self._world.channels[channel].replies(ts))
        message.deleted = True
        self._world.note(message)
        event_ts = self._world.mint_ts()
        shape = changed_event if has_replies else deleted_event
        self._tell(message, shape(self._world, message, previous, event_ts))

    async def say_as_bot(
        self,
        channel: str,
        bot: str,
        text: str,
        *,
        thread_ts: str | None = None,
        classic: bool = False,
        attachments: list[JsonObject] | None = None,
    ) -> str:
        """Another bot posts; `classic`: as an old integration does, with subtype `bot_message` and no user."""
        author = self._world.users[bot]
        message = Message(
            ts=self._world.mint_ts(),
            channel=channel,
            author="" if classic else author.id,
            bot_id=author.bot_id,
            text=text,
            attachments=attachments or [],
            thread_ts=thread_ts,
            subtype="bot_message" if classic else "",
            username=author.name if classic else "",
        )
        self._publish(message)
        return message.ts

    async def react(self, channel: str, ts: str, user: str, name: str) -> None:
        """Add a reaction."""
        message = self._message(channel, ts)
        message.reactions.setdefault(name, []).append(user)
        event_ts = self._world.mint_ts()
        item = {"type": "message", "channel": channel, "ts": ts}
        event = {"type": "reaction_added", "user": user, "reaction": name, "item": item, "item_user": message.author}
        self._tell(message, event | {"event_ts": event_ts})

    # --- controls ------------------------------------------------------------------------------------------------

    async def press(
        self, channel: str, ts: str, user: str, *, action_id: str | None = None, text: str | None = None
    ) -> Delivery:
        """Press a button, or choose an option, that the message shows now, found by action_id, by text, or by both."""
        message = self._message(channel, ts)
        blocks = message.blocks
        if message.stream is not None and not message.stream.replaced:
            blocks = message.stream.blocks
        matching = [b for b in buttons(blocks) if action_id in (None, b.action_id) and text in (None, b.text)]
        if not matching:
            raise AssertionError(f"message {ts} shows no button {action_id or ''} {text or ''}: {buttons(blocks)}")
        payload = self._pressed(message, self._world.users[user], matching[0])
        return self._core.courier.send(DeliveryKind.INTERACTIVE, payload)

    async def slash_command(self, channel: str, user: str, command: str, text: str = "") -> Delivery:
        """Type a slash command at top level (Slack has none in threads). What the app answers shows up in the chat."""
        place = self._world.channels[channel]
        person = self._world.users[user]
        workspace = self._world.workspaces[place.team]
        payload: JsonObject = {
            "token": "verification-token",
            "team_id": workspace.id,
            "team_domain": workspace.name,
            "channel_id": channel,
            "channel_name": place.name or "directmessage",
            "user_id": user,
            "user_name": person.name,
            "command": command,
            "text": text,
            "api_app_id": self._world.app_id,
            "is_enterprise_install": "false",
            "response_url": f"{self._url()}/commands/{self._responses.mint(channel, user)}",
            "trigger_id": self._trigger(),
        }
        return self._core.courier.send(DeliveryKind.COMMAND, payload, self._command_done)

    async def press_stop(self, channel: str, thread_ts: str, user: str) -> list[str]:
        """Press Slack's own stop button in a thread; returns the streaming messages that it stopped."""
        now = self._core.clock.now()
        stopped: list[str] = []
        for message in self._world.channels[channel].thread(thread_ts):
            if message.stream is not None and message.stream.state(now) is StreamState.LIVE:
                message.stream.ended = StreamState.STOPPED_BY_USER
                stopped.append(message.ts)
        session = self._assistant.sessions.get((channel, thread_ts))
        if not stopped and (session is None or session.status != "processing"):
            raise AssertionError(f"no stop button is shown in {channel} {thread_ts}")
        event: JsonObject = {
            "type": "agent_session_stopped",
            "channel": channel,
            "thread_ts": thread_ts,
            "user": user,
            "streaming_message_ts": stopped,
            "event_ts": self._world.mint_ts(),
        }
        self._world.bell.ring()
        self._core.emit(self._world.workspaces[self._world.channels[channel].team], event)
        return stopped

    async def open_home(self, user: str, tab: str = "home") -> None:
        """Open the app's home (`tab`: home or messages)."""
        direct = self._world.direct(user, self._home_of(user))
        event: JsonObject = {
            "type": "app_home_opened",
            "user": user,
            "channel": direct.id,
            "tab": tab,
            "event_ts": self._world.mint_ts(),
        }
        if tab == "home" and user in self._assistant.homes:
            event["view"] = self._assistant.homes[user]
        self._core.emit(self._world.workspaces[direct.team], event)

    async def open_assistant(self, user: str, context_channel: str = "") -> str:
        """Start a new assistant thread in the direct messages; returns its thread_ts."""
        direct = self._world.direct(user, self._home_of(user))
        bot = self._world.bot_of(direct)
        root = Message(
            ts=self._world.mint_ts(),
            channel=direct.id,
            author=bot.id,
            bot_id=bot.bot_id,
            text="New Assistant Thread",
            subtype="assistant_app_thread",
            hidden=True,
        )
        self._world.add_message(root)
        context = {"channel_id": context_channel, "team_id": direct.team} if context_channel else {}
        thread: JsonObject = {"user_id": user, "channel_id": direct.id, "thread_ts": root.ts, "context": context}
        event: JsonObject = {"type": "assistant_thread_started", "assistant_thread": thread, "event_ts": root.ts}
        self._core.emit(self._world.workspaces[direct.team], event)
        return root.ts

    async def invite_bot(self, channel: str, user: str) -> None:
        """Bring the bot into a conversation."""
        place = self._world.channels[channel]
        workspace = self._world.workspaces[place.team]
        place.members.add(workspace.bot.id)
        event: JsonObject = {
            "type": "member_joined_channel",
            "user": workspace.bot.id,
            "channel": channel,
            "channel_type": "C" if place.kind is ChannelKind.PUBLIC else "G",
            "team": place.team,
            "inviter": user,
            "event_ts": self._world.mint_ts(),
        }
        self._core.emit(workspace, event)

    async def remove_bot(self, channel: str) -> None:
        """Take the bot out of a conversation."""
        place = self._world.channels[channel]
        place.members.discard(self._world.bot_of(place).id)

    # --- inside --------------------------------------------------------------------------------------------------

    def _home_of(self, user: str) -> str:
        """The workspace in which a person meets the bot: their own when the app is there, else the first."""
        team = self._world.users[user].team
        return team if team in self._world.workspaces else next(iter(self._world.workspaces))

    def _typed(self, channel: str, text: str, mention: bool, encoded: bool) -> str:
        place = self._world.channels[channel]
        if not encoded:
            users = {user.name: user.id for user in self._world.users.values()}
            channels = {c.name: c.id for c in self._world.channels.values() if c.name and c.team == place.team}
            text = encode_typed(text, users, channels)
        return f"<@{self._world.bot_of(place).id}> {text}".rstrip() if mention else text

    def _say(
        self,
        channel: str,
        user: str,
        text: str,
        thread_ts: str | None,
        *,
        broadcast: bool = False,
        files: list[File] | None = None,
        attachments: list[JsonObject] | None = None,
    ) -> str:
        subtype = "file_share" if files else "thread_broadcast" if broadcast else ""
        message = Message(
            ts=self._world.mint_ts(),
            channel=channel,
            author=user,
            text=text,
            blocks=rich_text(text) if text else [],
            thread_ts=thread_ts,
            broadcast=broadcast,
            files=files or [],
            attachments=attachments or [],
            subtype=subtype,
        )
        self._publish(message)
        return message.ts

    def _publish(self, message: Message) -> None:
        self._world.add_message(message)
        channel = self._world.channels[message.channel]
        self._tell(message, message_event(self._world, message))
        if f"<@{self._world.bot_of(channel).id}>" in message.text and channel.kind is not ChannelKind.DIRECT:
            self._tell(message, mention_event(self._world, message))

    def _tell(self, message: Message, event: JsonObject) -> None:
        """Deliver an event about a message, if the bot is where it happened."""
        channel = self._world.channels[message.channel]
        if self._world.bot_of(channel).id in channel.members:
            self._core.emit(self._world.workspaces[channel.team], event)

    def _message(self, channel: str, ts: str) -> Message:
        message = self._world.channels[channel].messages.get(ts)
        if message is None or message.deleted:
            raise AssertionError(f"there is no message {ts} in {channel}")
        return message

    def _trigger(self) -> str:
        return f"{self._world.number()}.emulated"

    def _pressed(self, message: Message, person: User, button: Button) -> JsonObject:
        channel: Channel = self._world.channels[message.channel]
        workspace = self._world.workspaces[channel.team]
        container: JsonObject = {
            "type": "message",
            "message_ts": message.ts,
            "channel_id": channel.id,
            "is_ephemeral": bool(message.visible_to),
        }
        if message.thread_ts:
            container["thread_ts"] = message.thread_ts
        payload: JsonObject = {
            "type": "block_actions",
            "user": {"id": person.id, "username": person.name, "name": person.name, "team_id": person.team},
            "api_app_id": self._world.app_id,
            "token": "verification-token",
            "container": container,
            "trigger_id": self._trigger(),
            "team": team_json(workspace),
            "enterprise": None,
            "is_enterprise_install": False,
            "channel": {"id": channel.id, "name": channel_json(channel, workspace.bot).get("name", "directmessage")},
            "state": {"values": {}},
            "response_url": f"{self._url()}/actions/{self._responses.mint(channel.id, person.id, message.ts)}",
            "actions": [self._action(button)],
        }
        if not message.visible_to:
            payload["message"] = message_json(self._world, message)
        return payload

    def _action(self, button: Button) -> JsonObject:
        action: JsonObject = {
            "action_id": button.action_id,
            "block_id": button.block_id,
            "type": button.kind,
            "action_ts": self._world.mint_ts(),
        }
        text = {"type": "plain_text", "text": button.text, "emoji": True}
        if button.kind in ("static_select", "radio_buttons", "overflow"):
            return action | {"selected_option": {"text": text, "value": button.value}}
        return action | {"text": text, "value": button.value}

    def _command_done(self, delivery: Delivery) -> None:
        channel, user = delivery.payload["channel_id"], delivery.payload["user_id"]
        if delivery.state is DeliveryState.ACKED:
            answer = {"text": delivery.answer} if isinstance(delivery.answer, str) else delivery.answer
            if isinstance(answer, dict) and (answer.get("text") or answer.get("blocks")):
                self._responses.answer(channel, user, answer)
            return
        text = f"{delivery.payload['command']} failed with the error “operation_timeout”"
        self._world.add_message(
            Message(ts=self._world.mint_ts(), channel=channel, author=SLACKBOT, text=text, visible_to=user)
        )
