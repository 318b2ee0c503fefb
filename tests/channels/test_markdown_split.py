"""Long answers in pieces: complete, inside the limit, each well formed, and never moved by text that comes later."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from channels.markdown import (
    SMALLEST_LIMIT,
    Measure,
    cuts,
    json_utf8_bytes,
    split,
    split_at,
    stable_prefix,
    utf8_bytes,
    utf16_units,
)
from channels.markdown.graphemes import is_grapheme_border
from tests.channels.markdown_documents import documents, noise, opens_fence
from tests.channels.test_markdown_heal import visible

MEASURES = st.sampled_from([len, utf16_units, utf8_bytes, json_utf8_bytes])
TEXTS = st.one_of(documents(2, 6), st.lists(noise, min_size=1, max_size=5).map("".join))
ROOMY = st.integers(100, 200)
"""Limits with room for the longest container marks and emoji of the strategies."""


@settings(max_examples=120)
@given(TEXTS, st.integers(SMALLEST_LIMIT, 200), MEASURES)
def test_every_piece_fits_and_nothing_is_lost(text: str, limit: int, measure: Measure) -> None:
    for cut in cuts(text, limit, measure):
        assert measure(cut.head) <= limit
        shown = cut.head.removesuffix(cut.closing)
        assert shown + cut.gap + cut.rest.removeprefix(cut.opening) == text
        assert text[cut.offset :] == cut.rest.removeprefix(cut.opening)
        text = cut.rest
    assert text == ""


@settings(max_examples=80)
@given(TEXTS, ROOMY, MEASURES)
def test_no_character_is_torn(text: str, limit: int, measure: Measure) -> None:
    for cut in cuts(text, limit, measure):
        assert is_grapheme_border(text, len(cut.head) - len(cut.closing))
        assert is_grapheme_border(text, cut.offset)
        text = cut.rest


@settings(max_examples=80)
@given(TEXTS, ROOMY)
def test_code_blocks_are_closed_in_every_piece_but_the_last_of_an_open_text(text: str, limit: int) -> None:
    *finished, last = cuts(text, limit)
    assert not any(opens_fence(cut.head) for cut in finished)
    assert opens_fence(last.head) == opens_fence(text)


@settings(max_examples=120)
@given(TEXTS, st.integers(SMALLEST_LIMIT, 200), MEASURES, st.data())
def test_a_cut_does_not_move_while_the_text_grows(text: str, limit: int, measure: Measure, data: st.DataObject) -> None:
    early = split_at(text[: data.draw(st.integers(0, len(text)))], limit, measure)
    late = split_at(text, limit, measure)
    if not early.is_whole:
        assert (early.head, early.offset, early.opening) == (late.head, late.offset, late.opening)


@settings(max_examples=60)
@given(documents(2, 6).filter(lambda document: "|" not in document), st.integers(150, 300))
def test_the_pieces_read_like_the_whole(document: str, limit: int) -> None:
    assert "".join(map(visible, split(document, limit))) == visible(document)


@pytest.mark.parametrize("before", ["> ", "> > ", "- ", "> - "])
def test_a_line_of_code_that_is_torn_goes_on_inside_what_holds_it(before: str) -> None:
    more = before.replace("- ", "  ")
    document = (
        f"{before}```\n" + "".join(f"{more}# one two three four five six seven {n}\n" for n in range(6)) + f"{more}```"
    )
    pieces = split(document, 40)
    assert len(pieces) > 6
    assert "".join(map(visible, pieces)) == visible(document)


@settings(max_examples=40)
@given(documents(3, 6), ROOMY)
def test_a_surface_that_only_appends_can_go_on_in_a_new_message(document: str, limit: int) -> None:
    messages: list[str] = []
    shown = opening = ""
    start = 0
    for end in [*range(0, len(document), 9), len(document)]:
        while True:
            text = opening + document[start:end]
            text = text[: stable_prefix(text, final=end == len(document))]
            cut = split_at(text, limit, floor=len(shown))
            assert cut.head.startswith(shown)
            if cut.is_whole:
                shown = cut.head
                break
            # What was shown up to the limit leaves no room to close a code block.
            assert len(cut.head) <= limit + len(cut.closing)
            messages.append(cut.head)
            start += cut.offset - len(opening)
            opening, shown = cut.opening, ""
    messages.append(shown)
    assert len("".join(messages)) >= len("".join(document.split()))
    assert not any(opens_fence(message) for message in messages[:-1] if len(message) <= limit)


@pytest.mark.parametrize(
    ("text", "limit", "pieces"),
    [
        ("a" * 30 + "\n\n" + "b" * 30, 40, ["a" * 30, "b" * 30]),
        ("a b c d e. " * 3 + "# no heading", 30, ["a b c d e. a b c d e.", "a b c d e. # no heading"]),
        ("text text text\n# Head\nmore more more", 24, ["text text text", "# Head\nmore more more"]),
        ("- one one one\n- two two two\n  - three", 32, ["- one one one", "- two two two\n  - three"]),
        ("你好世界。再见世界。你好世界，再见。", 16, ["你好世界。再见世界。", "你好世界，再见。"]),
        ("word " * 6, 20, ["word word", "word word word word "]),
        ("x" * 40, 20, ["x" * 15, "x" * 15, "x" * 10]),
    ],
)
def test_cuts_are_made_at_the_best_border_near_the_limit(text: str, limit: int, pieces: list[str]) -> None:
    assert split(text, limit) == pieces


@pytest.mark.parametrize("marks", ["```", "~~~~", "`````"])
def test_a_code_block_is_closed_and_opened_again_with_its_language(marks: str) -> None:
    code = "\n".join(f"line {number}" for number in range(30))
    first, *others = split(f"{marks}python x=1\n{code}\n{marks}", 100)
    assert first.endswith(f"\n{marks}")
    assert others
    assert all(other.startswith(f"{marks}python x=1\nline ") for other in others)


@pytest.mark.parametrize(
    ("prefix", "opening"),
    [("> ", "> ```py\n"), ("  ", "  ```py\n"), ("    ", "-   ```py\n"), ("      ", "- -   ```py\n")],
)
def test_a_code_block_inside_containers_goes_on_inside_them(prefix: str, opening: str) -> None:
    parents = {"> ": "> intro", "  ": "- intro", "    ": "-   intro", "      ": "- intro\n  -   intro"}
    text = "\n".join([parents[prefix], *(prefix + line for line in ["```py", *["code()"] * 20, "```"]), "end"])
    cut = split_at(text, 100)
    assert cut.closing == f"{prefix}```"
    assert cut.opening == opening


def test_a_table_is_cut_between_rows_and_its_header_repeated() -> None:
    header = "| h1 | h2 |\n|----|----|\n"
    pieces = split(header + "".join(f"| cell {number} | b |\n" for number in range(9)) + "\nend", 90)
    assert len(pieces) > 2
    assert all(piece.startswith(header) for piece in pieces)
    assert "".join(piece.removeprefix(header) + "\n" for piece in pieces).count("cell") == 9


def test_nested_items_and_numbers_stay_what_they_are() -> None:
    text = "1.  **Title**\n" + "".join(f"    *   sub item {number}\n" for number in range(9)) + "2.  Next"
    first, second, *_ = split(text, 100)
    assert first.startswith("1.  **Title**\n    *   sub item 0")
    assert second.startswith("1.  *   sub item")


def test_links_and_marks_are_not_cut() -> None:
    text = "words before it **and then strong words** [a link of words](https://example.com/path) end"
    assert split(text, 60) == ["words before it **and then strong words**", text[42:]]


def test_an_open_code_block_leaves_room_for_its_closing() -> None:
    text = "```\n" + "x" * 60
    assert split_at(text, len(text) + 4).is_whole
    assert not split_at(text, len(text) + 3).is_whole


def test_blank_pieces_are_left_out() -> None:
    assert split("", 16) == []
    assert split(" \n" * 50, 16) == []
    assert split("a" + "\n" * 100 + "b", 16)[-1].strip() == "b"


def test_a_limit_without_room_for_text_is_refused() -> None:
    with pytest.raises(ValueError, match="15"):
        split("text", 15)
