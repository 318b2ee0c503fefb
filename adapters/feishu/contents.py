"""The content of messages that are not card entities, as the message API takes it."""

from __future__ import annotations

import json

from pydantic import JsonValue

from channels.markdown import BREAKER


def _dumped(content: dict[str, JsonValue]) -> str:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def card_content(card: str) -> str:
    """A message that shows a card entity."""
    return _dumped({"type": "card", "data": {"card_id": card}})


def post_content(markdown: str) -> str:
    """A rich text message of Markdown."""
    return _dumped({"zh_cn": {"title": "", "content": [[{"tag": "md", "text": markdown}]]}})


def text_content(text: str) -> str:
    """A plain text message. In these a tag notifies people wherever it stands."""
    return _dumped({"text": text.replace("<at", f"<{BREAKER}at")})


def file_content(kind: str, key: str) -> str:
    """A message that shows an upload."""
    return _dumped({"image_key" if kind == "image" else "file_key": key})
