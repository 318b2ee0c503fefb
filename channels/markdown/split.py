"""Long texts in pieces that each stand alone: cut at natural borders, code fences and tables carried over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from channels.markdown.blocks import Blocks, Leaf
from channels.markdown.borders import Border, Borders, Rank
from channels.markdown.containers import line_prefix
from channels.markdown.graphemes import last_grapheme_border
from channels.markdown.measure import Measure

SMALLEST_LIMIT = 16
"""Room for a fence's two lines and one character, however it is measured."""
_RESERVE = 24
"""Of the limit, for closing a code block; at most a quarter of it. Text beyond it has no say in where a cut is."""

# In this order: the ranks that are looked at, and how full the head must be (as a part of what fits).
# Within one step the better rank wins, then the later border.
_BLOCKS = frozenset({Rank.HEADING, Rank.BLANK, Rank.BLOCK, Rank.ITEM})
_LINES = frozenset({Rank.CODE_BLANK, Rank.LINE, Rank.NESTED, Rank.SENTENCE})
_PREFERENCES: tuple[tuple[frozenset[Rank], float], ...] = (
    (_BLOCKS, 0.5),
    (_LINES, 0.6),
    (_BLOCKS | _LINES, 0.25),
    (frozenset({Rank.WORD}), 0.5),
    (_BLOCKS | _LINES | {Rank.WORD}, 0.1),
    (frozenset({Rank.DANGLING}), 0.1),
    (frozenset({Rank.MARKED_WORD}), 0.5),
    (frozenset(Rank), 0.0),
)


@dataclass(frozen=True, slots=True)
class Cut:
    """A text cut in two.

    `text == shown + gap + left`, where `head == shown + closing` and `rest == opening + left`.
    """

    head: str
    """To be shown as a finished message. Blank only if the text has more white space in one place than fits."""
    rest: str
    """What continues, as a text of its own; empty if all fits in the head."""
    offset: int
    """Where the rest continues: `text[offset:]` is `rest` without its `opening`."""
    gap: str = ""
    """White space and container marks at the cut, shown in neither."""
    closing: str = ""
    """What was added to the head: the end of a code block."""
    opening: str = ""
    """What was added before the rest: container marks, a fence's line, a table's header."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing had to be cut."""
        return not self.rest


def split(text: str, limit: int, measure: Measure = len) -> list[str]:
    """`text` in pieces that measure at most `limit` (16 or more) each, added fences and headers included.

    Nothing is lost but white space at the cuts. Blank pieces are left out. While a text grows, all pieces but the last
    stay what they are. Raises ValueError for a limit below 16.
    """
    return [cut.head for cut in cuts(text, limit, measure) if cut.head.strip()]


def cuts(text: str, limit: int, measure: Measure = len) -> Iterator[Cut]:
    """The cuts that `split` makes, one after the other; the last one is whole."""
    while True:
        cut = split_at(text, limit, measure)
        yield cut
        if cut.is_whole:
            return
        text = cut.rest


