"""What the page's script makes of the events, in Python: the entries as a reader has them."""

from __future__ import annotations

import html
import json
import re
from dataclasses import dataclass, field

from pydantic import JsonValue

from adapters.web.feed import Event


@dataclass
class ShownEntry:
    kind: str
    position: tuple[int, int]
    revision: int
    phase: str
    live: bool
    keys: list[str]
    pieces: dict[str, str]

    @property
    def html(self) -> str:
        return "\n".join(self.pieces[key] for key in self.keys)

    @property
    def text(self) -> str:
        """What a reader sees of the body."""
        body = "\n".join(self.pieces[key] for key in self.keys if key[0] in "bm" or key in ("text", "earlier"))
        return html.unescape(re.sub(r"<[^>]*>", "", body))


@dataclass
class PageModel:
    """Applies events strictly: a patch for anything but the present revision is an error."""

    entries: dict[str, ShownEntry] = field(default_factory=dict)
    cursor: str | None = None
    names: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    def take(self, event: Event) -> None:
        self.take_raw(event.id, event.name, event.data)

    def take_raw(self, cursor: str, name: str, text: str) -> None:
        self.cursor = cursor
        self.names.append(name)
        self.sizes.append(len(text))
        data = json.loads(text)
        if name == "state":
            self.entries = {entry["id"]: _entry(entry) for entry in data["entries"]}
        elif name == "entry":
            self.entries[data["id"]] = _entry(data)
        elif name == "patch":
            self._patch(data)

    @property
    def in_order(self) -> list[ShownEntry]:
        return sorted(self.entries.values(), key=lambda entry: entry.position)

    @property
    def texts(self) -> list[str]:
        return [entry.text for entry in self.in_order]

    def _patch(self, data: dict[str, JsonValue]) -> None:
        entry = self.entries[str(data["id"])]
        assert data["base"] == entry.revision, "a patch for another revision"
        entry.revision += 1
        entry.phase = str(data["phase"])
        entry.live = bool(data["live"])
        apply_patch(entry.keys, entry.pieces, data)


def apply_patch(keys: list[str], pieces: dict[str, str], patch: dict[str, JsonValue]) -> None:
    """Apply a patch as the script does, in UTF-16 units."""
    if change := patch.get("keys"):
        assert isinstance(change, list)
        start, removed, names = change
        assert isinstance(start, int)
        assert isinstance(removed, int)
        assert isinstance(names, list)
        keys[start : start + removed] = [str(name) for name in names]
    whole = patch.get("set") or {}
    assert isinstance(whole, dict)
    pieces.update({key: str(value) for key, value in whole.items()})
    spliced = patch.get("splice") or {}
    assert isinstance(spliced, dict)
    for key, splice in spliced.items():
        assert isinstance(splice, list)
        start, removed, inserted = splice
        assert isinstance(start, int)
        assert isinstance(removed, int)
        units = pieces[key].encode("utf-16-le")
        changed = units[: 2 * start] + str(inserted).encode("utf-16-le") + units[2 * (start + removed) :]
        pieces[key] = changed.decode("utf-16-le")
    for key in set(pieces) - set(keys):
        del pieces[key]


def _entry(data: dict[str, JsonValue]) -> ShownEntry:
    pieces = data["pieces"]
    assert isinstance(pieces, list)
    pairs = [(str(pair[0]), str(pair[1])) for pair in pieces if isinstance(pair, list)]
    order, seq, revision = data["order"], data["seq"], data["revision"]
    assert isinstance(order, int)
    assert isinstance(seq, int)
    assert isinstance(revision, int)
    return ShownEntry(
        kind=str(data["kind"]),
        position=(order, seq),
        revision=revision,
        phase=str(data["phase"]),
        live=bool(data["live"]),
        keys=[key for key, _ in pairs],
        pieces=dict(pairs),
    )
