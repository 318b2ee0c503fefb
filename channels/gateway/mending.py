"""What makes a thread's history fit for a model again after something in it did not come to its end.

Models refuse a history in which a tool call has no result. A stop, a failure or a question that nobody answers leaves
such calls at the end of a thread, and once something was said after them, in its middle. They also refuse files that
their vendor does not take, again with each question that follows. And of an answer that was broken off the thread has
nothing at all, while people have read it and may say "go on".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from channels.gateway.asking import question_id
from channels.inputs import Break
from channels.shapes import as_list, as_object
from channels.transcript.messages import Message, Role, ToolCall, read_message

_NO_RESULT = "No result is known: this did not come to its end. It may or may not have been done."
_BROKEN_OFF = "(This was stopped before its end.)"
_FILES_TAKEN_OUT = "(What was sent along has been taken out again: it could not be answered.)"
_NOTHING_SAID = "(No answer.)"
_UNKNOWN = Break()

_History = Sequence[tuple[Message, Mapping[str, JsonValue]]]


@dataclass(slots=True)
class _Calling:
    """A message with tool calls, and the results that they have, by call id and in the form of a run's input."""

    message: Message
    results: dict[str, JsonValue] = field(default_factory=dict)
    is_last: bool = True

    @property
    def open(self) -> tuple[ToolCall, ...]:
        return tuple(call for call in self.message.calls if call.id and call.id not in self.results)


def open_calls(messages: JsonValue) -> tuple[ToolCall, ...]:
    """The tool calls at the end of a thread's messages that have no result yet."""
    return tuple(call for calling in _callings(_read(messages)) if calling.is_last for call in calling.open)


def mending(messages: JsonValue, broken: Break = _UNKNOWN) -> list[JsonValue]:
    """What a thread with these messages has to be given before the next question, in the form of a run's input.

    At the end, open calls get a result. The results beside them are sent along: a gateway shows them although it has
    not kept them yet, and discards them when the next run begins. In the middle nothing can be put in; there the
    message loses its open calls. A question that is still without any answer loses its files if the agent failed at it,
    and gets what was said to it. A message that says nothing at all says so.
    """
    history = _read(messages)
    needed = [*_after_the_question(history, broken), *_empty(history)]
    for calling in _callings(history):
        if not calling.open:
            continue
        if calling.is_last:
            needed += calling.results.values()
            needed += [_no_result(calling.message, call) for call in calling.open]
        elif calling.message.id:
            needed.append(_without_open_calls(calling))
    return needed


def _read(messages: JsonValue) -> _History:
    """Each message with its fields as the gateway gave them, wherever they stand."""
    read = ((read_message(item), as_object(item)) for item in as_list(messages))
    return [(message, as_object(source.get("kwargs")) or source) for message, source in read if message is not None]


def _after_the_question(history: _History, broken: Break) -> Iterator[JsonValue]:
    """What is to be done where nothing stands behind the question of the turn that was broken off."""
    if not history or broken.turn is None or history[-1][0].id != question_id(broken.turn):
        return
    last, source = history[-1]
    if broken.failed and any(as_object(block).get("type") != "text" for block in as_list(source.get("content"))):
        yield {"role": "user", "id": last.id, "content": f"{last.text}\n\n{_FILES_TAKEN_OUT}".strip()}
    if said := broken.said.strip():
        yield {"role": "assistant", "id": f"said-{broken.turn}", "content": f"{said}\n\n{_BROKEN_OFF}"}


def _empty(history: _History) -> Iterator[JsonValue]:
    for message, source in history:
        if message.role is not Role.ASSISTANT or message.calls or not message.id:
            continue
        if not source.get("content") and not as_object(source.get("additional_kwargs")):
            yield {"role": "assistant", "id": message.id, "content": _NOTHING_SAID}


def _callings(history: _History) -> list[_Calling]:
    callings: list[_Calling] = []
    callers: dict[str, _Calling] = {}  # by call id: the newest, as some models number the calls of each message anew
    for message, source in history:
        if message.role is Role.TOOL:
            if message.call_id in callers:
                callers[message.call_id].results[message.call_id] = _result(message, source)
            continue
        for calling in callings[-1:]:
            calling.is_last = False
        if message.role is Role.ASSISTANT and message.calls:
            callings.append(_Calling(message))
            callers.update((call.id, callings[-1]) for call in message.calls)
    return callings


def _result(message: Message, source: Mapping[str, JsonValue]) -> JsonValue:
    kept: dict[str, JsonValue] = {"role": "tool", "tool_call_id": message.call_id, "content": source.get("content")}
    return kept | {key: source[key] for key in ("id", "name", "status", "artifact") if source.get(key) is not None}


def _no_result(message: Message, call: ToolCall) -> JsonValue:
    """In place of a result. Its id is the same each time: it is added to a thread once."""
    identity = f"no-result-{message.id}-{call.id}"
    return {"role": "tool", "id": identity, "tool_call_id": call.id, "content": _NO_RESULT}


def _without_open_calls(calling: _Calling) -> JsonValue:
    """The message as it is to be from now on; with its id it takes the place of the one that is there."""
    kept: list[JsonValue] = [
        {"type": "tool_call", "id": call.id, "name": call.name, "args": dict(call.args)}
        for call in calling.message.calls
        if call.id in calling.results
    ]
    text = calling.message.text.strip() or ("" if kept else _BROKEN_OFF)
    return {"role": "assistant", "id": calling.message.id, "content": text, "tool_calls": kept}
