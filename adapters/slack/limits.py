"""Slack's numbers as this adapter plans with them, to be checked against the vendor's pages.

Rates are per method, app and workspace (docs.slack.dev/apis/web-api/rate-limits: tier 2 is 20 a minute, tier 3 is 50,
tier 4 is 100; chat.postMessage one a second for each channel and several hundred a minute for all of them).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from channels.adapter import Budget, Draw

START = "chat.startStream"
APPEND = "chat.appendStream"
STOP = "chat.stopStream"
POST = "chat.postMessage"
POST_CHANNEL = "chat.postMessage/channel"
UPDATE = "chat.update"
DELETE = "chat.delete"
REPLIES = "conversations.replies"
HISTORY = "conversations.history"
RESPONSE = "response_url"
UPLOAD = "files.getUploadURLExternal"
SHARE = "files.completeUploadExternal"

BUDGETS: Mapping[str, Budget] = MappingProxyType(
    {
        # What makes answers grow has no burst: it would be missing a minute later, in a gap that every reader sees.
        START: Budget(20, 60.0, burst=20),
        APPEND: Budget(100, 60.0, reserve=10),
        STOP: Budget(20, 60.0, burst=20, reserve=4),
        POST: Budget(300, 60.0, burst=300),
        POST_CHANNEL: Budget(1, 1.0),
        UPDATE: Budget(50, 60.0, reserve=8),
        DELETE: Budget(50, 60.0, burst=50),
        REPLIES: Budget(45, 60.0, burst=45),
        HISTORY: Budget(45, 60.0, burst=45),
        RESPONSE: Budget(100, 60.0, burst=100),
        UPLOAD: Budget(90, 60.0, burst=90),
        SHARE: Budget(90, 60.0, burst=90),
    }
)


def look_up(root: str | None) -> Draw:
    """What looking into a thread, or at top level, draws on."""
    return Draw(REPLIES if root else HISTORY)


SIDE_CALLS: Mapping[str, int] = MappingProxyType(
    {
        "agents.sessions.setStatus": 45,
        "assistant.threads.setStatus": 500,
        "assistant.threads.setSuggestedPrompts": 90,
        "conversations.info": 45,
        "files.info": 90,
        "reactions.add": 18,
        "reactions.remove": 18,
        "users.info": 90,
        "views.publish": 90,
    }
)
"""Calls a minute beside the replies themselves; one too many is left out, not waited for. No more reactions are added
than can be removed again."""

ORNAMENTS = frozenset({"reactions.add", "reactions.remove"})
"""Side calls that may well be left out; a process that takes a channel over begins them slowly."""

STREAM_BYTES = 9_000
"""UTF-8 bytes of one streamed message, tasks included (Slack refuses somewhere from 10,600 to 11,300)."""
STREAM_ROTATE_SOFT = 180.0
STREAM_ROTATE = 240.0
"""Seconds after which a stream is finished: at a border from the first number on, anywhere from the second on. Slack
ends a stream itself about 300 s after its start."""
RESPONSE_USES = 5
"""Messages to one `response_url`."""
MARKDOWN_CHARS = 11_500
"""Of one posted message (Slack takes 12,000 characters of Markdown in one call)."""
PLAIN_CHARS = 3_500
"""Of one message without formatting, escaped (chat.update refuses `text` above 4,000)."""
FALLBACK_CHARS = 150
"""Of the line that notifications show of a message with blocks."""

TASK_TEXT_BYTES = 72
"""Of a task's title, and of its details (a chunk has at most 256 characters)."""
MOST_TASKS = 16
"""Tasks shown one by one in one message; further ones are counted in one line."""
THOUGHT_BYTES = 200
DETAIL_WEIGHT = 2
"""A byte of a task's details or output counts this often towards the size of the message."""

BUTTON_CHARS = 75
BUTTONS_PER_BLOCK = 25
MOST_OPTIONS = 100
CONTEXT_CHARS = 2_000

HOLD_SECONDS = 1.5
"""How long words at the end of a silent stream are held back for more of them."""
LOOK_AGAIN = 2.0
"""Seconds after a lost answer before what it made is looked for: the call may still be under way."""

STATUS_REFRESH = 90.0
"""Seconds after which a status line is sent again; Slack takes it away after two minutes."""
STREAM_REFUSAL_TTL = 86_400.0
"""Seconds for which a place is remembered to have no streams."""

METADATA_EVENT = "channel_bridge_turn"
