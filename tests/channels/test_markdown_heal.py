"""A growing answer is shown well formed at every moment."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it.token import Token

from channels.markdown import HOLD, heal, parse
from tests.channels.markdown_documents import documents, noise, opens_fence


def visible(text: str) -> str:
    """What a reader sees of `text`, without white space; brackets aside, which a link loses when it is whole."""
    parts: list[str] = []

    def collect(tokens: list[Token]) -> None:
        for token in tokens:
            if token.type in ("text", "code_inline", "html_inline", "fence", "code_block", "html_block"):
                parts.append(token.content)
            collect(token.children or [])

    collect(parse(text))
    return "".join("".join(parts).split()).replace("[", "").replace("]", "")


@pytest.mark.parametrize(
    ("beginning", "shown"),
    [
        ("Hello wor", "Hello wor"),
        ("**bold te", "**bold te**"),
        ("**bold *it", "**bold *it***"),
        ("**bold*", "**bold**"),
        ("~~old~", "~~old~~"),
        ("_so ", "_so_ "),
        ("**a\\", "**a**"),
        ("a `co", "a `co`"),
        ("``a`", "``a``"),
        ("**`x", "**`x`**"),
        ("foo **", "foo "),
        ("foo `", "foo "),
        ("[text", "text"),
        ("[**text", "**text**"),
        ("see [text](ht", "see text"),
        ('see [text](http://x "ti', "see text"),
        ("![alt](u", "alt"),
        ("see <http://exa", "see "),
        ("line <br", "line "),
        ("a &am", "a "),
        ("x &#12", "x "),
        ("## He", "## He"),
        ("text\n##", "text\n"),
        ("- a\n-", "- a\n"),
        ("- a\n  - ", "- a\n"),
        ("1. a\n2", "1. a\n"),
        ("1. a\n2.", "1. a\n"),
        ("- [ ", ""),
        ("text\n> ", "text\n"),
        ("Title\n--", "Title\n"),
        ("text\n```", "text\n"),
        ("text\n```py\n", "text\n"),
        ("```py\ncode", "```py\ncode\n```"),
        ("```py\ncode\n", "```py\ncode\n```"),
        ("```py\ncode\n``", "```py\ncode\n```"),
        ("````\n```\ncode", "````\n```\ncode\n````"),
        ("~~~\ncode", "~~~\ncode\n~~~"),
        ("- a\n  ```py\n  x", "- a\n  ```py\n  x\n  ```"),
        ("> ```\n> x", "> ```\n> x\n> ```"),
        ("text\n\n| a | b", "text\n\n"),
        ("| a | b |\n", ""),
        ("| a | b |\n|", "| a | b |\n| --- | --- |"),
        ("| a | b |\n| :-", "| a | b |\n| :- | --- |"),
        ("| a | b |\n|---|---|\n|", "| a | b |\n|---|---|\n"),
        ("| a | b |\n|---|---|\n| 1 | **x", "| a | b |\n|---|---|\n| 1 | **x**"),
    ],
)
def test_what_is_half_there_is_closed_completed_or_held_back(beginning: str, shown: str) -> None:
    assert heal(beginning) == shown


@pytest.mark.parametrize(
    "text",
    ["42", "42.", "AT&T", "R&D", "Bonjour !", "2**3", "5*3 = 15", "I <3", "a < b", "C:\\", "snake_case", "see [1]",
     "**重点：**内容", "Use a | b here", "Title\n---", "```py\nx\n```", "x ~5 minutes", "&", "|x| is a norm\n\nend"],
)  # fmt: skip
def test_what_only_looks_unfinished_is_left_alone(text: str) -> None:
    assert heal(text) == text


def test_an_opener_without_an_end_is_literal_after_a_while_and_after_its_paragraph() -> None:
    far = "**x " + "word " * (HOLD // 4)
    assert heal(far) == far
    assert heal("**x\n\nnext") == "**x\n\nnext"


@pytest.mark.parametrize("more", range(16))
def test_a_very_long_paragraph_is_left_alone_wherever_its_code_and_marks_stand(more: int) -> None:
    text = "use `code` here " * 700 + "x" * more
    assert heal(text) == text
    assert heal(text + " **b") == text + " **b**"


@settings(max_examples=150)
@given(documents())
def test_a_complete_document_is_left_alone(document: str) -> None:
    assert heal(document) == document


@settings(max_examples=150)
@given(st.one_of(documents(), noise), st.data())
def test_healing_twice_is_healing_once(text: str, data: st.DataObject) -> None:
    healed = heal(text[: data.draw(st.integers(0, len(text)))])
    assert heal(healed) == healed


@settings(max_examples=150)
@given(st.one_of(documents(), noise), st.data())
def test_a_code_block_is_never_left_open(text: str, data: st.DataObject) -> None:
    assert not opens_fence(heal(text[: data.draw(st.integers(0, len(text)))]))


@settings(max_examples=20)
@given(documents(largest=3))
def test_at_every_moment_the_reader_sees_a_beginning_of_the_whole(document: str) -> None:
    whole = visible(document)
    for end in range(len(document) + 1):
        # Single characters of which the next one decides stay: "!" of an image, "&" of an entity, a digit of a list.
        shown = visible(heal(document[:end])).rstrip("!&\\")
        if document[:end].rpartition("\n")[2].strip(" >").isdigit():
            shown = shown.rstrip("0123456789")
        assert whole.startswith(shown)
