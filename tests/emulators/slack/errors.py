"""How a method of the emulated Web API says no."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class Refusal(Exception):
    """An answer `{"ok": false, "error": …}`. `broken` names the vendor's rule that the client broke, when it did."""

    def __init__(
        self,
        error: str,
        *,
        broken: str = "",
        messages: Sequence[str] = (),
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(error)
        self.error = error
        self.broken = broken
        self.messages = list(messages)
        self.status = status
        self.headers = dict(headers or {})
        self.extra = dict(extra or {})
