"""chat.startStream, .appendStream and .stopStream."""

from __future__ import annotations

from tests.emulators.slack import rules
from tests.emulators.slack.assistant import Assistant
from tests.emulators.slack.blocks import JsonObject, check_blocks
from tests.emulators.slack.chat import read_metadata
from tests.emulators.slack.core import ApiCall, Core, Handler
from tests.emulators.slack.errors import Refusal
from tests.emulators.slack.shapes import changed_event, message_event, message_json
from tests.emulators.slack.streams import Stream, StreamState, read_content
from tests.emulators.slack.text import broadcasts
from tests.emulators.slack.world import Channel, ChannelKind, Message


class ChatStreams:
    """The streaming state machine at the API. Text is judged after every call, as people would see it then."""

    def __init__(self, core: Core, assistant: Assistant) -> None:
        self._core = core
        self._world = core.world
        self._assistant = assistant

    def handlers(self) -> dict[str, Handler]:
        return {"chat.startStream": self.start, "chat.appendStream": self.append, "chat.stopStream": self.stop}

    def start(self, call: ApiCall) -> JsonObject:
        channel = self._core.channel(call, writing=True)
        recipient = self._check_place(call, channel)
        content = read_content(call.args.values.get("markdown_text"), _chunks(call))
        mode = call.args.text("task_display_mode") or "timeline"
        if mode not in rules.TASK_DISPLAY_MODES:
            raise Refusal("invalid_arguments", broken=f"unknown task_display_mode {mode!r}")
        root = self._core.thread_root(call, channel)
        if call.args.text("thread_ts") and root is None:
            raise Refusal("invalid_thread_ts")
        stream = Stream(
            started_at=call.at,
            lifetime=self._core.settings.stream_seconds,
            ceiling=self._core.settings.stream_bytes,
            recipient=recipient,
            display_mode=mode,
        )
        stream.take(content)
        self._judge(call, stream)
        message = Message(
            ts=self._world.mint_ts(),
            channel=channel.id,
            author=call.bot.id,
            bot_id=call.bot.bot_id,
            thread_ts=root,
            markdown=True,
            stream=stream,
            username=call.args.text("username"),
        )
        self._world.add_message(message)
        self._assistant.replied(channel.id, message.root)
        self._core.emit(call.workspace, message_event(self._world, message))
        return {"channel": channel.id, "ts": message.ts}

    def _check_place(self, call: ApiCall, channel: Channel) -> str:
        """The recipient; raises `Refusal` where this place or this person cannot have a stream."""
        team, user = call.args.text("recipient_team_id"), call.args.text("recipient_user_id")
        refusal = channel.stream_refusals.get(user) or channel.stream_refusals.get("")
        if refusal:
            raise Refusal(refusal)
        if channel.kind is ChannelKind.DIRECT:
            if not call.args.text("thread_ts"):
                complaint = "missing required field: thread_ts"
                raise Refusal(
                    "invalid_arguments",
                    broken="a stream in direct messages without thread_ts",
                    messages=[f"[ERROR] {complaint}"],
                )
            return user or next(iter(channel.members - {call.bot.id}), "")
        if not team:
            raise Refusal("missing_recipient_team_id", broken="a stream in a channel without recipient_team_id")
        if not user:
            raise Refusal("missing_recipient_user_id", broken="a stream in a channel without recipient_user_id")
        person = self._world.users.get(user)
        if person is None or person.team not in (team, call.workspace.id):
            raise Refusal("user_not_found")
        if team != person.team:
            raise Refusal("team_not_found")
        if person.team != call.workspace.id:
            # People from another organisation cannot be streamed to (reported of real workspaces).
            raise Refusal("user_not_found")
        return user

    def append(self, call: ApiCall) -> JsonObject:
        message, stream = self._find(call)
        self._check_live(call, stream)
        content = read_content(call.args.values.get("markdown_text"), _chunks(call))
        if content.is_empty:
            raise Refusal("no_text", broken="chat.appendStream without any content")
        stream.take(content)
        self._judge(call, stream)
        self._world.note(message)
        return {"channel": message.channel, "ts": message.ts}

    def stop(self, call: ApiCall) -> JsonObject:
        message, stream = self._find(call)
        state = stream.state(call.at)
        if state in (StreamState.STOPPED, StreamState.EXPIRED):
            stream.told = True
            raise Refusal("message_not_in_streaming_state")
        refusals = self._world.channels[message.channel].end_refusals
        if refusal := refusals.get(stream.recipient) or refusals.get(""):
            raise Refusal(refusal)
        content = read_content(call.args.values.get("markdown_text"), _chunks(call))
        blocks = call.args.structure("blocks", "invalid_blocks_format")
        final_blocks = check_blocks(blocks, too_many="msg_blocks_too_many") if blocks is not None else []
        metadata = read_metadata(call.args)
        status = call.args.text("session_status")
        if status and status not in rules.SESSION_STATES:
            raise Refusal("invalid_arguments", broken=f"unknown session status {status!r}")
        previous = message_json(self._world, message, metadata=True)
        stream.take(content)
        stream.final_blocks = final_blocks
        stream.ended = StreamState.STOPPED
        self._judge(call, stream)
        if metadata is not None:
            message.metadata = metadata
        if stream.open_tasks:
            self._core.break_rule(f"task left open when the stream was stopped: {', '.join(stream.open_tasks)}")
        if status and self._core.settings.sessions:
            self._assistant.turn_session((message.channel, message.root), status)
        self._world.note(message)
        self._core.emit(call.workspace, changed_event(self._world, message, previous, self._world.mint_ts()))
        return {"channel": message.channel, "ts": message.ts, "message": message_json(self._world, message)}

    def _find(self, call: ApiCall) -> tuple[Message, Stream]:
        channel = self._core.channel(call, writing=True)
        message = self._core.own_message(call, channel, not_own="message_not_owned_by_app")
        if message.stream is None or message.stream.replaced:
            raise Refusal("message_not_in_streaming_state", broken=f"{call.method} of a message that is no stream")
        return message, message.stream

    def _check_live(self, call: ApiCall, stream: Stream) -> None:
        state = stream.state(call.at)
        if state is StreamState.LIVE:
            return
        broken = ""
        if stream.told:
            broken = "appended again to a stream that was known to have ended"
        elif stream.ended is StreamState.STOPPED:
            broken = "appended to a stream that the app itself had stopped"
        elif stream.ended is None:
            broken = f"appended to a stream older than {stream.lifetime:g} s"
        stream.told = True
        error = "stopped_by_user" if state is StreamState.STOPPED_BY_USER else "message_not_in_streaming_state"
        raise Refusal(error, broken=broken)

    def _judge(self, call: ApiCall, stream: Stream) -> None:
        """Blame each live broadcast mention once, also when it came together from two calls."""
        found = broadcasts(stream.spoken())
        for mention in found[stream.broadcasts :]:
            self._core.break_rule(f"{call.method} carries a live broadcast mention {mention}")
        stream.broadcasts = max(stream.broadcasts, len(found))


def _chunks(call: ApiCall) -> object:
    return call.args.structure("chunks", "invalid_chunks")
