"""The emulator's parts put together, before there is a server around them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping

from channels.clock import Clock
from tests.emulators.feishu.cardkit import CardKit
from tests.emulators.feishu.delivery import Deliverer
from tests.emulators.feishu.events import Attempt, Event, Events
from tests.emulators.feishu.gate import Rates, Scopes, Tokens
from tests.emulators.feishu.limits import DEFAULT_SCOPES, DEFAULT_SUBSCRIPTIONS, RATES, Limits, Rate
from tests.emulators.feishu.longconn import ClientConfig, LongConnection
from tests.emulators.feishu.messages import Messages
from tests.emulators.feishu.refusals import Json
from tests.emulators.feishu.webhook import Webhook
from tests.emulators.feishu.world import Message, World
from tests.emulators.journal import Faults, Journal


class Stage:
    """Owns the state: the world, the cards, the journal, the events."""

    def __init__(
        self,
        clock: Clock,
        *,
        app_id: str = "cli_emulated",
        app_secret: str = "emulated-app-secret",
        bot_name: str = "Bridge",
        encrypt_key: str = "emulated-encrypt-key",
        verification_token: str = "emulated-verification-token",
        limits: Limits | None = None,
        rates: Mapping[str, tuple[Rate, ...]] = RATES,
        jitter: float = 0.0,
        scopes: Iterable[str] = DEFAULT_SCOPES,
        client_config: ClientConfig | None = None,
        seed: int | None = None,
    ) -> None:
        """`jitter` (seconds on the clock) shortens every rate window and closed time: with a clock that runs fast, the
        milliseconds between a client's pacing and the server's seeing are many."""
        self.clock = clock
        self.app_id = app_id
        self.app_secret = app_secret
        self.encrypt_key = encrypt_key
        self.verification_token = verification_token
        self.limits = limits or Limits()
        self.journal = Journal()
        self.faults = Faults()
        self.subscriptions: set[str] = set(DEFAULT_SUBSCRIPTIONS)
        self.world = World(clock, app_id=app_id, bot_name=bot_name, seed=seed)
        ids = self.world.ids
        self.tokens = Tokens(clock, self.limits, ids, app_id, app_secret)
        self.scopes = Scopes(scopes)
        self.rates = Rates(clock, self.limits, rates, jitter)
        self.cardkit = CardKit(clock, self.limits, ids, self.world, self.break_rule)
        self.messages = Messages(clock, self.limits, self.world, self.cardkit, self.break_rule)
        self.messages.on_bot_reaction = lambda message, reaction: self._post(
            "im.message.reaction.created_v1", lambda: self.events_of.reacted(message, reaction)
        )
        self.events_of = Events(self.world, verification_token)
        config = client_config or ClientConfig()
        self.longconn = LongConnection(clock, self.limits, ids, config, self.break_rule, self.changed)
        self.webhook = Webhook(clock, self.limits, self.break_rule)
        self.deliverer = Deliverer(clock, self.limits, self._attempt, self.changed)

    def break_rule(self, rule: str) -> None:
        self.journal.break_rule(self.clock.now(), rule)

    def changed(self) -> None:
        """Something happened that a waiting test may be waiting for."""

    async def _attempt(self, event: Event) -> Attempt:
        way = self.longconn if self.webhook.hook is None else self.webhook
        return await way.attempt(event)

    def _post(self, event_type: str, make: Callable[[], Event]) -> None:
        if event_type in self.subscriptions:
            self.deliverer.post(make())

    def _message(self, message_id: str) -> Message:
        return self.world.messages[message_id]

    def callback_answer(self, ack: Json) -> Json:
        """The answer in an ack: on the long connection it is wrapped in base64, on the webhook it is the body."""
        if self.webhook.hook is not None:
            return ack
        data = ack.get("data")
        if data is None:
            return {}
        try:
            answer = json.loads(base64.b64decode(str(data), validate=True))
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            self.break_rule("the data of a card callback's ack is not a JSON object in base64")
            return {}
        return answer
