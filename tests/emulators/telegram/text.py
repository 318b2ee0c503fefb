"""Message text: UTF-16 measure, the vendor's cleaning, entity rules, and what its server marks in a person's text."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tests.emulators.telegram.errors import bad_request
from tests.emulators.telegram.limits import ENTITY_TYPES
from tests.emulators.telegram.wire import Json

_BLOCKQUOTES = frozenset({"blockquote", "expandable_blockquote"})
_VERBATIM = frozenset({"pre", "code"})
_STYLES = frozenset({"bold", "italic", "underline", "strikethrough", "spoiler"})
_DETAILS = ("url", "user", "language", "custom_emoji_id", "unix_time", "date_time_format")
_SPACE = " \n\t\u00a0\u200b\u2000\u2001\u2002\u2003\u2009\u3000"

_COMMAND = re.compile(r"(?<![\w/@>])/[A-Za-z0-9_]{1,64}(?:@[A-Za-z0-9_]{3,32})?(?![\w/])")
_MENTION = re.compile(r"(?<![\w/])@[A-Za-z0-9_]{3,32}\b")
_URL = re.compile(r"https?://[^\s<>]+")


def utf16_length(text: str) -> int:
    """Length in UTF-16 code units, the vendor's unit of text and entities."""
    return len(text) + sum(1 for character in text if ord(character) > 0xFFFF)


def utf16_slice(text: str, offset: int, length: int) -> str:
    return text.encode("utf-16-le")[2 * offset : 2 * (offset + length)].decode("utf-16-le", "replace")


@dataclass(frozen=True, slots=True)
class Entity:
    """A marked stretch of text; offset and length in UTF-16 units."""

    type: str
    offset: int
    length: int
    details: Mapping[str, object] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.offset + self.length

    def to_json(self) -> Json:
        return {"type": self.type, "offset": self.offset, "length": self.length, **self.details}


def parse_entities(raw: Sequence[object]) -> list[Entity]:
    """Raises 400 for anything that is not a list of MessageEntity objects."""
    entities = []
    for item in raw:
        if not isinstance(item, dict):
            raise _malformed("expected an Object")
        kind, offset, length = item.get("type"), item.get("offset"), item.get("length")
        if kind not in ENTITY_TYPES:
            raise _malformed("Unsupported type specified")
        if not isinstance(offset, int) or not isinstance(length, int):
            raise _malformed('Field "offset" must be of type Number')
        if kind == "text_link" and not str(item.get("url", "")):
            raise _malformed('Can\'t find field "url"')
        details = {name: item[name] for name in _DETAILS if name in item}
        entities.append(Entity(str(kind), offset, length, details))
    return entities


def settle_text(text: str, entities: Sequence[Entity], break_rule: Callable[[str], None]) -> tuple[str, list[Entity]]:
    """The text and entities as the server keeps them: entities checked, control characters and outer space removed.

    Illegal nesting is repaired by the vendor without a word, so it is reported through `break_rule`; what the vendor
    refuses raises 400. The result may be empty; the caller knows whether that is allowed.
    """
    _check_bounds(text, entities)
    ordered = sorted(entities, key=lambda entity: (entity.offset, -entity.length))
    _check_crossing(ordered)
    kept = _drop_illegal(ordered, break_rule)
    cleaned, kept = _remove_controls(text, kept)
    return _trim(cleaned, kept)


def _malformed(reason: str) -> Exception:
    return bad_request(f"can't parse MessageEntity: {reason}", rule=f"malformed entity: {reason}")


def _check_bounds(text: str, entities: Sequence[Entity]) -> None:
    """Every edge must lie within the text and on a character's border."""
    borders = [0]
    for character in text:
        borders.append(borders[-1] + (2 if ord(character) > 0xFFFF else 1))
    total = borders[-1]

    def is_border(position: int) -> bool:
        index = bisect_left(borders, position)
        return index < len(borders) and borders[index] == position

    for entity in entities:
        place = f"entity {entity.type} at {entity.offset}+{entity.length} of {total} UTF-16 units"
        if entity.offset < 0:
            raise bad_request(f"receive an entity with incorrect offset {entity.offset}", rule=place)
        if entity.length <= 0:
            raise bad_request(f"receive an entity with incorrect length {entity.length}", rule=place)
        if entity.offset >= total:
            raise bad_request(f"entity begins after the end of the text at UTF-16 offset {entity.offset}", rule=place)
        if entity.end > total:
            raise _ends_late(entity, place)
        if not is_border(entity.offset):
            raise bad_request(
                f"entity begins in a middle of a UTF-16 symbol at byte offset {_bytes_before(text, entity.offset)}",
                rule=f"{place} splits a surrogate pair",
            )
        if not is_border(entity.end):
            raise bad_request(
                f"entity ends in a middle of a UTF-16 symbol at byte offset {_bytes_before(text, entity.end)}",
                rule=f"{place} splits a surrogate pair",
            )


