"""Which pieces and whole messages are one message, whatever ids they come under; what sub-graphs say to a question."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from channels.model import Phase, Usage
from channels.transcript import Transcript
from channels.transcript.stream_events import StreamEvent
from tests.channels.test_transcript import NOW, Json, chunk, fed, meta, streamed, updated, whole

USED: JsonValue = {"input_tokens": 5, "output_tokens": 7, "total_tokens": 12}
CALL: JsonValue = [{"name": "look", "args": {}, "id": "c1"}]
CALL_PIECE: JsonValue = [{"name": "look", "args": "{}", "id": "c1", "index": 2}]
HUMAN: JsonValue = {"type": "human", "content": "weather?", "id": "turn-1"}


def thought(text: str) -> JsonValue:
    return [{"type": "reasoning", "summary": [{"index": 0, "type": "summary_text", "text": text}], "index": 0}]


def spoken(text: str, final: str = "resp_1", provisional: str = "lc_run--1", node: str = "model") -> list[StreamEvent]:
    """A model's message as it streams when only the first and the last of its pieces know its id."""
    return [
        streamed([], final, node),
        streamed(thought("hm"), provisional, node),
        *(streamed([{"type": "text", "text": letter, "index": 1}], provisional, node) for letter in text),
        streamed("", provisional, node, usage_metadata=USED),
    ]


def said(text: str, final: str = "resp_1", **more: JsonValue) -> Json:
    """The same message as the state has it."""
    blocks: JsonValue = [*_blocks(thought("hm")), {"type": "text", "text": text, "index": 1, "id": "msg_1"}]
    return whole(blocks, final, usage_metadata=USED, **more)


