"""What the whole-demo tests share."""

from __future__ import annotations

from tests.browser import chromium

__all__ = ["chromium"]
