"""Sets apart the texts of one message that are texts of their own: alike while it streams and when it is whole.

A model's message holds several: before and after what it has a provider's tools do, or as several items of a response.
Neighbouring blocks may as well be one text that was cut where a source is cited: those are not set apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

Place = tuple[int, int]
"""The number of a block in its message, and that of a part in the block."""

_BLANK_LINE = "\n\n"


@dataclass(frozen=True, slots=True)
class Part:
    """A text block or a piece of one; `is_other`: a block of another kind.

    `place` is None when the sender numbers no blocks. `id` is empty for blocks without one; a streamed block gets it
    with its last piece.
    """

    text: str = ""
    place: Place | None = None
    id: str = ""
    is_other: bool = False


class Paragraphs:
    """Joins the parts of one message as they come in."""

    def __init__(self) -> None:
        self._place: Place | None = None
        self._id = ""
        self._has_other = False
        self._ends_line = True

    def join(self, parts: Iterable[Part]) -> str:
        """What these parts add to the text."""
        said: list[str] = []
        for part in parts:
            if part.is_other:
                self._has_other = True
                continue
            if part.text:
                if self._stands_alone(part, is_list=bool(said)) and not (self._ends_line or part.text[0] == "\n"):
                    said.append(_BLANK_LINE)
                said.append(part.text)
                self._ends_line = part.text[-1] == "\n"
                self._has_other = False
                if part.place is None or part.place != self._place:
                    self._id = ""
                self._place = part.place
            if part.id and part.place == self._place:
                self._id = part.id
        return "".join(said)

    def _stands_alone(self, part: Part, *, is_list: bool) -> bool:
        """Whether it is another text than the one before.

        Blocks without a number are only told apart within one list: in the next, the same may come once more. So do
        those with a lower number.
        """
        if part.place is not None and self._place is not None:
            return part.place > self._place and (self._has_other or bool(self._id))
        return is_list and (self._has_other or (part.id != self._id and bool(part.id and self._id)))
