"""Answers as agents write them, with numbered words so that nothing can be lost or doubled unseen."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import replace

from hypothesis import strategies as st

from channels.adapter import Closed, Draw, RateLimited, Refused, TooLarge, Transient, Unauthorised, Unknown
from channels.model import Option, Phase, Question, Segment, Step, StepState, View
from tests.adapters.feishu.offline import Fault

WORD = re.compile(r"w\d+x")


def words_of(text: str) -> list[str]:
    return WORD.findall(text)


class _Numbers:
    """Words that occur once."""

    def __init__(self) -> None:
        self._count: Iterator[int] = itertools.count(1)

    def __call__(self, count: int = 1, between: str = " ") -> str:
        return between.join(f"w{next(self._count)}x" for _ in range(count))


BLOCKS = (
    lambda w: f"{w(12)}\n\n",
    lambda w: f"# {w(3)}\n\n",
    lambda w: f"**{w(2)}** and `{w()}`, *{w()}* 谢谢你的问题。{w()}\n\n",
    lambda w: f"```python\n{w()}\n{w(2)}\n\n{w()}\n```\n\n",
    lambda w: f"```\n{w(40, chr(10))}\n```\n\n",
    lambda w: "".join(f"- {w(2)}\n" for _ in range(4)) + "\n",
    lambda w: "| a | b |\n|---|---|\n" + "".join(f"| {w()} | {w()} |\n" for _ in range(3)) + "\n",
    lambda w: f"> {w(3)}\n> {w()}\n\n",
    lambda w: f'<at id=all></at> {w()} <at user_id="ou_x">Bob</at>\n\n',
    lambda w: f"<person id = 'nobody'></person> {w()} List<String> a < b\n\n",
    lambda w: f"![{w()}](https://example.org/p.png) wow![x](y) {w()}\n\n",
    lambda w: f"[{w()}](https://example.org/a?b=c&d=e) {w()}\n",
    lambda w: f"你好，世界。{w()}。这是一个很长的句子，没有空格。{w()}\n",
    lambda w: f'{w()} "quotes" \\ \x00 \t {w()} 🙂👩‍👩‍👧\n\n',
    lambda w: f"    indented {w()}\n\n",
    lambda w: f"~~~\n{w()} <at id=all>\n~~~\n\n",
)


@st.composite
def answers(draw: st.DrawFn, most: int = 25) -> str:
    """A Markdown document."""
    word = _Numbers()
    kinds = draw(st.lists(st.integers(0, len(BLOCKS) - 1), min_size=1, max_size=most))
    return "".join(BLOCKS[kind](word) for kind in kinds).strip("\n")


steps = st.lists(
    st.builds(
        Step,
        id=st.sampled_from("abcd"),
        title=st.sampled_from(["search", "读取文件", "<at id=all>", "x" * 300]),
        state=st.sampled_from(StepState),
        detail=st.sampled_from(["", "a | b\n|---|---|", "谢" * 400]),
    ),
    max_size=6,
).map(tuple)

questions = st.builds(
    Question,
    id=st.just("q"),
    text=st.sampled_from(["Which?", "选哪个？", "<at id=all>?"]),
    options=st.lists(
        st.builds(Option, id=st.sampled_from("0123"), label=st.sampled_from(["red", "蓝" * 80, ""])), max_size=14
    ).map(tuple),
    free_text=st.booleans(),
)


@st.composite
def stories(draw: st.DrawFn, most: int = 25) -> list[View]:
    """The views of one turn: the text grows, then one final view; perhaps its question is answered afterwards."""
    text = draw(answers(most))
    borders = sorted(set(draw(st.lists(st.integers(0, len(text)), max_size=8))))
    phases = st.sampled_from([Phase.THINKING, Phase.WORKING, Phase.WRITING])
    views = [
        View(
            phase=draw(phases),
            body=(Segment("a", text[:border]),) if border else (),
            reasoning=draw(st.sampled_from(["", "hm", "想" * 3000])),
            steps=draw(steps),
        )
        for border in borders
    ]
    phase = draw(st.sampled_from([phase for phase in Phase if phase.is_final]))
    question = draw(questions) if phase is Phase.ASKING else None
    notice = draw(st.sampled_from(["", "The agent failed. `/retry` asks again."]))
    final = View(phase=phase, body=(Segment("a", text),), steps=draw(steps), question=question, notice=notice)
    return [
        *(_numbered(view, number) for number, view in enumerate(views, start=1)),
        _numbered(final, len(views) + 1),
    ]


def _numbered(view: View, revision: int) -> View:
    return replace(view, revision=revision)


_SCOPE = Draw("cards")
faults = st.sampled_from(
    [
        *[None] * 24,
        *(Fault(failure) for failure in (Transient("no"), Unknown("?"), RateLimited(2.0, _SCOPE), Unauthorised("no"))),
        *(Fault(failure, done=True) for failure in (Unknown("?"), Unknown("late"))),
        *(Fault(failure) for failure in (Closed("shut"), TooLarge("big"), Refused("bad"))),
        *(Fault(gone=True) for _ in range(3)),
        *(Fault(code=code) for code in (300309, 200850, 300317, 200770, 200810, 200860, 230025, 230020)),
        *(Fault(code=code) for code in (99991400, 230099, 99991672, 1500)),
        *(Fault(code=code) for code in (99992402, 230028, 230050, 230111, 300120)),
        Fault(code=230099, text="ErrCode: 11310; ErrMsg: card table number over limit; "),
        Fault(code=230099, text="ErrCode: 11310; ErrMsg: cardid is invalid; "),
    ]
)