def _blocks(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def body(transcript: Transcript) -> list[str]:
    return [segment.text for segment in transcript.view(NOW).body]


# ---------------------------------------------------------------- an id that is known only in the end


@pytest.mark.parametrize("provisional", ["lc_run--1", "run-1"])
@pytest.mark.parametrize("phase", [Phase.DONE, Phase.STOPPED, Phase.FAILED])
def test_a_message_that_gets_its_id_in_the_end_is_said_and_counted_once(provisional: str, phase: Phase) -> None:
    transcript = fed(*spoken("Sunny.", provisional=provisional))
    assert body(transcript) == ["Sunny."]
    fed(updated(said("Sunny.")), transcript=transcript)
    assert body(transcript) == ["Sunny."]
    assert transcript.is_settled
    transcript.reconcile({"messages": [HUMAN, said("Sunny.")]}, NOW)
    view = transcript.finish(phase, NOW)
    assert (body(transcript), view.reasoning, view.usage) == (["Sunny."], "hm", Usage(5, 7))


def test_it_keeps_the_name_that_a_reader_knows_it_by() -> None:
    transcript = fed(*spoken("Sunny."))
    before = transcript.view(NOW).body
    fed(updated(said("Sunny.")), transcript=transcript)
    assert transcript.view(NOW).body == before


def test_pieces_that_come_once_more_after_the_whole_message_say_nothing_new() -> None:
    transcript = fed(*spoken("Sunny."), updated(said("Sunny.")), *spoken("Sunny."))
    assert body(transcript) == ["Sunny."]


def test_a_later_run_knows_it_by_both_ids() -> None:
    transcript = fed(*spoken("Sunny."), updated(said("Sunny.")))
    assert {"resp_1", "lc_run--1"} <= set(transcript.heard_ids)


def test_a_silent_message_that_only_calls_a_tool_is_counted_once() -> None:
    transcript = fed(
        streamed([], "resp_1"),
        streamed([], "lc_run--1", tool_call_chunks=CALL_PIECE),
        streamed("", "lc_run--1", usage_metadata=USED),
        updated(whole([], "resp_1", tool_calls=CALL, usage_metadata=USED)),
    )
    view = transcript.finish(Phase.DONE, NOW)
    assert (view.usage, [step.id for step in view.steps]) == (Usage(5, 7), ["c1"])


def test_a_message_that_says_nothing_is_counted_once() -> None:
    transcript = fed(
        streamed([], "resp_1"),
        streamed("", "lc_run--1", usage_metadata=USED),
        updated(whole([], "resp_1", usage_metadata=USED)),
    )
    assert transcript.finish(Phase.DONE, NOW).usage == Usage(5, 7)


def test_what_the_whole_message_hides_is_hidden_under_the_id_that_it_streamed_under() -> None:
    hide: Json = {"hide_from_ui": True}
    transcript = fed(streamed([], "resp_1", additional_kwargs=hide), *spoken("Secret.")[1:])
    fed(updated(said("Secret.", additional_kwargs=hide)), transcript=transcript)
    assert body(transcript) == []
    transcript.finish(Phase.STOPPED, NOW)
    assert body(transcript) == []


def test_a_message_with_a_hole_is_mended_by_the_whole() -> None:
    transcript = fed(*spoken("Sun"))
    transcript.missed()
    fed(streamed("ny", "lc_run--1"), transcript=transcript)
    transcript.reconcile({"messages": [HUMAN, said("Sunny, then rain.")]}, NOW)
    transcript.finish(Phase.STOPPED, NOW)
    assert body(transcript) == ["Sunny, then rain."]


def test_a_message_that_lost_its_first_piece_is_known_by_its_text() -> None:
    transcript = fed(*spoken("Sunny.")[1:], updated(said("Sunny.")))
    assert body(transcript) == ["Sunny."]


def test_a_sub_graphs_message_that_gets_its_id_in_the_end_is_its_last_word() -> None:
    inner = [StreamEvent.of("messages|child:1", event.data) for event in spoken("Sunny.")]
    transcript = fed(*inner, updated(said("Sunny."), node="child"))
    view = transcript.finish(Phase.DONE, NOW)
    assert (body(transcript), view.usage) == (["Sunny."], Usage(5, 7))


def test_a_message_that_a_node_makes_from_its_models_words_stands_once() -> None:
    made = whole("Sunny.", "made-by-the-node")
    transcript = fed(streamed("Sunny.", "lc_run--1"), StreamEvent.of("messages", [made, meta()]))
    assert body(transcript) == ["Sunny."]
    fed(updated(made), transcript=transcript)
    transcript.finish(Phase.STOPPED, NOW)
    assert body(transcript) == ["Sunny."]


# ---------------------------------------------------------------- two that are two


@given(
    texts=st.lists(st.sampled_from(["OK", "OK.", "No"]), min_size=1, max_size=4),
    at_once=st.booleans(),
    has_first_pieces=st.booleans(),
    by_state=st.booleans(),
)
def test_each_model_call_is_one_message_also_when_several_say_the_same(
    texts: list[str], at_once: bool, has_first_pieces: bool, by_state: bool
) -> None:
    """One after the other, or all of them side by side in one node."""
    calls = [spoken(text, f"resp_{at}", f"lc_run--{at}") for at, text in enumerate(texts)]
    calls = calls if has_first_pieces else [call[1:] for call in calls]
    whole_ones: list[JsonValue] = [said(text, f"resp_{at}") for at, text in enumerate(texts)]
    transcript = Transcript()
    if at_once:
        longest = max(map(len, calls))
        fed(*(call[at] for at in range(longest) for call in calls if at < len(call)), transcript=transcript)
        assert sorted(body(transcript)) == sorted(texts)
        if not by_state:
            fed(updated(*whole_ones), transcript=transcript)
    else:
        for at, call in enumerate(calls):
            fed(*call, transcript=transcript)
            assert body(transcript) == texts[: at + 1]
            if not by_state:
                fed(updated(whole_ones[at]), transcript=transcript)
                assert body(transcript) == texts[: at + 1]
    transcript.reconcile({"messages": [HUMAN, *whole_ones]}, NOW)
    view = transcript.finish(Phase.DONE, NOW)
    assert body(transcript) == texts
    assert view.usage == Usage(5 * len(texts), 7 * len(texts))


def test_a_model_that_says_what_another_message_says_is_not_that_message() -> None:
    made = whole("OK", "made")
    transcript = fed(streamed("OK", "lc_run--1"), StreamEvent.of("messages", [made, meta()]))
    both: list[JsonValue] = [whole("OK", "lc_run--1"), made]
    fed(updated(*both), transcript=transcript)
    assert transcript.has_hole
    transcript.reconcile({"messages": [HUMAN, *both]}, NOW)
    transcript.finish(Phase.DONE, NOW)
    assert body(transcript) == ["OK", "OK"]


def test_two_updates_that_name_one_message_differently_are_of_two() -> None:
    made = whole("OK", "made")
    transcript = fed(streamed("OK", "lc_run--1"), updated(made), updated(whole("OK", "lc_run--1")))
    assert not transcript.is_settled
    transcript.reconcile({"messages": [HUMAN, made, whole("OK", "lc_run--1")]}, NOW)
    transcript.finish(Phase.DONE, NOW)
    assert body(transcript) == ["OK", "OK"]


def test_an_old_answer_of_the_same_words_is_not_the_new_one() -> None:
    transcript = Transcript()
    transcript.expect(question_id="turn-1")
    old: JsonValue = whole("Hello!", "resp_0")
    fed(*spoken("Hello!")[1:], updated(old, HUMAN, said("Hello!")), transcript=transcript)
    transcript.reconcile({"messages": [old, HUMAN, said("Hello!")]}, NOW)
    transcript.finish(Phase.DONE, NOW)
    assert body(transcript) == ["Hello!"]
    assert "resp_0" not in transcript.heard_ids


def test_a_side_call_that_says_the_same_is_not_the_message() -> None:
    transcript = fed(
        streamed("Sunny", "lc_run--t", node="title"), streamed("Sunny", "lc_run--1"), updated(said("Sunny"))
    )
    assert transcript.speaking == {"title": False, "model": True}


def test_a_state_that_holds_a_text_twice_is_believed() -> None:
    transcript = fed(streamed("OK", "lc_run--1"))
    transcript.reconcile({"messages": [HUMAN, whole("OK", "made"), whole("OK", "lc_run--1")]}, NOW)
    transcript.finish(Phase.DONE, NOW)
    assert body(transcript) == ["OK", "OK"]


def test_what_a_summary_dropped_is_not_the_next_message_of_the_same_words() -> None:
    transcript = fed(*spoken("OK"), updated(said("OK")))
    transcript.reconcile({"messages": [HUMAN, whole("OK", "resp_2")]}, NOW, by_us=True)
    transcript.finish(Phase.DONE, NOW)
    assert body(transcript) == ["OK", "OK"]


def test_what_was_taken_back_is_not_the_next_message_of_the_same_words() -> None:
    transcript = fed(streamed("OK", "lc_run--1"), updated({"type": "remove", "id": "lc_run--1", "content": ""}))
    transcript.reconcile({"messages": [HUMAN, whole("OK", "resp_2")]}, NOW)
    transcript.finish(Phase.DONE, NOW)
    assert body(transcript) == ["OK"]


def test_what_a_node_streamed_before_is_not_the_message_that_began_later() -> None:
    transcript = fed(streamed("Plan", "lc_run--0"), streamed([], "resp_1"), updated(said("Sunny.")))
    assert body(transcript) == ["Plan", "Sunny."]


@pytest.mark.parametrize("other", ["title", "child"])
def test_a_state_is_not_said_by_a_side_call_or_a_sub_graph_of_the_same_words(other: str) -> None:
    name = "messages|child:1" if other == "child" else "messages"
    transcript = fed(StreamEvent.of(name, [chunk("Sunny.", "lc_run--0"), meta(other)]))
    transcript.reconcile({"messages": [HUMAN, whole("Sunny.", "resp_1"), whole("Bye.", "resp_2")]}, NOW)
    transcript.finish(Phase.DONE, NOW)
    assert body(transcript) == ["Sunny.", "Bye."]
    assert transcript.speaking == {other: False}


@pytest.mark.parametrize("phase", [Phase.DONE, Phase.ASKING])
def test_thoughts_of_a_message_that_never_became_one_are_gone_in_the_end(phase: Phase) -> None:
    transcript = fed(streamed(thought("discarded"), "a"), streamed("Plan", "a"), streamed(thought("kept"), "b"))
    assert "discarded" in transcript.view(NOW).reasoning
    fed(streamed("Sunny.", "b"), updated(whole("Sunny.", "b")), transcript=transcript)
    assert transcript.finish(phase, NOW).reasoning == "kept"


# ---------------------------------------------------------------- sub-graphs that ask


def inner(text: str, message: str = "i", graph: str = "child:1", **more: JsonValue) -> StreamEvent:
    return StreamEvent.of(f"messages|{graph}", [chunk(text, message, **more), meta()])


ASKED = StreamEvent.of("updates", {"__interrupt__": [{"id": "1", "value": "Which one?"}]})


@pytest.mark.parametrize("verified", [True, False])
def test_what_a_sub_graph_said_to_its_question_is_shown_with_it(verified: bool) -> None:
    transcript = fed(inner("I look.", "h"), inner("Two flights: A, B.", tool_call_chunks=CALL_PIECE))
    assert body(transcript) == []
    fed(StreamEvent.of("updates|child:1", ASKED.data), ASKED, transcript=transcript)
    transcript.reconcile({"messages": [HUMAN]}, NOW)
    view = transcript.finish(Phase.ASKING, NOW, verified=verified)
    assert [(segment.text, segment.is_answer) for segment in view.body] == [("Two flights: A, B.", False)]


def test_what_the_graph_itself_said_last_belongs_to_the_question() -> None:
    transcript = fed(inner("Inner words."), streamed("I need to know."), updated(whole("I need to know.")), ASKED)
    transcript.reconcile({"messages": [HUMAN, whole("I need to know.")]}, NOW)
    transcript.finish(Phase.ASKING, NOW)
    assert body(transcript) == ["I need to know."]


def test_words_of_a_sub_graph_that_has_ended_do_not_belong_to_a_later_question() -> None:
    transcript = fed(
        inner("A long report."), updated({"type": "human", "content": "x", "id": "x"}, node="child"), ASKED
    )
    transcript.finish(Phase.ASKING, NOW)
    assert body(transcript) == []


@pytest.mark.parametrize("phase", [Phase.DONE, Phase.STOPPED, Phase.FAILED])
def test_only_a_question_brings_out_what_a_sub_graph_said(phase: Phase) -> None:
    transcript = fed(inner("Inner words."))
    transcript.finish(phase, NOW)
    assert body(transcript) == []


def test_hidden_words_and_side_calls_of_a_sub_graph_stay_so_when_it_asks() -> None:
    hidden = inner("Secret.", "s", additional_kwargs={"hide_from_ui": True})
    title = StreamEvent.of("messages|child:1", [chunk("A title", "t"), meta("title")])
    transcript = fed(inner("Which?"), hidden, title, ASKED)
    transcript.finish(Phase.ASKING, NOW)
    assert body(transcript) == ["Which?"]


# ---------------------------------------------------------------- words that are meant for models


def test_a_hand_off_back_to_a_supervisor_is_a_step_and_no_text() -> None:
    mark: Json = {"__is_handoff_back": True}
    call: JsonValue = [{"name": "transfer_back_to_supervisor", "args": {}, "id": "b1"}]
    back = whole("Transferring back to supervisor", "back", tool_calls=call, response_metadata=mark)
    transcript = fed(
        StreamEvent.of("messages", [back, meta("expert")]),
        updated(back, node="expert"),
        streamed("It is sunny."),
        updated(whole("It is sunny.")),
    )
    assert body(transcript) == ["It is sunny."]
    view = transcript.finish(Phase.DONE, NOW)
    assert (view.text, [step.id for step in view.steps]) == ("It is sunny.", ["b1"])


# ---------------------------------------------------------------- several texts in one message


def text(said: str, index: int | None, identity: str = "") -> Json:
    block: Json = {"type": "text", "text": said}
    if index is not None:
        block["index"] = index
    if identity:
        block["id"] = identity
    return block


def cut(said: str, index: int, identity: str = "") -> list[Json]:
    """A text block as it streams: letter by letter, and its id in the end."""
    return [*(text(letter, index) for letter in said), *([text("", index, identity)] if identity else [])]


SEARCH: Json = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}, "index": 1}
FOUND: Json = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [], "index": 2}


