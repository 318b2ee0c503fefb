"""Folds the events of one turn's run into views.

What the reader sees is decided here: only assistant messages of the graph itself, keyed by message id, that are not
hidden, not a side call of another model (titles, summaries), and, once the run is over, that the gateway's durable
state confirms. Streamed text is a preview; whole messages (`updates`, the state) are the truth and replace it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pydantic import JsonValue

from channels.model import Phase, Question, Segment, StepState, View
from channels.questions import Interrupt, clarification, open_questions
from channels.shapes import as_list, as_object, as_text
from channels.transcript.final_results import FinalResults
from channels.transcript.heard import NAMELESS, Heard, HeardMessages
from channels.transcript.made_files import MadeFiles
from channels.transcript.messages import REMOVE_ALL, Ending, Message, Role, find_messages, read_message
from channels.transcript.side_calls import is_side_call
from channels.transcript.steps import CLARIFICATION_TOOL, Steps
from channels.transcript.stream_events import EventKind, StreamEvent, failure_of


class Transcript:
    """The picture of one turn. `feed` never raises, whatever comes.

    `malformed` and `unknown` count the events that could not be read and those that have no known name; `restarts`
    how often the gateway began the run anew. `attempt` is the number that the gateway gives the execution that was
    heard last; 0 where it gives none. `failure` is what it said went wrong: for operators, never for a chat.
    """

    def __init__(self) -> None:
        self.malformed = 0
        self.unknown = 0
        self.restarts = 0
        self.failure = ""
        self.run_id = ""
        self.attempt = 0
        self._thread = ""
        self._question_id = ""
        self._question_text: str | None = None
        self._heard_before: frozenset[str] = frozenset()
        self._speaking: Mapping[str, bool | None] = {}
        self._notice = ""
        self._revision = 0
        self._phase: Phase | None = None
        self._question: Question | None = None
        self._missed = False
        self._held_back = False
        self._unsure = False
        self._state_spoke = False
        self._state_has_messages = True
        self._state_tells = False
        self._verified = True
        self._stale: tuple[Segment, ...] = ()
        self._view = View()
        self._changed = False
        self._begin()

    def _begin(self) -> None:
        self._messages = HeardMessages()
        self._steps = Steps()
        self._files = MadeFiles(self._thread)
        self._final_results = FinalResults()
        self._interrupts: dict[str, JsonValue] = {}
        self._clarification: Interrupt | None = None
        self._activity = Phase.WAITING

    # ------------------------------------------------------------ what the turn is about

    def expect(
        self,
        *,
        thread: str = "",
        question_id: str = "",
        question_text: str | None = None,
        heard: Iterable[str] = (),
        speaking: Mapping[str, bool | None] | None = None,
    ) -> None:
        """Say which human message this run answers, so that nothing before it counts.

        `heard` are ids of messages that stand before it when a run is resumed; `speaking` is what earlier runs of the
        graph have shown about its nodes.
        """
        self._thread = self._files.thread = thread
        self._question_id = question_id
        self._question_text = question_text
        self._heard_before = frozenset(heard)
        self._speaking = dict(speaking or {})

    # ------------------------------------------------------------ what comes in

    def feed(self, event: StreamEvent, now: float) -> bool:
        """Take one event; True when the view changed."""
        changed = False
        match event.kind:
            case EventKind.METADATA:
                changed = self._metadata(event)
            case EventKind.MESSAGES:
                changed = self._streamed(event, now)
            case EventKind.ACCUMULATED:
                for item in as_list(event.data):
                    changed |= self._piece(item, {}, event.namespace, now, accumulated=True)
            case EventKind.UPDATES:
                changed = self._updates(event, now)
            case EventKind.VALUES if not event.namespace:
                changed = self._snapshot(as_object(event.data), now, by_us=True)
            case EventKind.CUSTOM:
                changed = self._steps.task(as_object(event.data), now)
                self._active(changed, Phase.WORKING)
            case EventKind.ERROR:
                self.failure = failure_of(event.data)
            case EventKind.MALFORMED:
                self.malformed += 1
                lost = StreamEvent.of(as_text(as_object(event.data).get("event")), None)
                if lost.kind in _TELLING:
                    self.missed()
            case EventKind.UNKNOWN:
                self.unknown += 1
            case _:
                pass
        self._changed |= changed
        return changed

    def missed(self) -> None:
        """Events have been lost: growing messages cannot be trusted until they come whole."""
        self._missed = True
        self._held_back = True
        self._messages.missed()

    def note(self, notice: str) -> bool:
        """Set the bridge's own sentence to the reader; True when it changed."""
        if notice == self._notice:
            return False
        self._notice = notice
        self._changed = True
        return True

    @property
    def is_empty(self) -> bool:
        """Whether no event has said anything yet."""
        return not (self._messages or self._steps.all() or self._interrupts)

    @property
    def has_hole(self) -> bool:
        """Whether events were lost, or told of something that only the state explains."""
        return self._missed or self._unsure

    @property
    def is_told_by_state(self) -> bool:
        """Whether the state that was taken last holds messages, and among them this turn's are to be told."""
        return self._state_tells

    @property
    def is_settled(self) -> bool:
        """Whether all is known without asking the gateway's state.

        Nothing was missed, all text is confirmed, and the last message is one to end with: no call of a tool.
        """
        if self.has_hole:
            return False
        if self._interrupts or self._clarification:
            return True
        last = self._messages.last_confirmed
        return last is not None and not last.calls_tools and self._messages.all_confirmed

    @property
    def heard_ids(self) -> tuple[str, ...]:
        """The ids of the messages up to now, from the question on, earlier turns of the same question included."""
        question = [self._question_id] if self._question_id else []
        return (*sorted(self._heard_before), *question, *self._messages.ids)

    @property
    def speaking(self) -> Mapping[str, bool | None]:
        """For each node that streamed, whether that became messages of the state; None: some of it did."""
        return self._messages.speaking

    @property
    def ending(self) -> Ending | None:
        """Why the model stopped before the last message was complete; None: it was complete, as far as is told."""
        last = self._messages.last(only_confirmed=self._is_told_whole)
        return None if last is None else last.ending

    @property
    def has_open_calls(self) -> bool:
        """Whether the state, as far as it is known, holds a tool call of this turn to which no result has come.

        While a question is open that is as it should be. After the end of a run, models refuse such a history.
        """
        return bool(self._messages.open_calls)

    @property
    def interrupts(self) -> tuple[Interrupt, ...]:
        """The open questions, in the order they were asked."""
        if self._interrupts:
            return open_questions(list(self._interrupts.values()))
        return () if self._clarification is None else (self._clarification,)

    # ------------------------------------------------------------ durable state

    def reconcile(
        self,
        values: Mapping[str, JsonValue],
        now: float,
        *,
        interrupts: JsonValue = None,
        unheard: bool = True,
        by_us: bool = False,
    ) -> bool:
        """Take the thread's state as the truth about this turn's messages. True when it holds any of them.

        `unheard`: also messages count that the stream did not bring. `by_us`: this turn's run wrote the state last, so
        a human message after the question is one of the graph's own. A state that keeps no messages at all confirms
        nothing: then the streamed text is all there is.
        """
        if interrupts is not None:
            self._interrupts = {}
        if interrupts:
            self._interrupted(interrupts)
        self._state_tells = False
        found = self._snapshot(values, now, unheard=unheard, by_us=by_us)
        self._changed = True
        return found

    def finish(
        self, phase: Phase, now: float, *, notice: str = "", question: Question | None = None, verified: bool = True
    ) -> View:
        """The run is over: the final view. Text that the state does not confirm is kept only when it was cut off.

        `verified` is False when the state could not be asked: then what was heard is the best there is.
        """
        self._messages.finish()
        self._steps.close(_CLOSING.get(phase, StepState.FAILED), now, unanswered=self._messages.open_calls)
        self._phase = phase
        self._verified = verified and self._state_spoke and self._state_has_messages
        self._notice = notice
        self._question = question
        self._stale = ()
        self._changed = True
        if self._ends_with_results:
            for message_id, block in self._final_results.files:
                self._files.block(message_id, block)
        return self.view(now)

    # ------------------------------------------------------------ the view

    def view(self, now: float) -> View:
        """The picture now; the same object until something changes."""
        if self._changed:
            self._changed = False
            self._revision += 1
            self._view = self._draw()
        return self._view

    def _draw(self) -> View:
        return View(
            phase=self._phase or self._activity,
            body=self._body(),
            reasoning=self._messages.reasoning(only_confirmed=self._is_told_whole),
            steps=self._steps.all(),
            question=self._question,
            files=self._files.all(),
            notice=self._notice,
            usage=self._messages.usage,
            revision=self._revision,
        )

    def _body(self) -> tuple[Segment, ...]:
        body = self._messages.body(only_confirmed=self._is_told_whole, asking=self._phase is Phase.ASKING)
        if self._ends_with_results:
            return self._final_results.after(body)
        return self._without_regress(body) if self._stale else body

    @property
    def _is_told_whole(self) -> bool:
        """Whether the run is over, and its state has told all that counts."""
        return self._verified and self._phase in (Phase.DONE, Phase.ASKING)

    @property
    def _ends_with_results(self) -> bool:
        """Whether what tools have brought is the answer: the run ended with it, and no model said anything to it."""
        if self._phase is not Phase.DONE:
            return False
        last = self._messages.last(only_confirmed=self._is_told_whole)
        return last is None or last.calls_tools or not last.text.has_text

    def _without_regress(self, body: tuple[Segment, ...]) -> tuple[Segment, ...]:
        """A run that the gateway began anew says the same again at first: keep the longer text until it differs."""
        before = "".join(segment.text for segment in self._stale)
        said = "".join(segment.text for segment in body)
        if len(said) < len(before) and before.startswith(said):
            return self._stale
        self._stale = ()
        return body

    def _active(self, changed: bool, phase: Phase) -> None:
        if changed:
            self._activity = phase

    # ------------------------------------------------------------ the kinds of events

    def _metadata(self, event: StreamEvent) -> bool:
        run_id = as_text(as_object(event.data).get("run_id"))
        again = bool(self.run_id) and not self.is_empty
        self.run_id = run_id or self.run_id
        attempt = as_object(event.data).get("attempt")
        self.attempt = attempt if isinstance(attempt, int) else 0
        if again:
            self.begin_anew()
        return again

    def begin_anew(self) -> None:
        """The gateway executes the run anew: all of it comes again, under new message ids."""
        self._stale = self._body()
        self._begin()
        self._missed = self._held_back = False
        self.failure = ""
        self.restarts += 1
        self._changed = True

    def _streamed(self, event: StreamEvent, now: float) -> bool:
        payload = event.data
        if isinstance(payload, list) and len(payload) == 2 and "content" not in as_object(payload[1]):
            return self._piece(payload[0], as_object(payload[1]), event.namespace, now)
        if isinstance(payload, list):
            changed = False
            for item in payload:
                changed |= self._piece(item, {}, event.namespace, now)
            return changed
        return self._piece(payload, {}, event.namespace, now)

    def _piece(
        self,
        value: JsonValue,
        metadata: Mapping[str, JsonValue],
        namespace: tuple[str, ...],
        now: float,
        *,
        accumulated: bool = False,
    ) -> bool:
        message = read_message(value)
        if message is None:
            if as_object(value):
                self.unknown += 1  # a message of a kind that nobody reads here
            else:
                self.malformed += 1
            return False
        if message.role is Role.TOOL:
            return self._tool_result(message, now)
        if message.role is not Role.ASSISTANT:
            return False
        path = namespace or tuple(as_text(metadata.get("langgraph_checkpoint_ns")).split("|"))[:-1]
        node = as_text(metadata.get("langgraph_node"))
        heard = self._heard(message, metadata, path, node)
        was = heard.is_spoken
        self._hide(heard, message)
        whole = message.whole or accumulated
        if whole or not (heard.broken or heard.confirmed):  # a state may be ahead of the stream
            heard.take(message, whole=whole)
        changed = was and heard.hidden
        if heard.nested:
            if path and message.text and not (heard.hidden or heard.doubtful):
                changed |= self._steps.subgraph(path[0], heard.text.tail(500), now)
            self._active(changed, Phase.WORKING)
        elif heard.is_spoken and not heard.confirmed:
            changed |= bool(message.text or message.reasoning)
            self._active(bool(message.reasoning), Phase.THINKING)
            if message.text:
                self._active(True, Phase.WRITING if heard.text.has_text else Phase.THINKING)
        return self._tool_calls(heard, message, now) or changed

    def _heard(self, message: Message, metadata: Mapping[str, JsonValue], path: Sequence[str], node: str) -> Heard:
        identity = message.id or as_text(metadata.get("message_id")) or as_text(metadata.get("id"))
        if not identity:
            place = as_text(metadata.get("langgraph_checkpoint_ns")) or f"{node}:{metadata.get('langgraph_step')}"
            identity = f"{NAMELESS}{place}"
        graph = path[0] if path else ""
        if message.whole and message.id and message.id not in self._heard_before:
            confirmed = {heard.id for heard in self._messages if heard.confirmed}
            known = self._messages.known(message, confirmed, origin=(node, graph))
            if known is not None:
                self._messages.rename(known, message.id)
                return known
        return self._messages.get(identity) or self._messages.add(
            Heard(
                identity,
                node=node,
                nested=bool(path),
                graph=graph,
                doubtful=is_side_call(node, metadata, self._speaking.get(node)),
                hidden=identity in self._heard_before,
                broken=self._held_back,
            )
        )

    def _hide(self, heard: Heard, message: Message) -> None:
        heard.hidden |= message.hidden or message.error_fallback or heard.id in self._heard_before
        if message.error_fallback:
            self.failure = message.text or "the model failed"

    def _tool_calls(self, heard: Heard, message: Message, now: float) -> bool:
        changed = False
        if heard.hidden or (heard.doubtful and not heard.confirmed):
            return False
        for piece in message.call_pieces:
            heard.calls_tools = True
            changed |= self._steps.call_piece(heard.id, piece, now)
        if message.whole:
            for position, call in enumerate(message.calls):
                heard.calls_tools = True
                changed |= self._steps.call(call, f"{heard.id}:{position}", now)
        self._active(changed, Phase.WORKING)
        return changed

    def _tool_result(self, message: Message, now: float) -> bool:
        self._messages.result(message.call_id)
        if message.hidden:
            return False
        if message.name == CLARIFICATION_TOOL:
            self._clarification = clarification(message.id, message.text, message.artifact)
            return False
        changed = self._steps.result(message.call_id, message.name, failed=message.failed, now=now)
        self._active(changed, Phase.WORKING)
        return changed

    def _updates(self, event: StreamEvent, now: float) -> bool:
        changed = False
        for node, update in as_object(event.data).items():
            if node == "__interrupt__":
                self._interrupted(update)
            elif not event.namespace:
                changed |= self._node_update(node, update, now)
            else:
                changed |= self._nested_update(update, now)
        return changed

    def _node_update(self, node: str, update: JsonValue, now: float) -> bool:
        self._state_spoke = True
        changed = self._steps.node_finished(node, now)
        self._messages.node_finished(node)
        for part in update if isinstance(update, list) else [update]:
            fields = as_object(part)
            if "todos" in fields:
                changed |= self._steps.todos(fields["todos"])
            if "artifacts" in fields:
                changed |= self._files.artifacts(fields["artifacts"])
            self._final_results.structured(fields.get("structured_response"))
        for messages in find_messages(update):
            changed |= self._confirm_update(node, messages, now)
        self._held_back = False  # a step is over: messages that begin now are heard from their start
        return changed

    def _nested_update(self, update: JsonValue, now: float) -> bool:
        changed = False
        for messages in find_messages(update):
            for message in messages:
                if message.role is Role.TOOL:
                    changed |= self._tool_result(message, now)
        return changed

    def _confirm_update(self, node: str, messages: Sequence[Message], now: float) -> bool:
        """Messages that a node has written into the state. Lists that repeat the history count from our question."""
        changed = False
        start = self._after_question(messages)
        taken = self._messages.named(messages) | {heard.id for heard in self._messages if heard.confirmed}
        for position, message in enumerate(messages):
            if message.role is Role.REMOVE:
                changed |= self._removed(message.id)
            elif message.role is Role.TOOL and (start is None or position >= start):
                changed |= self._tool_result(message, now)
                self._final_results.take(message)
            elif message.role is Role.ASSISTANT:
                if start is None or position >= start:
                    self._final_results.take(message)
                is_old = message.id in self._heard_before or (start is not None and position < start)
                if is_old:
                    known = self._messages.get(message.id)
                else:
                    known = self._messages.known(message, taken, origin=(node, ""))
                if known is not None:
                    taken.add(known.id)
                    changed |= self._confirm(known, message, now)
                elif message.id in self._heard_before:
                    continue
                elif (self._missed or start is not None) and (start is None or position >= start):
                    changed |= self._confirm(self._messages.new(message), message, now)
                else:
                    self._unsure = True
        return changed

    def _confirm(self, heard: Heard, message: Message, now: float) -> bool:
        before = (heard.is_spoken, heard.text.text, heard.calls_tools)
        self._unsure |= self._messages.rename(heard, message.id)
        heard.confirmed = True
        heard.broken = False
        self._hide(heard, message)
        heard.take(message, whole=True)
        if message.text and not message.hidden:
            self._clarification = None
        changed = False
        for block in message.files:
            changed |= self._files.block(message.id or heard.id, block)
        if not heard.hidden:
            for position, call in enumerate(message.calls):
                heard.calls_tools = True
                self._messages.call(heard, call.id)
                changed |= self._steps.call(call, f"{heard.id}:{position}", now)
        return changed or before != (heard.is_spoken, heard.text.text, heard.calls_tools)

    def _removed(self, identity: str) -> bool:
        if identity == REMOVE_ALL:
            return False  # a summary replaces the list; what the reader has seen stays said
        heard = self._messages.get(identity)
        if heard is None or heard.hidden:
            return False
        heard.hidden = True
        return True

    def _interrupted(self, value: JsonValue) -> None:
        self._unsure |= value == []  # a static breakpoint: what comes next is in the state
        for position, item in enumerate(as_list(value)):
            source = as_object(item)
            if source:
                identity = as_text(source.get("id")) or as_text(source.get("interrupt_id"))
                self._interrupts[identity or f"#{len(self._interrupts)}.{position}"] = item

    # ------------------------------------------------------------ snapshots of the state

    def _snapshot(
        self, values: Mapping[str, JsonValue], now: float, *, unheard: bool = True, by_us: bool = False
    ) -> bool:
        if "__interrupt__" in values:
            self._interrupted(values["__interrupt__"])
        if values.keys() <= {"__interrupt__"}:
            return False
        if "todos" in values and self._steps.all():
            self._steps.todos(values["todos"])
        messages = self._message_list(values)
        self._state_spoke = True
        self._state_has_messages = messages is not None
        ordered: dict[str, Heard] = {}
        asked: Interrupt | None = None
        mine = self._mine(messages or (), by_us=by_us)
        if unheard and messages is not None:
            self._final_results.put(messages, mine)
        taken = self._messages.named(mine)
        for message in mine:
            if message.role is Role.TOOL:
                self._tool_result(message, now)
                if message.name == CLARIFICATION_TOOL:
                    asked = self._clarification
            elif message.role is Role.ASSISTANT:
                heard = self._messages.known(message, taken)
                if heard is None and not unheard:
                    continue
                heard = heard or self._messages.new(message)
                self._confirm(heard, message, now)
                ordered[heard.id] = heard
                taken.add(heard.id)
                if message.text:
                    asked = None
        self._clarification = asked
        self._messages.reorder(ordered)
        return any(heard.is_spoken and heard.text.has_text for heard in ordered.values())

    def _mine(self, messages: Sequence[Message], *, by_us: bool) -> Sequence[Message]:
        """This turn's messages of the state: from where it begins up to somebody else's next question.

        Graphs write human messages too (a critic's, another agent's), and may drop the question (into a summary). When
        the state is this run's, all after the question is its own, or else at least what follows the last of them.
        """
        asked = [position for position, message in enumerate(messages) if message.is_visibly_human]
        start = self._after_question(messages)
        self._state_tells = bool(messages) and (start is not None or by_us)
        if start is None:
            start = (asked[-1] + 1 if asked else 0) if by_us else len(messages)
            known = [message for message in messages[:start] if self._messages.get(message.id) is not None]
            return [*known, *messages[start:]]
        if by_us:
            return messages[start:]
        return messages[start : next((position for position in asked if position >= start), None)]

    @staticmethod
    def _message_list(values: Mapping[str, JsonValue]) -> list[Message] | None:
        """The state's messages: under `messages`, else the longest list of messages there is."""
        preferred = list(find_messages(values.get("messages"), depth=0))
        if preferred:
            return preferred[0]
        if values.get("messages") == []:
            return []
        return max(find_messages(dict(values)), key=len, default=None)

    def _after_question(self, messages: Sequence[Message]) -> int | None:
        """Where this turn's messages begin in a list of the state; None when the list does not tell.

        After our question, or after what was there before a resume; failing that, after the last question there is.
        """
        for position in range(len(messages) - 1, -1, -1):
            message = messages[position]
            if message.id in self._heard_before:
                return position + 1
            if not message.is_visibly_human or not self._question_id:
                continue
            if self._question_id in message.id:
                return position + 1
            if self._question_text is not None and message.text == self._question_text:
                return position + 1
        if self._question_id:
            return None
        return next((at + 1 for at in range(len(messages) - 1, -1, -1) if messages[at].is_visibly_human), None)


_TELLING = frozenset({EventKind.MESSAGES, EventKind.ACCUMULATED, EventKind.UPDATES})
"""Events without which the picture has a hole."""

_CLOSING = {Phase.DONE: StepState.DONE, Phase.ASKING: StepState.PENDING}
