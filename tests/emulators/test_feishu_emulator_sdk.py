"""The vendor's own SDK against the Feishu emulator: calls, events, long connection and webhook decryption."""

from __future__ import annotations

import asyncio
import importlib
import io
import json
import sys
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from tests.clock import ManualClock
from tests.emulators.feishu import FeishuEmulator, Outcome
from tests.emulators.feishu.driver import card
from tests.emulators.feishu.frames import decode
from tests.emulators.feishu.refusals import Json


def sdk(module: str) -> Any:
    """A module of the SDK, imported when a test needs it: that takes seconds."""
    return importlib.import_module(module)


@pytest.fixture
async def emulator() -> AsyncIterator[FeishuEmulator]:
    # The SDK keeps tokens for the whole process by app id: each test is an app of its own.
    app_id = f"cli_{id(object()):x}_{asyncio.get_running_loop().time():.6f}"
    async with FeishuEmulator(ManualClock(), app_id=app_id) as emulator:
        yield emulator


@pytest.fixture
def lark() -> Any:
    return sdk("lark_oapi")


@pytest.fixture
def client(lark: Any, emulator: FeishuEmulator) -> Any:
    builder = lark.Client.builder().app_id(emulator.app_id).app_secret(emulator.app_secret)
    return builder.domain(emulator.url).timeout(10).log_level(lark.LogLevel.ERROR).build()


async def test_a_card_is_created_sent_streamed_and_closed_by_the_sdk(emulator: FeishuEmulator, client: Any) -> None:
    cardkit = sdk("lark_oapi.api.cardkit.v1")
    im = sdk("lark_oapi.api.im.v1")
    group = emulator.add_group("Team", "Ann")

    def work() -> list[int]:
        body = cardkit.CreateCardRequestBody.builder().type("card_json").data(json.dumps(card(streaming=True))).build()
        created = client.cardkit.v1.card.create(cardkit.CreateCardRequest.builder().request_body(body).build())
        card_id = created.data.card_id
        content = json.dumps({"type": "card", "data": {"card_id": card_id}})
        message = im.CreateMessageRequestBody.builder().receive_id(group).msg_type("interactive").content(content)
        request = im.CreateMessageRequest.builder().receive_id_type("chat_id").request_body(message.build()).build()
        sent = client.im.v1.message.create(request)
        text = cardkit.ContentCardElementRequestBody.builder().content("…hello").sequence(1).uuid("u1").build()
        where = cardkit.ContentCardElementRequest.builder().card_id(card_id).element_id("md")
        streamed = client.cardkit.v1.card_element.content(where.request_body(text).build())
        again = client.cardkit.v1.card_element.content(where.request_body(text).build())
        off = json.dumps({"config": {"streaming_mode": False}})
        settings = cardkit.SettingsCardRequestBody.builder().settings(off).sequence(2).build()
        path = cardkit.SettingsCardRequest.builder().card_id(card_id).request_body(settings).build()
        closed = client.cardkit.v1.card.settings(path)
        return [one.code for one in (created, sent, streamed, again, closed)]

    assert await asyncio.to_thread(work) == [0, 0, 0, 300317, 0]
    [shown] = emulator.replies(group)
    assert (shown.text, shown.generating) == ("…hello", False)
    assert not emulator.journal.broken


async def test_a_file_goes_up_and_a_resource_comes_down_by_the_sdk(emulator: FeishuEmulator, client: Any) -> None:
    im = sdk("lark_oapi.api.im.v1")
    group = emulator.add_group("Team", "Ann")
    message_id = await emulator.file("Ann", group, "plan.txt", b"the plan")
    key = json.loads(emulator.world.messages[message_id].content)["file_key"]

    def work() -> tuple[str, bytes]:
        body = im.CreateFileRequestBody.builder().file_type("stream").file_name("a.txt").file(io.BytesIO(b"abc"))
        made = client.im.v1.file.create(im.CreateFileRequest.builder().request_body(body.build()).build())
        wanted = im.GetMessageResourceRequest.builder().message_id(message_id).file_key(key).type("file").build()
        return made.data.file_key, client.im.v1.message_resource.get(wanted).file.read()

    file_key, plan = await asyncio.to_thread(work)
    assert emulator.world.blobs[file_key].data == b"abc"
    assert plan == b"the plan"
    assert not emulator.journal.broken


def test_the_hand_written_frame_is_the_vendors_frame() -> None:
    pb = sdk("lark_oapi.ws.pb.pbbp2_pb2")
    theirs = pb.Frame(SeqID=2**63, LogID=5, service=7, method=1, payload=b"\x00\xff", payload_encoding="utf-8")
    header = theirs.headers.add()
    header.key, header.value = "type", "event"
    ours = decode(theirs.SerializeToString())
    assert (ours.seq_id, ours.log_id, ours.service, ours.method) == (2**63, 5, 7, 1)
    assert (ours.header("type"), ours.payload, ours.payload_encoding) == ("event", b"\x00\xff", "utf-8")
    back = pb.Frame()
    back.ParseFromString(ours.encode())
    assert back == theirs


