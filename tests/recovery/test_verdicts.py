"""The judge of the chaos test finds what it is there to find."""

from __future__ import annotations

import pytest

from tests.recovery.verdicts import Verdict, judge

ASKED = ["a1 3", "a2 2"]
FIRST, SECOND = "a1-1 a1-2 a1-end", "a2-1 a2-end"


def test_answers_that_are_whole_once_and_in_order_are_right() -> None:
    assert judge(ASKED, ["Hello.", FIRST, SECOND]).is_right


@pytest.mark.parametrize(
    ("messages", "wrong"),
    [
        ([FIRST], Verdict(lost=["a2 2"])),
        ([FIRST, "a2-1"], Verdict(incomplete=["a2 2: a2-1"])),
        (["a1-1 a1-end", SECOND], Verdict(incomplete=["a1 3: a1-1 a1-end"])),
        ([SECOND, FIRST], Verdict(disordered=["a2 2", "a1 3"])),
        ([FIRST, FIRST, SECOND], Verdict(doubled=["a1 3"])),
        (["a1-1", FIRST, SECOND], Verdict(doubled=["a1 3"])),
        (["a1-1 a1-1", FIRST, SECOND], Verdict(incomplete=["a1 3"])),
        ([FIRST, SECOND, "b7-1 b7-end"], Verdict(foreign=["b7-1 b7-end"])),
    ],
    ids=["lost", "torn", "a hole", "out of order", "twice", "begun twice", "scrambled", "somebody else's"],
)
def test_what_is_wrong_is_named(messages: list[str], wrong: Verdict) -> None:
    assert judge(ASKED, messages) == wrong
    assert not wrong.is_right
