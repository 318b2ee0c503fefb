"""The IM APIs: messages, pictures and files, reactions, chats and people."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any, NoReturn

from channels.clock import Clock
from tests.emulators.feishu.cardkit import Card, CardKit
from tests.emulators.feishu.cards import check, mentions_everybody, parse
from tests.emulators.feishu.contents import TYPES, check_media, check_post, check_text, read_content, readable
from tests.emulators.feishu.fields import Fields
from tests.emulators.feishu.limits import EMOJI_TYPES, Limits
from tests.emulators.feishu.refusals import CardFault, Json, Refusal
from tests.emulators.feishu.world import Blob, Chat, Message, Person, Reaction, Version, World

FILE_TYPES = ("opus", "mp4", "pdf", "doc", "xls", "ppt", "stream")
_PICTURES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM", b"RIFF", b"\x00\x00\x01\x00", b"II*\x00", b"MM\x00*")


class Messages:
    """The messages of the tenant as the bot's APIs see them. Every method raises `Refusal` as the platform would."""

    def __init__(
        self, clock: Clock, limits: Limits, world: World, cardkit: CardKit, on_broken: Callable[[str], None]
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._world = world
        self._cardkit = cardkit
        self._broken = on_broken
        self._sent: dict[str, tuple[float, str, Message]] = {}  # uuid → (time, what was sent, the message)
        self._told: Counter[str] = Counter()
        self.on_bot_reaction: Callable[[Message, Reaction], None] = lambda _message, _reaction: None

    # -- sending

    def chat_for(self, args: Json) -> Chat:
        """The chat that a send or a reply goes to."""
        if "message_id" in args:
            return self._world.chats[self._message(args).chat_id]
        fields = Fields(args)
        id_type, receive_id = fields.text("receive_id_type"), fields.text("receive_id")
        if id_type == "chat_id":
            chat = self._world.chats.get(receive_id)
            if chat is None:
                raise Refusal(230034, f"unknown chat {receive_id}")
            return chat
        if id_type not in ("open_id", "union_id", "user_id"):
            raise Refusal(99992402, f"receive_id_type {id_type} is not served here")
        for person in self._world.people.values():
            if person.ids()[id_type] == receive_id:
                return self._world.p2p(person)
        raise Refusal(230034, f"nobody has the {id_type} {receive_id}")

    def create(self, args: Json) -> Json:
        return self._send(args, self.chat_for(args), None)

    def reply(self, args: Json) -> Json:
        parent = self._living(args)
        chat = self._world.chats[parent.chat_id]
        if args.get("reply_in_thread") is True and not chat.has_topics:
            msg = "The group to which the message belongs does not support reply in thread."
            raise Refusal(230071, f"chat {chat.chat_id} has no topics", broken=False, msg=msg)
        return self._send(args, chat, parent)

    def _send(self, args: Json, chat: Chat, parent: Message | None) -> Json:
        fields = Fields(args)
        msg_type, content = fields.text("msg_type"), fields.text("content")
        uuid = fields.optional_text("uuid", self._limits.message_uuid_chars)
        self._may_speak(chat)
        now = self._clock.now()
        what = json.dumps([chat.chat_id, args.get("message_id"), msg_type, content, args.get("reply_in_thread")])
        if uuid and (earlier := self._sent.get(uuid)) and now - earlier[0] < self._limits.message_uuid_seconds:
            if earlier[1] != what:
                self._broken(f"uuid {uuid} was used for another message within the hour")
            return message_json(earlier[2], self._world)
        card = self._check(msg_type, content)
        self._audit(content if card is None else json.dumps(card.data, ensure_ascii=False))
        message = Message(self._world.ids.hex("om_"), chat.chat_id, self._world.bot, msg_type, content, now, now)
        place(message, chat, parent, in_thread=args.get("reply_in_thread") is True, world=self._world)
        if card is not None:
            message.card_id = card.card_id
            self._cardkit.send(card, message.message_id)
        else:
            message.versions.append(Version(now, readable(msg_type, json.loads(content), [])))
        self._world.messages[message.message_id] = message
        if uuid:
            self._sent[uuid] = (now, what, message)
        return message_json(message, self._world)

    def _may_speak(self, chat: Chat) -> None:
        if not chat.bot_in:
            self._refuse_gone(230002, f"chat {chat.chat_id}", "the bot was removed from the chat", patience=10)
        for person in self._world.people.values():
            if chat.kind == "p2p" and person.open_id in chat.members and not person.available:
                why = f"{person.name} is outside the app's range"
                self._refuse_gone(230013, f"person {person.open_id}", why, patience=10)

    def _audit(self, content: str) -> None:
        """Data loss prevention: what a message says must not leave."""
        if any(word in content for word in self._world.audited):
            raise Refusal(230028, "the message says what must not be said", broken=False)

    def _check(self, msg_type: str, text: str) -> Card | None:
        """Check what is sent; for a card, the card it shows."""
        if msg_type not in TYPES:
            raise Refusal(230001, f"unknown msg_type {msg_type}")
        content = read_content(text, msg_type, self._limits)
        everybody = False
        match msg_type:
            case "text":
                everybody = check_text(content)
            case "post":
                everybody = check_post(content, self._world)
            case "interactive":
                return self._card_to_send(content, text)
            case "image" | "file" | "audio" | "media":
                check_media(content, msg_type, self._world)
        if everybody:
            self._broken(f"a {msg_type} message mentions everybody")
        return None

    def _card_to_send(self, content: Json, text: str) -> Card:
        if content.get("type") != "card":
            return self._cardkit.add(self._inline_card(text), is_entity=False)
        card_id = str((content.get("data") or {}).get("card_id"))
        card = self._cardkit.cards.get(card_id)
        if card is None or not card.is_entity:
            raise CardFault(11310, "cardid is invalid", card_id).as_message()
        if card.message_id:
            raise CardFault(200780, "a card entity can be sent only once", card_id).as_message()
        if self._clock.now() >= card.created + self._limits.card_seconds:
            raise CardFault(200750, "the card entity has expired", card_id).as_message()
        return card

    def _inline_card(self, text: str) -> Json:
        try:
            card = parse(text)
            check(card, self._world, self._limits)
        except CardFault as fault:
            raise fault.as_message() from None
        if mentions_everybody(card):
            self._broken("a card mentions everybody (<at id=all>)")
        return card

    # -- changing

    def patch(self, args: Json) -> Json:
        message = self._own(args)
        if message.msg_type != "interactive":
            raise Refusal(230054, f"message {message.message_id} is a {message.msg_type}, not a card")
        if self._clock.now() >= message.created + self._limits.message_patch_seconds:
            self._refuse_gone(230031, f"message {message.message_id}", "the card was sent more than 14 days ago")
        text = Fields(args).text("content")
        read_content(text, "interactive", self._limits)
        new = self._inline_card(text)
        self._audit(text)
        card = self._cardkit.cards[message.card_id]
        for when, data in (("before", card.data), ("after", new)):
            if (data.get("config") or {}).get("update_multi") is not True:
                self._broken(f"patched card {message.message_id} does not say update_multi: true {when} the update")
        message.updated = self._clock.now()
        self._cardkit.put(card, new)
        return {}

    def update(self, args: Json) -> Json:
        message = self._own(args)
        fields = Fields(args)
        msg_type, text = fields.text("msg_type"), fields.text("content")
        if msg_type not in ("text", "post") or message.msg_type not in ("text", "post"):
            raise Refusal(230054, f"message {message.message_id}: only text and post can be edited")
        window = self._limits.message_edit_seconds
        if window is not None and self._clock.now() >= message.created + window:
            self._refuse_gone(230075, f"edit {message.message_id}", "the time for edits is over")
        if message.edits >= self._limits.message_edits:
            raise Refusal(230072, f"message {message.message_id} was edited {message.edits} times already")
        self._check(msg_type, text)
        self._audit(text)
        message.edits += 1
        message.msg_type, message.content, message.updated = msg_type, text, self._clock.now()
        message.versions.append(Version(message.updated, readable(msg_type, json.loads(text), [])))
        return message_json(message, self._world)

    def delete(self, args: Json) -> Json:
        message = self._living(args)
        if not message.sender.is_bot:
            raise Refusal(230026, f"message {message.message_id} is not the bot's")
        message.gone = "recalled"
        return {}

    def get(self, args: Json) -> Json:
        message = self._message(args)
        found = [message, *(self._world.messages[one] for one in message.children)]
        items = [message_json(one, self._world) for one in found]
        for item in items[1:]:
            item["upper_message_id"] = message.message_id
        return {"items": items}

    # -- looking up

    def _message(self, args: Json) -> Message:
        message_id = Fields(args).text("message_id")
        message = self._world.messages.get(message_id)
        if message is None:
            raise Refusal(230001, f"unknown message {message_id}")
        return message

    def _living(self, args: Json) -> Message:
        message = self._message(args)
        if message.gone:
            code = 230011 if message.gone == "recalled" else 230110
            self._refuse_gone(code, f"message {message.message_id}", f"the message was {message.gone}")
        return message

    def _own(self, args: Json) -> Message:
        message = self._living(args)
        if not message.sender.is_bot:
            raise Refusal(230071, f"message {message.message_id} is not the bot's")
        self._may_speak(self._world.chats[message.chat_id])
        return message

    def _refuse_gone(self, code: int, what: str, why: str, *, patience: int = 1) -> NoReturn:
        """Refuse what the client could not know; asking for the same again, past `patience`, is its own fault."""
        key = f"{code} {what}"
        again = self._told[key] >= patience
        self._told[key] += 1
        raise Refusal(code, f"{what}: {why}" + (", as it was told" if again else ""), broken=again)

    # -- pictures and files

    def create_image(self, args: Json) -> Json:
        if Fields(args).text("image_type") not in ("message", "avatar"):
            raise Refusal(234001, f"image_type {args['image_type']}")
        data = _upload(args, "image", self._limits.image_bytes)
        if not data.startswith(_PICTURES):
            raise Refusal(234011, f"an upload that begins with {data[:8]!r}")
        return {"image_key": self._world.add_blob("image", "image", data, by_bot=True).key}

    def create_file(self, args: Json) -> Json:
        fields = Fields(args)
        kind, name = fields.text("file_type"), fields.text("file_name")
        if kind not in FILE_TYPES:
            raise Refusal(234001, f"file_type {kind}")
        data = _upload(args, "file", self._limits.file_bytes)
        return {"file_key": self._world.add_blob(kind, name, data, by_bot=True).key}

    def resource(self, args: Json) -> Blob:
        message = self._living(args)
        fields = Fields(args)
        key, kind = fields.text("file_key"), fields.text("type")
        blob = self._world.blobs.get(key)
        # What is in a bundle of forwarded messages is the bundle's.
        holders = [message, *(self._world.messages[one] for one in message.children)]
        is_held = any(key in one.content and one.msg_type != "sticker" for one in holders)
        if blob is None or not is_held:
            raise Refusal(234003, f"resource {key} is not one of message {message.message_id}")
        if kind != ("image" if blob.kind == "image" else "file"):
            raise Refusal(234001, f"resource {key} is not of type {kind}")
        return blob

    # -- reactions

    def create_reaction(self, args: Json) -> Json:
        message = self._reacted(args)
        emoji = str((args.get("reaction_type") or {}).get("emoji_type"))
        if emoji not in EMOJI_TYPES:
            raise Refusal(231001, f"emoji_type {emoji}")
        bot = self._world.bot
        for reaction in message.reactions:
            if reaction.by_bot and reaction.emoji == emoji:
                return _reaction_json(reaction, self._world)
        reaction = Reaction(self._world.ids.hex("r_", 24), emoji, bot.name, True, self._clock.now())
        message.reactions.append(reaction)
        self.on_bot_reaction(message, reaction)
        return _reaction_json(reaction, self._world)

    def delete_reaction(self, args: Json) -> Json:
        message = self._reacted(args)
        for reaction in message.reactions:
            if reaction.reaction_id == args["reaction_id"] and reaction.by_bot:
                message.reactions.remove(reaction)
                return _reaction_json(reaction, self._world)
        raise Refusal(231011, f"message {message.message_id} has no reaction {args['reaction_id']} of the bot")

    def list_reactions(self, args: Json) -> Json:
        wanted = args.get("reaction_type")
        items = [r for r in self._reacted(args).reactions if wanted in (None, r.emoji)]
        return {"items": [_reaction_json(r, self._world) for r in items], "has_more": False, "page_token": ""}

    def _reacted(self, args: Json) -> Message:
        message = self._world.messages.get(Fields(args).text("message_id"))
        if message is None:
            raise Refusal(231003, f"unknown message {args['message_id']}")
        if message.gone:
            self._refuse_gone(231003, f"reactions of {message.message_id}", f"the message was {message.gone}")
        return message

    # -- chats and people

    def chat(self, args: Json) -> Json:
        chat = self._world.chats.get(Fields(args).text("chat_id"))
        if chat is None:
            raise Refusal(232006, f"unknown chat {args['chat_id']}")
        if not chat.bot_in:
            self._refuse_gone(232011, f"chat {chat.chat_id}", "the bot was removed from the chat")
        return {
            "name": chat.name,
            "description": "",
            "chat_mode": chat.kind,
            "chat_type": "private",
            "group_message_type": "thread" if chat.kind == "topic" else "chat",
            "external": False,
            "tenant_key": self._world.tenant_key,
            "user_count": str(len(chat.members)),
            "bot_count": "1",
        }

    def user(self, args: Json) -> Json:
        id_type = args.get("user_id_type") or "open_id"
        for person in self._world.people.values():
            if person.ids().get(str(id_type)) == args["user_id"]:
                return {"user": {**person.ids(), "name": person.name, "en_name": person.name}}
        raise Refusal(41050, f"nobody has the {id_type} {args['user_id']}")


def place(message: Message, chat: Chat, parent: Message | None, *, in_thread: bool, world: World) -> None:
    """Set a message's root, parent and topic by what it replies to."""
    if parent is not None:
        if in_thread and not parent.thread_id:
            parent.thread_id = world.ids.hex("omt_", 12)
        message.thread_id = parent.thread_id
        message.root_id = parent.root_id or parent.message_id
        # In a topic everything replies to its root.
        message.parent_id = message.root_id if message.thread_id else parent.message_id
    elif chat.kind == "topic":
        message.thread_id = world.ids.hex("omt_", 12)


def message_json(message: Message, world: World) -> Json:
    """A message in the form of the IM APIs. The content of a card 2.0 is not given back."""
    sender: Person = message.sender
    content = message.content
    if message.msg_type == "interactive":
        content = json.dumps(
            {"title": "", "elements": [[{"tag": "text", "text": "请升级至最新版本客户端，以查看内容"}]]}
        )
    item: Json = {
        "message_id": message.message_id,
        "msg_type": message.msg_type,
        "create_time": str(int(message.created * 1000)),
        "update_time": str(int(message.updated * 1000)),
        "deleted": bool(message.gone),
        "updated": message.edits > 0,
        "chat_id": message.chat_id,
        "sender": {
            "id": world.app_id if sender.is_bot else sender.open_id,
            "id_type": "app_id" if sender.is_bot else "open_id",
            "sender_type": "app" if sender.is_bot else "user",
            "tenant_key": world.tenant_key,
        },
        "body": {"content": content},
    }
    ids = {"root_id": message.root_id, "parent_id": message.parent_id, "thread_id": message.thread_id}
    item.update({key: value for key, value in ids.items() if value})
    if message.mentions:
        item["mentions"] = [{**m, "id": m["id"]["open_id"], "id_type": "open_id"} for m in message.mentions]
    return item


def _reaction_json(reaction: Reaction, world: World) -> Json:
    operator = world.bot if reaction.by_bot else world.person(reaction.operator)
    return {
        "reaction_id": reaction.reaction_id,
        "operator": {
            "operator_id": world.app_id if reaction.by_bot else operator.open_id,
            "operator_type": "app" if reaction.by_bot else "user",
        },
        "action_time": str(int(reaction.at * 1000)),
        "reaction_type": {"emoji_type": reaction.emoji},
    }


def _upload(args: Json, name: str, longest: int) -> bytes:
    data: Any = args.get(name)
    if not isinstance(data, bytes):
        raise Refusal(234001, f"no {name} in the form")
    if not data:
        raise Refusal(234010, "an empty upload")
    if len(data) > longest:
        raise Refusal(234006, f"{len(data)} bytes, {longest} are allowed")
    return data
