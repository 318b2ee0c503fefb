"""The vendor's numbers, as data that a person can hold against the vendor's pages.

Rates. The vendor publishes "1 message per second in a chat, short bursts tolerated", "20 per minute in a group",
"about 30 per second over all chats" and "20 per 5 s and 40 per 30 s" for drafts with chat actions, not the exact
algorithm. Modelled here as sliding windows over *accepted* calls; a call that would make a window too full is refused:

* private chat: in any s seconds at most s + 4 sends and edits (a burst of 4 on top of 1/s), over 1, 5 and 30 s;
* group or supergroup: 20 sends and edits in 60 s over all its topics (half a second of it forgiven: arrivals jitter);
* whole bot: 30 sends and edits in 1 s;
* drafts and chat actions: 20 in 5 s and 40 in 30 s for each chat.

Penalties. A refused send or edit closes its chat until the window has room again, and for `penalty_seconds` at least.
Each further call to the closed chat is refused too and makes the penalty longer by its first length, as seen in the
field (280 s grew to hours). A refused draft or action closes only the chat's drafts and actions, for
`draft_penalty` at most. Calls that arrive within the grace after the first refusal are refused but forgiven: they were
under way already.
"""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Window:
    """At most `calls` in any `seconds`."""

    calls: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Limits:
    """Every number of the vendor that the emulator enforces. Times are seconds on the emulator's clock."""

    # core.telegram.org/bots/faq and core.telegram.org/api/bots/ai
    private_windows: tuple[Window, ...] = (Window(5, 1.0), Window(9, 5.0), Window(34, 30.0))
    group_windows: tuple[Window, ...] = (Window(20, 59.5),)
    bot_windows: tuple[Window, ...] = (Window(30, 1.0),)
    draft_windows: tuple[Window, ...] = (Window(20, 5.0), Window(40, 30.0))
    penalty_seconds: int = 3
    draft_penalty: int = 3
    # Measured on the emulator's clock, and on the wall as well: sockets do not run faster when the clock does.
    grace_seconds: float = 0.3
    grace_wall_seconds: float = 0.05

    text_units: int = 4096  # UTF-16 units after entity parsing
    caption_units: int = 1024
    entities: int = 100
    keyboard_buttons: int = 100
    keyboard_row: int = 8
    callback_data_bytes: int = 64
    callback_answer_units: int = 200
    callback_seconds: float = 15.0  # a press must be answered within it, counted from its first delivery
    album_items: tuple[int, int] = (2, 10)

    upload_bytes: int = 50 * MIB
    photo_bytes: int = 10 * MIB
    download_bytes: int = 20 * MIB
    file_link_seconds: float = 3600.0

    commands: int = 100
    command_name: int = 32
    command_description: int = 256
    topic_name: int = 128

    draft_seconds: float = 30.0
    action_seconds: float = 5.0
    rich_characters: int = 32_768
    rich_blocks: int = 500
    rich_nesting: int = 16

    updates_kept_seconds: float = 24 * 3600.0
    ids_kept_seconds: float = 7 * 24 * 3600.0  # without an update; then the next id is chosen at random
    updates_batch: int = 100
    secret_token: int = 256
    webhook_connections: int = 100
    webhook_first_retry: float = 1.0  # doubled with every failure
    webhook_last_retry: float = 60.0


@dataclass(frozen=True, slots=True)
class Checks:
    """Rules that are house rules rather than refusals of the vendor; a test may switch one off."""

    parse_mode: bool = True  # entities only: markup sent as text can fail to parse
    entity_count: bool = True  # the vendor silently ignores what is past the limit
    unanswered_presses: bool = True  # the person's button would keep spinning
    dropped_updates: bool = True  # a person's message would be lost


# The update kinds a bot gets without asking; the others must be named in allowed_updates.
DEFAULT_UPDATES = frozenset(
    {
        "message", "edited_message", "channel_post", "edited_channel_post", "inline_query", "chosen_inline_result",
        "callback_query", "shipping_query", "pre_checkout_query", "poll", "poll_answer", "my_chat_member",
        "chat_join_request", "chat_boost", "removed_chat_boost", "business_connection", "business_message",
        "edited_business_message", "deleted_business_messages", "purchased_paid_media",
    }
)  # fmt: skip

CHAT_ACTIONS = frozenset(
    {
        "typing", "upload_photo", "record_video", "upload_video", "record_voice", "upload_voice", "upload_document",
        "choose_sticker", "find_location", "record_video_note", "upload_video_note",
    }
)  # fmt: skip

# core.telegram.org/bots/api#reactiontypeemoji
REACTIONS = frozenset(
    {
        "👍", "👎", "❤", "🔥", "🥰", "👏", "😁", "🤔", "🤯", "😱", "🤬", "😢", "🎉", "🤩", "🤮",
        "💩", "🙏", "👌", "🕊", "🤡", "🥱", "🥴", "😍", "🐳", "❤️‍🔥", "🌚", "🌭", "💯", "🤣", "⚡",
        "🍌", "🏆", "💔", "🤨", "😐", "🍓", "🍾", "💋", "🖕", "😈", "😴", "😭", "🤓", "👻", "👨‍💻",
        "👀", "🎃", "🙈", "😇", "😨", "🤝", "✍", "🤗", "🫡", "🎅", "🎄", "☃", "💅", "🤪", "🗿",
        "🆒", "💘", "🙉", "🦄", "😘", "💊", "🙊", "😎", "👾", "🤷‍♂️", "🤷", "🤷‍♀️", "😡",
    }
)  # fmt: skip

ENTITY_TYPES = frozenset(
    {
        "mention", "hashtag", "cashtag", "bot_command", "url", "email", "phone_number", "bold", "italic", "underline",
        "strikethrough", "spoiler", "blockquote", "expandable_blockquote", "code", "pre", "text_link", "text_mention",
        "custom_emoji", "date_time",
    }
)  # fmt: skip
