"""Files, both ways: whatever their type and size, and however the gateway or the platform is."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import aclosing

import httpx
import pytest

from adapters.feishu.api import Api, Upload
from adapters.feishu.errors import ApiRefusal
from channels.model import File, Phase, Segment, View
from tests.adapters.feishu.conftest import SPEED, Open
from tests.adapters.feishu.offline import Desk, Fault
from tests.clock import ManualClock
from tests.emulators.journal import Fault as Planned
from tests.emulators.journal import FaultKind
from tests.scripted import GiveFile, Say

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)


PATH = "im/v1/messages/om_1/resources/file_1"
NAMED = {"content-disposition": 'attachment; filename="data.json"'}
REFUSAL = b'{"code": 234043, "msg": "unsupported message type"}'


def serving(body: bytes | AsyncIterator[bytes], headers: dict[str, str], status: int = 200) -> Api:
    """The platform, which hands this out as a file."""

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/tenant_access_token/internal"):
            return httpx.Response(200, json={"code": 0, "tenant_access_token": "t", "expire": 7200})
        return httpx.Response(status, headers=headers, content=body)

    api = Api("http://127.0.0.1", "cli_1", "secret", ManualClock())
    api._client = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    return api


async def downloaded(api: Api, most: int = 10_000_000) -> bytes:
    """The file, or its beginning where it is larger than `most`."""
    data = b""
    async with aclosing(api.download(PATH, {})) as chunks:
        async for chunk in chunks:
            data += chunk
            if len(data) > most:
                break
    await api.close()
    return data


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "application/geo+json"])
@pytest.mark.parametrize("headers", [NAMED, {}])
@pytest.mark.parametrize(
    "data",
    [
        b'{"a": 1}',
        b'[{"code": 5}]',
        b'{"code": 0, "msg": "success"}',
        b'{"code": "A7"}',
        b'{"code": 5',
        b"",
        json.dumps({"code": 1, "rows": ["谢谢" * 10] * 2_000}).encode(),
    ],
)
async def test_a_file_is_a_file_whatever_its_type(kind: str, headers: dict[str, str], data: bytes) -> None:
    assert await downloaded(serving(data, {**headers, "content-type": kind})) == data


async def test_a_file_with_a_name_may_look_like_a_refusal() -> None:
    assert await downloaded(serving(REFUSAL, {**NAMED, "content-type": "application/json"})) == REFUSAL


@pytest.mark.parametrize(("status", "headers"), [(200, {}), (400, {}), (400, NAMED)])
async def test_a_refusal_is_no_file(status: int, headers: dict[str, str]) -> None:
    with pytest.raises(ApiRefusal):
        await downloaded(serving(REFUSAL, {**headers, "content-type": "application/json"}, status))


@pytest.mark.parametrize("kind", ["application/json", "application/octet-stream"])
async def test_no_more_is_read_of_a_file_than_is_taken(kind: str) -> None:
    pieces_read = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal pieces_read
        for _ in range(1_000):
            pieces_read += 1
            yield bytes(10_000)

    await downloaded(serving(pieces(), {"content-type": kind}), 100_000)
    assert pieces_read < 20


async def test_a_json_file_reaches_the_agent(open_room: Open) -> None:
    room = await open_room([Say("x")])
    await room.emulator.file("Ann", room.emulator.p2p("Ann"), "data.json", b'{"a": 1}')
    await room.settled()
    (run,) = room.bench.gateway.runs
    assert [(file.name, file.data) for file in getattr(run.request.input, "files", ())] == [("data.json", b'{"a": 1}')]


# -- files of the agent


def final(*files: File) -> View:
    return View(phase=Phase.DONE, body=(Segment("a", "Here."),), files=files, revision=1)


@pytest.mark.parametrize(("seconds", "kind"), [(5.0, "file"), (55.0, "file"), (75.0, "text")])
def test_a_file_that_is_away_is_asked_for_for_a_minute_and_then_named(seconds: float, kind: str) -> None:
    desk = Desk()
    view = final(File("f", "f.bin"))
    back = desk.clock.now() + seconds
    while desk.clock.now() < back and desk.step(view):
        pass
    desk.files["f"] = b"data"
    desk.settle(view)
    assert [reply.kind for reply in desk.replies] == ["interactive", kind]


def test_after_a_restart_a_file_that_is_away_gets_its_minute_anew() -> None:
    desk = Desk()
    view = final(File("f", "f.bin"))
    for _ in range(3):
        back = desk.clock.now() + 40.0
        while desk.clock.now() < back:
            assert desk.step(view)
        desk.crash()
    desk.files["f"] = b"data"
    desk.settle(view)
    assert [reply.kind for reply in desk.replies] == ["interactive", "file"]


@pytest.mark.parametrize("code", [234011, 234039, 234001])
def test_a_picture_that_is_refused_as_a_picture_is_sent_as_a_file(code: int) -> None:
    desk = Desk(files={"f": PNG})
    desk.api.trouble = lambda name: Fault(code=code) if name == "im.image.create" else None
    desk.settle(final(File("f", "chart.png")))
    assert [reply.kind for reply in desk.replies] == ["interactive", "file"]
    assert desk.api.calls.count("im.image.create") == 1


@pytest.mark.parametrize("code", [99991400, 232096, 234019])
def test_a_picture_that_cannot_be_sent_just_now_stays_a_picture(code: int) -> None:
    desk = Desk(files={"f": PNG})
    troubles = [Fault(code=code)] * 2
    desk.api.trouble = lambda name: troubles.pop() if name == "im.image.create" and troubles else None
    desk.settle(final(File("f", "chart.png")))
    assert [reply.kind for reply in desk.replies] == ["interactive", "image"]


async def test_a_large_file_may_take_long_to_send(open_room: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.feishu.calls._LONGEST", 0.2)
    room = await open_room([Say("Here."), GiveFile("big.zip", bytes(500_000))])
    room.emulator.faults.plan("im.file.create", Planned(FaultKind.DELAY, seconds=0.6 * SPEED))
    await room.ask("Ann", "zip it")
    await room.settled()
    assert [reply.kind for reply in room.replies(room.emulator.p2p("Ann"))] == ["interactive", "file"]
    assert room.bench.gateway.opened["big.zip"] == 1


def test_a_file_is_written_in_pieces_each_of_which_a_slow_line_takes_in_time() -> None:
    request = httpx.Request("POST", "http://x", files=Upload("file", "big.zip", bytes(500_000)).form())
    assert isinstance(request.stream, httpx.SyncByteStream)
    assert max(map(len, request.stream)) <= 65_536
