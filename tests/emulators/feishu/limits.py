"""The vendor's numbers, codes, scopes and names, as tables that a person can check against the vendor's pages."""

from __future__ import annotations

from dataclasses import dataclass

DAY = 86_400.0
MEGABYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `calls` within any `seconds`."""

    calls: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Limits:
    """What the platform allows. Times are seconds on the emulator's clock.

    The vendor writes "30 KB" and "150 KB" without saying what a kilobyte is; the smaller reading (1,000 bytes) is
    enforced, because a client that keeps to it is right either way.
    """

    token_seconds: float = 7200.0
    token_renewal_seconds: float = 1800.0  # a token with less than this left is replaced by a new one on request
    text_bytes: int = 150_000
    rich_bytes: int = 30_000  # post and interactive
    image_bytes: int = 10 * MEGABYTE
    file_bytes: int = 30 * MEGABYTE
    message_uuid_chars: int = 50
    message_uuid_seconds: float = 3600.0
    message_edits: int = 20
    message_edit_seconds: float | None = None  # set by a tenant's administrator; None: for ever
    message_patch_seconds: float = 14 * DAY
    card_bytes: int = 30_000
    card_elements: int = 200
    card_tables: int = 5
    card_depth: int = 5
    card_seconds: float = 14 * DAY
    card_uuid_chars: int = 64
    content_chars: int = 100_000
    sequence_max: int = 2**31 - 1
    streaming_seconds: float = 600.0
    tables_counted_in_content: bool = True  # disputed: whether live content updates are checked for tables
    reopening_extends: bool = True  # disputed: whether opening an open stream starts its 10 minutes anew
    print_frequency_ms: float = 70.0
    print_step: int = 1
    connections: int = 50
    ack_seconds: float = 3.0
    redelivery_seconds: tuple[float, ...] = (15.0, 300.0, 3600.0, 21_600.0)
    # Requests that were under way when a refusal was sent are not yet disobedience.
    grace_seconds: float = 0.1


# Per scope: the card, the chat or the message named by a call, or one bucket for the whole app.
RATES: dict[str, tuple[Rate, ...]] = {
    "card": (Rate(10, 1.0),),
    "cardkit": (Rate(50, 1.0), Rate(1000, 60.0)),
    "chat": (Rate(5, 1.0),),
    "im.send": (Rate(50, 1.0), Rate(1000, 60.0)),
    "message": (Rate(5, 1.0),),
    "api": (Rate(50, 1.0), Rate(1000, 60.0)),
}

_SEND = ("im:message", "im:message:send_as_bot")
_EDIT = (*_SEND, "im:message:update")
_READ = ("im:message", "im:message:readonly", "im:message.history:readonly")
_REACT = ("im:message", "im:message.reactions:write_only")
_CARD = ("cardkit:card:write",)

DEFAULT_SCOPES = (
    "im:message",
    "im:message:send_as_bot",
    "im:message.p2p_msg:readonly",
    "im:message.group_at_msg:readonly",
    "im:message.group_msg",
    "im:message.reactions:write_only",
    "im:resource",
    "im:chat:readonly",
    "cardkit:card:write",
    "contact:user.base:readonly",
)

DEFAULT_SUBSCRIPTIONS = (
    "im.message.receive_v1",
    "im.message.recalled_v1",
    "im.message.reaction.created_v1",
    "im.chat.member.bot.added_v1",
    "im.chat.member.bot.deleted_v1",
    "card.action.trigger",
)


@dataclass(frozen=True, slots=True)
class Api:
    """One API: its name in the journal and in planned faults, its route, the scopes of which one is needed."""

    name: str
    verb: str
    path: str
    scopes: tuple[str, ...] = ()
    needs_token: bool = True
    bucket: str = "api"  # which app-wide budget it draws on; "api" is one budget for each API


APIS: tuple[Api, ...] = (
    Api("auth.token", "POST", "/open-apis/auth/v3/tenant_access_token/internal", needs_token=False),
    Api("bot.info", "GET", "/open-apis/bot/v3/info"),
    Api("application.scopes", "GET", "/open-apis/application/v6/scopes"),
    Api("im.message.create", "POST", "/open-apis/im/v1/messages", _SEND, bucket="im.send"),
    Api("im.message.reply", "POST", "/open-apis/im/v1/messages/{message_id}/reply", _SEND, bucket="im.send"),
    Api("im.message.patch", "PATCH", "/open-apis/im/v1/messages/{message_id}", _EDIT),
    Api("im.message.update", "PUT", "/open-apis/im/v1/messages/{message_id}", _EDIT),
    Api("im.message.delete", "DELETE", "/open-apis/im/v1/messages/{message_id}", (*_SEND, "im:message:recall")),
    Api("im.message.get", "GET", "/open-apis/im/v1/messages/{message_id}", _READ),
    Api("im.resource.get", "GET", "/open-apis/im/v1/messages/{message_id}/resources/{file_key}", _READ),
    Api("im.image.create", "POST", "/open-apis/im/v1/images", ("im:resource", "im:resource:upload")),
    Api("im.file.create", "POST", "/open-apis/im/v1/files", ("im:resource", "im:resource:upload")),
    Api("im.reaction.create", "POST", "/open-apis/im/v1/messages/{message_id}/reactions", _REACT),
    Api("im.reaction.list", "GET", "/open-apis/im/v1/messages/{message_id}/reactions", (*_READ, *_REACT)),
    Api("im.reaction.delete", "DELETE", "/open-apis/im/v1/messages/{message_id}/reactions/{reaction_id}", _REACT),
    Api("im.chat.get", "GET", "/open-apis/im/v1/chats/{chat_id}", ("im:chat", "im:chat:readonly", "im:chat:read")),
    Api(
        "contact.user.get",
        "GET",
        "/open-apis/contact/v3/users/{user_id}",
        ("contact:user.base:readonly", "contact:contact.base:readonly"),
    ),
    Api("cardkit.card.create", "POST", "/open-apis/cardkit/v1/cards", _CARD, bucket="cardkit"),
    Api("cardkit.card.id_convert", "POST", "/open-apis/cardkit/v1/cards/id_convert", _CARD, bucket="cardkit"),
    Api("cardkit.card.update", "PUT", "/open-apis/cardkit/v1/cards/{card_id}", _CARD, bucket="cardkit"),
    Api("cardkit.card.settings", "PATCH", "/open-apis/cardkit/v1/cards/{card_id}/settings", _CARD, bucket="cardkit"),
    Api(
        "cardkit.card.batch_update",
        "POST",
        "/open-apis/cardkit/v1/cards/{card_id}/batch_update",
        _CARD,
        bucket="cardkit",
    ),
    Api("cardkit.element.create", "POST", "/open-apis/cardkit/v1/cards/{card_id}/elements", _CARD, bucket="cardkit"),
    Api(
        "cardkit.element.content",
        "PUT",
        "/open-apis/cardkit/v1/cards/{card_id}/elements/{element_id}/content",
        _CARD,
        bucket="cardkit",
    ),
    Api(
        "cardkit.element.update",
        "PUT",
        "/open-apis/cardkit/v1/cards/{card_id}/elements/{element_id}",
        _CARD,
        bucket="cardkit",
    ),
    Api(
        "cardkit.element.patch",
        "PATCH",
        "/open-apis/cardkit/v1/cards/{card_id}/elements/{element_id}",
        _CARD,
        bucket="cardkit",
    ),
    Api(
        "cardkit.element.delete",
        "DELETE",
        "/open-apis/cardkit/v1/cards/{card_id}/elements/{element_id}",
        _CARD,
        bucket="cardkit",
    ),
)

# code: (HTTP status, message). Old APIs and some gateways send the same codes with HTTP 200: see `codes_as_http_200`.
ERRORS: dict[int, tuple[int, str]] = {
    9499: (400, "Bad Request"),
    10003: (200, "invalid app_id"),  # the token API answers everything with HTTP 200
    10014: (200, "app secret invalid"),
    41050: (400, "no user authority"),
    100290: (400, "There is an invalid user resource(at/person) in your card"),
    200220: (400, "Failed to generate card content"),
    200570: (400, "card contains invalid image keys"),
    200621: (400, "parse card json err"),
    200740: (400, "The card entity does not exist"),
    200750: (400, "The card entity has expired"),
    200770: (400, "UUID conflict"),
    200810: (400, "The card is in an ongoing interaction"),
    200850: (400, "Card streaming timeout"),
    200860: (400, "Card content exceeds limit"),
    200861: (400, "cards of schema V2 no longer support this capability"),
    230001: (400, "invalid request parameter"),
    230002: (400, "The bot is not in the chat"),
    230011: (400, "The message is recalled"),
    230013: (400, "Bot has no availability to this user"),
    230017: (400, "Bot is not the owner of the resource"),
    230020: (400, "This operation triggers the frequency limit"),
    230025: (400, "The length of the message content reaches its limit"),
    230026: (400, "No permission to recall this message"),
    230028: (400, "The messages do NOT pass the audit"),
    230031: (400, "Message can only be modified within 14 days after sending"),
    230034: (400, "The receive_id is invalid"),
    230054: (400, "Not supported for this message type"),
    230055: (400, "The type of the file does not match the type of the message"),
    230071: (400, "The operator is not the sender of the message"),
    230072: (400, "The message has reached the number of times it can be edited"),
    230075: (400, "The message has exceeded the time that can be edited"),
    230099: (400, "Failed to create card content"),
    230110: (400, "The message has been deleted"),
    231001: (400, "reaction type is invalid"),
    231003: (400, "The message is not found"),
    231011: (400, "The reaction is not found"),
    232006: (400, "Invalid chat_id"),
    232011: (400, "The operator is out of the chat"),
    234001: (400, "Invalid request parameter"),
    234003: (400, "File not in message"),
    234006: (400, "The file size exceeds the limit"),
    234010: (400, "The file size is 0"),
    234011: (400, "The image format is not recognised"),
    300121: (400, "Failed to replace element"),
    300122: (400, "Failed to update card configuration"),
    300301: (400, "Duplicate or malformed element_id in card component"),
    300302: (400, "update_multi property is false"),
    300303: (400, "Only schema 2.0 is supported"),
    300305: (400, "The number of card components exceeds 200"),
    300307: (400, "The card DSL is empty"),
    300309: (400, "Card streaming closed"),
    300310: (400, "Only update text"),
    300312: (400, "Unable to update element tag"),
    300313: (400, "Failed to update element properties"),
    300314: (400, "Failed to delete element"),
    300315: (400, "Failed to add element"),
    300317: (400, "The sequence number did not increase"),
    99991400: (429, "request trigger frequency limit"),
    99991661: (400, "Missing access token for authorization"),
    99991663: (400, "Invalid access token for authorization"),
    99991672: (400, "Access denied"),
    99992402: (400, "field validation failed"),
}

# The reactions a message can get (a part of the vendor's list of some 200; case matters).
_EMOJI_TYPES = """
    OK THUMBSUP THANKS MUSCLE FINGERHEART APPLAUSE FISTBUMP JIAYI DONE SMILE BLUSH LAUGH SMIRK LOL FACEPALM LOVE WINK
    PROUD WITTY SMART SCOWL THINKING SOB CRY ERROR NOSEPICK HAUGHTY SLAP SPITBLOOD TOASTED GLANCE DULL INNOCENTSMILE
    JOYFUL WOW TRICK YEAH ENOUGH TEARS EMBARRASSED KISS SMOOCH DROOL OBSESSED MONEY TEASE SHOWOFF COMFORT CLAP PRAISE
    STRIVE XBLUSH SILENT WAVE WHAT FROWN SHY DIZZY LOOKDOWN CHUCKLE WAIL CRAZY WHIMPER HUG BLUBBER WRONGED HUSKY SHHH
    SMUG ANGRY HAMMER SHOCKED TERROR PETRIFIED SKULL SWEAT SPEECHLESS SLEEP DROWSY YAWN SICK PUKE BETRAYED HEADSET
    EatingFood MeMeMe Sigh Typing Lemon Get LGTM OnIt OneSecond VRHeadset YouAreTheBest SALUTE SHAKE HIGHFIVE UPPERLEFT
    ThumbsDown SLIGHT TONGUE EYESCLOSED RoarForYou CALF BEAR BULL RAINBOWPUKE ROSE HEART PARTY LIPS BEER CAKE GIFT
    CUCUMBER Drumstick Pepper CANDIEDHAWS BubbleTea Coffee Yes No OKR CheckMark CrossMark MinusOne Hundred AWESOMEN Pin
    Alarm Loudspeaker Trophy Fire BOMB Music XmasTree Snowman XmasHat FIREWORKS 2022 REDPACKET FORTUNE LUCK FIRECRACKER
    StickyRiceBalls HEARTBROKEN POOP StatusFlashOfInspiration 18X CLEAVER Soccer Basketball GeneralDoNotDisturb
    Status_PrivateMessage GeneralInMeetingBusy StatusReading StatusInFlight GeneralBusinessTrip GeneralWorkFromHome
    StatusEnjoyLife GeneralTravellingCar StatusBus GeneralSun GeneralMoonRest MoonRabbit Mooncake JubilantRabbit TV
    Movie Pumpkin BeamingFace Delighted
"""
EMOJI_TYPES = frozenset(_EMOJI_TYPES.split())
