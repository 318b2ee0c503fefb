"""How events become a view: what is shown, in which order, and what never is."""

from __future__ import annotations

import pytest
from pydantic import JsonValue

from channels.model import File, Phase, Segment, Step, StepKind, StepState, Usage
from channels.transcript import Transcript
from channels.transcript.stream_events import StreamEvent

Json = dict[str, JsonValue]
NOW = 1_750_000_000.0


def chunk(text: JsonValue, message: str = "m1", **more: JsonValue) -> Json:
    return {"type": "AIMessageChunk", "content": text, "id": message, **more}


def whole(text: JsonValue, message: str = "m1", **more: JsonValue) -> Json:
    return {"type": "ai", "content": text, "id": message, **more}


def meta(node: str = "model", **more: JsonValue) -> Json:
    return {"langgraph_node": node, "langgraph_checkpoint_ns": f"{node}:1", **more}


def streamed(text: JsonValue, message: str = "m1", node: str = "model", **more: JsonValue) -> StreamEvent:
    return StreamEvent.of("messages", [chunk(text, message, **more), meta(node)])


def updated(*messages: JsonValue, node: str = "model", **fields: JsonValue) -> StreamEvent:
    return StreamEvent.of("updates", {node: {"messages": list(messages), **fields}})


def fed(*events: StreamEvent, transcript: Transcript | None = None) -> Transcript:
    transcript = transcript or Transcript()
    for event in events:
        transcript.feed(event, NOW)
    return transcript


def text_after(*events: StreamEvent) -> str:
    return fed(*events).view(NOW).text


# ---------------------------------------------------------------- dialects


