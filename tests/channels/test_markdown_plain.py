"""Tables as aligned text, Markdown as plain text, and the measures that platforms count in."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from channels.markdown import (
    display_width,
    fence_tables,
    find_tables,
    heal,
    json_utf8_bytes,
    parse,
    plain_inline,
    plain_text,
    stable_prefix,
    summary,
    table_as_code,
    utf8_bytes,
    utf16_units,
)
from tests.channels.markdown_documents import documents, noise

TABLE = "| name | n |\n|---|--:|\n| **a** | `x \\| y` |\n| 你好 |\n"


def test_a_table_is_found_with_its_place_and_cells() -> None:
    (table,) = find_tables(f"text\n\n{TABLE}\nend")
    assert (table.start_line, table.end_line) == (2, 6)
    assert table.rows == (("name", "n"), ("**a**", "`x | y`"), ("你好", ""))
    assert not table.is_open
    assert find_tables(TABLE)[0].is_open


def test_a_table_as_code_is_aligned_by_display_width() -> None:
    assert table_as_code(find_tables(TABLE)[0].rows) == ("name | n\n-----|------\na    | x | y\n你好 |", ())


def test_a_table_without_rows_or_text_is_still_aligned() -> None:
    assert table_as_code([("a", "")]) == ("a |\n--|--", ())


def test_the_addresses_of_a_tables_links_are_listed_below_it_each_once() -> None:
    table = (
        "| # | where |\n|---|---|\n| 1 | [Nature](https://nature.com/a_b?c=d) |\n"
        "| 2 | <https://a.b> ![plot](./p.png) |\n| 3 | **[again](https://nature.com/a_b?c=d)** [](mailto:a@b.c) |\n"
        "---\nend"
    )
    assert fence_tables(table, 0).split("\n") == [
        "```",
        "# | where",
        "--|---------------------",
        "1 | Nature (1)",
        "2 | https://a.b plot (2)",
        "3 | again (1) (3)",
        "```",
        "(1) <https://nature.com/a_b?c=d>",
        "(2) `./p.png`",
        "(3) <mailto:a@b.c>",
        "",
        "---",
        "end",
    ]


CELLS = st.lists(
    st.sampled_from(
        ["{}", "`{}|{}`", "**{}**", "[{}](https://x.y/{})", "![{}](http://i/{}.png)", "<https://z/{}>", "|{}"]
    ),
    max_size=3,
).map(" ".join)


@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=4))
def test_nothing_of_a_fenced_table_is_lost(rows: list[tuple[str, str]]) -> None:
    numbers = iter(range(100))
    lines = [f"| {first} | {second} |" for first, second in rows]
    filled = [re.sub(r"\{\}", lambda _: f"w{next(numbers)}w", line) for line in lines]
    text = "\n".join(["| a | b |", "|---|---|", *filled, "", "end"])
    words = re.findall(r"w\d+w", text)
    assert sorted(re.findall(r"w\d+w", fence_tables(text, 0))) == sorted(words)


def test_tables_after_the_first_few_become_code_blocks() -> None:
    text = "\n".join([TABLE] * 3)
    fenced = fence_tables(text, 2)
    assert [token.type for token in parse(fenced) if token.type in ("table_open", "fence")] == [
        "table_open",
        "table_open",
        "fence",
    ]
    assert fence_tables(text, 3) == text
    assert len(find_tables(fence_tables(text, 0))) == 0


def test_a_table_in_a_list_becomes_code_in_that_list() -> None:
    fenced = fence_tables("- | a |\n  |---|\n  | 1 |\n\nend", 0)
    assert fenced == "- ```\n  a\n  -\n  1\n  ```\n\nend"


def test_backticks_in_cells_do_not_end_the_code_block() -> None:
    assert fence_tables("| a |\n|---|\n| x ``` |", 0, aligned=False).startswith("````\n")


@settings(max_examples=60)
@given(documents(), st.integers(0, 2), st.data())
def test_which_tables_are_fenced_does_not_change_while_the_text_grows(
    document: str, keep: int, data: st.DataObject
) -> None:
    beginning = document[: data.draw(st.integers(0, len(document)))]
    beginning = beginning[: beginning.rfind("\n") + 1]
    early = [(table.start, table.rows[0]) for table in find_tables(beginning)]
    assert early == [(table.start, table.rows[0]) for table in find_tables(document)][: len(early)]
    assert len(find_tables(fence_tables(document, keep))) == min(keep, len(find_tables(document)))


@settings(max_examples=40)
@given(documents(largest=3), st.integers(0, 1))
def test_unaligned_fenced_tables_only_grow_at_the_end(document: str, keep: int) -> None:
    shown = ""
    for end in range(0, len(document) + 1, 3):
        fenced = fence_tables(document[: stable_prefix(document[:end])], keep, aligned=False)
        assert fenced.startswith(shown.rstrip("\n"))
        shown = fenced


PLAIN = """\
Title x

