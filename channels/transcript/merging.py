"""Growing one message's text from pieces, in time linear in its length; thinking tags are taken out on the way."""

from __future__ import annotations

import re


def _merge_stream_text(existing: str, chunk: str) -> str:
    """The text after one more chunk.

    Chunks are deltas and are appended, also when they repeat what is there ("谢" after "谢"). Only a strictly longer
    chunk that starts with the existing text is cumulative and replaces it.
    """
    if len(chunk) > len(existing) and chunk.startswith(existing):
        return chunk
    return existing + chunk


_TAG = re.compile(r"</?think(?:ing)?>", re.IGNORECASE)
_TAG_START = re.compile(r"</?(?:t(?:h(?:i(?:n(?:k(?:i(?:n(?:g)?)?)?)?)?)?)?)?\Z", re.IGNORECASE)
"""What may still become a tag when more text comes."""


class TagSplitter:
    """Separates spoken text from what stands between thinking tags, also when a tag is split over pieces.

    A tag between backticks is somebody writing about tags, and stays text. A closing tag that was never opened ends
    thinking that began with the message: templates of some models put the opening tag into the prompt.
    """

    def __init__(self) -> None:
        self._held = ""
        self._thinking = False
        self._spoke = False
        self._before = ""
        self._text: list[str] = []
        self._thoughts: list[str] = []

    @property
    def text(self) -> str:
        return _joined(self._text)

    @property
    def thoughts(self) -> str:
        return _joined(self._thoughts)

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
        self._held = ""
        start = 0
        while (tag := _TAG.search(rest, start)) is not None:
            self._put(rest[start : tag.start()])
            start = tag.end()
            if self._before == "`" and start == len(rest):
                self._held = tag.group()
                return
            if self._before == "`" and rest[start] == "`":
                self._put(tag.group())
            else:
                self._pass(closing=tag.group().startswith("</"))
        at = rest.rfind("<", max(start, len(rest) - len("</thinking>")))
        if at >= 0 and _TAG_START.match(rest, at):
            self._put(rest[start:at])
            self._held = rest[at:]
        else:
            self._put(rest[start:])

    def finish(self) -> None:
        """No more will come: what looked like the start of a tag was text."""
        held, self._held = self._held, ""
        self._put(held)

    def _pass(self, *, closing: bool) -> None:
        if closing and not self._thinking:
            self._thoughts.extend(self._text)
            self._text.clear()
            self._spoke = False
        self._thinking = not closing
        self._before = ""

    def _put(self, piece: str) -> None:
        if not piece:
            return
        self._before = piece[-1]
        if self._thinking:
            self._thoughts.append(piece)
            return
        if not self._spoke and self._thoughts:
            piece = piece.lstrip("\n")  # models set the answer off from the thinking by empty lines
        if piece:
            self._spoke = True
            self._text.append(piece)


class MessageText:
    """The text of one message as its pieces come in.

    A message seen to be cumulative stays so: shorter or equal chunks repeat, longer ones extend. One single extension
    is weak evidence (the deltas "1" and "10" look the same): when the next chunk contradicts it, the pieces were
    deltas after all and are read again as such.
    """

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._length = 0
        self._splitter = TagSplitter()
        self._extensions = 0
        self._before_extension = ""
        self._deltas_only = False

    @property
    def raw(self) -> str:
        """All that was said, tags included."""
        return _joined(self._pieces)

    @property
    def text(self) -> str:
        """What a reader may see."""
        return self._splitter.text

    @property
    def has_text(self) -> bool:
        """Whether there is anything a reader may see; costs nothing, unlike `text` while the message grows."""
        return self._splitter.has_text

    def tail(self, length: int) -> str:
        """About the last `length` characters that a reader may see."""
        return self._splitter.tail(length)

    @property
    def thoughts(self) -> str:
        """What stood between thinking tags."""
        return self._splitter.thoughts

    def feed(self, chunk: str) -> None:
        """Take one chunk, a delta or the whole text so far."""
        if not chunk:
            return
        if self._length and not self._deltas_only:
            # Only a longer chunk is compared, so all comparisons together cost no more than the input is long.
            if len(chunk) > self._length and chunk.startswith(self.raw):
                if not self._extensions:
                    self._before_extension = self.raw
                self._extensions += 1
                self._append(chunk[self._length :])
                return
            if self._extensions:
                self._repeat_or_correct(chunk)
                return
        self._append(chunk)

    def put(self, whole: str) -> None:
        """The whole text is known now."""
        raw = self.raw
        if whole.startswith(raw):
            self._append(whole[len(raw) :])
        else:
            self._restart(whole)
        self._splitter.finish()

    def finish(self) -> None:
        """No more will come."""
        self._splitter.finish()

    def _repeat_or_correct(self, chunk: str) -> None:
        if self.raw.startswith(chunk):
            return
        if self._extensions == 1:
            self._deltas_only = True
            self._restart(self._before_extension + self.raw + chunk)
        else:
            self._restart(chunk)

    def _restart(self, whole: str) -> None:
        self._pieces = []
        self._length = 0
        self._splitter = TagSplitter()
        self._append(whole)

    def _append(self, piece: str) -> None:
        if piece:
            self._pieces.append(piece)
            self._length += len(piece)
            self._splitter.feed(piece)


def _joined(pieces: list[str]) -> str:
    if len(pieces) > 1:
        pieces[:] = ["".join(pieces)]
    return pieces[0] if pieces else ""
