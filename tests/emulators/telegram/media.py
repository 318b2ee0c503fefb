"""Sending files and albums, and handing files out."""

from __future__ import annotations

from tests.emulators.telegram.backend import Backend, Method
from tests.emulators.telegram.drafts import Drafts
from tests.emulators.telegram.errors import bad_request
from tests.emulators.telegram.keyboard import read_keyboard
from tests.emulators.telegram.prose import Prose
from tests.emulators.telegram.wire import FilePart, Json, Params
from tests.emulators.telegram.world import Media, MediaKind, StoredFile

_IMAGE_STARTS = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF8", b"RIFF", b"BM")
_MIXED = frozenset({MediaKind.PHOTO, MediaKind.VIDEO})  # may share an album; other kinds stay among themselves


class Files:
    def __init__(self, backend: Backend, prose: Prose, drafts: Drafts) -> None:
        self._backend = backend
        self._world = backend.world
        self._prose = prose
        self._drafts = drafts

    def methods(self) -> dict[str, Method]:
        return {
            "sendPhoto": lambda params: self._send(params, MediaKind.PHOTO),
            "sendDocument": lambda params: self._send(params, MediaKind.DOCUMENT),
            "sendAudio": lambda params: self._send(params, MediaKind.AUDIO),
            "sendVideo": lambda params: self._send(params, MediaKind.VIDEO),
            "sendVoice": lambda params: self._send(params, MediaKind.VOICE),
            "sendMediaGroup": self.send_album,
            "getFile": self.get_file,
        }

    def _send(self, params: Params, kind: MediaKind) -> Json:
        chat = self._world.chat_of(params)
        caption, entities = self._prose.caption(params)
        keyboard = read_keyboard(params, self._backend.limits)
        reply_to = self._world.reply_target(chat, params)
        thread_id = self._world.thread_for(chat, params, reply_to)
        source = params.files.get(kind.value) or self._named(params, params.text(kind.value), kind)
        self._check(source, kind)
        self._backend.flood.admit_message(chat.id, "send", private=chat.is_private)
        message = self._world.post(
            chat,
            self._world.bot,
            caption,
            entities=entities,
            keyboard=keyboard,
            thread_id=thread_id,
            reply_to=reply_to,
            media=Media(kind, self._stored(source)),
        )
        self._drafts.give_way(message)
        return self._world.message_json(message)

    def send_album(self, params: Params) -> list[Json]:
        chat = self._world.chat_of(params)
        items = params.json_list("media") or []
        fewest, most = self._backend.limits.album_items
        if not fewest <= len(items) <= most:
            raise bad_request(
                "wrong number of items in the media group",
                rule=f"album of {len(items)} items ({fewest} to {most})",
            )
        parts = [self._album_item(params, item) for item in items]
        kinds = {kind for kind, _, _ in parts}
        if len(kinds) > 1 and not kinds <= _MIXED:
            raise bad_request(
                "Can't use the media of the specified type in the album", rule=f"album mixes {sorted(kinds)}"
            )
        captions = [self._prose.caption(values) for _, _, values in parts]
        reply_to = self._world.reply_target(chat, params)
        thread_id = self._world.thread_for(chat, params, reply_to)
        self._backend.flood.admit_message(chat.id, "album", private=chat.is_private, cost=len(parts))
        album = f"1380{self._world.number():010d}"
        sent = []
        for (kind, source, _), (caption, entities) in zip(parts, captions, strict=True):
            message = self._world.post(
                chat,
                self._world.bot,
                caption,
                entities=entities,
                thread_id=thread_id,
                reply_to=reply_to,
                media=Media(kind, self._stored(source)),
                album=album,
            )
            self._drafts.give_way(message)
            sent.append(self._world.message_json(message))
        return sent

    def _album_item(self, params: Params, item: object) -> tuple[MediaKind, FilePart | StoredFile, Params]:
        if not isinstance(item, dict) or item.get("type") not in {kind.value for kind in MediaKind} - {"voice"}:
            raise bad_request("can't parse InputMedia: unknown type specified", rule=f"album item {item!r}")
        kind = MediaKind(item["type"])
        source = self._named(params, str(item.get("media", "")), kind)
        self._check(source, kind)
        return kind, source, Params(item)

    def _named(self, params: Params, name: str, kind: MediaKind) -> FilePart | StoredFile:
        """The file that a string names: an attached part or a file id. Raises 400."""
        if not name:
            raise bad_request(f"there is no {kind} in the request", rule=f"no {kind} in the request")
        attached = params.files.get(name.removeprefix("attach://"))
        if attached is not None:
            return attached
        if name not in self._world.files:
            raise bad_request("wrong file identifier/HTTP URL specified", rule=f"{kind} {name[:80]!r} is no known file")
        return self._world.files[name]

    def _check(self, source: FilePart | StoredFile, kind: MediaKind) -> None:
        if isinstance(source, StoredFile):
            return
        if source.size == 0:
            raise bad_request("file must be non-empty", rule=f"{kind} {source.name!r} is empty")
        if kind is not MediaKind.PHOTO:
            return
        limit = self._backend.limits.photo_bytes
        if source.size > limit:
            raise bad_request(
                f"file of size {source.size} bytes is too big for a photo; the maximum size is {limit} bytes",
                rule=f"photo of {source.size} bytes (limit {limit})",
            )
        if not source.content.startswith(_IMAGE_STARTS):
            raise bad_request("IMAGE_PROCESS_FAILED", rule=f"photo {source.name!r} is no image")

    def _stored(self, source: FilePart | StoredFile) -> StoredFile:
        if isinstance(source, StoredFile):
            return source
        return self._world.store(source.name, source.mime, source.content, source.size)

    def get_file(self, params: Params) -> Json:
        file = self._world.files.get(params.text("file_id"))
        if file is None:
            raise bad_request("invalid file_id", rule="getFile of an unknown file_id")
        limit = self._backend.limits.download_bytes
        if file.size > limit:
            raise bad_request("file is too big", rule=f"download of {file.size} bytes (limit {limit})")
        return {
            "file_id": file.id,
            "file_unique_id": file.unique_id,
            "file_size": file.size,
            "file_path": self._world.link(file),
        }