Some text with code, link (https://e.com), https://a.b, img old & List<String> bold
next

- one
- two
  - nested

3. a
4. b

> quote
>
> more

print(1)

a | b
1 | x | y

end"""


def test_plain_text_keeps_the_words_and_drops_the_marks() -> None:
    assert (
        plain_text(
            "# Title **x**\n\nSome *text* with `code`, [link](https://e.com), <https://a.b>, ![img](u) ~~old~~ &amp; "
            "List<String> <b>bold</b><br>next\n\n- one\n- two\n  - nested\n\n3. a\n4. b\n\n> quote\n>\n> more\n\n"
            "```py\nprint(1)\n```\n\n| a | b |\n|---|--:|\n| **1** | `x \\| y` |\n\n---\nend"
        )
        == PLAIN
    )


def test_plain_inline_shows_only_the_text_of_a_link() -> None:
    assert plain_inline("**a** [b](https://c.d) `e`") == "a b e"


@pytest.mark.parametrize(
    ("text", "length", "line"),
    [
        ("# Short\n\ntext", 40, "Short text"),
        ("one two three four", 12, "one two…"),
        ("你好世界你好世界", 5, "你好世界…"),
        ("👩‍👩‍👧👩‍👩‍👧", 8, "👩‍👩‍👧…"),
        ("", 5, ""),
        ("**bold** text", 8, "bold…"),
    ],
)
def test_a_summary_is_one_line_cut_at_a_word(text: str, length: int, line: str) -> None:
    assert summary(text, length) == line


@settings(max_examples=60)
@given(st.one_of(documents(), noise), st.integers(1, 80))
def test_a_summary_is_never_too_long_and_never_more_than_a_line(text: str, length: int) -> None:
    line = summary(text, length)
    assert len(line) <= length
    assert "\n" not in line


def test_a_summary_of_a_long_text_says_that_it_goes_on() -> None:
    assert summary("word " * 5000, 20) == "word word word word…"


@given(st.text())
def test_measures_never_fall_when_text_is_added_and_never_fail(text: str) -> None:
    for measure in (utf16_units, utf8_bytes, json_utf8_bytes):
        sizes = [measure(text[:end]) for end in range(len(text) + 1)]
        assert sizes == sorted(sizes)
    assert display_width(text) >= 0


def test_measures_count_what_platforms_count() -> None:
    assert utf16_units("a你👍") == 4
    assert utf8_bytes("a你👍") == 8
    assert json_utf8_bytes('a"\n你') == 8
    assert (utf16_units("\ud83d"), utf8_bytes("\ud83d"), json_utf8_bytes("\ud83d")) == (1, 3, 3)
    assert display_width("a你\te\u0301") == 4


def test_a_healed_table_can_be_fenced() -> None:
    assert fence_tables(heal("| a | b |\n|--"), 0) == "```\na | b\n--|--\n```"
