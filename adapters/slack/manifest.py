"""The Slack app that the bridge needs: its scopes, its events, and its manifest."""

from __future__ import annotations

from collections.abc import Mapping

import yaml
from pydantic import JsonValue

SCOPES: Mapping[str, str] = {
    "app_mentions:read": "hears when it is mentioned",
    "assistant:write": "status line and suggested prompts",
    "channels:history": "hears replies in threads of public channels",
    "channels:read": "names of public channels",
    "chat:write": "answers, also by streams",
    "commands": "the slash command",
    "files:read": "reads files that people send",
    "files:write": "sends files that the agent made",
    "groups:history": "hears replies in threads of private channels",
    "groups:read": "names of private channels",
    "im:history": "hears direct messages",
    "im:read": "direct messages",
    "mpim:history": "hears group messages",
    "mpim:read": "group messages",
    "reactions:write": "a reaction to the question while it works",
    "users:read": "names of people",
}
"""The bot's scopes, and what each is for."""

REQUIRED = frozenset({"app_mentions:read", "channels:history", "chat:write", "im:history", "users:read"})
"""Without these it does not work at all; without another one, what it is for is missing."""

EVENTS = (
    "agent_session_stopped",
    "app_home_opened",
    "app_mention",
    "assistant_thread_started",
    "message.channels",
    "message.groups",
    "message.im",
    "message.mpim",
)

COMMAND = "/agent"


def manifest(*, name: str = "Channel Bridge", request_url: str | None = None) -> str:
    """The app's manifest as YAML: for HTTP mode with a request URL, for Socket Mode without."""
    address: dict[str, JsonValue] = {"request_url": request_url} if request_url else {}
    command: dict[str, JsonValue] = {
        "command": COMMAND,
        "description": "Ask the agent, or: help, status, stop, retry, new",
        "usage_hint": "your question",
        "should_escape": True,
    }
    if request_url:
        command["url"] = request_url
    document: dict[str, JsonValue] = {
        "display_information": {"name": name, "description": "Talk to an agent and watch the answer grow."},
        "features": {
            "app_home": {
                "home_tab_enabled": True,
                "messages_tab_enabled": True,
                "messages_tab_read_only_enabled": False,
            },
            "agent_view": {"agent_description": "Ask me anything; I answer in this chat.", "suggested_prompts": []},
            "bot_user": {"display_name": name, "always_online": True},
            "slash_commands": [command],
        },
        "oauth_config": {"scopes": {"bot": list(SCOPES)}},
        "settings": {
            "event_subscriptions": {**address, "bot_events": list(EVENTS)},
            "interactivity": {"is_enabled": True, **address},
            "org_deploy_enabled": False,
            "socket_mode_enabled": request_url is None,
            "token_rotation_enabled": False,
        },
    }
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