def two_items() -> tuple[list[Json], list[Json], str]:
    streams = [*cut("Let me think.", 0, "msg_1"), *cut("It is 4.", 1, "msg_2")]
    return streams, [text("Let me think.", 0, "msg_1"), text("It is 4.", 1, "msg_2")], "Let me think.\n\nIt is 4."


def provider_tools() -> tuple[list[Json], list[Json], str]:
    streams = [*cut("I search.", 0), SEARCH, FOUND, *cut("It is ", 3), *cut("12 degrees", 4), *cut(".", 5)]
    blocks = [text("I search.", 0), SEARCH, FOUND, text("It is ", 3), text("12 degrees", 4), text(".", 5)]
    return streams, blocks, "I search.\n\nIt is 12 degrees."


def own_lines() -> tuple[list[Json], list[Json], str]:
    streams = [*cut("I search.", 0), SEARCH, *cut("\n\nIt is 12.\n", 2), SEARCH | {"index": 3}, *cut("Done.", 4)]
    blocks = [text("I search.", 0), SEARCH, text("\n\nIt is 12.\n", 2), SEARCH | {"index": 3}, text("Done.", 4)]
    return streams, blocks, "I search.\n\nIt is 12.\nDone."


def inline_references() -> tuple[list[Json], list[Json], str]:
    reference: Json = {"type": "reference", "reference_ids": [1], "index": 1}
    streams = [*cut("It is", 0), reference, *cut(" 12.", 2)]
    return streams, [text("It is", 0), reference, text(" 12.", 2)], "It is 12."


