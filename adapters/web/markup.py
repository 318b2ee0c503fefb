"""Markdown to HTML that is safe to show: nothing in it can run, load, or pretend to be part of the page.

Two walls: the parser never passes HTML through (it is shown as text), and the sanitiser keeps an allow-list of tags
whatever the parser produced.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock, reference
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from adapters.web.displays import DISPLAY, with_maths
from channels.markdown import heal

_LARGEST = 1_000_000  # characters; a longer text is shown unformatted
_LONGEST_INLINE = 20_000  # characters of one paragraph; emphasis and links in a longer one cost quadratic time
_LONGEST_HEALED = 5_000  # characters of the growing paragraph; open marks in a longer one are shown as they are
_DEEPEST = 20  # lists and quotes inside each other
_ADDRESS = re.compile(r"https?://[^\s<>\"'`\u3000-\u303f\uff00-\uff65]+")
_DEFINITION = re.compile(r"[ >]*\[[^\]\n]+\]:[ \t]*<?(?:https?://|mailto:)", re.IGNORECASE)
_BOX = re.compile(r"\[([ xX])\] ")

_TAGS = {
    *("p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "strong", "em", "s", "code", "pre", "blockquote", "a"),
    *("ul", "ol", "li", "table", "thead", "tbody", "tr", "th", "td", "div", "span", "button"),
}
_CLASSES = {
    "div": {"code", "code-head", "table", "plain"},
    "p": {DISPLAY},
    "button": {"copy"},
    "th": {"align-left", "align-center", "align-right"},
    "td": {"align-left", "align-center", "align-right"},
}
_ATTRIBUTES = {
    "a": {"href", "title"},
    "ol": {"start"},
    "button": {"type"},
    "div": {"tabindex"},
}


def markup(text: str, *, breaks: bool = False) -> str:
    """The whole text as HTML. `breaks`: a line break is kept as one, as people mean it in a chat."""
    return "\n".join(_render(_normal(text), _CHAT if breaks else _DOCUMENT))


def plain(text: str) -> str:
    """The text as it is, line breaks kept."""
    return f'<div class="plain">{html.escape(text)}</div>'


class GrowingMarkup:
    """Renders a text again and again while it grows, in time linear in its length.

    Only the end of a text can change its meaning when more is added: the last block whose beginning is complete (a `#`
    may yet become `#hashtag`, and a `|` the second line of a table or of a paragraph). Everything before it is rendered
    once. Link definitions may stand anywhere, so
    links by reference appear when the text is complete.
    """

    def __init__(self) -> None:
        self._text = ""
        self._complete = True
        self._settled = 0
        self._settled_blocks: list[str] = []
        self._blocks: list[str] = []

    def render(self, text: str, *, complete: bool) -> Sequence[str]:
        """The top-level blocks of the text as HTML. Unless it is `complete`, its loose end is healed."""
        text = _normal(text)
        if text == self._text and complete == self._complete:
            return self._blocks
        if not text.startswith(self._text[: self._settled]):
            self._settled, self._settled_blocks = 0, []
        if len(text) > _LARGEST:
            blocks = [plain(text)]
        elif complete and any(map(_DEFINITION.match, text.split("\n"))):
            blocks = list(_render(text, _DOCUMENT))
        else:
            blocks = self._render_end(text, complete=complete)
        self._text, self._complete, self._blocks = text, complete, blocks
        return blocks

    def _render_end(self, text: str, *, complete: bool) -> list[str]:
        end = text[self._settled :]
        is_healable = not complete and len(end) - end.rfind("\n\n") <= _LONGEST_HEALED
        source = heal(end) if is_healable else end
        # Healing can take a mark from the beginning of an earlier line, which then seems to begin something else.
        last_line = _lines_alike(end, source)
        settled: list[str] = []
        loose: list[str] = []
        settled_lines = 0
        for block in _blocks(source, _DOCUMENT):
            if loose and block.proven_by < last_line:
                settled += loose
                loose = []
                settled_lines = block.first_line
            loose.append(block.html)
        blocks = [*self._settled_blocks, *settled, *loose]
        if settled:
            self._settled_blocks = [*self._settled_blocks, *settled]
            self._settled += _offset(end, settled_lines)
        return blocks


def _normal(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")


def _lines_alike(text: str, other: str) -> int:
    """How many complete lines of `text` are also the first of `other`."""
    pairs = zip(text.split("\n")[:-1], other.split("\n"), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _offset(text: str, line: int) -> int:
    """Where the line with this number (from 0) begins."""
    position = 0
    for _ in range(line):
        position = text.index("\n", position) + 1
    return position


def _render(text: str, parser: MarkdownIt) -> Iterator[str]:
    if len(text) > _LARGEST:
        yield plain(text)
        return
    for block in _blocks(text, parser):
        yield block.html


@dataclass(frozen=True, slots=True)
class _Block:
    """A top-level block as safe HTML. Lines count from 0; it is such a block for good once `proven_by` is complete."""

    first_line: int
    proven_by: int
    html: str


def _blocks(text: str, parser: MarkdownIt) -> Iterator[_Block]:
    env: EnvType = {}
    group: list[Token] = []
    depth = 0
    for token in parser.parse(text, env):
        group.append(token)
        depth += token.nesting
        if depth == 0:
            first_line, end_line = group[0].map or (0, 0)
            proven_by = first_line + (group[0].type == "table_open")
            if max(token.level for token in group) >= _DEEPEST - 1:
                # The parser drops what is nested deeper still.
                block = plain("\n".join(text.split("\n")[first_line:end_line]))
            else:
                block = _safe(parser.renderer.render(group, parser.options, env))
            yield _Block(first_line, proven_by, block)
            group = []


def _safe(dirty: str) -> str:
    return nh3.clean(
        dirty,
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        allowed_classes=_CLASSES,
        url_schemes={"http", "https", "mailto"},
        url_relative="deny",
        link_rel="noopener noreferrer nofollow",
        set_tag_attribute_values={"a": {"target": "_blank"}},
    ).strip()


# ---------------------------------------------------------------- the parser


def _parser(*, breaks: bool) -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "xhtmlOut": False, "breaks": breaks, "maxNesting": _DEEPEST})
    with_maths(parser.enable(["table", "strikethrough"]))
    parser.block.ruler.at("reference", _define)
    parser.core.ruler.at("inline", _parse_inline)
    parser.core.ruler.after("inline", "finish", _finish)
    parser.add_render_rule("fence", _code)
    parser.add_render_rule("code_block", _code)
    parser.add_render_rule("table_open", lambda *_: '<div class="table" tabindex="0"><table>')
    parser.add_render_rule("table_close", lambda *_: "</table></div>")
    parser.add_render_rule("image", _image)
    return parser


def _define(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Take a link definition only when it defines a link: `[Anna]: yes` is somebody speaking."""
    line = state.src[state.bMarks[start] + state.tShift[start] : state.eMarks[start]]
    return _DEFINITION.match(line) is not None and reference(state, start, end, silent)


