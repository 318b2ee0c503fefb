"""What is stored comes back as it was, and what a newer version stored can be read."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue
from sqlalchemy.dialects import registry
from sqlalchemy.engine import Dialect

from channels.model import (
    Attachment,
    File,
    Inbound,
    InboundKind,
    Phase,
    Place,
    Press,
    Question,
    Segment,
    Sender,
    Step,
    Usage,
    View,
)
from channels.store.codec import (
    CleanText,
    JsonText,
    inbound_from_json,
    inbound_to_json,
    place_from_json,
    place_to_json,
    view_from_json,
    view_to_json,
)
from channels.store.records import Unreadable

DIALECTS: list[Dialect] = [registry.load(name)() for name in ("sqlite", "postgresql.psycopg")]

json_values: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
objects = st.dictionaries(st.text(), json_values, max_size=2)
moments = st.floats(min_value=0, max_value=4e9)

for part in (Attachment, File):
    st.register_type_strategy(part, st.builds(part, name=st.text(), mime=st.text(), reference=objects))
st.register_type_strategy(Step, st.builds(Step, started=st.none() | moments, ended=st.none() | moments))

inbounds = st.builds(
    Inbound,
    place=st.builds(Place),
    sender=st.builds(Sender),
    kind=st.sampled_from(InboundKind),
    received_at=moments,
    settle=moments,
    attachments=st.lists(st.from_type(Attachment), max_size=2).map(tuple),
    mentions_bot=st.booleans(),
    reply_to=st.none() | st.text(),
    group=st.none() | st.text(),
    press=st.none() | st.builds(Press),
    extra=objects,
)
views = st.builds(
    View,
    phase=st.sampled_from(Phase),
    body=st.lists(st.builds(Segment), max_size=3).map(tuple),
    reasoning=st.text(),
    steps=st.lists(st.from_type(Step), max_size=2).map(tuple),
    question=st.none() | st.builds(Question),
    files=st.lists(st.from_type(File), max_size=2).map(tuple),
    usage=st.none() | st.builds(Usage, input_tokens=st.integers(0, 10**9), output_tokens=st.integers(0, 10**9)),
    revision=st.integers(0, 10**6),
)


def stored(value: JsonValue) -> JsonValue:
    """The value after a way through a column of each database."""
    (text,) = {JsonText().process_bind_param(value, dialect) for dialect in DIALECTS}
    if text is not None:
        text.encode()
        assert "\0" not in text
    return JsonText().process_result_value(text, DIALECTS[0])


@settings(max_examples=60, derandomize=True, deadline=None)
@given(inbounds)
def test_an_inbound_comes_back_as_it_was(inbound: Inbound) -> None:
    assert inbound_from_json(stored(inbound_to_json(inbound))) == inbound
    assert place_from_json(stored(place_to_json(inbound.place))) == inbound.place


@settings(max_examples=60, derandomize=True, deadline=None)
@given(views)
def test_a_view_comes_back_as_it_was(view: View) -> None:
    assert view_from_json(stored(view_to_json(view))) == view


@settings(max_examples=60, derandomize=True, deadline=None)
@given(json_values)
def test_any_json_value_comes_back_as_it_was(value: JsonValue) -> None:
    assert stored(value) == value


@pytest.mark.parametrize("text", ["\ud83d", "a\0b", "\ud83d x \0", "\U0001f600"])
def test_half_characters_and_nul_survive(text: str) -> None:
    view = View(body=(Segment("m", text),))
    assert view_from_json(stored(view_to_json(view))) == view


def test_keys_of_a_newer_version_are_ignored_at_every_depth() -> None:
    view = View(phase=Phase.DONE, body=(Segment("m", "text"),), question=Question("q", "sure?"))
    newer = json.loads(json.dumps(view_to_json(view)))
    for part in (newer, newer["body"][0], newer["question"]):
        part["invented_later"] = {"any": "thing"}
    assert view_from_json(newer) == view


def test_fields_that_an_older_version_did_not_have_get_their_defaults() -> None:
    full = View(phase=Phase.DONE, body=(Segment("m", "text"),))
    older = json.loads(json.dumps(view_to_json(full)))
    required = {field.name for field in dataclasses.fields(View) if field.default is dataclasses.MISSING}
    for name in set(older) - required - {"phase", "body"}:
        del older[name]
    assert view_from_json(older) == full


@pytest.mark.parametrize("read", [inbound_from_json, place_from_json, view_from_json])
@pytest.mark.parametrize(
    "text",
    ["", "{", '"', "nul", "[" * 100_000, '{"kind": "secret", "phase": "secret", "chat": 1}'],
    ids=["empty", "open", "quote", "torn", "deep", "unknown"],
)
def test_a_value_that_cannot_be_read_is_told_from_all_others_and_is_not_quoted(
    read: Callable[[JsonValue], object], text: str
) -> None:
    value = JsonText().process_result_value(text, DIALECTS[0])
    with pytest.raises(Unreadable) as caught:
        read(value)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
@pytest.mark.parametrize(("text", "kept"), [("plain ü 😀", "plain ü 😀"), ("a\0b", "a\ufffdb"), ("\ud83d!", "?!")])
def test_what_a_database_cannot_hold_is_replaced_in_text(dialect: Dialect, text: str, kept: str) -> None:
    assert CleanText().process_bind_param(text, dialect) == kept
