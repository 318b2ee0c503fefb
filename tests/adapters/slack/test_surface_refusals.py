"""The surface alone, where Slack refuses for good: the answer, the end of a stream, or everything."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.slack.failures import Unstoppable
from adapters.slack.ops import Post, StartStream
from adapters.slack.planning import Rules
from adapters.slack.surface import SlackSurface, Taste
from channels.access import ShowReasoning
from channels.adapter import Closed, Failure, Gone, Refused, TooLarge
from channels.model import Phase, Segment, View
from config.channel import Streaming
from tests.adapters.slack.paper_slack import on_paper
from tests.adapters.slack.test_surface_properties import (
    SPOT,
    Happening,
    Run,
    Words,
    documents,
    expected_words,
    many,
    piece,
    play,
    safe_troubles,
    stories,
    surface,
)


def is_final_refusal(run: Run, failure: Failure, *, told: bool) -> None:
    """All calls fail alike, but for the one that says so, if the reader can be `told`."""
    for _ in range(60):
        ops = run.offers()
        if not ops:
            return
        run.now = max(run.now, min(op.not_before for op in ops))
        is_apology = isinstance(ops[0], Post) and ops[0].gives_up
        run.step(None if told and is_apology else (failure, False))
    raise AssertionError(f"does not settle: {run.outcomes[-6:]}")


@pytest.mark.parametrize("failure", [Refused("no"), TooLarge("no"), Gone("no"), Closed("no")], ids=repr)
@pytest.mark.parametrize("told", [True, False], ids=["told", "untold"])
@pytest.mark.parametrize("begun", [True, False], ids=["begun", "not begun"])
def test_an_answer_that_is_refused_for_good_ends_with_one_sentence_if_that_can_be_said(
    failure: Failure, told: bool, begun: bool
) -> None:
    run = Run(surface(size=9_000))
    words = Words()
    run.view = View(Phase.WRITING, (Segment("a", words.take(20) + " "),), revision=1)
    if begun:
        run.step()
    run.view = View(Phase.DONE, (Segment("a", run.view.text + words.take(20)),), revision=2)
    is_final_refusal(run, failure, told=told)
    sentences = [paper for paper in run.slack.standing if paper.text.startswith("Slack does not let me show")]
    assert len(sentences) == told
    assert run.shown.given_up is not told
    assert not [paper for paper in run.slack.papers if paper.deleted]
    run.crash()
    assert run.offers() == ()


@many
@given(stories(safe_troubles))
def test_a_stream_that_cannot_be_ended_costs_no_format_and_nothing_of_the_answer(
    story: tuple[list[View], list[list[Happening]]],
) -> None:
    run = Run(surface())
    run.slack.no_end = Unstoppable("user_not_found")
    play(run, story)
    assert not run.shown.given_up
    assert run.shown.level == 0
    assert set(run.words) >= set(expected_words(run.view))
    assert len(run.slack.shared) == len(run.view.files)
    if run.view.question is not None:
        assert [button for paper in run.slack.standing for button in paper.buttons]


@many
@given(st.lists(documents, min_size=1, max_size=4))
def test_where_no_stream_can_be_ended_an_undisturbed_answer_is_there_once(
    texts: list[list[tuple[str, int]]],
) -> None:
    run = Run(surface())
    run.slack.no_end = Unstoppable("user_not_found")
    words = Words()
    text = ""
    for revision, document in enumerate(texts, 1):
        text += "".join(piece(kind, words, size) for kind, size in document)
        run.view = View(Phase.WRITING, (Segment("a", text.strip()),), revision=revision)
        end = run.now + 100
        while run.now < end:
            if not run.step():
                run.now += 5
    run.view = replace(run.view, phase=Phase.DONE, revision=99)
    run.settle()
    assert run.slack.broken == []
    assert run.words == expected_words(run.view)
    assert len([op for op, _ in run.outcomes if isinstance(op, StartStream)]) <= 1


@pytest.mark.parametrize("failure", [Refused("no"), TooLarge("no")], ids=["refused", "too large"])
@pytest.mark.parametrize("has_ended", [True, False])
def test_an_end_that_is_refused_although_it_brings_nothing_is_no_matter_of_format(
    failure: Failure, has_ended: bool
) -> None:
    rules = Rules(Streaming.AUTO, 9_000, 9_000, feedback=False, may_stream=True)
    run = Run(SlackSurface(SPOT, Taste(rules, ShowReasoning.ON), on_paper()))
    text = Words().take(20)
    run.view = View(Phase.WRITING, (Segment("a", text, is_answer=False),), revision=1)
    run.step()
    run.view = replace(run.view, phase=Phase.DONE, revision=2)
    run.slack.no_end = failure
    if has_ended:
        run.step((failure, False))
        run.slack.expire()
    run.settle()
    assert run.shown.level == 0
    assert run.shown.shrunk == 0
    assert run.slack.text == text
    assert run.slack.broken == ([] if has_ended else ["an edit of a running stream"])
