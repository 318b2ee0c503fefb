"""What a person sees before asking anything: the Home tab, and the questions offered in a new chat."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from adapters.slack.api import SlackApi
from adapters.slack.text import disarmed
from channels.commands import DESCRIPTIONS
from channels.shapes import as_object, as_text
from config.slack import SlackChannel

_TITLE_CHARS = 75


class Welcome:
    """Answers the events that open the app. Never raises; what Slack refuses is left out."""

    def __init__(self, api: SlackApi, settings: SlackChannel) -> None:
        self._api = api
        self._prompts = settings.suggested_prompts
        self._home_text = settings.home_text

    async def greet(self, event: Mapping[str, JsonValue]) -> None:
        """Show what belongs to this event, if anything does."""
        match event.get("type"):
            case "app_home_opened" if event.get("tab") == "home":
                await self._publish_home(as_text(event.get("user")), as_object(event.get("view")))
            case "app_home_opened":
                await self._offer(as_text(event.get("channel")), None)
            case "assistant_thread_started":
                thread = as_object(event.get("assistant_thread"))
                await self._offer(as_text(thread.get("channel_id")), as_text(thread.get("thread_ts")) or None)

    async def _publish_home(self, user: str, shown: Mapping[str, JsonValue]) -> None:
        lines = "\n".join(f"• !{name} – {text}" for name, text in DESCRIPTIONS.items())
        text = f"{self._home_text}\n\nIn a chat with me you can also type:\n{lines}"
        blocks: list[JsonValue] = [{"type": "section", "text": {"type": "plain_text", "text": disarmed(text)}}]
        if shown.get("callback_id") == _HOME and _texts(shown) == [disarmed(text)]:
            return
        await self._api.ask(
            "views.publish", user_id=user, view={"type": "home", "callback_id": _HOME, "blocks": blocks}
        )

    async def _offer(self, channel: str, thread: str | None) -> None:
        if not self._prompts or not channel:
            return
        prompts: list[JsonValue] = [{"title": prompt[:_TITLE_CHARS], "message": prompt} for prompt in self._prompts]
        await self._api.ask(
            "assistant.threads.setSuggestedPrompts", channel_id=channel, thread_ts=thread, prompts=prompts
        )


_HOME = "channel_bridge_home"


def _texts(view: Mapping[str, JsonValue]) -> list[str]:
    blocks = view.get("blocks")
    found = [as_object(as_object(block).get("text")) for block in blocks] if isinstance(blocks, list) else []
    return [as_text(text.get("text")) for text in found]
