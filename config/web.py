"""The keys of a web channel."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr, field_validator

from config.channel import ChannelSettings


class WebChannel(ChannelSettings):
    """One chat page, served by the bridge itself."""

    platform: Literal["web"] = "web"
    path: str = Field("/", description="Where the page is mounted on the bridge's HTTP server.")
    title: str = Field("Channel Bridge", min_length=1, max_length=80, description="The page's name.")
    greeting: str = Field(
        "What can I do for you?", max_length=300, description="Shown while a conversation is empty; may be empty."
    )
    suggestions: tuple[str, ...] = Field((), max_length=6, description="Questions offered on an empty page.")
    access_token: SecretStr | None = Field(
        None, description="What visitors sign in with; required on any address but loopback."
    )
    cookie_key: SecretStr | None = Field(
        None, description="Signs the visitors' cookies; left out: made once and kept in the bridge's store."
    )
    store: SecretStr | None = Field(
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
        if not value.startswith("/") or any(mark in value for mark in "?#{} "):
            raise ValueError("expected a path such as / or /chat")
        return value.rstrip("/") or "/"

    @field_validator("access_token")
    @classmethod
    def _is_long_enough(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and len(value.get_secret_value()) < 8:
            raise ValueError("expected at least 8 characters; it is all that keeps strangers out")
        return value

    @field_validator("store")
    @classmethod
    def _is_known(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not value.get_secret_value().startswith(("sqlite://", "postgresql://", "postgres://")):
            raise ValueError("expected sqlite:///PATH or postgresql://USER@HOST/NAME, or null")
        return value
