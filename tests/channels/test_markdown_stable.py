"""What a surface that can only append may show: never too much, and never much too little."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from channels.markdown import HOLD, stable_prefix
from channels.markdown.graphemes import is_grapheme_border
from tests.channels.markdown_documents import documents, noise
from tests.channels.test_markdown_heal import visible

LONGEST_HOLD = 4 * HOLD
"""An opener, and a table's header line, and a word without an end in a row: nothing is held longer."""

long_noise = st.lists(
    st.one_of(noise, st.sampled_from(["x" * 150, "word " * 40, "`" + "y " * 160, "你" * 90, "| a " * 60])), max_size=12
).map("".join)


@pytest.mark.parametrize(
    ("text", "committed"),
    [
        ("Hello wor", "Hello "),
        ("Hello world ", "Hello world "),
        ("你好世界", "你好世"),
        ("see **bo", "see "),
        ("see **bold**", "see "),
        ("see **bold** x", "see **bold** "),
        ("see `a b", "see "),
        ("see [a b", "see "),
        ("see [a b](http://x", "see "),
        ("see [a b](http://x y", "see [a b](http://x "),
        ("see <http://x", "see "),
        ("看https://例子.测试/路", "看"),
        ("a &am", "a "),
        ("5*3 = 15", "5*3 = "),
        ("a * b", "a * "),
        ("**重点：**内容", "**重点：**内"),
        ("text\n-", "text\n"),
        ("text\n- ", "text\n"),
        ("text\n- **a", "text\n"),
        ("text\n- a ", "text\n- a "),
        ("text\n## Head", "text\n"),
        ("text\n## Head x", "text\n## Head "),
        ("text\n``", "text\n"),
        ("text\n```py", "text\n"),
        ("```py\nx = 1", "```py\nx = "),
        ("```py\nx\n``", "```py\nx\n"),
        ("| a b | c", ""),
        ("| a | b |\n", ""),
        ("| a | b |\n|--", ""),
        ("| a | b |\n|---|---|\n", "| a | b |\n|---|---|\n"),
        ("| a | b |\n|---|---|\n| 1 | 2", "| a | b |\n|---|---|\n"),
        ("| a | b |\n|---|---|\n| 1 | 2 |\n", "| a | b |\n|---|---|\n| 1 | 2 |\n"),
        ("use a | b or c", "use a "),
        ("use a | b or c\nnext line", "use a | b or c\nnext "),
        ("use `a | b` or c", "use `a | b` or "),
        ("**open\n\nnext one", "**open\n\nnext "),
    ],
)
def test_text_flows_word_by_word_and_waits_for_what_is_open(text: str, committed: str) -> None:
    assert text[: stable_prefix(text)] == committed


def test_a_final_text_is_committed_whole() -> None:
    assert stable_prefix("see **bo", final=True) == len("see **bo")


def test_an_opener_without_an_end_holds_text_back_for_a_bounded_time() -> None:
    text = "see **x " + "word " * 100
    held = [end for end in range(len(text)) if stable_prefix(text[:end]) == 4]
    assert HOLD - 10 < len(held) < HOLD + 10
    assert stable_prefix(text) == len(text)


@settings(max_examples=60)
@given(st.one_of(documents(), noise, long_noise))
def test_what_is_committed_never_shrinks_and_is_never_far_behind(text: str) -> None:
    committed = 0
    for end in range(0, len(text) + 1, 1 if len(text) < 500 else 7):
        stable = stable_prefix(text[:end])
        assert committed <= stable <= end
        assert end - stable <= LONGEST_HOLD
        committed = stable


@settings(max_examples=60)
@given(st.one_of(documents(), noise, long_noise), st.data())
def test_no_character_is_torn(text: str, data: st.DataObject) -> None:
    assert is_grapheme_border(text, stable_prefix(text[: data.draw(st.integers(0, len(text)))]))


@settings(max_examples=20)
@given(documents(largest=3))
def test_at_every_moment_the_reader_sees_a_beginning_of_the_whole(document: str) -> None:
    whole = visible(document)
    committed = -1
    for end in range(len(document) + 1):
        stable = stable_prefix(document[:end])
        if stable != committed:
            committed = stable
            assert whole.startswith(visible(document[:stable]))
