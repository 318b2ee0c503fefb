"""What every method of the API works with: the world, the journal, the courier, and one call's arguments."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from channels.clock import Clock
from tests.emulators.journal import Journal
from tests.emulators.slack import rules
from tests.emulators.slack.blocks import JsonObject
from tests.emulators.slack.deliveries import Courier, Delivery, DeliveryKind
from tests.emulators.slack.errors import Refusal
from tests.emulators.slack.shapes import event_payload
from tests.emulators.slack.text import broadcasts
from tests.emulators.slack.world import SCOPE_PREFIX, Channel, ChannelKind, Message, User, Workspace, World

MESSAGE_SUBSCRIPTION = {kind.value: f"message.{prefix}" for kind, prefix in SCOPE_PREFIX.items()}


@dataclass(slots=True)
class Settings:
    """What a test may turn: how this Slack and this app's configuration differ from the ordinary."""

    sessions: bool = True
    """agents.sessions.* exists (otherwise unknown_method)."""
    reduced_history: bool = False
    """conversations.history and .replies as commercial apps outside the Marketplace get them."""
    stream_seconds: float = rules.STREAM_SECONDS
    stream_bytes: int = rules.STREAM_BYTES
    upload_seconds: float = 0.0
    """How long the bytes of a file take, once they are all there, to be acknowledged."""
    subscriptions: frozenset[str] = frozenset(rules.EVENT_TYPES)


class Args:
    """The arguments of one call, from JSON or from a form."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self.values = values

    def text(self, name: str) -> str:
        """A string; "" when it is absent."""
        value = self.values.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise Refusal(
                "invalid_arguments", broken=f"{name} is not a string", messages=[f"[ERROR] {name}: not a string"]
            )
        return value

    def need(self, name: str) -> str:
        """A string that must be there."""
        value = self.text(name)
        if not value:
            complaint = f"missing required field: {name}"
            raise Refusal("invalid_arguments", broken=complaint, messages=[f"[ERROR] {complaint}"])
        return value

    def flag(self, name: str) -> bool:
        return str(self.values.get(name, "")).lower() in ("1", "true")

    def whole(self, name: str, default: int) -> int:
        value = self.values.get(name)
        if value is None:
            return default
        try:
            return int(str(value))
        except ValueError:
            raise Refusal("invalid_arguments", broken=f"{name} is not a number") from None

    def structure(self, name: str, error: str) -> object:
        """A list or an object, which a form carries as a JSON string; None when it is absent."""
        value = self.values.get(name)
        if not isinstance(value, str):
            return value
        try:
            parsed: object = json.loads(value)
        except ValueError:
            raise Refusal(error, broken=f"{name} is not JSON") from None
        return parsed


@dataclass(frozen=True, slots=True)
class ApiCall:
    """One call that has passed authentication and rates."""

    method: str
    args: Args
    workspace: Workspace
    at: float
    token: str = "bot"

    @property
    def bot(self) -> User:
        return self.workspace.bot


Handler = Callable[[ApiCall], JsonObject]


class Core:
    """The parts of the emulator that its methods share."""

    def __init__(self, clock: Clock, world: World, journal: Journal, courier: Courier, settings: Settings) -> None:
        self.clock = clock
        self.world = world
        self.journal = journal
        self.courier = courier
        self.settings = settings

    def break_rule(self, rule: str) -> None:
        self.journal.break_rule(self.clock.now(), rule)

    # --- looking up ----------------------------------------------------------------------------------------------

    def channel(self, call: ApiCall, name: str = "channel", *, writing: bool = False) -> Channel:
        """The conversation a call names, as far as the bot may see it; `writing` refuses archived ones too."""
        channel = self.world.channels.get(call.args.need(name))
        if channel is None or channel.team != call.workspace.id:
            raise Refusal("channel_not_found")
        if call.bot.id not in channel.members:
            raise Refusal("not_in_channel" if channel.kind is ChannelKind.PUBLIC else "channel_not_found")
        if writing and channel.archived:
            raise Refusal("is_archived")
        return channel

    def own_message(self, call: ApiCall, channel: Channel, *, not_own: str) -> Message:
        """The bot's message that `ts` names; `not_own` is the error for somebody else's."""
        message = channel.messages.get(call.args.need("ts"))
        if message is None or message.deleted or message.visible_to:
            raise Refusal("message_not_found")
        if message.bot_id != call.bot.bot_id:
            raise Refusal(not_own, broken=f"{call.method} of a message that is not the app's own")
        return message

    def thread_root(self, call: ApiCall, channel: Channel, name: str = "thread_ts") -> str | None:
        """The root of the thread to post into; None for top level, or when the root has been deleted meanwhile."""
        ts = call.args.text(name)
        if not ts:
            return None
        seconds, _, micros = ts.partition(".")
        if not (seconds.isdigit() and micros.isdigit() and len(micros) == 6):
            complaint = f"{ts} is not a valid thread_ts"
            raise Refusal("invalid_thread_ts", broken=complaint, messages=[f"[ERROR] {complaint}"])
        root = channel.messages.get(ts)
        if root is None:
            self.break_rule(f"{call.method} into a thread that never was")
            return None
        if root.thread_ts:
            self.break_rule(f"{call.method} with the ts of a reply as thread_ts")
            return root.thread_ts
        if root.reply_refusal:
            raise Refusal(root.reply_refusal)
        if root.deleted and not channel.replies(ts):
            return None
        return ts

    # --- effects -------------------------------------------------------------------------------------------------

    def judge(self, where: str, texts: Iterable[str]) -> None:
        """Hold live broadcast mentions in what the bot sends against the client."""
        for text in texts:
            for mention in broadcasts(text):
                self.break_rule(f"{where} carries a live broadcast mention {mention}")

    def emit(self, workspace: Workspace, event: JsonObject) -> Delivery | None:
        """Deliver an event that the app subscribes to; None for another."""
        kind = MESSAGE_SUBSCRIPTION[event["channel_type"]] if event["type"] == "message" else event["type"]
        if kind not in self.settings.subscriptions:
            return None
        payload = event_payload(
            self.world, workspace, event, self.courier.event_id(), int(float(event.get("event_ts", self.clock.now())))
        )
        return self.courier.send(DeliveryKind.EVENT, payload)
