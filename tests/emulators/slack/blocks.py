"""Block Kit as far as messages need it: what is allowed, what people read in it, and what they can press."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tests.emulators.slack.errors import Refusal
from tests.emulators.slack.rules import MARKDOWN_CHARS, MESSAGE_BLOCKS
from tests.emulators.slack.text import unescape

JsonObject: TypeAlias = dict[str, Any]

BLOCK_TYPES = frozenset(
    {
        "actions",
        "alert",
        "call",
        "card",
        "carousel",
        "container",
        "context",
        "context_actions",
        "divider",
        "file",
        "header",
        "image",
        "input",
        "markdown",
        "plan",
        "rich_text",
        "section",
        "table",
        "task_card",
        "video",
    }
)
SECTION_CHARS = 3_000
HEADER_CHARS = 150
ID_CHARS = 255
BUTTON_CHARS = 75
VALUE_CHARS = 2_000
MAX_ELEMENTS = {"actions": 25, "context": 10, "context_actions": 5}
TABLE_ROWS, TABLE_COLUMNS = 100, 20

_TOKEN = re.compile(r"<([@#]?)([^>|]+)(?:\|([^>]*))?>")


@dataclass(frozen=True, slots=True)
class Button:
    """Something to press or choose under a message. For a choice, `value` is the option's value."""

    action_id: str
    text: str
    value: str
    block_id: str
    kind: str = "button"


def check_blocks(blocks: object, *, too_many: str = "invalid_blocks") -> list[JsonObject]:
    """The blocks as a list of objects; raises `Refusal` as Slack would."""
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise Refusal("invalid_blocks_format", broken="blocks are not a list of objects")
    if len(blocks) > MESSAGE_BLOCKS:
        raise Refusal(too_many, broken=f"{len(blocks)} blocks, {MESSAGE_BLOCKS} are allowed")
    if sum(len(str(block.get("text", ""))) for block in blocks if block.get("type") == "markdown") > MARKDOWN_CHARS:
        raise Refusal("msg_blocks_too_long", broken=f"markdown blocks hold more than {MARKDOWN_CHARS} characters")
    complaints = list(_complaints(blocks))
    if complaints:
        raise Refusal("invalid_blocks", broken=f"invalid blocks: {complaints[0]}", messages=complaints)
    return blocks


def _complaints(blocks: Sequence[JsonObject]) -> Iterator[str]:
    ids = [block["block_id"] for block in blocks if block.get("block_id")]
    if len(ids) != len(set(ids)):
        yield "[ERROR] block_id is not unique [json-pointer:/blocks]"
    if sum(block.get("type") == "table" for block in blocks) > 1:
        yield "[ERROR] only one table is allowed [json-pointer:/blocks]"
    for number, block in enumerate(blocks):
        for complaint in _block_complaints(block):
            yield f"[ERROR] {complaint} [json-pointer:/blocks/{number}]"


def _block_complaints(block: JsonObject) -> Iterator[str]:
    kind = block.get("type")
    if kind not in BLOCK_TYPES:
        yield f"unsupported block type {kind!r}"
        return
    if len(str(block.get("block_id", ""))) > ID_CHARS:
        yield f"block_id must be at most {ID_CHARS} characters"
    if kind == "section":
        yield from _section_complaints(block)
    elif kind == "header":
        if len(_text_of(block.get("text"))) > HEADER_CHARS:
            yield f"text must be at most {HEADER_CHARS} characters"
    elif kind == "markdown":
        if not isinstance(block.get("text"), str) or not block["text"]:
            yield "text must be a string that is not empty"
    elif kind == "table":
        yield from _table_complaints(block)
    elif kind in MAX_ELEMENTS:
        yield from _element_complaints(block, MAX_ELEMENTS[kind])


def _section_complaints(block: JsonObject) -> Iterator[str]:
    text = block.get("text")
    if text is None and not block.get("fields"):
        yield "section needs text or fields"
    if text is not None and not _text_of(text):
        yield "text must not be empty"
    if len(_text_of(text)) > SECTION_CHARS:
        yield f"text must be at most {SECTION_CHARS} characters"


def _table_complaints(block: JsonObject) -> Iterator[str]:
    rows = block.get("rows")
    if not isinstance(rows, list) or not rows:
        yield "rows are missing"
    elif len(rows) > TABLE_ROWS:
        yield f"a table has at most {TABLE_ROWS} rows"
    elif any(len(row) > TABLE_COLUMNS for row in rows):
        yield f"a table has at most {TABLE_COLUMNS} columns"


def _element_complaints(block: JsonObject, most: int) -> Iterator[str]:
    elements = block.get("elements")
    if not isinstance(elements, list) or not elements:
        yield "elements are missing"
        return
    if len(elements) > most:
        yield f"at most {most} elements are allowed"
    ids = [element["action_id"] for element in elements if element.get("action_id")]
    if len(ids) != len(set(ids)):
        yield "action_id is not unique"
    for element in elements:
        if len(str(element.get("action_id", ""))) > ID_CHARS:
            yield f"action_id must be at most {ID_CHARS} characters"
        pressable = [element]
        if element.get("type") == "feedback_buttons":
            pressable = [element.get("positive_button"), element.get("negative_button")]
            if not all(isinstance(button, dict) and button.get("value") for button in pressable):
                yield "feedback_buttons needs a positive and a negative button, each with a value"
                continue
        elif element.get("type") != "button":
            continue
        for button in pressable:
            if not 0 < len(_text_of(button.get("text"))) <= BUTTON_CHARS:
                yield f"a button's text has 1 to {BUTTON_CHARS} characters"
            if len(str(button.get("value", ""))) > VALUE_CHARS:
                yield f"a button's value has at most {VALUE_CHARS} characters"


