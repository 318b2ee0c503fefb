"""Telegram's numbers, as data that a person can hold against its pages.

core.telegram.org/bots/faq, core.telegram.org/bots/api, core.telegram.org/api/bots/ai. Edits share the budgets of
sends. Telegram publishes rates without the algorithm behind them, so the budgets stay a little below.
"""

from __future__ import annotations

from channels.adapter import Budget

TEXT_UNITS = 4096
"""UTF-16 units of a message, after its entities are taken out of the markup."""
MARKS = 100
"""Entities of a message; Telegram ignores the rest."""
BUTTONS = 100
"""Buttons of a message."""
BUTTONS_IN_A_ROW = 8
CALLBACK_BYTES = 64
TOAST_UNITS = 200
"""The text that answers a button press."""
COMMAND_DESCRIPTION = 256

UPLOAD_BYTES = 50_000_000
PHOTO_BYTES = 10_000_000
DOWNLOAD_BYTES = 20 * 1024 * 1024

RICH_BYTES = 32_768
RICH_LINES = 450
"""Of a rich message's 500 blocks; every line may be one."""
RICH_COLUMNS = 20

DRAFT_KEEP_ALIVE = 20.0
"""Seconds after which a draft is sent again; it vanishes after 30."""
DRAFT_COOL_DOWN = 3.0
"""A 429 of a draft for at most so many seconds is about drafts only; a longer one closes the chat."""
ACTION_SECONDS = 4.0
"""A chat action lasts 5 s."""
ACTIONS = Budget(limit=8, window=30.0)
"""Chat actions in one chat. They share 40 in 30 s with the drafts."""

ALLOWED_UPDATES = ("message", "edited_message", "callback_query", "stopped_message_generation")

BUDGETS = {
    # 1 message per second in a chat, short bursts tolerated.
    "private": Budget(limit=4, window=4.0, burst=2, reserve=1),
    # 20 per minute in a group, over all its topics; one is kept for calls that arrive closer than they were sent.
    "group": Budget(limit=19, window=60.0, burst=3, reserve=4),
    # 20 per 5 s and 40 per 30 s for each chat, together with the chat actions.
    "draft": Budget(limit=30, window=30.0, burst=4),
    # About 30 per second over all chats.
    "bot": Budget(limit=28, window=1.0, burst=10, reserve=6),
}
"""By name; `private`, `group` and `draft` are kept for each chat, `bot` is one."""
