"""Slack's numbers and tables, in one place to be checked against the vendor's pages.

Sources: the method pages under docs.slack.dev/reference/methods (tiers, scopes, argument limits),
docs.slack.dev/apis/web-api/rate-limits, docs.slack.dev/apis/events-api (acks and retries), and, where the vendor is
silent, measurements that others published (marked "measured").
"""

from __future__ import annotations

from dataclasses import dataclass

# --- rates -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Window:
    """At most `count` calls within any `seconds`, for one method of one app in one workspace."""

    count: int
    seconds: float = 60.0


TIER_2 = Window(20)
TIER_3 = Window(50)
TIER_4 = Window(100)
SPECIAL = Window(600)
"""Methods whose page says "special": several hundred a minute."""

POST_WORKSPACE = Window(300)
"""chat.postMessage, all channels together: "several hundred messages per minute"."""
POST_CHANNEL_PER_SECOND = 1.0
POST_CHANNEL_BURST = 3
"""chat.postMessage, one channel: one a second, short bursts above it are let through."""
REDUCED_HISTORY = Window(1)
REDUCED_HISTORY_PAGE = 15
"""conversations.history and .replies for commercial apps outside the Marketplace made since 2025-05-29."""


@dataclass(frozen=True, slots=True)
class Method:
    """What the vendor's page of one method says: its rate, the scopes of which one is needed, how it may be called."""

    rate: Window
    scopes: tuple[str, ...] = ()
    takes_json: bool = True
    token: str = "bot"


CHANNEL_KIND_SCOPE = "<kind>"
"""In a scope: replaced by channels, groups, im or mpim, by the conversation that the call names."""

METHODS: dict[str, Method] = {
    "agents.sessions.rename": Method(TIER_3, ("chat:write",)),
    "agents.sessions.setStatus": Method(TIER_3, ("chat:write",)),
    "apps.connections.open": Method(TIER_3, ("connections:write",), token="app"),
    "assistant.threads.setStatus": Method(SPECIAL, ("chat:write", "assistant:write")),
    "assistant.threads.setSuggestedPrompts": Method(TIER_4, ("assistant:write",)),
    "assistant.threads.setTitle": Method(TIER_4, ("assistant:write",)),
    "auth.test": Method(SPECIAL, token="any"),
    "bots.info": Method(TIER_3, ("users:read",), takes_json=False),
    "chat.appendStream": Method(TIER_4, ("chat:write",)),
    "chat.delete": Method(TIER_3, ("chat:write",)),
    "chat.getPermalink": Method(SPECIAL, takes_json=False),
    "chat.postEphemeral": Method(TIER_4, ("chat:write",)),
    "chat.postMessage": Method(POST_WORKSPACE, ("chat:write",)),
    "chat.startStream": Method(TIER_2, ("chat:write",)),
    "chat.stopStream": Method(TIER_2, ("chat:write",)),
    "chat.update": Method(TIER_3, ("chat:write",)),
    "conversations.history": Method(TIER_3, ("<kind>:history",), takes_json=False),
    "conversations.info": Method(TIER_3, ("<kind>:read",), takes_json=False),
    "conversations.open": Method(TIER_3, ("im:write", "mpim:write")),
    "conversations.replies": Method(TIER_3, ("<kind>:history",), takes_json=False),
    "files.completeUploadExternal": Method(TIER_4, ("files:write",)),
    "files.getUploadURLExternal": Method(TIER_4, ("files:write",), takes_json=False),
    "files.info": Method(TIER_4, ("files:read",), takes_json=False),
    "reactions.add": Method(TIER_3, ("reactions:write",)),
    "reactions.remove": Method(TIER_2, ("reactions:write",)),
    "team.info": Method(TIER_3, ("team:read",), takes_json=False),
    "users.conversations": Method(TIER_3, ("channels:read", "groups:read", "im:read", "mpim:read"), takes_json=False),
    "users.info": Method(TIER_4, ("users:read",), takes_json=False),
    "views.publish": Method(TIER_4),
}

BOT_SCOPES = (
    "app_mentions:read",
    "assistant:write",
    "channels:history",
    "channels:read",
    "chat:write",
    "commands",
    "files:read",
    "files:write",
    "groups:history",
    "groups:read",
    "im:history",
    "im:read",
    "im:write",
    "mpim:history",
    "mpim:read",
    "mpim:write",
    "reactions:write",
    "team:read",
    "users:read",
)
"""What the emulated app is granted unless a test says otherwise."""

# --- sizes -----------------------------------------------------------------------------------------------------

MARKDOWN_CHARS = 12_000
"""`markdown_text` of one call; also all `markdown` blocks of one payload together."""
POST_TEXT_CHARS = 40_000
"""chat.postMessage cuts `text` here."""
UPDATE_TEXT_CHARS = 4_000
"""chat.update refuses `text` above this with msg_too_long."""
STREAM_BYTES = 10_600
"""One streamed message in UTF-8 bytes (measured: 10,571 passed, 10,821 did not)."""
STREAM_DETAIL_WEIGHT = 2
"""How much a byte of a task's details or output counts towards that (measured)."""
STREAM_SECONDS = 300.0
"""Age at which Slack ends a stream by itself (measured; undocumented)."""
MESSAGE_BLOCKS = 50
METADATA_BYTES = 8_000
SESSION_TITLE_CHARS = 200
LOADING_MESSAGES = 10
SUGGESTED_PROMPTS = 4
STATUS_SECONDS = 120.0
TASK_STATES = ("pending", "in_progress", "complete", "error")
OPEN_TASK_STATES = ("pending", "in_progress")
SESSION_STATES = ("active", "processing", "suspended", "closed")
TASK_DISPLAY_MODES = ("timeline", "plan")

# --- deliveries ------------------------------------------------------------------------------------------------

ACK_SECONDS = 3.0
RETRY_DELAYS = (1.0, 60.0, 300.0)
"""An event that was not acked comes again nearly at once, after a minute and after five; then Slack gives up."""
TICKET_SECONDS = 30.0
"""How long the address from apps.connections.open can be used, once."""
SOCKETS_PER_APP = 10
REFRESH_CLOSE_SECONDS = 10.0
"""Time between a `disconnect` frame and the close of that socket."""
RESPONSE_URL_USES = 5
RESPONSE_URL_SECONDS = 1_800.0

EVENT_TYPES = (
    "agent_session_stopped",
    "app_home_opened",
    "app_mention",
    "assistant_thread_context_changed",
    "assistant_thread_started",
    "member_joined_channel",
    "message.channels",
    "message.groups",
    "message.im",
    "message.mpim",
    "reaction_added",
    "reaction_removed",
)
"""What the emulated app subscribes to unless a test says otherwise."""
