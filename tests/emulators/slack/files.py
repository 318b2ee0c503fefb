"""Files: upload in three steps, file messages, and downloads that need the token."""

from __future__ import annotations

import mimetypes
from collections.abc import Callable

from aiohttp import web

from tests.emulators.journal import Call
from tests.emulators.slack.assistant import Assistant
from tests.emulators.slack.blocks import JsonObject
from tests.emulators.slack.core import ApiCall, Core, Handler
from tests.emulators.slack.errors import Refusal
from tests.emulators.slack.shapes import file_json, message_event
from tests.emulators.slack.world import Channel, File, Message, Workspace

SIGN_IN_PAGE = "<!DOCTYPE html><html><head><title>Slack</title></head><body>Sign in to your workspace</body></html>"


class Files:
    def __init__(self, core: Core, assistant: Assistant, url: Callable[[], str]) -> None:
        self._core = core
        self._world = core.world
        self._assistant = assistant
        self._url = url
        self._uploads: dict[str, File] = {}

    def handlers(self) -> dict[str, Handler]:
        return {
            "files.getUploadURLExternal": self.get_upload_url,
            "files.completeUploadExternal": self.complete,
            "files.info": self.info,
        }

    def create(self, name: str, team: str, owner: str) -> File:
        """A file without content yet."""
        file_id = f"F{self._world.number():06d}"
        file = File(id=file_id, name=name, team=team, owner=owner)
        file.mimetype = mimetypes.guess_type(name)[0] or "application/octet-stream"
        file.url = f"{self._url()}/files-pri/{team}-{file_id}/{name}"
        self._world.files[file_id] = file
        return file

    # --- the API -------------------------------------------------------------------------------------------------

    def get_upload_url(self, call: ApiCall) -> JsonObject:
        name = call.args.need("filename")
        length = call.args.whole("length", 0)
        if length < 1:
            raise Refusal(
                "invalid_arguments", broken="an upload without a length", messages=["[ERROR] length is required"]
            )
        file = self.create(name, call.workspace.id, call.bot.id)
        file.declared = length
        key = f"{file.id}-{self._world.number()}"
        self._uploads[key] = file
        return {"upload_url": f"{self._url()}/upload/v1/{key}", "file_id": file.id}

    def complete(self, call: ApiCall) -> JsonObject:
        listed = call.args.structure("files", "invalid_arguments")
        if not isinstance(listed, list) or not listed or not all(isinstance(f, dict) and "id" in f for f in listed):
            raise Refusal("invalid_arguments", broken="files is not a list of objects with an id")
        files = [self._finished(str(item["id"])) for item in listed]
        channels = self._destinations(call)
        for file, item in zip(files, listed, strict=True):
            file.title = str(item.get("title") or file.name)
            file.shared = bool(channels)
        comment = call.args.text("initial_comment")
        self._core.judge(call.method, [comment])
        for channel in channels:
            message = Message(
                ts=self._world.mint_ts(),
                channel=channel.id,
                author=call.bot.id,
                bot_id=call.bot.bot_id,
                text=comment,
                files=files,
                thread_ts=self._core.thread_root(call, channel),
                subtype="file_share",
            )
            self._world.add_message(message)
            self._assistant.replied(channel.id, message.root)
            self._core.emit(call.workspace, message_event(self._world, message))
        return {"files": [file_json(file) for file in files]}

    def _finished(self, file_id: str) -> File:
        file = self._world.files.get(file_id)
        if file is None:
            raise Refusal("file_not_found")
        if not file.uploaded:
            raise Refusal("file_not_found", broken="files.completeUploadExternal before the bytes were uploaded")
        if file.shared:
            raise Refusal("file_already_shared", broken="files.completeUploadExternal of a file already shared")
        return file

    def _destinations(self, call: ApiCall) -> list[Channel]:
        if call.args.text("channel_id"):
            return [self._core.channel(call, "channel_id", writing=True)]
        named = [name for name in call.args.text("channels").split(",") if name]
        found = [self._world.channels.get(name) for name in named]
        if any(channel is None or call.bot.id not in channel.members for channel in found):
            raise Refusal("channel_not_found")
        return [channel for channel in found if channel is not None]

    def info(self, call: ApiCall) -> JsonObject:
        file = self._world.files.get(call.args.need("file"))
        if file is None:
            raise Refusal("file_not_found")
        return {"file": file_json(file)}

    # --- plain HTTP ----------------------------------------------------------------------------------------------

    async def receive(self, request: web.Request) -> web.Response:
        """The bytes of an upload; its address is secret enough, so a token has no business here."""
        body = await request.read()
        await self._core.clock.sleep(self._core.settings.upload_seconds)
        if request.content_type == "multipart/form-data":
            self._core.break_rule("multipart upload is not taken here: send the bytes as they are")
        if "Authorization" in request.headers:
            self._core.break_rule("the token was sent to the upload address")
        file = self._uploads.get(request.match_info["key"])
        status, answer = 200, f"OK - {len(body)}"
        if file is None or file.uploaded:
            self._core.break_rule("upload to an address that is not open")
            status, answer = 404, "not found"
        elif len(body) != file.declared:
            self._core.break_rule(f"upload of {len(body)} bytes where {file.declared} were declared")
            status, answer = 400, "length mismatch"
        else:
            file.content, file.uploaded = body, True
        self._core.journal.calls.append(Call(self._core.clock.now(), "upload", {}, status, answer))
        self._world.bell.ring()
        return web.Response(status=status, text=answer)

    async def serve(self, request: web.Request) -> web.Response:
        """A download. Without a token that may read files, Slack answers 200 with its sign-in page."""
        file_id = request.match_info["key"].rpartition("-")[2]
        file = self._world.files.get(file_id)
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        workspace = next((w for w in self._world.workspaces.values() if w.bot_token == token), None)
        self._core.journal.calls.append(Call(self._core.clock.now(), "download", {"file": file_id}, 200, None))
        self._world.bell.ring()
        if not self._may_read(workspace, file):
            return web.Response(text=SIGN_IN_PAGE, content_type="text/html")
        if file is None or not file.uploaded:
            return web.Response(status=404)
        return web.Response(body=file.content, content_type=file.mimetype)

    @staticmethod
    def _may_read(workspace: Workspace | None, file: File | None) -> bool:
        if workspace is None or workspace.refuse or "files:read" not in workspace.scopes:
            return False
        return file is None or file.team == workspace.id
