"""Merging pieces into text: exact for deltas, sticky for cumulative streams, linear in the length, tags taken out."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.transcript import _merge_stream_text
from channels.transcript.merging import MessageText
from channels.transcript.thinking import TagSplitter

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


def split(pieces: Iterable[str]) -> tuple[str, str]:
    splitter = TagSplitter()
    for piece in pieces:
        splitter.feed(piece)
    splitter.finish()
    return splitter.text, splitter.thoughts


FENCED = "R1 puts it first:\n\n```text\n<think>\nOkay, …\n</think>\n\nThe answer is 4.\n```\n\nCut at the closing tag."
WRITTEN_ABOUT = [
    FENCED,
    FENCED.replace("```", "~~~~"),
    FENCED.replace("```text", "- ```text").replace("\n```\n", "\n  ```\n"),
    FENCED.replace("\n", "\n> "),
    "Models write `<think>` and `</think>` around thoughts.",
    "The tag <think> opens the reasoning. Parse it. That is all.",
    "It begins at <think> and ends at </think>, never mind the case.\n\nThen strip it.",
    "Everything up to </think> goes away.",
    "You end it with </think>",
    "Use `<think>…</think>` blocks.",
    'The regex is `r"<think>.*?</think>"` and done.',
    "Cut up to ``a`b</think>c`` with it.",
    "Split at the end tag:\n\n```python\nanswer = text.split('</think>')[-1]\n```",
    "Say text.split('</think>')[-1] or text.split(“</think>”) to get it.",
    "In HTML write \\</think> or it goes away.",
    "Special tokens:\n- <think>: reasoning begins\n- </think>: reasoning ends\n",
    "| tag | use |\n|---|---|\n| <think> | begins |\n| </think> | ends |\n",
    "The tags are:\n<think> begins it\n</think> ends it\n",
    "It never closed:\n<think>\nand so it goes on",
    "```code``` in a line, then\n\n```\n<think>\n</think>\n```\n",
]


@pytest.mark.parametrize("text", WRITTEN_ABOUT)
def test_tags_that_are_written_about_stay_text_wherever_they_are_cut(text: str) -> None:
    assert split([text]) == split(text) == (text, "")
    assert all(split([text[:at], text[at:]]) == (text, "") for at in range(len(text)))


@pytest.mark.parametrize("text", WRITTEN_ABOUT)
def test_an_answer_about_tags_keeps_them_also_after_its_own_thinking(text: str) -> None:
    assert split([f"<think>What are `</think>` tags?\n</think>\n\n{text}"])[0] == text
    assert split([f"What are `</think>` tags?\n</think>\n\n{text}"])[0] == text


@pytest.mark.parametrize(
    ("whole", "text", "thoughts"),
    [
        ("\n<think>a secret</think>Hi.", "Hi.", "a secret"),
        ("<think>\n\n</think>\n\nHi.", "Hi.", ""),
        ("<think></think>\n\nHi.", "Hi.", ""),
        ("<think><think>a secret</think> Hi.", "Hi.", "a secret"),
        ("<think>cut short in the mid", "", "cut short in the mid"),
        ("<think>a secret</think>", "", "a secret"),
        ("<think>say `</think>`, a secret</think>Hi.", "Hi.", "say `</think>`, a secret"),
        ("<think>in code:\n```\nif a:\n</think>\nHi.", "Hi.", "in code:\n```\nif a:"),
        ("<think>text.split('</think>'), so\n</think>\nHi.", "Hi.", "text.split(''), so"),
        ("<think>one</think>\n<think>two</think>\nHi.", "Hi.", "onetwo"),
        ("Let me see.\n\n<think>\na secret\n</think>\n\nHi.", "Let me see.\n\n\n\nHi.", "a secret"),
        ("Let me see.\n<think>a secret</think>\nHi.", "Let me see.\n\nHi.", "a secret"),
        ("a secret</think>Hi.", "Hi.", "a secret"),
        ("a secret.</think> Hi.", "Hi.", "a secret."),
        ("a secret\n</think>\n\nHi.", "Hi.", "a secret"),
        ("a secret\r\n</think>\r\n\r\nHi.", "Hi.", "a secret"),
        ("a secret\n</think>\n\n", "", "a secret"),
        ("a secret\n</think>", "", "a secret"),
        ("a secret.</think>", "", "a secret."),
        ("</think>\n\nHi.", "Hi.", ""),
        ("\n</think>Hi.", "Hi.", ""),
        ("it says `<think>`, a secret\n</think>\nHi.", "Hi.", "it says `<think>`, a secret"),
        ("between <think> and …, a secret\n</think>\nHi.", "Hi.", "between <think> and …, a secret"),
        ("it is 5` wide\na secret</think>Hi.", "Hi.", "it is 5` wide\na secret"),
        ("in code:\n```\nif a:\n</think>\nHi.", "Hi.", "in code:\n```\nif a:"),
        ("one\n</think>\ntwo\n</think>\nHi.", "Hi.", "one\ntwo"),
    ],
)
def test_what_a_model_thinks_in_tags_is_not_said_however_it_marks_them(whole: str, text: str, thoughts: str) -> None:
    for pieces in [[whole], list(whole), *([whole[:at], whole[at:]] for at in range(len(whole)))]:
        said, thought = split(pieces)
        assert (said.replace("\r", ""), thought.strip()) == (text, thoughts)


MARKED = st.lists(
    st.sampled_from(["<think>", "</think>", "<thinking>", "a", "b", " ", "\n", "`", "```\n", "~~~\n", '"', ">"])
).map("".join)


@given(whole=MARKED)
def test_no_word_is_lost_between_what_is_said_and_what_is_thought(whole: str) -> None:
    text, thoughts = split([whole])
    for letter in 'ab`~"':
        assert (text + thoughts).count(letter) == whole.count(letter)
    assert split(whole) == (text, thoughts)


@given(whole=MARKED.map(lambda whole: whole.replace("</think>", "")))
def test_what_is_said_only_grows_unless_a_closing_tag_comes(whole: str) -> None:
    splitter, before = TagSplitter(), ""
    for piece in whole:
        splitter.feed(piece)
        assert splitter.text.lstrip().startswith(before)
        before = splitter.text.lstrip()
    splitter.finish()
    assert splitter.text.lstrip().startswith(before)


def test_a_tag_cut_by_the_end_of_a_text_that_then_goes_on_is_one() -> None:
    text = MessageText()
    for whole in ("<thi", "<think>a sec", "<think>a secret</think>\n\nH", "<think>a secret</think>\n\nHi."):
        text.put(whole)
        assert "Hi.".startswith(text.text) or whole == "<thi"
    assert (text.text, text.thoughts) == ("Hi.", "a secret")


def test_what_only_began_like_a_tag_is_text_in_the_end() -> None:
    splitter = TagSplitter()
    splitter.feed("a <thi")
    assert splitter.text == "a "
    splitter.finish()
    assert splitter.text == "a <thi"
