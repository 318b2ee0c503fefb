"""Markdown, as far as it is the same for every platform: one dialect (CommonMark, tables, strikethrough), read by
`parse` where tokens are needed and by scanning where a growing text is looked at again and again."""

from channels.markdown.blocks import HOLD
from channels.markdown.heal import heal
from channels.markdown.maths import Maths, find_maths, maths_at
from channels.markdown.measure import Measure, display_width, json_utf8_bytes, utf8_bytes, utf16_units
from channels.markdown.mentions import BREAKER, Mentions, neutralise_mentions
from channels.markdown.parser import keeping_maths, parse, parser
from channels.markdown.plain import plain_inline, plain_text, summary
from channels.markdown.split import SMALLEST_LIMIT, Cut, cuts, split, split_at
from channels.markdown.stable import stable_prefix
from channels.markdown.tables import Row, Table, fence_tables, find_tables, table_as_code

__all__ = [
    "BREAKER",
    "HOLD",
    "SMALLEST_LIMIT",
    "Cut",
    "Maths",
    "Measure",
    "Mentions",
    "Row",
    "Table",
    "cuts",
    "display_width",
    "fence_tables",
    "find_maths",
    "find_tables",
    "heal",
    "json_utf8_bytes",
    "keeping_maths",
    "maths_at",
    "neutralise_mentions",
    "parse",
    "parser",
    "plain_inline",
    "plain_text",
    "split",
    "split_at",
    "stable_prefix",
    "summary",
    "table_as_code",
    "utf8_bytes",
    "utf16_units",
]
