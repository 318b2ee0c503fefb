"""Trying an app live, for its operator: credentials, bot, scopes, and the way events come in."""

from __future__ import annotations

from collections.abc import Sequence

from adapters.feishu.api import Api
from adapters.feishu.errors import ApiRefusal
from adapters.feishu.people import People
from channels.adapter import Check, Failure

NEEDS: Sequence[tuple[str, tuple[str, ...], bool]] = (
    ("send and change messages", ("im:message", "im:message:send_as_bot"), True),
    ("hear private messages", ("im:message.p2p_msg:readonly", "im:message.p2p_msg"), True),
    (
        "hear mentions in groups",
        (
            "im:message.group_at_msg:readonly",
            "im:message.group_at_msg",
            "im:message.group_msg",
            "im:message.group_msg:readonly",
        ),
        True,
    ),
    ("files and pictures", ("im:resource",), True),
    ("streaming cards", ("cardkit:card:write",), True),
    ("reactions", ("im:message", "im:message.reactions:write_only"), False),
    ("people's names", ("contact:user.base:readonly", "contact:contact.base:readonly"), False),
)
"""What the bridge does, the scopes of which one is needed for it, and whether it cannot do without."""


async def probe(api: Api, people: People, *, by_connection: bool) -> Sequence[Check]:
    """What works and what does not, with what to do about it."""
    try:
        await api.token()
    except Failure as failure:
        return (Check("app_id and app_secret", ok=False, detail=str(failure)),)
    checks = [Check("app_id and app_secret", ok=True)]
    try:
        await people.own_id()
        checks.append(Check("bot", ok=True))
    except Failure as failure:
        checks.append(Check("bot", ok=False, detail=str(failure)))
    checks += await _scopes(api)
    if by_connection:
        checks.append(await _connection(api))
    return checks


async def _scopes(api: Api) -> Sequence[Check]:
    try:
        found = await api.call("listing scopes", "GET", "application/v6/scopes")
    except (ApiRefusal, Failure) as error:
        reason = error.describe() if isinstance(error, ApiRefusal) else str(error)
        return (Check("scopes", ok=True, detail=f"could not be listed: {reason}"),)
    items = found.get("scopes")
    granted = {
        str(item.get("scope_name"))
        for item in (items if isinstance(items, list) else [])
        if isinstance(item, dict) and item.get("grant_status") == 1
    }
    checks = []
    for purpose, scopes, is_needed in NEEDS:
        is_there = not granted.isdisjoint(scopes)
        detail = "" if is_there else f"add the scope {scopes[0]} and publish a version"
        if not is_there and not is_needed:
            detail = f"optional: {detail}"
        checks.append(Check(f"scope for: {purpose}", ok=is_there or not is_needed, detail=detail))
    return checks


async def _connection(api: Api) -> Check:
    what = "long connection"
    try:
        found = await api.endpoint()
    except Failure as failure:
        return Check(what, ok=False, detail=str(failure))
    if found.get("code") == 0:
        return Check(what, ok=True)
    return Check(what, ok=False, detail=f"refused: {found.get('code')} {str(found.get('msg', ''))[:200]}")
