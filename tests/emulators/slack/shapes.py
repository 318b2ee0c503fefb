"""The JSON that Slack shows of what exists: in answers, in events and in interactive payloads."""

from __future__ import annotations

from tests.emulators.slack.blocks import JsonObject
from tests.emulators.slack.world import Channel, ChannelKind, File, Message, User, Workspace, World


def message_json(world: World, message: Message, *, metadata: bool = False) -> JsonObject:
    """A message as history, events and interactive payloads carry it; `metadata` only where it was asked for.

    What a streamed message says, and whether it still runs, is not told: no vendor's page promises it.
    """
    channel = world.channels[message.channel]
    shape: JsonObject = {"type": "message", "ts": message.ts, "text": message.text}
    if message.deleted:
        tombstone = {"subtype": "tombstone", "text": "This message was deleted.", "user": "USLACKBOT", "hidden": True}
        return shape | tombstone | _thread_fields(message, channel)
    if message.subtype:
        shape["subtype"] = message.subtype
    if message.author:
        shape["user"] = message.author
        shape["team"] = world.users[message.author].team
    if message.bot_id:
        shape |= _bot_fields(world, message, channel)
    elif message.author:
        shape["client_msg_id"] = f"00000000-0000-4000-8000-{int(message.ts.replace('.', '')) % 10**12:012d}"
    if message.username:
        shape["username"] = message.username
    blocks = message.blocks
    if message.stream is not None and not message.stream.replaced:
        blocks = message.stream.blocks
    if blocks:
        shape["blocks"] = blocks
    if message.attachments:
        shape["attachments"] = message.attachments
    if message.files:
        shape["files"] = [file_json(file) for file in message.files]
    if message.edited_at:
        shape["edited"] = {"user": message.author, "ts": message.edited_at}
    if metadata and message.metadata is not None:
        shape["metadata"] = message.metadata
    if message.reactions:
        shape["reactions"] = [
            {"name": name, "users": users, "count": len(users)} for name, users in message.reactions.items() if users
        ]
    return shape | _thread_fields(message, channel)


def shared_json(world: World, message: Message) -> JsonObject:
    """The attachment under which a message is passed on to another conversation."""
    author = world.users[message.author]
    text = message.text or message.visible
    shape: JsonObject = {
        "id": 1,
        "is_share": True,
        "ts": message.ts,
        "channel_id": message.channel,
        "author_id": author.id,
        "author_name": author.real_name or author.name,
        "text": text,
        "fallback": f"[no date] {author.name}: {text}",
        "mrkdwn_in": ["text"],
    }
    if message.files:
        shape["files"] = [file_json(file) for file in message.files]
    return shape


def _bot_fields(world: World, message: Message, channel: Channel) -> JsonObject:
    fields: JsonObject = {"bot_id": message.bot_id}
    if message.bot_id == world.bot_of(channel).bot_id:
        fields["app_id"] = world.app_id
    if message.author:
        name = world.users[message.author].name
        fields["bot_profile"] = {"id": message.bot_id, "name": name, "team_id": channel.team, "deleted": False}
    return fields


def _thread_fields(message: Message, channel: Channel) -> JsonObject:
    if message.thread_ts:
        root = channel.messages.get(message.thread_ts)
        return {"thread_ts": message.thread_ts, "parent_user_id": root.author if root else "USLACKBOT"}
    replies = channel.replies(message.ts)
    if not replies:
        return {}
    people = sorted({reply.author for reply in replies if reply.author})
    return {
        "thread_ts": message.ts,
        "reply_count": len(replies),
        "reply_users": people,
        "reply_users_count": len(people),
        "latest_reply": replies[-1].ts,
    }


