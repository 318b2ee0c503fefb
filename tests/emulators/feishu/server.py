"""The HTTP side: reads a call, lets the planned fault or the API answer it, writes the journal."""

from __future__ import annotations

import json
import mimetypes
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from aiohttp import BodyPartReader, web

from tests.emulators.feishu.limits import APIS, Api
from tests.emulators.feishu.refusals import Json, Refusal
from tests.emulators.feishu.stage import Stage
from tests.emulators.feishu.world import Blob
from tests.emulators.journal import Call, Fault, FaultKind

_MAX_BODY = 64 * 1024 * 1024
_SECRET = {"app_secret", "AppSecret"}


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: Json | bytes | str
    headers: dict[str, str] = field(default_factory=dict)

    def response(self) -> web.Response:
        if isinstance(self.body, bytes):
            return web.Response(status=self.status, body=self.body, headers=self.headers)
        text = self.body if isinstance(self.body, str) else json.dumps(self.body, ensure_ascii=False)
        kind = "text/html" if isinstance(self.body, str) else "application/json"
        headers = {"Content-Type": f"{kind}; charset=utf-8", **self.headers}
        return web.Response(status=self.status, body=text.encode(), headers=headers)

    def brief(self) -> object:
        """What the journal keeps."""
        return f"{len(self.body)} bytes" if isinstance(self.body, bytes) else self.body


