"""Markdown as Telegram's text and entities: nothing lost, every entity legal."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.telegram.marks import Mark, Styled, joined, legal, sendable, trimmed
from adapters.telegram.render import render, rich
from tests.emulators.telegram import Entity
from tests.emulators.telegram.text import settle_text, utf16_slice

PIECES = st.sampled_from(
    [
        "**", "*", "_", "`", "```", "\n```\n", "~~", "||", "$", "$$", "\\(", "\\)", "\\[", "\\]", "[", "](", ")", "![",
        "http://a.b", "<b>", "</b>", "<", "<!--", "> ", "- ", "1. ", "# ", "\n", "\n\n", " ", "a", "日本", "😀",
        "\n|a|b|\n|-|-|\n|1|2|\n", "    ", "&amp;", "\\frac{a}{b}", "@all", "\t", "\x00", "\ud800", "---",
        "[x]: http://y\n", "[ ] ", "\r\n", "e\u0301", "\u200b", "\ufdd0",
    ]
)  # fmt: skip
DOCUMENTS = st.lists(PIECES, max_size=40).map("".join) | st.text(max_size=200)


def marked(value: Styled, kind: str) -> list[str]:
    return [utf16_slice(value.text, mark.start, mark.end - mark.start) for mark in value.marks if mark.kind == kind]


@settings(max_examples=300, deadline=None)
@given(DOCUMENTS)
def test_telegram_takes_whatever_is_rendered_as_it_is(markdown: str) -> None:
    rendered = render(markdown)
    broken: list[str] = []
    if rendered.text:
        entities = [Entity(mark.kind, mark.start, mark.end - mark.start) for mark in rendered.marks]
        text, _ = settle_text(rendered.text, entities, broken.append)
        assert text == rendered.text
    assert not broken


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(["<b>", "<div>", "||", "$", "|", "<", "x<y", "a||b", "$HOME"]), max_size=20))
def test_what_the_converter_would_drop_is_kept(pieces: list[str]) -> None:
    numbered = [f"w{number}w {piece}" for number, piece in enumerate(pieces)]
    rendered = render("Text " + " ".join(numbered)).text
    assert rendered == trimmed(Styled("Text " + " ".join(numbered))).text


@pytest.mark.parametrize(
    ("markdown", "text", "kind", "stretches"),
    [
        ("**a `b` c**", "a b c", "bold", ["a ", " c"]),
        ("**a `b` c**", "a b c", "code", ["b"]),
        ("[`x`](http://a)", "x", "text_link", ["x"]),
        ("[`x`](http://a)", "x", "code", []),
        ("> one\n> > two", "one\ntwo", "blockquote", ["one\ntwo"]),
        ("<div>kept</div>", "<div>kept</div>", "bold", []),
        ("`a<b>|$`", "a<b>|$", "code", ["a<b>|$"]),
        ("costs $5 and $10", "costs $5 and $10", "code", []),
        ("$USER_A:$B", "$USER_A:$B", "code", []),
        ("$x_1^2$", "x_1^2", "code", ["x_1^2"]),
        ("\\(\\frac{a}{b}\\)", "a/b", "code", ["a/b"]),
        ("```latex\n\\[ x \\] $a_1$\n```", "\\[ x \\] $a_1$", "pre", ["\\[ x \\] $a_1$"]),
        ("[x](./rel)", "x (./rel)", "text_link", []),
        ("see <https://x.y>", "see https://x.y", "text_link", ["https://x.y"]),
        (
            "| a | 数 |\n|--|--|\n| 日本 | b |",
            "a    | 数\n-----|---\n日本 | b",
            "pre",
            ["a    | 数\n-----|---\n日本 | b"],
        ),
        (
            "| a |\n|---|\n| [N](http://b.c/d_e) |",
            "a\n-----\nN (1)\n(1) http://b.c/d_e",
            "text_link",
            ["http://b.c/d_e"],
        ),
        ("@everyone hi", "@\u200beveryone hi", "bold", []),
        ("# Title", "Title", "bold", ["Title"]),
        ("- [x] done", "✅ done", "bold", []),
    ],
)
def test_markdown_becomes(markdown: str, text: str, kind: str, stretches: list[str]) -> None:
    rendered = render(markdown)
    assert rendered.text == text
    assert marked(rendered, kind) == stretches


def test_rich_messages_are_for_tables_and_maths_that_fit() -> None:
    table = "| a | b |\n|---|---|\n| 1 | 2 |"
    assert rich(table) == table
    assert rich("$$x^2$$") == "$$x^2$$"
    assert rich("plain") is None
    assert rich("```\n$$x$$\n```") is None
    assert rich(table + "\n\n" + "long " * 10_000) is None
    assert rich("|" + " a |" * 25 + "\n|" + "---|" * 25) is None


def test_marks_that_cross_are_left_out() -> None:
    assert legal([Mark("bold", 0, 4), Mark("italic", 2, 6)]) == (Mark("bold", 0, 4),)


def test_marks_move_with_their_text() -> None:
    both = joined([Styled("😀", (Mark("bold", 0, 2),)), Styled(), Styled("b", (Mark("code", 0, 1),))], "\n")
    assert both == Styled("😀\nb", (Mark("bold", 0, 2), Mark("code", 3, 4)))
    assert trimmed(Styled("  a b  ", (Mark("bold", 4, 7),))) == Styled("a b", (Mark("bold", 2, 3),))


def test_what_telegram_cannot_take_is_replaced() -> None:
    assert sendable("a\ud800b\x00c\r\nd\te") == "a\ufffdb\ufffdc\nd   e"
