"""What the page posts becomes one inbound, committed before it is answered; what it asks for is its own."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import httpx
import pytest

from adapters.web.adapter import WebAdapter
from channels.adapter import Gone, ReplyTarget
from channels.commands import question_in
from channels.model import (
    Action,
    Attachment,
    File,
    Inbound,
    InboundKind,
    Option,
    Phase,
    Press,
    Question,
    TurnId,
    View,
    new_turn_id,
)
from tests.adapters.web.conftest import visiting
from tests.adapters.web.core import FakeSink, adapter_for, message_view, reconcile

_ID = str(uuid.UUID(int=7))


async def _say(visitor: httpx.AsyncClient, text: str, message: str = _ID) -> httpx.Response:
    return await visitor.post("/messages", files={"id": (None, message), "text": (None, text)})


async def _press(
    visitor: httpx.AsyncClient, action: Action, turn: str, value: str = "", press: str | None = None
) -> httpx.Response:
    body = {"id": press or str(uuid.uuid4()), "action": action, "turn": turn, "value": value}
    return await visitor.post("/presses", json=body)


async def _show(adapter: WebAdapter, inbound: Inbound, view: View, turn: TurnId | None = None) -> TurnId:
    turn = turn or new_turn_id()
    surface = adapter.surface(ReplyTarget(turn, inbound.place, inbound))
    await reconcile(surface, view, surface.shown_type())
    return turn


async def _history(visitor: httpx.AsyncClient) -> list[Mapping[str, object]]:
    answer = await visitor.get("/history", params={"order": 2**53, "seq": 0})
    entries: list[Mapping[str, object]] = answer.json()["entries"]
    return entries


# ---------------------------------------------------------------- messages


async def test_a_message_becomes_an_inbound_of_this_browser(visitor: httpx.AsyncClient, sink: FakeSink) -> None:
    answer = await _say(visitor, "Hello\r\nthere")
    assert (answer.status_code, answer.json()) == (200, {"accepted": "taken"})
    (inbound,) = sink.inbounds
    assert (inbound.kind, inbound.text, inbound.message_id) == (InboundKind.MESSAGE, "Hello\nthere", _ID)
    assert inbound.place.private
    assert inbound.place.chat == inbound.sender.id
    assert inbound.channel == "web"
    assert [entry["kind"] for entry in await _history(visitor)] == ["ask"]


async def test_a_line_break_counts_as_one_character(sink: FakeSink) -> None:
    adapter = adapter_for(sink, message_chars=100)
    await adapter.start()
    async with visiting(adapter) as visitor:
        await visitor.get("/")
        assert (await _say(visitor, "x" + "\r\n" * 98 + "x")).status_code == 200
        assert (await _say(visitor, "x" + "\r\n" * 99 + "x")).status_code == 413
    assert [len(inbound.text) for inbound in sink.inbounds] == [100]
    await adapter.stop()


async def test_a_message_that_is_sent_again_is_one_message(visitor: httpx.AsyncClient, sink: FakeSink) -> None:
    await _say(visitor, "Hello")
    assert (await _say(visitor, "Hello")).json() == {"accepted": "duplicate"}
    assert len(sink.inbounds) == 1
    assert len(await _history(visitor)) == 1


async def test_a_message_is_not_acknowledged_while_the_store_is_away(
    visitor: httpx.AsyncClient, sink: FakeSink
) -> None:
    sink.is_away = True
    answer = await _say(visitor, "Hello")
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "2"
    assert await _history(visitor) == []
    sink.is_away = False
    assert (await _say(visitor, "Hello")).json() == {"accepted": "taken"}


async def test_a_message_that_is_not_for_the_bot_is_not_part_of_the_history(
    visitor: httpx.AsyncClient, sink: FakeSink
) -> None:
    sink.ignores = True
    assert (await _say(visitor, "Hello")).json() == {"accepted": "ignored"}
    assert await _history(visitor) == []


@pytest.mark.parametrize(
    ("message", "text", "status"),
    [
        ("not a uuid", "Hello", 400),
        ("", "Hello", 400),
        (_ID, "", 400),
        (_ID, "  \n ", 400),
        (_ID, "x" * 101, 413),
        (_ID, "谢" * 101, 413),
        (_ID, "x" * 1_000_000, 413),
    ],
)
async def test_a_message_that_cannot_be_taken_is_refused_with_the_reason(
    sink: FakeSink, message: str, text: str, status: int
) -> None:
    adapter = adapter_for(sink, message_chars=100, upload_bytes=1_000)
    await adapter.start()
    async with visiting(adapter) as visitor:
        await visitor.get("/")
        answer = await _say(visitor, text, message)
    assert answer.status_code in (status, 400)
    assert answer.json()["error"]
    assert sink.inbounds == []
    await adapter.stop()


async def test_new_is_a_divider_and_commands_get_no_thumbs(
    visitor: httpx.AsyncClient, sink: FakeSink, adapter: WebAdapter
) -> None:
    await _say(visitor, "/new")
    await _show(adapter, sink.inbounds[0], message_view("A new conversation."))
    entries = await _history(visitor)
    assert [entry["kind"] for entry in entries] == ["divider", "reply"]
    assert "end" not in dict(entries[1]["pieces"])  # type: ignore[call-overload]


async def test_a_question_behind_new_is_shown_and_its_answer_gets_thumbs(
    visitor: httpx.AsyncClient, sink: FakeSink, adapter: WebAdapter
) -> None:
    await _say(visitor, "/new What is it?")
    question = question_in(sink.inbounds[0])
    assert question is not None
    await _show(adapter, question, message_view("A bridge."))
    asked, reply = await _history(visitor)
    assert (asked["kind"], reply["kind"]) == ("ask", "reply")
    assert "What is it?" in str(asked["pieces"])
    assert "end" in dict(reply["pieces"])  # type: ignore[call-overload]


# ---------------------------------------------------------------- files


async def test_files_come_with_the_message_and_can_be_fetched(
    visitor: httpx.AsyncClient, sink: FakeSink, adapter: WebAdapter
) -> None:
    content = bytes(range(256)) * 1_000
    await visitor.post(
        "/messages",
        data={"id": _ID, "text": ""},
        files=[
            ("files", ("C:\\folder\\../ä\u202eb.bin", content, "Application/X-Test; charset=x")),
            ("files", ("../..//", b"two", "<script>")),
        ],
    )
    first, second = sink.inbounds[0].attachments
    assert (first.name, first.mime, first.size) == ("äb.bin", "application/x-test", len(content))
    assert (second.name, second.mime) == ("file", "application/octet-stream")
    chunks = [chunk async for chunk in adapter.fetch(first)]
    assert b"".join(chunks) == content
    assert max(map(len, chunks)) <= 65_536
    answer = await visitor.get(f"/uploads/{first.reference['upload']}")
    assert answer.content == content
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert "sandbox" in answer.headers["content-security-policy"]


async def test_a_file_that_is_no_longer_kept_is_gone(adapter: WebAdapter) -> None:
    with pytest.raises(Gone):
        await anext(aiter(adapter.fetch(Attachment("a", "b", {"browser": "x", "upload": "y"}))))


@pytest.mark.parametrize(
    ("files", "status"),
    [([b"x" * 2_000], 413), ([b"x" * 900] * 3, 413), ([b"x"] * 4, 400)],
    ids=["one too large", "all together too large", "too many"],
)
async def test_uploads_are_bounded(sink: FakeSink, files: list[bytes], status: int) -> None:
    adapter = adapter_for(
        sink, upload_bytes=2_000, upload_files=3, message_chars=10, limits={"attachment_bytes": 1_000}
    )
    await adapter.start()
    async with visiting(adapter) as visitor:
        await visitor.get("/")
        answer = await visitor.post(
            "/messages",
            data={"id": _ID, "text": "x"},
            files=[("files", (f"{number}", data)) for number, data in enumerate(files)],
        )
    assert answer.status_code == status
    assert sink.inbounds == []
    await adapter.stop()


async def test_files_of_the_agent_are_handed_out_to_the_browser_they_are_for(
    visitor: httpx.AsyncClient, sink: FakeSink, adapter: WebAdapter
) -> None:
    await _say(visitor, "Draw")
    files = (
        File("a/b c", "plän.html", "text/html", reference={"content": "<script>alert(1)</script>"}),
        File("p", "p.png", "image/png", reference={"content": "png"}),
        File("s", "s.svg", "image/svg+xml", reference={"content": "<svg onload=alert(1)>"}),
        File("gone", "g", "text/plain"),
    )
    turn = await _show(adapter, sink.inbounds[0], message_view("Here.", files=files))
    page = await visitor.get(f"/files/{turn}/a/b%20c")
    assert page.text == "<script>alert(1)</script>"
    assert page.headers["content-type"] == "application/octet-stream"
    assert page.headers["content-disposition"] == "attachment; filename*=UTF-8''pl%C3%A4n.html"
    assert page.headers["x-content-type-options"] == "nosniff"
    picture = await visitor.get(f"/files/{turn}/p")
    assert (picture.headers["content-type"], picture.headers["content-disposition"][:6]) == ("image/png", "inline")
    drawing = await visitor.get(f"/files/{turn}/s")
    assert drawing.headers["content-type"] == "application/octet-stream"
    assert (await visitor.get(f"/files/{turn}/gone")).status_code == 410
    assert (await visitor.get(f"/files/{turn}/other")).status_code == 404
    assert (await visitor.get(f"/files/{new_turn_id()}/p")).status_code == 404
    async with visiting(adapter) as stranger:
        await stranger.get("/")
        assert (await stranger.get(f"/files/{turn}/p")).status_code == 404


# ---------------------------------------------------------------- buttons


async def test_presses_of_each_kind_reach_the_core(
    visitor: httpx.AsyncClient, sink: FakeSink, adapter: WebAdapter
) -> None:
    await _say(visitor, "Hello")
    turn = await _show(adapter, sink.inbounds[0], message_view("Half", Phase.WRITING))
    assert (await _press(visitor, Action.STOP, turn)).json() == {"accepted": "taken"}
    assert (await _press(visitor, Action.RETRY, turn)).json() == {"accepted": "taken"}
    assert (await _press(visitor, Action.FEEDBACK, turn, "down")).json() == {"accepted": "taken"}
    presses = [inbound.press for inbound in sink.inbounds[1:]]
    assert presses == [
        Press(Action.STOP, turn),
        Press(Action.RETRY, turn),
        Press(Action.FEEDBACK, turn, "down"),
    ]
    assert {inbound.kind for inbound in sink.inbounds[1:]} == {InboundKind.PRESS}
    assert [entry["kind"] for entry in await _history(visitor)] == ["ask", "reply"]


async def test_an_answer_carries_its_option_and_stands_in_the_history_in_words(
    visitor: httpx.AsyncClient, sink: FakeSink, adapter: WebAdapter
) -> None:
    await _say(visitor, "Plan")
    question = Question("q", "Which?", (Option("0", "Slow"), Option("1", "Fast")))
    turn = await _show(adapter, sink.inbounds[0], message_view("", Phase.ASKING, question=question))
    await _press(visitor, Action.ANSWER, turn, "1")
    inbound = sink.inbounds[1]
    assert (inbound.press, inbound.text) == (Press(Action.ANSWER, turn, "1"), "Fast")
    await _show(adapter, inbound, message_view("Fast it is."))
    texts = [dict(entry["pieces"]).get("text") for entry in await _history(visitor)]  # type: ignore[call-overload]
    assert texts == ["<p>Plan</p>", None, "<p>Fast</p>", None]


async def test_a_free_answer_is_taken_only_where_the_question_allows_it(
    visitor: httpx.AsyncClient, sink: FakeSink, adapter: WebAdapter
) -> None:
    await _say(visitor, "Plan")
    question = Question("q", "Which?", (Option("0", "Slow"),), free_text=False)
    turn = await _show(adapter, sink.inbounds[0], message_view("", Phase.ASKING, question=question))
    assert (await _press(visitor, Action.ANSWER, turn, "something else")).status_code == 400
    open_question = Question("q", "Which?", (Option("0", "Slow"),))
    await _show(adapter, sink.inbounds[0], message_view("", Phase.ASKING, question=open_question), turn)
    assert (await _press(visitor, Action.ANSWER, turn, "  ")).status_code == 400
    typed = {"id": str(uuid.uuid4()), "action": "a", "turn": turn, "value": "0", "typed": True}
    assert (await visitor.post("/presses", json=typed)).status_code == 200
    press = sink.inbounds[-1].press
    assert (press, sink.inbounds[-1].text) == (Press(Action.ANSWER, turn, "0", is_typed=True), "0")
    await _press(visitor, Action.ANSWER, turn, "something else")
    assert sink.inbounds[-1].text == "something else"


async def test_a_press_that_is_sent_again_is_one_press(
    visitor: httpx.AsyncClient, sink: FakeSink, adapter: WebAdapter
) -> None:
    await _say(visitor, "Hello")
    turn = await _show(adapter, sink.inbounds[0], message_view("Half", Phase.WRITING))
    for _ in range(2):
        await _press(visitor, Action.STOP, turn, press=str(uuid.UUID(int=8)))
    assert len(sink.inbounds) == 2


async def test_buttons_of_other_browsers_cannot_be_pressed(
    visitor: httpx.AsyncClient, sink: FakeSink, adapter: WebAdapter
) -> None:
    await _say(visitor, "Hello")
    turn = await _show(adapter, sink.inbounds[0], message_view("Half", Phase.WRITING))
    async with visiting(adapter) as stranger:
        await stranger.get("/")
        assert (await _press(stranger, Action.STOP, turn)).status_code == 404
    assert len(sink.inbounds) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"id": "x", "action": "s", "turn": ""}',
        b'{"id": "' + _ID.encode() + b'", "action": "delete", "turn": "' + b"a" * 32 + b'"}',
        b'{"id": "' + _ID.encode() + b'", "action": "s", "turn": "../' + b"a" * 29 + b'"}',
        b'{"id": "'
        + _ID.encode()
        + b'", "action": "a", "turn": "'
        + b"a" * 32
        + b'", "value": "'
        + b"x" * 2001
        + b'"}',
    ],
)
async def test_nonsense_instead_of_a_press_is_refused(visitor: httpx.AsyncClient, sink: FakeSink, body: bytes) -> None:
    assert (await visitor.post("/presses", content=body)).status_code == 400
    assert sink.inbounds == []


async def test_a_huge_press_is_refused_before_it_is_read_whole(visitor: httpx.AsyncClient, sink: FakeSink) -> None:
    assert (await visitor.post("/presses", content=b"x" * 100_000)).status_code == 413


async def test_feedback_is_one_of_three(visitor: httpx.AsyncClient, sink: FakeSink, adapter: WebAdapter) -> None:
    await _say(visitor, "Hello")
    turn = await _show(adapter, sink.inbounds[0], message_view("Done."))
    assert (await _press(visitor, Action.FEEDBACK, turn, "sideways")).status_code == 400
    for value, pressed in (("up", "true"), ("", "false")):
        await _press(visitor, Action.FEEDBACK, turn, value)
        pieces = dict((await _history(visitor))[-1]["pieces"])  # type: ignore[call-overload]
        assert f'data-value="up" aria-pressed="{pressed}"' in pieces["end"]


# ---------------------------------------------------------------- the page


async def test_the_page_shows_what_the_settings_say_and_escapes_it(sink: FakeSink) -> None:
    adapter = adapter_for(sink, title="A <b>", greeting='Hi "you"', suggestions=["What's & why?"])
    await adapter.start()
    async with visiting(adapter) as visitor:
        page = (await visitor.get("/")).text
    assert "<title>A &lt;b&gt;</title>" in page
    assert "Hi &#34;you&#34;" in page
    assert "What&#39;s &amp; why?" in page
    await adapter.stop()


async def test_everything_the_page_needs_comes_from_the_bridge(visitor: httpx.AsyncClient) -> None:
    page = (await visitor.get("/")).text
    assert "http://" not in page.replace('xmlns="http://www.w3.org/', "")
    assert "https://" not in page
    for path in ("app.js", "app.css", "timeline.js", "stream.js", "outbox.js", "composer.js", "post.js", "icon.svg"):
        answer = await visitor.get(f"/static/{path}")
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "no-cache"
        again = await visitor.get(f"/static/{path}", headers={"if-none-match": answer.headers["etag"]})
        assert again.status_code == 304


@pytest.mark.parametrize(
    "path", ["/static/../adapter.py", "/static/%2e%2e/adapter.py", "/static/nothing.js", "/nothing"]
)
async def test_nothing_else_is_served(visitor: httpx.AsyncClient, path: str) -> None:
    assert (await visitor.get(path)).status_code == 404


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"order": "x", "seq": "1"},
        {"order": "1"},
        {"order": "1" + "0" * 30, "seq": "0"},
        {"order": "-" + "9" * 30, "seq": "0"},
        {"order": "1", "seq": str(2**31)},
        {"order": "²", "seq": "0"},
    ],
)
async def test_history_needs_a_position(visitor: httpx.AsyncClient, query: dict[str, str]) -> None:
    assert (await visitor.get("/history", params=query)).status_code == 400


async def test_any_position_that_is_taken_can_be_looked_up(sink: FakeSink, empty_database_url: str) -> None:
    adapter = adapter_for(sink, store=empty_database_url)
    await adapter.start()
    async with visiting(adapter) as visitor:
        await visitor.get("/")
        for order, seq in ((0, 0), (10**18 - 1, 2**31 - 1)):
            answer = await visitor.get("/history", params={"order": order, "seq": seq})
            assert answer.json() == {"entries": [], "earlier": False}
    await adapter.stop()
