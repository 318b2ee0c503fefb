"""Slack's text: what people typed made readable, and what the bridge sends made harmless."""

from __future__ import annotations

import re
from collections.abc import Mapping

from channels.markdown import BREAKER, Mentions, neutralise_mentions, plain_text, summary, utf16_units
from channels.markdown.blocks import Blocks, Leaf

_TOKEN = re.compile(r"<(?P<sign>[@#!]?)(?P<target>[^<>|]*)(?:\|(?P<label>[^<>]*))?>")
_SCHEME = re.compile(r"^(?:https?://|mailto:)")
_BROADCASTS = frozenset({"here", "channel", "everyone"})
_RINGS = re.compile(r"<(?=[!@])|@(?=(?:channel|here|everyone|all)(?!\w))", re.IGNORECASE)
_INDENTED_RING = re.compile(r"(?: {4}|\t).*(?:<[!@]|@(?:channel|here|everyone|all))", re.IGNORECASE)


# ---------------------------------------------------------------- in


def mentioned(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """The ids of people and of conversations that a text mentions without their names."""
    users: set[str] = set()
    channels: set[str] = set()
    for token in _TOKEN.finditer(text):
        if token["sign"] == "@" and not token["label"]:
            users.add(token["target"])
        elif token["sign"] == "#" and not token["label"]:
            channels.add(token["target"])
    return frozenset(users), frozenset(channels)


def mentions(text: str, user: str) -> bool:
    """Whether the text mentions this person (or bot)."""
    return bool(user) and any(t["sign"] == "@" and t["target"] == user for t in _TOKEN.finditer(text))


def without_address(text: str, bot: str) -> str:
    """The text without the mention of the bot that opens it or closes it."""
    if not bot:
        return text
    mention = rf"<@{re.escape(bot)}(?:\|[^<>]*)?>"
    opened = re.sub(rf"\A\s*(?:{mention}[\s,:]*)+", "", text)
    return re.sub(rf"\s*{mention}\s*\Z", "", opened)


def readable(text: str, users: Mapping[str, str], channels: Mapping[str, str]) -> str:
    """Slack's encoded text as people read it: names for ids, links as Markdown, entities undone."""
    out: list[str] = []
    at = 0
    for token in _TOKEN.finditer(text):
        out += [_unescape(text[at : token.start()]), _token_text(token, users, channels)]
        at = token.end()
    out.append(_unescape(text[at:]))
    return "".join(out)


def _token_text(token: re.Match[str], users: Mapping[str, str], channels: Mapping[str, str]) -> str:
    target, label = token["target"], _unescape(token["label"] or "")
    match token["sign"]:
        case "@":
            return "@" + (label.removeprefix("@") or users.get(target) or target)
        case "#":
            return "#" + (label.removeprefix("#") or channels.get(target) or target)
        case "!":
            kind, _, rest = target.partition("^")
            name = rest if kind == "subteam" else kind if kind in _BROADCASTS else ""
            return label or (f"@{name}" if name else "")
    address = _unescape(target)
    bare = _SCHEME.sub("", address)
    if not label or label in (address, bare) or label.rstrip("/") == bare.rstrip("/"):
        return bare if address.startswith("mailto:") else address
    return f"[{label}]({address})"


def _unescape(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


# ---------------------------------------------------------------- out


def harmless(markdown: str) -> str:
    """Markdown in which no mention rings anybody. Code stays as it is, but for indented code, which Slack may not
    take for code. For the stable prefixes of a growing text, the result only grows."""
    text = neutralise_mentions(markdown, marks=Mentions.SLACK)
    return _without_indented_rings(text) if _INDENTED_RING.search(text) else text


def _without_indented_rings(text: str) -> str:
    blocks = Blocks(text)
    out: list[str] = []
    at = 0
    while at < len(text):
        stop = text.find("\n", at)
        stop = len(text) if stop < 0 else stop
        blocks.take(at, stop)
        line = text[at : stop + 1]
        out.append(disarmed(line) if blocks.leaf is Leaf.INDENTED else line)
        at = stop + 1
    return "".join(out)


def disarmed(text: str) -> str:
    """Text of any kind in which nothing can ring, code or not."""
    return _RINGS.sub(lambda found: found[0] + BREAKER, text)


def escaped(text: str) -> str:
    """Text that Slack's own format (`mrkdwn`) shows as it is."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def escaped_units(text: str) -> int:
    """The size of a text that is sent escaped, in UTF-16 units."""
    return utf16_units(escaped(text))


def unformatted(markdown: str) -> str:
    """Markdown as plain text for Slack's `text` field: readable, escaped, harmless."""
    return disarmed(escaped(plain_text(markdown)))


def fallback(markdown: str, length: int) -> str:
    """One line of plain text, for notifications."""
    return disarmed(escaped(summary(markdown, length)))


def clipped(text: str, size: int) -> str:
    """The text on one line in at most `size` UTF-8 bytes, cut at a character and ended with an ellipsis."""
    line = " ".join(text.split())
    if len(line.encode(errors="replace")) <= size:
        return line
    kept = line.encode(errors="replace")[: size - 3].decode(errors="ignore")
    return kept.rstrip() + "…"
