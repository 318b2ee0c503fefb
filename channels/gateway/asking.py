"""Turns a request into what a gateway is sent: the human message with its files, or the resume command."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import JsonValue

from channels.gateway.dialect import Traits
from channels.gateway.enclosures import message_blocks
from channels.gateway.link import RunBody
from channels.gateway.runs import RunRequest, WhenBusy
from channels.inputs import Ask, Resume
from channels.model import TurnId
from channels.shapes import as_object, as_text
from channels.strict_json import strict, strict_object, strict_text

TURN_KEY = "channel_bridge_turn"
"""The key in a run's metadata under which the turn's id stands."""


def question_id(turn: TurnId) -> str:
    """The id of the human message of a turn. It contains the turn's id, so that a run can be found by its input."""
    return f"turn-{turn}"


def run_body(
    request: RunRequest,
    traits: Traits,
    file_types: Sequence[str],
    uploads: Sequence[JsonValue] = (),
    mending: Sequence[JsonValue] = (),
) -> RunBody:
    """The run as the gateway wants it, all of it strict JSON.

    `file_types` are the MIME types that the model takes, `uploads` files that travelled ahead over HTTP, `mending` what
    the thread needs before the question.
    """
    metadata: dict[str, JsonValue] = {**strict_object(request.metadata), TURN_KEY: request.turn}
    config = strict_object(request.config)
    context = strict_object(request.context)
    if context and (configurable := config.pop("configurable", None)):
        # LangGraph refuses both together; a context is also readable as `configurable`.
        context = {**as_object(configurable), **context}
    if traits.config_metadata:
        config["metadata"] = {**as_object(config.get("metadata")), TURN_KEY: request.turn}
    run_input: dict[str, JsonValue] | None = None
    command: dict[str, JsonValue] | None = None
    match request.input:
        case Ask() as ask:
            before = [strict(message) for message in mending]
            run_input = {"messages": [*before, _message(ask, request.turn, traits, file_types, uploads)]}
        case Resume(answers):
            answers = strict_object(answers)
            command = {"resume": answers[""] if set(answers) == {""} else answers}
    return RunBody(
        assistant_id=request.assistant_id,
        input=run_input,
        command=command,
        config=config,
        context=context,
        metadata=metadata,
        interrupt_others=request.when_busy is WhenBusy.INTERRUPT,
    )


def _message(
    ask: Ask, turn: TurnId, traits: Traits, file_types: Sequence[str], uploads: Sequence[JsonValue]
) -> dict[str, JsonValue]:
    extra: dict[str, JsonValue] = {"sender": {"id": strict_text(ask.sender.id), "name": strict_text(ask.sender.name)}}
    text = strict_text(ask.text)
    content: JsonValue = text
    if traits.files_over_http:
        if uploads:
            extra["files"] = [_uploaded(item) for item in uploads]
    elif ask.files:
        content = message_blocks(text, ask.files, file_types)
    return {
        "role": "user",
        "id": question_id(turn),
        "content": content,
        "additional_kwargs": extra,
    }


def _uploaded(item: JsonValue) -> JsonValue:
    said = as_object(item)
    return {
        "filename": as_text(said.get("filename")),
        "size": said.get("size"),
        "path": as_text(said.get("virtual_path")) or as_text(said.get("path")),
        "status": "uploaded",
    }
