"""How values become columns: payloads as JSON text, and text that both databases take."""

from __future__ import annotations

import json
from typing import TypeVar, cast

import sqlalchemy as sa
from pydantic import JsonValue, TypeAdapter, ValidationError
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

from channels.model import Inbound, Place, View
from channels.store.records import Unreadable

T = TypeVar("T")

# Keys that a newer version added are ignored, so that a rolling restart can go back.
_INBOUND = TypeAdapter(Inbound)
_PLACE = TypeAdapter(Place)
_VIEW = TypeAdapter(View)


def inbound_to_json(inbound: Inbound) -> JsonValue:
    return cast(JsonValue, _INBOUND.dump_python(inbound, mode="json"))


def inbound_from_json(value: JsonValue) -> Inbound:
    """Raises `Unreadable`, like the other ways back."""
    return _read(_INBOUND, value)


def readable_inbound(value: JsonValue) -> Inbound | None:
    """For a look through many: those that cannot be read are none of those looked for."""
    try:
        return inbound_from_json(value)
    except Unreadable:
        return None


def place_to_json(place: Place) -> JsonValue:
    return cast(JsonValue, _PLACE.dump_python(place, mode="json"))


def place_from_json(value: JsonValue) -> Place:
    return _read(_PLACE, value)


def view_to_json(view: View) -> JsonValue:
    return cast(JsonValue, _VIEW.dump_python(view, mode="json"))


def view_from_json(value: JsonValue) -> View:
    return _read(_VIEW, value)


def _read(kind: TypeAdapter[T], value: JsonValue) -> T:
    try:
        return kind.validate_python(value)
    except ValidationError as error:
        # What pydantic prints by itself quotes the value, and so what people wrote.
        found = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in found["loc"])
        raise Unreadable(f"{where}: {found['msg']}"[:200] if where else found["msg"]) from None


class JsonText(TypeDecorator[JsonValue]):
    """A JSON value as text; None is NULL. NUL characters and half surrogate pairs survive as JSON escapes.

    Text that is no JSON comes back as the string that it is, which no reader takes for what it expects: so a damaged
    value spoils its own row, and not the result in which it is fetched with others.
    """

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: JsonValue, dialect: Dialect) -> str | None:
        if value is None:
            return None
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return text if _is_unicode(text) else json.dumps(value, separators=(",", ":"))

    def process_result_value(self, value: str | None, dialect: Dialect) -> JsonValue:
        try:
            return None if value is None else cast(JsonValue, json.loads(value))
        except (ValueError, RecursionError):
            return value


class CleanText(TypeDecorator[str]):
    """Text in which what a database cannot hold (NUL, half a surrogate pair) is replaced, on the way in only."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        if value is None:
            return None
        if not _is_unicode(value):
            value = value.encode("utf-8", "replace").decode()
        return value.replace("\0", "\N{REPLACEMENT CHARACTER}")

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        return value


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
