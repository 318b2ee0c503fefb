"""The run manager through the real SDK: states, multitask strategies, cancelling, rollback, disconnects, timeouts."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any

import httpx
import pytest
from langgraph.graph import START, StateGraph
from langgraph_sdk.errors import ConflictError, InternalServerError, NotFoundError, UnprocessableEntityError
from langgraph_sdk.schema import StreamPart

from adapters.embedded.store import Run, Store
from tests.adapters.embedded import sample_graphs
from tests.adapters.embedded.conftest import Start
from tests.adapters.embedded.talking import Conversation, counted, first, names, question, text_of

BUSY = "Thread is already running a task. Wait for it to finish or choose a different multitask strategy."


async def busy(start: Start, text: str = "gate g 2 2", **settings: Any) -> tuple[Conversation, str]:
    """A conversation with one finished turn and a run that waits at the gate g."""
    talk = await (await start(**settings)).conversation()
    await talk.ask("hi")
    run_id = await talk.begin(text)
    await sample_graphs.arrival("g").wait()
    return talk, run_id


HISTORY = [("human", "hi"), ("ai", "re: hi")]


async def test_a_run_goes_from_pending_over_running_to_success(start: Start) -> None:
    talk, run_id = await busy(start)
    waiting = await talk.client.runs.create(talk.thread_id, "agent", input=question("next"))
    assert waiting["status"] == "pending"
    assert await talk.status(run_id) == "running"
    assert await talk.thread_status() == "busy"
    sample_graphs.gate("g").set()
    await talk.client.runs.join(talk.thread_id, waiting["run_id"])
    assert [await talk.status(run_id), await talk.status(waiting["run_id"])] == ["success", "success"]
    assert await talk.thread_status() == "idle"


async def test_whoever_sees_the_end_can_read_the_final_status(start: Start) -> None:
    talk = await (await start()).conversation()
    for _ in range(20):
        parts = await talk.ask("count 1")
        assert await talk.status(parts[0].data["run_id"]) == "success"
        assert await talk.thread_status() == "idle"


# Multitask strategies


async def test_reject_refuses_a_second_run_with_409_and_langgraphs_text(start: Start) -> None:
    talk, _ = await busy(start)
    with pytest.raises(ConflictError) as refused:
        await talk.ask("second", multitask_strategy="reject")
    assert refused.value.message == BUSY
    with pytest.raises(httpx.HTTPStatusError) as waited:
        await talk.client.runs.wait(talk.thread_id, "agent", input=question("x"), multitask_strategy="reject")
    assert waited.value.response.status_code == 409
    sample_graphs.gate("g").set()


async def test_of_many_simultaneous_runs_with_reject_exactly_one_is_accepted(start: Start) -> None:
    talk = await (await start()).conversation()
    asked = [talk.ask("hold g", multitask_strategy="reject") for _ in range(10)]
    tasks = [asyncio.create_task(each) for each in asked]
    await sample_graphs.arrival("g").wait()
    done, _ = await asyncio.wait(tasks, timeout=5, return_when=asyncio.FIRST_EXCEPTION)
    while len(done) < 9:
        done, _ = await asyncio.wait(tasks, timeout=0.01)
    sample_graphs.gate("g").set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results].count(ConflictError) == 9
    assert await talk.messages() == [("human", "hold g"), ("ai", "held")]


async def test_enqueue_is_the_default_and_runs_go_in_the_order_of_asking(start: Start) -> None:
    talk, _ = await busy(start)
    waiting = [asyncio.create_task(talk.ask(f"question {number}")) for number in range(3)]
    await asyncio.sleep(0.1)
    sample_graphs.gate("g").set()
    for number, task in enumerate(waiting):
        assert text_of(await task) == f"re: question {number}"
    expected = [*HISTORY, ("human", "gate g 2 2"), ("ai", counted(4))]
    for number in range(3):
        expected += [("human", f"question {number}"), ("ai", f"re: question {number}")]
    assert await talk.messages() == expected


async def test_interrupt_stops_the_running_run_and_keeps_its_question(start: Start) -> None:
    talk, run_id = await busy(start)
    stopped = asyncio.create_task(talk.join(run_id, "-1"))
    parts = await talk.ask("instead", multitask_strategy="interrupt")
    assert text_of(parts) == "re: instead"
    assert names(await stopped) == ["metadata", "messages", "messages", "end"]
    assert await talk.status(run_id) == "interrupted"
    assert await talk.messages() == [*HISTORY, ("human", "gate g 2 2"), ("human", "instead"), ("ai", "re: instead")]


async def test_rollback_removes_the_running_run_and_what_it_wrote(start: Start) -> None:
    talk, run_id = await busy(start)
    parts = await talk.ask("instead", multitask_strategy="rollback")
    assert text_of(parts) == "re: instead"
    with pytest.raises(NotFoundError):
        await talk.status(run_id)
    assert await talk.messages() == [*HISTORY, ("human", "instead"), ("ai", "re: instead")]


async def test_interrupt_also_stops_the_runs_that_wait(start: Start) -> None:
    talk, _ = await busy(start)
    waiting = await talk.begin("never said")
    await talk.ask("instead", multitask_strategy="interrupt")
    assert await talk.status(waiting) == "interrupted"
    assert ("human", "never said") not in await talk.messages()


@pytest.mark.parametrize("how", ["interrupt", "rollback", "delete"])
async def test_a_run_that_is_stopped_with_those_before_it_does_not_begin_in_their_place(
    start: Start, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    talk, run_id = await busy(start)
    waiting = await talk.begin("hold waiting")
    real = Store.note_cancel

    async def slow(store: Store, cancelled: str, action: Any) -> None:
        await real(store, cancelled, action)
        if cancelled == run_id:
            await ended
            for _ in range(50):  # time enough for a run to begin
                await store.unfinished()

    monkeypatch.setattr(Store, "note_cancel", slow)
    ended = asyncio.create_task(talk.join(run_id))
    begun = asyncio.create_task(sample_graphs.arrival("waiting").wait())
    if how == "delete":
        await talk.client.threads.delete(talk.thread_id)
    else:
        assert text_of(await talk.ask("instead", multitask_strategy=how)) == "re: instead"
    assert names(await talk.join(waiting, "-1"))[-1] in ("end", "error")
    assert not begun.done()
    begun.cancel()


async def test_threads_do_not_wait_for_each_other(start: Start) -> None:
    running = await start()
    slow, quick = await running.conversation(), await running.conversation()
    await slow.begin("hold g")
    await sample_graphs.arrival("g").wait()
    assert text_of(await quick.ask("hi")) == "re: hi"
    sample_graphs.gate("g").set()


async def test_a_run_that_could_not_be_stored_is_in_nobodys_way(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    talk = await (await start()).conversation()
    real, storing, go_on = Store.insert_run, asyncio.Event(), asyncio.Event()

    async def failing(store: Store, run: Run) -> Run:
        storing.set()
        await go_on.wait()
        raise sqlite3.OperationalError("disk full")

    monkeypatch.setattr(Store, "insert_run", failing)
    doomed = asyncio.create_task(talk.ask("doomed"))
    await storing.wait()
    monkeypatch.setattr(Store, "insert_run", real)
    behind = asyncio.create_task(talk.ask("behind"))
    await asyncio.sleep(0.05)
    go_on.set()
    with pytest.raises(InternalServerError):
        await doomed
    assert text_of(await behind) == "re: behind"
    assert text_of(await talk.ask("after", multitask_strategy="reject")) == "re: after"


async def test_a_run_may_be_cancelled_while_it_is_being_stored(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    talk = await (await start()).conversation()
    real, storing, go_on = Store.insert_run, asyncio.Event(), asyncio.Event()

    async def slow(store: Store, run: Run) -> Run:
        storing.set()
        await go_on.wait()
        return await real(store, run)

    monkeypatch.setattr(Store, "insert_run", slow)
    early = asyncio.create_task(talk.ask("early"))
    await storing.wait()
    monkeypatch.setattr(Store, "insert_run", real)
    late = asyncio.create_task(talk.ask("late", multitask_strategy="interrupt"))
    await asyncio.sleep(0.05)
    go_on.set()
    parts = await early
    assert names(parts) == ["end"]
    assert text_of(await late) == "re: late"
    assert await talk.messages() == [("human", "late"), ("ai", "re: late")]


# Cancelling


async def test_cancel_with_interrupt_keeps_the_question_and_not_half_the_answer(start: Start) -> None:
    talk, run_id = await busy(start)
    joined = asyncio.create_task(talk.join(run_id, "-1"))
    await talk.client.runs.cancel(talk.thread_id, run_id, wait=True)
    assert await talk.status(run_id) == "interrupted"
    assert await talk.thread_status() == "interrupted"
    assert names(await joined)[-1] == "end"
    assert await talk.messages() == [*HISTORY, ("human", "gate g 2 2")]
    assert text_of(await talk.ask("again")) == "re: again"


async def test_cancel_with_rollback_leaves_no_trace(start: Start) -> None:
    talk, run_id = await busy(start)
    before = await talk.client.threads.get_history(talk.thread_id, limit=1, before=None)
    await talk.client.runs.cancel(talk.thread_id, run_id, wait=True, action="rollback")
    with pytest.raises(NotFoundError):
        await talk.status(run_id)
    assert await talk.thread_status() == "idle"
    assert await talk.messages() == HISTORY
    after = await talk.client.threads.get_history(talk.thread_id)
    assert all(state["checkpoint"] != before[0]["checkpoint"] for state in after)


async def test_cancel_answers_202_at_once_and_the_run_ends_soon(start: Start) -> None:
    talk, run_id = await busy(start)
    path = f"/threads/{talk.thread_id}/runs/{run_id}/cancel"
    response = await talk.client.http.client.post(path, params={"wait": 0, "action": "interrupt"})
    assert (response.status_code, response.content) == (202, b"")
    await talk.join(run_id)
    assert await talk.status(run_id) == "interrupted"


async def test_a_waiting_run_can_be_cancelled_both_ways(start: Start) -> None:
    talk, run_id = await busy(start)
    kept, gone = await talk.begin("kept"), await talk.begin("gone")
    await talk.client.runs.cancel(talk.thread_id, kept, wait=True)
    await talk.client.runs.cancel(talk.thread_id, gone, wait=True, action="rollback")
    assert await talk.status(kept) == "interrupted"
    with pytest.raises(NotFoundError):
        await talk.status(gone)
    assert await talk.thread_status() == "busy"
    sample_graphs.gate("g").set()
    await talk.join(run_id)
    assert await talk.messages() == [*HISTORY, ("human", "gate g 2 2"), ("ai", counted(4))]


async def test_a_run_that_is_over_or_unknown_cannot_be_cancelled(start: Start) -> None:
    talk = await (await start()).conversation()
    parts = await talk.ask("hi")
    with pytest.raises(NotFoundError, match="No matching runs to cancel"):
        await talk.client.runs.cancel(talk.thread_id, parts[0].data["run_id"])
    with pytest.raises(NotFoundError, match="No runs found to cancel"):
        await talk.client.runs.cancel(talk.thread_id, "00000000-0000-0000-0000-000000000000")


async def test_a_question_right_after_a_stop_is_not_refused_as_busy(start: Start) -> None:
    talk, run_id = await busy(start)
    await talk.client.runs.cancel(talk.thread_id, run_id)
    assert text_of(await talk.ask("next", multitask_strategy="reject")) == "re: next"


async def test_a_graph_that_cancels_itself_fails_instead_of_hanging(start: Start) -> None:
    talk = await (await start("tests.adapters.embedded.test_runs:self_cancelling")).conversation()
    parts = await talk.ask("hi")
    assert names(parts) == ["metadata", "error", "end"]
    assert await talk.status(parts[0].data["run_id"]) == "error"


# Disconnects


async def test_a_client_that_leaves_cancels_its_run_when_it_said_so(start: Start) -> None:
    talk = await (await start()).conversation()
    (metadata, _) = await first(talk.stream("gate g 1 1", on_disconnect="cancel"), 2)
    run_id = metadata.data["run_id"]
    await talk.client.runs.join(talk.thread_id, run_id)
    assert await talk.status(run_id) == "interrupted"


async def test_a_client_that_leaves_does_not_cancel_its_run_by_default(start: Start) -> None:
    talk = await (await start()).conversation()
    (metadata, _) = await first(talk.stream("gate g 1 1", on_disconnect=None), 2)
    sample_graphs.gate("g").set()
    await talk.client.runs.join(talk.thread_id, metadata.data["run_id"])
    assert await talk.messages() == [("human", "gate g 1 1"), ("ai", "0 1 ")]


async def test_a_second_reader_that_leaves_cancels_nothing(start: Start) -> None:
    talk = await (await start()).conversation()
    owner = asyncio.create_task(talk.ask("gate g 1 1", on_disconnect="cancel"))
    await sample_graphs.arrival("g").wait()
    run_id = (await talk.client.runs.list(talk.thread_id))[0]["run_id"]
    await first(talk.joined(run_id, "-1"), 1)
    await asyncio.sleep(0.05)
    sample_graphs.gate("g").set()
    assert text_of(await owner) == "0 1 "
    assert await talk.status(run_id) == "success"


async def test_a_reader_may_ask_to_cancel_the_run_when_it_leaves(start: Start) -> None:
    talk, run_id = await busy(start)
    await first(talk.joined(run_id, "-1", cancel_on_disconnect=True), 1)
    await talk.client.runs.join(talk.thread_id, run_id)
    assert await talk.status(run_id) == "interrupted"


async def test_a_client_that_stops_waiting_cancels_its_run_when_it_said_so(start: Start) -> None:
    talk = await (await start()).conversation()
    waiting = asyncio.create_task(
        talk.client.runs.wait(talk.thread_id, "agent", input=question("hold g"), on_disconnect="cancel")
    )
    await sample_graphs.arrival("g").wait()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    run_id = (await talk.client.runs.list(talk.thread_id))[0]["run_id"]
    await talk.client.runs.join(talk.thread_id, run_id)
    assert await talk.status(run_id) == "interrupted"


# Results


async def test_waiting_and_joining_give_the_values_of_the_runs_own_end(start: Start) -> None:
    talk, run_id = await busy(start)
    joined = asyncio.create_task(talk.client.runs.join(talk.thread_id, run_id))
    last = asyncio.create_task(talk.client.runs.wait(talk.thread_id, "agent", input=question("later")))
    await asyncio.sleep(0.05)
    sample_graphs.gate("g").set()
    assert [message["content"] for message in (await joined)["messages"]][-2:] == ["gate g 2 2", counted(4)]
    values: Any = await last
    assert [message["content"] for message in values["messages"]][-2:] == ["later", "re: later"]
    again = await talk.client.runs.join(talk.thread_id, run_id)
    assert again["messages"][-1]["content"] == counted(4)  # the thread has moved on, the run has not


async def test_a_failure_is_told_in_the_stream_the_result_the_run_and_the_thread(start: Start) -> None:
    talk = await (await start()).conversation()
    error = {"error": "ValueError", "message": "out of paper"}
    parts = await talk.ask("boom out of paper")
    assert names(parts) == ["metadata", "messages", "error", "end"]
    assert parts[2].data == error
    run_id = parts[0].data["run_id"]
    assert await talk.status(run_id) == "error"
    assert await talk.client.runs.join(talk.thread_id, run_id) == {"__error__": error}
    thread: Any = await talk.client.threads.get(talk.thread_id)
    assert (thread["status"], thread["error"]) == ("error", error)
    with pytest.raises(Exception, match="ValueError: out of paper"):
        await talk.client.runs.wait(talk.thread_id, "agent", input=question("boom out of paper"))
    assert text_of(await talk.ask("hi")) == "re: hi"
    assert await talk.thread_status() == "idle"


async def test_texts_of_third_party_errors_stay_inside(start: Start) -> None:
    talk = await (await start()).conversation()
    parts = await talk.ask("leak key=sk-123")
    assert parts[-2].data == {"error": "ThirdPartyError", "message": "An internal error occurred"}


async def test_a_run_that_takes_too_long_is_timed_out(start: Start) -> None:
    talk = await (await start(run_timeout=0.05)).conversation()
    parts = await talk.ask("hold never")
    assert names(parts) == ["metadata", "error", "end"]
    assert parts[1].data["error"] == "TimeoutError"
    assert await talk.status(parts[0].data["run_id"]) == "timeout"
    assert await talk.thread_status() == "error"


async def test_runs_are_listed_newest_first_filtered_and_in_pages(start: Start) -> None:
    talk = await (await start()).conversation()
    ids = [(await talk.ask(text))[0].data["run_id"] for text in ("a", "boom b", "c")]
    runs = talk.client.runs
    assert [run["run_id"] for run in await runs.list(talk.thread_id)] == ids[::-1]
    assert [run["run_id"] for run in await runs.list(talk.thread_id, limit=1, offset=1)] == [ids[1]]
    assert [run["run_id"] for run in await runs.list(talk.thread_id, status="error")] == [ids[1]]
    assert await runs.list(talk.thread_id, limit=2, select=["run_id"]) == [{"run_id": ids[2]}, {"run_id": ids[1]}]
    assert await runs.list(talk.thread_id, limit=0) == []


async def test_every_field_of_a_run_can_be_selected_alone_and_no_other(start: Start) -> None:
    talk = await (await start()).conversation()
    await talk.ask("hi")
    runs = talk.client.runs
    (run,) = await runs.list(talk.thread_id)
    for field, value in run.items():
        assert await runs.list(talk.thread_id, select=[field]) == [{field: value}]  # type: ignore[list-item]
    both: Any = await runs.list(talk.thread_id, select=["run_id", "metadata"])
    assert both == [{"run_id": run["run_id"], "metadata": run["metadata"]}]
    for unknown in ("input", "run_id,metadata", ""):
        with pytest.raises(UnprocessableEntityError, match="select"):
            await runs.list(talk.thread_id, select=[unknown])  # type: ignore[list-item]


async def test_listing_runs_without_their_kwargs_does_not_read_them(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run's input may be a picture of many megabytes."""
    talk = await (await start()).conversation()
    await talk.ask("hi")
    real, read = Store.runs, list[Run]()

    async def runs(store: Store, *args: Any, **options: Any) -> list[Run]:
        read[:] = await real(store, *args, **options)
        return read

    monkeypatch.setattr(Store, "runs", runs)
    await talk.client.runs.list(talk.thread_id, select=["run_id", "metadata"])
    assert [run.kwargs for run in read] == [{}]
    await talk.client.runs.list(talk.thread_id, select=["kwargs"])
    assert [run.kwargs["input"] for run in read] == [question("hi")]


