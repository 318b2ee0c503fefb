"""The HTTP side of the web channel: the page, what it posts, and the events it follows."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import quote

import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Message, Receive

from adapters.web.cookies import Cookies
from adapters.web.guard import Tokens
from adapters.web.log import LogAway, Upload, WebLog
from adapters.web.paint import RASTER_IMAGES, AskedFile
from adapters.web.templating import FOLDER, STATIC_VERSION, render
from adapters.web.timeline import Asked, Timelines
from channels.adapter import Accepted, Context, Failure, FileGone, StoreAway
from channels.commands import CommandName, is_command, parse_command, question_in
from channels.model import Action, Attachment, Inbound, InboundKind, Place, Press, Sender, TurnId, View
from channels.shapes import whole_number
from config.web import WebChannel

log = structlog.get_logger(__name__)

_LONGEST_FREE_ANSWER = 2_000
_LONGEST_FILE_NAME = 120
_LAST_SEQ = 2**31 - 1  # what the log's column holds
_RETRY_SOON = {"retry-after": "2"}


class PressedButton(BaseModel):
    """What the page posts for a button."""

    model_config = ConfigDict(extra="forbid")

    id: uuid.UUID
    action: Action
    turn: str = Field(pattern=r"^[0-9a-f]{32}$")
    value: str = Field("", max_length=_LONGEST_FREE_ANSWER)
    typed: bool = False  # the value is what the person wrote, and never an option's id


def asked_of(inbound: Inbound) -> Asked:
    """How an inbound of this channel stands in the history."""
    is_press = inbound.kind is InboundKind.PRESS
    is_silent = is_press and (inbound.press is None or inbound.press.action is not Action.ANSWER)
    is_for_the_bridge = not is_press and is_command(inbound) and question_in(inbound) is None
    command = parse_command(inbound.text) if is_for_the_bridge else None
    return Asked(
        id=inbound.message_id,
        text="" if is_silent else inbound.text,
        at=inbound.received_at,
        files=tuple(
            AskedFile(str(attachment.reference["upload"]), attachment.name, attachment.size or 0)
            for attachment in inbound.attachments
        ),
        is_divider=command is not None and command.name is CommandName.NEW,
        is_command=command is not None,
    )


@dataclass(frozen=True, slots=True)
class Pages:
    """The pages of a started channel."""

    settings: WebChannel
    context: Context
    cookies: Cookies
    tokens: Tokens | None
    log: WebLog
    timelines: Timelines

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/", self._page),
                Route("/sign-in", self._sign_in, methods=["POST"]),
                Route("/sign-out", self._sign_out, methods=["POST"]),
                Route("/events", self._events),
                Route("/history", self._history),
                Route("/messages", self._message, methods=["POST"]),
                Route("/presses", self._press, methods=["POST"]),
                Route("/files/{turn}/{file:path}", self._file),
                Route("/uploads/{upload:path}", self._upload),
                Mount("/static", StaticFiles(directory=FOLDER / "static")),
            ],
            exception_handlers={HTTPException: _explain, LogAway: _away, StoreAway: _away},
        )

    # ------------------------------------------------------------ the page

    async def _page(self, request: Request) -> Response:
        if self.tokens is not None and not self.cookies.has_access(request) and not _has_bearer(request):
            return self._sign_in_page("", 401)
        response = HTMLResponse(
            render(
                "page",
                title=self.settings.title,
                greeting=self.settings.greeting,
                suggestions=self.settings.suggestions,
                most_files=self.settings.upload_files,
                most_bytes=self.settings.upload_bytes,
                most_file_bytes=self.settings.limits.attachment_bytes,
                most_chars=self.settings.message_chars,
                can_sign_out=self.tokens is not None,
                version=STATIC_VERSION,
            )
        )
        self.cookies.keep_browser(request, response)
        self.cookies.renew_access(request, response)
        return response

    def _sign_in_page(self, problem: str, status: int) -> Response:
        page = render("sign_in", title=self.settings.title, problem=problem, version=STATIC_VERSION)
        return HTMLResponse(page, status)

    async def _sign_in(self, request: Request) -> Response:
        async with request.form(max_files=0, max_fields=4, max_part_size=4_096) as form:
            given = form.get("token")
        if self.tokens is not None:
            if self.tokens.is_guessing(request):
                return self._sign_in_page("Too many wrong tokens. Wait a minute.", 429)
            if not isinstance(given, str) or not self.tokens.is_right(request, given.strip()):
                return self._sign_in_page("That is not the access token.", 401)
        response = RedirectResponse("./", 303)
        self.cookies.give_access(request, response)
        return response

    async def _sign_out(self, request: Request) -> Response:
        response = RedirectResponse("./", 303)
        self.cookies.take_access(request, response)
        return response

    # ------------------------------------------------------------ what the page follows

    async def _events(self, request: Request) -> Response:
        browser = self._browser(request)
        cursor = request.headers.get("last-event-id") or request.query_params.get("after")
        async with self.timelines.using(browser):
            pass  # what cannot be read is said by the status, which a stream could not change any more
        return StreamingResponse(
            self._stream(browser, cursor),
            media_type="text/event-stream",
            headers={"cache-control": "no-store, no-transform", "x-accel-buffering": "no"},
        )

    async def _stream(self, browser: str, cursor: str | None) -> AsyncIterator[bytes]:
        yield b"retry: 1000\n\n"
        async with self.timelines.using(browser) as timeline:
            async for event in timeline.follow(cursor):
                yield event.encode() if event is not None else b"event: ping\ndata: {}\n\n"

    async def _history(self, request: Request) -> Response:
        order, seq = (whole_number(request.query_params.get(name, "")) for name in ("order", "seq"))
        if order is None or seq is None or seq > _LAST_SEQ:
            raise HTTPException(400, "Say before which entry: order and seq.")
        before = (order, seq)
        async with self.timelines.using(self._browser(request)) as timeline:
            return JSONResponse(await timeline.earlier(before))

    async def _file(self, request: Request) -> Response:
        view = await self._view(self._browser(request), request.path_params["turn"])
        wanted = request.path_params["file"]
        file = next((file for file in view.files if file.id == wanted), None)
        if file is None:
            raise HTTPException(404, "There is no such file.")
        try:
            data = await self.context.open_file(file)
        except FileGone:
            raise HTTPException(410, "The file is no longer there.") from None
        except Failure as error:
            log.warning("a file could not be fetched", cause=str(error))
            raise HTTPException(502, "The file cannot be fetched now. Try again later.") from None
        return _download(data, file.name, file.mime)

    async def _upload(self, request: Request) -> Response:
        upload = await self.log.upload(self._browser(request), request.path_params["upload"])
        if upload is None:
            raise HTTPException(404, "There is no such file.")
        return _download(upload.data, upload.name, upload.mime)

    # ------------------------------------------------------------ what the page posts

    async def _message(self, request: Request) -> Response:
        browser = self._browser(request)
        settings = self.settings
        most_bytes = settings.upload_bytes + 4 * settings.message_chars
        bounded = Request(request.scope, _bounded(request, most_bytes))
        async with bounded.form(
            max_files=settings.upload_files, max_fields=4, max_part_size=4 * settings.message_chars
        ) as form:
            message, text = self._message_of(form)
            attachments = await self._keep_files(browser, message, form)
        if not text.strip() and not attachments:
            raise HTTPException(400, "The message is empty.")
        inbound = self._inbound(browser, message, InboundKind.MESSAGE, text, attachments)
        accepted = await self.context.sink.accept(inbound)
        if accepted is not Accepted.IGNORED:
            await self._show_question(inbound)
        return JSONResponse({"accepted": str(accepted)})

    def _message_of(self, form: FormData) -> tuple[str, str]:
        """The message's id and text."""
        try:
            message = str(uuid.UUID(str(form.get("id", ""))))
        except ValueError:
            raise HTTPException(400, "The message needs an id that is a UUID.") from None
        given = form.get("text", "")
        text = given.replace("\r\n", "\n") if isinstance(given, str) else ""  # a form says every line break so
        if len(text) > self.settings.message_chars:
            raise HTTPException(413, f"The message is longer than {self.settings.message_chars:,} characters.")
        return message, text

    async def _keep_files(self, browser: str, message: str, form: FormData) -> tuple[Attachment, ...]:
        attachments: list[Attachment] = []
        most_bytes = self.settings.limits.attachment_bytes
        for number, file in enumerate(form.getlist("files")):
            if not isinstance(file, UploadFile):
                raise HTTPException(400, "Files must be sent as files.")
            data = await file.read(most_bytes + 1)
            if len(data) > most_bytes:
                raise HTTPException(413, f"A file is larger than {most_bytes:,} bytes.")
            upload = Upload(f"{message}.{number}", _file_name(file.filename), _mime(file.content_type), data)
            await self.log.save_upload(browser, upload, self.context.clock.now())
            reference = {"browser": browser, "upload": upload.id}
            attachments.append(Attachment(upload.name, upload.mime, reference, len(data)))
        return tuple(attachments)

    async def _show_question(self, inbound: Inbound) -> None:
        try:
            async with self.timelines.using(inbound.place.chat) as timeline:
                await timeline.ask(asked_of(inbound))
        except LogAway as error:
            # It is accepted, and its reply will bring it into the history.
            log.warning("a question is not in the history yet", cause=str(error))

    async def _press(self, request: Request) -> Response:
        browser = self._browser(request)
        bounded = Request(request.scope, _bounded(request, 16_384))
        try:
            pressed = PressedButton.model_validate_json(await bounded.body())
        except ValidationError:
            raise HTTPException(400, "This button is not known.") from None
        turn = TurnId(pressed.turn)
        view = await self._view(browser, turn)
        text = _text_of(pressed, view)
        press = Press(pressed.action, turn, pressed.value, is_typed=pressed.typed)
        inbound = self._inbound(browser, str(pressed.id), InboundKind.PRESS, text, press=press)
        accepted = await self.context.sink.accept(inbound)
        if pressed.action is Action.FEEDBACK and accepted is not Accepted.IGNORED:
            async with self.timelines.using(browser) as timeline:
                await timeline.rate(turn, pressed.value)
        return JSONResponse({"accepted": str(accepted)})

    def _inbound(
        self,
        browser: str,
        message: str,
        kind: InboundKind,
        text: str,
        attachments: tuple[Attachment, ...] = (),
        press: Press | None = None,
    ) -> Inbound:
        return Inbound(
            place=Place(self.context.channel, browser, private=True),
            sender=Sender(browser),
            event_key=f"{browser}:{message}",
            kind=kind,
            text=text,
            received_at=self.context.clock.now(),
            message_id=message,
            attachments=attachments,
            press=press,
        )

    # ------------------------------------------------------------ inside

    def _browser(self, request: Request) -> str:
        browser = self.cookies.browser(request)
        if browser is None:
            raise HTTPException(401, "Open the page first; it gives your browser its conversation.")
        return browser

    async def _view(self, browser: str, turn: str) -> View:
        async with self.timelines.using(browser) as timeline:
            view = await timeline.view_of(TurnId(turn))
        if view is None:
            raise HTTPException(404, "There is no such answer in your conversation.")
        return view


