"""Whole runs on the real LangGraph server, also through cut connections."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from channels.gateway import Ask, Gateway, InputFile, WhenBusy
from channels.inputs import Break
from channels.model import Phase, RunId, StepKind, StepState, View, new_turn_id
from channels.questions import next_input
from tests.emulators.fault_proxy import Damage, Fault, FaultProxy
from tests.gateway.agent import BEFORE_TOOLS, PLAN
from tests.gateway.langgraph_server import LangGraphServer
from tests.gateway.turns import ANSWER, SENDER, Seen, gateway_at, new_thread, run_turn

pytestmark = pytest.mark.xdist_group("langgraph-server")


def final_text(seen: Seen) -> str:
    answers = [segment.text for segment in seen.end.view.body if segment.is_answer]
    assert len(answers) == 1
    return answers[0]


async def test_an_answer_streams_in_many_small_steps(gateway: Gateway) -> None:
    seen = await run_turn(gateway, f"answer {ANSWER}")
    assert seen.end.view.phase is Phase.DONE
    assert seen.end.view.text == ANSWER
    assert len({text for text in seen.texts if text}) > 50
    assert len(seen.started) == 1
    assert gateway.stats.state_reads == 0


async def test_tools_are_steps_and_the_text_around_them_keeps_its_order(gateway: Gateway) -> None:
    seen = await run_turn(gateway, f"tools {ANSWER}")
    view = seen.end.view
    assert [(segment.text, segment.is_answer) for segment in view.body] == [(BEFORE_TOOLS, False), (ANSWER, True)]
    assert [(step.title, step.detail, step.state) for step in view.steps] == [("look", "Paris", StepState.DONE)]


async def test_a_question_with_options_is_asked_and_the_run_resumes_with_the_answer(gateway: Gateway) -> None:
    thread = new_thread()
    asked = await run_turn(gateway, "approve", thread=thread)
    assert asked.end.view.phase is Phase.ASKING
    assert asked.end.view.question == asked.end.interrupts[0].question
    assert [option.label for option in asked.end.interrupts[0].question.options] == ["yes", "no"]
    answer = asked.end.interrupts[0].answer("1", pressed=True)
    seen = await run_turn(gateway, next_input(asked.end.interrupts, [answer], sender=SENDER), thread=thread)
    assert seen.end.view.phase is Phase.DONE
    assert seen.end.view.text == "You said no."


async def test_several_questions_at_once_are_answered_together(gateway: Gateway) -> None:
    thread = new_thread()
    asked = await run_turn(gateway, "twice", thread=thread)
    texts = [interrupt.text for interrupt in asked.end.interrupts]
    assert sorted(texts) == ["Left?", "Right?"]
    answers = [interrupt.answer(f"{interrupt.text} yes") for interrupt in asked.end.interrupts]
    seen = await run_turn(gateway, next_input(asked.end.interrupts, answers, sender=SENDER), thread=thread)
    assert sorted(seen.end.view.text.split("\n\n")) == ["Left: Left? yes", "Right: Right? yes"]


async def test_a_review_of_two_actions_is_asked_twice_and_decided_at_once(gateway: Gateway) -> None:
    thread = new_thread()
    asked = await run_turn(gateway, "review", thread=thread)
    first, second = asked.end.interrupts
    answers = [first.answer("0", pressed=True), second.answer('edit: {"amount": 4}')]
    seen = await run_turn(gateway, next_input((first, second), answers, sender=SENDER), thread=thread)
    edited = {"type": "edit", "edited_action": {"name": "pay", "args": {"amount": 4}}}
    assert seen.end.view.text == f"Decided: {[{'type': 'approve'}, edited]}"


async def test_a_second_answer_to_the_same_question_shows_nothing_old(gateway: Gateway) -> None:
    thread = new_thread()
    asked = await run_turn(gateway, "approve", thread=thread)
    resume = next_input(asked.end.interrupts, ["yes"], sender=SENDER)
    assert (await run_turn(gateway, resume, thread=thread)).end.view.text == "You said yes."
    again = await run_turn(gateway, resume, thread=thread)
    assert again.end.view.phase is Phase.DONE
    assert again.end.view.notice
    assert again.end.view.text == ""


async def test_a_breakpoint_of_the_graph_is_asked_and_passed(gateway: Gateway) -> None:
    thread = new_thread()
    asked = await run_turn(gateway, f"tools {ANSWER}", thread=thread, assistant_id="guarded")
    assert asked.end.view.phase is Phase.ASKING
    assert "tools" in asked.end.interrupts[0].text
    assert [step.state for step in asked.end.view.steps] == [StepState.PENDING]
    resume = next_input(asked.end.interrupts, [asked.end.interrupts[0].answer("0", pressed=True)], sender=SENDER)
    seen = await run_turn(gateway, resume, thread=thread, assistant_id="guarded")
    assert seen.end.view.text == ANSWER


async def test_a_breakpoint_that_is_left_runs_nothing_and_the_thread_takes_the_next_question(gateway: Gateway) -> None:
    thread = new_thread()
    asked = await run_turn(gateway, f"tools {ANSWER}", thread=thread, assistant_id="guarded")
    (interrupt,) = asked.end.interrupts
    assert "- city: `Paris`" in interrupt.text
    assert next_input(asked.end.interrupts, [interrupt.answer("no")], sender=SENDER) is None
    then = Ask(f"answer {ANSWER}", SENDER, after=Break())
    seen = await run_turn(gateway, then, thread=thread, assistant_id="guarded")
    assert (seen.end.view.phase, seen.end.view.text, seen.end.view.steps) == (Phase.DONE, ANSWER, ())


async def test_the_bytes_of_a_turn_do_not_grow_with_the_threads_history(gateway: Gateway, proxy: FaultProxy) -> None:
    thread = new_thread()
    received: list[int] = []
    for history in (0, 500):
        if history:
            old = [{"type": "ai" if n % 2 else "human", "content": "x" * 200, "id": f"o{n}"} for n in range(history)]
            async with httpx.AsyncClient(verify=False) as client:
                await client.post(f"{proxy.url}/threads/{thread}/state", json={"values": {"messages": old}})
        before = gateway.stats.bytes_received
        assert (await run_turn(gateway, f"tools {ANSWER}", thread=thread)).end.view.text.endswith(ANSWER)
        received.append(gateway.stats.bytes_received - before)
    assert gateway.stats.state_reads == 0
    assert abs(received[1] - received[0]) < received[0] // 20


async def test_a_failing_model_keeps_its_text_and_its_secrets(gateway: Gateway) -> None:
    seen = await run_turn(gateway, f"fail {ANSWER}")
    view = seen.end.view
    assert view.phase is Phase.FAILED
    assert view.text
    assert ANSWER.startswith(view.text)
    assert "hunter2" not in view.notice
    assert "the model broke" in seen.end.note


async def test_a_subgraph_is_a_step_and_not_the_answer(gateway: Gateway) -> None:
    seen = await run_turn(gateway, f"sub {ANSWER}")
    view = seen.end.view
    assert final_text(seen) == ANSWER
    assert [(step.title, step.kind, step.state) for step in view.steps] == [("sub", StepKind.TASK, StepState.DONE)]
    assert view.steps[0].detail == "the inner voice"
    assert not any("inner voice" in text for text in seen.texts)


async def test_a_side_call_of_the_model_is_never_shown(gateway: Gateway) -> None:
    seen = await run_turn(gateway, f"title {ANSWER}")
    assert seen.end.view.text == ANSWER
    assert not any("SECRET" in text for text in seen.texts)


async def test_the_previous_answer_is_not_shown_again(gateway: Gateway) -> None:
    thread = new_thread()
    await run_turn(gateway, "answer the first answer", thread=thread)
    seen = await run_turn(gateway, "answer the second one", thread=thread, prepare=False)
    assert seen.end.view.text == "the second one"
    assert not any("first" in text for text in seen.texts)


@pytest.mark.parametrize(
    "faults",
    [
        (Fault(Damage.CUT_BEFORE),),
        (Fault(Damage.CUT, 0),),
        (Fault(Damage.CUT, 3000), Fault(Damage.CUT, 900)),
        (Fault(Damage.CUT, 4000, inside_character=True),),
        (Fault(Damage.CLOSE, 5000),),
        (Fault(Damage.HANG, 6000),),
        (Fault(Damage.REFUSE_AFTER, status=502),),
        (Fault(Damage.SPOIL, 3000),),
    ],
    ids=["before", "headers", "twice", "character", "closed", "hang", "502", "malformed"],
)
async def test_the_answer_is_whole_after_a_broken_connection(
    gateway: Gateway, proxy: FaultProxy, faults: tuple[Fault, ...]
) -> None:
    proxy.plan(*faults)
    seen = await run_turn(gateway, f"tools {ANSWER}")
    assert [segment.text for segment in seen.end.view.body] == [BEFORE_TOOLS, ANSWER]
    assert len(seen.started) == 1


async def test_a_run_is_followed_by_another_process_from_its_id(gateway: Gateway, proxy: FaultProxy) -> None:
    thread, turn, known = new_thread(), new_turn_id(), asyncio.Event()
    first = asyncio.create_task(
        run_turn(gateway, f"slowly {ANSWER}", thread=thread, turn=turn, on_started=lambda _: known.set())
    )
    await known.wait()
    await asyncio.sleep(0.1)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    followed = await run_turn(gateway, f"slowly {ANSWER}", thread=thread, turn=turn, maybe_requested=True)
    assert followed.end.view.text == ANSWER
    runs = await _runs(proxy.url, thread)
    assert [run["run_id"] for run in runs] == followed.started


@pytest.mark.parametrize("word", ["answer", "plan", "reflect"])
async def test_a_run_that_ended_while_nobody_listened_is_finished_from_the_state(
    gateway: Gateway, proxy: FaultProxy, word: str
) -> None:
    thread, turn = new_thread(), new_turn_id()
    done = await run_turn(gateway, f"{word} {ANSWER}", thread=thread, turn=turn)
    proxy.refuses_streams = 501  # as when its stream is not kept any more
    again = await run_turn(gateway, f"{word} {ANSWER}", thread=thread, turn=turn, run=done.started[0])
    assert again.end.view.text == done.end.view.text
    assert ANSWER in again.end.view.text
    assert gateway.stats.state_reads > 0
    assert len(await _runs(proxy.url, thread)) == 1


async def test_a_stop_keeps_the_text_and_leaves_the_thread_usable(gateway: Gateway) -> None:
    thread = new_thread()
    stopping: list[asyncio.Task[bool]] = []
    started: list[RunId] = []

    def stop_after_some_text(view: View) -> None:
        if len(view.text) > 30 and not stopping:
            stopping.append(asyncio.ensure_future(gateway.cancel(thread, started[0])))

    seen = await run_turn(
        gateway, f"slowly {ANSWER}", thread=thread, on_started=started.append, on_view=stop_after_some_text
    )
    assert await stopping[0]
    assert seen.end.view.phase is Phase.STOPPED
    assert len(seen.end.view.text) > 30
    assert ANSWER.startswith(seen.end.view.text)
    after = await run_turn(gateway, "answer still here", thread=thread, prepare=False)
    assert after.end.view.text == "still here"


async def test_a_run_that_takes_too_long_is_cancelled_and_says_so(gateway: Gateway, proxy: FaultProxy) -> None:
    thread = new_thread()
    seen = await run_turn(gateway, f"slowly {ANSWER * 5}", thread=thread, timeout=60.0)
    assert seen.end.view.phase is Phase.FAILED
    assert "longer than 60 seconds" in seen.end.view.notice
    assert ANSWER.startswith(seen.end.view.text[: len(ANSWER)])
    assert (await _runs(proxy.url, thread))[0]["status"] == "interrupted"


async def test_answers_survive_a_restart_of_the_server(tmp_path: Path) -> None:
    """Runs go on in the new process: what was being written comes under new message ids, and is shown once.

    One run says nothing when the server goes, and is over when it can be reached again.
    """
    server = LangGraphServer(tmp_path)
    await asyncio.to_thread(server.start)
    proxy = FaultProxy(server.url)
    gateway = gateway_at(await proxy.start())
    try:
        writing, planned, thread = asyncio.Event(), asyncio.Event(), new_thread()
        asked = asyncio.create_task(
            run_turn(
                gateway, f"slowly {ANSWER * 3}", on_view=lambda view: writing.set() if len(view.text) > 200 else None
            )
        )
        await writing.wait()
        silent = asyncio.create_task(
            run_turn(gateway, "plan 42", thread=thread, on_view=lambda view: planned.set() if view.text else None)
        )
        await planned.wait()
        proxy.go_away()
        await asyncio.to_thread(server.stop)
        await asyncio.to_thread(server.start)
        while (await _runs(server.url, thread))[0]["status"] != "success":  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        proxy.upstream = server.url
        proxy.come_back()
        assert (await silent).end.view.text == f"{PLAN}\n\n42"
        seen = await asked
        assert seen.end.view.text == ANSWER * 3
        assert len(seen.end.view.body) == len(seen.started) == 1
        assert gateway.stats.restarts <= 1  # none if the run is over before it can be joined again
    finally:
        await gateway.aclose()
        await proxy.stop()
        await asyncio.to_thread(server.stop)


async def test_a_busy_thread_is_waited_for(gateway: Gateway) -> None:
    thread, known = new_thread(), asyncio.Event()
    first = asyncio.create_task(run_turn(gateway, f"answer {ANSWER}", thread=thread, on_started=lambda _: known.set()))
    await known.wait()
    second = await run_turn(gateway, "answer me too", thread=thread, prepare=False)
    assert (await first).end.view.text == ANSWER
    assert second.end.view.text == "me too"
    assert not second.end.view.notice


async def test_a_busy_thread_can_be_taken_over(gateway: Gateway) -> None:
    thread, known = new_thread(), asyncio.Event()
    first = asyncio.create_task(run_turn(gateway, f"slowly {ANSWER}", thread=thread, on_started=lambda _: known.set()))
    await known.wait()
    second = await run_turn(gateway, "answer me first", thread=thread, prepare=False, when_busy=WhenBusy.INTERRUPT)
    assert second.end.view.text == "me first"
    assert (await first).end.view.phase is Phase.STOPPED


async def test_a_deleted_thread_is_made_anew_and_the_reader_is_told(gateway: Gateway, proxy: FaultProxy) -> None:
    seen = await run_turn(gateway, "answer hello again", prepare=False)
    assert gateway.stats.lost_threads == 1
    assert seen.end.view.text == "hello again"
    assert "anew" in seen.end.view.notice


async def test_an_unknown_assistant_is_said_to_the_reader_and_the_operator(gateway: Gateway) -> None:
    seen = await run_turn(gateway, "answer x", assistant_id="nobody")
    assert seen.end.view.phase is Phase.FAILED
    assert "does not exist" in seen.end.view.notice
    assert seen.end.note
    assert not (await gateway.check("nobody")).ok
    assert (await gateway.check("agent")).ok


async def test_a_file_reaches_the_model(gateway: Gateway) -> None:
    ask = Ask("answer with file", SENDER, (InputFile("notes.txt", "text/plain", "héllo".encode()),))
    seen = await run_turn(gateway, ask)
    assert seen.end.view.phase is Phase.DONE


async def _runs(url: str, thread: str) -> list[dict[str, object]]:
    async with httpx.AsyncClient(verify=False) as client:
        found = (await client.get(f"{url}/threads/{thread}/runs")).json()
    assert isinstance(found, list)
    return found
