"""Patches turn what a page has into what it should have, and stay small."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from adapters.web.patch import difference
from tests.adapters.web.page_model import apply_patch

_html = st.lists(st.sampled_from(["<p>", "</p>", "word ", "谢", "🙂", "é", "x" * 40]), max_size=12).map("".join)
_pieces = st.dictionaries(st.sampled_from(["steps", "b0.0", "b0.1", "b0.2", "b1.0", "end"]), _html, max_size=6)


@given(_pieces, _pieces)
def test_a_patch_turns_any_state_into_any_other(old: dict[str, str], new: dict[str, str]) -> None:
    keys, pieces = list(old), dict(old)
    apply_patch(keys, pieces, difference(old, new))
    assert keys == list(new)
    assert pieces == new


@given(_pieces)
def test_equal_states_need_no_patch(pieces: dict[str, str]) -> None:
    assert difference(pieces, dict(pieces)) == {}


def test_a_few_more_letters_cost_a_few_bytes_however_long_the_piece_is() -> None:
    old = {"b0.0": f"<p>{'🙂 long ' * 5_000}</p>"}
    new = {"b0.0": old["b0.0"].replace("</p>", "more</p>")}
    assert difference(old, new) == {"splice": {"b0.0": [3 + 8 * 5_000, 0, "more"]}}


def test_a_new_block_does_not_name_the_others_again() -> None:
    old = {f"b0.{number}": "<p>same</p>" for number in range(500)} | {"end": "<div></div>"}
    new = dict(list(old.items())[:-1]) | {"b0.500": "<p>new</p>", "end": "<div></div>"}
    assert difference(old, new) == {"keys": [500, 0, ["b0.500"]], "set": {"b0.500": "<p>new</p>"}}
