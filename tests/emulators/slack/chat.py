"""chat.postMessage, .update, .delete, .postEphemeral, .getPermalink."""

from __future__ import annotations

import json
from dataclasses import dataclass

from tests.emulators.slack import rules
from tests.emulators.slack.assistant import Assistant
from tests.emulators.slack.blocks import JsonObject, check_blocks, resolved_texts
from tests.emulators.slack.core import ApiCall, Args, Core, Handler
from tests.emulators.slack.errors import Refusal
from tests.emulators.slack.shapes import changed_event, deleted_event, message_event, message_json
from tests.emulators.slack.streams import StreamState
from tests.emulators.slack.world import Channel, Message


@dataclass(frozen=True, slots=True)
class Body:
    """The content arguments that posting and editing share; None is "not given"."""

    text: str | None
    markdown_text: str | None
    blocks: list[JsonObject] | None
    attachments: list[JsonObject] | None

    @property
    def shown(self) -> str:
        return self.markdown_text if self.markdown_text is not None else self.text or ""

    @property
    def spoken(self) -> list[str]:
        """Everything in which Slack would resolve a mention."""
        attached = [str(a.get(key, "")) for a in self.attachments or [] for key in ("pretext", "text", "fallback")]
        return [self.shown, *resolved_texts(self.blocks or []), *attached]


def read_body(args: Args) -> Body:
    """The content of a message; raises `Refusal` for combinations and sizes that Slack does not take."""
    text = args.text("text") if "text" in args.values else None
    markdown_text = args.text("markdown_text") if "markdown_text" in args.values else None
    blocks = args.structure("blocks", "invalid_blocks_format")
    attachments = args.structure("attachments", "invalid_attachments")
    if markdown_text and (text or blocks):
        raise Refusal("markdown_text_conflict", broken="markdown_text together with text or blocks")
    if markdown_text is not None and len(markdown_text) > rules.MARKDOWN_CHARS:
        raise Refusal("msg_too_long", broken=f"markdown_text of {len(markdown_text)} characters")
    if not (text or markdown_text or blocks or attachments):
        raise Refusal("no_text", broken="a message without any content")
    if attachments is not None and not isinstance(attachments, list):
        raise Refusal("invalid_attachments", broken="attachments are not a list")
    return Body(text, markdown_text, check_blocks(blocks) if blocks is not None else None, attachments)


def read_metadata(args: Args) -> JsonObject | None:
    """Message metadata; None when it is not given."""
    metadata = args.structure("metadata", "invalid_metadata_format")
    if metadata is None:
        return None
    if not isinstance(metadata, dict):
        raise Refusal("invalid_metadata_format", broken="metadata is not an object")
    if metadata and not (
        isinstance(metadata.get("event_type"), str) and isinstance(metadata.get("event_payload"), dict)
    ):
        raise Refusal("invalid_metadata_schema", broken="metadata lacks event_type or event_payload")
    if len(json.dumps(metadata).encode()) > rules.METADATA_BYTES:
        raise Refusal("metadata_too_large", broken=f"metadata above {rules.METADATA_BYTES} bytes")
    return metadata


