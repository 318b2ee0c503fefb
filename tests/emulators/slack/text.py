"""Slack's text: how what people type is encoded, and which of a bot's words would ring everybody."""

from __future__ import annotations

import re
from collections.abc import Mapping

_FENCE = re.compile(r"^[ \t>]*(`{3,}|~{3,})")
_TICKS = re.compile(r"`+")
_BROADCAST = re.compile(
    r"<!(?:channel|here|everyone)(?:\|[^>]*)?>|<!subteam\^[^>]+>|(?<![\w/])@(?:channel|here|everyone)(?!\w)",
    re.IGNORECASE,
)
_WORD = re.compile(
    r"(?P<url>https?://[^\s<>|]+[^\s<>|.,;:!?)\"'])"
    r"|(?P<email>[\w.+-]+@[\w-]+\.[\w.-]*\w)"
    r"|(?<!\w)@(?P<user>[\w.-]*\w)"
    r"|(?<!\w)#(?P<channel>[\w-]+)"
)


def broadcasts(text: str) -> list[str]:
    """The live broadcast mentions in a text that a bot sends, in order.

    Judged to be live: `<!channel>`, `<!here>`, `<!everyone>` (with or without a label), a user group `<!subteam^…>`,
    and the bare words `@channel`, `@here`, `@everyone` standing by themselves. Slack turns the bare words into mentions
    where names are linked (`link_names`, `parse=full`, text that people paste); whether its Markdown reader does is
    undocumented, so they count in every field. Not live: anything inside a fenced block or a code span, an escaped
    `&lt;!channel&gt;`, a word broken by an invisible character, an address such as `ann@here.example`.
    Indented code counts as text, since Slack's own formatting has no such thing; a backslash does not disarm.
    """
    return _BROADCAST.findall(without_code(text))


def without_code(text: str) -> str:
    """The text with fenced blocks and code spans blanked; a fence that nothing closes runs to the end."""
    kept: list[str] = []
    fence = ""
    for line in text.splitlines():
        opened = _FENCE.match(line)
        if fence:
            if opened and opened[1].startswith(fence) and not line[opened.end() :].strip():
                fence = ""
            kept.append("")
        elif opened and not (opened[1][0] == "`" and "`" in line[opened.end() :]):
            fence = opened[1]
            kept.append("")
        else:
            kept.append(line)
    return "\n\n".join(_without_spans(part) for part in "\n".join(kept).split("\n\n"))


def _without_spans(paragraph: str) -> str:
    out: list[str] = []
    at = 0
    while opened := _TICKS.search(paragraph, at):
        out.append(paragraph[at : opened.start()])
        closed = next((run for run in _TICKS.finditer(paragraph, opened.end()) if run[0] == opened[0]), None)
        if closed is None:
            out.append(opened[0])
            at = opened.end()
        else:
            out.append(" ")
            at = closed.end()
    return "".join(out) + paragraph[at:]


def escape(text: str) -> str:
    """`&`, `<` and `>` as Slack stores them."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def encode_typed(text: str, users: Mapping[str, str], channels: Mapping[str, str]) -> str:
    """What a person typed, as Slack sends it to apps: escaped, with names, links and addresses in angle brackets.

    `users` and `channels` map names to ids; a name that is in neither stays as it was typed.
    """
    out: list[str] = []
    at = 0
    for word in _WORD.finditer(text):
        encoded = _encode_word(word, users, channels)
        if encoded is None:
            continue
        out.extend((escape(text[at : word.start()]), encoded))
        at = word.end()
    out.append(escape(text[at:]))
    return "".join(out)


def _encode_word(word: re.Match[str], users: Mapping[str, str], channels: Mapping[str, str]) -> str | None:
    if url := word["url"]:
        return f"<{escape(url)}>"
    if email := word["email"]:
        return f"<mailto:{email}|{email}>"
    if (name := word["user"]) is not None:
        if name in ("channel", "here", "everyone"):
            return f"<!{name}>"
        return f"<@{users[name]}>" if name in users else None
    channel = word["channel"]
    return f"<#{channels[channel]}|{channel}>" if channel in channels else None


def unescape(text: str) -> str:
    """The reverse of `escape`."""
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
