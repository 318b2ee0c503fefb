"""Reading the text of a call: text, caption or rich message, held against the vendor's rules."""

from __future__ import annotations

import json

from tests.emulators.telegram.backend import Backend
from tests.emulators.telegram.errors import ApiError, bad_request
from tests.emulators.telegram.text import Entity, parse_entities, settle_text, utf16_length
from tests.emulators.telegram.wire import Json, Params

Text = tuple[str, tuple[Entity, ...]]
_RICH_FORMS = ("html", "markdown", "blocks")


class Prose:
    def __init__(self, backend: Backend, *, rich_messages: bool) -> None:
        self._backend = backend
        self.rich_messages = rich_messages

    def text(self, params: Params, *, allow_empty: bool = False, edit: bool = False) -> Text:
        """`text` and `entities` as the server keeps them. Raises 400 when it is empty or too long."""
        if not params.text("text") and not allow_empty:
            # A server without rich messages overlooks one; the client cannot know that before.
            raise bad_request("message text is empty", rule=None if params.has("rich_message") else "empty text")
        text, entities = self._settled(params, "text", "entities")
        limit = self._backend.limits.text_units
        if utf16_length(text) > limit:
            # The two methods word the same refusal differently.
            reason = "MESSAGE_TOO_LONG" if edit else "message is too long"
            raise bad_request(reason, rule=f"text of {utf16_length(text)} UTF-16 units (limit {limit})")
        if not text and not allow_empty:
            raise bad_request("text must be non-empty", rule="text of white space only")
        return text, entities

    def caption(self, values: Params) -> Text:
        """`caption` and `caption_entities`; may be empty."""
        text, entities = self._settled(values, "caption", "caption_entities")
        limit = self._backend.limits.caption_units
        if utf16_length(text) > limit:
            raise bad_request(
                "message caption is too long", rule=f"caption of {utf16_length(text)} UTF-16 units (limit {limit})"
            )
        return text, entities

    def rich(self, params: Params) -> tuple[str, Json]:
        """The source of a rich message, to be read by a test, and the message itself. Raises 400."""
        message = params.json_object("rich_message")
        if message is None:
            raise bad_request("rich_message is empty", rule="rich_message is missing")
        forms = [name for name in _RICH_FORMS if message.get(name)]
        if len(forms) != 1:
            raise _rich_refused(f"needs exactly one of {', '.join(_RICH_FORMS)}, has {forms}")
        content = message[forms[0]]
        source = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        limits = self._backend.limits
        if len(source) > limits.rich_characters and forms[0] != "blocks":
            raise _rich_refused(f"{len(source)} characters (limit {limits.rich_characters})")
        blocks, depth = _count_blocks(content)
        if blocks > limits.rich_blocks:
            raise _rich_refused(f"{blocks} blocks (limit {limits.rich_blocks})")
        if depth > limits.rich_nesting:
            raise _rich_refused(f"nested {depth} deep (limit {limits.rich_nesting})")
        return source, message

    def _settled(self, params: Params, text_name: str, entities_name: str) -> Text:
        if params.text("parse_mode") and self._backend.checks.parse_mode:
            self._backend.break_rule(f"parse_mode {params.text('parse_mode')} used instead of entities")
        entities = parse_entities(params.json_list(entities_name) or [])
        limit = self._backend.limits.entities
        if len(entities) > limit and self._backend.checks.entity_count:
            self._backend.break_rule(f"{len(entities)} entities (the vendor ignores what is past {limit})")
        text, kept = settle_text(params.text(text_name), entities, self._backend.break_rule)
        return text, tuple(kept[:limit])


def _rich_refused(reason: str) -> ApiError:
    return bad_request(f"can't parse rich message: {reason}", rule=f"rich message: {reason}")


def _count_blocks(content: object, depth: int = 1) -> tuple[int, int]:
    """Blocks in a tree of blocks (anything with a type), and how deep they are nested."""
    if isinstance(content, list):
        parts = [_count_blocks(item, depth) for item in content]
        return sum(count for count, _ in parts), max((deep for _, deep in parts), default=0)
    if isinstance(content, dict):
        own = 1 if "type" in content else 0
        count, deep = _count_blocks(list(content.values()), depth + own)
        return count + own, max(deep, depth if own else 0)
    return 0, 0
