"""Merging pieces into text: exact for deltas, sticky for cumulative streams, linear in the length, tags taken out."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.transcript import _merge_stream_text
from channels.transcript.merging import MessageText, TagSplitter

TEXT = st.text(alphabet="ab 谢<>/thinkg`\n", max_size=60)


@pytest.mark.parametrize(
    ("existing", "chunk", "merged"),
    [
        ("", "a", "a"),
        ("Hel", "lo", "Hello"),
        ("Hel", "Hello", "Hello"),
        ("谢", "谢", "谢谢"),
        ("haha", "ha", "hahaha"),
        ("ab", "", "ab"),
        ("ab", "abc", "abc"),
        ("ab", "xab", "abxab"),
    ],
)
def test_only_a_longer_chunk_that_starts_with_the_text_replaces_it(existing: str, chunk: str, merged: str) -> None:
    assert _merge_stream_text(existing, chunk) == merged


@given(existing=st.text(), chunk=st.text())
def test_merging_keeps_what_was_said_and_all_of_the_chunk(existing: str, chunk: str) -> None:
    merged = _merge_stream_text(existing, chunk)
    assert merged.startswith(existing)
    assert merged.endswith(chunk)
    assert len(merged) <= len(existing) + len(chunk)


def fed(*chunks: str) -> MessageText:
    text = MessageText()
    for chunk in chunks:
        text.feed(chunk)
    return text


@given(chunks=st.lists(st.text(min_size=1, max_size=6), max_size=30))
def test_the_buffer_agrees_with_merging_while_nothing_is_cumulative(chunks: list[str]) -> None:
    text, merged = MessageText(), ""
    for chunk in chunks:
        if merged and len(chunk) > len(merged) and chunk.startswith(merged):
            return
        text.feed(chunk)
        merged = _merge_stream_text(merged, chunk)
    assert text.raw == merged


@given(whole=st.text(min_size=3, max_size=80), cuts=st.lists(st.integers(1, 80), min_size=2, max_size=12))
def test_a_cumulative_stream_ends_with_its_last_chunk_also_when_chunks_repeat(whole: str, cuts: list[int]) -> None:
    ends = sorted({min(cut, len(whole)) for cut in cuts} | {1, len(whole)})
    text = MessageText()
    for end in ends:
        text.feed(whole[:end])
        if end > 1:
            text.feed(whole[:end])
    assert text.raw == whole


def test_a_cumulative_message_stays_cumulative() -> None:
    assert fed("He", "Hell", "Hello", "Hello", "Hello w").raw == "Hello w"
    assert fed("He", "Hell", "Hello", "Hallo").raw == "Hallo"


def test_deltas_that_only_looked_cumulative_once_are_deltas() -> None:
    assert fed("1", "10", "0").raw == "1100"
    assert fed("\n", "\n\n", "Hi").raw == "\n\n\nHi"


def test_the_whole_message_replaces_the_preview() -> None:
    text = fed("Hel", "l")
    text.put("Hello")
    assert text.text == "Hello"
    text.put("Bye")
    assert text.text == "Bye"


@given(whole=TEXT, cuts=st.lists(st.integers(0, 60), max_size=8))
def test_where_the_pieces_are_cut_makes_no_difference_to_what_is_thought_and_said(whole: str, cuts: list[int]) -> None:
    at_once, in_pieces = TagSplitter(), TagSplitter()
    at_once.feed(whole)
    at_once.finish()
    ends = sorted({min(cut, len(whole)) for cut in cuts} | {0, len(whole)})
    for start, end in itertools.pairwise(ends):
        in_pieces.feed(whole[start:end])
    in_pieces.finish()
    assert (in_pieces.text, in_pieces.thoughts) == (at_once.text, at_once.thoughts)


@pytest.mark.parametrize("tag", ["think", "thinking", "THINK"])
@given(cuts=st.lists(st.integers(0, 60), max_size=8))
def test_thoughts_between_tags_never_become_text(tag: str, cuts: list[int]) -> None:
    whole = f"<{tag}>a secret\nplan</{tag}>\n\nThe answer."
    splitter = TagSplitter()
    ends = sorted({min(cut, len(whole)) for cut in cuts} | {0, len(whole)})
    for start, end in itertools.pairwise(ends):
        splitter.feed(whole[start:end])
        assert "secret" not in splitter.text
        assert "The answer.".startswith(splitter.text)
    assert splitter.text == "The answer."
    assert splitter.thoughts == "a secret\nplan"


def test_thinking_that_was_never_opened_ends_at_its_closing_tag() -> None:
    splitter = TagSplitter()
    splitter.feed("first I look</think>Here.")
    assert (splitter.text, splitter.thoughts) == ("Here.", "first I look")


def test_a_tag_that_is_written_about_stays_text() -> None:
    splitter = TagSplitter()
    splitter.feed("Models write `<think>` and `</think>` around thoughts.")
    assert splitter.text == "Models write `<think>` and `</think>` around thoughts."


def test_what_only_began_like_a_tag_is_text_in_the_end() -> None:
    splitter = TagSplitter()
    splitter.feed("a <thi")
    assert splitter.text == "a "
    splitter.finish()
    assert splitter.text == "a <thi"
