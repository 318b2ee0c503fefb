"""Where a growing Markdown text is code, as models write it: in a fenced block, or in backticks within a line."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"\n|`+|~+|[^\n`~]+")
_LINE_START = re.compile(r"[ \t>]*(?:(?:[-+*]|\d{1,9}[.)])[ \t]+)*")
"""What may stand before a fence: white space, and the marks of quotes and lists."""

_LONGEST = 64
"""Of the beginning of a line, and of a run of marks: so many characters are looked at."""


class CodeMarks:
    """`read` takes the text piece by piece; the other members tell of the place after it."""

    def __init__(self) -> None:
        self._fence = ""
        self._is_fence_line = False
        self._may_close = False
        self._span = 0
        self._run = ""
        self._line = ""

    @property
    def is_fenced(self) -> bool:
        self._end_run()
        return bool(self._fence)

    @property
    def is_code(self) -> bool:
        return self.is_fenced or self._span > 0

    @property
    def begins_line(self) -> bool:
        """Whether nothing but white space stands in the line so far."""
        return not self._line.strip()

    def read(self, piece: str) -> None:
        for token in _TOKEN.findall(piece):
            if self._run and token[0] != self._run[0]:
                self._end_run()
            if token == "\n":
                self._end_line()
                continue
            if token[0] in "`~":
                self._run = (self._run + token)[:_LONGEST]
            elif not token.isspace():
                self._may_close = False
            if len(self._line) < _LONGEST:
                self._line = (self._line + token)[:_LONGEST]

    def _end_line(self) -> None:
        if self._may_close:
            self._fence = ""
        self._may_close = self._is_fence_line = False
        self._span = 0
        self._line = ""

    def _end_run(self) -> None:
        """Read a run of marks, now that it does not grow any more."""
        run, self._run = self._run, ""
        if not run:
            return
        before = self._line.removesuffix(run)
        begins_line = len(self._line) < _LONGEST and _LINE_START.fullmatch(before) is not None
        if self._fence and self._is_fence_line and run[0] == "`" == self._fence[0]:
            self._fence = ""  # code in a line after all
        elif self._fence:
            self._may_close = begins_line and run.startswith(self._fence)
        elif begins_line and len(run) >= 3:
            self._fence, self._is_fence_line = run, True
        elif run[0] == "`":
            self._span = 0 if self._span == len(run) else self._span or len(run)
