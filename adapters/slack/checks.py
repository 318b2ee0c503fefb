"""`channel-bridge check` for a Slack channel."""

from __future__ import annotations

from collections.abc import Sequence

from adapters.slack.api import SlackApi
from adapters.slack.manifest import REQUIRED, SCOPES
from channels.adapter import Check, Failure
from channels.shapes import as_text
from config.slack import SlackChannel


async def check_tokens(api: SlackApi, settings: SlackChannel, channel: str, public_url: str | None) -> Sequence[Check]:
    """Try the tokens live and name missing scopes."""
    findings: list[Check] = []
    try:
        answer, scopes = await api.who_am_i()
    except Failure as failure:
        findings.append(Check("bot token", False, str(failure)))
    else:
        findings.append(Check("bot token", True, f"@{as_text(answer.get('user'))} in {as_text(answer.get('team'))}"))
        findings.append(_scopes(scopes))
    findings.append(await _way_in(api, settings, channel, public_url))
    return findings


def _scopes(granted: frozenset[str]) -> Check:
    if not granted:
        return Check("scopes", True, "Slack does not tell them")
    missing = [f"{scope} ({use})" for scope, use in SCOPES.items() if scope not in granted]
    if not missing:
        return Check("scopes", True, "all there")
    detail = "missing: " + ", ".join(missing)
    return Check("scopes", not REQUIRED - granted, detail)


async def _way_in(api: SlackApi, settings: SlackChannel, channel: str, public_url: str | None) -> Check:
    if settings.app_token is not None:
        try:
            await api.socket_address()
        except Failure as failure:
            return Check("app token", False, str(failure))
        return Check("app token", True, "Socket Mode can be used")
    if public_url is None:
        return Check("HTTP mode", False, "set server.public_url, which Slack has to reach")
    return Check("HTTP mode", True, f"the app's request URL is {public_url}/hooks/{channel}")
