"""Which messages belong together: a question and the files that were sent with it arrive one by one."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

_MOST = 1_000


@dataclass(slots=True)
class _Open:
    group: str
    until: float
    has_text: bool


class Company:
    """Tells groups. A text takes the files around it with it; two texts are two questions."""

    def __init__(self, settle: float) -> None:
        self.settle = settle
        self._open: OrderedDict[tuple[str, str | None, str], _Open] = OrderedDict()

    def group_of(
        self, chat: str, thread: str | None, sender: str, message_id: str, *, has_text: bool, now: float
    ) -> str | None:
        """The group of a message that arrives now; None when nothing is waited for."""
        if self.settle <= 0:
            return None
        key = (chat, thread, sender)
        known = self._open.pop(key, None)
        if known is None or now > known.until or (has_text and known.has_text):
            known = _Open(message_id, 0.0, has_text)
        known.until = now + self.settle
        known.has_text = known.has_text or has_text
        self._open[key] = known
        if len(self._open) > _MOST:
            self._open.popitem(last=False)
        return known.group
