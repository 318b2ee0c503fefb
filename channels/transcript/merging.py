"""Growing one message's text from pieces, in time linear in its length; thinking is taken out on the way."""

from __future__ import annotations

from channels.transcript.thinking import TagSplitter, joined


def _merge_stream_text(existing: str, chunk: str) -> str:
    """The text after one more chunk.

    Chunks are deltas and are appended, also when they repeat what is there ("谢" after "谢"). Only a strictly longer
    chunk that starts with the existing text is cumulative and replaces it.
    """
    if len(chunk) > len(existing) and chunk.startswith(existing):
        return chunk
    return existing + chunk


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
        self._is_finished = False
        self._extensions = 0
        self._before_extension = ""
        self._deltas_only = False

    @property
    def raw(self) -> str:
        """All that was said, tags included."""
        return joined(self._pieces)

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
        if whole.startswith(raw) and not (self._is_finished and whole != raw):
            self._append(whole[len(raw) :])
        else:
            self._restart(whole)  # also one that grows: what was thinking was decided for the text that it was
        self.finish()

    def finish(self) -> None:
        """No more will come."""
        self._is_finished = True
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
        self._is_finished = False
        self._append(whole)

    def _append(self, piece: str) -> None:
        if piece:
            self._pieces.append(piece)
            self._length += len(piece)
            self._splitter.feed(piece)
