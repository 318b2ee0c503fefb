"""Markdown as a card shows it.

Cards of schema 2.0 read standard Markdown, so the text stays as the agent wrote it but for what the platform would
take for its own: tags (`<at id=all>` notifies a whole group, one unknown id refuses the whole card), pictures (only
uploaded ones can be shown) and tables past the card's limit. Every change depends only on what stands before it, so
that the rendering of a growing text only grows at its end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from channels.markdown import BREAKER, fence_tables, heal, json_utf8_bytes, plain_text, stable_prefix
from channels.markdown.blocks import Blocks, Leaf
from channels.markdown.inline import Edge, scan_inline

_LIVE = re.compile(r"<(?!br\s*/?>)(?=[A-Za-z/!?])|!(?=\[)", re.IGNORECASE)
_MENTION = re.compile(r"</?(?:at|person)[\s/>]", re.IGNORECASE)
_UNFINISHED_MENTION = re.compile(r"</?(?:at?|p|pe|per|pers|perso|person)?\Z", re.IGNORECASE)
_WORD_END = re.compile(r"[\w.,;:?!…。，；：？！、)\"'”’）】》]\Z")
_IMAGE = re.compile(r"!\[(?P<alt>[^\[\]\n]*)\]\(<?(?P<target>[^\s()<>]+)>?(?:[ \t]+\"[^\"\n]*\")?\)")
_IMAGE_MAY_FOLLOW = frozenset(" \t\n|(>*_-")
_CODE = (Leaf.FENCE, Leaf.INDENTED)
_TABLE_RULE = re.compile(r"-:?[ \t]*\||\|[ \t]*:?-")
_FENCING = 12  # bytes that a code block's two fence lines add to a table
_ESCAPING = 4  # bytes by which a replaced character is longer than itself
_NO_PICTURE = "image"


def encodable(text: str) -> str:
    """The text with every half of a surrogate pair replaced: such a half cannot be sent."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def markdown(text: str, *, tables: int, aligned: bool = False) -> str:
    """A text as the content of a markdown element. Tables after the first `tables` become code blocks.

    `aligned`: with columns padded, for a text that will not grow any more.
    """
    if "|" in text:
        text = fence_tables(text, tables, aligned=aligned)
    live = [found.start() for found in _LIVE.finditer(text)]
    if not live:
        return text
    parts: list[str] = []
    at = 0
    stretches = _stretches(text, live)
    stretch = next(stretches)
    for place in live:
        while stretch.end <= place:
            stretch = next(stretches)
        if stretch.is_safe:
            continue
        kept, after = _replaced(text, place, stretch)
        parts += [text[at:place], kept]
        at = after
    return "".join(parts) + text[at:]


def growing(text: str) -> str:
    """The part of a growing text whose rendering stays right whatever follows.

    Words may be cut: the platform types the next letters out where it stopped.
    """
    # Of a text that ends in a word all of it is decided that would be if a space followed.
    settled = text[: min(len(text), stable_prefix(f"{text} " if _WORD_END.search(text) else text))]
    settled = _UNFINISHED_MENTION.sub("", settled)
    if settled.endswith("!") and _may_start_image(settled, len(settled) - 1):
        return settled[:-1]
    return settled


def healed(text: str) -> str:
    """A growing text as a message shows it that is replaced with every change."""
    return heal(text)


def measure(text: str) -> int:
    """An upper bound for the bytes of the rendered text inside the card's JSON."""
    size = json_utf8_bytes(text) + _ESCAPING * (text.count("<") + text.count("!["))
    return size + _FENCING * len(_TABLE_RULE.findall(text)) if "|" in text else size


def as_text(text: str) -> str:
    """A text for a message without any markup, in which no tag notifies anybody."""
    return _MENTION.sub(lambda tag: f"<{BREAKER}{tag.group()[1:]}", plain_text(text) or text)


# ---------------------------------------------------------------- inside


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A part of the text in which the same holds. `is_verbatim`: code, or an address. `is_safe`: code to every
    reader."""

    end: int
    is_verbatim: bool = False
    is_safe: bool = False


def _replaced(text: str, place: int, stretch: _Stretch) -> tuple[str, int]:
    """What stands for the live character at `place`, and where the text goes on after it."""
    char = text[place]
    if stretch.is_verbatim:
        # What one reader takes for code another may not: there only what does harm is broken, invisibly.
        is_harmful = char == "!" or _MENTION.match(text, place)
        return (char + BREAKER if is_harmful else char), place + 1
    if text[place - 1 : place] == "\\":
        return char + BREAKER, place + 1
    if char == "<":
        return "&#60;", place + 1
    image = _IMAGE.match(text, place) if _may_start_image(text, place) else None
    if image is None:
        return f"!{BREAKER}", place + 1
    return ("", place + 1) if image["alt"].strip() else (f"[{_NO_PICTURE}]", image.end("alt") + 1)


def _may_start_image(text: str, place: int) -> bool:
    """Whether the `!` at `place` can begin an image; after a word it ends a sentence."""
    return place == 0 or text[place - 1] in _IMAGE_MAY_FOLLOW


def _stretches(text: str, live: list[int]) -> Iterator[_Stretch]:
    """The text from its start to its end in parts of one kind; inline text is looked at only where it is live."""
    upcoming = iter(live)
    place: int | None = next(upcoming, None)
    for leaf, start, end, is_safe in _leaves(text):
        yield _Stretch(start)
        while place is not None and place < start:
            place = next(upcoming, None)
        if leaf in _CODE:
            yield _Stretch(end, is_verbatim=True, is_safe=is_safe)
        elif leaf is not Leaf.HTML and place is not None and place < end:
            inline = scan_inline(text, start, end, Edge.CLOSED)
            for begin, stop in sorted(inline.code + inline.targets):
                yield _Stretch(begin)
                yield _Stretch(stop, is_verbatim=True)
            yield _Stretch(end)
        else:
            yield _Stretch(end)
    yield _Stretch(len(text) + 1)


def _leaves(text: str) -> Iterator[tuple[Leaf, int, int, bool]]:
    """The leaf blocks of the text (of a table each row), and whether it is code to every reader: a block in backtick
    fences that is inside of nothing."""
    blocks = Blocks(text)
    at = 0
    leaf, line, start, is_safe = Leaf.NONE, 0, 0, False
    while at < len(text):
        stop = text.find("\n", at)
        stop = len(text) if stop < 0 else stop
        blocks.take(at, stop)
        if blocks.leaf is not leaf or blocks.leaf_line != line or leaf is Leaf.TABLE:
            if leaf is not Leaf.NONE:
                yield leaf, start, at, is_safe
            leaf, line, start = blocks.leaf, blocks.leaf_line, blocks.content
            fence = blocks.fence
            is_safe = leaf is Leaf.FENCE and fence is not None and fence.char == "`" and not blocks.containers
        at = stop + 1
    if leaf is not Leaf.NONE:
        yield leaf, start, len(text), is_safe
