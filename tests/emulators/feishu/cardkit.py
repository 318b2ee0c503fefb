"""Card entities and the operations on them: one sequence per card, streaming that ends by itself, one sending."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from channels.clock import Clock
from tests.emulators.feishu.cards import (
    TEXT_TAGS,
    Known,
    check,
    check_config,
    find,
    mentions_everybody,
    parse,
    siblings,
    size_of,
    texts,
)
from tests.emulators.feishu.fields import Fields
from tests.emulators.feishu.limits import Limits
from tests.emulators.feishu.refusals import CardFault, Json, Refusal
from tests.emulators.feishu.typewriter import Write, pace_of, typed_text
from tests.emulators.feishu.world import Ids, Version

Change = Callable[[Json], None]


@dataclass(slots=True)
class Card:
    """A card, as an entity of its own or as the content of one message (until that is converted)."""

    card_id: str
    data: Json
    created: float
    is_entity: bool
    message_id: str = ""
    sent_at: float | None = None
    sequence: int = 0
    used: dict[int, str] = field(default_factory=dict)  # sequence → fingerprint of the operation that used it up
    uuids: dict[str, str] = field(default_factory=dict)
    opened_at: float = 0.0
    forced_closed: bool = False
    told_closed: bool = False
    told_expired: bool = False
    interactions: int = 0  # callbacks under way
    streamed: set[str] = field(default_factory=set)  # elements that were given streamed content
    writes: dict[str, list[Write]] = field(default_factory=dict)
    parts: list[tuple[float, tuple[str, ...]]] = field(default_factory=list)
    versions: list[Version] = field(default_factory=list)

    @property
    def streaming_mode(self) -> bool:
        return (self.data.get("config") or {}).get("streaming_mode") is True


class CardKit:
    """The CardKit APIs. Every method raises `Refusal` as the platform would."""

    def __init__(self, clock: Clock, limits: Limits, ids: Ids, known: Known, on_broken: Callable[[str], None]) -> None:
        self._clock = clock
        self._limits = limits
        self._ids = ids
        self._known = known
        self._broken = on_broken
        self.cards: dict[str, Card] = {}

    # -- what a reader sees

    def is_streaming(self, card: Card) -> bool:
        """Streaming mode is on: not closed by the app, by its time, or by force."""
        in_time = self._clock.now() < card.opened_at + self._limits.streaming_seconds
        return card.streaming_mode and in_time and not card.forced_closed

    def visible_text(self, card: Card, at: float, element_id: str | None = None) -> str:
        """The text typed out on a reader's screen at a time; of the whole body, or of one element."""
        if card.sent_at is None or at < card.sent_at:
            return ""
        if element_id is not None:
            return typed_text(card.writes.get(element_id, ()), at)
        keys = next((keys for since, keys in reversed(card.parts) if since <= at), ())
        return "\n".join(typed_text(card.writes[key], at) for key in keys)

    def send(self, card: Card, message_id: str) -> None:
        """The card comes into sight as a message; all it holds is visible at once."""
        card.message_id, card.sent_at = message_id, self._clock.now()
        self._record(card, {}, frozenset())

    # -- operations

    def create(self, args: Json) -> Json:
        fields = Fields(args)
        if (kind := fields.text("type", 50)) != "card_json":
            raise Refusal(200220, f"type {kind} is not served here")
        text = fields.text("data", 3_000_000)
        card = self._read(text)
        if mentions_everybody(card):
            self._broken("a card mentions everybody (<at id=all>)")
        return {"card_id": self.add(card, is_entity=True).card_id}

    def add(self, data: Json, *, is_entity: bool) -> Card:
        card = Card(self._ids.digits(), data, self._clock.now(), is_entity)
        card.opened_at = self._clock.now()
        self.cards[card.card_id] = card
        return card

    def update(self, args: Json) -> Json:
        card = self._admit("cardkit.card.update", args)
        given = Fields(args).object("card")
        if given.get("type") != "card_json":
            raise Refusal(200220, "card.type must be card_json")
        new = self._read(Fields(given).text("data", 1_000_000))
        opens = _asks_for_streaming(new) and not self.is_streaming(card)

        def change(data: Json) -> None:
            data.clear()
            data.update(new)

        return self._apply(card, change, opens=opens)

    def settings(self, args: Json) -> Json:
        card = self._admit("cardkit.card.settings", args)
        given = _object(Fields(args).text("settings", 100_000), 300122)
        if "config" not in given and "card_link" not in given:
            self._broken(f"settings of card {card.card_id} without the config wrapper do nothing: {given}")
            return {}
        return self._apply(card, lambda data: _merge_settings(data, given), opens=_asks_for_streaming(given))

    def content(self, args: Json) -> Json:
        card = self._admit("cardkit.element.content", args)
        element_id = Fields(args).text("element_id", 20)
        content = Fields(args).text("content", self._limits.content_chars)
        if not self.is_streaming(card):
            timed_out = card.streaming_mode and not card.forced_closed
            told, card.told_closed = card.told_closed, True
            raise Refusal(
                200850 if timed_out else 300309,
                "content for a card whose streaming is closed" + (", although it was told so" if told else ""),
                broken=told,
            )
        element = find(card.data, element_id)
        if element is None:
            raise Refusal(300313, f"content for element {element_id}, which the card does not have")
        if element["tag"] not in TEXT_TAGS:
            raise Refusal(300310, f"content for element {element_id}, which is a {element['tag']}")
        return self._apply(card, lambda data: _set_content(data, element_id, content), content_of=element_id)

    def create_elements(self, args: Json) -> Json:
        card = self._admit("cardkit.element.create", args)
        fields = Fields(args)
        elements = _list(fields.text("elements", 1_000_000), 300315)
        where, target = fields.text("type", 20), fields.optional_text("target_element_id", 20)
        return self._apply(card, lambda data: _insert(data, where, target, elements))

    def update_element(self, args: Json) -> Json:
        card = self._admit("cardkit.element.update", args)
        element_id = Fields(args).text("element_id", 20)
        element = _object(Fields(args).text("element", 1_000_000), 300121)
        return self._apply(card, lambda data: _replace(data, element_id, element))

    def patch_element(self, args: Json) -> Json:
        card = self._admit("cardkit.element.patch", args)
        element_id = Fields(args).text("element_id", 20)
        partial = _object(Fields(args).text("partial_element", 1_000_000), 300313)
        return self._apply(card, lambda data: _patch(data, element_id, partial))

    def delete_element(self, args: Json) -> Json:
        card = self._admit("cardkit.element.delete", args)
        element_id = Fields(args).text("element_id", 20)
        return self._apply(card, lambda data: _delete(data, element_id))

    def batch_update(self, args: Json) -> Json:
        card = self._admit("cardkit.card.batch_update", args)
        actions = _list(Fields(args).text("actions", 1_000_000), 99992402)
        if not actions:
            raise Refusal(99992402, "batch_update without actions")
        changes = [_batch_change(action) for action in actions]

        def change(data: Json) -> None:
            for one in changes:
                one(data)

        settings = [a["params"].get("settings") for a in actions if a["action"] == "partial_update_setting"]
        return self._apply(card, change, opens=any(_asks_for_streaming(given) for given in settings))

    def use_up(self, name: str, args: Json) -> None:
        """A planned refusal takes the sequence of the operation it refuses, as any refusal does."""
        card, sequence = self.cards.get(str(args.get("card_id"))), args.get("sequence")
        if card is not None and isinstance(sequence, int) and sequence > card.sequence:
            card.sequence = sequence
            card.used[sequence] = _fingerprint(name, args)

    # -- inside

    def _read(self, text: str) -> Json:
        """A whole card as sent: its size is that of the JSON string itself, escapes included."""
        try:
            card = parse(text)
            check(card, self._known, self._limits)
            if (size := len(text.encode())) > self._limits.card_bytes:
                raise CardFault(200860, "card too large", f"{size} bytes")
        except CardFault as fault:
            raise fault.as_cardkit() from None
        return card

    def _admit(self, name: str, args: Json) -> Card:
        """Look the card up and take the operation's sequence, which is used up whatever comes of it."""
        fields = Fields(args)
        card_id = fields.text("card_id", 20)
        card = self.cards.get(card_id)
        if card is None or not card.is_entity:
            raise Refusal(200740, f"card {card_id} does not exist")
        sequence = fields.number("sequence", 1, self._limits.sequence_max)
        uuid = fields.optional_text("uuid", self._limits.card_uuid_chars)
        if self._clock.now() >= card.created + self._limits.card_seconds:
            told, card.told_expired = card.told_expired, True
            raise Refusal(200750, f"card {card_id} is older than 14 days", broken=told)
        mark = _fingerprint(name, args)
        if uuid and card.uuids.get(uuid, mark) != mark:
            card.sequence = max(card.sequence, sequence)
            raise Refusal(200770, f"uuid {uuid} was used for another operation on card {card_id}")
        if sequence <= card.sequence:
            is_retry = card.used.get(sequence) == mark
            raise Refusal(300317, f"sequence {sequence} after {card.sequence} on card {card_id}", broken=not is_retry)
        card.sequence = sequence
        card.used[sequence] = mark
        if uuid:
            card.uuids[uuid] = mark
        if card.interactions:
            raise Refusal(200810, f"card {card_id} waits for the answer to a callback", broken=False)
        return card

    def _apply(self, card: Card, change: Change, *, content_of: str | None = None, opens: bool = False) -> Json:
        draft = copy.deepcopy(card.data)
        change(draft)
        count_tables = content_of is None or self._limits.tables_counted_in_content
        try:
            check(draft, self._known, self._limits, count_tables=count_tables)
            if (size := size_of(draft)) > self._limits.card_bytes:
                raise CardFault(200860, "card too large", f"{size} bytes")
        except CardFault as fault:
            raise fault.as_cardkit() from None
        self.put(card, draft, content_of=content_of, opens=opens)
        return {}

    def put(self, card: Card, data: Json, *, content_of: str | None = None, opens: bool = False) -> None:
        """Make checked content the card's content, and keep the books of what readers see."""
        if mentions_everybody(data) and not mentions_everybody(card.data):
            self._broken(f"card {card.card_id} mentions everybody (<at id=all>)")
        before = {part.key: part.text for part in texts(card.data)}
        if opens and (self._limits.reopening_extends or not self.is_streaming(card)):
            card.opened_at, card.forced_closed, card.told_closed = self._clock.now(), False, False
        card.data = data
        if content_of is not None:
            card.streamed.add(content_of)
        self._record(card, before, frozenset({content_of} if content_of else ()))

    def _record(self, card: Card, before: dict[str, str], typed: frozenset[str]) -> None:
        if card.sent_at is None:
            return
        now = self._clock.now()
        after = texts(card.data)
        pace = pace_of(card.data.get("config") or {}, self._limits)
        if self.is_streaming(card):
            self._check_prefixes(card, before, {part.key: part.text for part in after})
        for part in after:
            if part.key not in card.writes or before.get(part.key) != part.text:
                card.writes.setdefault(part.key, []).append(Write(now, part.text, part.key in typed, pace))
        card.parts.append((now, tuple(part.key for part in after)))
        text = "\n".join(part.text for part in after if part.panel is None)
        if not card.versions or card.versions[-1].text != text:
            card.versions.append(Version(now, text))

    def _check_prefixes(self, card: Card, before: dict[str, str], after: dict[str, str]) -> None:
        for key in sorted(card.streamed & set(before)):
            if not after.get(key, "").startswith(before[key]):
                self._broken(f"streamed text of element {key} of card {card.card_id} was rewritten: it flashes")