def _bytes_before(text: str, units: int) -> int:
    return len(utf16_slice(text, 0, units - 1).encode("utf-8", "replace"))


def _ends_late(entity: Entity, rule: str) -> Exception:
    return bad_request(
        f"entity beginning at UTF-16 offset {entity.offset} ends after the end of the text at UTF-16 offset "
        f"{entity.end}",
        rule=rule,
    )


def _check_crossing(ordered: Sequence[Entity]) -> None:
    """Two entities that share characters must lie one within the other."""
    open_entities: list[Entity] = []
    for entity in ordered:
        while open_entities and open_entities[-1].end <= entity.offset:
            open_entities.pop()
        if open_entities and entity.end > open_entities[-1].end:
            outer = open_entities[-1]
            raise _ends_late(
                entity,
                f"entities overlap partly: {outer.type} {outer.offset}..{outer.end} and "
                f"{entity.type} {entity.offset}..{entity.end}",
            )
        open_entities.append(entity)


def _drop_illegal(ordered: Sequence[Entity], break_rule: Callable[[str], None]) -> list[Entity]:
    """core.telegram.org/bots/api#formatting-options: which entity may lie within which."""
    kept: list[Entity] = []
    for entity in ordered:
        outer = next((other for other in kept if other.end > entity.offset and not _may_hold(other, entity)), None)
        if outer is None:
            kept.append(entity)
        else:
            break_rule(f"entity {entity.type} at {entity.offset} inside {outer.type} at {outer.offset}")
    return kept


def _may_hold(outer: Entity, inner: Entity) -> bool:
    if outer.type in _VERBATIM:
        return False
    if outer.type in _BLOCKQUOTES:
        return inner.type not in _BLOCKQUOTES
    if outer.type in _STYLES:
        return inner.type not in _VERBATIM
    return inner.type in _STYLES


def _remove_controls(text: str, entities: Sequence[Entity]) -> tuple[str, list[Entity]]:
    """Carriage returns vanish; other control characters except the line feed become spaces."""
    removed: list[int] = []  # UTF-16 positions of the vanished characters
    result = []
    position = 0
    for character in text:
        if character == "\r":
            removed.append(position)
        elif ord(character) < 32 and character != "\n":
            result.append(" ")
        else:
            result.append(character)
        position += 2 if ord(character) > 0xFFFF else 1
    if not removed:
        return "".join(result), list(entities)
    moved = []
    for entity in entities:
        start = entity.offset - bisect_left(removed, entity.offset)
        end = entity.end - bisect_left(removed, entity.end)
        if end > start:
            moved.append(replace(entity, offset=start, length=end - start))
    return "".join(result), moved


def _trim(text: str, entities: Sequence[Entity]) -> tuple[str, list[Entity]]:
    """Space at the end goes; space at the beginning goes as far as no entity covers it."""
    text = text.rstrip(_SPACE)
    end = utf16_length(text)
    kept = [replace(entity, length=min(entity.end, end) - entity.offset) for entity in entities if entity.offset < end]
    first = min((entity.offset for entity in kept), default=end)
    cut = 0
    while cut < first and text[cut : cut + 1] in _SPACE and text[cut : cut + 1]:
        cut += 1
    return text[cut:], [replace(entity, offset=entity.offset - cut) for entity in kept]


def detect_entities(text: str) -> list[Entity]:
    """What the vendor's server marks in a person's text: commands, mentions, links."""
    found = [
        Entity(kind, utf16_length(text[: match.start()]), utf16_length(match.group()))
        for kind, pattern in (("bot_command", _COMMAND), ("mention", _MENTION), ("url", _URL))
        for match in pattern.finditer(text)
    ]
    links = [entity for entity in found if entity.type == "url"]
    kept = [
        entity
        for entity in found
        if entity.type == "url" or not any(link.offset <= entity.offset < link.end for link in links)
    ]
    kept = [
        entity
        for entity in kept
        if entity.type != "mention"
        or not any(other.type == "bot_command" and other.offset < entity.offset < other.end for other in kept)
    ]
    return sorted(kept, key=lambda entity: entity.offset)
