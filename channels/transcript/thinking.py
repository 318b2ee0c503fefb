"""Takes out of a growing message what its model thought between tags, in time linear in the length of the message."""

from __future__ import annotations

import re

from channels.transcript.code_marks import CodeMarks

_TAG = re.compile(r"</?think(?:ing)?>", re.IGNORECASE)
_UNDECIDED = re.compile(r"</?(?:think(?:ing)?>|(?:t(?:h(?:i(?:n(?:k(?:i(?:n(?:g)?)?)?)?)?)?)?)?)\Z", re.IGNORECASE)
"""A tag, or what may still become one: what comes next decides."""

_LINE_ENDS = ("", "\n", "\r")
_QUOTES = frozenset("`'\"‘’“”«»")
_AFTER_WORDS = frozenset(" \t.,;:!?)")


class TagSplitter:
    """Separates spoken text from what stands between thinking tags, also when a tag is split over pieces.

    Models that think in tags and people's questions about such tags bring the same letters, so the place tells:

    - An opening tag before anything is said begins thinking. One that begins a line later on, outside of code and not
      as a word of a sentence, does so if it is closed as well. Any other is text.
    - A closing tag without such an opening ends thinking that began with the message: templates of some models put
      the opening tag into the prompt. It is text where it is quoted, in code or named in a sentence, and after another
      tag wherever it has no line of its own. On such a line it is text only if it stands in code together with another.
    """

    def __init__(self) -> None:
        self._held = ""
        self._thinking = False
        self._doubtful: list[str] = []
        """An opening tag in the middle of the message, and what came after it."""
        self._spoke = False
        self._has_met_tag = False
        self._before = ""
        self._code = CodeMarks()
        self._text: list[str] = []
        self._thoughts: list[str] = []

    @property
    def text(self) -> str:
        return joined(self._text)

    @property
    def thoughts(self) -> str:
        return joined(self._thoughts)

    @property
    def has_text(self) -> bool:
        return bool(self._text)

    def tail(self, length: int) -> str:
        """About the last `length` characters of the text, without joining all of it."""
        taken: list[str] = []
        for piece in reversed(self._text):
            taken.append(piece)
            length -= len(piece)
            if length <= 0:
                break
        return "".join(reversed(taken))

    def feed(self, piece: str) -> None:
        rest = self._held + piece
        start = 0
        while (tag := _TAG.search(rest, start)) is not None and tag.end() < len(rest):
            self._put(rest[start : tag.start()])
            self._take(tag.group(), rest[tag.end()])
            start = tag.end()
        at = rest.rfind("<", max(start, len(rest) - len("</thinking>")))
        held_from = at if at >= 0 and _UNDECIDED.match(rest, at) else len(rest)
        self._put(rest[start:held_from])
        self._held = rest[held_from:]

    def finish(self) -> None:
        """No more will come: what began like a tag was text, and so was what came after a doubtful one."""
        held, self._held = self._held, ""
        if _TAG.fullmatch(held):
            self._take(held, "")
        else:
            self._put(held)
        if self._doubtful:
            text, self._doubtful = joined(self._doubtful), []
            self._thinking = False
            self._put(text)

    def _take(self, tag: str, after: str) -> None:
        is_closing = tag.startswith("</")
        if self._thinking:
            self._take_in_thought(tag, after, is_closing=is_closing)
        elif is_closing and self._ends_thinking(after):
            self._thoughts.extend(self._text)
            self._begin_text()
        elif not is_closing and self._opens_thinking(after):
            self._thinking = True
            self._before = ""
            if self._spoke:
                self._doubtful = [tag]
            else:
                self._begin_text()
        else:
            self._put(tag)
        self._has_met_tag = True

    def _take_in_thought(self, tag: str, after: str, *, is_closing: bool) -> None:
        if self._before == after == "`":
            self._put(tag)
        elif is_closing:
            self._thinking = False
            self._thoughts.extend(self._doubtful[1:])
            self._doubtful = []
            self._before = ""
        elif self._doubtful:
            self._put(tag)

    def _opens_thinking(self, after: str) -> bool:
        begins_block = self._code.begins_line and after not in _AFTER_WORDS and not self._code.is_fenced
        return not self._spoke or begins_block

    def _ends_thinking(self, after: str) -> bool:
        if self._has_own_line(after):
            return not (self._has_met_tag and self._code.is_fenced)
        is_quoted = self._before == "\\" or (self._before in _QUOTES and after in _QUOTES)
        if self._has_met_tag or is_quoted or self._code.is_code:
            return False
        is_named = self._before.isspace() and (not after or after in _AFTER_WORDS)
        return self._code.begins_line or not is_named

    def _has_own_line(self, after: str) -> bool:
        return self._code.begins_line and after in _LINE_ENDS

    def _begin_text(self) -> None:
        self._text = []
        self._code = CodeMarks()
        self._spoke = False
        self._before = ""

    def _put(self, piece: str) -> None:
        if not piece:
            return
        self._before = piece[-1]
        if self._thinking:
            (self._doubtful or self._thoughts).append(piece)
            return
        if self._has_met_tag and not self._spoke:
            piece = piece.lstrip()  # models set the answer off from the thinking by empty lines
            if not piece:
                return
        self._spoke = self._spoke or not piece.isspace()
        self._code.read(piece)
        self._text.append(piece)


def joined(pieces: list[str]) -> str:
    """All the pieces as one; the list is left with that one, so that asking often costs no more than once."""
    if len(pieces) > 1:
        pieces[:] = ["".join(pieces)]
    return pieces[0] if pieces else ""