def _text_of(text: object) -> str:
    if isinstance(text, dict):
        return str(text.get("text", ""))
    return text if isinstance(text, str) else ""


def visible_text(blocks: Sequence[JsonObject]) -> str:
    """What people read in the blocks, one line for each piece; buttons are not text."""
    return "\n".join(piece for block in blocks for piece, _ in _pieces(block) if piece)


def resolved_texts(blocks: Sequence[JsonObject]) -> list[str]:
    """The pieces in which Slack resolves mentions: mrkdwn and Markdown, not plain text."""
    return [piece for block in blocks for piece, resolved in _pieces(block) if resolved]


def _pieces(block: JsonObject) -> Iterator[tuple[str, bool]]:
    """Each piece of text in a block, and whether mentions in it come alive."""
    kind = block.get("type")
    if kind == "markdown":
        yield str(block.get("text", "")), True
    elif kind in ("section", "header", "context"):
        for text in [block.get("text"), *block.get("fields", []), *block.get("elements", [])]:
            if isinstance(text, dict) and "text" in text:
                yield _text_of(text), text.get("type") == "mrkdwn"
    elif kind == "rich_text":
        yield _rich(block), True
    elif kind == "table":
        for row in block.get("rows", []):
            yield " | ".join(_rich(cell) for cell in row), True
    elif kind in ("task_card", "plan"):
        yield str(block.get("title", "")), False
        for inner in [block.get("details"), block.get("output"), *block.get("tasks", [])]:
            if isinstance(inner, dict):
                yield from _pieces(inner)
    elif kind in ("container", "carousel"):
        for inner in [*block.get("blocks", []), *block.get("child_blocks", []), *block.get("elements", [])]:
            yield from _pieces(inner)


def _rich(element: JsonObject) -> str:
    kind = element.get("type")
    if kind in ("text", "link", "raw_text"):
        return str(element.get("text") or element.get("url", ""))
    if kind == "user":
        return f"<@{element.get('user_id')}>"
    if kind == "channel":
        return f"<#{element.get('channel_id')}>"
    if kind == "broadcast":
        return f"<!{element.get('range')}>"
    if kind == "emoji":
        return f":{element.get('name')}:"
    inner = [_rich(child) for child in element.get("elements", [])]
    if kind == "rich_text_preformatted":
        return "```\n" + "".join(inner) + "\n```"
    return ("\n" if kind in ("rich_text", "rich_text_list") else "").join(inner)


def buttons(blocks: Sequence[JsonObject]) -> list[Button]:
    """All that can be pressed or chosen, in the order people see it."""
    found: list[Button] = []
    for number, block in enumerate(blocks):
        block_id = str(block.get("block_id") or f"b{number}")
        elements = [*block.get("elements", []), block.get("accessory")]
        for element in elements:
            if isinstance(element, dict):
                found.extend(_pressable(element, block_id))
    return found


def _pressable(element: JsonObject, block_id: str) -> Iterator[Button]:
    kind = str(element.get("type", ""))
    action_id = str(element.get("action_id", ""))
    if kind == "feedback_buttons":
        for part in ("positive_button", "negative_button"):
            button = element[part]
            yield Button(action_id, _text_of(button.get("text")), str(button.get("value", "")), block_id, kind)
    elif kind in ("button", "icon_button"):
        yield Button(action_id, _text_of(element.get("text")), str(element.get("value", "")), block_id, kind)
    elif kind in ("static_select", "radio_buttons", "overflow"):
        for option in element.get("options", []):
            yield Button(action_id, _text_of(option.get("text")), str(option.get("value", "")), block_id, kind)


def rich_text(encoded: str) -> list[JsonObject]:
    """The blocks that Slack adds to a message typed by a person: one section of text, mentions and links."""
    elements: list[JsonObject] = []
    at = 0
    for token in _TOKEN.finditer(encoded):
        if token.start() > at:
            elements.append({"type": "text", "text": unescape(encoded[at : token.start()])})
        elements.append(_rich_element(token[1], token[2], token[3]))
        at = token.end()
    if at < len(encoded):
        elements.append({"type": "text", "text": unescape(encoded[at:])})
    section = {"type": "rich_text_section", "elements": elements}
    return [{"type": "rich_text", "block_id": "typed", "elements": [section]}]


def _rich_element(sign: str, target: str, label: str | None) -> JsonObject:
    if sign == "@":
        return {"type": "user", "user_id": target}
    if sign == "#":
        return {"type": "channel", "channel_id": target}
    if target.startswith("!"):
        return {"type": "broadcast", "range": target[1:]}
    link: JsonObject = {"type": "link", "url": unescape(target)}
    if label:
        link["text"] = unescape(label)
    return link