@pytest.mark.parametrize("shape", [two_items, provider_tools, own_lines, inline_references])
def test_texts_of_one_message_are_set_apart_but_never_the_parts_of_a_text(
    shape: Callable[[], tuple[list[Json], list[Json], str]],
) -> None:
    streams, blocks, expected = shape()
    transcript = Transcript()
    shown = ""
    for block in streams:
        fed(streamed([block]), transcript=transcript)
        assert transcript.view(NOW).text.startswith(shown)
        shown = transcript.view(NOW).text
    assert shown == expected
    for again in (updated(whole([*blocks])), StreamEvent.of("messages/partial", [chunk([*blocks])])):
        fed(again, transcript=transcript)
        assert transcript.view(NOW).text == expected
    assert fed(StreamEvent.of("messages", [chunk([*blocks]), meta()])).view(NOW).text == expected


@pytest.mark.parametrize("numbered", [True, False])
def test_a_stream_that_repeats_all_blocks_so_far_repeats_no_text(numbered: bool) -> None:
    numbers: list[int | None] = [0, 2] if numbered else [None, None]
    first = [text("I search.", numbers[0]), SEARCH]
    steps = [[text("I sea", numbers[0])], first, [*first, text("It", numbers[1])], [*first, text("It is.", numbers[1])]]
    transcript = fed(*(streamed([*step]) for step in steps))
    assert transcript.view(NOW).text == "I search.\n\nIt is."


