"""What of a view is said on the page, and how often."""

from __future__ import annotations

import html
import re

import pytest

from adapters.web.paint import Painter, Style
from channels.model import Phase, Segment, Step, StepState, TurnId, View
from tests.adapters.web.core import message_view
from tests.long_question import WORDS, long_question, words_in


def _paint(view: View) -> dict[str, str]:
    return Painter(Style(), TurnId("a" * 32)).paint(view)


def test_a_running_tool_is_named_once() -> None:
    step = Step("1", "weather", StepState.RUNNING, started=1.0)
    assert "".join(_paint(View(Phase.WORKING, steps=(step,))).values()).count("weather") == 1


@pytest.mark.parametrize(("ended", "said"), [(1.0, ""), (1.04, ""), (1.06, " · 0.1 s"), (66.0, " · 1 min 5 s")])
def test_a_time_that_is_none_is_not_said(ended: float, said: str) -> None:
    step = Step("1", "ask", StepState.DONE, started=1.0, ended=ended)
    steps = _paint(message_view("Done.", steps=(step,)))["steps"]
    assert f"<summary>1 step{said}</summary>" in steps
    assert "0.0 s" not in steps


@pytest.mark.parametrize(
    ("body", "copied"),
    [
        (
            (Segment("1", "Let me look.", is_answer=False), Segment("2", 'A "list":\n\n1. `x`\n')),
            'A "list":\n\n1. `x`\n',
        ),
        ((Segment("1", "One."), Segment("2", "Two.")), "One.\n\nTwo."),
        ((Segment("1", "Let me look.", is_answer=False),), "Let me look."),
    ],
)
def test_what_is_copied_is_the_markdown_of_the_answer(body: tuple[Segment, ...], copied: str) -> None:
    source = re.search(r'data-source="([^"]*)"', _paint(View(Phase.DONE, body))["end"])
    assert source is not None
    assert html.unescape(source[1]) == copied


@pytest.mark.parametrize("unformatted", [False, True])
def test_a_long_question_is_shown_whole(unformatted: bool) -> None:
    view = View(Phase.ASKING, question=long_question())
    asked = Painter(Style(), TurnId("a" * 32)).paint(view, unformatted=unformatted)["question"]
    assert words_in(asked) == WORDS
    assert asked.index(WORDS[-1]) < asked.index("Approve")
    assert ("<pre>" in asked) is not unformatted
    assert "<!--" not in asked


def test_there_is_nothing_to_copy_where_nothing_was_said() -> None:
    assert "copy-answer" not in _paint(View(Phase.STOPPED))["end"]