class Server(Stage):
    """The routes of the platform on 127.0.0.1."""

    # Refusals come with HTTP 200 and only the code in the body tells, as from some of the vendor's gateways.
    codes_as_http_200 = False

    _runner: web.AppRunner | None = None
    url = ""

    async def _listen(self, port: int, extra: list[web.RouteDef]) -> None:
        app = web.Application(client_max_size=_MAX_BODY)
        for api in APIS:
            app.router.add_route(api.verb, api.path, self._handler(api))
        app.router.add_post("/callback/ws/endpoint", self._endpoint)
        app.router.add_get("/ws/v2", self._connect)
        app.add_routes(extra)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.2)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def _close(self) -> None:
        if self._runner is not None:
            self.longconn.abort_all()
            await self._runner.cleanup()
            self._runner = None

    # -- one call

    def _handler(self, api: Api) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            return await self._serve(api, request)

        return handle

    async def _serve(self, api: Api, request: web.Request) -> web.StreamResponse:
        try:
            args = await _read(request)
        except Refusal as refusal:
            answer = self._refused(api.name, refusal)
            return self._finish(api.name, {}, answer)
        fault = self.faults.take(api.name)
        if fault is not None and fault.kind is FaultKind.DELAY:
            await self.clock.sleep(fault.seconds)
        if fault is not None and fault.kind is FaultKind.DROP_BEFORE:
            return self._drop(request, api.name, args, "dropped before anything was done")
        if fault is not None and fault.kind is FaultKind.ANSWER:
            self._take_to_heart(api, args, fault)
            return self._finish(api.name, args, _planned(fault))
        answer = self._act(api, request, args)
        if fault is not None and fault.kind is FaultKind.DROP_AFTER:
            return self._drop(request, api.name, args, answer.brief())
        return self._finish(api.name, args, answer)

    def _act(self, api: Api, request: web.Request, args: Json) -> Answer:
        try:
            if api.needs_token:
                self.tokens.check(request.headers.get("Authorization", ""))
                self.scopes.check(api)
            self._draw(api, args)
            result = self._call(api.name, args)
        except Refusal as refusal:
            return self._refused(api.name, refusal)
        if isinstance(result, Blob):
            return Answer(200, result.data, _download_headers(result))
        if api.name in ("auth.token", "bot.info"):
            return Answer(200, result)
        return Answer(200, {"code": 0, "msg": "success", "data": result})

    def _draw(self, api: Api, args: Json) -> None:
        """Count the call on the budgets it draws on."""
        budgets = [self._app_budget(api)]
        if api.name.startswith("cardkit.") and args.get("card_id") in self.cardkit.cards:
            budgets.append(("card", args["card_id"]))
        elif api.bucket == "im.send":
            budgets.append(("chat", self.messages.chat_for(args).chat_id))
        elif api.name == "im.message.patch" and args.get("message_id") in self.world.messages:
            budgets.append(("message", args["message_id"]))
        self.rates.draw(*budgets)

    def _app_budget(self, api: Api) -> tuple[str, str]:
        return (api.bucket, api.name if api.bucket == "api" else "")

    def _take_to_heart(self, api: Api, args: Json, fault: Fault) -> None:
        """What a planned refusal changes: a budget is closed, the sequence of a card operation is used up."""
        code = fault.body.get("code") if isinstance(fault.body, dict) else None
        headers = {key.lower(): value for key, value in fault.headers.items()}
        if (reset := headers.get("x-ogw-ratelimit-reset")) and (fault.status == 429 or code == 99991400):
            limit = int(headers.get("x-ogw-ratelimit-limit", "50"))
            self.rates.close(*self._app_budget(api), float(reset), limit)
        elif code == 230020 and "message_id" in args:
            self.rates.close("message", str(args["message_id"]), 1.0, 5)
        elif isinstance(code, int) and code < 99_990_000 and api.name.startswith("cardkit."):
            self.cardkit.use_up(api.name, args)

    def _call(self, name: str, args: Json) -> Json | Blob:
        messages, cardkit = self.messages, self.cardkit
        match name:
            case "auth.token":
                return self.tokens.issue(args.get("app_id"), args.get("app_secret"))
            case "bot.info":
                bot = self.world.bot
                info = {"activate_status": 2, "app_name": bot.name, "avatar_url": "", "open_id": bot.open_id}
                return {"code": 0, "msg": "ok", "bot": {**info, "ip_white_list": []}}
            case "application.scopes":
                scopes = sorted(self.scopes.granted)
                items = [{"scope_name": one, "grant_status": 1, "scope_type": "tenant"} for one in scopes]
                return {"scopes": items}
        calls: dict[str, Callable[[Json], Json | Blob]] = {
            "im.message.create": messages.create,
            "im.message.reply": messages.reply,
            "im.message.patch": messages.patch,
            "im.message.update": messages.update,
            "im.message.delete": messages.delete,
            "im.message.get": messages.get,
            "im.resource.get": messages.resource,
            "im.image.create": messages.create_image,
            "im.file.create": messages.create_file,
            "im.reaction.create": messages.create_reaction,
            "im.reaction.list": messages.list_reactions,
            "im.reaction.delete": messages.delete_reaction,
            "im.chat.get": messages.chat,
            "contact.user.get": messages.user,
            "cardkit.card.create": cardkit.create,
            "cardkit.card.id_convert": self._convert,
            "cardkit.card.update": cardkit.update,
            "cardkit.card.settings": cardkit.settings,
            "cardkit.card.batch_update": cardkit.batch_update,
            "cardkit.element.create": cardkit.create_elements,
            "cardkit.element.content": cardkit.content,
            "cardkit.element.update": cardkit.update_element,
            "cardkit.element.patch": cardkit.patch_element,
            "cardkit.element.delete": cardkit.delete_element,
        }
        return calls[name](args)

    def _convert(self, args: Json) -> Json:
        message = self.world.messages.get(str(args.get("message_id")))
        if message is None or message.card_id not in self.cardkit.cards:
            raise Refusal(230001, f"message {args.get('message_id')} is not a card")
        card = self.cardkit.cards[message.card_id]
        card.is_entity = True
        return {"card_id": card.card_id}

    # -- the long connection's two doors

    async def _endpoint(self, request: web.Request) -> web.StreamResponse:
        name = "ws.endpoint"
        try:
            args = await _read(request)
        except Refusal as refusal:
            return self._finish(name, {}, self._refused(name, refusal))
        fault = self.faults.take(name)
        if fault is not None and fault.kind is FaultKind.DELAY:
            await self.clock.sleep(fault.seconds)
        elif fault is not None and fault.kind is FaultKind.ANSWER:
            return self._finish(name, args, _planned(fault))
        elif fault is not None:
            return self._drop(request, name, args, "dropped")
        if args.get("AppID") != self.app_id or args.get("AppSecret") != self.app_secret:
            return self._finish(name, args, Answer(200, {"code": 514, "msg": "auth failed: app id or secret"}))
        return self._finish(name, args, Answer(200, self.longconn.endpoint(self.url)))

    async def _connect(self, request: web.Request) -> web.StreamResponse:
        name = "ws.connect"
        fault = self.faults.take(name)
        if fault is not None and fault.kind is FaultKind.ANSWER:
            return self._finish(name, {}, Answer(fault.status, str(fault.body), dict(fault.headers)))
        if fault is not None and fault.kind is not FaultKind.DELAY:
            return self._drop(request, name, {}, "dropped")
        if fault is not None:
            await self.clock.sleep(fault.seconds)
        refused = self.longconn.handshake_refusal(request.query.get("ticket", ""))
        if refused is not None:
            return self._finish(name, {}, _handshake_answer(*refused))
        self.journal.calls.append(Call(self.clock.now(), name, {}, 101, None))
        return await self.longconn.serve(request)

    # -- endings

    def _refused(self, name: str, refusal: Refusal) -> Answer:
        if refusal.broken:
            self.break_rule(f"{name}: {refusal.why} ({refusal.code})")
        status = 200 if self.codes_as_http_200 else refusal.status
        return Answer(status, refusal.body(self.world.ids.hex(length=24)), refusal.headers)

    def _finish(self, name: str, args: Json, answer: Answer) -> web.Response:
        self._note(name, args, answer.status, answer.brief())
        response = answer.response()
        response.headers.setdefault("X-Tt-Logid", self.world.ids.hex(length=24))
        return response

    def _drop(self, request: web.Request, name: str, args: Json, answer: object) -> web.Response:
        """Cut the connection instead of answering; the journal has it with status 0."""
        self._note(name, args, 0, answer)
        if request.transport is not None:
            request.transport.abort()
        return web.Response()

    def _note(self, name: str, args: Json, status: int, answer: object) -> None:
        kept = {k: f"{len(v)} bytes" if isinstance(v, bytes) else v for k, v in args.items() if k not in _SECRET}
        self.journal.calls.append(Call(self.clock.now(), name, kept, status, answer))
        self.changed()


