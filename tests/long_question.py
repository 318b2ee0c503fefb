"""A question that no message holds: an action that is to be approved, with arguments that are long in every way."""

from __future__ import annotations

import re

from pydantic import JsonValue

from channels.model import Question
from channels.questions import open_questions

WORDS = [f"w{number}w" for number in range(6_000)]


def long_question() -> Question:
    """Everything that it asks about are the `WORDS`, in order."""
    args: dict[str, JsonValue] = {
        "command": " ".join(WORDS[:2_500]),
        "script": "\n".join(WORDS[2_500:5_000]),
        "fence": f"```\n{' '.join(WORDS[5_000:5_400])}\n```\n[{' '.join(WORDS[5_400:5_800])}](https://example.org/{WORDS[5_800]})",
        **{f"field {number}": WORDS[number] for number in range(5_801, 5_999)},
        "html": f"<!-- {WORDS[5_999]} -->",
    }
    config: JsonValue = {"action_name": "run", "allowed_decisions": ["approve", "reject"]}
    value: JsonValue = {"action_requests": [{"name": "run", "args": args}], "review_configs": [config]}
    (asked,) = open_questions([{"id": "i", "value": value}])
    return asked.question


def words_in(text: str) -> list[str]:
    """The words that can be read in a text, in order."""
    return re.findall(r"w\d+w", text)
