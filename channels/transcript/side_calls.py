"""Which model calls are side work (titles, summaries, memory, tools' own) and not the answer.

Their text is held until the durable state confirms it as a message of the conversation, which it hardly ever does.
The name of a node is only a guess, for its first run: a `summarize` may be the one that answers. From then on it counts
what the state made of the texts that the node streamed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pydantic import JsonValue

from channels.shapes import as_list, as_text

_QUIET_TAGS = frozenset({"nostream", "langsmith:nostream", "langsmith:hidden", "internal", "hidden"})
_MIDDLEWARE_TAG = "middleware:"

_HOOK = re.compile(r"\.(?:before|after)_(?:agent|model)$")
"""LangChain's middleware hooks are nodes named `Middleware.hook`."""

_SIDE_WORDS = re.compile(
    r"(?:^|[^a-z])(?:title|summar(?:y|ise|ize|iser|izer|isation|ization)|memory|memories|suggestions?|follow_?ups?|"
    r"moderation|guardrails?|classif(?:y|ier)|router|rewrite|grade|grader)(?:$|[^a-z])"
)


def is_side_call(node: str, metadata: Mapping[str, JsonValue], speaks: bool | None) -> bool:
    """Whether the node, its tags or its metadata say that this model call is not the conversation's.

    `speaks`: whether earlier runs have shown that the node's texts become messages; None: its name is all there is.
    """
    if speaks is None:
        speaks = not _SIDE_WORDS.search(_snake(node))
    if not speaks or node == "tools" or _HOOK.search(node):
        return True
    if as_text(metadata.get("lc_source")):
        return True  # LangChain's own middleware names itself here ("summarization")
    for tag in as_list(metadata.get("tags")):
        name = as_text(tag)
        if name in _QUIET_TAGS or name.startswith(_MIDDLEWARE_TAG) or _SIDE_WORDS.search(_snake(name)):
            return True
    return False


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
