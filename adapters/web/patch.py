"""The difference between two states of an entry, small enough to be sent for every few letters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pydantic import JsonValue

Pieces = Mapping[str, str]
"""An entry as the page shows it: named pieces of HTML, in order."""

_WORTH_A_SPLICE = 40  # characters that a splice must save; below, the piece is sent whole


def difference(old: Pieces, new: Pieces) -> dict[str, JsonValue]:
    """What turns `old` into `new`; empty when they are equal.

    `keys`: `[start, removed, [names]]` on the list of names; `set`: pieces sent whole; `splice`: `[start, removed,
    inserted]` on a piece's HTML. Positions count UTF-16 units, as a browser's strings do.
    """
    patch: dict[str, JsonValue] = {}
    old_keys, new_keys = list(old), list(new)
    if old_keys != new_keys:
        start, end = _common_ends(old_keys, new_keys)
        inserted: list[JsonValue] = list(new_keys[start : len(new_keys) - end])
        patch["keys"] = [start, len(old_keys) - start - end, inserted]
    whole: dict[str, JsonValue] = {}
    spliced: dict[str, JsonValue] = {}
    for key, html in new.items():
        before = old.get(key)
        if before is html or before == html:
            continue
        splice = None if before is None else _splice(before, html)
        if splice is None:
            whole[key] = html
        else:
            spliced[key] = splice
    if whole:
        patch["set"] = whole
    if spliced:
        patch["splice"] = spliced
    return patch


def _splice(old: str, new: str) -> JsonValue:
    start, end = _common_ends(old, new)
    if start + end < _WORTH_A_SPLICE:
        return None
    removed, inserted = old[start : len(old) - end], new[start : len(new) - end]
    return [_utf16_length(old[:start]), _utf16_length(removed), inserted]


def _common_ends(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """How many items both begin with, and how many of the rest both end with."""
    shorter = min(len(old), len(new))
    start = _longest(shorter, lambda count: old[:count] == new[:count])
    return start, _longest(shorter - start, lambda count: old[len(old) - count :] == new[len(new) - count :])


def _longest(limit: int, agrees: Callable[[int], bool]) -> int:
    """The largest count up to `limit` that agrees; every smaller one does too."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if agrees(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _utf16_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