def _parse_inline(state: StateCore) -> None:
    for token in state.tokens:
        if token.type != "inline":
            continue
        if len(token.content) > _LONGEST_INLINE:
            token.children = [Token("text", "", 0, content=token.content)]
        else:
            token.children = []
            state.md.inline.parse(token.content, state.md, state.env, token.children)


def _finish(state: StateCore) -> None:
    """Link bare addresses, draw task boxes, and say alignment by class (inline styles are forbidden on the page)."""
    for index, token in enumerate(state.tokens):
        if token.type in ("th_open", "td_open"):
            style = str(token.attrs.pop("style", ""))
            if style:
                token.attrs["class"] = "align-" + style.removeprefix("text-align:")
        elif token.type == "inline" and token.children:
            if index >= 2 and state.tokens[index - 2].type == "list_item_open":
                _draw_box(token.children[0])
            token.children = list(_with_links(token.children, state.md))


def _draw_box(token: Token) -> None:
    if token.type == "text" and (match := _BOX.match(token.content)):
        token.content = ("☐ " if match[1] == " " else "☑ ") + token.content[match.end() :]


def _with_links(tokens: Sequence[Token], parser: MarkdownIt) -> Iterator[Token]:
    inside = 0
    for token in tokens:
        inside += token.nesting if token.type in ("link_open", "link_close") else 0
        if token.type != "text" or inside or "://" not in token.content:
            yield token
            continue
        position = 0
        for match in _ADDRESS.finditer(token.content):
            shown = _without_tail(match[0])
            target = parser.normalizeLink(shown)
            if not parser.validateLink(target):
                continue
            yield Token("text", "", 0, content=token.content[position : match.start()])
            yield Token("link_open", "a", 1, attrs={"href": target})
            yield Token("text", "", 0, content=shown)
            yield Token("link_close", "a", -1)
            position = match.start() + len(shown)
        yield Token("text", "", 0, content=token.content[position:])


def _without_tail(address: str) -> str:
    """The address without the punctuation of the sentence around it."""
    while address:
        if address[-1] in ".,;:!?*_~|" or (address[-1] == ")" and address.count("(") < address.count(")")):
            address = address[:-1]
        else:
            break
    return address


def _code(_self: RendererHTML, tokens: Sequence[Token], index: int, _options: OptionsDict, _env: EnvType) -> str:
    return (
        f'<div class="code"><div class="code-head"><span>{html.escape(tokens[index].info.strip())}</span>'
        '<button type="button" class="copy">Copy</button></div>'
        f"<pre><code>{html.escape(tokens[index].content)}</code></pre></div>"
    )


def _image(self: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    """A link: an image would be loaded without being asked for, and its address can carry off what was said."""
    token = tokens[index]
    source = str(token.attrs.get("src", ""))
    label = self.renderInlineAsText(token.children, options, env) or source
    return f'<a href="{html.escape(source)}">{html.escape(label)}</a>'


_DOCUMENT = _parser(breaks=False)
_CHAT = _parser(breaks=True)
