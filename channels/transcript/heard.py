"""The assistant messages of one run, as far as they have been heard."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from channels.model import Segment, Usage
from channels.transcript.merging import MessageText
from channels.transcript.messages import Ending, Message
from channels.transcript.paragraphs import Paragraphs

NAMELESS = "nameless:"
"""How the ids begin that messages without one are kept under."""

_PROVISIONAL = (NAMELESS, "lc_run-", "run-")
"""How the ids begin that stand for a model call: LangChain's own, under which a message streams until its provider's id
is known. OpenAI's Responses API and Anthropic under LangGraph JS send that id in an empty first piece and once more
with the whole message; all pieces between have the provisional one."""


@dataclass(slots=True)
class Heard:
    """One assistant message.

    `nested`: a sub-graph said it. `graph`: which one, as `name:id`. `told`: it came to its end after that. `begun`: how
    many messages began before. `state_id`: the id that the state, or a whole message, has it under. `doubtful`: it may
    be a side call of a model. `confirmed`: the durable state holds it. `broken`: pieces are missing, and only the whole
    message can mend it. `results`: for the id of each tool call that the confirmed message makes, whether its result
    has come.
    """

    id: str
    node: str = ""
    nested: bool = False
    graph: str = ""
    told: bool = False
    begun: int = 0
    state_id: str = ""
    doubtful: bool = False
    confirmed: bool = False
    hidden: bool = False
    broken: bool = False
    calls_tools: bool = False
    call_ids: set[str] = field(default_factory=set)
    text: MessageText = field(default_factory=MessageText)
    reasoning: MessageText = field(default_factory=MessageText)
    paragraphs: Paragraphs = field(default_factory=Paragraphs)
    thought: Paragraphs = field(default_factory=Paragraphs)
    usage: Usage | None = None
    ending: Ending | None = None
    results: dict[str, bool] = field(default_factory=dict)

    @property
    def is_spoken(self) -> bool:
        """Whether a reader may see it while the run goes on."""
        return not (self.nested or self.hidden) and (self.confirmed or not self.doubtful)

    @property
    def thoughts(self) -> list[str]:
        """What was thought with it: in blocks of their own, and between tags in the text."""
        return [thought.strip() for thought in (self.reasoning.raw, self.text.thoughts) if thought.strip()]

    @property
    def is_empty(self) -> bool:
        return not (self.text.raw or self.reasoning.raw or self.call_ids)

    @property
    def origin(self) -> tuple[str, str]:
        """The node and the sub-graph that said it."""
        return self.node, self.graph

    def may_be_from(self, origin: tuple[str, str] | None) -> bool:
        """Whether that node of that sub-graph may have said it; None: one whose messages go straight to the state."""
        if self.id.startswith(NAMELESS):
            return True
        return self.origin == origin if origin is not None else not (self.nested or self.doubtful)

    def is_same(self, message: Message) -> bool:
        """Whether it holds what the whole message does: a call of that id, the text or, without any, the thoughts."""
        if any(call.id in self.call_ids for call in message.calls):
            return True
        if message.text or self.id.startswith(NAMELESS):
            return self.text.raw == message.text
        return bool(message.reasoning) and not self.text.raw and self.reasoning.raw == message.reasoning

    def take(self, message: Message, *, whole: bool) -> None:
        """Let it grow by a piece, or replace it by the whole."""
        if whole:
            self.text.put(message.text)
            if message.reasoning:
                self.reasoning.put(message.reasoning)
        else:
            self.text.feed(self.paragraphs.join(message.parts))
            self.reasoning.feed(self.thought.join(message.thoughts))
        self.usage = message.usage or self.usage
        self.ending = message.ending or self.ending
        self.call_ids.update(piece.id for piece in message.call_pieces if piece.id)
        self.call_ids.update(call.id for call in message.calls if call.id)


class HeardMessages:
    """The messages in their order: as they began, or as the state has them."""

    def __init__(self) -> None:
        self._messages: dict[str, Heard] = {}
        self._begun = 0
        self._also: dict[str, str] = {}
        """Ids that came to be known later, and the one that the message began under."""
        self._callers: dict[str, Heard] = {}
        """By call id: the newest, as some models number the calls of each message anew."""

    def __iter__(self) -> Iterator[Heard]:
        return iter(self._messages.values())

    def __bool__(self) -> bool:
        return bool(self._messages)

    @property
    def ids(self) -> tuple[str, ...]:
        return (*self._messages, *self._also)

    def get(self, identity: str) -> Heard | None:
        return self._messages.get(self._also.get(identity, identity))

    def add(self, heard: Heard) -> Heard:
        heard.begun = self._begun
        self._begun += 1
        self._messages[heard.id] = heard
        return heard

    def new(self, message: Message) -> Heard:
        """A message that was not streamed."""
        return self.add(Heard(message.id or f"{NAMELESS}whole:{len(self._messages)}"))

    def known(
        self, message: Message, taken: Collection[str] = (), *, origin: tuple[str, str] | None = None
    ) -> Heard | None:
        """The message as it was streamed: by its id or, where it streamed under none or a provisional one, by content.

        `taken` are ids of messages that it is not. `origin` is the node and the sub-graph that it comes from, if known.

        What began with an empty piece under the provider's id went on under the only provisional id that its node has
        begun since, or else under the one of the same content. A text alone tells little, for others say it as well:
        `named` and `rename` find out when two were taken for one.
        """
        known = self.get(message.id)
        if known is not None and not known.is_empty:
            return known
        begins = NAMELESS if message.id.startswith(_PROVISIONAL) else _PROVISIONAL
        free = [
            heard
            for identity, heard in self._messages.items()
            if heard is not known
            and identity.startswith(begins)
            and identity not in taken
            and not (heard.hidden or (message.id and heard.state_id))
        ]
        if known is None:
            return next((heard for heard in free if heard.may_be_from(origin) and heard.is_same(message)), None)
        after = [heard for heard in free if heard.origin == known.origin and heard.begun > known.begun]
        if len(after) == 1:
            return after[0]
        return next((heard for heard in after if heard.is_same(message)), known)

    def named(self, messages: Iterable[Message]) -> set[str]:
        """The messages that a list names by their ids. Two ids of one message in the same list: they are two."""
        ids = {message.id for message in messages}
        for identity in ids & self._also.keys():
            if self._also[identity] in ids:
                del self._also[identity]
        return {heard.id for identity in ids if (heard := self.get(identity)) is not None}

    def rename(self, heard: Heard, identity: str) -> bool:
        """It has this id from now on, besides the one that it streamed under. True if it turns out to be two."""
        if not identity or identity == heard.state_id:
            return False
        are_two = heard.confirmed and self._also.pop(heard.state_id, None) is not None
        heard.state_id = identity
        if identity != heard.id:
            self._messages.pop(identity, None)  # the empty piece that the provider's id came with
            self._also[identity] = heard.id
        return are_two

    def reorder(self, first: Mapping[str, Heard]) -> None:
        """Put these first, in their order."""
        self._messages = {**first, **self._messages}

    def call(self, heard: Heard, call_id: str) -> None:
        """A message that the state holds calls a tool. Calls and results are told in their order."""
        if call_id:
            heard.results.setdefault(call_id, False)
            self._callers[call_id] = heard

    def result(self, call_id: str) -> None:
        """A tool has answered, well or not."""
        if (caller := self._callers.get(call_id)) is not None:
            caller.results[call_id] = True

    def node_finished(self, node: str) -> None:
        for heard in self:
            heard.told |= heard.nested and heard.graph.partition(":")[0] == node

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

    @property
    def open_calls(self) -> frozenset[str]:
        """The ids of the tool calls in the state to which no result has come."""
        return frozenset(
            call_id for heard in self if not heard.hidden for call_id, came in heard.results.items() if not came
        )

    def last(self, *, only_confirmed: bool) -> Heard | None:
        """The message that ends the conversation so far, whether or not it says anything."""
        said = [heard for heard in self if not heard.hidden and (heard.confirmed or heard.is_spoken)]
        said = [heard for heard in said if heard.confirmed or not only_confirmed]
        return said[-1] if said else None

    @property
    def _before_the_question(self) -> Heard | None:
        """What the sub-graph that asks said last; the state does not hold it before the sub-graph ends."""
        said = [heard for heard in self if heard.text.has_text and not heard.hidden]
        said = [heard for heard in said if heard.confirmed or not heard.doubtful]
        last = max(said, key=lambda heard: heard.begun, default=None)
        return last if last is not None and last.nested and not last.told else None

    def body(self, *, only_confirmed: bool, asking: bool = False) -> tuple[Segment, ...]:
        """What a reader sees. The last message is the answer, unless it calls a tool.

        `only_confirmed`: the run is over and its state known. Then a sub-graph that had the last word gave the answer.
        `asking`: the run waits for the reader; what a sub-graph said to its question belongs to it.
        """
        last_words = (self.last_confirmed if only_confirmed else None, self._before_the_question if asking else None)
        shown = [
            heard
            for heard in self
            if heard.text.has_text
            and (heard in last_words if heard.nested else heard.is_spoken and (heard.confirmed or not only_confirmed))
        ]
        return tuple(
            Segment(heard.id, heard.text.text, heard is shown[-1] and not heard.calls_tools) for heard in shown
        )

    def reasoning(self, *, only_confirmed: bool) -> str:
        spoken = [heard for heard in self if heard.is_spoken and (heard.confirmed or not only_confirmed)]
        return "\n\n".join(thought for heard in spoken for thought in heard.thoughts)

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