@pytest.mark.parametrize("name", ["messages", "messages-tuple"])
@pytest.mark.parametrize(
    "payload",
    [
        [chunk("Hello"), meta()],
        chunk("Hello"),
        [chunk("Hello")],
        {"type": "constructor", "lc": 1, "id": ["langchain", "AIMessageChunk"], "kwargs": {"content": "Hello"}},
        [{"type": "constructor", "lc": 1, "id": ["x", "AIMessage"], "kwargs": {"content": "Hello", "id": "m"}}, meta()],
        {"role": "assistant", "content": "Hello"},
        [{"role": "assistant", "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]}, meta()],
        [{"type": "ai", "content": ["Hel", {"text": "lo"}]}, meta()],
        [{"type": "AIMessageChunk", "content": "Hello"}, {**meta(), "message_id": "in-the-metadata"}],
        [{"type": "ai", "content": [{"type": "output_text", "text": "Hello"}]}, meta()],
    ],
)
def test_every_known_shape_of_a_message_is_read(name: str, payload: JsonValue) -> None:
    assert text_after(StreamEvent.of(name, payload)) == "Hello"


def test_the_old_messages_mode_sends_the_text_so_far() -> None:
    steps = ["He", "Hello", "Hello", "Hello you"]
    assert text_after(*(StreamEvent.of("messages/partial", [chunk(text)]) for text in steps)) == "Hello you"


def test_messages_are_told_apart_by_id_however_they_interleave() -> None:
    transcript = fed(streamed("A1", "a"), streamed("B1 ", "b"), streamed("A2", "a"), streamed("B2", "b"))
    assert [segment.text for segment in transcript.view(NOW).body] == ["A1A2", "B1 B2"]


def test_pieces_without_any_id_stay_together_and_are_found_in_the_update() -> None:
    events = [StreamEvent.of("messages", [{"type": "AIMessageChunk", "content": text}, meta()]) for text in ("He", "y")]
    transcript = fed(*events, updated(whole("Hey", "from-the-state")))
    assert transcript.is_settled
    assert transcript.finish(Phase.DONE, NOW).text == "Hey"


def test_a_repeated_piece_is_said_twice() -> None:
    assert text_after(streamed("谢"), streamed("谢")) == "谢谢"


@pytest.mark.parametrize("name", ["heartbeat", "", "tasks", "checkpoints", "messages/metadata"])
def test_events_that_tell_nothing_change_nothing(name: str) -> None:
    transcript = fed(StreamEvent.of(name, {"a": 1}))
    assert (transcript.unknown, transcript.malformed) == (0, 0)
    assert transcript.view(NOW).revision == 0


def test_unknown_and_malformed_events_are_counted_and_skipped() -> None:
    transcript = fed(
        StreamEvent.of("surprise", {}), StreamEvent.of("messages", 5), StreamEvent.of("messages", None), streamed("on")
    )
    assert (transcript.unknown, transcript.malformed) == (1, 2)
    assert transcript.view(NOW).text == "on"


# ---------------------------------------------------------------- what is never the answer


@pytest.mark.parametrize("kind", ["human", "user", "system", "developer", "function", "chat", "HumanMessageChunk"])
def test_only_assistants_are_heard(kind: str) -> None:
    assert text_after(StreamEvent.of("messages", [{"type": kind, "content": "secret", "id": "x"}, meta()])) == ""


def test_hidden_messages_are_never_shown() -> None:
    hidden: Json = {"hide_from_ui": True}
    transcript = fed(
        streamed("secret", "h", additional_kwargs=hidden), updated(whole("secret", "h", additional_kwargs=hidden))
    )
    assert transcript.view(NOW).text == ""
    assert transcript.finish(Phase.DONE, NOW).text == ""


def test_a_message_hidden_later_disappears() -> None:
    transcript = fed(streamed("secret", "h"), updated(whole("secret", "h", additional_kwargs={"hide_from_ui": True})))
    assert transcript.view(NOW).text == ""


@pytest.mark.parametrize(
    ("node", "metadata"),
    [
        ("title", {}),
        ("TitleMiddleware.after_model", {}),
        ("SummarizationMiddleware.before_model", {}),
        ("generate_summary", {}),
        ("tools", {}),
        ("model", {"tags": ["nostream"]}),
        ("model", {"tags": ["middleware:title"]}),
        ("model", {"lc_source": "summarization"}),
    ],
)
def test_side_calls_of_a_model_are_held_until_the_state_confirms_them(node: str, metadata: Json) -> None:
    said = StreamEvent.of("messages", [chunk("A title", "t"), meta(node, **metadata)])
    transcript = fed(streamed("The answer", "a"), said)
    assert transcript.view(NOW).text == "The answer"
    fed(updated(whole("A title", "t"), node=node), transcript=transcript)
    assert transcript.view(NOW).text == "The answer\n\nA title"


def test_text_that_the_state_never_confirms_is_not_the_answer_in_the_end() -> None:
    transcript = fed(streamed("plan: …", "p", node="planner"), streamed("Hi", "a"), updated(whole("Hi", "a")))
    assert not transcript.is_settled
    assert transcript.finish(Phase.DONE, NOW).text == "Hi"


@pytest.mark.parametrize("phase", [Phase.STOPPED, Phase.FAILED])
def test_unconfirmed_text_of_a_cut_run_is_kept(phase: Phase) -> None:
    transcript = fed(streamed("Half an ans"), updated(node="other"))
    assert transcript.finish(phase, NOW).text == "Half an ans"


def test_what_the_state_made_of_a_nodes_texts_is_learnt() -> None:
    transcript = fed(
        streamed("x", "p", node="planner"),
        streamed("{}", "r", node="router"),
        streamed("Over to you", "o", node="router"),
        updated(whole("Over to you", "o"), node="router"),
        streamed("In short", "s", node="summarize"),
        updated(whole("In short", "s"), node="summarize"),
    )
    assert transcript.speaking == {"planner": False, "router": None, "summarize": True}


@pytest.mark.parametrize(
    ("node", "speaks", "shown"),
    [
        ("planner", None, "x"),
        ("planner", False, ""),
        ("summarize", None, ""),
        ("summarize", True, "x"),
        ("summarize", False, ""),
        ("tools", True, ""),
        ("SummarizationMiddleware.before_model", True, ""),
    ],
)
def test_a_node_streams_if_its_texts_become_messages_and_by_its_name_only_while_that_is_not_known(
    node: str, speaks: bool | None, shown: str
) -> None:
    transcript = Transcript()
    transcript.expect(speaking={node: speaks})
    assert fed(streamed("x", "p", node=node), transcript=transcript).view(NOW).text == shown


def test_a_tagged_side_call_of_a_node_that_answers_is_held_all_the_same() -> None:
    transcript = Transcript()
    transcript.expect(speaking={"summarize": True})
    said = StreamEvent.of("messages", [chunk("A title", "t"), meta("summarize", tags=["nostream"])])
    assert fed(said, transcript=transcript).view(NOW).text == ""


def test_history_that_a_node_repeats_does_not_count() -> None:
    transcript = Transcript()
    transcript.expect(question_id="turn-2")
    old: list[JsonValue] = [{"type": "human", "content": "before", "id": "turn-1"}, whole("old answer", "old")]
    mine: JsonValue = {"type": "human", "content": "now", "id": "turn-2"}
    fed(streamed("new", "n"), updated(*old, mine, whole("new", "n")), transcript=transcript)
    assert transcript.finish(Phase.DONE, NOW).text == "new"


def test_a_message_removed_from_the_state_disappears_but_a_summary_of_all_does_not() -> None:
    transcript = fed(
        streamed("oops", "a"), updated(whole("oops", "a")), streamed("good", "b"), updated(whole("good", "b"))
    )
    fed(updated({"type": "remove", "id": "a", "content": ""}), transcript=transcript)
    assert transcript.view(NOW).text == "good"
    fed(updated({"type": "remove", "id": "__remove_all__", "content": ""}), transcript=transcript)
    assert transcript.view(NOW).text == "good"


# ---------------------------------------------------------------- reasoning


@pytest.mark.parametrize(
    "piece",
    [
        chunk([{"type": "thinking", "thinking": "hmm", "index": 0}]),
        chunk([{"type": "reasoning", "reasoning": "hmm"}]),
        chunk([{"type": "reasoning", "summary": [{"type": "summary_text", "text": "hmm"}]}]),
        chunk([{"type": "reasoning_content", "reasoning_content": {"text": "hmm"}}]),
        chunk("", additional_kwargs={"reasoning_content": "hmm"}),
        chunk("", additional_kwargs={"reasoning": {"summary": [{"text": "hmm"}]}}),
        chunk("<think>hmm</think>"),
    ],
)
def test_reasoning_is_kept_apart(piece: Json) -> None:
    transcript = fed(StreamEvent.of("messages", [piece, meta()]))
    assert transcript.view(NOW).phase is Phase.THINKING
    fed(streamed("Yes."), transcript=transcript)
    view = transcript.view(NOW)
    assert (view.text, view.reasoning, view.phase) == ("Yes.", "hmm", Phase.WRITING)


# ---------------------------------------------------------------- order, answer, phase


def test_the_last_message_is_the_answer_and_those_before_led_up_to_it() -> None:
    call: JsonValue = [{"name": "look", "args": {"city": "Paris", "days": 2}, "id": "c1"}]
    transcript = fed(streamed("Let me look."))
    assert transcript.view(NOW).body == (Segment("m1", "Let me look.", True),)
    fed(updated(whole("Let me look.", tool_calls=call)), transcript=transcript)
    assert transcript.view(NOW).body == (Segment("m1", "Let me look.", False),)
    fed(streamed("Sunny.", "m2"), transcript=transcript)
    assert transcript.view(NOW).body[1:] == (Segment("m2", "Sunny.", True),)


def test_the_phases_follow_what_happens() -> None:
    transcript = Transcript()
    assert transcript.view(NOW).phase is Phase.WAITING
    pieces: JsonValue = [{"name": "look", "args": "", "id": "c1", "index": 0}]
    fed(streamed("", tool_call_chunks=pieces), transcript=transcript)
    assert transcript.view(NOW).phase is Phase.WORKING
    fed(streamed("Sunny.", "m2"), transcript=transcript)
    assert transcript.view(NOW).phase is Phase.WRITING


def test_a_view_is_the_same_object_until_something_changes() -> None:
    transcript = fed(streamed("a"))
    first = transcript.view(NOW)
    assert transcript.view(NOW + 5) is first
    assert not transcript.feed(StreamEvent.of("heartbeat", None), NOW)
    assert transcript.view(NOW) is first
    assert transcript.feed(streamed("b"), NOW)
    assert transcript.view(NOW).revision == first.revision + 1


# ---------------------------------------------------------------- steps


def test_a_tool_call_is_a_step_with_its_arguments_and_its_time() -> None:
    transcript = Transcript()
    pieces: list[JsonValue] = [
        [{"name": "look", "args": "", "id": "c1", "index": 0}],
        [{"name": None, "args": '{"ci', "id": None, "index": 0}],
        [{"name": None, "args": 'ty": "Paris"}', "id": None, "index": 0}],
    ]
    for at, piece in enumerate(pieces):
        transcript.feed(streamed("", tool_call_chunks=piece), NOW + at)
    assert transcript.view(NOW).steps == (Step("c1", "look", StepState.RUNNING, detail="Paris", started=NOW),)
    result: Json = {"type": "tool", "name": "look", "tool_call_id": "c1", "content": "sunny", "status": "success"}
    transcript.feed(StreamEvent.of("messages", [result, meta("tools")]), NOW + 9)
    assert transcript.view(NOW).steps == (
        Step("c1", "look", StepState.DONE, detail="Paris", started=NOW, ended=NOW + 9),
    )


def test_a_failed_tool_is_a_failed_step() -> None:
    result: Json = {"type": "tool", "name": "look", "tool_call_id": "c1", "content": "no", "status": "error"}
    assert fed(StreamEvent.of("messages", [result, meta()])).view(NOW).steps[0].state is StepState.FAILED


def test_a_sub_agents_task_reports_and_ends() -> None:
    started: Json = {"type": "task_started", "task_id": "t", "description": "Research"}
    running: Json = {"type": "task_running", "task_id": "t", "message": {"content": "looking  at\nit"}}
    transcript = fed(StreamEvent.of("custom", started), StreamEvent.of("custom", running))
    assert transcript.view(NOW).steps == (
        Step("t", "Research", StepState.RUNNING, StepKind.TASK, "looking at it", started=NOW),
    )
    fed(StreamEvent.of("custom|tools:1", {"type": "task_failed", "task_id": "t", "error": "x"}), transcript=transcript)
    assert transcript.view(NOW).steps[0].state is StepState.FAILED


def test_a_task_takes_the_place_of_the_tool_call_that_runs_it() -> None:
    pieces: JsonValue = [{"name": "task", "args": "", "id": "t", "index": 0}]
    started: Json = {"type": "task_started", "task_id": "t", "description": "Research"}
    transcript = fed(streamed("", tool_call_chunks=pieces), StreamEvent.of("custom", started))
    inner = StreamEvent.of("messages|researcher:1", [chunk("inner", "i"), meta()])
    assert [step.title for step in fed(inner, transcript=transcript).view(NOW).steps] == ["Research"]


def test_other_custom_events_show_nothing() -> None:
    transcript = fed(StreamEvent.of("custom", {"progress": 1}), StreamEvent.of("custom", "words"))
    assert not transcript.view(NOW).has_content


def test_todos_are_steps_and_the_tool_that_writes_them_is_not() -> None:
    call: JsonValue = [{"name": "write_todos", "args": {}, "id": "c"}]
    todos: JsonValue = [{"content": "One", "status": "completed"}, {"content": "Two", "status": "in_progress"}]
    transcript = fed(updated(whole("", tool_calls=call)), updated(todos=todos, node="tools"))
    assert [(step.title, step.state, step.kind) for step in transcript.view(NOW).steps] == [
        ("One", StepState.DONE, StepKind.TODO),
        ("Two", StepState.RUNNING, StepKind.TODO),
    ]


def test_a_subgraph_speaks_as_a_step_and_ends_with_its_node() -> None:
    inner = StreamEvent.of("messages|child:1", [chunk("inner words", "i"), meta()])
    transcript = fed(inner)
    assert transcript.view(NOW).text == ""
    assert transcript.view(NOW).steps[0].detail == "inner words"
    fed(updated(whole("inner words", "i"), node="child"), transcript=transcript)
    assert transcript.view(NOW).steps[0].state is StepState.DONE


def test_a_subgraph_that_has_the_last_word_gave_the_answer() -> None:
    inner = StreamEvent.of("messages|child:1", [chunk("the answer", "i"), meta()])
    transcript = fed(inner, updated(whole("the answer", "i"), node="child"))
    assert transcript.finish(Phase.DONE, NOW).text == "the answer"


@pytest.mark.parametrize(
    ("phase", "state"),
    [
        (Phase.DONE, StepState.DONE),
        (Phase.FAILED, StepState.FAILED),
        (Phase.STOPPED, StepState.FAILED),
        (Phase.ASKING, StepState.PENDING),
    ],
)
def test_no_step_runs_on_after_the_end(phase: Phase, state: StepState) -> None:
    pieces: JsonValue = [{"name": "look", "args": "", "id": "c1", "index": 0}]
    assert fed(streamed("", tool_call_chunks=pieces)).finish(phase, NOW).steps[0].state is state


# ---------------------------------------------------------------- usage, files, questions


def test_usage_is_summed_over_all_model_calls_and_counted_once_for_each() -> None:
    used: JsonValue = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    transcript = fed(
        streamed("", "a", usage_metadata=used),
        updated(whole("x", "a", usage_metadata=used)),
        streamed("", "b", usage_metadata=used),
    )
    assert transcript.view(NOW).usage == Usage(20, 10)


def test_artifacts_and_files_in_messages_are_files() -> None:
    transcript = Transcript()
    transcript.expect(thread="T")
    image: JsonValue = [{"type": "text", "text": "Here"}, {"type": "image", "mime_type": "image/png", "base64": "AA=="}]
    fed(
        updated(artifacts=["/mnt/user-data/outputs/report.pdf"], node="tools"),
        streamed("Here"),
        updated(whole(image)),
        transcript=transcript,
    )
    report, picture = transcript.view(NOW).files
    assert report == File(
        "/mnt/user-data/outputs/report.pdf",
        "report.pdf",
        "application/pdf",
        None,
        {"thread": "T", "artifact": "/mnt/user-data/outputs/report.pdf"},
    )
    assert (picture.name, dict(picture.reference)) == ("file-2.png", {"thread": "T", "message": "m1", "block": 1})


def test_the_files_of_an_attempt_that_is_begun_anew_are_not_those_of_the_run() -> None:
    image: JsonValue = [{"type": "image", "mime_type": "image/png", "base64": "AA=="}]
    begin = StreamEvent.of("metadata", {"run_id": "r"})
    transcript = Transcript()
    transcript.expect(thread="T")
    fed(begin, streamed("", "m1"), updated(whole(image, "m1"), artifacts=["draft.pdf"]), transcript=transcript)
    assert [file.name for file in transcript.view(NOW).files] == ["draft.pdf", "file-2.png"]
    fed(begin, streamed("", "m2"), updated(whole(image, "m2")), transcript=transcript)
    (file,) = transcript.view(NOW).files
    assert (file.name, dict(file.reference)) == ("file-1.png", {"thread": "T", "message": "m2", "block": 0})


def test_several_interrupts_come_in_several_events_and_once_each() -> None:
    first: Json = {"id": "1", "value": "A?"}
    second: Json = {"id": "2", "value": "B?"}
    events = [StreamEvent.of("updates", {"__interrupt__": [one]}) for one in (first, second, first)]
    transcript = fed(*events, StreamEvent.of("values", {"messages": [], "__interrupt__": [first, second]}))
    assert [(interrupt.id, interrupt.text) for interrupt in transcript.interrupts] == [("1", "A?"), ("2", "B?")]
    assert transcript.is_settled


def test_a_clarification_that_the_agent_goes_on_after_is_no_question() -> None:
    asked: Json = {"type": "tool", "name": "ask_clarification", "content": "❓ Which?", "id": "clarification:c"}
    transcript = fed(updated(asked, node="tools"))
    assert [interrupt.text for interrupt in transcript.interrupts] == ["❓ Which?"]
    fed(streamed("I guess."), updated(whole("I guess.")), transcript=transcript)
    assert transcript.interrupts == ()


# ---------------------------------------------------------------- holes, restarts, the state


def test_a_run_that_was_executed_anew_while_nobody_listened_is_answered_once() -> None:
    first = StreamEvent.of("metadata", {"run_id": "r", "attempt": 1})
    transcript = fed(first, streamed("The answer.", "m1"), updated(whole("The answer.", "m1")))
    assert transcript.attempt == 1
    transcript.begin_anew()  # the state was written by the second attempt
    question: Json = {"type": "human", "content": "?", "id": "q"}
    assert transcript.reconcile({"messages": [question, whole("The answer.", "m2")]}, NOW)
    assert transcript.finish(Phase.DONE, NOW).text == "The answer."
    assert transcript.restarts == 1


def test_after_a_hole_growing_text_stands_still_until_it_comes_whole() -> None:
    transcript = fed(streamed("Hel"))
    transcript.missed()
    fed(streamed(" world"), streamed("ddle", "n"), transcript=transcript)
    assert transcript.view(NOW).text == "Hel"
    fed(updated(whole("Hello brave world")), transcript=transcript)
    assert transcript.view(NOW).text == "Hello brave world"
    fed(streamed("And", "later"), transcript=transcript)
    assert transcript.view(NOW).text == "Hello brave world\n\nAnd"
    assert not transcript.is_settled


def test_a_run_begun_anew_replaces_the_text_without_showing_less_of_it_meanwhile() -> None:
    begin = StreamEvent.of("metadata", {"run_id": "r", "attempt": 1})
    transcript = fed(begin, streamed("Hello wor", "a"), begin)
    for piece, shown in (("He", "Hello wor"), ("llo w", "Hello wor"), ("orld", "Hello world")):
        fed(streamed(piece, "b"), transcript=transcript)
        assert transcript.view(NOW).text == shown
    assert transcript.restarts == 1


def test_a_run_begun_anew_twice_still_shows_the_longest_text() -> None:
    begin = StreamEvent.of("metadata", {"run_id": "r"})
    assert text_after(begin, streamed("Hello wor", "a"), begin, streamed("Hel", "b"), begin) == "Hello wor"


def test_a_run_begun_anew_that_says_something_else_shows_that() -> None:
    begin = StreamEvent.of("metadata", {"run_id": "r"})
    assert text_after(begin, streamed("Hello wor", "a"), begin, streamed("Bye", "b")) == "Bye"


def state(*messages: JsonValue) -> Json:
    return {"messages": list(messages)}


def asked(text: str, message: str) -> Json:
    return {"type": "human", "content": text, "id": message}


def test_the_state_completes_what_was_not_heard_in_its_order() -> None:
    transcript = Transcript()
    transcript.expect(question_id="turn-2")
    fed(streamed("Sec", "b"), transcript=transcript)
    transcript.missed()
    found = transcript.reconcile(
        state(
            asked("x", "turn-1"), whole("old", "o"), asked("y", "turn-2"), whole("First.", "a"), whole("Second.", "b")
        ),
        NOW,
    )
    assert found
    assert [segment.text for segment in transcript.finish(Phase.DONE, NOW).body] == ["First.", "Second."]


@pytest.mark.parametrize(
    "messages",
    [
        [asked("x", "turn-1"), whole("old answer", "o")],
        [asked("x", "turn-1"), whole("old answer", "o"), asked("y", "turn-2")],
        [
            asked("x", "turn-1"),
            whole("old answer", "o"),
            asked("y", "turn-2__user"),
            whole("hidden", "h", additional_kwargs={"hide_from_ui": True}),
        ],
        [asked("y", "turn-2"), asked("z", "turn-3"), whole("somebody else's answer", "s")],
    ],
)
def test_only_what_stands_after_our_question_and_before_the_next_is_ours(messages: list[JsonValue]) -> None:
    transcript = Transcript()
    transcript.expect(question_id="turn-2", question_text="y")
    assert not transcript.reconcile(state(*messages), NOW)
    assert transcript.finish(Phase.DONE, NOW).text == ""


def critique(text: str, message: str) -> Json:
    """A human message that a graph writes: of a critic, or of another agent."""
    return {"type": "human", "content": text, "id": message, "name": "critic"}


SUMMARY: Json = {"type": "human", "content": "Until now: …", "id": "s", "additional_kwargs": {"lc_source": "summary"}}
CALLING = whole("", "t", tool_calls=[{"name": "look", "args": {}, "id": "c"}])
RESULT: Json = {"type": "tool", "name": "look", "tool_call_id": "c", "content": "sunny", "id": "r"}


@pytest.mark.parametrize(
    ("heard", "messages", "texts"),
    [
        ([], [whole("Draft", "d"), critique("Longer!", "c"), whole("Essay", "e")], ["Draft", "Essay"]),
        (["Draft"], [whole("Draft", "m0"), critique("Longer!", "c"), whole("Essay", "e")], ["Draft", "Essay"]),
        ([], [critique("Three sources.", "w"), critique("A chart.", "v"), whole("Essay", "e")], ["Essay"]),
        ([], [critique("Asked again", "w")], []),
    ],
    ids=["not heard", "begun", "spoken by others", "nothing said"],
)
@pytest.mark.parametrize("is_resumed", [False, True])
def test_what_a_graph_lets_people_say_after_the_question_does_not_end_its_answer(
    heard: list[str], messages: list[JsonValue], texts: list[str], is_resumed: bool
) -> None:
    before = Transcript()
    before.expect(question_id="turn-2", question_text="y")
    transcript = before
    if is_resumed:
        transcript = Transcript()
        transcript.expect(heard=before.heard_ids)
    fed(*(streamed(text, f"m{n}") for n, text in enumerate(heard)), transcript=transcript)
    transcript.missed()
    old = [asked("x", "turn-1"), whole("old", "o")]
    transcript.reconcile(state(*old, asked("y", "turn-2"), *messages), NOW, by_us=True)
    assert transcript.is_told_by_state
    assert [segment.text for segment in transcript.finish(Phase.DONE, NOW).body] == texts


@pytest.mark.parametrize(
    ("messages", "texts"),
    [
        ([SUMMARY, CALLING, RESULT, whole("Essay", "e")], ["Essay"]),
        ([SUMMARY, whole("Draft", "d"), critique("Longer!", "c"), whole("Essay", "e")], ["Draft", "Essay"]),
        ([whole("Essay", "e")], ["Essay"]),
        ([asked("x", "turn-1"), whole("old", "o"), asked("rewritten", "1"), whole("Essay", "e")], ["Essay"]),
    ],
    ids=["into a summary", "into a summary, with others speaking", "away", "into other words"],
)
def test_an_answer_whose_question_the_graph_made_into_something_else_is_found(
    messages: list[JsonValue], texts: list[str]
) -> None:
    transcript = Transcript()
    transcript.expect(question_id="turn-2", question_text="y")
    fed(streamed("Dra", "d"), transcript=transcript)
    transcript.missed()
    assert transcript.reconcile(state(*messages), NOW, by_us=True)
    assert [segment.text for segment in transcript.finish(Phase.DONE, NOW).body] == texts


def test_a_state_that_somebody_else_wrote_last_does_not_tell_of_an_answer_whose_question_is_gone() -> None:
    transcript = Transcript()
    transcript.expect(question_id="turn-2", question_text="y")
    assert not transcript.reconcile(state(SUMMARY, whole("of somebody", "s")), NOW)
    assert not transcript.is_told_by_state
    assert transcript.finish(Phase.DONE, NOW).text == ""


def test_a_state_that_comes_in_the_runs_own_stream_is_all_its_own() -> None:
    transcript = Transcript()
    transcript.expect(question_id="turn-2")
    messages: list[JsonValue] = [asked("y", "turn-2"), whole("Draft", "d"), critique("Longer", "c")]
    messages.append(whole("Essay", "e"))
    fed(StreamEvent.of("values", {"messages": messages}), transcript=transcript)
    assert [segment.text for segment in transcript.finish(Phase.DONE, NOW).body] == ["Draft", "Essay"]


def test_only_the_state_read_last_tells() -> None:
    transcript = Transcript()
    transcript.expect(question_id="turn-2")
    transcript.reconcile(state(asked("y", "turn-2"), whole("Hello", "m")), NOW)
    assert transcript.is_told_by_state
    transcript.reconcile({}, NOW)
    assert not transcript.is_told_by_state


def test_a_resumed_run_ends_where_somebody_else_asks() -> None:
    transcript = Transcript()
    transcript.expect(heard=["turn-1", "before"])
    other = [asked("z", "turn-2"), whole("for somebody else", "s")]
    transcript.reconcile(state(asked("x", "turn-1"), whole("Before.", "before"), whole("Mine.", "m"), *other), NOW)
    assert transcript.finish(Phase.DONE, NOW).text == "Mine."


def test_a_gateway_that_gives_our_message_another_id_is_understood_by_its_text() -> None:
    transcript = Transcript()
    transcript.expect(question_id="turn-2", question_text="y")
    transcript.reconcile(state(asked("x", "1"), whole("old", "o"), asked("y", "2"), whole("new", "n")), NOW)
    assert transcript.finish(Phase.DONE, NOW).text == "new"


def test_a_resumed_run_does_not_repeat_what_was_shown_before_the_question() -> None:
    transcript = Transcript()
    transcript.expect(heard=["before"])
    fed(streamed("After.", "after"), transcript=transcript)
    transcript.reconcile(state(asked("x", "1"), whole("Before.", "before"), whole("After.", "after")), NOW)
    assert transcript.finish(Phase.DONE, NOW).text == "After."


def test_a_state_without_messages_confirms_nothing_and_the_stream_stands() -> None:
    transcript = fed(streamed("Hello"), StreamEvent.of("updates", {"model": {"answer": "Hello"}}))
    transcript.reconcile({"answer": "Hello"}, NOW)
    assert transcript.finish(Phase.DONE, NOW).text == "Hello"


def test_messages_under_another_key_of_the_state_are_found() -> None:
    transcript = fed(streamed("Hello"))
    transcript.reconcile({"chat": {"history": [asked("x", "1"), whole("Hello")]}}, NOW)
    assert transcript.finish(Phase.DONE, NOW).text == "Hello"


def test_a_resumed_run_does_not_repeat_the_tools_of_before() -> None:
    call: JsonValue = [{"name": "look", "args": {}, "id": "c1"}]
    result: Json = {"type": "tool", "name": "look", "tool_call_id": "c1", "content": "sunny", "id": "t1"}
    again: Json = {"type": "tool", "name": "pay", "tool_call_id": "c2", "content": "paid", "id": "t2"}
    transcript = Transcript()
    transcript.expect(heard=["before", "asked"])
    messages = [
        asked("x", "1"),
        whole("", "before", tool_calls=call),
        result,
        whole("", "asked"),
        again,
        whole("Paid.", "m"),
    ]
    transcript.reconcile(state(*messages), NOW)
    view = transcript.finish(Phase.DONE, NOW)
    assert ([step.title for step in view.steps], view.text) == (["pay"], "Paid.")


def test_an_interrupt_alone_is_no_state() -> None:
    transcript = fed(streamed("Hm"), StreamEvent.of("values", {"__interrupt__": [{"id": "1", "value": "?"}]}))
    assert transcript.finish(Phase.DONE, NOW).text == "Hm"


def test_a_graph_whose_agent_is_a_subgraph_needs_no_look_at_the_state() -> None:
    inner = StreamEvent.of("messages|agent:1", [chunk("answer", "i"), meta()])
    assert fed(inner, updated(whole("answer", "i"), node="agent")).is_settled


def test_pieces_that_come_after_the_state_had_the_whole_message_add_nothing() -> None:
    transcript = fed(streamed("Hel"))
    transcript.missed()
    transcript.reconcile(state(asked("x", "1"), whole("Hello")), NOW)
    assert fed(streamed("lo"), transcript=transcript).view(NOW).text == "Hello"
