"""Where a text may be cut without tearing a character that a reader sees as one."""

from __future__ import annotations

import unicodedata

_JOINER = "\u200d"


def is_grapheme_border(text: str, at: int) -> bool:
    """Whether `text` may be cut before index `at`.

    False inside a sequence of base and combining marks, an emoji with variation selector, skin tone or joiner, a
    flag, a tag sequence, a Hangul syllable in parts, CR LF, or a surrogate pair kept as two code points.
    """
    if at <= 0 or at >= len(text):
        return True
    before, after = text[at - 1], text[at]
    if after < "\u0300" and before < "\u0300":
        return not (before == "\r" and after == "\n")
    if before.isspace():
        return True
    if before == _JOINER or after == _JOINER or _extends(after):
        return False
    if "\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff":
        return False
    if _is_regional(before) and _is_regional(after):
        return _regionals_before(text, at) % 2 == 0
    return not _joins_hangul(before, after)


def last_grapheme_border(text: str, at: int, floor: int = 0, reach: int = 64) -> int:
    """The last border at or before `at` and after `floor`, at most `reach` characters back; `floor` if none is."""
    for border in range(at, max(floor, at - reach), -1):
        if is_grapheme_border(text, border):
            return border
    return floor


def _extends(char: str) -> bool:
    return (
        unicodedata.category(char) in ("Mn", "Me", "Mc")
        or "\U0001f3fb" <= char <= "\U0001f3ff"
        or "\U000e0020" <= char <= "\U000e007f"
        or char in "\u200c\uff9e\uff9f"
    )


def _is_regional(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def _regionals_before(text: str, at: int) -> int:
    count = 0
    while count < at and _is_regional(text[at - 1 - count]):
        count += 1
    return count


def _joins_hangul(before: str, after: str) -> bool:
    if "\u1160" <= after <= "\u11ff":
        return "\u1100" <= before <= "\u11ff" or "\uac00" <= before <= "\ud7a3"
    return "\u1100" <= before <= "\u115f" and ("\u1100" <= after <= "\u115f" or "\uac00" <= after <= "\ud7a3")
