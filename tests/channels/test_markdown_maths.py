"""Maths comes out as it was written, whatever its marks mean to Markdown; prices and escapes are not taken for it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from channels.markdown import find_maths, heal, parse, plain_text

MATHS = [
    r"\(a^2\)",
    r"\(x_{i}^{*}+y^{*}\)",
    r"\(\{1,2\}\,\)",
    r"\[ \begin{pmatrix} a & b \\ c & d \end{pmatrix} \]",
    "\\[\nx_{*} \\\\\n y_{*}\n\\]",
    r"$$\int_0^\infty e^{-x^2}\,dx$$",
    "$$\n\\alpha_{*} < \\beta_{*}\n$$",
    "$x_{i}^{*}+y^{*}$",
    r"$\{a_1\}$",
    r"$[a_1](b_2)$",
]
OTHER = [
    "costs $5 and $10",
    "$USER_A:$B",
    "$x_1$y",
    r"\[1\]",
    r"\[see _note_, p. 3\]",
    r"\\(a^2\\)",
    "\\[a\n\n^2\\]",
    "\\(a\n^2\\)",
    r"`\(a^2\)`",
    "```latex\n\\[ x \\] $a_1$\n```",
    "$$ and more",
    r"\$x_1$ and more",
]
PIECES = [
    "\\(",
    "\\)",
    "\\[",
    "\\]",
    "$$",
    "$",
    "\\",
    "*",
    "_{*}",
    "`",
    "a^2",
    " ",
    "\n",
    "\n\n",
    "\n- ",
    "**",
    "[",
    "](",
    "<",
]


@pytest.mark.parametrize("maths", MATHS)
def test_maths_is_found_with_its_delimiters(maths: str) -> None:
    text = f"before {maths}, after"
    assert [text[found.start : found.end] for found in find_maths(text)] == [maths]


@pytest.mark.parametrize("text", OTHER)
def test_what_only_looks_like_maths_is_not_taken_for_it(text: str) -> None:
    assert list(find_maths(text)) == []


@pytest.mark.parametrize("maths", MATHS)
def test_maths_is_plain_text_as_it_is(maths: str) -> None:
    assert plain_text(f"**before** {maths}, *after*") == f"before {maths}, after"


@pytest.mark.parametrize("maths", [maths for maths in MATHS if maths.startswith(("\\", "$$"))])
def test_growing_maths_is_shown_as_it_is_from_its_beginning_on(maths: str) -> None:
    text = f"**before {maths} after** end"
    whole = f"before {maths} after end"
    for end in range(len(text) + 1):
        shown = plain_text(heal(text[:end])).rstrip("\\)]$ \n")
        assert whole.startswith(shown)
        assert len(shown) >= end - 10


@pytest.mark.parametrize("maths", MATHS)
def test_maths_that_is_closed_opens_nothing(maths: str) -> None:
    text = f"before {maths} after"
    assert heal(text) == text


@settings(max_examples=200)
@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_a_healed_text_needs_no_more_healing_and_never_fails(text: str) -> None:
    healed = heal(text)
    assert heal(healed) == healed
    parse(healed)


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_stretches_of_maths_are_in_order_and_apart(text: str) -> None:
    at = 0
    for found in find_maths(text):
        assert at <= found.start < found.end <= len(text)
        assert found.content in text[found.start : found.end]
        at = found.end


@pytest.mark.parametrize("piece", ["\\[", "\\(", "$$", "$", "$a=", "$$a=", "`a", "\\(\\[", "\\[\n", "$a=b_", "\\(a "])
def test_hostile_text_is_searched_in_time_linear_in_its_length(piece: str) -> None:
    text = (piece * 200_000)[:200_000]
    started = time.process_time()
    for _ in find_maths(text):
        pass
    assert time.process_time() - started < 1
