"""What Slack brings, as what a person did.

One act may come as several deliveries (retries; a mention as `message` and `app_mention`): they share a key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from adapters.slack.dress import asked_by
from adapters.slack.names import Names
from adapters.slack.spot import ROOT_ALIAS, moment
from adapters.slack.text import mentioned, mentions, readable, without_address
from channels.clock import Clock
from channels.commands import CommandName, parse_command
from channels.model import Attachment, Inbound, InboundKind, Place, Press, Sender
from channels.shapes import as_count, as_list, as_object, as_text
from config.slack import DirectReplies

Json = Mapping[str, JsonValue]

_NEW_MESSAGE = frozenset({"", "file_share", "thread_broadcast", "bot_message", "me_message"})
"""Subtypes of messages that somebody has written; the others report joins, topics and the like."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose event it is: the workspace, and the app with its bot user as the event names them."""

    team: str
    app: str
    bot: str

    @classmethod
    def of(cls, body: Json, bot: str) -> Origin:
        """`bot` is the bot's user id as far as it is known otherwise."""
        for item in as_list(body.get("authorizations")):
            granted = as_object(item)
            if granted.get("is_bot"):
                bot = as_text(granted.get("user_id")) or bot
        team = as_text(body.get("team_id")) or as_text(as_object(body.get("team")).get("id"))
        return cls(team, as_text(body.get("api_app_id")), bot)


