"""Each budget is what keeps one of Telegram's rates: with it none is broken, without it one is."""

from __future__ import annotations

import pytest

from adapters.telegram.keyboard import Buttons
from adapters.telegram.layout import Layout, Style
from adapters.telegram.limits import BUDGETS, TEXT_UNITS
from adapters.telegram.ops import Delete, Draft, Edit, Send, SendFile, Where
from adapters.telegram.surface import ReplySettings, TelegramSurface
from channels.adapter import Op, RateLimited, Receipt
from channels.model import new_turn_id
from tests.adapters.telegram.board import Board, Trouble
from tests.clock import ManualClock
from tests.emulators.telegram import Limits
from tests.emulators.telegram.errors import ApiError
from tests.emulators.telegram.windows import FloodControl
from tests.paced import PacedReplies, lifted

TEXT = " ".join(f"w{number}w" for number in range(400))


class Gate:
    """The emulator's flood control before chats on a board. `refused` are the rules that were broken."""

    def __init__(self, clock: ManualClock) -> None:
        self.board = Board()
        self.refused: list[str] = []
        self._flood = FloodControl(clock, Limits())

    async def perform(self, op: Op) -> Receipt:
        assert isinstance(op, Send | Edit | Draft | Delete | SendFile)
        chat = int(op.where.chat)
        try:
            if isinstance(op, Draft):
                self._flood.admit_draft(chat, "draft")
            else:
                self._flood.admit_message(chat, type(op).__name__, private=chat > 0)
        except ApiError as error:
            self.refused += [error.rule] if error.rule is not None else []
            raise RateLimited(3.0, op.draws[0]) from None
        return self.board.call(op, Trouble.NONE)

    def surface(self, chat: int, *, drafts: bool) -> TelegramSurface:
        turn = new_turn_id()
        settings = ReplySettings(
            turn=turn,
            where=Where(str(chat)),
            reply_to=None,
            buttons=Buttons(turn),
            size=TEXT_UNITS,
            grows=True,
            drafts=drafts,
            rich=False,
            previews=False,
        )
        return TelegramSurface(settings, Layout(Style(TEXT_UNITS, steps_below=drafts)), self.perform)


CROWDS = {
    "private": ([7], 40.0),
    "group": ([-100] * 3, 130.0),
    "draft": ([7], 70.0),
    "bot": (list(range(1, 61)), 8.0),
}
"""For each budget: the chats in which a reply grows, and for how many seconds."""


@pytest.mark.parametrize("budget", [*BUDGETS])
@pytest.mark.parametrize("kept", [True, False])
async def test_a_rate_is_kept_by_its_budget_and_by_nothing_else(budget: str, kept: bool) -> None:
    chats, seconds = CROWDS[budget]
    clock = ManualClock()
    gate = Gate(clock)
    async with PacedReplies(BUDGETS if kept else lifted(BUDGETS, budget), clock) as replies:
        for chat in chats:
            replies.start(gate.surface(chat, drafts=budget == "draft"), TEXT)
        await replies.grow(seconds)
        if kept:
            await replies.finish()
    assert bool(gate.refused) is not kept
    if kept:
        assert gate.board.texts() == [TEXT] * len(chats)
        changes = sum(isinstance(op, Edit | Draft) for op in gate.board.calls)
        assert changes >= len(chats) * 2, "they grow in sight"
