"""How the emulated Slack reads text: what would ring everybody, and how typed text is encoded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.emulators.slack.blocks import JsonObject, resolved_texts, rich_text, visible_text
from tests.emulators.slack.text import broadcasts, encode_typed, unescape, without_code


@pytest.mark.parametrize(
    "text",
    [
        "<!channel>",
        "hey <!here|here>!",
        "<!EVERYONE>",
        "<!subteam^S123|@team>",
        "@channel",
        "please (@here) look",
        "Hello.@everyone.",
        "a `code span` and @here",
        "an unclosed ` and @here",
        "```\ncode\n```\n@channel",
        "a line\n    @channel in indented text",
        "\\<!channel>",
        "```not a fence``` @here",
        "`a\n\n@here and` b",
    ],
)
def test_a_live_broadcast_mention_is_found(text: str) -> None:
    assert len(broadcasts(text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "&lt;!channel&gt;",
        "<\u200b!channel>",
        "@\u200bchannel",
        "@\u2060here",
        "ann@here.example",
        "https://medium.example/@here",
        "@channels and @hereafter",
        "`<!channel>`",
        "``a ` @here``",
        "```\n@channel\n```",
        "```python\n<!here>",
        "~~~\n@everyone\n~~~",
        "- item\n  ```\n  @channel\n  ```",
        "> ```\n> @channel\n> ```",
        "channel, here, everyone",
    ],
)
def test_what_rings_nobody_is_left_alone(text: str) -> None:
    assert broadcasts(text) == []


@given(st.text(alphabet="ab`~\n >@!<", max_size=60))
def test_blanking_code_never_invents_a_mention(text: str) -> None:
    left = without_code(text)
    assert all(character in text or character in " \n" for character in left)
    assert left.count("@") <= text.count("@")


def test_typed_text_is_encoded_as_slack_does() -> None:
    users, channels = {"ann": "U1"}, {"general": "C1"}
    typed = "Is a < b & c? @ann #general @nobody https://x.example/?a=1&b=2, ann@x.example"
    assert encode_typed(typed, users, channels) == (
        "Is a &lt; b &amp; c? <@U1> <#C1|general> @nobody <https://x.example/?a=1&amp;b=2>, "
        "<mailto:ann@x.example|ann@x.example>"
    )
    assert encode_typed("@here", users, channels) == "<!here>"


@given(st.text(alphabet="ab<>&;lgtamp ", max_size=40))
def test_typed_text_can_be_read_back(text: str) -> None:
    assert unescape(encode_typed(text, {}, {})) == text


def test_rich_text_says_the_same_as_the_text() -> None:
    blocks = rich_text("a &lt; b <@U1> <#C1|general> <https://x.example|x> <!here>")
    assert visible_text(blocks) == "a < b <@U1> <#C1> x <!here>"
    assert broadcasts(resolved_texts(blocks)[0]) == ["<!here>"]


def test_plain_text_in_blocks_resolves_nothing() -> None:
    blocks: list[JsonObject] = [
        {"type": "header", "text": {"type": "plain_text", "text": "@channel"}},
        {"type": "section", "text": {"type": "mrkdwn", "text": "said"}, "fields": [{"type": "mrkdwn", "text": "by"}]},
        {"type": "markdown", "text": "**bold**"},
    ]
    assert resolved_texts(blocks) == ["said", "by", "**bold**"]
    assert visible_text(blocks) == "@channel\nsaid\nby\n**bold**"