async def _read(request: web.Request) -> Json:
    """Path, query and body as one; the body of an upload as bytes."""
    args: Json = {**request.query}
    if request.content_type == "multipart/form-data":
        async for part in await request.multipart():
            if isinstance(part, BodyPartReader) and part.name:
                data = bytes(await part.read(decode=True))
                # By name and not by a filename: the vendor's own SDK sends none.
                args[part.name] = data if part.name in ("image", "file") else data.decode()
    elif body := await request.read():
        try:
            given = json.loads(body)
        except ValueError:
            raise Refusal(9499, "the body is not JSON") from None
        if not isinstance(given, dict):
            raise Refusal(9499, "the body is not a JSON object")
        args.update(given)
    return {**args, **request.match_info}


def _planned(fault: Fault) -> Answer:
    body = fault.body if isinstance(fault.body, dict | bytes) else str(fault.body)
    return Answer(fault.status, body, dict(fault.headers))


def _handshake_answer(status: int, msg: str, auth_code: int | None) -> Answer:
    headers = {"handshake-status": str(status), "handshake-msg": msg}
    if auth_code is not None:
        headers["handshake-autherrcode"] = str(auth_code)
    return Answer(403, msg, headers)


def _download_headers(blob: Blob) -> dict[str, str]:
    guessed, _ = mimetypes.guess_type(blob.name)
    kind = "image/png" if blob.kind == "image" else guessed or "application/octet-stream"
    name = blob.name.encode("ascii", "replace").decode().replace('"', "'")
    return {"Content-Type": kind, "Content-Disposition": f'attachment; filename="{name}"'}
