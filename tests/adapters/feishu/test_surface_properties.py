"""Whatever the views, the troubles and the crashes: a reply settles, whole and once, and keeps every rule."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.feishu.ops import Format
from channels.adapter import Forbidden
from channels.model import Phase, Segment, View
from config.channel import Streaming
from tests.adapters.feishu.offline import Desk
from tests.adapters.feishu.strategies import faults, stories, words_of

SMALL = 10_000  # bytes of a card: the smallest that may be set, so that many are needed


def play(desk: Desk, story: list[View], pauses: st.DataObject) -> None:
    for view in story[:-1]:
        for _ in range(3):
            if not desk.step(view):
                break
        desk.wait(pauses.draw(st.sampled_from([0.0, 0.3, 2.0, 5.0, 700.0])))
    desk.settle(story[-1])


def assert_whole(desk: Desk, final: View) -> None:
    assert words_of(desk.text) == words_of(final.text)
    assert not any(reply.generating for reply in desk.replies)
    assert not desk.shown.leftovers
    buttons = [button.text for reply in desk.replies for button in reply.buttons]
    assert "Stop" not in buttons
    assert not any(reply.buttons for reply in desk.replies[:-1])


@settings(max_examples=40, deadline=None)
@given(stories(), st.data())
def test_without_trouble_the_answer_is_whole_and_no_rule_is_broken(story: list[View], data: st.DataObject) -> None:
    desk = Desk(kind=data.draw(st.sampled_from(["p2p", "group"])), card_bytes=SMALL)
    play(desk, story, data)
    assert_whole(desk, story[-1])
    assert not desk.emulator.journal.broken


@pytest.mark.parametrize("texts", [["<", "<a", "<at", "<at>you"], ["Hello", "", "Now", "Now more"]])
@pytest.mark.parametrize("pause", [0.0, 2.0, 700.0])
def test_text_that_shrinks_to_nothing_and_grows_again_breaks_no_rule(texts: list[str], pause: float) -> None:
    desk = Desk(card_bytes=SMALL)
    for revision, text in enumerate(texts, 1):
        view = View(Phase.THINKING, (Segment("a", text),) if text else (), revision=revision)
        for _ in range(6):
            desk.step(view)
        desk.wait(pause)
    final = View(Phase.DONE, (Segment("a", texts[-1]),), revision=9)
    desk.settle(final)
    assert_whole(desk, final)
    assert not desk.emulator.journal.broken


@settings(max_examples=60, deadline=None)
@given(stories(most=15), st.data())
def test_through_any_trouble_and_any_crash_the_answer_is_whole_and_once(story: list[View], data: st.DataObject) -> None:
    desk = Desk(card_bytes=SMALL, first=data.draw(st.sampled_from([Format.CARD, Format.CARD, Format.PATCH])))
    desk.api.trouble = lambda _: data.draw(faults)
    for view in story:
        for _ in range(data.draw(st.integers(0, 6))):
            if not desk.step(view):
                desk.wait(1.0)
        if data.draw(st.integers(0, 4)) == 0:
            desk.crash()
        desk.wait(data.draw(st.sampled_from([0.0, 0.3, 2.0])))
    desk.api.trouble = lambda _: None
    desk.settle(story[-1])
    if any(sheet.format is Format.NOTE for sheet in desk.shown.sheets):
        assert "Feishu refuses" in desk.text
    elif not desk.shown.given_up:
        assert_whole(desk, story[-1])


@settings(max_examples=15, deadline=None)
@given(stories(most=10), st.sampled_from([Streaming.OFF, Streaming.EDIT]), st.data())
def test_other_ways_of_streaming_show_the_same(story: list[View], streaming: Streaming, data: st.DataObject) -> None:
    first = Format.PATCH if streaming is Streaming.EDIT else Format.CARD
    desk = Desk(streaming=streaming, first=first, card_bytes=SMALL)
    play(desk, story, data)
    assert_whole(desk, story[-1])
    assert not desk.emulator.journal.broken
    assert "cardkit.card.create" not in desk.api.calls


@settings(max_examples=15, deadline=None)
@given(stories(most=10), st.sampled_from([Format.POST, Format.TEXT]), st.data())
def test_messages_without_cards_hold_the_whole_answer(story: list[View], form: Format, data: st.DataObject) -> None:
    desk = Desk(first=form, card_bytes=SMALL)
    play(desk, story, data)
    assert words_of(desk.text) == words_of(story[-1].text)
    assert not desk.emulator.journal.broken


@settings(max_examples=10, deadline=None)
@given(stories(most=6), st.data())
def test_where_nothing_may_be_sent_it_ends(story: list[View], data: st.DataObject) -> None:
    desk = Desk()
    desk.emulator.world.chats[desk.chat].bot_in = False
    for view in story:
        desk.settle(view)
    assert desk.shown.given_up
    assert isinstance(desk.performed[-1][1], Forbidden)
    assert desk.replies == []
