"""A strict local stand-in of Feishu/Lark: Open API, CardKit, long connection and webhook.

Methods in the journal and in `faults` have the names of `limits.APIS` (`im.message.reply`, `cardkit.element.content`,
…), and `ws.endpoint` and `ws.connect` for the two doors of the long connection.
"""

from __future__ import annotations

from tests.emulators.feishu.actions import Pressed
from tests.emulators.feishu.emulator import FeishuEmulator
from tests.emulators.feishu.events import Outcome
from tests.emulators.feishu.limits import Limits, Rate
from tests.emulators.feishu.longconn import ClientConfig
from tests.emulators.feishu.picture import Shown
from tests.emulators.feishu.refusals import connection_limit, endpoint_refused, handshake_refused, rate_limited, refuse
from tests.emulators.feishu.remote import RemoteFeishu

__all__ = [
    "ClientConfig",
    "FeishuEmulator",
    "Limits",
    "Outcome",
    "Pressed",
    "Rate",
    "RemoteFeishu",
    "Shown",
    "connection_limit",
    "endpoint_refused",
    "handshake_refused",
    "rate_limited",
    "refuse",
]
