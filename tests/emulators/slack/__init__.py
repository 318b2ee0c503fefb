"""A strict local stand-in of Slack: Web API, Socket Mode, HTTP deliveries, and the people in it."""

from tests.emulators.slack.assistant import Session, StatusChange
from tests.emulators.slack.blocks import Button
from tests.emulators.slack.deliveries import Attempt, Delivery, DeliveryKind, DeliveryState
from tests.emulators.slack.emulator import (
    ANN,
    APP_TOKEN,
    BOB,
    BOT,
    BOT_ID,
    BOT_TOKEN,
    GENERAL,
    GUEST,
    OTHER_BOT,
    SECRET,
    SIGNING_SECRET,
    TEAM,
    SlackEmulator,
)
from tests.emulators.slack.hooks import HookAnswer
from tests.emulators.slack.picture import Seen
from tests.emulators.slack.remote import RemoteSlack
from tests.emulators.slack.streams import Task
from tests.emulators.slack.world import Channel, ChannelKind, Message, User, Version, Workspace

__all__ = [
    "ANN",
    "APP_TOKEN",
    "BOB",
    "BOT",
    "BOT_ID",
    "BOT_TOKEN",
    "GENERAL",
    "GUEST",
    "OTHER_BOT",
    "SECRET",
    "SIGNING_SECRET",
    "TEAM",
    "Attempt",
    "Button",
    "Channel",
    "ChannelKind",
    "Delivery",
    "DeliveryKind",
    "DeliveryState",
    "HookAnswer",
    "Message",
    "RemoteSlack",
    "Seen",
    "Session",
    "SlackEmulator",
    "StatusChange",
    "Task",
    "User",
    "Version",
    "Workspace",
]
