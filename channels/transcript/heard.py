"""The assistant messages of one run, as far as they have been heard."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from channels.model import Segment, Usage
from channels.transcript.merging import MessageText
from channels.transcript.messages import Message

NAMELESS = "nameless:"
"""How the ids begin that messages without one are kept under."""


@dataclass(slots=True)
class Heard:
    """One assistant message.

    `nested`: a sub-graph said it. `doubtful`: it may be a side call of a model. `confirmed`: the durable state holds
    it. `broken`: pieces are missing, and only the whole message can mend it.
    """

    id: str
    node: str = ""
    nested: bool = False
    doubtful: bool = False
    confirmed: bool = False
    hidden: bool = False
    broken: bool = False
    calls_tools: bool = False
    text: MessageText = field(default_factory=MessageText)
    reasoning: MessageText = field(default_factory=MessageText)
    usage: Usage | None = None

    @property
    def is_spoken(self) -> bool:
        """Whether a reader may see it while the run goes on."""
        return not (self.nested or self.hidden) and (self.confirmed or not self.doubtful)

    @property
    def thoughts(self) -> list[str]:
        """What was thought with it: in blocks of their own, and between tags in the text."""
        return [thought.strip() for thought in (self.reasoning.raw, self.text.thoughts) if thought.strip()]

    def take(self, message: Message, *, whole: bool) -> None:
        """Let it grow by a piece, or replace it by the whole."""
        if whole:
            self.text.put(message.text)
            if message.reasoning:
                self.reasoning.put(message.reasoning)
        else:
            self.text.feed(message.text)
            self.reasoning.feed(message.reasoning)
        self.usage = message.usage or self.usage


class HeardMessages:
    """The messages in their order: as they began, or as the state has them."""

    def __init__(self) -> None:
        self._messages: dict[str, Heard] = {}

    def __iter__(self) -> Iterator[Heard]:
        return iter(self._messages.values())

    def __bool__(self) -> bool:
        return bool(self._messages)

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(self._messages)

    def get(self, identity: str) -> Heard | None:
        return self._messages.get(identity)

    def add(self, heard: Heard) -> Heard:
        self._messages[heard.id] = heard
        return heard

    def new(self, message: Message) -> Heard:
        """A message that was not streamed."""
        return self.add(Heard(message.id or f"{NAMELESS}whole:{len(self._messages)}"))

    def known(self, message: Message, taken: Collection[str] | None = None) -> Heard | None:
        """The message as it was streamed, by its id or, where there are no ids, by its text.

        `taken` are the ones a snapshot has met already; without a snapshot, the confirmed ones are.
        """
        if (known := self._messages.get(message.id)) is not None:
            return known
        for identity, heard in self._messages.items():
            free = not heard.confirmed if taken is None else identity not in taken
            if free and identity.startswith(NAMELESS) and heard.text.raw == message.text:
                return heard
        return None

    def reorder(self, first: Mapping[str, Heard]) -> None:
        """Put these first, in their order."""
        self._messages = {**first, **self._messages}

    def missed(self) -> None:
        """Events are lost: messages that still grew have holes."""
        for heard in self:
            heard.broken |= not heard.confirmed

    def finish(self) -> None:
        for heard in self:
            heard.text.finish()
            heard.reasoning.finish()

    # ------------------------------------------------------------ what they come to

    @property
    def last_confirmed(self) -> Heard | None:
        """The last message with text that the state holds, whoever said it."""
        said = [heard for heard in self if heard.confirmed and not heard.hidden and heard.text.has_text]
        return said[-1] if said else None

    @property
    def all_confirmed(self) -> bool:
        """Whether the state holds all that a reader may see."""
        return all(heard.confirmed for heard in self if heard.is_spoken and heard.text.has_text)

    def body(self, *, only_confirmed: bool) -> tuple[Segment, ...]:
        """What a reader sees. The last message is the answer, unless it calls a tool.

        `only_confirmed`: the run is over and its state known. Then a sub-graph that had the last word gave the answer.
        """
        last_word = self.last_confirmed if only_confirmed else None
        shown = [
            heard
            for heard in self
            if heard.text.has_text
            and (heard is last_word if heard.nested else heard.is_spoken and (heard.confirmed or not only_confirmed))
        ]
        return tuple(
            Segment(heard.id, heard.text.text, heard is shown[-1] and not heard.calls_tools) for heard in shown
        )

    @property
    def reasoning(self) -> str:
        return "\n\n".join(thought for heard in self if heard.is_spoken for thought in heard.thoughts)

    @property
    def usage(self) -> Usage | None:
        counted = [heard.usage for heard in self if heard.usage is not None]
        if not counted:
            return None
        return Usage(sum(usage.input_tokens for usage in counted), sum(usage.output_tokens for usage in counted))

    @property
    def speaking(self) -> Mapping[str, bool | None]:
        """For each node that streamed, whether that became messages of the state; None: some of it did."""
        said: dict[str, bool | None] = {}
        for heard in self:
            if heard.node and (heard.text.has_text or heard.confirmed):
                known = said.setdefault(heard.node, heard.confirmed)
                said[heard.node] = known if known is heard.confirmed else None
        return said
