"""Hypothesis strategies for Markdown as models write it: nested blocks, inline marks, many scripts."""

from __future__ import annotations

from hypothesis import strategies as st

from channels.markdown import parse

_WORDS = st.sampled_from(
    [
        "the", "bridge", "answers", "in", "2", "steps", "x", "R&D", "snake_case", "a/b", "don't", "end.", "so:",
        "(see)", "你好", "世界。", "消息，", "한국어", "ภาษาไทย", "日本語", "नमस्ते", "👍", "🇩🇪🇫🇷", "👋🏽", "❤️",
        "👩\u200d👩\u200d👧\u200d👦", "e\u0301te\u0301", "a < b", "C#", "50%", "#1", "@you", "1.", "-", "+1",
    ]
)  # fmt: skip
_ADDRESSES = st.sampled_from(
    ["https://example.com", "https://example.com/a_b(c)?q=1", "http://例子.测试/路径", "mailto:a@example.com"]
)
_CODE_LINES = st.sampled_from(
    ["x = 1", "    indented", "", "# not a heading", "| not | a table |", "|---|---|", "**not bold", "- no item", "``",
     "> no quote", "print('你好')", "~~", "a" * 60, "@channel <!here>"]
)  # fmt: skip


def words(smallest: int = 1, largest: int = 6) -> st.SearchStrategy[str]:
    return st.lists(_WORDS, min_size=smallest, max_size=largest).map(" ".join)


_STARTS = st.sampled_from(["the", "a", "text", "你好", "note"])
_PHRASES = st.builds("{} {}".format, _STARTS, words(1, 3).filter(lambda text: text[-1] not in "-<+"))
_SPANS = st.one_of(
    words(),
    words(),
    _PHRASES.map("**{}**".format),
    _PHRASES.map("*{}*".format),
    _PHRASES.map("_{}_".format),
    _PHRASES.map("~~{}~~".format),
    _PHRASES.map("***{}***".format),
    _PHRASES.map("**the *{}* end**".format),
    st.sampled_from(["`code`", "``a ` b``", "`a | b`", "`**x`", "`<at id=all>`"]),
    st.builds("[{}]({})".format, _PHRASES, _ADDRESSES),
    st.builds('![{}]({} "title")'.format, _STARTS, _ADDRESSES),
    _PHRASES.map("[**{}**](https://example.com)".format),
    _ADDRESSES.filter(lambda address: address.isascii()).map("<{}>".format),
    _ADDRESSES,
    st.sampled_from(
        ["&amp;", "&copy;", "\\*", "\\|", "[1]", "<br>", "a|b", "@all hands", "<!channel> now", "x@here.org"]
    ),
)


@st.composite
def lines_of_text(draw: st.DrawFn) -> str:
    """One line of a paragraph: it starts with a word that starts no block."""
    return draw(_STARTS) + " " + " ".join(draw(st.lists(_SPANS, min_size=1, max_size=4)))


@st.composite
def fences(draw: st.DrawFn) -> list[str]:
    marks = draw(st.sampled_from(["```", "~~~", "````", "~~~~~"]))
    info = draw(st.sampled_from(["", "python", "text title=x"]))
    code = draw(st.lists(_CODE_LINES, max_size=6))
    return [marks + info, *code, marks]


@st.composite
def tables(draw: st.DrawFn) -> list[str]:
    columns = draw(st.integers(1, 4))
    cell = st.one_of(words(1, 2), st.sampled_from(["**b**", "`c`", "a \\| b", "", "你好"]))
    rows = draw(st.lists(st.lists(cell, min_size=columns, max_size=columns), min_size=1, max_size=5))
    lines = [f"| {' | '.join(row)} |" for row in rows]
    dashes = draw(st.lists(st.sampled_from(["---", ":--", "--:", ":-:"]), min_size=columns, max_size=columns))
    lines[0] = f"| {' | '.join(f'h{n} {cell}' for n, cell in enumerate(rows[0]))} |"
    lines.insert(1, f"| {' | '.join(dashes)} |" if draw(st.booleans()) else f"|{'|'.join(dashes)}|")
    return lines


@st.composite
def lists(draw: st.DrawFn, depth: int) -> list[str]:
    marker = draw(st.sampled_from(["- ", "* ", "1. ", "1.  ", "-   "]))
    is_loose = draw(st.booleans())
    lines: list[str] = []
    for number in range(draw(st.integers(1, 4))):
        first = f"{number + 1}." + marker[2:] if marker[0] == "1" else marker
        inner = [draw(lines_of_text())]
        if depth and draw(st.booleans()):
            block = draw(blocks(depth - 1))
            inner += [*([""] if draw(st.booleans()) or block[0][0] not in "-*1`~" else []), *block]
        indent = " " * len(first)
        lines += [first + inner[0], *(indent + line if line else "" for line in inner[1:])]
        if is_loose:
            lines.append("")
    return lines[:-1] if is_loose else lines


@st.composite
def quotes(draw: st.DrawFn, depth: int) -> list[str]:
    return [f"> {line}".rstrip() for line in draw(blocks(depth - 1))]


def blocks(depth: int = 2) -> st.SearchStrategy[list[str]]:
    leaves = [
        st.lists(lines_of_text(), min_size=1, max_size=3),
        st.builds(lambda level, text: ["#" * level + " " + text], st.integers(1, 4), lines_of_text()),
        fences(),
        tables(),
    ]
    if depth:
        leaves += [lists(depth), quotes(depth)]
    return st.one_of(leaves)


@st.composite
def documents(draw: st.DrawFn, smallest: int = 1, largest: int = 6) -> str:
    """A complete, well-formed document."""
    parts = draw(st.lists(st.one_of(blocks(), st.just(["---"])), min_size=smallest, max_size=largest))
    return "\n\n".join("\n".join(part) for part in parts) + draw(st.sampled_from(["", "\n"]))


# Dense in the characters that Markdown gives a meaning to, for what models should not write but might.
_PIECES = [*"ab 你\n\n\t`~*_#->|:[]()<!&;\\1.=+@", "  \n", "```", "---", "👩‍👩‍👧", "e\u0301", "http://a"]
noise = st.lists(st.sampled_from(_PIECES), max_size=60).map("".join)


def opens_fence(text: str) -> bool:
    """Whether `text` leaves a code block open, so that it would swallow what is written after it."""
    return not any(token.content == "AFTER" for token in parse(f"{text}\n\nAFTER") if token.type == "inline")