class Intake:
    """Reads one channel's deliveries. Nothing here is acked or stored."""

    def __init__(self, channel: str, names: Names, clock: Clock, dm_replies: DirectReplies) -> None:
        self._channel = channel
        self._names = names
        self._clock = clock
        self._dm_in_threads = dm_replies is DirectReplies.THREAD

    async def read(self, body: Json, bot: str) -> Inbound | None:
        """The inbound in the body of a delivery, None when it holds nothing for the bridge."""
        origin = Origin.of(body, bot)
        match body.get("type"):
            case "event_callback":
                return await self._event(as_object(body.get("event")), origin)
            case "block_actions":
                return await self._pressed(body, origin)
        return await self._command(body, origin) if body.get("command") else None

    async def _event(self, event: Json, origin: Origin) -> Inbound | None:
        match event.get("type"):
            case "app_mention":
                return await self._message(event, origin)
            case "message":
                subtype = as_text(event.get("subtype"))
                if subtype in _NEW_MESSAGE:
                    return await self._message(event, origin)
                if subtype == "message_changed":
                    return self._changed(event, origin)
                if subtype == "message_deleted":
                    return self._deleted(event, as_object(event.get("previous_message")), origin)
            case "agent_session_stopped":
                return self._stopped(event, origin)
        return None

    # ---------------------------------------------------------------- messages

    async def _message(self, event: Json, origin: Origin) -> Inbound | None:
        channel, ts = as_text(event.get("channel")), as_text(event.get("ts"))
        if not channel or not ts or self._is_own(event, origin):
            return None
        encoded = as_text(event.get("text"))
        user = as_text(event.get("user"))
        bot = as_text(event.get("bot_id"))
        addressed = without_address(encoded, origin.bot)
        passed_on = [as_object(item) for item in as_list(event.get("attachments"))]
        words = _joined(*map(_words, passed_on))
        users, channels = mentioned(f"{addressed} {words}")
        people, places = await self._names.of([*users, user] if user else users, channels)
        attachments = tuple(file for source in (event, *passed_on) for file in _files(source))
        text = _joined(readable(addressed, people, places).strip(), *_links(event))
        quote = _joined(readable(words, people, places).strip(), *(link for item in passed_on for link in _links(item)))
        if not text and not attachments and not quote:
            text = f"/{CommandName.HELP}"  # nothing but a mention
        place, extra = self._where(event, channel, ts, origin)
        extra["user_team"] = as_text(event.get("user_team")) or as_text(event.get("team")) or origin.team
        name = people.get(user) or as_text(event.get("username"))
        return Inbound(
            place=place,
            sender=Sender(user or bot, name, is_bot=bool(bot)),
            event_key=f"{origin.team}:{channel}:{ts}",
            kind=InboundKind.MESSAGE,
            text=text,
            received_at=self._clock.now(),
            sent_at=moment(ts) or None,
            message_id=ts,
            attachments=attachments,
            mentions_bot=event.get("type") == "app_mention" or mentions(encoded, origin.bot),
            reply_to=_reply_to(event),
            quote=quote,
            extra=extra,
        )

    def _where(self, event: Json, channel: str, ts: str, origin: Origin) -> tuple[Place, dict[str, JsonValue]]:
        """The place of a message, and where it is answered."""
        thread = as_text(event.get("thread_ts"))
        is_private = _is_private(event, channel)
        extra: dict[str, JsonValue] = {"team": origin.team, "since": ts}
        if is_private:
            answer_in = thread or (ts if self._dm_in_threads else "")
            return Place(self._channel, channel, thread or None, private=True), extra | {"thread": answer_in}
        root = thread or ts  # a message in a channel opens a thread under itself
        return Place(self._channel, channel, root), extra | {"thread": root}

    def _changed(self, event: Json, origin: Origin) -> Inbound | None:
        message = as_object(event.get("message"))
        previous = as_object(event.get("previous_message"))
        if message.get("subtype") == "tombstone":  # how the root of a thread with replies is deleted
            return self._deleted({**event, "deleted_ts": message.get("ts")}, previous, origin)
        if self._is_own(message, origin) or message.get("text") == previous.get("text"):
            return None
        return self._about(event, message, origin, InboundKind.EDITED, f"edit:{as_text(event.get('ts'))}")

    def _deleted(self, event: Json, previous: Json, origin: Origin) -> Inbound | None:
        if self._is_own(previous, origin):
            return None
        message = {**previous, "ts": as_text(event.get("deleted_ts")) or as_text(previous.get("ts"))}
        return self._about(event, message, origin, InboundKind.DELETED, f"deleted:{as_text(event.get('ts'))}")

    def _about(self, event: Json, message: Json, origin: Origin, kind: InboundKind, key: str) -> Inbound | None:
        channel, ts = as_text(event.get("channel")), as_text(message.get("ts"))
        if not channel or not ts:
            return None
        place, extra = self._where({**message, "channel_type": event.get("channel_type")}, channel, ts, origin)
        user, bot = as_text(message.get("user")), as_text(message.get("bot_id"))
        return Inbound(
            place=place,
            sender=Sender(user or bot, is_bot=bool(bot)),
            event_key=f"{origin.team}:{channel}:{key}",
            kind=kind,
            text="",
            received_at=self._clock.now(),
            message_id=ts,
            reply_to=_reply_to(message),
            extra=extra,
        )

    def _stopped(self, event: Json, origin: Origin) -> Inbound | None:
        channel, thread = as_text(event.get("channel")), as_text(event.get("thread_ts"))
        if not channel:
            return None
        streams = [as_text(ts) for ts in as_list(event.get("streaming_message_ts")) if as_text(ts)]
        return Inbound(
            place=Place(self._channel, channel, thread or None, private=_is_private(event, channel)),
            sender=Sender(as_text(event.get("user"))),
            event_key=f"stop:{origin.team}:{channel}:{as_text(event.get('event_ts')) or ','.join(streams)}",
            kind=InboundKind.STOPPED,
            text="",
            received_at=self._clock.now(),
            message_id=streams[0] if streams else "",
            reply_to=streams[0] if streams else (ROOT_ALIAS + thread if thread else None),
            extra={"team": origin.team, "thread": thread},
        )

    @staticmethod
    def _is_own(message: Json, origin: Origin) -> bool:
        own_app = bool(origin.app) and message.get("app_id") == origin.app
        return own_app or (bool(origin.bot) and message.get("user") == origin.bot)

    # ---------------------------------------------------------------- buttons and commands

    async def _pressed(self, body: Json, origin: Origin) -> Inbound | None:
        action = next((as_object(item) for item in as_list(body.get("actions"))), {})
        value = as_text(action.get("value")) or as_text(as_object(action.get("selected_option")).get("value"))
        press = Press.decode(value)
        container = as_object(body.get("container"))
        channel = as_text(container.get("channel_id")) or as_text(as_object(body.get("channel")).get("id"))
        ts = as_text(container.get("message_ts"))
        user = as_object(body.get("user"))
        if press is None or not channel or not ts:
            return None
        thread = as_text(container.get("thread_ts")) or as_text(as_object(body.get("message")).get("thread_ts"))
        people, _ = await self._names.of([as_text(user.get("id"))], [])
        event: Json = {"thread_ts": thread}
        place, extra = self._where(event, channel, ts, origin)
        if place.private and not thread:
            extra["thread"] = ""  # the answer comes where the buttons are
        extra["user_team"] = as_text(user.get("team_id")) or origin.team
        person = as_text(user.get("id"))
        return Inbound(
            place=place,
            sender=Sender(person, people.get(person) or as_text(user.get("name"))),
            event_key=f"a:{origin.team}:{ts}:{as_text(action.get('action_ts'))}:{person}",
            kind=InboundKind.PRESS,
            text="",
            received_at=self._clock.now(),
            message_id=ts,
            reply_to=ts if ts != place.thread else ROOT_ALIAS + ts,
            press=press,
            comes_again=False,
            extra=extra,
        )

    async def _command(self, body: Json, origin: Origin) -> Inbound | None:
        """A slash command: one of the bridge's own words, or else a question that only the bot has seen."""
        channel, user = as_text(body.get("channel_id")), as_text(body.get("user_id"))
        typed = as_text(body.get("text"))
        users, channels = mentioned(typed)
        people, places = await self._names.of([*users, user], channels)
        text = readable(typed, people, places).strip()
        typed_command = "/" + (text.lstrip("/!") or CommandName.HELP)
        command = parse_command(typed_command)
        is_ours = command is not None and (not command.argument or command.name is CommandName.PAIR)
        if is_ours:
            text = typed_command
        now = self._clock.now()
        name = people.get(user) or as_text(body.get("user_name"))
        is_private = channel.startswith("D")
        extra: dict[str, JsonValue] = {
            "team": origin.team,
            "user_team": origin.team,
            "thread": "",
            "since": f"{now - 60.0:.6f}",
            "response_url": as_text(body.get("response_url")),
        }
        if not is_ours and not is_private:
            extra["intro"] = asked_by(name or user, text)
        return Inbound(
            place=Place(self._channel, channel, private=is_private),
            sender=Sender(user, name),
            event_key=as_text(body.get("trigger_id")) or f"slash:{channel}:{user}:{now}",
            kind=InboundKind.COMMAND if is_ours else InboundKind.MESSAGE,
            text=text,
            received_at=now,
            message_id=as_text(body.get("trigger_id")),
            mentions_bot=True,
            comes_again=False,
            extra=extra,
        )


