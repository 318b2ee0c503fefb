"""The emulator as a process: a control API that does what the Python methods do, and a page to play by hand."""

from __future__ import annotations

import base64
import html
import inspect
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from aiohttp import web

from tests.emulators.feishu.picture import Shown, as_json
from tests.emulators.feishu.refusals import Json
from tests.emulators.journal import Fault, FaultKind

if TYPE_CHECKING:
    from tests.emulators.feishu.emulator import FeishuEmulator

_ACTIONS = """
    add_person add_group p2p say post image file audio media sticker share_chat merge_forward send_raw recall react
    press type_input add_bot remove_bot set_webhook redeliver redeliver_as_new hold_events release_events verify_webhook
    forge replay close_connections abort_connections half_open revoke_tokens revoke_scope grant_scope close_streaming
    remove_message make_unavailable visible_text
"""
ACTIONS = frozenset(_ACTIONS.split())
_POSITIONAL = "args"


def control_routes(emulator: FeishuEmulator) -> list[web.RouteDef]:
    """The routes under `/_control` and the page at `/`."""

    async def act(request: web.Request) -> web.Response:
        name = request.match_info["action"]
        if name not in ACTIONS:
            raise web.HTTPNotFound(text=f"no action {name}; there are: {', '.join(sorted(ACTIONS))}")
        given = _decoded(await request.json() if request.can_read_body else {})
        try:
            result = getattr(emulator, name)(*given.pop(_POSITIONAL, []), **given)
            result = await result if inspect.isawaitable(result) else result
        except (AssertionError, KeyError, StopIteration, TypeError, RuntimeError) as error:
            raise web.HTTPConflict(text=f"{type(error).__name__}: {error}") from error
        return web.json_response({"result": _encoded(result)})

    async def state(_: web.Request) -> web.Response:
        return web.json_response(state_of(emulator))

    async def fault(request: web.Request) -> web.Response:
        given = await request.json()
        method, kind = given.pop("method"), FaultKind(given.pop("kind"))
        times = int(given.pop("times", 1))
        emulator.faults.plan(method, *[Fault(kind, **given)] * times)
        return web.json_response({"result": times})

    async def page(_: web.Request) -> web.Response:
        return web.Response(text=_FRAME, content_type="text/html")

    async def chats(_: web.Request) -> web.Response:
        return web.Response(text=_chats_page(emulator), content_type="text/html")

    async def form(request: web.Request) -> web.Response:
        given = {key: str(value) for key, value in (await request.post()).items()}
        chat_id = given["chat"] or emulator.p2p(given["who"])
        if given.get("text"):
            await emulator.say(given["who"], chat_id, given["text"])
        raise web.HTTPSeeOther("/")

    async def press(request: web.Request) -> web.Response:
        given = {key: str(value) for key, value in (await request.post()).items()}
        message, button = given.pop("message"), given.pop("button")
        await emulator.press("Player", message, button, given)
        raise web.HTTPSeeOther("/chats")

    return [
        web.get("/", page),
        web.get("/chats", chats),
        web.post("/say", form),
        web.post("/press", press),
        web.get("/_control/state", state),
        web.post("/_control/fault", fault),
        web.post("/_control/{action}", act),
    ]


def state_of(emulator: FeishuEmulator) -> Json:
    """Chats, people, journal, events and connections, as JSON."""
    world = emulator.world
    return {
        "now": emulator.clock.now(),
        "bot": {"name": world.bot.name, "open_id": world.bot.open_id},
        "people": {person.name: person.open_id for person in world.people.values()},
        "chats": [
            {
                "chat_id": chat.chat_id,
                "name": chat.name,
                "kind": chat.kind,
                "bot_in": chat.bot_in,
                "messages": [as_json(one) for one in emulator.chat(chat.chat_id)],
            }
            for chat in world.chats.values()
        ],
        "calls": [asdict(call) for call in emulator.journal.calls],
        "broken": list(emulator.journal.broken),
        "events": [
            {
                "event_id": event.event_id,
                "event_type": event.event_type,
                "message_id": event.message_id,
                "acked": event.acked,
                "attempts": [str(attempt.outcome) for attempt in event.attempts],
            }
            for event in emulator.events
        ],
        "connections": len(emulator.longconn.connections),
    }


def _decoded(value: Any) -> Any:
    """JSON arguments; `{"base64": "…"}` stands for bytes."""
    if isinstance(value, dict):
        if set(value) == {"base64"}:
            return base64.b64decode(value["base64"])
        return {key: _decoded(one) for key, one in value.items()}
    return [_decoded(one) for one in value] if isinstance(value, list) else value


def _encoded(result: Any) -> Any:
    if hasattr(result, "__dataclass_fields__"):
        return asdict(result)
    return result


_FRAME = """<!doctype html><meta charset="utf-8"><title>Feishu, emulated</title>
<form method="post" action="/say">
<input name="who" value="Player" size="8"> in chat <input name="chat" placeholder="empty: private chat" size="38">
<input name="text" size="60" autofocus placeholder="@Bridge hello"> <button>Send</button></form>
<iframe src="/chats" style="border:0;width:100%;height:90vh"></iframe>"""


def _chats_page(emulator: FeishuEmulator) -> str:
    parts = ['<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="1">', _STYLE]
    for chat in emulator.world.chats.values():
        parts.append(f"<h2>{html.escape(chat.name)} <small>{chat.kind} {chat.chat_id}</small></h2>")
        parts += [_message_html(emulator, one) for one in emulator.chat(chat.chat_id)]
    if emulator.journal.broken:
        parts.append(f"<h2>Broken rules</h2><pre>{html.escape(chr(10).join(emulator.journal.broken))}</pre>")
    return "\n".join(parts)


_STYLE = """<style>body{font:14px sans-serif}pre{white-space:pre-wrap;margin:2px 0}
div{border-left:3px solid #ccc;margin:6px 0;padding:2px 8px}div.bot{border-color:#36c}small{color:#777}</style>"""


def _message_html(emulator: FeishuEmulator, one: Shown) -> str:
    text = emulator.visible_text(one.card_id) if one.card_id else one.text
    state = " ".join(filter(None, [one.kind, one.gone, "streaming" if one.streaming else "", one.summary]))
    panels = "".join(
        f"<details><summary>{html.escape(p.title)}</summary><pre>{html.escape(p.text)}</pre></details>"
        for p in one.panels
    )
    fields = "".join(f'<input name="{html.escape(f.name)}" placeholder="{html.escape(f.name)}">' for f in one.inputs)
    buttons = "".join(
        f'<button name="button" value="{html.escape(b.text)}"{" disabled" if b.disabled else ""}>'
        f"{html.escape(b.text)}</button>"
        for b in one.buttons
    )
    form = (
        f'<form method="post" action="/press"><input type="hidden" name="message" value="{one.message_id}">'
        f"{fields}{buttons}</form>"
        if one.buttons
        else ""
    )
    reactions = " ".join(f":{emoji}:" for _, emoji in one.reactions)
    return (
        f'<div class="{"bot" if one.by_bot else "person"}"><b>{html.escape(one.sender)}</b> <small>{html.escape(state)}'
        f"</small> {html.escape(one.title)}<pre>{html.escape(text)}</pre>{panels}{form}{reactions}</div>"
    )
