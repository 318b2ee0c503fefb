"""The whole of it: one Slack with one app in it, on a local port."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Self, TypeVar

from aiohttp import web

from channels.clock import Clock
from tests.emulators.journal import Faults, Journal
from tests.emulators.slack import rules
from tests.emulators.slack.api import WebApi
from tests.emulators.slack.assistant import Assistant, Session, StatusChange, Thread
from tests.emulators.slack.blocks import JsonObject
from tests.emulators.slack.budgets import Budgets
from tests.emulators.slack.chat import Chat
from tests.emulators.slack.chat_streams import ChatStreams
from tests.emulators.slack.core import Core, Settings
from tests.emulators.slack.deliveries import Courier, Delivery, DeliveryKind
from tests.emulators.slack.directory import Directory
from tests.emulators.slack.files import Files
from tests.emulators.slack.hooks import HookAnswer, Hooks
from tests.emulators.slack.people import SLACKBOT, People
from tests.emulators.slack.picture import Seen, describe, seen
from tests.emulators.slack.responses import Responses
from tests.emulators.slack.sockets import Sockets
from tests.emulators.slack.streams import StreamState
from tests.emulators.slack.world import Channel, ChannelKind, File, User, Workspace, World

T = TypeVar("T")
HttpHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]

TEAM, BOT, BOT_ID = "T0HOME", "U0BRIDGE", "B0BRIDGE"
ANN, BOB, GUEST, OTHER_BOT = "U0ANN", "U0BOB", "U0GUEST", "U0ROBOT"
GENERAL, SECRET = "C0GENERAL", "C0SECRET"
BOT_TOKEN, APP_TOKEN = "xoxb-emulated-bridge", "xapp-1-A0BRIDGE-emulated"
SIGNING_SECRET = "emulated-signing-secret"


class SlackEmulator(People):
    """A strict local Slack. `journal.broken` lists every rule that the client broke.

    It starts with one workspace TEAM where the app's bot is in the public channel GENERAL and the private one SECRET
    with the people ANN and BOB; GUEST comes from another organisation, OTHER_BOT is somebody else's bot.

    `ack_seconds` and `jitter` are in seconds of the clock; a clock that runs many times faster than the wall wants more
    of both, since real requests take real milliseconds.
    """

    def __init__(self, clock: Clock, *, ack_seconds: float = rules.ACK_SECONDS, jitter: float = 1.0) -> None:
        self.clock = clock
        self.journal = Journal()
        self.faults = Faults()
        self.budgets = Budgets(jitter)
        self.settings = Settings()
        self.world = World(clock)
        self.app_tokens: dict[str, frozenset[str]] = {APP_TOKEN: frozenset({"connections:write"})}
        self.sockets = Sockets(self.world, self.journal, ack_seconds=ack_seconds)
        self.hooks = Hooks(self.world, self.journal, signing_secret=SIGNING_SECRET, ack_seconds=ack_seconds)
        self.courier = Courier(clock, self.world.bell, self.sockets)
        self._port = 0
        self._down = False
        self._runner: web.AppRunner | None = None
        core = Core(clock, self.world, self.journal, self.courier, self.settings)
        assistant = Assistant(core)
        files = Files(core, assistant, lambda: self.url)
        responses = Responses(core)
        super().__init__(core, files, assistant, responses, lambda: self.url)
        handlers = {
            **Chat(core, assistant).handlers(),
            **ChatStreams(core, assistant).handlers(),
            **Directory(core, self._socket_address, lambda: self.url).handlers(),
            **assistant.handlers(),
            **files.handlers(),
        }
        api = WebApi(core, self.faults, self.budgets, handlers, self.app_tokens)
        self.web = web.Application(client_max_size=64 * 1024 * 1024, middlewares=[self._cut_when_down])
        self.web.router.add_route("*", "/api/{method}", api.handle)
        self.web.router.add_get("/link", self.sockets.handle)
        self.web.router.add_post("/upload/v1/{key}", files.receive)
        self.web.router.add_get("/files-pri/{key}/{name}", files.serve)
        for kind in ("actions", "commands"):
            self.web.router.add_post(f"/{kind}/{{key:.+}}", responses.handle)
        self._furnish()

    def _furnish(self) -> None:
        self.add_workspace(TEAM, "acme", bot=BOT, bot_id=BOT_ID, bot_token=BOT_TOKEN)
        self.world.users[SLACKBOT] = User(SLACKBOT, "slackbot", TEAM)
        self.add_user(ANN, "ann", real_name="Ann Lee")
        self.add_user(BOB, "bob", real_name="Bob Kim")
        self.add_user(GUEST, "guest", team="T0ELSEWHERE")
        self.add_user(OTHER_BOT, "robot", bot_id="B0ROBOT")
        self.add_channel(GENERAL, "general", members=[ANN, BOB, GUEST, OTHER_BOT])
        self.add_channel(SECRET, "secret", kind=ChannelKind.PRIVATE, members=[ANN, BOB])

    # --- running -------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """Where it listens; `base_url` of the SDK is this and `/api/`."""
        return f"http://127.0.0.1:{self._port}"

    async def start(self, port: int = 0) -> None:
        self._runner = web.AppRunner(self.web, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port).start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        await self.courier.stop()
        await self.sockets.stop()
        await self.hooks.stop()
        if self._runner is not None:
            await self._runner.cleanup()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # --- furnishing ----------------------------------------------------------------------------------------------

    def add_workspace(
        self, team: str, name: str, *, bot: str, bot_id: str, bot_token: str, scopes: Sequence[str] = rules.BOT_SCOPES
    ) -> Workspace:
        """Install the app in one more workspace, with a bot user and a token of its own."""
        user = User(bot, "bridge", team, real_name="Bridge", bot_id=bot_id)
        self.world.users[bot] = user
        workspace = Workspace(team, name, user, bot_token, set(scopes))
        self.world.workspaces[team] = workspace
        return workspace

    def add_user(self, user: str, name: str, *, team: str = TEAM, real_name: str = "", bot_id: str = "") -> User:
        """A person, or a bot when it has a bot_id; from another organisation when `team` has no app."""
        self.world.users[user] = User(user, name, team, real_name=real_name, bot_id=bot_id)
        return self.world.users[user]

    def add_channel(
        self,
        channel: str,
        name: str,
        *,
        kind: ChannelKind = ChannelKind.PUBLIC,
        team: str = TEAM,
        members: Sequence[str] = (),
        with_bot: bool = True,
    ) -> Channel:
        bot = [self.world.workspaces[team].bot.id] if with_bot else []
        added = self.world.add_channel(channel, name, kind, team, [*members, *bot])
        added.shared = any(self.world.users[user].team != team for user in members)
        return added

    def direct(self, user: str, team: str = TEAM) -> Channel:
        """The direct messages between a person and the bot."""
        return self.world.direct(user, team)

    # --- disturbing ----------------------------------------------------------------------------------------------

    def refuse_token(self, error: str, team: str = TEAM) -> None:
        """Answer every call of a workspace's bot with `token_revoked`, `account_inactive` …; "" heals it."""
        self.world.workspaces[team].refuse = error

    def refuse_streams(self, channel: str, error: str, user: str = "") -> None:
        """Refuse chat.startStream in a conversation, for one recipient or ("") for all; error "" heals it."""
        self.world.channels[channel].stream_refusals[user] = error

    def refuse_ends(self, channel: str, error: str, user: str = "") -> None:
        """Refuse chat.stopStream likewise: such a stream is only ended by its age."""
        self.world.channels[channel].end_refusals[user] = error

    def grant(self, scopes: Sequence[str], team: str = TEAM) -> None:
        """Give the bot of a workspace exactly these scopes."""
        self.world.workspaces[team].scopes = set(scopes)

    def throttle(self, method: str, count: int | None, seconds: float = 60.0) -> None:
        """Allow less of a method than the vendor's paper says (None: as documented); to run into it breaks no rule."""
        self.budgets.throttle(method, None if count is None else rules.Window(count, seconds))

    def configure(self, **changes: object) -> None:
        """Change `settings` by name, also from another process."""
        for name, value in changes.items():
            setattr(self.settings, name, frozenset(value) if isinstance(value, list) else value)

    def archive(self, channel: str, archived: bool = True) -> None:
        self.world.channels[channel].archived = archived

    def outage(self, down: bool = True) -> None:
        """Cut every connection and every request, until `outage(False)`."""
        self._down = down
        if down:
            self.sockets.drop()

    def refuse_edits(self, channel: str, ts: str, error: str = "edit_window_closed") -> None:
        """Refuse chat.update of one message (`edit_window_closed`, `cant_update_message`); "" heals it."""
        self.world.channels[channel].messages[ts].edit_refusal = error

    def refuse_replies(self, channel: str, ts: str, error: str = "cannot_reply_to_message") -> None:
        """Refuse whatever is written in the thread under one message; "" heals it."""
        self.world.channels[channel].messages[ts].reply_refusal = error

    def expire_streams(self) -> list[str]:
        """End every running stream as if it had grown too old, earlier than the app could know; returns their ts."""
        ended: list[str] = []
        for channel in self.world.channels.values():
            for message in channel.standing():
                if message.stream is not None and message.stream.state(self.clock.now()) is StreamState.LIVE:
                    message.stream.ended = StreamState.EXPIRED
                    ended.append(message.ts)
        self.world.bell.ring()
        return ended

    def refuse_sockets(self, seconds: float, status: int = 503) -> None:
        """Refuse every Socket Mode handshake for so many seconds of the clock."""
        self.sockets.refuse(seconds, status)

    def disconnect_sockets(self, reason: str = "refresh_requested") -> None:
        """Tell every connection to go (`warning`, `refresh_requested`, `link_disabled`); close it ten seconds later."""
        self.sockets.disconnect(reason)

    def drop_sockets(self) -> None:
        """Cut every connection without a word."""
        self.sockets.drop()

    def freeze_sockets(self) -> None:
        """Make every present connection half-open: it stays, and nothing comes from it any more."""
        self.sockets.freeze()

    def thaw_sockets(self) -> None:
        self.sockets.thaw()

    # --- delivering ----------------------------------------------------------------------------------------------

    def use_http(self, request_url: str, signing_secret: str = SIGNING_SECRET) -> None:
        """Deliver to a request URL instead of over Socket Mode."""
        self.hooks.url = request_url
        self.hooks.signing_secret = signing_secret
        self.courier.transport = self.hooks

    async def verify_url(self) -> bool:
        """The `url_verification` handshake; True when the challenge came back."""
        return await self.hooks.verify()

    async def post_forged(
        self, event: JsonObject, *, age: float = 0.0, secret: str | None = None, unsigned: bool = False
    ) -> HookAnswer:
        """Post an event to the request URL with an old timestamp, a wrong secret, or no signature at all."""
        payload: JsonObject = {
            "type": "event_callback",
            "team_id": TEAM,
            "api_app_id": self.world.app_id,
            "event": event,
        }
        payload |= {"event_id": self.courier.event_id(), "event_time": int(self.clock.now())}
        return await self.hooks.post(DeliveryKind.EVENT, payload, age=age, secret=secret, unsigned=unsigned)

    def event(self, event: JsonObject, team: str = TEAM) -> Delivery | None:
        """Deliver any event, for what the other methods do not do; None when the app has not subscribed to it."""
        stamped = {"event_ts": self.world.mint_ts(), **event}
        return self._core.emit(self.world.workspaces[team], stamped)

    @property
    def deliveries(self) -> list[Delivery]:
        """Everything that was brought to the app or is on its way, oldest first."""
        return self.courier.deliveries

    def hold(self) -> None:
        """Keep new deliveries back until `release`."""
        self.courier.hold()

    def release(self, *, reverse: bool = False) -> None:
        self.courier.release(reverse=reverse)

    def redeliver(self, *deliveries: Delivery) -> None:
        """Bring these again at once, acked or not; without any, every event that waits for a retry or was given up."""
        self.courier.redeliver(*deliveries)

    # --- looking -------------------------------------------------------------------------------------------------

    def chat(self, channel: str, thread_ts: str | None = None) -> list[Seen]:
        """The messages of a conversation, or of one thread with its root, in order, as people see them now."""
        place = self.world.channels[channel]
        messages = place.standing() if thread_ts is None else place.thread(thread_ts)
        return [seen(self.world, message) for message in messages if not message.hidden]

    def answers(self, channel: str, thread_ts: str | None = None) -> list[Seen]:
        """Only what the app itself wrote there."""
        return [message for message in self.chat(channel, thread_ts) if message.by_app]

    def file(self, name: str) -> File:
        """The newest file of that name."""
        return next(file for file in reversed(self.world.files.values()) if file.name == name)

    @property
    def statuses(self) -> dict[Thread, str]:
        """The status lines that show now, by (conversation, thread_ts)."""
        return self._assistant.statuses()

    @property
    def status_log(self) -> list[StatusChange]:
        return self._assistant.status_log

    @property
    def sessions(self) -> dict[Thread, Session]:
        """Agent sessions by (conversation, thread_ts)."""
        return self._assistant.sessions

    @property
    def titles(self) -> dict[Thread, str]:
        return self._assistant.titles

    @property
    def prompts(self) -> dict[Thread, list[JsonObject]]:
        return self._assistant.prompts

    @property
    def homes(self) -> dict[str, JsonObject]:
        """The published Home tab of each person."""
        return self._assistant.homes

    async def wait_for(self, predicate: Callable[[], T], timeout: float = 10.0) -> T:
        """The predicate's first truthy value; looked at again after every change. `timeout` is in real seconds.

        Raises AssertionError with the chats and the last calls when it does not come true in time.
        """
        loop_end = time.monotonic() + timeout
        while not (value := predicate()):
            left = loop_end - time.monotonic()
            if left <= 0:
                raise AssertionError(f"did not come true within {timeout} s\n{self.dump()}")
            # The clock can make it true as well, which rings no bell.
            await self.world.bell.heard(min(left, 0.05))
        return value

    def dump(self) -> str:
        """Chats, deliveries on their way, broken rules and the last calls, for reading."""
        busy = [channel for channel in self.world.channels.values() if channel.messages]
        parts = [f"--- {channel.id} {channel.name}\n{describe(self.chat(channel.id))}" for channel in busy]
        waiting = [
            f"{d.id} {d.kind} {d.state} {d.event.get('type', '')}" for d in self.deliveries if d.state != "acked"
        ]
        calls = [
            f"{call.at:.3f} {call.method} {call.status} {str(call.answer)[:160]}" for call in self.journal.calls[-20:]
        ]
        parts.append("--- not acked\n" + "\n".join(waiting))
        parts.append("--- broken rules\n" + "\n".join(self.journal.broken))
        parts.append("--- last calls\n" + "\n".join(calls))
        return "\n".join(parts)

    @web.middleware
    async def _cut_when_down(self, request: web.Request, handler: HttpHandler) -> web.StreamResponse:
        own = request.path == "/" or request.path.startswith("/_control/")
        if self._down and not own and request.transport is not None:
            request.transport.abort()
        return await handler(request) if own or not self._down else web.Response(status=503)

    def _socket_address(self) -> str:
        ticket = self.sockets.mint_ticket()
        return f"ws://127.0.0.1:{self._port}/link?ticket={ticket}&app_id={self.world.app_id}"