def handler_of(lark: Any, emulator: FeishuEmulator, seen: list[Any], answer: Json | None = None) -> Any:
    """The vendor's dispatcher with this app's secrets."""
    models = sdk("lark_oapi.event.callback.model.p2_card_action_trigger")

    def pressed(event: Any) -> Any:
        seen.append(event)
        return models.P2CardActionTriggerResponse(answer or {})

    builder = lark.EventDispatcherHandler.builder(emulator.encrypt_key, emulator.verification_token)
    return builder.register_p2_im_message_receive_v1(seen.append).register_p2_card_action_trigger(pressed).build()


async def test_the_vendors_dispatcher_accepts_webhook_deliveries_and_the_challenge(
    lark: Any, emulator: FeishuEmulator
) -> None:
    models = sdk("lark_oapi.core.model")
    seen: list[Any] = []
    handler = handler_of(lark, emulator, seen)

    async def hook(request: web.Request) -> web.Response:
        raw = models.RawRequest()
        raw.uri, raw.body, raw.headers = request.path, await request.read(), dict(request.headers)
        answer = handler.do(raw)
        return web.Response(status=answer.status_code, body=answer.content, content_type="application/json")

    app = web.Application()
    app.router.add_post("/", hook)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    emulator.set_webhook(f"http://127.0.0.1:{runner.addresses[0][1]}/")
    assert await emulator.verify_webhook()
    message_id = await emulator.say("Ann", emulator.p2p("Ann"), "hi")
    await emulator.wait_for(lambda: emulator.event(message_id).acked)
    assert seen[0].event.message.message_id == message_id
    assert not emulator.journal.broken
    assert await emulator.forge("bad_signature") == 500
    assert await emulator.forge("wrong_token") == 500
    # The vendor's own dispatcher has no replay window: the emulator sees that.
    assert await emulator.forge("stale") == 200
    assert "stale" in emulator.journal.broken[0]
    await runner.cleanup()


class SdkSocket:
    """The SDK's long-connection client in a thread with a loop of its own (it has no way to stop by itself)."""

    def __init__(self, lark: Any, emulator: FeishuEmulator, handler: Any) -> None:
        self._module = sdk("lark_oapi.ws.client")
        self._loop = asyncio.new_event_loop()
        self._module.loop = self._loop
        self._client = lark.ws.Client(
            emulator.app_id,
            emulator.app_secret,
            event_handler=handler,
            domain=emulator.url,
            log_level=lark.LogLevel.CRITICAL,
        )
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._client._connect())
        pinging = self._loop.create_task(self._client._ping_loop())
        self._loop.run_forever()
        self._client._auto_reconnect = False
        pinging.cancel()
        waiting = asyncio.all_tasks(self._loop)
        for task in waiting:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*waiting, return_exceptions=True))
        self._loop.close()

    async def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join, 10)


async def test_the_vendors_long_connection_client_gets_events_in_parts_and_answers_callbacks(
    lark: Any, emulator: FeishuEmulator, client: Any
) -> None:
    seen: list[Any] = []
    toast = {"type": "info", "content": "Stopping"}
    socket = SdkSocket(lark, emulator, handler_of(lark, emulator, seen, {"toast": toast}))
    socket.start()
    try:
        await emulator.wait_for(lambda: [one for one in emulator.longconn.connections if one.pings])
        emulator.longconn.part_bytes = 256
        message_id = await emulator.say("Ann", emulator.p2p("Ann"), "hello " * 50)
        await emulator.wait_for(lambda: emulator.event(message_id).acked)
        assert seen[0].event.message.message_id == message_id
        emulator.longconn.part_bytes = None
        stop = {"tag": "button", "text": {"tag": "plain_text", "content": "Stop"}}
        card_id = emulator.cardkit.create({"type": "card_json", "data": json.dumps(card(stop))})["card_id"]
        content = json.dumps({"type": "card", "data": {"card_id": card_id}})
        private = emulator.p2p("Ann")
        sent = emulator.messages.create(
            {"receive_id_type": "chat_id", "receive_id": private, "msg_type": "interactive", "content": content}
        )
        pressed = await emulator.press("Ann", sent["message_id"], "Stop")
        assert (pressed.outcome, (pressed.toast or {})["content"]) == (Outcome.ACKED, "Stopping")
        assert not emulator.journal.broken
    finally:
        await socket.stop()


async def test_importing_the_emulator_does_not_import_the_sdk() -> None:
    code = "import sys, tests.emulators.feishu; sys.exit(any(m.startswith('lark_oapi') for m in sys.modules))"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    assert await process.wait() == 0
