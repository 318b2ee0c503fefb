"""What is read is strict: every encoder, the databases and pydantic take it."""

from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue, TypeAdapter

from channels.shapes import whole_number
from channels.strict_json import MAX_DEPTH, is_shallow, read_json, shallow, strict

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters())
anything: st.SearchStrategy[JsonValue] = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters()), inner, max_size=3)
)


def nested(levels: int) -> JsonValue:
    value: JsonValue = "core"
    for level in range(levels):
        value = [value] if level % 2 else {"in": value}
    return value


def depth(value: JsonValue) -> int:
    levels = 0
    while isinstance(value, list | dict):
        value = value[0] if isinstance(value, list) else value["in"]
        levels += 1
    return levels


@given(value=anything, levels=st.integers(0, 300))
def test_what_is_strict_can_be_written_by_everybody_and_stays_the_same(value: JsonValue, levels: int) -> None:
    for _ in range(levels):
        value = [value]
    tidy = strict(value)
    assert orjson.loads(orjson.dumps(tidy)) == tidy
    json.dumps(tidy, allow_nan=False, ensure_ascii=False).encode()
    adapter: TypeAdapter[JsonValue] = TypeAdapter(JsonValue)
    assert adapter.validate_python(adapter.dump_python(tidy, mode="json")) == tidy
    assert strict(tidy) == tidy
    assert is_shallow(tidy)


@given(value=anything)
def test_whatever_python_writes_is_read_strictly(value: JsonValue) -> None:
    for ascii_only in (True, False):
        text = json.dumps(value, ensure_ascii=ascii_only)
        assert orjson.loads(orjson.dumps(read_json(text))) == read_json(text)


@pytest.mark.parametrize("levels", [0, 1, MAX_DEPTH])
def test_honest_nesting_is_left_as_it_is(levels: int) -> None:
    value = nested(levels)
    assert shallow(value) is value
    assert read_json(orjson.dumps(value)) == value


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 254, 800])
def test_what_lies_too_deep_is_null_and_the_rest_is_kept(levels: int) -> None:
    read = read_json(json.dumps({"text": "Hello", "deep": nested(levels)}))
    assert isinstance(read, dict)
    assert read["text"] == "Hello"
    assert depth(read["deep"]) == MAX_DEPTH - 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("NaN", None),
        ("1e400", None),
        (str(2**63), 2**63),
        (str(2**65), float(2**65)),
        (str(10**400), None),
        (r'"\ud83c"', "\ufffd"),
        (r'"\ud83c\udf0d"', "🌍"),
        (r'{"\ud83c": 1}', {"\ufffd": 1}),
        (b'"\xff"', "\ufffd"),
        ("[true, false, null]", [True, False, None]),
    ],
)
def test_what_parsers_disagree_about_has_one_meaning(text: str | bytes, value: JsonValue) -> None:
    assert read_json(text) == value


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "[" * 20_000 + "]" * 20_000, "9" * 5000, b"\xff", "'a'"])
def test_what_is_no_json_is_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whichever it is
        read_json(text)


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("017", 17), ("9" * 18, 10**18 - 1), ("9" * 19, None), ("9" * 5000, None), ("", None)]
    + [(text, None) for text in ("²", "٣", "-1", "+1", "1_0", " 1", "1.0")],
)
def test_a_whole_number_is_a_few_plain_digits(text: str, number: int | None) -> None:
    assert whole_number(text) == number
