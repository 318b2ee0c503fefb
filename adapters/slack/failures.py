"""What Slack's errors mean for a reply: one table from error to failure, as data."""

from __future__ import annotations

from collections.abc import Mapping

from channels.adapter import (
    Closed,
    Draw,
    Failure,
    Forbidden,
    Gone,
    RateLimited,
    Refused,
    StoppedByUser,
    TooLarge,
    Transient,
    Unauthorised,
    Unknown,
)


class NoStream(Refused):
    """This place, or this reader, cannot have streams."""


class Unstoppable(Refused):
    """A stream that takes more text but cannot be ended, because Slack does not find its reader."""


class Unthreadable(Refused):
    """Nothing can be written in that thread; elsewhere in the conversation it can."""


class Barred(Refused):
    """This file may not be put there, whatever is tried; the answer may stay."""


class StillStreaming(Closed):
    """An edit of a message that shows as being written: its stream has to be stopped first."""


class Uneditable(Closed):
    """The message is there but cannot be edited any more."""


class Outside(Refused):
    """The bot may not post in this place; the answer to a slash command has a way of its own."""


ERRORS: Mapping[type[Failure], str] = {
    Unauthorised: (
        "invalid_auth not_authed account_inactive token_revoked token_expired org_login_required access_denied "
        "not_allowed_token_type missing_scope no_permission two_factor_setup_required"
    ),
    Forbidden: (
        "not_in_channel channel_not_found is_archived messages_tab_disabled cannot_dm_bot user_not_in_channel "
        "restricted_action restricted_action_read_only_channel restricted_action_thread_only_channel "
        "restricted_action_thread_locked ekm_access_denied "
        "team_access_not_granted method_not_supported_for_channel_type enterprise_is_restricted "
        "slack_connect_file_link_sharing_blocked user_is_bot user_is_restricted posting_to_general_channel_denied"
    ),
    Gone: "message_not_found thread_not_found file_not_found file_deleted",
    TooLarge: (
        "msg_too_long msg_blocks_too_long msg_blocks_too_many too_many_attachments attachment_payload_limit_exceeded "
        "metadata_too_large"
    ),
    Closed: "message_not_in_streaming_state streaming_mode_mismatch",
    Unthreadable: "cannot_reply_to_message invalid_thread_ts restricted_action_non_threadable_channel",
    StillStreaming: "streaming_state_conflict",
    Uneditable: "edit_window_closed cant_update_message cant_broadcast_message message_not_owned_by_app",
    StoppedByUser: "stopped_by_user",
    Transient: "service_unavailable ratelimit_unavailable team_added_to_org accesslimited external_channel_migrating",
    # "It is possible some aspect of the operation succeeded before the error was raised."
    Unknown: "fatal_error internal_error request_timeout",
}
"""Errors, parted by spaces, by what they mean; any other is `Refused`."""

NO_STREAM = frozenset(
    {
        "channel_type_not_supported",
        "missing_recipient_team_id",
        "missing_recipient_user_id",
        "missing_scope",
        "user_not_found",
        "team_not_found",
        "not_subscribed_to_message_stream_stopped",
        "invalid_thread_ts",
        "cannot_reply_to_message",
        "unknown_method",
        "feature_not_enabled",
        "not_supported_for_channel",
        "invalid_recipient",
    }
)
"""Errors of chat.startStream after which the place falls back to posts and edits; so does any `slack_connect_…`."""

_OF_ONE_CALL = frozenset(
    {"access_denied", "missing_scope", "no_permission", "not_allowed_token_type", "two_factor_setup_required"}
)
"""Errors about what a token may do, not about the token."""
_VITAL = ("apps.connections.", "auth.", "chat.")
"""Methods without which there is no bridge. What a token may not do beside them (files, reactions, status, names,
look-ups) is left out, and the channel goes on."""
_OF_READER = frozenset({"user_not_found", "team_not_found", "invalid_recipient"})
_NO_READER = _OF_READER | {"missing_recipient_team_id", "missing_recipient_user_id"}
_OF_THREAD = frozenset(ERRORS[Unthreadable].split())
_BY_ERROR = {error: kind for kind, errors in ERRORS.items() for error in errors.split()}
_RATE_ERRORS = frozenset({"ratelimited", "rate_limited", "message_limit_exceeded"})
_SENT_MAYBE = frozenset({500, 502, 504})
_DEFAULT_WAIT = 5.0  # seconds, where Slack refuses for the rate and does not say for how long


def failure_of(method: str, status: int, error: str, *, retry_after: str | None = None, details: str = "") -> Failure:
    """The failure behind an answer of the Web API that is not `ok`."""
    said = f"{method}: {error or f'HTTP {status}'}" + (f" ({details})" if details else "")
    if status == 429 or error in _RATE_ERRORS:
        return RateLimited(_seconds(retry_after), Draw(method), said)
    if not error:
        return Unknown(said) if status in _SENT_MAYBE else Transient(said)
    if method == "chat.startStream" and (error in NO_STREAM or error.startswith("slack_connect_")):
        return NoStream(said)
    if method == "chat.stopStream" and (error in _NO_READER or error.startswith("slack_connect_")):
        return Unstoppable(said)
    if error in _OF_ONE_CALL and not method.startswith(_VITAL):
        return Refused(said)
    kind = _BY_ERROR.get(error, Forbidden if error.startswith("restricted_action") else Refused)
    return kind(f"unauthorised: {said}" if kind is Unauthorised else said)


def refusal_scope(error: str) -> str:
    """Whom a refused stream concerns: `reader`, `thread` or `place`."""
    if any(name in error for name in _OF_READER):
        return "reader"
    return "thread" if any(name in error for name in _OF_THREAD) else "place"


def _seconds(retry_after: str | None) -> float:
    try:
        return max(0.0, float(retry_after or _DEFAULT_WAIT))
    except ValueError:
        return _DEFAULT_WAIT