class Chat:
    """The methods of whole messages; streams have a file of their own."""

    def __init__(self, core: Core, assistant: Assistant) -> None:
        self._core = core
        self._world = core.world
        self._assistant = assistant

    def handlers(self) -> dict[str, Handler]:
        return {
            "chat.postMessage": self.post,
            "chat.update": self.update,
            "chat.delete": self.delete,
            "chat.postEphemeral": self.post_ephemeral,
            "chat.getPermalink": self.permalink,
        }

    def post(self, call: ApiCall) -> JsonObject:
        channel = self._destination(call)
        body = read_body(call.args)
        metadata = read_metadata(call.args)
        text = body.shown
        if body.markdown_text is None and len(text) > rules.POST_TEXT_CHARS:
            self._core.break_rule(f"chat.postMessage text of {len(text)} characters was cut to {rules.POST_TEXT_CHARS}")
            text = text[: rules.POST_TEXT_CHARS]
        self._core.judge(call.method, body.spoken)
        root = self._core.thread_root(call, channel)
        broadcast = bool(root) and call.args.flag("reply_broadcast")
        username = call.args.text("username")
        message = Message(
            ts=self._world.mint_ts(),
            channel=channel.id,
            author="" if username else call.bot.id,
            bot_id=call.bot.bot_id,
            text=text,
            markdown=body.markdown_text is not None,
            blocks=body.blocks or [],
            attachments=body.attachments or [],
            metadata=metadata,
            thread_ts=root,
            broadcast=broadcast,
            subtype="bot_message" if username else "thread_broadcast" if broadcast else "",
            username=username,
        )
        self._world.add_message(message)
        self._assistant.replied(channel.id, message.root)
        self._core.emit(call.workspace, message_event(self._world, message))
        return {"channel": channel.id, "ts": message.ts, "message": message_json(self._world, message)}

    def _destination(self, call: ApiCall) -> Channel:
        """The conversation to post to; a person's id means the direct messages with that person."""
        target = call.args.need("channel")
        if target in self._world.users and target not in self._world.channels:
            return self._world.direct(target, call.workspace.id)
        return self._core.channel(call, writing=True)

    def update(self, call: ApiCall) -> JsonObject:
        channel = self._core.channel(call, writing=True)
        message = self._core.own_message(call, channel, not_own="cant_update_message")
        body = read_body(call.args)
        metadata = read_metadata(call.args)
        if body.text is not None and len(body.text) > rules.UPDATE_TEXT_CHARS:
            raise Refusal("msg_too_long", broken=f"chat.update text of {len(body.text)} characters")
        if message.edit_refusal:
            raise Refusal(message.edit_refusal)
        self._check_stream(message)
        self._core.judge(call.method, body.spoken)
        previous = message_json(self._world, message, metadata=True)
        if body.text is not None or body.markdown_text is not None or body.blocks is None:
            message.text = body.shown
            message.markdown = body.markdown_text is not None
        # Text without blocks takes the old blocks away, buttons included.
        message.blocks = body.blocks or []
        if body.attachments is not None:
            message.attachments = body.attachments
        if metadata is not None:
            message.metadata = metadata or None
        if message.stream is not None:
            message.stream.replaced = True
        self._edited(call, message, previous)
        shape = message_json(self._world, message)
        return {"channel": channel.id, "ts": message.ts, "text": message.text, "message": shape}

    def _check_stream(self, message: Message) -> None:
        if message.stream is None:
            return
        match message.stream.state(self._core.clock.now()):
            case StreamState.LIVE:
                raise Refusal("streaming_state_conflict", broken="chat.update of a message that is still streaming")
            case StreamState.STOPPED_BY_USER:
                # A person's Stop freezes the text, but the message leaves the streaming state only by chat.stopStream.
                raise Refusal("streaming_state_conflict")

    def _edited(self, call: ApiCall, message: Message, previous: JsonObject) -> None:
        message.edited_at = self._world.mint_ts()
        self._world.note(message)
        self._core.emit(call.workspace, changed_event(self._world, message, previous, message.edited_at))

    def delete(self, call: ApiCall) -> JsonObject:
        channel = self._core.channel(call)
        message = self._core.own_message(call, channel, not_own="cant_delete_message")
        previous = message_json(self._world, message, metadata=True)
        message.deleted = True
        self._world.note(message)
        self._core.emit(call.workspace, deleted_event(self._world, message, previous, self._world.mint_ts()))
        return {"channel": channel.id, "ts": message.ts}

    def post_ephemeral(self, call: ApiCall) -> JsonObject:
        channel = self._core.channel(call, writing=True)
        user = call.args.need("user")
        if user not in channel.members:
            raise Refusal("user_not_in_channel")
        body = read_body(call.args)
        self._core.judge(call.method, body.spoken)
        message = Message(
            ts=self._world.mint_ts(),
            channel=channel.id,
            author=call.bot.id,
            bot_id=call.bot.bot_id,
            text=body.shown,
            markdown=body.markdown_text is not None,
            blocks=body.blocks or [],
            attachments=body.attachments or [],
            thread_ts=self._core.thread_root(call, channel),
            visible_to=user,
        )
        self._world.add_message(message)
        return {"message_ts": message.ts}

    def permalink(self, call: ApiCall) -> JsonObject:
        channel = self._core.channel(call)
        message = channel.messages.get(call.args.need("message_ts"))
        if message is None or message.deleted:
            raise Refusal("message_not_found")
        link = f"https://{call.workspace.name}.slack.com/archives/{channel.id}/p{message.ts.replace('.', '')}"
        if message.thread_ts:
            link += f"?thread_ts={message.thread_ts}&cid={channel.id}"
        return {"channel": channel.id, "permalink": link}
