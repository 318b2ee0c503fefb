"""response_url: the short-lived address in interactive payloads and commands by which the app may answer."""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web

from tests.emulators.journal import Call
from tests.emulators.slack import rules
from tests.emulators.slack.blocks import JsonObject
from tests.emulators.slack.chat import read_body
from tests.emulators.slack.core import Args, Core
from tests.emulators.slack.errors import Refusal
from tests.emulators.slack.world import Message


@dataclass(slots=True)
class ResponseAddress:
    """Whom it answers and about which message ("" for a command); good five times in half an hour."""

    channel: str
    user: str
    message_ts: str
    until: float
    uses: int = 0


class Responses:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._world = core.world
        self._addresses: dict[str, ResponseAddress] = {}

    def mint(self, channel: str, user: str, message_ts: str = "") -> str:
        """The key at the end of a new response_url."""
        key = f"{self._world.channels[channel].team}/{self._world.number()}"
        until = self._core.clock.now() + rules.RESPONSE_URL_SECONDS
        self._addresses[key] = ResponseAddress(channel, user, message_ts, until)
        return key

    async def handle(self, request: web.Request) -> web.Response:
        args: JsonObject = {}
        try:
            address = self._open(request.match_info["key"])
            try:
                args = await request.json()
            except ValueError:
                raise Refusal("invalid_payload", broken="a response that is not JSON", status=500) from None
            self.answer(address.channel, address.user, args, address.message_ts)
        except Refusal as refusal:
            if refusal.broken:
                self._core.break_rule(f"{refusal.error}: {refusal.broken}")
            status = refusal.status if refusal.status != 200 else 400
            return self._record(args, status, {"ok": False, "error": refusal.error})
        return self._record(args, 200, {"ok": True})

    def _open(self, key: str) -> ResponseAddress:
        address = self._addresses.get(key)
        if address is None:
            raise Refusal("invalid_url", broken="a response_url that was never given", status=404)
        if self._core.clock.now() > address.until:
            raise Refusal("expired_url", broken="a response_url older than 30 minutes", status=404)
        if address.uses >= rules.RESPONSE_URL_USES:
            raise Refusal(
                "used_url", broken=f"a response_url used more than {rules.RESPONSE_URL_USES} times", status=404
            )
        address.uses += 1
        return address

    def answer(self, channel_id: str, user: str, args: JsonObject, message_ts: str = "") -> None:
        """Show what the app answers: instead of the message, beside it for one person, or for all to see."""
        channel = self._world.channels[channel_id]
        original = channel.messages.get(message_ts)
        if args.get("delete_original") and original is not None:
            original.deleted = True
            self._world.note(original)
            return
        body = read_body(Args(args))
        self._core.judge("a response", body.spoken)
        if args.get("replace_original") and original is not None:
            original.text, original.blocks = body.shown, body.blocks or []
            if original.stream is not None:
                original.stream.replaced = True
            self._world.note(original)
            return
        bot = self._world.bot_of(channel)
        self._world.add_message(
            Message(
                ts=self._world.mint_ts(),
                channel=channel_id,
                author=bot.id,
                bot_id=bot.bot_id,
                text=body.shown,
                markdown=body.markdown_text is not None,
                blocks=body.blocks or [],
                thread_ts=args.get("thread_ts"),
                visible_to="" if args.get("response_type") == "in_channel" else user,
            )
        )

    def _record(self, args: JsonObject, status: int, answer: JsonObject) -> web.Response:
        self._core.journal.calls.append(Call(self._core.clock.now(), "response_url", args, status, answer))
        self._world.bell.ring()
        return web.json_response(answer, status=status)
