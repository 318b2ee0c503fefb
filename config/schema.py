"""The JSON schema of the configuration file, for editors: what may be written, before anything is filled in."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import JsonValue

from channels.access import Policy
from config.explaining import PLATFORMS
from config.settings import Settings

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_FILLED_IN: JsonValue = {"type": "string", "pattern": r"^(\$[A-Za-z_][A-Za-z0-9_]*|file:.+)$"}
_NO_TEXTS = ("integer", "number", "boolean")
_CONSTRAINTS = ("type", "enum", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_HIDDEN = "**********"  # what pydantic writes for the default of a secret

Node = dict[str, JsonValue]


def schema_of_the_file() -> Node:
    """A schema that takes whatever the bridge takes: also `$NAME` and `file:PATH` where a number or a word belongs."""
    schema: Node = Settings.model_json_schema()
    definitions = schema["$defs"]
    assert isinstance(definitions, dict)
    for node in list(_nodes(schema)):
        if node.get("default") == _HIDDEN:
            del node["default"]
        if node.get("type") in _NO_TEXTS or "enum" in node:
            written = {key: node.pop(key) for key in _CONSTRAINTS if key in node}
            node["anyOf"] = [written, _FILLED_IN]
    for model in PLATFORMS.values():
        channel = _node(definitions[model.__name__])
        required = channel.get("required", [])
        assert isinstance(required, list)
        channel["required"] = ["platform", *required]
    for key in _node(_node(definitions[Policy.__name__])["properties"]).values():
        if isinstance(key, dict) and key.get("type") == "array":
            key["items"] = {"type": ["string", "integer"]}  # ids of a platform, as they are
    return {"$schema": _DIALECT, **schema, "title": "Configuration of Channel Bridge"}


def _nodes(value: JsonValue) -> Iterator[Node]:
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _nodes(item)


def _node(value: JsonValue) -> Node:
    assert isinstance(value, dict)
    return value