def _is_private(event: Json, channel: str) -> bool:
    kind = as_text(event.get("channel_type"))
    return kind == "im" if kind else channel.startswith("D")


def _reply_to(message: Json) -> str | None:
    thread = as_text(message.get("thread_ts"))
    return ROOT_ALIAS + thread if thread and thread != message.get("ts") else None


def _words(attachment: Json) -> str:
    """What a message that is passed on says, or a card of another app: encoded as all of Slack's text is."""
    parts = [as_text(attachment.get(key)).strip() for key in ("pretext", "title", "text")]
    said = "\n".join(part for part in parts if part) or as_text(attachment.get("fallback")).strip()
    author = as_text(attachment.get("author_name")).strip()
    return f"{author}: {said}" if author and said else said


def _joined(*parts: str) -> str:
    return "\n\n".join(filter(None, parts))


def _files(message: Json) -> Iterator[Attachment]:
    """The files of a message that Slack keeps, or has kept: one that is gone cannot be fetched, and is named for it."""
    for item in as_list(message.get("files")):
        file = as_object(item)
        if file.get("is_external"):
            continue
        url = as_text(file.get("url_private_download")) or as_text(file.get("url_private"))
        reference: dict[str, JsonValue] = {"id": file.get("id"), "url": url}
        yield Attachment(
            name=_file_name(file),
            mime=as_text(file.get("mimetype")) or "application/octet-stream",
            reference=reference,
            size=as_count(file.get("size")) or None,
        )


def _links(message: Json) -> Iterator[str]:
    """The files of a message that lie elsewhere: as Markdown, for only the person can open them."""
    for item in as_list(message.get("files")):
        file = as_object(item)
        if file.get("is_external"):
            name, url = _file_name(file), as_text(file.get("url_private"))
            yield f"[{name}]({url})" if url else name


def _file_name(file: Json) -> str:
    return as_text(file.get("name")) or as_text(file.get("title")) or as_text(file.get("id")) or "file"
