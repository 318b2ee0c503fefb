"""Markdown as Telegram shows it: text and entities, never markup that could fail to parse.

telegramify-markdown does the conversion. What it would drop or misread (HTML, `||`, a lone `$`) travels through it
under stand-in characters, so that nothing of an answer is lost.
"""

from __future__ import annotations

import re

import structlog
from telegramify_markdown import RenderConfig, convert
from telegramify_markdown.entity import MessageEntity

from adapters.telegram.limits import RICH_BYTES, RICH_COLUMNS, RICH_LINES
from adapters.telegram.marks import LINK, PRE, Mark, Styled, legal, sendable, trimmed
from channels.markdown import (
    Mentions,
    fence_tables,
    find_maths,
    find_tables,
    neutralise_mentions,
    utf8_bytes,
    utf16_units,
)

log = structlog.get_logger(__name__)

# Noncharacters, which `sendable` has removed from the text: each stands for a character that the converter must not
# see, and is as long in UTF-16 as that.
_STAND_INS = {"<": "\ufdd0", "|": "\ufdd1", "$": "\ufdd2"}
_TO_STAND_INS = str.maketrans(_STAND_INS)
_FROM_STAND_INS = str.maketrans({stand_in: character for character, stand_in in _STAND_INS.items()})

_AUTOLINK = re.compile("\ufdd0((?:https?://|mailto:)[^\\s\ufdd0>]+)>")
_LANGUAGE = re.compile(r"[A-Za-z0-9+#_.-]{1,40}")
_URL = re.compile(r"(?:https?|tg|ftp|mailto|tel):\S+", re.IGNORECASE)


def _config() -> RenderConfig:
    config = RenderConfig.isolated()
    config.cite_expandable = False
    symbols = config.markdown_symbol
    symbols.heading_level_1 = symbols.heading_level_2 = symbols.heading_level_3 = symbols.heading_level_4 = ""
    symbols.unordered_list_item = "•"
    symbols.horizontal_rule = "———"
    return config


_CONFIG = _config()


def render(markdown: str) -> Styled:
    """The Markdown as text and marks; a table becomes aligned monospace text, maths is written in Unicode.

    Never raises, never loses text: what cannot be converted comes back as it was written.
    """
    source = _harmless(sendable(markdown))
    try:
        text, entities = convert(_shielded(fence_tables(source, 0)), latex_escape=False, config=_CONFIG)
    except Exception:
        log.warning("an answer could not be converted and is shown as plain text", length=len(markdown), exc_info=True)
        return trimmed(Styled(source))
    text, entities = _with_addresses(text, entities)
    marks = [mark for entity in entities if (mark := _mark(entity)) is not None]
    rendered = trimmed(Styled(text.translate(_FROM_STAND_INS), legal(marks)))
    return trimmed(Styled(source)) if rendered.is_blank else rendered


def rich(markdown: str) -> str | None:
    """The Markdown for a rich message, when it has tables or maths and fits in one; else None."""
    source = _harmless(sendable(markdown))
    tables = find_tables(source)
    if not tables and not any(find_maths(source)):
        return None
    fits = utf8_bytes(source) <= RICH_BYTES and source.count("\n") < RICH_LINES
    return source if fits and all(len(table.rows[0]) <= RICH_COLUMNS for table in tables) else None


def _harmless(markdown: str) -> str:
    return neutralise_mentions(markdown, marks=Mentions.TELEGRAM)


def _shielded(markdown: str) -> str:
    """The text with stand-ins for what the converter must not see; maths keeps (or gets) its dollars."""
    parts: list[str] = []
    at = 0
    for maths in find_maths(markdown):
        parts.append(markdown[at : maths.start].translate(_TO_STAND_INS))
        dollars = "$$" if maths.is_display else "$"
        parts.append(f"{dollars}{maths.content.strip().translate(_TO_STAND_INS)}{dollars}")
        at = maths.end
    parts.append(markdown[at:].translate(_TO_STAND_INS))
    return _AUTOLINK.sub(r"<\1>", "".join(parts))


def _with_addresses(text: str, entities: list[MessageEntity]) -> tuple[str, list[MessageEntity]]:
    """Links that Telegram cannot open (`./file`) with their address written behind their text."""
    closed = [entity for entity in entities if entity.type == LINK and not _URL.fullmatch(entity.url or "")]
    for link in sorted(closed, key=lambda entity: entity.offset, reverse=True):
        entities = [entity for entity in entities if entity is not link]
        if not link.url:
            continue
        end = link.offset + link.length
        units = text.encode("utf-16-le")
        text = f"{units[: 2 * end].decode('utf-16-le')} ({link.url}){units[2 * end :].decode('utf-16-le')}"
        more = utf16_units(link.url) + 3
        for entity in entities:
            if entity.offset >= end:
                entity.offset += more
            elif entity.offset + entity.length > end:
                entity.length += more
    return text, entities


def _mark(entity: MessageEntity) -> Mark | None:
    """The entity as a mark, if it is one that every bot may use."""
    if entity.type == "custom_emoji":
        return None
    url = entity.url.translate(_FROM_STAND_INS) if entity.url else None
    language = entity.language if entity.type == PRE and _LANGUAGE.fullmatch(entity.language or "") else None
    return Mark(entity.type, entity.offset, entity.offset + entity.length, url, language)
