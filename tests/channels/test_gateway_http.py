"""What the gateway's HTTP answers lead to: retries, one run only, and one helpful sentence when it cannot be."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator

import httpx
import pytest
import respx
from langgraph_sdk.errors import ConflictError
from pydantic import JsonValue

from channels.gateway import Ask, Gateway, GatewayError, InputFile, Patience, RunRequest, WhenBusy, sentences
from channels.gateway.troubles import TroubleKind, trouble_of
from channels.model import File, Phase, RunId, ThreadId, TurnId, new_turn_id
from channels.transcript import Transcript
from tests.clock import ScaledClock
from tests.gateway.turns import SENDER, new_thread, run_turn

URL = "http://gateway.test"
RUN = "0e0e0e0e-0000-4000-8000-000000000001"
SSE = {"content-type": "text/event-stream"}


def gateway(
    *, patience: Patience | None = None, dialect: str = "langgraph", clock: ScaledClock | None = None, **more: str
) -> Gateway:
    return Gateway(
        URL,
        api_key=more.get("api_key"),
        headers={"X-Given": "1"},
        dialect=dialect,
        clock=clock or ScaledClock(1000.0),
        patience=patience or Patience(idle=2000.0),
    )


Event = tuple[str, JsonValue]


def frames(*events: Event) -> bytes:
    return b"".join(f"event: {name}\r\ndata: {json.dumps(data)}\r\n\r\n".encode() for name, data in events)


def stream(*events: Event) -> httpx.Response:
    """A stream of a run, closed cleanly."""
    numbered = b"".join(
        f"event: {name}\r\ndata: {json.dumps(data)}\r\nid: {number}-0\r\n\r\n".encode()
        for number, (name, data) in enumerate([("metadata", {"run_id": RUN}), *events], 1)
    )
    return httpx.Response(200, headers=SSE, content=numbered)


def said(text: str, message: str = "m1") -> tuple[Event, Event]:
    """How a model's words come, and the end of the step that puts them into the state."""
    piece: JsonValue = {"type": "AIMessageChunk", "content": text, "id": message}
    whole: JsonValue = {"type": "ai", "content": text, "id": message}
    return ("messages", [piece, {"langgraph_node": "model"}]), ("updates", {"model": {"messages": [whole]}})


def state(turn: TurnId, *said: tuple[str, str]) -> JsonValue:
    """A thread's state with the turn's question and what was said to it, by message id."""
    messages: list[JsonValue] = [{"type": "human", "id": f"turn-{turn}", "content": "Hi"}]
    messages += [{"type": "ai", "id": identity, "content": text} for identity, text in said]
    return {"values": {"messages": messages}}


def answer(text: str = "Hello") -> httpx.Response:
    whole: JsonValue = {"type": "ai", "content": text, "id": "m1"}
    body = frames(
        ("metadata", {"run_id": RUN}),
        ("messages", [whole, {"langgraph_node": "model"}]),
        ("updates", {"model": {"messages": [whole]}}),
    )
    return httpx.Response(200, headers=SSE, content=body)


@pytest.fixture
def server() -> Iterator[respx.MockRouter]:
    """A gateway where all goes well until a test says otherwise."""
    with respx.mock(base_url=URL, assert_all_called=False) as router:
        router.get("/info").respond(json={"version": "1"})
        router.post("/threads").respond(json={})
        router.get(path__regex=r"/threads/[^/]+$").respond(json={})
        router.get(path__regex=r"/threads/[^/]+/runs$", name="list").respond(json=[])
        router.post(path__regex=r"/threads/[^/]+/runs/stream$", name="start").mock(side_effect=lambda _: answer())
        router.get(path__regex=r"/threads/[^/]+/runs/[^/]+$", name="run").respond(json={"status": "success"})
        router.get(path__regex=r"/threads/[^/]+/state$", name="state").respond(json={"values": {}})
        router.post(path__regex=r"/threads/[^/]+/runs/[^/]+/cancel$", name="cancel").respond(202)
        yield router


def first(*responses: httpx.Response | Exception) -> list[httpx.Response | Exception]:
    return [*responses, answer()]


# ---------------------------------------------------------------- starting, once


async def test_a_run_asks_for_the_streams_it_needs_and_never_for_values(server: respx.MockRouter) -> None:
    turn = new_turn_id()
    seen = await run_turn(gateway(), "Hi", turn=turn)
    assert seen.end.view.text == "Hello"
    body = json.loads(server["start"].calls[0].request.content)
    assert body["stream_mode"] == ["messages-tuple", "updates", "custom"]
    assert body["stream_subgraphs"] is True
    assert body["stream_resumable"] is True
    assert body["on_disconnect"] == "continue"
    assert body["multitask_strategy"] == "reject"
    assert turn in json.dumps(body["metadata"])
    assert turn in json.dumps(body["config"])
    assert turn in body["input"]["messages"][0]["id"]
    assert body["input"]["messages"][0]["content"] == "Hi"
    assert not server["state"].called


