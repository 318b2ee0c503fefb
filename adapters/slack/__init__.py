"""The Slack channel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from channels.adapter import Context
from config.slack import SlackChannel

if TYPE_CHECKING:
    from adapters.slack.adapter import SlackAdapter


def build(settings: SlackChannel, context: Context) -> SlackAdapter:
    """The adapter of one Slack channel."""
    from adapters.slack.adapter import SlackAdapter

    return SlackAdapter(settings, context)