def channel_json(channel: Channel, bot: User) -> JsonObject:
    kind = channel.kind
    shape: JsonObject = {
        "id": channel.id,
        "created": 1_700_000_000,
        "context_team_id": channel.team,
        "is_channel": kind is ChannelKind.PUBLIC,
        "is_group": kind is ChannelKind.PRIVATE,
        "is_im": kind is ChannelKind.DIRECT,
        "is_mpim": kind is ChannelKind.GROUP_DIRECT,
        "is_private": kind is not ChannelKind.PUBLIC,
        "is_archived": channel.archived,
        "is_ext_shared": channel.shared,
        "is_org_shared": False,
    }
    if kind is ChannelKind.DIRECT:
        return shape | {"user": next(iter(channel.members - {bot.id}), bot.id), "is_user_deleted": False}
    return shape | {
        "name": channel.name,
        "name_normalized": channel.name,
        "is_member": bot.id in channel.members,
        "num_members": len(channel.members),
        "topic": {"value": "", "creator": "", "last_set": 0},
        "purpose": {"value": "", "creator": "", "last_set": 0},
    }


def user_json(user: User, team: str) -> JsonObject:
    name = user.real_name or user.name
    shape: JsonObject = {
        "id": user.id,
        "team_id": user.team,
        "name": user.name,
        "real_name": name,
        "deleted": user.deleted,
        "tz": user.timezone,
        "is_bot": bool(user.bot_id),
        "is_stranger": user.team != team,
        "profile": {"display_name": user.name, "real_name": name, "team": user.team},
    }
    if user.bot_id:
        shape["profile"]["bot_id"] = user.bot_id
    return shape


def file_json(file: File) -> JsonObject:
    return {
        "id": file.id,
        "name": file.name,
        "title": file.title or file.name,
        "mimetype": file.mimetype,
        "filetype": file.name.rpartition(".")[2] or "binary",
        "user": file.owner,
        "size": len(file.content),
        "mode": "hosted",
        "is_external": False,
        "file_access": "visible",
        "url_private": file.url,
        "url_private_download": file.url,
    }


def team_json(workspace: Workspace) -> JsonObject:
    return {"id": workspace.id, "name": workspace.name, "domain": workspace.name}


def event_payload(world: World, workspace: Workspace, event: JsonObject, event_id: str, event_time: int) -> JsonObject:
    """The outer event as both Socket Mode and HTTP carry it."""
    return {
        "token": "verification-token",
        "team_id": workspace.id,
        "context_team_id": workspace.id,
        "context_enterprise_id": None,
        "api_app_id": world.app_id,
        "event": event,
        "type": "event_callback",
        "event_id": event_id,
        "event_time": event_time,
        "authorizations": [
            {
                "enterprise_id": None,
                "team_id": workspace.id,
                "user_id": workspace.bot.id,
                "is_bot": True,
                "is_enterprise_install": False,
            }
        ],
        "is_ext_shared_channel": False,
        "event_context": f"4-{event_id}",
    }


def message_event(world: World, message: Message) -> JsonObject:
    """The `message` event of a new message."""
    channel = world.channels[message.channel]
    shape = message_json(world, message, metadata=True)
    return shape | {"channel": channel.id, "channel_type": channel.kind.value, "event_ts": message.ts}


def mention_event(world: World, message: Message) -> JsonObject:
    """The `app_mention` event that comes next to the `message` event of the same message."""
    event = message_event(world, message) | {"type": "app_mention"}
    del event["channel_type"]
    return event


def changed_event(world: World, message: Message, previous: JsonObject, event_ts: str) -> JsonObject:
    """`message_changed`; also what the deletion of a thread's root with replies looks like (a tombstone)."""
    return _about(world, message, event_ts, "message_changed") | {
        "message": message_json(world, message, metadata=True),
        "previous_message": previous,
    }


def deleted_event(world: World, message: Message, previous: JsonObject, event_ts: str) -> JsonObject:
    return _about(world, message, event_ts, "message_deleted") | {
        "deleted_ts": message.ts,
        "previous_message": previous,
    }


def _about(world: World, message: Message, event_ts: str, subtype: str) -> JsonObject:
    channel = world.channels[message.channel]
    return {
        "type": "message",
        "subtype": subtype,
        "hidden": True,
        "channel": channel.id,
        "channel_type": channel.kind.value,
        "ts": event_ts,
        "event_ts": event_ts,
    }
