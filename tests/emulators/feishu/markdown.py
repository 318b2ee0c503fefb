"""What the platform sees in a card's markdown: tables, people who are mentioned, pictures; never inside code."""

from __future__ import annotations

import re
from itertools import pairwise

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})[^\n]*(?:\n.*?)??(?:\n {0,3}\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_AT = re.compile(r"<(?:at|person)\s+([^<>]*)>", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"(\w+)\s*=\s*(\"[^\"]*\"|'[^']*'|[^\s\"'>]+)")
_IMAGE = re.compile(r"!\[[^\]\n]*\]\(\s*<?([^)\s>]*)>?[^)]*\)")
_DELIMITER = re.compile(r"^ {0,3}\|?[ \t]*:?-+:?[ \t]*(\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")
_PERSON_ATTRIBUTES = frozenset({"id", "ids", "user_id", "open_id"})


def without_code(markdown: str) -> str:
    """The text with fenced blocks and code spans taken out: nothing in them is rendered."""
    if "`" not in markdown and "~~~" not in markdown:
        return markdown
    return _CODE.sub("", _FENCE.sub("\n", markdown))


def people_in(markdown: str) -> list[str]:
    """The ids in live `<at …>` and `<person …>` tags; "all" is everybody."""
    if "<at" not in markdown.lower() and "<person" not in markdown.lower():
        return []
    found: list[str] = []
    for tag in _AT.finditer(without_code(markdown)):
        for name, value in _ATTRIBUTE.findall(tag.group(1)):
            if name in _PERSON_ATTRIBUTES:
                found.extend(part.strip() for part in value.strip("\"'").split(",") if part.strip())
    return found


def images_in(markdown: str) -> list[str]:
    """The targets of live images: the platform takes them for image keys."""
    return _IMAGE.findall(without_code(markdown)) if "![" in markdown else []


def tables_in(markdown: str) -> int:
    """How many tables the text has: a header row, then a delimiter row of as many cells."""
    if "|" not in markdown:
        return 0
    lines = without_code(markdown).split("\n")
    return sum(
        1
        for header, delimiter in pairwise(lines)
        if "|" in delimiter + header and _DELIMITER.match(delimiter) and _cells(header) == _cells(delimiter)
    )


def _cells(row: str) -> int:
    row = row.strip().replace("\\|", "")
    if not row:
        return 0
    return row.removeprefix("|").removesuffix("|").count("|") + 1
