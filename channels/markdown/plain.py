"""Markdown as plain text, for notifications, summaries and platforms of last resort."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from markdown_it.token import Token

from channels.markdown.graphemes import last_grapheme_border
from channels.markdown.parser import parse, parser

# Only tags that mark text up are left out; `List<String>` keeps its angle brackets.
_MARKUP_TAG = re.compile(
    r"</?(?:a|abbr|b|big|blockquote|center|code|del|details|div|em|font|h[1-6]|i|img|ins|kbd|li|mark|ol|p|pre|q|s|samp|"
    r"small|span|strike|strong|sub|summary|sup|table|tbody|td|th|thead|tr|tt|u|ul|var)(?:\s[^>]*)?/?>|<!--.*?-->",
    re.IGNORECASE | re.DOTALL,
)
_LINE_BREAK_TAG = re.compile(r"<br\s*/?>", re.IGNORECASE)
_MARKS = re.compile(r"[\\`*_~\[\]<&!]")
_SPACE = re.compile(r"\s+")

_Target = Callable[[str, str], str]
"""What stands behind the text of a link or an image, given the text and the address."""


def plain_text(markdown: str) -> str:
    """`markdown` as readable text without marks. List markers and numbers stay, a link shows its address after its
    text, an image its description; a table's cells are parted by ` | `."""
    writer = _Writer()
    for token in parse(markdown):
        writer.take(token)
    return "\n".join(writer.lines)


def summary(markdown: str, length: int) -> str:
    """The beginning of `markdown` as one line of plain text of at most `length` (1 or more) characters, cut at a word
    and ended with `…` where something is left out. Raises ValueError for a length below 1."""
    if length < 1:
        raise ValueError(f"a summary needs at least one character: {length}")
    # Marks and addresses make the source longer than its text, seldom by more than this.
    source = markdown[: 16 * length + 1024]
    line = _SPACE.sub(" ", plain_text(source)).strip()
    if len(line) <= length and len(source) == len(markdown):
        return line
    cut = last_grapheme_border(line, min(length - 1, len(line)), reach=length)
    if cut < len(line) and not line[cut].isspace():
        word = line.rfind(" ", 0, cut)
        cut = word if word > cut // 2 else cut
    return line[:cut].rstrip() + "…"


def plain_inline(markdown: str) -> str:
    """One line of inline Markdown without marks; of a link, only the text."""
    return noted_inline(markdown, lambda _: "")


def noted_inline(markdown: str, note: Callable[[str], str]) -> str:
    """One line of inline Markdown (a table's cell) without marks; behind the text of a link or an image stands what
    `note` gives for its address. An address that is its own text needs no note."""
    if not _MARKS.search(markdown):
        return markdown

    def noted(text: str, address: str) -> str:
        return f" {said}" if (said := note(address)) and text else said

    return _SPACE.sub(" ", _inline_text(_parsed_inline(markdown), noted, noted))


@lru_cache(maxsize=4096)
def _parsed_inline(markdown: str) -> Sequence[Token]:
    return parser().parseInline(markdown)[0].children or ()


@dataclass(slots=True)
class _Indent:
    """What a container puts before its first line and before further lines."""

    first: str
    further: str
    is_begun: bool = False


class _Writer:
    """Takes block tokens and writes lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._indents: list[_Indent] = []
        self._row: list[str] | None = None
        self._wants_blank = False

    def take(self, token: Token) -> None:
        kind = token.type
        if kind == "inline":
            text = _inline_text(token.children or (), _in_brackets, _nothing)
            if self._row is None:
                self._write(text)
            else:
                self._row.append(_SPACE.sub(" ", text))
        elif kind in ("fence", "code_block"):
            self._write(token.content.removesuffix("\n"))
            self._wants_blank = True
        elif kind == "html_block":
            if text := _without_tags(token.content).strip():
                self._write(text)
                self._wants_blank = True
        elif kind == "list_item_open":
            marker = f"{token.info}{token.markup} " if token.info else "- "
            self._indents.append(_Indent(marker, " " * len(marker)))
        elif kind == "blockquote_open":
            self._indents.append(_Indent("> ", "> "))
        elif kind in ("list_item_close", "blockquote_close"):
            self._indents.pop()
            self._wants_blank = self._wants_blank or kind == "blockquote_close"
        elif kind == "tr_open":
            self._row = []
        elif kind == "tr_close":
            self._write(" | ".join(self._row or ()))
            self._row = None
        elif (
            kind in ("heading_close", "table_close", "hr")
            or (kind == "paragraph_close" and not token.hidden)
            or (kind in ("bullet_list_close", "ordered_list_close") and not self._indents)
        ):
            self._wants_blank = True

    def _write(self, text: str) -> None:
        if self._wants_blank and self.lines:
            self.lines.append("".join(indent.further for indent in self._indents if indent.is_begun).rstrip())
        self._wants_blank = False
        for line in text.split("\n"):
            prefix = "".join(indent.further if indent.is_begun else indent.first for indent in self._indents)
            self.lines.append((prefix + line).rstrip())
            for indent in self._indents:
                indent.is_begun = True


def _in_brackets(text: str, address: str) -> str:
    return f" ({address})" if text else address


def _nothing(_text: str, _address: str) -> str:
    return ""


def _inline_text(tokens: Sequence[Token], of_link: _Target, of_image: _Target) -> str:
    parts: list[str] = []
    links: list[tuple[str, int]] = []
    for token in tokens:
        kind = token.type
        if kind in ("text", "code_inline"):
            parts.append(token.content)
        elif kind in ("softbreak", "hardbreak"):
            parts.append("\n")
        elif kind == "image":
            text = _inline_text(token.children or (), _nothing, _nothing)
            parts += [text, of_image(text, str(token.attrGet("src") or ""))]
        elif kind == "html_inline":
            parts.append(_without_tags(token.content))
        elif kind == "link_open":
            links.append((str(token.attrGet("href") or ""), len(parts)))
        elif kind == "link_close":
            address, start = links.pop()
            text = "".join(parts[start:])
            if address and address.removeprefix("mailto:") != text:
                parts.append(of_link(text, address))
    return "".join(parts)


def _without_tags(markup: str) -> str:
    return _MARKUP_TAG.sub("", _LINE_BREAK_TAG.sub("\n", markup))
