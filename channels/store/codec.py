"""How values become columns: payloads as JSON text, and text that both databases take."""

from __future__ import annotations

import json
from typing import cast

import sqlalchemy as sa
from pydantic import JsonValue, TypeAdapter
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

from channels.model import Inbound, Place, View

# Keys that a newer version added are ignored, so that a rolling restart can go back.
_INBOUND = TypeAdapter(Inbound)
_PLACE = TypeAdapter(Place)
_VIEW = TypeAdapter(View)


def inbound_to_json(inbound: Inbound) -> JsonValue:
    return cast(JsonValue, _INBOUND.dump_python(inbound, mode="json"))


def inbound_from_json(value: JsonValue) -> Inbound:
    return _INBOUND.validate_python(value)


def place_to_json(place: Place) -> JsonValue:
    return cast(JsonValue, _PLACE.dump_python(place, mode="json"))


def place_from_json(value: JsonValue) -> Place:
    return _PLACE.validate_python(value)


def view_to_json(view: View) -> JsonValue:
    return cast(JsonValue, _VIEW.dump_python(view, mode="json"))


def view_from_json(value: JsonValue) -> View:
    return _VIEW.validate_python(value)


class JsonText(TypeDecorator[JsonValue]):
    """A JSON value as text; None is NULL. NUL characters and half surrogate pairs survive as JSON escapes."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: JsonValue, dialect: Dialect) -> str | None:
        if value is None:
            return None
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return text if _is_unicode(text) else json.dumps(value, separators=(",", ":"))

    def process_result_value(self, value: str | None, dialect: Dialect) -> JsonValue:
        return None if value is None else cast(JsonValue, json.loads(value))


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
