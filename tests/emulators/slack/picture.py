"""What people see now: the emulator's answer to "what does the chat look like?"."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tests.emulators.slack.blocks import Button, JsonObject, buttons
from tests.emulators.slack.streams import StreamState, Task
from tests.emulators.slack.world import Message, Version, World


@dataclass(frozen=True, slots=True)
class Seen:
    """One message as it shows.

    `text` is what is readable (blocks hide a message's `text`); `streaming`: it still shows as being written; `stuck`:
    its stream ended by itself and nothing has repaired it; `seen_by`: "all", one person's id for an ephemeral message,
    or the recipient's id while a stream in a channel runs, which the other members see only once it is stopped.
    """

    ts: str
    channel: str
    thread_ts: str | None
    author: str
    by_app: bool
    text: str
    buttons: tuple[Button, ...]
    tasks: tuple[Task, ...]
    plan_title: str
    files: tuple[str, ...]
    reactions: tuple[str, ...]
    streaming: bool
    stuck: bool
    seen_by: str
    edited: bool
    metadata: JsonObject | None
    first_seen: float | None
    versions: tuple[Version, ...]


def seen(world: World, message: Message) -> Seen:
    channel = world.channels[message.channel]
    stream = message.stream if message.stream is not None and not message.stream.replaced else None
    state = stream.state(world.clock.now()) if stream is not None else None
    seen_by = message.visible_to or "all"
    if stream is not None and state is not StreamState.STOPPED and channel.kind.value != "im":
        seen_by = stream.recipient
    return Seen(
        ts=message.ts,
        channel=message.channel,
        thread_ts=message.thread_ts,
        author=message.author or message.username or message.bot_id,
        by_app=bool(message.bot_id) and message.bot_id == world.bot_of(channel).bot_id,
        text=message.visible,
        buttons=tuple(buttons(stream.blocks if stream is not None else message.blocks)),
        tasks=tuple(stream.tasks.values()) if stream is not None else (),
        plan_title=stream.plan_title if stream is not None else "",
        files=tuple(file.name for file in message.files),
        reactions=tuple(name for name, people in message.reactions.items() if people),
        streaming=state is StreamState.LIVE,
        stuck=state is StreamState.EXPIRED,
        seen_by=seen_by,
        edited=bool(message.edited_at),
        metadata=message.metadata,
        first_seen=next((version.at for version in message.versions if version.text), None),
        versions=tuple(message.versions),
    )


def describe(messages: Iterable[Seen]) -> str:
    """The chat in plain text, a paragraph for each message."""
    lines: list[str] = []
    for message in messages:
        marks = [name for name in ("streaming", "stuck", "edited") if getattr(message, name)]
        marks += [] if message.seen_by == "all" else [f"only {message.seen_by}"]
        indent = "    " if message.thread_ts else ""
        lines.append(f"{indent}{message.ts} {message.author} {' '.join(f'[{mark}]' for mark in marks)}".rstrip())
        lines += [f"{indent}  | {line}" for line in message.text.splitlines()]
        lines += [
            f"{indent}  * {task.status}: {task.title} {task.details} {task.output}".rstrip() for task in message.tasks
        ]
        if message.buttons:
            lines.append(f"{indent}  " + " ".join(f"({button.text})" for button in message.buttons))
        if message.files:
            lines.append(f"{indent}  files: " + ", ".join(message.files))
    return "\n".join(lines)
