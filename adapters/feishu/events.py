"""The platform's events as types: what the bridge reads of the vendor's schema 2.0."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, field_validator, model_validator

_MILLISECONDS = re.compile(r"[0-9]{10,16}")


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, value: object) -> object:
        return {k: v for k, v in value.items() if v is not None} if isinstance(value, dict) else value


class UserId(_Part):
    open_id: str = ""


class Mention(_Part):
    """Somebody mentioned; the text carries `key` in their place."""

    key: str
    id: UserId = Field(default_factory=UserId)
    name: str = ""


class Message(_Part):
    """One message in a chat. `content` is JSON in a string, of a shape that depends on the type."""

    message_id: str
    chat_id: str
    chat_type: str = ""
    message_type: str = ""
    content: str = ""
    root_id: str = ""
    parent_id: str = ""
    thread_id: str = ""
    create_time: str | int = ""  # milliseconds since the epoch, in a string as far as is known
    mentions: tuple[Mention, ...] = ()

    @property
    def sent_at(self) -> float | None:
        """Seconds since the epoch; None when it is not told in a form we know."""
        digits = str(self.create_time)
        return int(digits) / 1000 if _MILLISECONDS.fullmatch(digits) else None


class Sender(_Part):
    sender_id: UserId = Field(default_factory=UserId)
    sender_type: str = "user"


class MessageReceived(_Part):
    """Somebody wrote something."""

    sender: Sender
    message: Message


class MessageRecalled(_Part):
    """A message was taken back, by its sender or by somebody who may."""

    message_id: str
    chat_id: str


class CardAction(_Part):
    """What was pressed or filled in."""

    value: Mapping[str, JsonValue] = Field(default_factory=dict)
    form_value: Mapping[str, JsonValue] = Field(default_factory=dict)
    input_value: str = ""

    @field_validator("value", "form_value", mode="before")
    @classmethod
    def _only_objects(cls, value: object) -> object:
        return value if isinstance(value, dict) else {}


class CardContext(_Part):
    open_message_id: str = ""
    open_chat_id: str = ""


class CardPressed(_Part):
    """Somebody used a card. It wants an answer, and is never delivered again."""

    operator: UserId = Field(default_factory=UserId)
    action: CardAction = Field(default_factory=CardAction)
    context: CardContext = Field(default_factory=CardContext)


class Unreadable(Exception):
    """An event of a type that the bridge acts on, in a shape that it does not know. The text names the fields only."""


class Header(_Part):
    event_id: str = ""
    event_type: str = ""
    token: str = ""
    app_id: str = ""


Content = MessageReceived | MessageRecalled | CardPressed

_TYPES: Mapping[str, type[MessageReceived] | type[MessageRecalled] | type[CardPressed]] = {
    "im.message.receive_v1": MessageReceived,
    "im.message.recalled_v1": MessageRecalled,
    "card.action.trigger": CardPressed,
}
CALLBACK = "card.action.trigger"


def read_header(payload: Mapping[str, JsonValue]) -> Header:
    """The header of an event; an empty one when it has none that can be read."""
    try:
        return Header.model_validate(payload.get("header"))
    except ValidationError:
        return Header()


def read_event(event_type: str, payload: Mapping[str, JsonValue]) -> Content | None:
    """The event, when it is one the bridge acts on. Raises `Unreadable`."""
    kind = _TYPES.get(event_type)
    if kind is None:
        return None
    try:
        return kind.model_validate(payload.get("event"))
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        fields = (f"{'.'.join(map(str, one['loc'])) or 'event'}: {one['type']}" for one in found)
        raise Unreadable(", ".join(fields)) from None