def _fingerprint(name: str, args: Json) -> str:
    """Equal for an operation and its exact repetition."""
    return hashlib.sha256(json.dumps([name, args], sort_keys=True).encode()).hexdigest()


def _asks_for_streaming(given: Json | None) -> bool:
    config = (given or {}).get("config")
    return isinstance(config, dict) and config.get("streaming_mode") is True


def _object(text: str, code: int) -> Json:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise Refusal(code, f"not a JSON object: {text[:80]}")
    return value


def _list(text: str, code: int) -> list[Json]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise Refusal(code, f"not a JSON list of objects: {text[:80]}")
    return value


def _merge_settings(data: Json, given: Json) -> None:
    if "config" in given:
        if not isinstance(given["config"], dict):
            raise Refusal(300122, "config is not an object")
        try:
            check_config(given["config"])
        except CardFault as fault:
            raise Refusal(300122 if fault.code != 300302 else 300302, str(fault)) from None
        data["config"] = {**(data.get("config") or {}), **given["config"]}
    if "card_link" in given:
        data["card_link"] = given["card_link"]


def _set_content(data: Json, element_id: str, content: str) -> None:
    element = find(data, element_id)
    if element is not None:
        element["content"] = content


def _insert(data: Json, where: str, target: str | None, elements: list[Json]) -> None:
    if where in ("insert_before", "insert_after"):
        place = siblings(data, target or "")
        if place is None:
            raise Refusal(300315, f"elements beside element {target}, which the card does not have")
        owner, index = place
        at = index + (where == "insert_after")
        owner[at:at] = elements
    elif where == "append":
        container = data.setdefault("body", {}) if not target else find(data, target)
        if container is None or (target and "elements" not in container):
            raise Refusal(300315, f"elements appended to {target}, which is not a container of the card")
        container.setdefault("elements", []).extend(elements)
    else:
        raise Refusal(99992402, f"elements of type {where}: insert_before, insert_after or append")


