"""Kinds of values that several settings share."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, SecretStr


def _without_edges(value: SecretStr) -> SecretStr:
    text = value.get_secret_value().strip()
    if not text:
        raise ValueError("is empty")
    return SecretStr(text)


Secret = Annotated[SecretStr, AfterValidator(_without_edges)]
"""A secret that somebody has filled in, without the blanks and line ends that were copied along with it.

An empty one would be refused late by a platform, or let everybody in; and nobody can type a blank at an end.
"""


def at_least(length: int, why: str) -> AfterValidator:
    """Refuses a secret of fewer characters; `why` ends the sentence that says so."""

    def check(value: SecretStr) -> SecretStr:
        if len(value.get_secret_value()) < length:
            raise ValueError(f"expected at least {length} characters; {why}")
        return value

    return AfterValidator(check)


def _is_file_type(value: str) -> str:
    mime = value.strip().lower()
    if not re.fullmatch(r"[a-z]+/(\*|[\w.+-]+)", mime, re.ASCII):
        raise ValueError("expected a MIME type such as image/png, or audio/* for all of a kind")
    return mime


FileType = Annotated[str, AfterValidator(_is_file_type)]


def _is_header_name(name: str) -> str:
    if not _HEADER_NAME.fullmatch(name):
        raise ValueError("expected the name of an HTTP header: letters, digits and dashes")
    return name


def _is_header_value(value: SecretStr) -> SecretStr:
    if not _HEADER_VALUE.fullmatch(value.get_secret_value()):
        raise ValueError("expected the value of an HTTP header: ASCII without line ends")
    return value


_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?")

HeaderName = Annotated[str, AfterValidator(_is_header_name)]
"""The name of an HTTP header (RFC 9110, 5.6.2)."""

HeaderValue = Annotated[Secret, AfterValidator(_is_header_value)]
"""A secret that is sent as an HTTP header's value (RFC 9110, 5.5, without what is obsolete)."""


_DATABASES = ("sqlite://", "postgresql://", "postgres://")


def _is_database(value: SecretStr) -> SecretStr:
    # imported only here: not every command has to do with a database
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import SQLAlchemyError

    text = value.get_secret_value()
    with suppress(SQLAlchemyError, ValueError):  # whose texts may hold the password
        if text.startswith(_DATABASES) and make_url(text):
            return value
    raise ValueError("expected sqlite:///PATH or postgresql://USER@HOST/NAME")


DatabaseUrl = Annotated[SecretStr, AfterValidator(_is_database)]
"""Where a database is. Its password is a secret; the rest of it is what an operator has to see when it is away."""


def secret_parts(value: SecretStr) -> Iterator[str]:
    """What of it must not be seen: all of it; of the URL of a database, the password."""
    text = value.get_secret_value()
    if not text.startswith(_DATABASES):
        yield text
    elif (password := text.partition("://")[2].rpartition("@")[0].partition(":")[2]) != "":
        yield from {password, unquote(password)}


def http_address(value: str) -> str:
    """The address without slashes at its end. Raises `ValueError` for what no HTTP client can call."""
    if not value.startswith(("http://", "https://")):
        raise ValueError("expected an address that begins with http:// or https://")
    try:
        parts = urlsplit(value)
        host, port = parts.hostname or "", parts.port
        host.encode("idna")  # as the look-up of a name does
    except ValueError:
        host, port = "", None
    if not host or port == 0 or parts.query or parts.fragment or any(char.isspace() for char in value):
        raise ValueError("expected an address such as https://host or http://host:8080/path")
    return value.rstrip("/")
