"""What counts as a command, and what is left to the agent."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.commands import DESCRIPTIONS, Command, CommandName, help_text, parse_command

names = st.sampled_from(CommandName)
spaces = st.text(alphabet=" \t\n", max_size=3)
arguments = st.text(max_size=40).map(str.strip)


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("/new", Command(CommandName.NEW)),
        ("  /NEW \n", Command(CommandName.NEW)),
        ("!stop", Command(CommandName.STOP)),
        ("/help@the_bot", Command(CommandName.HELP)),
        ("/help@the-bot.example please", Command(CommandName.HELP, "please")),
        ("/pair ABC123", Command(CommandName.PAIR, "ABC123")),
        ("/pair\nABC123", Command(CommandName.PAIR, "ABC123")),
        ("/start a_deep_link", Command(CommandName.START, "a_deep_link")),
        ("/retry and then\nmore", Command(CommandName.RETRY, "and then\nmore")),
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
        "/new!",
        "/new-york weather",
        "//new",
        "/ new",
        "what does /new do?",
        "/tmp is full",
        "!important",
        "／new",
        "/new@",
    ],
)
def test_anything_else_is_a_question_for_the_agent(text: str) -> None:
    assert parse_command(text) is None


@given(name=names, mark=st.sampled_from("/!"), before=spaces, after=spaces, argument=arguments)
def test_every_command_is_understood_with_any_argument(
    name: CommandName, mark: str, before: str, after: str, argument: str
) -> None:
    tail = f" {argument}" if argument else ""
    assert parse_command(f"{before}{mark}{name}{tail}{after}") == Command(name, argument)


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
