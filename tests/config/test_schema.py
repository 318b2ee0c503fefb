"""An editor that checks the file by the schema accepts whatever the bridge accepts, and finds what it refuses."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from config.schema import schema_of_the_file

EXAMPLE = Path(__file__).parent.parent.parent / "config" / "config.example.yaml"
SCHEMA = schema_of_the_file()
TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
}


def accepts(schema: Any, value: Any) -> bool:
    """What an editor says, for the words of JSON Schema that ours uses."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/$defs/")
        return accepts(SCHEMA["$defs"][name], value)  # type: ignore[index]
    kinds = schema.get("type", [])
    verdicts = [
        not kinds or any(TYPES[kind](value) for kind in ([kinds] if isinstance(kinds, str) else kinds)),
        "anyOf" not in schema or any(accepts(part, value) for part in schema["anyOf"]),
        "oneOf" not in schema or sum(accepts(part, value) for part in schema["oneOf"]) == 1,
        "enum" not in schema or value in schema["enum"],
        "const" not in schema or value == schema["const"],
    ]
    if isinstance(value, dict):
        known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        verdicts += [name in value for name in schema.get("required", [])]
        verdicts += [
            accepts(known[name], item)
            if name in known
            else (others if isinstance(others, bool) else accepts(others, item))
            for name, item in value.items()
        ]
    if isinstance(value, list):
        verdicts += [accepts(schema.get("items", {}), item) for item in value]
        verdicts.append(len(value) <= schema.get("maxItems", len(value)))
    if isinstance(value, str):
        verdicts.append("pattern" not in schema or re.search(schema["pattern"], value) is not None)
        verdicts.append(schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)))
    if TYPES["number"](value):
        verdicts += [value >= schema.get("minimum", value), value <= schema.get("maximum", value)]
        verdicts.append("exclusiveMinimum" not in schema or value > schema["exclusiveMinimum"])
    return all(verdicts)


def test_it_says_by_which_rules_it_is_written() -> None:
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_the_example_is_accepted() -> None:
    assert accepts(SCHEMA, yaml.safe_load(EXAMPLE.read_text(encoding="utf-8").replace(": off ", ": 'off' ")))


@pytest.mark.parametrize(
    "text",
    [
        "server: {port: $PORT}",
        "server: {port: file:port.txt}",
        "store: {keep_days: $DAYS}",
        "channels: {a: {platform: web, enabled: $ON, history_days: $DAYS, streaming: $HOW}}",
        "channels: {a: {platform: web, history_days: null, policy: {allow_users: [123, 'U1'], when_busy: $BUSY}}}",
        "channels: {a: {platform: telegram, bot_token: $T, limits: {budgets: {group: {limit: $N, window: 1.5}}}}}",
        "channels: {a: {platform: web, run: {config: {anything: [1, {}]}}}}",
    ],
)
def test_what_the_bridge_takes_is_accepted(text: str) -> None:
    assert accepts(SCHEMA, yaml.safe_load(text))


@pytest.mark.parametrize(
    "text",
    [
        "gatway: {}",
        "server: {port: many}",
        "server: {port: 99999}",
        "channels: {a: {}}",
        "channels: {a: {bot_token: '1:x'}}",
        "channels: {a: {platform: icq}}",
        "channels: {a: {platform: web, title: ''}}",
        "channels: {a: {platform: web, enabled: sometimes}}",
        "channels: {a: {platform: web, streaming: fast}}",
        "channels: {a: {platform: telegram}}",
    ],
)
def test_what_the_bridge_refuses_is_found(text: str) -> None:
    assert not accepts(SCHEMA, yaml.safe_load(text))


def test_no_default_is_hidden() -> None:
    assert "****" not in str(SCHEMA)
