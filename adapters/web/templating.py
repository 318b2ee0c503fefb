"""The HTML templates of the page and of the pieces it is made of. Everything put into one is escaped."""

from __future__ import annotations

import hashlib
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from channels.model import Step

FOLDER = Path(__file__).parent


def _version() -> str:
    """Changes with any static file, so that a browser never mixes old and new ones."""
    state = hashlib.blake2b(digest_size=6)
    for file in sorted((FOLDER / "static").iterdir()):
        state.update(file.read_bytes())
    return state.hexdigest()


STATIC_VERSION = _version()


def duration(seconds: float) -> str:
    """A length of time as people say it: `0.4 s`, `12 s`, `2 min 5 s`."""
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"


def size(count: int) -> str:
    """A number of bytes as people say it: `812 B`, `3.4 kB`, `12 MB`."""
    amount = float(count)
    for unit in ("B", "kB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 10 else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"


def took(step: Step) -> str:
    """How long a finished step took; empty while it runs, or when nobody knows, or when it was no time at all."""
    if step.started is None or step.ended is None:
        return ""
    return span(step.started, step.ended)


def span(started: float, ended: float) -> str:
    """How long something took, as people say it; empty when it would be said as `0.0 s`."""
    return duration(ended - started) if ended - started >= 0.05 else ""


_environment = Environment(
    loader=FileSystemLoader(FOLDER / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_environment.filters |= {"duration": duration, "size": size, "took": took}


def render(template: str, /, **values: object) -> str:
    """The template `NAME.html` with these values."""
    return _environment.get_template(f"{template}.html").render(values).strip()


def trusted(html: str) -> Markup:
    """HTML that the sanitiser has let through, to be put into a template as it is."""
    return Markup(html)
