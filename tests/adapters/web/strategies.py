"""Texts and views as agents produce them, and as they should not."""

from __future__ import annotations

from hypothesis import strategies as st

from channels.model import File, Option, Phase, Question, Segment, Step, StepState, Usage, View

FRAGMENTS = [
    "word ",
    "**bold** ",
    "*it* ",
    "`code` ",
    "# Title\n",
    "#",
    "\n",
    "\n\n",
    "- item\n",
    "  - inner\n",
    "1. one\n",
    "> quoted\n",
    "```python\nx = 1\n```\n",
    "```\n",
    "~~~\n",
    "| a | b |\n|---|--:|\n| 1 | 2 |\n",
    "|",
    "---\n",
    "===\n",
    "-",
    "    indented\n",
    "\tтекст ",
    "谢谢。",
    "🙂 ",
    "👩‍👩‍👧 ",
    "<b>html</b> ",
    "<script>alert(1)</script>",
    "[link](https://example.org/a?b=c) ",
    "https://example.org/x. ",
    "&amp; ",
    "\\* ",
    "~~gone~~ ",
    "\\(a^{*}_1\\) ",
    "\\[\n",
    "\\]\n",
    "$$",
    "$x_{*}$ ",
    "= b \\\\\n",
    "*",
    "_",
    "[",
    "](",
    "\r\n",
    "\r",
    "\x00",
]

markdown = st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=6)), max_size=30).map("".join)

_steps = st.lists(
    st.builds(
        Step,
        id=st.sampled_from("abc"),
        title=st.text(max_size=12),
        state=st.sampled_from(StepState),
        detail=st.text(max_size=12),
        started=st.none() | st.floats(1.0e9, 2.0e9),
        ended=st.none() | st.floats(1.0e9, 2.0e9),
    ),
    max_size=3,
).map(tuple)

_questions = st.builds(
    Question,
    id=st.just("q"),
    text=st.text(max_size=20),
    options=st.lists(st.builds(Option, id=st.sampled_from("012"), label=st.text(max_size=8)), max_size=3).map(tuple),
    free_text=st.booleans(),
    answer=st.none() | st.text(max_size=8),
)

_files = st.lists(
    st.builds(
        File,
        id=st.text("abc/ ", min_size=1, max_size=4),
        name=st.text(max_size=10),
        mime=st.sampled_from(["image/png", "text/html", "application/pdf"]),
        size=st.none() | st.integers(0, 10**10),
    ),
    max_size=2,
).map(tuple)

_segments = st.lists(st.tuples(markdown, st.booleans()), max_size=3).map(
    lambda parts: tuple(Segment(f"m{number}", text, answer) for number, (text, answer) in enumerate(parts))
)

views = st.builds(
    View,
    phase=st.sampled_from(Phase),
    body=_segments,
    reasoning=st.text(max_size=30),
    steps=_steps,
    question=st.none() | _questions,
    files=_files,
    notice=st.text(max_size=20),
    usage=st.none() | st.builds(Usage, st.integers(0, 10**6), st.integers(0, 10**6)),
)

final_phases = st.sampled_from([phase for phase in Phase if phase.is_final])
