"""Slack's text in and out, and the keys of the channel."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from adapters.slack import build
from adapters.slack.failures import NoStream, failure_of
from adapters.slack.limits import BUDGETS
from adapters.slack.text import clipped, disarmed, fallback, harmless, readable, unformatted, without_address
from channels.adapter import (
    Context,
    Forbidden,
    OpenFile,
    RateLimited,
    Refused,
    Sink,
    Transient,
    Unauthorised,
    Unknown,
)
from channels.clock import SystemClock
from config.slack import SlackChannel
from tests.emulators.slack.text import broadcasts


@pytest.mark.parametrize(
    ("encoded", "read"),
    [
        ("<@U1> and <@U2|bob> in <#C1> and <#C2|two>", "@ann and @bob in @C? and #two"),
        ("a &lt;b&gt; &amp;amp; c", "a <b> &amp; c"),
        ("<https://x.example/?a=1&amp;b=2>", "https://x.example/?a=1&b=2"),
        ("<https://x.example/|x.example>", "https://x.example/"),
        ("<https://x.example|the site>", "[the site](https://x.example)"),
        ("<mailto:a@x.example|a@x.example>", "a@x.example"),
        ("<!here> <!subteam^S1|@team> <!date^1^{date}|noon>", "@here @team noon"),
        ("<@U404> <!subteam^S012AB> <!date^1^{date}>", "@U404 @S012AB "),
    ],
)
def test_encoded_text_is_read_as_people_see_it(encoded: str, read: str) -> None:
    assert readable(encoded, {"U1": "ann"}, {"C1": "one"}) == read.replace("@C?", "#one")


def test_the_address_is_no_part_of_the_question() -> None:
    assert without_address("<@B> <@B>: hi <@B|bridge>", "B") == "hi"
    assert without_address("hi <@B> there", "B") == "hi <@B> there"


alive = st.lists(
    st.sampled_from(["<!channel>", "@here", "@everyone", "<!subteam^S1>", " ", "\n", "    ", "word", "- ", "> ", "\t"])
).map("".join)


@given(alive)
def test_nothing_rings_however_it_is_written(text: str) -> None:
    assert broadcasts(harmless(text)) == []
    assert broadcasts(unformatted(text)) == []
    assert broadcasts(disarmed(text)) == []
    if text.strip():
        assert broadcasts(fallback(text, 150)) == []


@given(st.text(), st.integers(8, 200))
def test_clipped_text_keeps_its_size(text: str, size: int) -> None:
    assert len(clipped(text, size).encode(errors="replace")) <= size
    assert "\n" not in clipped(text, size)


@pytest.mark.parametrize(
    ("method", "status", "error", "kind"),
    [
        ("chat.update", 429, "ratelimited", RateLimited),
        ("chat.update", 200, "ratelimited", RateLimited),
        ("chat.postMessage", 502, "", Unknown),
        ("chat.postMessage", 503, "", Transient),
        ("chat.postMessage", 200, "internal_error", Unknown),
        ("chat.postMessage", 200, "restricted_action_something_new", Forbidden),
        ("chat.postMessage", 200, "never_heard_of", Refused),
        ("chat.postMessage", 200, "missing_scope", Unauthorised),
        ("chat.startStream", 200, "missing_scope", NoStream),
        ("apps.connections.open", 200, "missing_scope", Unauthorised),
        ("conversations.replies", 200, "missing_scope", Refused),
        ("files.getUploadURLExternal", 200, "no_permission", Refused),
        ("files.completeUploadExternal", 200, "token_revoked", Unauthorised),
        ("chat.startStream", 200, "slack_connect_blocked", NoStream),
        ("chat.postMessage", 200, "user_not_found", Refused),
    ],
)
def test_each_error_has_one_meaning(method: str, status: int, error: str, kind: type[Exception]) -> None:
    assert type(failure_of(method, status, error)) is kind


def test_a_rate_refusal_keeps_its_time() -> None:
    failure = failure_of("chat.update", 429, "ratelimited", retry_after="17")
    assert isinstance(failure, RateLimited)
    assert (failure.retry_after, failure.scope.budget) == (17.0, "chat.update")


LESS = {"limit": 5, "window": 60}


def test_a_budget_in_the_settings_takes_the_place_of_that_one_alone() -> None:
    keys = {"bot_token": "xoxb-1", "app_token": "xapp-2", "limits": {"budgets": {"chat.update": LESS}}}
    context = Context("team", cast(Sink, SimpleNamespace(report=None)), SystemClock(), cast(OpenFile, None))
    budgets = build(SlackChannel.model_validate(keys), context).budgets
    assert budgets["chat.update"] == replace(BUDGETS["chat.update"], limit=5, reserve=2)
    assert {**budgets, "chat.update": BUDGETS["chat.update"]} == BUDGETS


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ({"bot_token": "xapp-1", "app_token": "xapp-2"}, "expected a bot token"),
        ({"bot_token": "xoxb-1", "app_token": "xoxb-2"}, "expected an app-level token"),
        ({"bot_token": "xoxb-1"}, "needs app_token"),
        ({"bot_token": "xoxb-1", "app_token": "xapp-2", "streaming": "draft"}, "Slack has no drafts"),
        ({"bot_token": "xoxb-1", "app_token": "xapp-2", "limits": {"message_size": 20}}, "limits.message_size"),
        (
            {"bot_token": "xoxb-1", "app_token": "xapp-2", "limits": {"budgets": {"chat.updat": LESS}}},
            "unknown budget `chat.updat`; did you mean `chat.update`?",
        ),
    ],
)
def test_mistakes_in_the_settings_are_named_without_their_secrets(keys: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValidationError) as refused:
        SlackChannel.model_validate(keys)
    messages = [error["msg"] for error in refused.value.errors(include_input=False)]
    assert complaint in str(messages)
    assert "xoxb-1" not in str(messages)