def test_items_that_a_stream_repeats_from_the_first_on_repeat_no_text() -> None:
    steps = [[text("A.", 0, "1"), text(said, 1, "2")] for said in ("B", "Be", "Bee.")]
    assert fed(*(streamed([*step]) for step in steps)).view(NOW).text == "A.\n\nBee."


def test_blocks_that_nobody_numbers_are_told_apart_by_id_or_by_what_lies_between() -> None:
    assert fed(streamed([text("A.", None, "1"), text("B.", None, "2")])).view(NOW).text == "A.\n\nB."
    assert fed(streamed([text("A.", None), SEARCH, text("B.", None)])).view(NOW).text == "A.\n\nB."
    assert fed(streamed([text("A", None), text("B.", None)])).view(NOW).text == "AB."


def test_thoughts_are_set_apart_like_texts() -> None:
    summary: list[JsonValue] = [{"index": at, "type": "summary_text", "text": text} for at, text in enumerate("AB")]
    blocks: list[JsonValue] = [{"type": "reasoning", "index": 0, "summary": [part]} for part in summary]
    transcript = fed(*(streamed([block]) for block in blocks), streamed("Yes."))
    assert transcript.view(NOW).reasoning == "A\n\nB"
    fed(updated(whole([{"type": "reasoning", "index": 0, "summary": summary}, text("Yes.", 1)])), transcript=transcript)
    assert transcript.view(NOW).reasoning == "A\n\nB"
    thinking: list[JsonValue] = [
        {"type": "thinking", "thinking": letter, "index": at} for letter, at in zip("ABC", "012", strict=True)
    ]
    assert fed(streamed([*thinking])).view(NOW).reasoning == "ABC"
    for at, block in enumerate(thinking):
        assert isinstance(block, dict)
        block["index"] = at // 2
    assert fed(*(streamed([block]) for block in thinking)).view(NOW).reasoning == "AB\n\nC"


def test_a_file_of_a_message_is_found_under_the_id_that_the_state_knows() -> None:
    picture: JsonValue = {"type": "image", "mime_type": "image/png", "base64": "AA=="}
    transcript = fed(*spoken("Here."), updated(whole([text("Here.", 0), picture], "resp_1")))
    assert transcript.view(NOW).files[0].reference["message"] == "resp_1"
