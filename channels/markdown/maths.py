"""Maths as models write it: TeX between dollars or between bracket marks.

To Markdown `\\(`, `\\\\` and `\\{` are escapes and `*` and `_` are emphasis, so that maths read as Markdown is broken.
Single dollars stand around maths only when something between them is maths and nothing about them is a price.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_BLANK_LINE_NEXT = r"\n(?=[ \t>]*\n)"
_MATHS = rf"""
      \\\(  (?P<inline>    (?: [^\\\n]  | \\[^()\n]                               )++) \\\)
    | \\\[  (?P<bracketed> (?: [^\\\n]  | \\[^\[\]\n] | (?!{_BLANK_LINE_NEXT})\\?\n )++) \\\]
    | \$\$  (?P<display>   (?: [^$\\\n] | \\[^\n]     | (?!{_BLANK_LINE_NEXT})\\?\n )++) \$\$
    | (?<![\w$\\]) \$ (?=[^\s$]) (?=[^$\n]*[\\^_=]) (?P<dollars> (?: [^$\\\n] | \\[^\n] )++) (?<!\s) \$ (?![\w$])
"""
_FENCE = r"(?:^[ \t>]*(?P<marks>`{3,}|~{3,})[^\n]*\n(?s:.*?)(?:^[ \t>]*(?P=marks)|\Z))"
_SPAN = r"(?:(?<!`)(?P<ticks>`+)(?!`)(?s:.*?)(?<!`)(?P=ticks)(?!`))"
_AT = re.compile(_MATHS, re.VERBOSE)
_ANYWHERE = re.compile(rf"{_FENCE} | {_SPAN} | \\[\\$`] | {_MATHS}", re.VERBOSE | re.MULTILINE)
_UNCLOSED = re.compile(
    rf"""
      \\\( (?: [^\\\n]  | \\[^()\n]                                 )*+ \\?\Z
    | \\\[ (?: [^\\\n]  | \\[^\[\]\n] | (?!{_BLANK_LINE_NEXT})\\?\n )*+ \\?\Z
    | \$\$ (?= [^$\n]*[\\^_=] | [ \t]*\n ) (?: [^$\\\n] | \\[^\n] | (?!{_BLANK_LINE_NEXT})\\?\n )*+ [\\$]?\Z
    """,
    re.VERBOSE,
)
_WORDS = re.compile(r"\w[\w ,.;:–-]*")
"""What stands in brackets that are escaped because they are brackets: `\\[1\\]`, `\\[sic\\]`."""
_CLOSING = {"\\(": "\\)", "\\[": "\\]", "$$": "$$"}


@dataclass(frozen=True, slots=True)
class Maths:
    """A stretch of maths: `text[start:end]` with its delimiters, `content` without. A display has lines of its own."""

    start: int
    end: int
    content: str
    is_display: bool


def maths_at(text: str, at: int = 0, end: int | None = None) -> Maths | None:
    """The maths that opens at `at` and closes before `end`; None if there is none."""
    return _maths(_AT.match(text, at, len(text) if end is None else end))


def find_maths(text: str) -> Iterator[Maths]:
    """All maths in a Markdown document that is not code."""
    return (maths for found in _ANYWHERE.finditer(text) if (maths := _maths(found)) is not None)


def missing_end(text: str, at: int, end: int) -> str:
    """What closes the maths that opens at `at` and goes on at `end`; empty when none does. Part of it may be there."""
    if not _UNCLOSED.match(text, at, end):
        return ""
    closing = _CLOSING[text[at : at + 2]]
    inner = text[at + 2 : end]
    marks = len(inner) - len(inner.rstrip("\\"))
    is_half = marks % 2 == 1 if closing[0] == "\\" else inner.endswith("$") and not inner.endswith("\\$")
    return closing[1:] if is_half else closing


def _maths(found: re.Match[str] | None) -> Maths | None:
    kind = found.lastgroup if found is not None else None
    if found is None or kind not in ("inline", "bracketed", "display", "dollars"):
        return None
    content = found[kind]
    if kind == "bracketed" and _WORDS.fullmatch(content):
        return None
    return Maths(found.start(), found.end(), content, kind in ("bracketed", "display"))
