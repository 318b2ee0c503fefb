"""A strict local stand-in of the Telegram Bot API, with the people who talk to the bot."""

from tests.emulators.telegram.drafts import Draft, DraftEnd
from tests.emulators.telegram.emulator import TOKEN, TelegramEmulator
from tests.emulators.telegram.keyboard import Button
from tests.emulators.telegram.limits import Checks, Limits, Window
from tests.emulators.telegram.people import Upload
from tests.emulators.telegram.picture import SeenChat, SeenDraft, SeenMessage
from tests.emulators.telegram.presses import Press
from tests.emulators.telegram.remote import RemoteTelegram
from tests.emulators.telegram.text import Entity, utf16_length
from tests.emulators.telegram.world import Person, Version

__all__ = [
    "TOKEN",
    "Button",
    "Checks",
    "Draft",
    "DraftEnd",
    "Entity",
    "Limits",
    "Person",
    "Press",
    "RemoteTelegram",
    "SeenChat",
    "SeenDraft",
    "SeenMessage",
    "TelegramEmulator",
    "Upload",
    "Version",
    "Window",
    "utf16_length",
]