def _replace(data: Json, element_id: str, element: Json) -> None:
    place = siblings(data, element_id)
    if place is None:
        raise Refusal(300121, f"element {element_id} to be replaced is not in the card")
    owner, index = place
    owner[index] = element


def _patch(data: Json, element_id: str, partial: Json) -> None:
    element = find(data, element_id)
    if element is None:
        raise Refusal(300313, f"element {element_id} to be patched is not in the card")
    if partial.get("tag", element["tag"]) != element["tag"]:
        raise Refusal(300312, f"element {element_id} cannot become a {partial['tag']}")
    element.update(partial)


def _delete(data: Json, element_id: str) -> None:
    place = siblings(data, element_id)
    if place is None:
        raise Refusal(300314, f"element {element_id} to be deleted is not in the card")
    owner, index = place
    del owner[index]


def _batch_change(action: Json) -> Change:
    params: Any = action.get("params")
    if not isinstance(params, dict):
        raise Refusal(99992402, "a batch action without params")
    fields = Fields(params)
    match action.get("action"):
        case "partial_update_setting":
            settings = fields.object("settings")
            return lambda data: _merge_settings(data, settings)
        case "add_elements":
            where, target = fields.text("type", 20), fields.optional_text("target_element_id", 20)
            elements = fields.objects("elements")
            return lambda data: _insert(data, where, target, elements)
        case "delete_elements":
            ids = [str(one) for one in params.get("element_ids") or []]
            if not ids:
                raise Refusal(99992402, "delete_elements without element_ids")

            def delete(data: Json) -> None:
                for one in ids:
                    _delete(data, one)

            return delete
        case "partial_update_element":
            element_id, partial = fields.text("element_id", 20), fields.object("partial_element")
            return lambda data: _patch(data, element_id, partial)
        case "update_element":
            element_id, element = fields.text("element_id", 20), fields.object("element")
            return lambda data: _replace(data, element_id, element)
        case other:
            raise Refusal(99992402, f"unknown batch action {other}")
