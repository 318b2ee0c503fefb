"""The keys of a web channel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, SecretStr, field_validator

from channels.loopback import exposed_at
from config.channel import ChannelSettings
from config.values import DatabaseUrl, Secret, at_least

if TYPE_CHECKING:
    from config.settings import ServerSettings

OWN_ADDRESSES = frozenset({"console", "healthz", "hooks", "metrics", "readyz"})
"""What the bridge's HTTP server answers before it looks for a page; see the README's table of addresses."""

PAGE_ADDRESSES = frozenset(
    {"events", "files", "history", "messages", "presses", "sign-in", "sign-out", "static", "uploads"}
)
"""What a page asks for below its own path: no other page can be there."""


class WebChannel(ChannelSettings):
    """One chat page, served by the bridge itself."""

    budget_names = frozenset({"reply"})

    platform: Literal["web"] = "web"
    path: str = Field("/", description="Where the page is mounted on the bridge's HTTP server.")
    title: str = Field("Channel Bridge", min_length=1, max_length=80, description="The page's name.")
    greeting: str = Field(
        "What can I do for you?", max_length=300, description="Shown while a conversation is empty; may be empty."
    )
    suggestions: tuple[str, ...] = Field((), max_length=6, description="Questions offered on an empty page.")
    access_token: Annotated[Secret, at_least(8, "it is all that keeps strangers out")] | None = Field(
        None, description="What visitors sign in with; required on any address but loopback, and with a `public_url`."
    )
    cookie_key: Annotated[Secret, at_least(32, "whoever guesses it can pass for anybody")] | None = Field(
        None,
        description="Signs the visitors' cookies, at least 32 characters; left out: made once and kept in the bridge's "
        "store.",
    )
    store: DatabaseUrl | None = Field(
        SecretStr("sqlite:///data/web.db"),
        description="Where conversations are kept: sqlite:///PATH or postgresql://…; null: in memory only.",
    )
    history_days: float | None = Field(365.0, gt=0, description="Days after which history is dropped; null: never.")
    message_chars: int = Field(100_000, gt=0, description="Longest message taken, in characters.")
    upload_bytes: int = Field(50_000_000, gt=0, description="Largest message taken with all its files, in bytes.")
    upload_files: int = Field(10, ge=0, description="Most files taken with one message; 0: none.")

    @field_validator("path")
    @classmethod
    def _is_path(cls, value: str) -> str:
        path = value.rstrip("/")
        first, *parts = path.split("/")
        if first or any(part in ("", ".", "..") for part in parts) or any(mark in path for mark in "?#{}% \\"):
            raise ValueError("expected a path such as / or /chat")
        if parts and parts[0] in OWN_ADDRESSES:
            raise ValueError(f"the bridge itself answers at /{parts[0]}: expected another path, such as /chat")
        return path or "/"

    def unusable(self, server: ServerSettings) -> Iterator[tuple[str, str]]:
        exposed = exposed_at(server.host, server.public_url)
        if self.access_token is None and exposed is not None:
            yield (
                "access_token",
                f"is missing: the page would be open to everybody who can reach {exposed}; "
                "set it, or let the server listen on 127.0.0.1 and without public_url",
            )

    def is_in_the_way_of(self, other: WebChannel) -> bool:
        """Whether one of the two pages hides the other, or a part of it."""
        mine, others = self.path.rstrip("/"), other.path.rstrip("/")
        below = mine.removeprefix(f"{others}/").split("/")[0] if mine.startswith(f"{others}/") else ""
        return mine == others or below in PAGE_ADDRESSES
