"""No text that a model or a user wrote calls everybody."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from channels.markdown import BREAKER, Mentions, neutralise_mentions, stable_prefix
from tests.channels.markdown_documents import documents

_PIECES = [
    *"a中 \n`*[]()<>|\\", "@all", "@here", "<!channel>", "<at id=all>", "<at", "```\n", "- ", "> ", "    ",
    "|---|---|\n", "https://a.b/", "a@all.com", "| a | b |\n", "<div>\n", "**", "y z " * 40, "x" * 150,
]  # fmt: skip
mention_noise = st.lists(st.sampled_from(_PIECES), max_size=30).map("".join)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("<!channel> hi", 1),
        ("<!here|here>", 1),
        ("<!EVERYONE>", 1),
        ("<!subteam^S12|@team>", 1),
        ("<@U12AB>", 1),
        ("<at id=all></x>", 1),
        ('<at user_id="all">all</x>', 1),
        ("<AT email=a@b.c>", 1),
        ("hi @channel", 4),
        ("(@here)", 2),
        ("_@everyone_", 2),
        ("**@all**", 3),
        ("\\@all", 2),
        ("大家@all好", 3),
        ("Hello.@all", 7),
        ("`open @all", 7),
        ("[@all](https://example.com)", 2),
    ],
)
def test_a_mention_is_broken_after_its_first_character(text: str, at: int) -> None:
    assert neutralise_mentions(text) == text[:at] + BREAKER + text[at:]


@pytest.mark.parametrize(
    "text",
    [
        "`@all` and ``<!channel>``",
        "```\n@all <at id=all>\n```",
        "text\n\n    @all indented",
        "> ~~~\n> @here\n> ~~~",
        "mail team@all.com or a@here",
        "https://example.com/@all and https://example.com?to=@here",
        "[name](https://example.com/@everyone)",
        "<https://example.com/@channel>",
        "@allies @hereby @you <!date^1>",
        "a < b <b>bold</b>",
    ],
)
def test_code_links_addresses_and_other_words_are_untouched(text: str) -> None:
    assert neutralise_mentions(text) == text


def test_only_the_chosen_kinds_are_broken() -> None:
    text = "<!here> <@U1> <at id=1> @all"
    assert neutralise_mentions(text, marks=Mentions.TELEGRAM) == f"<!here> <@U1> <at id=1> @{BREAKER}all"
    assert neutralise_mentions(text, marks=Mentions.FEISHU) == f"<!here> <@U1> <{BREAKER}at id=1> @all"
    assert neutralise_mentions(text, marks=Mentions.SLACK) == f"<{BREAKER}!here> <{BREAKER}@U1> <at id=1> @{BREAKER}all"
    assert neutralise_mentions(text, marks=Mentions(0)) == text


def test_code_that_only_a_mention_made_code_is_no_hiding_place() -> None:
    text = "<!channel>\n    <!channel>"
    assert neutralise_mentions(text).count(BREAKER) == 2


@settings(max_examples=100)
@given(st.one_of(documents(), mention_noise))
def test_neutralising_twice_is_neutralising_once_and_only_adds(text: str) -> None:
    neutralised = neutralise_mentions(text)
    assert neutralise_mentions(neutralised) == neutralised
    assert neutralised.replace(BREAKER, "") == text


@settings(max_examples=60)
@given(st.one_of(documents(largest=3), mention_noise))
def test_a_surface_that_only_appends_never_has_to_take_anything_back(text: str) -> None:
    shown = ""
    for end in range(len(text) + 1):
        neutralised = neutralise_mentions(text[: stable_prefix(text[:end])])
        assert neutralised.startswith(shown)
        shown = neutralised
    assert neutralise_mentions(text).startswith(shown)
