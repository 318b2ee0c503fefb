"""What people do in the tenant: write, reply, recall, press, react, move the bot. Each returns what came of it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.emulators.feishu.cards import check
from tests.emulators.feishu.events import Event, Outcome, mention
from tests.emulators.feishu.messages import place
from tests.emulators.feishu.picture import Button, Shown, shown
from tests.emulators.feishu.refusals import CardFault, Json
from tests.emulators.feishu.stage import Stage
from tests.emulators.feishu.world import Chat, Message, Person, Reaction

Who = Person | str
Node = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Pressed:
    """What the person saw after pressing: `failed` carries the platform's code, 0 when all went well."""

    outcome: Outcome
    toast: Json | None = None
    card_updated: bool = False
    failed: int = 0


class Actions(Stage):
    """People are named by name or id; a name that is new makes a new person. Times are on the clock."""

    # -- the scene

    def add_person(self, name: str) -> str:
        """A person of the tenant; their open_id."""
        return self.world.add_person(name).open_id

    def add_group(
        self, name: str, *members: Who, topic: bool = False, bot_in: bool = True, has_topics: bool = True
    ) -> str:
        """A group with these members (and the bot); its chat_id. `has_topics`: its messages can be answered in one."""
        people = {self.world.person(member).open_id for member in members}
        kind = "topic" if topic else "group"
        return self.world.add_chat(name, kind, people, bot_in=bot_in, has_topics=has_topics).chat_id

    def p2p(self, who: Who) -> str:
        """The chat_id of a person's private chat with the bot."""
        return self.world.p2p(self.world.person(who)).chat_id

    # -- messages

    async def say(
        self,
        who: Who,
        chat_id: str,
        text: str,
        *,
        mention_all: bool = False,
        reply_to: str | None = None,
        in_thread: bool = False,
    ) -> str:
        """Write a text; "@Name" in it mentions that person, or the bot. Its message_id."""
        marked, mentions = self._mark_mentions(text)
        if mention_all:
            marked = f"@_all {marked}"
        return self._write(who, chat_id, "text", {"text": marked}, mentions, reply_to, in_thread)

    async def post(
        self,
        who: Who,
        chat_id: str,
        paragraphs: Sequence[str | Sequence[Node]],
        *,
        title: str = "",
        reply_to: str | None = None,
        in_thread: bool = False,
    ) -> str:
        """Write a rich text of paragraphs: strings (with "@Name"), or lists of nodes as the API has them."""
        mentions: list[Json] = []
        content = [self._paragraph(paragraph, mentions) for paragraph in paragraphs]
        return self._write(who, chat_id, "post", {"title": title, "content": content}, mentions, reply_to, in_thread)

    async def image(
        self, who: Who, chat_id: str, data: bytes, *, reply_to: str | None = None, in_thread: bool = False
    ) -> str:
        key = self.world.add_blob("image", "image", data, by_bot=False).key
        return self._write(who, chat_id, "image", {"image_key": key}, [], reply_to, in_thread)

    async def file(
        self, who: Who, chat_id: str, name: str, data: bytes, *, reply_to: str | None = None, in_thread: bool = False
    ) -> str:
        key = self.world.add_blob("stream", name, data, by_bot=False).key
        return self._write(who, chat_id, "file", {"file_key": key, "file_name": name}, [], reply_to, in_thread)

    async def audio(self, who: Who, chat_id: str, data: bytes, seconds: float, *, reply_to: str | None = None) -> str:
        key = self.world.add_blob("opus", "audio.opus", data, by_bot=False).key
        content = {"file_key": key, "duration": int(seconds * 1000)}
        return self._write(who, chat_id, "audio", content, [], reply_to, False)

    async def media(
        self, who: Who, chat_id: str, name: str, data: bytes, cover: bytes, *, reply_to: str | None = None
    ) -> str:
        """Send a video with its cover picture."""
        content = {
            "file_key": self.world.add_blob("mp4", name, data, by_bot=False).key,
            "image_key": self.world.add_blob("image", "cover", cover, by_bot=False).key,
            "file_name": name,
            "duration": 2000,
        }
        return self._write(who, chat_id, "media", content, [], reply_to, False)

    async def sticker(self, who: Who, chat_id: str) -> str:
        key = self.world.add_blob("sticker", "sticker", b"sticker", by_bot=False).key
        return self._write(who, chat_id, "sticker", {"file_key": key}, [], None, False)

    async def share_chat(self, who: Who, chat_id: str, shared_chat_id: str) -> str:
        return self._write(who, chat_id, "share_chat", {"chat_id": shared_chat_id}, [], None, False)

    async def merge_forward(self, who: Who, chat_id: str, message_ids: Sequence[str]) -> str:
        """Forward several messages as one; the bot finds them with the get API."""
        content = {"content": "Merged and Forwarded Message"}
        return self._write(who, chat_id, "merge_forward", content, [], None, False, children=list(message_ids))

    async def send_raw(self, who: Who, chat_id: str, msg_type: str, content: Mapping[str, Any]) -> str:
        """A message of any type, such as one that the bridge has never heard of."""
        return self._write(who, chat_id, msg_type, dict(content), [], None, False)

    async def recall(self, who: Who, message_id: str) -> None:
        message = self._message(message_id)
        if message.sender is not self.world.person(who):
            raise AssertionError("people can recall their own messages only")
        message.gone = "recalled"
        self._post("im.message.recalled_v1", lambda: self.events_of.recalled(message))

    async def react(self, who: Who, message_id: str, emoji: str = "THUMBSUP") -> None:
        message = self._message(message_id)
        reaction = Reaction(self.world.ids.hex("r_", 24), emoji, self.world.person(who).name, False, self.clock.now())
        message.reactions.append(reaction)
        self._post("im.message.reaction.created_v1", lambda: self.events_of.reacted(message, reaction))

    # -- cards

    async def press(self, who: Who, message_id: str, button: str, form: Mapping[str, Any] | None = None) -> Pressed:
        """Press a button, found by its text, name or element_id; a submit button sends what `form` fills in."""
        message = self._message(message_id)
        picture = shown(message, self.world, self.cardkit)
        found = self._button(picture, button)
        if found.disabled or found.value is None:
            raise AssertionError(f"button {button!r} does nothing: {found}")
        action: Json = {"tag": "button", "value": found.value}
        if found.name:
            action["name"] = found.name
        if found.form:
            action["form_value"] = self._filled(picture, found.form, form or {})
        return await self._call_back(message, who, action)

    async def type_input(self, who: Who, message_id: str, name: str, text: str) -> Pressed:
        """Fill in an input that stands outside of any form, and send it."""
        message = self._message(message_id)
        picture = shown(message, self.world, self.cardkit)
        for field in picture.inputs:
            if name in (field.name, field.element_id) and not field.form:
                action = {"tag": "input", "name": field.name, "value": field.value or {}, "input_value": text}
                return await self._call_back(message, who, action)
        raise AssertionError(f"no input {name!r} outside of forms in {picture}")

    # -- the bot's place

    async def add_bot(self, who: Who, chat_id: str) -> None:
        self.world.chats[chat_id].bot_in = True
        operator = self.world.person(who)
        self._post("im.chat.member.bot.added_v1", lambda: self.events_of.bot_moved(chat_id, operator, added=True))

    async def remove_bot(self, who: Who, chat_id: str) -> None:
        self.world.chats[chat_id].bot_in = False
        operator = self.world.person(who)
        self._post("im.chat.member.bot.deleted_v1", lambda: self.events_of.bot_moved(chat_id, operator, added=False))

    # -- inside

    def _write(
        self,
        who: Who,
        chat_id: str,
        msg_type: str,
        content: Json,
        mentions: list[Json],
        reply_to: str | None,
        in_thread: bool,
        children: list[str] | None = None,
    ) -> str:
        person, chat, now = self.world.person(who), self.world.chats[chat_id], self.clock.now()
        chat.members.add(person.open_id)
        text = json.dumps(content, ensure_ascii=False)
        message = Message(self.world.ids.hex("om_"), chat_id, person, msg_type, text, now, now, mentions=mentions)
        message.children = children or []
        parent = self._message(reply_to) if reply_to else None
        place(message, chat, parent, in_thread=in_thread, world=self.world)
        self.world.messages[message.message_id] = message
        if self._hears(chat, message):
            self._post("im.message.receive_v1", lambda: self.events_of.received(message))
        return message.message_id

    def _hears(self, chat: Chat, message: Message) -> bool:
        """Which messages the platform shows the app depends on its scopes."""
        if not chat.bot_in:
            return False
        if chat.kind == "p2p":
            return self.scopes.allow(("im:message.p2p_msg:readonly", "im:message.p2p_msg"))
        if self.scopes.allow(("im:message.group_msg", "im:message.group_msg:readonly")):
            return True
        mentioned = any(one["id"]["open_id"] == self.world.bot.open_id for one in message.mentions)
        return mentioned and self.scopes.allow(("im:message.group_at_msg:readonly", "im:message.group_at_msg"))

    def _mark_mentions(self, text: str, mentions: list[Json] | None = None) -> tuple[str, list[Json]]:
        mentions = [] if mentions is None else mentions
        people = sorted((*self.world.people.values(), self.world.bot), key=lambda p: -len(p.name))
        names = {person.name: person for person in reversed(people)}
        pattern = re.compile("|".join(re.escape(f"@{person.name}") for person in people))

        def mark(found: re.Match[str]) -> str:
            entry = mention(len(mentions) + 1, names[found.group()[1:]], self.world.tenant_key)
            mentions.append(entry)
            return str(entry["key"])

        return pattern.sub(mark, text), mentions

    def _paragraph(self, paragraph: str | Sequence[Node], mentions: list[Json]) -> list[Json]:
        if not isinstance(paragraph, str):
            return [dict(node) for node in paragraph]
        marked, _ = self._mark_mentions(paragraph, mentions)
        nodes: list[Json] = []
        for piece in re.split(r"(@_user_\d+)", marked):
            if piece.startswith("@_user_"):
                name = next(one["name"] for one in mentions if one["key"] == piece)
                nodes.append({"tag": "at", "user_id": piece, "user_name": name, "style": []})
            elif piece:
                nodes.append({"tag": "text", "text": piece, "style": []})
        return nodes

    def _button(self, picture: Shown, button: str) -> Button:
        for found in picture.buttons:
            if button in (found.text, found.name, found.element_id):
                return found
        raise AssertionError(f"no button {button!r}, only {[b.text for b in picture.buttons]}")

    def _filled(self, picture: Shown, form: str, given: Mapping[str, Any]) -> Json:
        fields = [field for field in picture.inputs if field.form == form]
        values = {field.name: given.get(field.name, field.default) for field in fields}
        values.update(given)
        if missing := [field.name for field in fields if field.required and not values[field.name]]:
            raise AssertionError(f"the client does not send the form without {missing}")
        return values

    async def _call_back(self, message: Message, who: Who, action: Json) -> Pressed:
        card = self.cardkit.cards[message.card_id]
        if self.clock.now() >= message.created + self.limits.card_seconds:
            raise AssertionError("a card of more than 14 days cannot be pressed")
        event = self.events_of.card_action(message, self.world.person(who), action)
        if event.event_type not in self.subscriptions:
            return Pressed(Outcome.UNDELIVERABLE, failed=200340)
        self.deliverer.events.append(event)
        card.interactions += 1
        try:
            attempt = await self.deliverer.try_once(event)
        finally:
            card.interactions -= 1
        if attempt.outcome is Outcome.ACKED:
            return self._take_answer(message, event, attempt.answer or {})
        if attempt.outcome in (Outcome.SILENT, Outcome.REFUSED):
            self.break_rule(f"a card callback was {attempt.outcome}: it needs an answer within 3 s")
        return Pressed(attempt.outcome, failed=200341)

    def _take_answer(self, message: Message, event: Event, ack: Json) -> Pressed:
        """Check a callback's answer and do what it asks for."""
        answer = self.callback_answer(ack)
        toast, card = answer.get("toast"), answer.get("card")
        wrong = sorted(set(answer) - {"toast", "card"})
        if toast is not None and (
            not isinstance(toast, dict) or toast.get("type", "info") not in ("info", "success", "error", "warning")
        ):
            wrong.append(f"toast {toast}")
        if wrong:
            self.break_rule(f"the answer to card callback {event.event_id} has {wrong}")
            return Pressed(Outcome.ACKED, failed=200672)
        if card is None:
            return Pressed(Outcome.ACKED, toast)
        mine = self.cardkit.cards[message.card_id]
        if self.cardkit.is_streaming(mine):
            self.break_rule("a card callback's answer cannot update a card that streams")
            return Pressed(Outcome.ACKED, toast, failed=200810)
        try:
            if not isinstance(card, dict) or card.get("type") != "raw" or not isinstance(card.get("data"), dict):
                raise CardFault(200621, "card must have the type raw and an object as data", str(card)[:80])
            check(card["data"], self.world, self.limits)
        except CardFault as fault:
            self.break_rule(f"the card in a callback's answer: {fault}")
            return Pressed(Outcome.ACKED, toast, failed=fault.code)
        self.cardkit.put(mine, card["data"])
        return Pressed(Outcome.ACKED, toast, card_updated=True)
