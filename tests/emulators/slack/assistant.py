"""The assistant's side show: status line, title, suggested prompts, agent sessions, the Home tab."""

from __future__ import annotations

from dataclasses import dataclass

from tests.emulators.slack import rules
from tests.emulators.slack.blocks import JsonObject, check_blocks
from tests.emulators.slack.core import ApiCall, Core, Handler
from tests.emulators.slack.errors import Refusal
from tests.emulators.slack.world import Channel

Thread = tuple[str, str]
"""(conversation, ts of the root)."""


@dataclass(frozen=True, slots=True)
class StatusChange:
    """The status line of a thread from this moment on; `text` is "" when it was cleared. `by`: app or reply."""

    at: float
    thread: Thread
    text: str
    by: str


@dataclass(slots=True)
class Session:
    """An agent session; `states` has every status it was given, in order."""

    title: str
    states: list[str]

    @property
    def status(self) -> str:
        return self.states[-1]


class Assistant:
    def __init__(self, core: Core) -> None:
        self._core = core
        self.status_log: list[StatusChange] = []
        self.sessions: dict[Thread, Session] = {}
        self.titles: dict[Thread, str] = {}
        self.prompts: dict[Thread, list[JsonObject]] = {}
        self.homes: dict[str, JsonObject] = {}

    def handlers(self) -> dict[str, Handler]:
        return {
            "assistant.threads.setStatus": self.set_status,
            "assistant.threads.setTitle": self.set_title,
            "assistant.threads.setSuggestedPrompts": self.set_prompts,
            "agents.sessions.setStatus": self.set_session,
            "agents.sessions.rename": self.rename_session,
            "views.publish": self.publish_home,
        }

    def statuses(self) -> dict[Thread, str]:
        """The status lines that show now: set, not cleared, not answered, not older than two minutes."""
        last = {change.thread: change for change in self.status_log}
        fresh = self._core.clock.now() - rules.STATUS_SECONDS
        return {thread: change.text for thread, change in last.items() if change.text and change.at > fresh}

    def replied(self, channel: str, root: str) -> None:
        """A message of the app in a thread takes its status line away."""
        if (channel, root) in self.statuses():
            self._log((channel, root), "", "reply")

    def _log(self, thread: Thread, text: str, by: str) -> None:
        self.status_log.append(StatusChange(self._core.clock.now(), thread, text, by))

    def _thread(self, call: ApiCall) -> Thread:
        channel = self._core.channel(call, "channel_id")
        return channel.id, self._root(call, channel)

    def _root(self, call: ApiCall, channel: Channel) -> str:
        call.args.need("thread_ts")
        root = self._core.thread_root(call, channel)
        if root is None:
            raise Refusal("invalid_thread_ts")
        return root

    def set_status(self, call: ApiCall) -> JsonObject:
        if "status" not in call.args.values:
            call.args.need("status")
        loading = call.args.structure("loading_messages", "invalid_arguments")
        if isinstance(loading, list) and len(loading) > rules.LOADING_MESSAGES:
            raise Refusal(
                "invalid_arguments", broken=f"{len(loading)} loading_messages, {rules.LOADING_MESSAGES} are allowed"
            )
        self._log(self._thread(call), call.args.text("status"), "app")
        return {}

    def set_title(self, call: ApiCall) -> JsonObject:
        self.titles[self._thread(call)] = call.args.need("title")
        return {}

    def set_prompts(self, call: ApiCall) -> JsonObject:
        prompts = call.args.structure("prompts", "invalid_arguments")
        if not isinstance(prompts, list) or not 0 < len(prompts) <= rules.SUGGESTED_PROMPTS:
            raise Refusal("invalid_arguments", broken=f"prompts are a list of 1 to {rules.SUGGESTED_PROMPTS}")
        if not all(isinstance(p, dict) and p.get("title") and p.get("message") for p in prompts):
            raise Refusal("invalid_arguments", broken="a prompt needs a title and a message")
        channel = self._core.channel(call, "channel_id")
        self.prompts[(channel.id, call.args.text("thread_ts"))] = prompts
        return {}

    def set_session(self, call: ApiCall) -> JsonObject:
        self._check_sessions()
        status = call.args.need("status")
        title = call.args.text("title")
        if len(title) > rules.SESSION_TITLE_CHARS:
            raise Refusal("invalid_arguments", broken=f"session title above {rules.SESSION_TITLE_CHARS} characters")
        thread = self._thread(call)
        self.turn_session(thread, status, title)
        answer: JsonObject = {"status": status, "agent_status": status, "title": self.sessions[thread].title}
        if "agent_session_stopped" not in self._core.settings.subscriptions:
            answer["warning"] = "missing_agent_session_stopped_event_subscription"
        return answer

    def turn_session(self, thread: Thread, status: str, title: str = "") -> None:
        """Give a session a status, making the session when there is none; chat.stopStream does so too."""
        if status not in rules.SESSION_STATES:
            raise Refusal("invalid_arguments", broken=f"unknown session status {status!r}")
        session = self.sessions.setdefault(thread, Session(title, []))
        session.states.append(status)

    def rename_session(self, call: ApiCall) -> JsonObject:
        self._check_sessions()
        session = self.sessions.get(self._thread(call))
        if session is None:
            raise Refusal("session_not_found")
        session.title = call.args.need("title")
        return {"title": session.title}

    def _check_sessions(self) -> None:
        if not self._core.settings.sessions:
            raise Refusal("unknown_method")

    def publish_home(self, call: ApiCall) -> JsonObject:
        view = call.args.structure("view", "invalid_arguments")
        if not isinstance(view, dict) or view.get("type") != "home":
            raise Refusal("invalid_arguments", broken="the view of views.publish is not of type home")
        user = call.args.need("user_id")
        if user not in self._core.world.users:
            raise Refusal("user_not_found")
        blocks = view.get("blocks", [])
        if isinstance(blocks, list) and len(blocks) <= 100:
            for at in range(0, len(blocks), rules.MESSAGE_BLOCKS):
                check_blocks(blocks[at : at + rules.MESSAGE_BLOCKS])
        else:
            raise Refusal("invalid_arguments", broken="a Home tab has at most 100 blocks")
        self.homes[user] = view
        return {"view": view | {"id": f"V{user[1:]}", "team_id": call.workspace.id}}
