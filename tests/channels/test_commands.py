"""What counts as a command, and what is left to the agent."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.commands import (
    DESCRIPTIONS,
    Command,
    CommandName,
    as_typed,
    help_text,
    is_command,
    parse_command,
    question_in,
)
from channels.model import Attachment, Inbound, InboundKind, Place, Sender

names = st.sampled_from(CommandName)
spaces = st.text(alphabet=" \t\n", max_size=3)
arguments = st.text(max_size=40).map(str.strip)
FILE = Attachment("a.csv", "text/csv", {"id": "f1"})


def said(text: str, *files: Attachment) -> Inbound:
    return Inbound(Place("c", "room"), Sender("u"), "e", InboundKind.MESSAGE, text, 0.0, "m", attachments=files)


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("/new", Command(CommandName.NEW)),
        ("  /NEW \n", Command(CommandName.NEW)),
        ("!stop", Command(CommandName.STOP)),
        ("/stop!!", Command(CommandName.STOP)),
        ("/status?", Command(CommandName.STATUS)),
        ("/stop now, please!", Command(CommandName.STOP, "now, please!")),
        ("/stop it", Command(CommandName.STOP, "it")),
        ("/help@the_bot", Command(CommandName.HELP)),
        ("/help@the-bot.example", Command(CommandName.HELP)),
        ("/pair ABC123", Command(CommandName.PAIR, "ABC123")),
        ("/pair\nABC123", Command(CommandName.PAIR, "ABC123")),
        ("/start a_deep_link", Command(CommandName.START, "a_deep_link")),
        ("/new and then\nmore", Command(CommandName.NEW, "and then\nmore")),
    ],
)
def test_a_command_is_understood_however_it_is_typed(text: str, command: Command) -> None:
    assert parse_command(text) == command


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/",
        "!",
        "new",
        "/etc/hosts",
        "/newer",
        "/new-york weather",
        "//new",
        "/ new",
        "what does /new do?",
        "/tmp is full",
        "!important",
        "／new",
        "/new@",
        "/help me write an email",
        "/help@the_bot me",
        "!status of the order 4711?",
        "/stop the war",
        "/retry\nwith more sugar",
        "/start working on it",
        "/pair the two lists",
    ],
)
def test_anything_else_is_a_question_for_the_agent(text: str) -> None:
    assert parse_command(text) is None


@given(name=names, mark=st.sampled_from("/!"), before=spaces, after=spaces, argument=arguments)
def test_a_command_keeps_every_word_or_leaves_the_message_alone(
    name: CommandName, mark: str, before: str, after: str, argument: str
) -> None:
    tail = f" {argument}" if argument else ""
    command = parse_command(f"{before}{mark}{name}{tail}{after}")
    assert command in (Command(name, argument), None)
    if not argument or name is CommandName.NEW:
        assert command is not None
    elif name not in (CommandName.START, CommandName.PAIR):
        assert command is None


@pytest.mark.parametrize(
    ("message", "is_ours", "asked"),
    [
        (said("/new"), True, None),
        (said("/new what is it?"), True, "what is it?"),
        (said("/new", FILE), True, ""),
        (said("/new read this", FILE), True, "read this"),
        (said("/help"), True, None),
        (said("/help", FILE), False, None),
        (said("/help me"), False, None),
        (said("read this", FILE), False, None),
    ],
)
def test_what_comes_with_a_command_is_asked(message: Inbound, is_ours: bool, asked: str | None) -> None:
    assert is_command(message) is is_ours
    question = question_in(message)
    assert (question and question.text) == asked
    if question is not None:
        assert question.kind is InboundKind.MESSAGE
        assert question.attachments == message.attachments


@given(st.text(max_size=200))
def test_no_text_is_too_strange_to_be_looked_at(text: str) -> None:
    command = parse_command(text)
    if command is not None:
        assert text.strip()[:1] in "/!"
        assert command.argument in text


def test_a_very_long_message_is_looked_at_in_no_time() -> None:
    began = time.process_time()
    for text in ("/" + "a" * 200_000, "/new" + " " * 200_000 + "x", "/new@" + "a" * 200_000, " " * 200_000):
        parse_command(text)
    assert time.process_time() - began < 2


def test_the_help_names_every_command_that_is_offered() -> None:
    lines = help_text().splitlines()
    for name, text in DESCRIPTIONS.items():
        assert any(f"`/{name}`" in line and text in line for line in lines)
    assert set(CommandName) - set(DESCRIPTIONS) == {CommandName.START, CommandName.PAIR}


def test_the_bridges_words_name_commands_as_they_are_typed_where_the_reader_is() -> None:
    words = "It failed. /retry asks again, `/stop` first; /pair ABC. See /etc/new, /news and https://x.y/new."
    typed = "It failed. !retry asks again, `!stop` first; !pair ABC. See /etc/new, /news and https://x.y/new."
    assert as_typed(words, "!") == typed
    assert as_typed(words, "/") == words
