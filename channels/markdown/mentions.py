"""Broadcast mentions in text that a model or a user wrote, made harmless."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Flag, auto
from functools import cache

from channels.markdown.blocks import Blocks, Leaf
from channels.markdown.inline import Edge, scan_inline

BREAKER = "\u200b"
"""ZERO WIDTH SPACE: put after the first character of a mention, it leaves text that reads the same and notifies
nobody."""


class Mentions(Flag):
    """What is neutralised."""

    SLACK_GROUPS = auto()
    """`<!channel>`, `<!here>`, `<!everyone>`, `<!subteam^S1>`."""
    SLACK_USERS = auto()
    """`<@U1>`, `<@!1>`, `<@&1>`: also what Discord-like platforms write."""
    FEISHU = auto()
    """`<at id=all>`, `<at user_id="all">` and `<at …>` of any id."""
    WORDS = auto()
    """`@channel`, `@here`, `@everyone`, `@all`."""

    SLACK = SLACK_GROUPS | SLACK_USERS | WORDS
    TELEGRAM = WORDS
    ALL = SLACK_GROUPS | SLACK_USERS | FEISHU | WORDS


# A mention's first character is what BREAKER is put after. Before a word only ASCII letters and digits make it an
# address or a part of another word: Chinese is written without spaces.
_PATTERNS: dict[Mentions, str] = {
    Mentions.SLACK_GROUPS: r"<(?=!(?i:channel|here|everyone|subteam)\b)",
    Mentions.SLACK_USERS: r"<(?=@[!&]?(?i:[A-Z0-9]))",
    Mentions.FEISHU: r"<(?=/?(?i:at)[\s/>])",
    Mentions.WORDS: r"@(?<![A-Za-z0-9]@)(?=(?i:channel|here|everyone|all)(?![A-Za-z0-9]))",
}
_ADDRESS_BEFORE = re.compile(r"(?:https?://|www\.)[^\s<>()\[\]\"'`|]*[/=]\Z", re.IGNORECASE)
_LONGEST_ADDRESS = 2048


def neutralise_mentions(text: str, *, marks: Mentions = Mentions.ALL) -> str:
    """`text` in which no mention of the kinds in `marks` notifies anyone.

    Code spans and blocks, link destinations, bare addresses and email addresses stay as they are. Idempotent. A
    surface that only appends calls it on stable prefixes: for `stable_prefix` borders a <= b of a growing text,
    `neutralise_mentions(text[:b])` starts with `neutralise_mentions(text[:a])`, so the difference is what to append.
    A code span of more than 300 characters counts as text, as it does for `stable_prefix`.
    """
    pattern = _pattern(marks)
    # A broken mention is no HTML any more: what followed it may be code no longer. So again, until nothing is left.
    while (neutralised := _break_mentions(text, pattern)) != text:
        text = neutralised
    return text


def _break_mentions(text: str, pattern: re.Pattern[str]) -> str:
    places = [found.end() for found in pattern.finditer(text)]
    if not places:
        return text
    parts: list[str] = []
    at = 0
    hidden = _hidden_spans(text, places)
    span = next(hidden, None)
    for place in places:
        while span is not None and span[1] <= place:
            span = next(hidden, None)
        if (span is not None and span[0] < place) or _is_in_address(text, place - 1):
            continue
        parts += [text[at:place], BREAKER]
        at = place
    return "".join(parts) + text[at:]


@cache
def _pattern(marks: Mentions) -> re.Pattern[str]:
    return re.compile("|".join(part for kind, part in _PATTERNS.items() if kind in marks) or "(?!)")


def _is_in_address(text: str, at: int) -> bool:
    return text[at - 1 : at] in ("/", "=") and bool(_ADDRESS_BEFORE.search(text, max(0, at - _LONGEST_ADDRESS), at))


def _hidden_spans(text: str, places: list[int]) -> Iterator[tuple[int, int]]:
    """The parts of `text` that are code or link destinations, in order; inline ones only where there is a place."""
    upcoming = iter(places)
    place: int | None = next(upcoming, None)
    for leaf, start, end in _leaves(text):
        while place is not None and place <= start:
            place = next(upcoming, None)
        if leaf in (Leaf.FENCE, Leaf.INDENTED):
            yield start, end
        elif leaf is not Leaf.HTML and place is not None and place <= end:
            inline = scan_inline(text, start, end, Edge.CLOSED)
            yield from sorted(inline.code + inline.targets)


def _leaves(text: str) -> Iterator[tuple[Leaf, int, int]]:
    """The leaf blocks of `text`; of a table each row is one."""
    blocks = Blocks(text)
    at = 0
    leaf, leaf_line, leaf_start = Leaf.NONE, 0, 0
    while at < len(text):
        stop = text.find("\n", at)
        stop = len(text) if stop < 0 else stop
        blocks.take(at, stop)
        goes_on = blocks.leaf is leaf and blocks.leaf_line == leaf_line and leaf is not Leaf.TABLE
        if not goes_on:
            if leaf is not Leaf.NONE:
                yield leaf, leaf_start, at
            leaf, leaf_line, leaf_start = blocks.leaf, blocks.leaf_line, blocks.content
        at = stop + 1
    if leaf is not Leaf.NONE:
        yield leaf, leaf_start, len(text)