async def test_a_run_keeps_the_metadata_it_was_started_with(start: Start) -> None:
    talk = await (await start()).conversation(metadata={"place": "p"})
    run_id = await talk.begin("hi", metadata={"turn": "t-9"})
    run = await talk.client.runs.get(talk.thread_id, run_id)
    assert run["metadata"] == {
        "place": "p",
        "graph_id": "agent",
        "assistant_id": "fe096781-5601-53d2-b2f6-0d3403f7e9ca",
        "turn": "t-9",
    }


async def test_deleting_a_run_stops_and_forgets_it(start: Start) -> None:
    talk, run_id = await busy(start)
    await talk.client.runs.delete(talk.thread_id, run_id)
    with pytest.raises(NotFoundError):
        await talk.status(run_id)
    assert text_of(await talk.ask("next", multitask_strategy="reject")) == "re: next"


async def test_deleting_a_thread_stops_its_runs(start: Start) -> None:
    talk, run_id = await busy(start)
    waiting = await talk.begin("never said")
    joined = asyncio.create_task(talk.join(run_id, "-1"))
    await asyncio.sleep(0.05)
    await talk.client.threads.delete(talk.thread_id)
    assert names(await joined)[-1] == "end"
    for each in (run_id, waiting):
        with pytest.raises(NotFoundError):
            await talk.status(each)
    assert (await talk.client.threads.create(thread_id=talk.thread_id))["values"] is None


# Stateless runs


async def test_a_stateless_run_needs_no_thread_and_leaves_none(start: Start) -> None:
    running = await start()
    parts: list[StreamPart] = [
        part
        async for part in running.client.runs.stream(None, "agent", input=question("hi"), stream_mode="messages-tuple")
    ]
    assert text_of(parts) == "re: hi"
    assert parts[-1].event == "end"
    values: Any = await running.client.runs.wait(None, "agent", input=question("there"))
    assert [message["content"] for message in values["messages"]] == ["there", "re: there"]
    with pytest.raises(Exception, match="ValueError: no"):
        await running.client.runs.wait(None, "agent", input=question("boom no"))
    assert await running.client.threads.search() == []


async def test_a_stateless_run_may_keep_its_thread(start: Start) -> None:
    running = await start()
    await running.client.runs.wait(None, "agent", input=question("hi"), on_completion="keep")
    (thread,) = await running.client.threads.search()
    assert thread["status"] == "idle"


async def _cancel_self(state: sample_graphs.Chat) -> sample_graphs.Chat:
    raise asyncio.CancelledError


self_cancelling = StateGraph(sample_graphs.Chat)
self_cancelling.add_node("n", _cancel_self)
self_cancelling.add_edge(START, "n")
