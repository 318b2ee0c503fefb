"""Values as Markdown that shows all of them: whole, and as code, so that nothing in them is formatted away.

People decide by what they read here. A link's address, a comment or the end of a long command must not be hidden.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from pydantic import JsonValue

_LINE = 80  # characters of JSON that nobody wants in lines
_NAME = re.compile(r"\w[\w .-]{0,60}")
_LINE_END = re.compile(r"\r\n?")
_TICKS = re.compile(r"`+")


def listed(values: Mapping[str, JsonValue]) -> str:
    """The values, each below or beside its name; names that are more than words are shown as code with the values."""
    if not all(_NAME.fullmatch(name) for name in values):
        return as_code(dict(values))
    lines = []
    for name, value in values.items():
        code = as_code(value)
        lines.append(f"- {name}:\n{code}" if "\n" in code else f"- {name}: {code}")
    return "\n".join(lines)


def as_code(value: JsonValue) -> str:
    """A value as code: a string as it is, anything else as JSON.

    In a block of its own only if it has lines: there, unlike in a code span, some readers would have to scroll to see
    the end of a long one.
    """
    if isinstance(value, str):
        text = _LINE_END.sub("\n", value)
    else:
        text = json.dumps(value, ensure_ascii=False)
        if len(text) > _LINE:
            text = json.dumps(value, ensure_ascii=False, indent=2)
    if "\n" not in text and "`" not in text:
        # White space at the ends of a code span may be taken away.
        return f"`{text if text == text.strip() != '' else json.dumps(text, ensure_ascii=False)}`"
    fence = "`" * max(3, 1 + max(map(len, _TICKS.findall(text)), default=0))
    return f"{fence}\n{text}\n{fence}"
