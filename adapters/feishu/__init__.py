"""The Feishu and Lark channel: one streaming card for each answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from adapters.feishu.adapter import FeishuAdapter
    from channels.adapter import Context
    from config.feishu import FeishuChannel


def build(settings: FeishuChannel, context: Context) -> FeishuAdapter:
    """The adapter of one Feishu channel."""
    from adapters.feishu.adapter import FeishuAdapter

    return FeishuAdapter(settings, context)