def split_at(text: str, limit: int, measure: Measure = len, *, floor: int = 0) -> Cut:
    """Cut `text` once, if it measures more than `limit`. Of a text that ends in an open code block its closing counts,
    white space at the end does not.

    The cut depends only on what fits into the limit, so it does not move while the text grows. `floor`: this many
    characters are shown already and cannot be taken back; the cut is at or after them. (How much of the rest may be
    shown then is for `stable_prefix` of the rest to say.) Raises ValueError for a limit below 16.
    """
    if limit < SMALLEST_LIMIT:
        raise ValueError(f"a limit below {SMALLEST_LIMIT} leaves no room for text: {limit}")
    room = _fitting(text, limit, measure)
    shown = len(text.rstrip())
    if room >= shown:
        closing = _missing_closing(text)
        if room == len(text) and measure(text + closing) <= limit:
            return Cut(text, "", len(text))
        if measure(text[:shown] + closing) <= limit:
            end = max(shown, floor)
            return Cut(text[:end], "", len(text), gap=text[end:])
    window = _fitting(text[:room], limit - min(_RESERVE, limit // 4), measure)
    window = min(max(window, min(floor, room)), shown - 1)
    border = _best_border(text, max(window, 1), limit, measure, floor)
    return Cut(
        head=text[: border.end] + border.closing,
        rest=border.opening + text[border.start :],
        offset=border.start,
        gap=text[border.end : border.start],
        closing=border.closing,
        opening=border.opening,
    )


def _fitting(text: str, limit: int, measure: Measure) -> int:
    """How many characters of `text` measure at most `limit`. Looks at no more text than it must."""
    high = limit
    while high < len(text) and measure(text[:high]) <= limit:
        high *= 2
    high = min(high, len(text))
    if measure(text[:high]) <= limit:
        return high
    low = 0
    while high - low > 1:
        middle = (low + high) // 2
        if measure(text[:middle]) <= limit:
            low = middle
        else:
            high = middle
    return low


def _missing_closing(text: str) -> str:
    """What closes the code block that `text` ends in, if it ends in an open one."""
    if "```" not in text and "~~~" not in text:
        return ""
    blocks = Blocks(text).run().with_tail()
    fence = blocks.fence
    if blocks.leaf is not Leaf.FENCE or fence is None:
        return ""
    last_line = text[text.rfind("\n") + 1 :]
    if blocks.leaf_line < len(text) - len(last_line) and not last_line.strip(f" \t>{fence.char}"):
        return fence.char * (fence.length - last_line.count(fence.char))
    return f"\n{line_prefix(blocks.containers)}{' ' * fence.indent}{fence.marks}"


def _best_border(text: str, window: int, limit: int, measure: Measure, floor: int) -> Border:
    # A blank line begun at the end would hide the paragraph before it.
    borders = Borders(text[:window].rstrip(" \t\r\n>") or text[:window])
    lowest = max(borders.floor, floor - 1)
    found = [border for border in borders.found if border.start > lowest and border.end > borders.floor]

    def fits(border: Border) -> bool:
        return bool(text[: border.end].strip()) and measure(text[: border.end] + border.closing) <= limit

    for ranks, fill in _PREFERENCES:
        candidates = [border for border in found if border.rank in ranks and border.end >= fill * window]
        for border in sorted(candidates, key=lambda border: (border.rank, -border.end)):
            # What is shown already includes the white space that a border leaves out.
            chosen = border if border.end >= floor else replace(border, end=floor)
            if fits(chosen):
                return _affordable(chosen, limit, measure)
    if 2 * floor < window:
        at = len(borders.text)
        while (at := last_grapheme_border(text, at, lowest, reach=at)) > lowest and (here := borders.anywhere(at)):
            here = _affordable(here, limit, measure)
            if fits(here):
                return _without_space_after(text, here)
            at -= 1
    if floor > borders.floor:
        return _without_space_after(text, _affordable(Borders(text[:floor]).at_end(), limit, measure))
    at = last_grapheme_border(text, window, lowest, reach=window)
    at = at if at > lowest else window
    return _without_space_after(text, Border(at, at, Rank.MARKED_WORD))


def _without_space_after(text: str, border: Border) -> Border:
    """The border with the white space after it left out, where that is neither code nor a line's container marks."""
    if border.opening or border.closing:
        return border
    start = border.start
    while start < len(text) and text[start].isspace():
        start += 1
    line = text.rfind("\n", border.start, start) + 1
    return replace(border, start=line or start)


def _affordable(border: Border, limit: int, measure: Measure) -> Border:
    """The border with an opening that leaves at least half of the rest's room for text."""
    if not border.opening or measure(border.opening) <= limit // 2:
        return border
    return replace(border, opening=f"{border.closing[-3:]}\n" if border.closing else "")
