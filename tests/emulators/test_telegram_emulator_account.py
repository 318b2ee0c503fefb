"""The emulated Telegram's rules on tokens, methods, chats, reactions, actions and commands, with the real SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from telegram import Bot
from telegram.constants import ReactionEmoji
from telegram.error import BadRequest, EndPointNotFound, Forbidden, InvalidToken

from tests.clock import ManualClock
from tests.emulators.telegram import TelegramEmulator
from tests.emulators.telegram.limits import REACTIONS
from tests.emulators.telegram.sdk import bot_for


@pytest.fixture
async def emulator() -> AsyncIterator[TelegramEmulator]:
    async with TelegramEmulator(ManualClock()) as emulator:
        yield emulator


@pytest.fixture
async def bot(emulator: TelegramEmulator) -> AsyncIterator[Bot]:
    async with bot_for(emulator) as bot:
        yield bot


def broken(emulator: TelegramEmulator) -> str:
    """The rules broken so far, which a test then expects to be just one kind of."""
    return "\n".join(emulator.journal.broken)


# who may call, and what


async def test_a_wrong_token_is_unauthorized_and_a_malformed_one_not_found(emulator: TelegramEmulator) -> None:
    for token, status in (("1:WRONG", 401), ("nonsense", 404)):
        with pytest.raises(InvalidToken):
            await bot_for(emulator, token).get_me()
        assert emulator.journal.of("getMe")[-1].status == status
    assert not emulator.journal.broken


async def test_a_revoked_token_is_refused_from_then_on(emulator: TelegramEmulator, bot: Bot) -> None:
    emulator.change_token("110201543:NEW")
    with pytest.raises(InvalidToken, match="Unauthorized"):
        await bot.get_me()
    assert (await bot_for(emulator, "110201543:NEW").get_me()).username == "bridge_bot"


async def test_a_method_that_does_not_exist_is_not_found_and_noted(emulator: TelegramEmulator, bot: Bot) -> None:
    with pytest.raises(EndPointNotFound):
        await bot.do_api_request("sendTelepathy", {"chat_id": 1})
    assert "method that does not exist" in broken(emulator)


async def test_calls_come_as_query_form_or_json_and_names_in_any_case(emulator: TelegramEmulator) -> None:
    chat = emulator.private_chat()
    url = f"{emulator.url}/bot{emulator.token}"
    async with httpx.AsyncClient() as client:
        await client.get(f"{url}/sendmessage", params={"chat_id": chat, "text": "query"})
        await client.post(f"{url}/SENDMESSAGE", data={"chat_id": chat, "text": "form"})
        await client.post(f"{url}/sendMessage", json={"chat_id": chat, "text": "json"})
        refused = await client.post(f"{url}/sendMessage", content="{", headers={"Content-Type": "application/json"})
    assert emulator.chat(chat).text() == "query\nform\njson"
    assert refused.json() == {
        "ok": False,
        "error_code": 400,
        "description": "Bad Request: can't parse JSON object",
    }
    assert [call.method for call in emulator.journal.calls] == ["sendMessage"] * 4


async def test_a_chat_must_exist_and_still_want_the_bot(emulator: TelegramEmulator, bot: Bot) -> None:
    private, group, basic = emulator.private_chat(), emulator.group("Team"), emulator.group("Old", basic=True)
    emulator.block(private)
    emulator.kick(group)
    emulator.kick(basic)
    for chat, reason in (
        (private, "bot was blocked by the user"),
        (group, "bot was kicked from the supergroup chat"),
        (basic, "bot was kicked from the group chat"),
    ):
        with pytest.raises(Forbidden, match=reason):
            await bot.send_message(chat, "Hello")
    assert not emulator.journal.broken
    for _ in range(3):
        with pytest.raises(Forbidden):
            await bot.send_message(private, "Hello again")
    assert "known to be forbidden, called again" in broken(emulator)
    emulator.journal.broken.clear()
    emulator.unblock(private)
    emulator.add_bot(group)
    await bot.send_message(private, "Hello")
    await bot.send_message(group, "Hello")
    assert not emulator.journal.broken
    with pytest.raises(BadRequest, match="Chat not found"):
        await bot.send_message(4711, "Hello")
    assert "chat 4711 does not exist" in broken(emulator)


# reactions, actions, commands, chats


async def test_a_reaction_is_one_of_the_vendors_emoji(emulator: TelegramEmulator, bot: Bot) -> None:
    assert {emoji.value for emoji in ReactionEmoji} == REACTIONS
    chat = emulator.group("Team")
    message = emulator.say(chat, "hi")
    await bot.set_message_reaction(chat, message, "👀")
    assert emulator.chat(chat).messages[0].reactions == ("👀",)
    await bot.set_message_reaction(chat, message, None)
    assert emulator.chat(chat).messages[0].reactions == ()
    assert not emulator.journal.broken
    for wrong in ("🦖", ["👀", "👍"]):
        with pytest.raises(BadRequest, match="Reaction"):
            await bot.set_message_reaction(chat, message, wrong)
    with pytest.raises(BadRequest, match="Message to react not found"):
        await bot.set_message_reaction(chat, 999, "👀")
    assert len(emulator.journal.broken) == 3


async def test_a_chat_action_shows_for_5_seconds(emulator: TelegramEmulator, bot: Bot) -> None:
    clock = emulator.clock
    assert isinstance(clock, ManualClock)
    chat = emulator.private_chat()
    await bot.send_chat_action(chat, "typing")
    assert emulator.chat(chat).action == "typing"
    await clock.advance(5)
    assert emulator.chat(chat).action is None
    await bot.send_chat_action(chat, "typing")
    await bot.send_message(chat, "typed")
    assert emulator.chat(chat).action is None
    await bot.send_chat_action(
        emulator.group("Lab", forum=True), "typing", message_thread_id=1
    )  # General, here allowed
    assert not emulator.journal.broken
    with pytest.raises(BadRequest, match="Wrong parameter action"):
        await bot.send_chat_action(chat, "dancing")
    assert "dancing" in broken(emulator)


async def test_commands_are_published_per_scope_within_limits(emulator: TelegramEmulator, bot: Bot) -> None:
    await bot.set_my_commands([("stop", "Stop the answer"), ("new", "Start anew")])
    await bot.set_my_commands([("help", "Help")], scope={"type": "all_private_chats"}, language_code="de")  # type: ignore[arg-type]
    assert [command.command for command in await bot.get_my_commands()] == ["stop", "new"]
    assert set(emulator.commands) == {"default/", "all_private_chats/de"}
    await bot.delete_my_commands()
    assert await bot.get_my_commands() == ()
    assert not emulator.journal.broken
    for wrong, reason in (
        ([("Stop", "x")], "Bot_command_invalid"),
        ([("x" * 33, "x")], "Bot_command_invalid"),
        ([("stop", "")], "Bot_command_description_invalid"),
        ([(f"c{number}", "x") for number in range(101)], "Bot_commands_too_much"),
    ):
        with pytest.raises(BadRequest, match=reason):
            await bot.set_my_commands(wrong)
    assert len(emulator.journal.broken) == 4


async def test_chats_and_members_can_be_looked_up(emulator: TelegramEmulator, bot: Bot) -> None:
    ann, bob = emulator.person("Ann", "ann"), emulator.person("Bob")
    group = emulator.group("Team", ann, bob, admin=True)
    assert (await bot.get_chat(group)).title == "Team"
    assert (await bot.get_chat_member(group, bob.id)).status == "member"
    assert (await bot.get_chat_member(group, emulator.bot.id)).status == "administrator"
    assert {member.user.id for member in await bot.get_chat_administrators(group)} == {ann.id, emulator.bot.id}
    assert await bot.get_chat_member_count(group) == 3
    assert not emulator.journal.broken
    with pytest.raises(BadRequest, match="Participant_id_invalid"):
        await bot.get_chat_member(group, 4711)
    assert "user 4711 is not in chat" in broken(emulator)
