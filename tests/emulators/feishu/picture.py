"""What people see in a chat now, readable for a test and for a person."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from tests.emulators.feishu.cardkit import Card, CardKit
from tests.emulators.feishu.cards import nodes, texts
from tests.emulators.feishu.contents import readable
from tests.emulators.feishu.refusals import Json
from tests.emulators.feishu.world import Message, Version, World


@dataclass(frozen=True, slots=True)
class Button:
    """`form` names the form that the button submits, if it does."""

    text: str
    value: Any
    name: str
    element_id: str
    disabled: bool
    form: str
    url: str


@dataclass(frozen=True, slots=True)
class Input:
    name: str
    element_id: str
    default: str
    required: bool
    value: Any
    form: str


@dataclass(frozen=True, slots=True)
class Panel:
    """A collapsible panel and the text in it."""

    element_id: str
    title: str
    text: str
    expanded: bool


@dataclass(frozen=True, slots=True)
class Shown:
    """One message as people see it. `text` leaves out what is folded into panels; times are on the clock.

    `generating` is true from the opening of streaming until the app itself closes it (a stream that ended by its time
    leaves it true: chat lists go on to say so). `summary` is what chat lists show for a card.
    """

    message_id: str
    chat_id: str
    sender: str
    by_bot: bool
    kind: str
    text: str
    created: float
    root_id: str = ""
    parent_id: str = ""
    thread_id: str = ""
    gone: str = ""
    edits: int = 0
    reactions: tuple[tuple[str, str], ...] = ()  # (who, emoji)
    versions: tuple[Version, ...] = ()
    card_id: str = ""
    title: str = ""
    elements: tuple[tuple[str, str], ...] = ()  # (element_id, text) of every text in the body
    panels: tuple[Panel, ...] = ()
    buttons: tuple[Button, ...] = ()
    inputs: tuple[Input, ...] = ()
    streaming: bool = False
    generating: bool = False
    summary: str = ""
    card: str = ""  # the card's JSON

    @property
    def first_visible(self) -> float:
        """When any text of it first came into sight."""
        return next((version.at for version in self.versions if version.text.strip()), self.created)

    def element(self, element_id: str) -> str:
        return dict(self.elements)[element_id]


def shown(message: Message, world: World, cardkit: CardKit) -> Shown:
    """The picture of one message."""
    card = cardkit.cards.get(message.card_id)
    text = card_text(card) if card else readable(message.msg_type, json.loads(message.content), message.mentions)
    base: Json = {
        "message_id": message.message_id,
        "chat_id": message.chat_id,
        "sender": message.sender.name,
        "by_bot": message.sender.is_bot,
        "kind": message.msg_type,
        "text": "" if message.gone else text,
        "created": message.created,
        "root_id": message.root_id,
        "parent_id": message.parent_id,
        "thread_id": message.thread_id,
        "gone": message.gone,
        "edits": message.edits,
        "reactions": tuple((r.operator, r.emoji) for r in message.reactions),
        "versions": tuple(card.versions if card else message.versions),
    }
    return Shown(**base, **(_card_picture(card, cardkit) if card else {}))


def card_text(card: Card) -> str:
    """The text of a card's body outside its panels."""
    return "\n".join(part.text for part in texts(card.data) if part.panel is None)


def _card_picture(card: Card, cardkit: CardKit) -> Json:
    config = card.data.get("config") or {}
    title = ((card.data.get("header") or {}).get("title") or {}).get("content", "")
    custom = (config.get("summary") or {}).get("content", "")
    fallback = "[生成中...]" if card.streaming_mode else (title or card_text(card).split("\n")[0])
    parts = texts(card.data)
    return {
        "card_id": card.card_id,
        "title": str(title),
        "elements": tuple((part.key, part.text) for part in parts),
        "panels": tuple(_panel(node) for node in nodes(card.data) if node["tag"] == "collapsible_panel"),
        "buttons": tuple(_buttons(card.data)),
        "inputs": tuple(_inputs(card.data)),
        "streaming": cardkit.is_streaming(card),
        "generating": card.streaming_mode,
        "summary": str(custom or fallback),
        "card": json.dumps(card.data, ensure_ascii=False),
    }


def _panel(node: Json) -> Panel:
    title = (node["header"].get("title") or {}).get("content", "")
    text = "\n".join(part.text for part in texts({"body": {"elements": node.get("elements", [])}}))
    return Panel(str(node.get("element_id", "")), str(title), text, bool(node.get("expanded")))


def _in_forms(card: Json, tag: str) -> list[tuple[Json, str]]:
    """The nodes with a tag, each with the name of its form ("" outside of any)."""
    forms = [node for node in nodes(card) if node["tag"] == "form"]
    inside = {id(node): str(form["name"]) for form in forms for node in nodes(form.get("elements"))}
    return [(node, inside.get(id(node), "")) for node in nodes(card) if node["tag"] == tag]


def _value(node: Json) -> Any:
    """The value a component calls back with; None when it does not call back."""
    for behavior in node.get("behaviors") or []:
        if behavior.get("type") == "callback":
            return behavior["value"]
    return node.get("value", None if node.get("behaviors") else {})


def _buttons(card: Json) -> list[Button]:
    return [
        Button(
            text=str((node.get("text") or {}).get("content", "")),
            value=_value(node),
            name=str(node.get("name", "")),
            element_id=str(node.get("element_id", "")),
            disabled=bool(node.get("disabled")),
            form=form if node.get("form_action_type") == "submit" or node.get("action_type") == "form_submit" else "",
            url=next((str(b.get("default_url")) for b in node.get("behaviors") or [] if b["type"] == "open_url"), ""),
        )
        for node, form in _in_forms(card, "button")
    ]


def _inputs(card: Json) -> list[Input]:
    return [
        Input(
            name=str(node.get("name", "")),
            element_id=str(node.get("element_id", "")),
            default=str(node.get("default_value", "")),
            required=bool(node.get("required")),
            value=_value(node),
            form=form,
        )
        for node, form in _in_forms(card, "input")
    ]


def as_json(message: Shown) -> Json:
    return asdict(message)


def dump(world: World, cardkit: CardKit) -> str:
    """All chats as text, for a failing test and for playing by hand."""
    lines: list[str] = []
    for chat in world.chats.values():
        lines.append(f"== {chat.name} ({chat.kind}, {chat.chat_id}){'' if chat.bot_in else ' without the bot'}")
        for message in world.in_chat(chat.chat_id):
            lines += _lines(shown(message, world, cardkit))
    return "\n".join(lines)


def _lines(one: Shown) -> list[str]:
    state = [one.kind, one.message_id[-8:]]
    state += [f"reply to {one.parent_id[-8:]}"] if one.parent_id else []
    state += [f"topic {one.thread_id[-6:]}"] if one.thread_id else []
    state += [one.gone] if one.gone else []
    state += ["streaming" if one.streaming else "generating"] if one.generating else []
    state += [f"summary {one.summary!r}"] if one.card_id else []
    lines = [f"-- {one.sender} [{', '.join(state)}] {one.title}".rstrip()]
    lines += [f"   | {line}" for line in one.text.split("\n")]
    lines += [f"   > {panel.title}: {panel.text!r}" for panel in one.panels]
    lines += [f"   ({button.text}{' disabled' if button.disabled else ''})" for button in one.buttons]
    lines += [f"   __{field.name}__" for field in one.inputs]
    lines += [f"   {emoji} by {who}" for who, emoji in one.reactions]
    return lines
