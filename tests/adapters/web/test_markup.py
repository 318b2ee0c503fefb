"""Markdown is shown richly, and nothing that a model or a person wrote can act on the page."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Iterator
from html.parser import HTMLParser

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from adapters.web.markup import GrowingMarkup, markup, plain
from tests.adapters.web.strategies import FRAGMENTS, markdown

_ALLOWED = {
    "a": {"href", "title", "target", "rel"},
    "div": {"class", "tabindex"},
    "p": {"class"},
    "button": {"class", "type"},
    "th": {"class"},
    "td": {"class"},
    "ol": {"start"},
}
_TAGS = {
    *("p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "strong", "em", "s", "code", "pre", "blockquote", "a"),
    *("ul", "ol", "li", "table", "thead", "tbody", "tr", "th", "td", "div", "span", "button"),
}


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def _dangers(rendered: str) -> Iterator[str]:
    """Everything in the HTML that could run, load, or leave the page in another way than by a safe link."""
    parser = _Tags()
    parser.feed(rendered)
    for tag, attributes in parser.found:
        if tag not in _TAGS:
            yield f"<{tag}>"
        yield from (f"{tag}[{name}]" for name in attributes if name not in _ALLOWED.get(tag, set()))
        target = attributes.get("href")
        if target is not None and not target.startswith(("http://", "https://", "mailto:")):
            yield f"href={target}"


_HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    "<iframe src='https://evil.example'></iframe>",
    "<a href='javascript:alert(1)'>x</a>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](java\nscript:alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](\x01javascript:alert(1))",
    "[x](vbscript:x)",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "[x](file:///etc/passwd)",
    "[x](/sign-out)",
    "[x](//evil.example)",
    "<javascript:alert(1)>",
    "![x](javascript:alert(1))",
    '![x](https://evil.example/?q=secret "t")',
    '[x](https://e.example "onmouseover=alert(1)")',
    "[x](https://e.example/\"onclick='alert(1)')",
    '```"><script>alert(1)</script>\ncode\n```',
    "```html\n</code></pre><script>alert(1)</script>\n```",
    "| a |\n|---|\n| <script>alert(1)</script> |",
    "<button data-press='s' data-turn='x'>Stop</button>",
    "<form action='sign-out' method='post'><input type=submit></form>",
    "<style>*{display:none}</style>",
    "<details open ontoggle=alert(1)>",
    "<math><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;img src=1 onerror=alert(1)&gt;'>",
    "<!-- --><script>alert(1)</script><!-- -->",
    "<base href='https://evil.example/'>",
    "https://e.example/<script>alert(1)</script>",
    'https://e.example/"onmouseover="alert(1)',
]


@pytest.mark.parametrize("hostile", _HOSTILE)
def test_hostile_text_is_harmless(hostile: str) -> None:
    for rendered in (
        markup(hostile),
        markup(hostile, breaks=True),
        plain(hostile),
        "\n".join(GrowingMarkup().render(hostile, complete=False)),
    ):
        assert list(_dangers(rendered)) == []
        assert "<script" not in rendered.lower()


@given(st.lists(st.one_of(st.sampled_from(_HOSTILE), markdown), max_size=5).map("".join))
@settings(max_examples=60)
def test_no_mixture_of_texts_becomes_harmful(text: str) -> None:
    assert list(_dangers(markup(text))) == []


def test_html_is_shown_as_the_text_it_is() -> None:
    assert markup("a <b>c</b>") == "<p>a &lt;b&gt;c&lt;/b&gt;</p>"


def test_an_image_is_a_link_and_loads_nothing() -> None:
    rendered = markup("![a cat](https://e.example/cat.png)")
    assert "<img" not in rendered
    assert '<a href="https://e.example/cat.png"' in rendered
    assert ">a cat</a>" in rendered


def test_links_open_elsewhere_and_tell_nothing_about_the_page() -> None:
    rendered = markup("[x](https://e.example)")
    assert 'target="_blank"' in rendered
    assert 'rel="noopener noreferrer nofollow"' in rendered


@pytest.mark.parametrize(
    ("text", "target", "rest"),
    [
        ("see https://e.example/a_b.", "https://e.example/a_b", "."),
        ("(https://e.example/a_(b))", "https://e.example/a_(b)", ")"),
        ("去https://e.example/x。然后", "https://e.example/x", "。然后"),
        ("https://e.example/?a=1&b=2, and", "https://e.example/?a=1&amp;b=2", ", and"),
    ],
)
def test_a_bare_address_is_a_link_without_the_sentence_around_it(text: str, target: str, rest: str) -> None:
    rendered = markup(text)
    assert f'href="{target}"' in rendered
    assert f"</a>{rest}" in rendered


def test_an_address_in_code_or_in_a_link_stays_as_it_is() -> None:
    assert "<a" not in markup("`https://e.example`")
    assert markup("[https://e.example](https://other.example)").count("<a ") == 1


def test_tables_are_aligned_without_inline_styles() -> None:
    rendered = markup("| a | b |\n|:-:|--:|\n| 1 | 2 |")
    assert 'class="align-center"' in rendered
    assert 'class="align-right"' in rendered
    assert "style=" not in rendered
    assert rendered.startswith('<div class="table" tabindex="0"><table>')


def test_code_has_a_copy_button_its_language_and_its_exact_text() -> None:
    rendered = markup("```python title=x\nif a < b & c:\n    pass\n```")
    assert "<span>python title=x</span>" in rendered
    assert 'class="copy"' in rendered
    code = re.search(r"<pre><code>(.*)</code></pre>", rendered, re.DOTALL)
    assert code is not None
    assert html.unescape(code[1]) == "if a < b & c:\n    pass\n"


@pytest.mark.parametrize("breaks", [False, True])
@pytest.mark.parametrize(
    "maths",
    [
        r"\(a^2\)",
        r"\[ \begin{pmatrix} a & b \\ c & d \end{pmatrix} \]",
        r"\(\{1,2\}\,\)",
        r"$x_{i}^{*}+y^{*}$",
        r"$$\int_0^\infty e^{-x^2}\,dx$$",
        "\\[\nx_{*} \\\\\n= y_{*}\n\\]",
    ],
)
def test_maths_is_shown_as_it_was_written(maths: str, *, breaks: bool) -> None:
    for text in (f"Let {maths}.", f"- Let\n- *it* be {maths}", f"| {maths} |"):
        assert maths in html.unescape(markup(text, breaks=breaks))


@pytest.mark.parametrize("before", ["", "Text:\n", "- item\n\n  ", "> "])
def test_maths_on_lines_of_its_own_is_a_block_whatever_its_lines_begin_with(before: str) -> None:
    lines = ["\\[", "a", "=", "b \\\\", "- c", "+ d", "# e", "\\]"]
    prefix = {"- item\n\n  ": "  ", "> ": "> "}.get(before, "")
    rendered = markup(before + f"\n{prefix}".join(lines) + "\n\nafter")
    assert '<p class="maths">' + "\n".join(lines) + "</p>" in rendered
    assert "<p>after</p>" in rendered


def test_a_line_that_only_looks_like_displayed_maths_is_text() -> None:
    assert markup("$$ is **much**") == "<p>$$ is <strong>much</strong></p>"
    assert markup("\\[1\\] is *it*") == "<p>[1] is <em>it</em></p>"
    assert markup("$$x^2$$ is *it*") == "<p>$$x^2$$ is <em>it</em></p>"


def test_task_lists_show_boxes() -> None:
    rendered = markup("- [x] done\n- [ ] open\n\n[x] not a task")
    assert "☑ done" in rendered
    assert "☐ open" in rendered
    assert "[x] not a task" in rendered


@given(st.lists(st.sampled_from([part for part in FRAGMENTS if "|" not in part]), max_size=25))
@settings(max_examples=150)
def test_no_word_is_lost_whatever_marks_stand_around_it(marks: list[str]) -> None:
    text = "".join(f"{mark}w{number}w" for number, mark in enumerate(marks))
    rendered = html.unescape(markup(text))
    assert [number for number in range(len(marks)) if f"w{number}w" not in rendered] == []


def test_somebody_speaking_is_not_a_link_definition() -> None:
    assert "yes" in markup("[Anna]: yes")
    assert 'href="https://e.example"' in markup("[it]\n\n[it]: <https://e.example>")


def test_a_person_s_line_breaks_are_kept() -> None:
    assert "<br>" in markup("one\ntwo", breaks=True)
    assert "<br>" not in markup("one\ntwo")


# ---------------------------------------------------------------- growing


@given(markdown, st.lists(st.integers(1, 12), min_size=1, max_size=40))
@example("===\n|| a | b |\n|---|--:|\n| 1 | 2 |\n", [4, 12])  # a row that looked like the head of a table at first
@example("word\n[\\[\nword \n", [12])  # healed of its open bracket, the second line looked like the head of maths
@settings(max_examples=150)
def test_text_rendered_while_it_grew_ends_as_if_rendered_at_once(text: str, sizes: list[int]) -> None:
    growing = GrowingMarkup()
    end = 0
    for size in sizes:
        end = min(len(text), end + size)
        growing.render(text[:end], complete=False)
    assert list(growing.render(text, complete=True)) == list(GrowingMarkup().render(text, complete=True))


@pytest.mark.parametrize(
    "text",
    ["$$ is the pid. Steps:\n- one", "$$ note\n# Heading", "$$\n```sh\nls\n```", "$$x^2\n```sh\nls\n```"],
)
def test_dollars_that_open_no_maths_leave_what_stands_below_them_alone(text: str) -> None:
    rendered = markup(text)
    assert "<li>" in rendered or "<h1>" in rendered or "<pre>" in rendered


def test_a_heading_mark_that_turns_out_to_be_a_tag_joins_the_paragraph() -> None:
    growing = GrowingMarkup()
    for end in range(1, len("first\n#tag") + 1):
        growing.render("first\n#tag"[:end], complete=False)
    assert list(growing.render("first\n#tag", complete=True)) == ["<p>first\n#tag</p>"]


def test_links_by_reference_work_once_the_text_is_complete() -> None:
    text = "See [it][1].\n\nMore.\n\n[1]: https://e.example\n"
    growing = GrowingMarkup()
    for end in range(0, len(text), 3):
        growing.render(text[:end], complete=False)
    assert 'href="https://e.example"' in growing.render(text, complete=True)[0]


def test_open_marks_are_healed_only_while_the_text_grows() -> None:
    growing = GrowingMarkup()
    assert list(growing.render("some **bold", complete=False)) == ["<p>some <strong>bold</strong></p>"]
    assert list(growing.render("some **bold", complete=True)) == ["<p>some **bold</p>"]


def test_a_text_that_is_replaced_is_rendered_anew() -> None:
    growing = GrowingMarkup()
    growing.render("one\n\ntwo\n\nthree\n\nfour", complete=False)
    assert list(growing.render("other\n\ntext", complete=False)) == ["<p>other</p>", "<p>text</p>"]


def test_rendering_a_growing_text_takes_time_linear_in_its_length() -> None:
    def cost(paragraphs: int) -> float:
        text = "A paragraph with **bold** text and `code`.\n\n" * paragraphs
        growing = GrowingMarkup()
        started = time.process_time()
        for end in range(0, len(text), 200):
            growing.render(text[:end], complete=False)
        growing.render(text, complete=True)
        return time.process_time() - started

    cost(50)
    # Four times the text may take eight times as long; quadratic work would take sixteen times.
    assert cost(800) < 8 * cost(200)


@pytest.mark.parametrize(
    "piece",
    [
        "[",
        "![",
        "*a ",
        "_a_ ",
        "`a",
        "**_a",
        "<a ",
        "[a](",
        "&#x",
        "> ",
        "- ",
        "|",
        "a|b\n",
        "\\[",
        "~~a",
        "https://e.e/)",
    ],
)
def test_a_huge_hostile_text_is_rendered_in_bounded_time_and_whole(piece: str) -> None:
    text = (piece * 60_000)[:60_000]
    started = time.process_time()
    rendered = markup(text)
    GrowingMarkup().render(text, complete=False)
    assert time.process_time() - started < 5
    assert list(_dangers(rendered)) == []
    letters = re.sub(r"[^a-z]", "", html.unescape(re.sub(r"<[^>]*>", "", rendered)))
    assert letters == re.sub(r"[^a-z]", "", text)


def test_a_text_of_megabytes_is_shown_whole_and_unformatted() -> None:
    text = "**word** " * 200_000
    rendered = markup(text)
    assert rendered == f'<div class="plain">{text}</div>'
    assert list(GrowingMarkup().render(text, complete=False)) == [rendered]


@pytest.mark.parametrize("opener", ["> ", "- ", "1. "])
@pytest.mark.parametrize("depth", [17, 18, 19, 20, 21, 5_000])
def test_deeply_nested_text_is_there_whatever_its_depth(opener: str, depth: int) -> None:
    rendered = markup("before\n\n" + opener * depth + "deep\n\nafter")
    assert "deep" in rendered
    assert rendered.startswith("<p>before</p>")
    assert "after" in rendered