def _text_of(pressed: PressedButton, view: View) -> str:
    """What the press says, in words: for an answer its option's label, or the free text."""
    if pressed.action is Action.FEEDBACK and pressed.value not in ("", "up", "down"):
        raise HTTPException(400, "Feedback is up, down or nothing.")
    if pressed.action is not Action.ANSWER:
        return ""
    question = view.question
    labels = {option.id: option.label for option in question.options} if question and not pressed.typed else {}
    if question is None or (pressed.value not in labels and not (question.free_text and pressed.value.strip())):
        raise HTTPException(400, "This is not an answer to the question.")
    return labels.get(pressed.value, pressed.value)


def _has_bearer(request: Request) -> bool:
    # The guard has refused wrong ones.
    return request.headers.get("authorization", "").lower().startswith("bearer ")


def _bounded(request: Request, most: int) -> Receive:
    """The request's body, refused once it is larger than `most` bytes."""
    taken = 0
    receive = request.receive

    async def bounded() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > most:
            raise HTTPException(413, f"The message is larger than {most:,} bytes.")
        return message

    return bounded


def _file_name(name: str | None) -> str:
    """The last part of a file's name, without anything that is not printable."""
    last = PurePosixPath((name or "").replace("\\", "/")).name
    visible = "".join(mark for mark in last if mark.isprintable())[-_LONGEST_FILE_NAME:].strip()
    return visible if visible.strip(".") else "file"


def _mime(given: str | None) -> str:
    essence = (given or "").partition(";")[0].strip().lower()
    kind, slash, rest = essence.partition("/")
    known = slash and kind.isascii() and kind.isalnum() and rest and rest.isascii() and len(essence) <= 100
    return essence if known else "application/octet-stream"


def _download(data: bytes, name: str, mime: str) -> Response:
    """A file as something to keep. Only pixel images are shown by the browser itself; anything else may hold code."""
    picture = mime in RASTER_IMAGES
    return Response(
        data,
        media_type=mime if picture else "application/octet-stream",
        headers={
            "content-disposition": f"{'inline' if picture else 'attachment'}; filename*=UTF-8''{quote(name, safe='')}",
            "content-security-policy": "default-src 'none'; sandbox",
            "cache-control": "private, max-age=3600",
        },
    )


async def _explain(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _away(_request: Request, error: Exception) -> Response:
    log.warning("a request was not taken", cause=str(error))
    return JSONResponse({"error": "The bridge cannot take this now; it will be tried again."}, 503, _RETRY_SOON)
