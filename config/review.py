"""What can be told from the settings alone about how they fit together."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from pydantic import SecretStr

from config.explaining import KeyPath
from config.settings import Settings
from config.web import WebChannel

Finding = tuple[KeyPath, str]
"""A place in the configuration and what is wrong there."""


def clashes(settings: Settings) -> Iterator[Finding]:
    """Channels of which one hides the other: nobody can say which of them is meant."""
    pages = [
        (name, channel)
        for name, channel in settings.channels.items()
        if isinstance(channel, WebChannel) and channel.enabled
    ]
    for (first, one), (second, other) in combinations(pages, 2):
        if one.is_in_the_way_of(other) or other.is_in_the_way_of(one):
            reason = f"the page of channels.{first} is at {one.path}: give each its own `path`, such as /{second}"
            yield ("channels", second, "path"), reason


def doubts(settings: Settings) -> Iterator[Finding]:
    """Why channels will be of no use when the bridge runs, although each by itself is written correctly."""
    seen: dict[tuple[str, str, str], str] = {}
    for name, channel in settings.channels.items():
        if not channel.enabled:
            continue
        for key, reason in channel.unusable(settings.server):
            yield ("channels", name, key), reason
        for key in channel.identity:
            value = _text(getattr(channel, key))
            first = seen.setdefault((channel.platform, key, value), name) if value else name
            if first != name:
                yield ("channels", name, key), f"is that of channels.{first}: a bot can serve one channel only"


def _text(value: SecretStr | str | None) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else value or ""
