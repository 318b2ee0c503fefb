"""The line scanner sees the blocks that the parser sees; text is cut between the characters that readers see."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from channels.markdown import find_tables, parse
from channels.markdown.blocks import Blocks, Container, Leaf
from channels.markdown.containers import line_prefix, opening_prefix
from channels.markdown.graphemes import is_grapheme_border, last_grapheme_border
from tests.channels.markdown_documents import documents, noise

# The parser tries tables before these blocks; GFM, which the scanner follows, after them.
_BLOCK_WITH_PIPE = re.compile(r"^[ \t>]*(?:```|~~~|[-+*][ \t]|\d+[.)][ \t]|#|<|>).*\|", re.MULTILINE)

TEXTS = st.one_of(documents(), noise.filter(lambda text: not _BLOCK_WITH_PIPE.search(text)))


def fence_lines(text: str) -> list[int]:
    """The numbers of the lines that open a fence, as the scanner sees it."""
    blocks = Blocks(text)
    found: list[int] = []
    start = number = 0
    opened_at = -1
    while start < len(text):
        stop = text.find("\n", start)
        stop = len(text) if stop < 0 else stop
        was_open = blocks.leaf is Leaf.FENCE
        blocks.take(start, stop)
        if blocks.leaf is Leaf.FENCE and not (was_open and blocks.leaf_line == opened_at):
            opened_at = blocks.leaf_line
            found.append(number)
        start = stop + 1
        number += 1
    return found


@settings(max_examples=200)
@given(TEXTS)
def test_fences_are_found_where_the_parser_finds_them(text: str) -> None:
    assert fence_lines(text) == sorted(token.map[0] for token in parse(text) if token.type == "fence" and token.map)


@settings(max_examples=200)
@given(TEXTS)
def test_tables_are_found_where_the_parser_finds_them(text: str) -> None:
    tables = [token.map for token in parse(text) if token.type == "table_open" and token.map]
    assert [table.start_line for table in find_tables(text)] == [lines[0] for lines in tables]


@settings(max_examples=100)
@given(TEXTS)
def test_taking_line_by_line_and_running_over_all_lines_end_alike(text: str) -> None:
    text += "\n"
    by_line = Blocks(text)
    while by_line.at < len(text):
        by_line.take(by_line.at, text.index("\n", by_line.at))
    at_once = Blocks(text).run()
    assert (by_line.leaf, by_line.containers, by_line.calm_at) == (at_once.leaf, at_once.containers, at_once.calm_at)
    if at_once.leaf is not Leaf.NONE:
        assert (by_line.leaf_line, by_line.leaf_start) == (at_once.leaf_line, at_once.leaf_start)


@pytest.mark.parametrize(
    ("text", "leaf", "depth"),
    [
        ("a\n", Leaf.PARAGRAPH, 0),
        ("a\n\n", Leaf.NONE, 0),
        ("# a\n", Leaf.HEADING, 0),
        ("a\n---\n", Leaf.NONE, 0),
        ("```\na\n", Leaf.FENCE, 0),
        ("```\r\na\r\n```\r\n", Leaf.NONE, 0),
        ("- a\n\n  ```\n  x\n", Leaf.FENCE, 1),
        ("- a\n  ```\n  x\nb\n", Leaf.PARAGRAPH, 0),
        ("> ```\n> x\n", Leaf.FENCE, 1),
        ("> ```\n> x\nb\n", Leaf.PARAGRAPH, 0),
        ("> a\nlazy\n", Leaf.PARAGRAPH, 1),
        ("1. a\n   - b\n\t c\n", Leaf.PARAGRAPH, 2),
        ("a\n2. b\n", Leaf.PARAGRAPH, 0),
        ("-\n\n  a\n", Leaf.PARAGRAPH, 0),
        ("    a\n", Leaf.INDENTED, 0),
        ("| a |\n|---|\n", Leaf.TABLE, 0),
        ("| a | b |\n|---|\n", Leaf.PARAGRAPH, 0),
        ("<div>\n", Leaf.HTML, 0),
        ("<!-- a\n\nb\n", Leaf.HTML, 0),
        ("<!-- a -->\n", Leaf.NONE, 0),
    ],
)
def test_the_state_after_the_last_line(text: str, leaf: Leaf, depth: int) -> None:
    blocks = Blocks(text).run()
    assert (blocks.leaf, len(blocks.containers)) == (leaf, depth)


@given(st.lists(st.builds(Container, st.integers(0, 17).filter(lambda width: width != 1)), max_size=4))
def test_a_reopened_container_keeps_the_column_of_its_content(containers: list[Container]) -> None:
    opened = tuple(containers)
    assert len(opening_prefix(opened)) == len(line_prefix(opened))
    assert len(opening_prefix(opened, is_text=True)) == len(line_prefix(opened))


@pytest.mark.parametrize(
    "character",
    ["e\u0301", "👩‍👩‍👧‍👦", "🇩🇪", "❤️", "👋🏽", "\r\n", "각", "\ud83d\ude00", "क्‍ष", "🏴\U000e0067\U000e007f"],
)
def test_what_a_reader_sees_as_one_character_is_not_cut(character: str) -> None:
    text = f"a{character}b"
    inside = range(2, len(text) - 1)
    assert not any(is_grapheme_border(text, at) for at in inside if text[at - 1] != "क")
    assert is_grapheme_border(text, 1)
    assert is_grapheme_border(text, len(text) - 1)


def test_flags_in_a_row_are_cut_between_flags_only() -> None:
    flags = "🇩🇪🇫🇷🇮🇹"
    assert [at for at in range(len(flags) + 1) if is_grapheme_border(flags, at)] == [0, 2, 4, 6]


def test_the_last_border_is_looked_for_backwards_and_not_before_the_floor() -> None:
    assert last_grapheme_border("ab👩‍👩‍👧", 5) == 2
    assert last_grapheme_border("ab👩‍👩‍👧", 5, floor=3) == 3