@pytest.mark.parametrize(
    "trouble",
    [
        httpx.ConnectError("refused"),
        httpx.ConnectTimeout("slow"),
        httpx.ReadError("reset"),
        httpx.RemoteProtocolError("cut"),
        httpx.WriteError("cut"),
        httpx.Response(500),
        httpx.Response(502, text="<html>bad gateway</html>"),
        httpx.Response(503, headers={"retry-after": "1"}),
        httpx.Response(408),
        httpx.Response(429, headers={"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}),
    ],
    ids=lambda trouble: str(trouble) or type(trouble).__name__,
)
async def test_passing_troubles_are_tried_again(server: respx.MockRouter, trouble: httpx.Response | Exception) -> None:
    server["start"].mock(side_effect=first(trouble, trouble))
    seen = await run_turn(gateway(), "Hi")
    assert seen.end.view.text == "Hello"
    assert seen.started == [RUN]
    assert server["start"].call_count == 3


@pytest.mark.parametrize("trouble", [httpx.ReadError("reset"), httpx.Response(504), httpx.Response(409)])
async def test_an_ambiguous_start_is_looked_up_and_not_repeated(
    server: respx.MockRouter, trouble: httpx.Response | Exception
) -> None:
    turn = new_turn_id()
    server["start"].mock(side_effect=[trouble])
    other: JsonValue = {"run_id": "other", "metadata": {"x": "somebody else's"}}
    server["list"].respond(json=[other, {"run_id": RUN, "kwargs": {"input": {"messages": [{"id": f"turn-{turn}"}]}}}])
    server.get(path__regex=r"/threads/[^/]+/runs/[^/]+/stream$").mock(side_effect=lambda _: answer())
    server["state"].respond(
        json={
            "values": {
                "messages": [
                    {"type": "human", "id": f"turn-{turn}", "content": "Hi"},
                    {"type": "ai", "id": "m1", "content": "Hello"},
                ]
            }
        }
    )
    seen = await run_turn(gateway(), "Hi", turn=turn)
    assert seen.end.view.text == "Hello"
    assert seen.started == [RUN]
    assert server["start"].call_count == 1


@pytest.mark.parametrize(
    ("keeps_metadata", "asked_for"),
    [(True, [["run_id", "metadata"]]), (False, [["run_id", "metadata"], []])],
    ids=["with metadata", "without"],
)
async def test_looking_for_a_run_does_not_bring_the_files_of_all_runs_where_their_metadata_tells(
    server: respx.MockRouter, keeps_metadata: bool, asked_for: list[list[str]]
) -> None:
    turn, asked = new_turn_id(), list[list[str]]()

    def listed(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.params.get_list("select"))
        assert int(request.url.params["limit"]) <= 10
        runs: list[dict[str, JsonValue]] = [
            {"run_id": run, "kwargs": {"input": f"turn-{of}"}, "metadata": {"turn": of} if keeps_metadata else {}}
            for run, of in ((RUN, turn), ("other", "another"))
        ]
        fields = asked[-1] or list(runs[0])
        return httpx.Response(200, json=[{field: run[field] for field in fields} for run in runs])

    server["list"].mock(side_effect=listed)
    server.get(path__regex=r"/threads/[^/]+/runs/[^/]+/stream$").mock(side_effect=lambda _: answer())
    server["state"].respond(json=state(turn, ("m1", "Hello")))
    seen = await run_turn(gateway(), "Hi", turn=turn, maybe_requested=True)
    assert (seen.started, seen.end.view.text) == ([RUN], "Hello")
    assert asked == asked_for


async def test_retry_after_is_waited_for(server: respx.MockRouter) -> None:
    bridge = gateway()
    clock = ScaledClock(1000.0)
    times: list[float] = []

    def reply(_: httpx.Request) -> httpx.Response:
        times.append(clock.now())
        return httpx.Response(429, headers={"retry-after": "90"}) if len(times) == 1 else answer()

    server["start"].mock(side_effect=reply)
    await run_turn(bridge, "Hi")
    assert times[1] - times[0] >= 90


async def test_a_gateway_that_stays_away_is_told_and_given_up_after_a_while(server: respx.MockRouter) -> None:
    server["start"].mock(side_effect=httpx.ConnectError("refused"))
    seen = await run_turn(gateway(patience=Patience(start=60.0)), "Hi")
    assert any("cannot be reached" in view.notice for view in seen.views)
    assert seen.end.view.phase is Phase.FAILED
    assert "/retry" in seen.end.view.notice
    assert "refused" in seen.end.note
    assert not seen.started


async def test_the_notice_of_trouble_goes_when_it_is_over(server: respx.MockRouter) -> None:
    server["start"].mock(side_effect=[*[httpx.ConnectError("refused")] * 6, answer()])
    seen = await run_turn(gateway(), "Hi")
    assert any("cannot be reached" in view.notice for view in seen.views)
    assert seen.views[-1].notice == ""
    assert seen.end.view.notice == ""


@pytest.mark.parametrize(
    ("response", "words"),
    [
        (httpx.Response(401, json={"detail": {"code": "not_authenticated"}}), "key is not accepted"),
        (httpx.Response(403), "key is not accepted"),
        (httpx.Response(400, json={"detail": "context and configurable"}), "differently"),
        (httpx.Response(413), "too large"),
        (httpx.Response(422, json={"detail": "Invalid assistant: 'x'"}), "does not exist"),
        (httpx.Response(422, json={"detail": [{"loc": ["body", "input"]}]}), "differently"),
        (httpx.Response(404, json={"detail": "Thread or assistant not found."}), "does not exist"),
    ],
)
async def test_a_refusal_is_one_sentence_for_the_reader_and_its_cause_for_the_operator(
    server: respx.MockRouter, response: httpx.Response, words: str
) -> None:
    server["start"].mock(return_value=response)
    seen = await run_turn(gateway(), "Hi")
    assert seen.end.view.phase is Phase.FAILED
    assert words in seen.end.view.notice
    assert str(response.status_code) in seen.end.note
    assert server["start"].call_count == 1


@pytest.mark.parametrize("option", ["stream_resumable", "stream_subgraphs", "on_disconnect", "metadata"])
async def test_options_that_a_gateway_does_not_know_are_left_out_and_that_is_remembered(
    server: respx.MockRouter, option: str
) -> None:
    def reply(request: httpx.Request) -> httpx.Response:
        if json.loads(request.content).get(option):
            return httpx.Response(422, json={"detail": [{"type": "extra_forbidden", "loc": ["body", option]}]})
        return answer()

    server["start"].mock(side_effect=reply)
    bridge = gateway()
    for _ in range(2):
        assert (await run_turn(bridge, "Hi")).end.view.text == "Hello"
    assert server["start"].call_count == 3


@pytest.mark.parametrize("when_busy", WhenBusy)
async def test_a_busy_thread_follows_the_policy(server: respx.MockRouter, when_busy: WhenBusy) -> None:
    busy = httpx.Response(409, json={"detail": "Thread is already running a task."})
    server["start"].mock(side_effect=[*[busy] * 20, answer()])
    seen = await run_turn(gateway(), "Hi", when_busy=when_busy)
    if when_busy is WhenBusy.REJECT:
        assert seen.end.view.phase is Phase.FAILED
        assert "busy" in seen.end.view.notice
    else:
        assert seen.end.view.text == "Hello"
        assert any("still being written" in view.notice for view in seen.views)
    strategy = json.loads(server["start"].calls[0].request.content)["multitask_strategy"]
    assert strategy == ("interrupt" if when_busy is WhenBusy.INTERRUPT else "reject")


@pytest.mark.parametrize(
    "raised",
    [
        lambda response: ConflictError("busy", response=response, body={"detail": "busy"}),
        lambda response: httpx.HTTPStatusError("busy", request=response.request, response=response),
    ],
    ids=["ConflictError", "HTTPStatusError"],
)
def test_both_exceptions_that_the_sdk_raises_for_busy_are_known(raised: Callable[[httpx.Response], Exception]) -> None:
    response = httpx.Response(409, json={"detail": "busy"}, request=httpx.Request("POST", URL))
    assert trouble_of(raised(response)).kind is TroubleKind.BUSY


async def test_a_thread_that_could_not_be_made_before_is_made_with_its_first_run(server: respx.MockRouter) -> None:
    threads = server.post("/threads").mock(side_effect=[httpx.ConnectError("refused"), httpx.Response(200, json={})])
    bridge = gateway()
    seen = await run_turn(bridge, "Hi")
    assert seen.end.view.text == "Hello"
    assert bridge.stats.lost_threads == 0
    assert threads.call_count == 2


async def test_config_and_context_are_never_sent_together_with_configurable(server: respx.MockRouter) -> None:
    await run_turn(gateway(), "Hi", config={"configurable": {"a": 1}, "recursion_limit": 9}, context={"b": 2})
    body = json.loads(server["start"].calls[0].request.content)
    assert body["context"] == {"a": 1, "b": 2}
    assert "configurable" not in body["config"]
    assert body["config"]["recursion_limit"] == 9


# ---------------------------------------------------------------- following


async def test_a_run_that_the_gateway_no_longer_has_is_finished_from_the_state(server: respx.MockRouter) -> None:
    turn = new_turn_id()
    server["run"].respond(404)
    server.get(path__regex=r"/threads/[^/]+/runs/[^/]+/stream$").respond(404)
    server["state"].respond(
        json={
            "values": {
                "messages": [
                    {"type": "human", "id": f"turn-{turn}", "content": "Hi"},
                    {"type": "ai", "id": "m1", "content": "Hello"},
                ]
            }
        }
    )
    seen = await run_turn(gateway(), "Hi", turn=turn, run=RunId(RUN))
    assert (seen.end.view.phase, seen.end.view.text) == (Phase.DONE, "Hello")


async def test_a_run_that_is_lost_with_its_answer_is_told(server: respx.MockRouter) -> None:
    server["run"].respond(404)
    server["state"].respond(404)
    server.get(path__regex=r"/threads/[^/]+/runs/[^/]+/stream$").respond(404)
    seen = await run_turn(gateway(), "Hi", run=RunId(RUN))
    assert seen.end.view.phase is Phase.FAILED
    assert "/retry" in seen.end.view.notice


@pytest.mark.parametrize(
    "trouble",
    [httpx.ConnectError("refused"), httpx.Response(503), httpx.ReadError("reset")],
    ids=lambda trouble: str(trouble) or "503",
)
async def test_a_stream_that_a_restarting_gateway_closed_between_two_steps_is_not_the_whole_answer(
    server: respx.MockRouter, trouble: httpx.Response | Exception
) -> None:
    turn, plan = new_turn_id(), said("First I plan.", "plan")
    server["start"].mock(return_value=stream(*plan))
    server["run"].mock(side_effect=[trouble, trouble, httpx.Response(200, json={"status": "success"})])
    server["state"].respond(json=state(turn, ("plan", "First I plan."), ("final", "The answer: 42.")))
    seen = await run_turn(gateway(), "Hi", turn=turn)
    assert seen.end.view.phase is Phase.DONE
    assert [segment.text for segment in seen.end.view.body] == ["First I plan.", "The answer: 42."]


async def test_an_answer_heard_to_its_end_whose_state_cannot_be_read_stands_as_it_was_heard(
    server: respx.MockRouter,
) -> None:
    spoken, _ = said("Hello")
    server["start"].mock(return_value=stream(spoken, ("updates", {"model": {"answer": "Hello"}})))
    server["state"].respond(500)
    seen = await run_turn(gateway(), "Hi")
    assert (seen.end.view.phase, seen.end.view.text) == (Phase.DONE, "Hello")
    assert "could not be read" in seen.end.note


@pytest.mark.parametrize("status", [401, 404, 500])
@pytest.mark.parametrize("heard", ["", "Half an ans"])
async def test_an_answer_not_heard_to_its_end_is_never_taken_for_whole_while_its_state_cannot_be_read(
    server: respx.MockRouter, heard: str, status: int
) -> None:
    server["start"].mock(return_value=stream(said(heard)[0]) if heard else stream())
    server["state"].respond(status)
    seen = await run_turn(gateway(), "Hi", timeout=600.0)
    assert (seen.end.view.phase, seen.end.view.text) == (Phase.FAILED, heard)
    assert seen.end.view.notice == sentences.UNREAD
    assert str(status) in seen.end.note
    told = any(view.notice == sentences.RECONNECTING for view in seen.views)
    assert told is (status == 500)


@pytest.mark.parametrize(
    ("answers", "was_there"),
    [([200], False), ([409], True), ([500, 200], True), ([422, 200], True), ([400, 409], True)],
)
async def test_it_is_known_whether_a_thread_was_there(
    server: respx.MockRouter, answers: list[int], was_there: bool
) -> None:
    asked = server.post("/threads").mock(side_effect=[httpx.Response(status, json={}) for status in answers])
    assert await gateway().prepare_thread(new_thread(), {}) is was_there
    sent = [json.loads(call.request.content)["if_exists"] for call in asked.calls]
    assert sent == ["raise", "do_nothing"][: len(answers)]


@pytest.mark.parametrize(("ago", "lives"), [(500.0, 3_100.0), (3_500.0, 600.0), (90_000.0, 600.0)])
async def test_a_run_that_is_found_again_has_what_is_left_of_its_time_and_ten_minutes_at_least(
    server: respx.MockRouter, ago: float, lives: float
) -> None:
    clock = ScaledClock(1000.0)
    server.get(path__regex=r"/threads/[^/]+/runs/[^/]+/stream$").respond(405)
    server["run"].respond(200, json={"status": "running"})
    found = clock.now()
    seen = await run_turn(gateway(clock=clock), "Hi", run=RunId(RUN), timeout=3_600.0, begun_at=found - ago)
    assert lives <= clock.now() - found < 1.5 * lives
    assert seen.end.view.notice == sentences.timed_out(3_600)
    assert server["cancel"].called


async def test_what_a_run_said_that_has_long_ended_when_it_is_found_again_is_shown(server: respx.MockRouter) -> None:
    clock = ScaledClock(1000.0)
    turn, begun = new_turn_id(), clock.now() - 90_000.0
    server.get(path__regex=r"/threads/[^/]+/runs/[^/]+/stream$").mock(return_value=stream(*said("Hello")))
    server["state"].respond(json=state(turn, ("m1", "Hello")))
    seen = await run_turn(gateway(clock=clock), "Hi", turn=turn, run=RunId(RUN), timeout=60.0, begun_at=begun)
    assert (seen.end.view.phase, seen.end.view.text) == (Phase.DONE, "Hello")


@pytest.mark.parametrize("status", ["success", "interrupted"])
async def test_an_answer_heard_through_several_streams_is_not_taken_for_whole_without_its_state(
    server: respx.MockRouter, status: str
) -> None:
    spoken, step = said("Hello")
    server["start"].mock(return_value=stream(spoken))
    server.get(path__regex=r"/threads/[^/]+/runs/[^/]+/stream$").mock(return_value=stream(spoken, step))
    server["run"].mock(side_effect=[httpx.Response(200, json={"status": s}) for s in ("running", status)])
    server["state"].respond(403)
    seen = await run_turn(gateway(), "Hi")
    assert (seen.end.view.phase, seen.end.view.notice) == (Phase.FAILED, sentences.UNREAD)
    assert seen.end.view.text == "Hello"


async def test_an_end_without_anything_before_it_does_not_make_an_empty_answer(server: respx.MockRouter) -> None:
    over = httpx.Response(200, headers=SSE, content=frames(("end", None)))
    server.get(path__regex=r"/threads/[^/]+/runs/[^/]+/stream$").mock(return_value=over)
    server["state"].respond(json={"values": {"answer": "Hello"}})
    seen = await run_turn(gateway(), "Hi", run=RunId(RUN))
    assert (seen.end.view.phase, seen.end.view.notice) == (Phase.FAILED, sentences.UNREAD)


@pytest.mark.parametrize(("wrote", "texts"), [(RUN, ["Draft", "Essay"]), ("another", ["Draft"])])
async def test_all_that_stands_after_the_question_is_the_answer_if_the_run_wrote_the_state_last(
    server: respx.MockRouter, wrote: str, texts: list[str]
) -> None:
    turn = new_turn_id()
    server.get(path__regex=r"/threads/[^/]+/runs/[^/]+/stream$").respond(501)
    messages: list[JsonValue] = [
        {"type": "human", "id": f"turn-{turn}", "content": "Hi"},
        {"type": "ai", "id": "m1", "content": "Draft"},
        {"type": "human", "id": "c", "content": "Longer!"},
        {"type": "ai", "id": "m2", "content": "Essay"},
    ]
    server["state"].respond(json={"values": {"messages": messages}, "metadata": {"run_id": wrote}})
    seen = await run_turn(gateway(), "Hi", turn=turn, run=RunId(RUN))
    assert [segment.text for segment in seen.end.view.body] == texts


async def test_the_rest_of_an_answer_is_waited_for_until_its_state_can_be_read(server: respx.MockRouter) -> None:
    turn = new_turn_id()
    server["start"].mock(return_value=stream(said("Half an ans")[0]))
    whole = httpx.Response(200, json=state(turn, ("m1", "Half an answer is no answer.")))
    server["state"].mock(side_effect=[*[httpx.Response(500)] * 20, whole])
    seen = await run_turn(gateway(), "Hi", turn=turn)
    assert (seen.end.view.phase, seen.end.view.text) == (Phase.DONE, "Half an answer is no answer.")
    assert seen.end.view.notice == ""


@pytest.mark.parametrize(
    ("read", "phase"),
    [
        ({"answer": "Half an answer."}, Phase.FAILED),
        ({}, Phase.FAILED),
        ({"messages": [{"type": "human", "id": "of somebody", "content": "Else"}]}, Phase.FAILED),
        ({"messages": [{"type": "human", "id": "turn-1", "content": "Hi"}]}, Phase.DONE),
    ],
)
async def test_a_state_that_does_not_tell_of_the_answer_does_not_make_half_of_it_whole(
    server: respx.MockRouter, read: JsonValue, phase: Phase
) -> None:
    server["start"].mock(return_value=stream(said("Half an ans")[0]))
    server["state"].respond(json={"values": read})
    seen = await run_turn(gateway(), "Hi", turn=TurnId("1"))
    assert seen.end.view.phase is phase
    assert seen.end.view.text == ("Half an ans" if phase is Phase.FAILED else "")


async def test_a_graph_that_keeps_no_messages_is_heard_whole_also_through_a_broken_stream(
    server: respx.MockRouter,
) -> None:
    spoken, _ = said("Hello")
    begin: Event = ("metadata", {"run_id": RUN})
    server["start"].mock(side_effect=[httpx.Response(200, headers=SSE, content=frames(begin))])
    rest = stream(spoken, ("updates", {"model": {"answer": "Hello"}}))
    server.get(path__regex=r"/threads/[^/]+/runs/[^/]+/stream$").mock(return_value=rest)
    server["run"].mock(side_effect=[httpx.Response(200, json={"status": s}) for s in ("running", "success")])
    server["state"].respond(json={"values": {"answer": "Hello"}})
    seen = await run_turn(gateway(), "Hi")
    assert (seen.end.view.phase, seen.end.view.text) == (Phase.DONE, "Hello")


async def test_a_state_that_cannot_be_read_in_a_gap_is_made_good_at_the_end(server: respx.MockRouter) -> None:
    turn = new_turn_id()
    server["start"].mock(return_value=stream(said("Hel")[0]))
    joins = [stream(("gap", {"latest_available_event_id": None})), stream()]
    server.get(path__regex=r"/threads/[^/]+/runs/[^/]+/stream$").mock(side_effect=joins)
    server["run"].mock(side_effect=[httpx.Response(200, json={"status": s}) for s in ("running", "running", "success")])
    server["state"].mock(side_effect=[httpx.Response(403), httpx.Response(200, json=state(turn, ("m1", "Hello")))])
    seen = await run_turn(gateway(), "Hi", turn=turn)
    assert (seen.end.view.phase, seen.end.view.text) == (Phase.DONE, "Hello")


async def test_a_stream_that_only_says_that_it_is_over_while_the_run_goes_on_is_polled(
    server: respx.MockRouter,
) -> None:
    turn = new_turn_id()
    server["start"].mock(return_value=stream(said("Hel")[0], ("end", None)))
    over = server.get(path__regex=r"/threads/[^/]+/runs/[^/]+/stream$")
    over.mock(side_effect=lambda _: stream(said("Hel")[0], ("end", None)))
    statuses = [*["running"] * 30, "success"]
    server["run"].mock(side_effect=[httpx.Response(200, json={"status": status}) for status in statuses])
    server["state"].respond(json=state(turn, ("m1", "Hello")))
    bridge = gateway()
    seen = await run_turn(bridge, "Hi", turn=turn)
    assert (seen.end.view.text, seen.end.view.notice) == ("Hello", "")
    assert bridge.stats.polled_turns == 1
    assert over.call_count == Patience().fruitless


async def test_an_empty_answer_is_said_to_be_one(server: respx.MockRouter) -> None:
    server["start"].mock(return_value=stream(("updates", {"model": None})))
    seen = await run_turn(gateway(), "Hi")
    assert seen.end.view.phase is Phase.DONE
    assert "without an answer" in seen.end.view.notice


@pytest.mark.parametrize("answered", [httpx.Response(200, json={}), httpx.Response(405), httpx.Response(501)])
async def test_where_no_stream_can_be_had_the_answer_is_polled(
    server: respx.MockRouter, answered: httpx.Response
) -> None:
    turn = new_turn_id()
    server["start"].mock(return_value=answered)
    create = server.post(path__regex=r"/threads/[^/]+/runs$").respond(json={"run_id": RUN})
    server.get(path__regex=r"/threads/[^/]+/runs/[^/]+/stream$").mock(return_value=answered)
    server["run"].mock(
        side_effect=[
            *[httpx.Response(200, json={"status": "running"})] * 4,
            httpx.Response(200, json={"status": "success"}),
        ]
    )
    server["state"].respond(
        json={
            "values": {
                "messages": [
                    {"type": "human", "id": f"turn-{turn}", "content": "Hi"},
                    {"type": "ai", "id": "m1", "content": "Hello"},
                ]
            }
        }
    )
    bridge = gateway()
    seen = await run_turn(bridge, "Hi", turn=turn)
    assert (seen.end.view.text, seen.end.view.notice) == ("Hello", "")
    assert create.call_count == 1
    assert bridge.stats.polled_turns == 1


async def test_a_node_that_is_named_like_a_side_call_but_answers_streams_from_its_second_answer_on(
    server: respx.MockRouter,
) -> None:
    node: JsonValue = {"langgraph_node": "summarize"}
    pieces: list[JsonValue] = [{"type": "AIMessageChunk", "content": piece, "id": "m1"} for piece in ("In ", "short.")]
    whole: JsonValue = {"type": "ai", "content": "In short.", "id": "m1"}
    body = frames(
        ("metadata", {"run_id": RUN}),
        *(("messages", [piece, node]) for piece in pieces),
        ("updates", {"summarize": {"messages": [whole]}}),
    )
    server["start"].mock(side_effect=lambda _: httpx.Response(200, headers=SSE, content=body))
    bridge = gateway()
    first, second = [await run_turn(bridge, "Sum it up") for _ in range(2)]
    assert first.end.view.text == second.end.view.text == "In short."
    assert first.texts == ["In short."]
    assert second.texts == ["In ", "In short."]


# ---------------------------------------------------------------- stopping


async def test_a_stop_before_the_run_is_known_starts_none(server: respx.MockRouter) -> None:
    server["start"].mock(side_effect=httpx.ConnectError("refused"))
    bridge, turn = gateway(), new_turn_id()

    told = asyncio.Event()
    asked = asyncio.create_task(run_turn(bridge, "Hi", turn=turn, on_view=lambda _: told.set()))
    await told.wait()
    assert await bridge.stop(turn)
    seen = await asked
    assert seen.end.view.phase is Phase.STOPPED
    assert not seen.started
    assert await bridge.stop(turn)


async def test_a_cancel_never_raises(server: respx.MockRouter) -> None:
    bridge = gateway()
    thread = new_thread()
    outcomes: list[tuple[httpx.Response | Exception, bool]] = [
        (httpx.Response(202), True),
        (httpx.Response(200, json={}), True),
        (httpx.Response(204), True),
        (httpx.Response(404), True),
        (httpx.Response(409), True),
        (httpx.ConnectError("refused"), False),
        (httpx.Response(500), False),
        (httpx.Response(401), False),
    ]
    for outcome, taken in outcomes:
        server["cancel"].mock(side_effect=lambda _, outcome=outcome: _raise_or_give(outcome))
        assert await bridge.cancel(thread, RunId(RUN)) is taken


def _raise_or_give(outcome: httpx.Response | Exception) -> httpx.Response:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


async def test_what_storing_the_run_id_raises_comes_out(server: respx.MockRouter) -> None:
    class LostLease(Exception):
        pass

    async def started(run: RunId) -> None:
        raise LostLease

    request = RunRequest(new_turn_id(), new_thread(), Ask("Hi", SENDER), "agent")
    with pytest.raises(LostLease):
        await gateway().execute(
            request, Transcript(), run=None, maybe_requested=False, started=started, changed=lambda: None
        )


# ---------------------------------------------------------------- keys, health, files


async def test_the_key_goes_to_the_gateway_and_never_comes_from_the_environment(
    server: respx.MockRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANGSMITH_API_KEY", "leak")
    await run_turn(gateway(), "Hi")
    assert not any("x-api-key" in call.request.headers for call in server.calls)
    await run_turn(gateway(api_key="mine"), "Hi")
    assert server.calls[-1].request.headers["x-api-key"] == "mine"
    assert server.calls[-1].request.headers["x-given"] == "1"


@pytest.mark.parametrize(
    ("info", "assistants", "ok", "words"),
    [
        (httpx.Response(200, json={"version": "0.16.7"}), httpx.Response(200, json=[{"assistant_id": "1"}]), True, ""),
        (httpx.Response(200, json={}), httpx.Response(200, json=[]), False, "does not know"),
        (httpx.Response(200, json={}), httpx.Response(401, json={"detail": "no"}), False, "unauthorised"),
        (httpx.Response(200, json={}), httpx.Response(500), False, "500"),
        (httpx.ConnectError("refused"), httpx.Response(200, json=[]), False, "cannot be reached"),
    ],
)
async def test_the_health_says_what_is_wrong(
    server: respx.MockRouter, info: httpx.Response | Exception, assistants: httpx.Response, ok: bool, words: str
) -> None:
    server.get("/info").mock(side_effect=[info])
    server.post("/assistants/search").mock(return_value=assistants)
    server.get(path__regex=r"/assistants/.*").respond(404)
    health = await gateway(dialect="auto").check("agent")
    assert health.ok is ok
    assert words in health.reason
    assert health.version == ("0.16.7" if ok else "")


async def test_assistants_that_are_not_there_are_told_from_a_gateway_that_is_none(server: respx.MockRouter) -> None:
    there = {"agent"}

    def search(request: httpx.Request) -> httpx.Response:
        graph = json.loads(request.content).get("graph_id")
        if graph is None or graph in there:
            return httpx.Response(200, json=[{"assistant_id": "1"}])
        return httpx.Response(404, json={"detail": f"Graph '{graph}' not found. Expected one of: ['agent']"})

    server.post("/assistants/search").mock(side_effect=search)
    server.get(path__regex=r"/assistants/.*").respond(422)
    health = await gateway().check("agent", "nosuch", "other")
    assert (health.ok, health.unknown) == (False, ("nosuch", "other"))
    assert health.reason == "does not know the assistant “nosuch”, “other”"

    server.post("/assistants/search").mock(return_value=httpx.Response(404, json={"detail": "Not Found"}))
    health = await gateway().check("agent")
    assert (health.ok, health.unknown) == (False, ())
    assert "does not answer as a LangGraph gateway: 404" in health.reason


@pytest.mark.parametrize("trouble", [httpx.Response(502), httpx.Response(429), httpx.ConnectError("refused")])
async def test_a_gateway_that_is_away_is_recognised_later_and_not_taken_for_another_kind(
    server: respx.MockRouter, trouble: httpx.Response | Exception
) -> None:
    server.get("/info").mock(side_effect=[trouble, trouble, trouble, httpx.Response(404)])
    server.get("/health").respond(json={"service": "deer-flow-gateway"})
    bridge = gateway(dialect="auto", api_key="token")
    assert (await run_turn(bridge, "Hi")).end.view.text == "Hello"
    assert bridge.dialect == "deerflow"
    assert not any("x-api-key" in call.request.headers for call in server.calls)


async def test_files_go_into_the_message_as_blocks_that_models_take(server: respx.MockRouter) -> None:
    files = (
        InputFile("a.png", "image/png", b"\x89PNG"),
        InputFile("b.csv", "text/csv", "ä;1".encode()),
        InputFile("c.pdf", "application/pdf", b"%PDF"),
    )
    await run_turn(gateway(), Ask("Look", SENDER, files))
    (message,) = json.loads(server["start"].calls[0].request.content)["input"]["messages"]
    text, image, csv, pdf = message["content"]
    assert text == {"type": "text", "text": "Look"}
    assert image["image_url"]["url"].startswith("data:image/png;base64,")
    assert "b.csv" in csv["text"]
    assert "ä;1" in csv["text"]
    assert (pdf["type"], pdf["mime_type"], pdf["extras"]["filename"]) == ("file", "application/pdf", "c.pdf")


async def test_a_file_in_a_message_is_read_from_the_state(server: respx.MockRouter) -> None:
    blocks: JsonValue = [
        {"type": "text", "text": "x"},
        {"type": "image", "base64": "aGk="},
        {"type": "image", "base64": "%%"},
        {"type": "image", "base64": "é"},
    ]
    server["state"].respond(json={"values": {"messages": [{"type": "ai", "id": "m1", "content": blocks}]}})

    def file(message: str, block: int) -> File:
        return File("f", "f.png", "image/png", None, {"thread": new_thread(), "message": message, "block": block})

    assert await gateway().open_file(file("m1", 1)) == b"hi"
    for missing in (file("m1", 2), file("m1", 3), file("m1", 9), file("m2", 1)):
        with pytest.raises(GatewayError) as caught:
            await gateway().open_file(missing)
        assert not caught.value.is_passing


async def test_an_artifact_is_fetched_and_bounded(server: respx.MockRouter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("channels.gateway.link.MAX_FILE_BYTES", 10)
    thread = ThreadId("t")
    file = File("f", "f.txt", "text/plain", None, {"thread": thread, "artifact": "/mnt/user-data/outputs/a b.txt"})
    route = server.get("/threads/t/artifacts/mnt/user-data/outputs/a%20b.txt")
    route.respond(content=b"0123456789")
    assert await gateway().open_file(file) == b"0123456789"
    too_long, missing = httpx.Response(200, content=b"0123456789A"), httpx.Response(404)
    failing, denied, cut = httpx.Response(500), httpx.Response(401), httpx.ReadError("cut")
    for refusals, is_passing in (((too_long, missing), False), ((failing, denied, cut), True)):
        for refusal in refusals:
            route.mock(side_effect=[refusal])
            with pytest.raises(GatewayError) as caught:
                await gateway().open_file(file)
            assert caught.value.is_passing is is_passing


async def test_an_artifact_outside_the_threads_files_is_not_asked_for(server: respx.MockRouter) -> None:
    file = File("f", "state", "text/plain", None, {"thread": "t", "artifact": "/mnt/../../other/state"})
    with pytest.raises(GatewayError):
        await gateway().open_file(file)
    assert not server.calls
