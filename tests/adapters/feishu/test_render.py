"""Markdown in cards: what the platform would take for its own is made harmless, and growth never rewrites."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.feishu import render
from channels.markdown import json_utf8_bytes
from tests.adapters.feishu.strategies import answers, words_of
from tests.emulators.feishu.markdown import images_in, people_in, tables_in

ZWSP = "\u200b"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("# Title\n\n- **a** *b* ~~c~~ `d`\n\n> quote", "# Title\n\n- **a** *b* ~~c~~ `d`\n\n> quote"),
        ("<at id=all></at>", "&#60;at id=all>&#60;/at>"),
        ("`<at id=all>`", f"`<{ZWSP}at id=all>`"),
        ("```\n<at id=all>\n```", "```\n<at id=all>\n```"),
        ("List<String> and a < b, 2 <3", "List&#60;String> and a < b, 2 <3"),
        ("<https://example.org> a<br>b", "<https://example.org> a<br>b"),
        ("![chart](https://example.org/c.png)", "[chart](https://example.org/c.png)"),
        ("![](https://example.org/c.png)", "[image](https://example.org/c.png)"),
        ("wow![x](y)", f"wow!{ZWSP}[x](y)"),
        ("<!-- secret -->", "&#60;!-- secret -->"),
    ],
)
def test_text_stays_as_it_is_but_for_what_the_platform_would_act_on(written: str, shown: str) -> None:
    assert render.markdown(written, tables=5) == shown


def test_tables_past_the_limit_become_code() -> None:
    table = "| a | b |\n|---|---|\n| 1 | 2 |\n\n"
    text = render.markdown(table * 7, tables=5)
    assert tables_in(text) == 5
    assert text.count("```") == 4


def test_links_of_a_table_that_becomes_code_keep_their_addresses() -> None:
    table = "| a |\n|---|\n| [N](http://b.c/d_e) |"
    assert "(http://b.c/d_e)" in render.markdown(table, tables=0)
    assert render.markdown(table, tables=0, aligned=True) == "```\na\n-----\nN (1)\n```\n(1) <http://b.c/d_e>"


@settings(max_examples=60, deadline=None)
@given(answers(), st.integers(0, 6))
def test_nothing_the_platform_would_act_on_is_left_and_no_word_is_lost(text: str, tables: int) -> None:
    for aligned in (False, True):
        shown = render.markdown(text, tables=tables, aligned=aligned)
        assert not people_in(shown)
        assert not images_in(shown)
        assert tables_in(shown) <= tables
        assert words_of(shown) == words_of(text)
    assert json_utf8_bytes(render.markdown(text, tables=tables)) <= render.measure(text)


@settings(max_examples=40, deadline=None)
@given(answers(12), st.data())
def test_what_was_shown_of_a_growing_text_is_never_rewritten(text: str, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 9))
    shown = ""
    for end in range(0, len(text) + size, size):
        now = render.markdown(render.growing(text[:end]), tables=2)
        assert now.startswith(shown) or shown.startswith(now)
        shown = max(shown, now, key=len)
    assert render.markdown(text, tables=2).startswith(shown)


@pytest.mark.parametrize(
    ("text", "shown"),
    [("Let me look", "Let me look"), ("a **bo", "a "), ("x <", "x "), ("see !", "see "), ("Hi!", "Hi!"), ("", "")],
)
def test_only_half_constructs_are_held_back(text: str, shown: str) -> None:
    assert render.growing(text) == shown


def test_halves_of_characters_can_be_sent() -> None:
    assert render.encodable("ok \ud83d.") == "ok \ufffd."
    assert render.encodable("\U0001f600") == "\U0001f600"


def test_plain_text_mentions_nobody() -> None:
    assert "<at" not in render.as_text('`<at user_id="all">` **x**')
