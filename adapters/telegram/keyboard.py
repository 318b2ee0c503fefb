"""The buttons under the last message of a reply."""

from __future__ import annotations

from dataclasses import dataclass

from adapters.telegram.layout import listed
from adapters.telegram.limits import BUTTONS, BUTTONS_IN_A_ROW, CALLBACK_BYTES
from adapters.telegram.marks import sendable
from adapters.telegram.ops import Button, Keyboard
from channels.model import Action, Phase, Press, Question, TurnId, View

_SHORT_LABEL = 12  # characters; shorter options share a row
_IN_A_ROW = 3
_LONGEST_LABEL = 64


@dataclass(frozen=True, slots=True)
class Buttons:
    """Which buttons a reply offers. `asks_agent`: it answers a question to the agent, not a command."""

    turn: TurnId
    stop: bool = True
    feedback: bool = False
    asks_agent: bool = True

    def under(self, view: View) -> Keyboard:
        """The keyboard for the view."""
        if not view.is_final:
            return ((self._button("⏹ Stop", Action.STOP),),) if self.stop else ()
        if view.question is not None and view.question.answer is None:
            return self._options(view.question)
        if not self.asks_agent:
            return ()
        if view.phase in (Phase.FAILED, Phase.STOPPED):
            return ((self._button("🔁 Try again", Action.RETRY),),)
        if self.feedback and view.phase is Phase.DONE:
            return ((self._button("👍", Action.FEEDBACK, "up"), self._button("👎", Action.FEEDBACK, "down")),)
        return ()

    def _button(self, label: str, action: Action, value: str = "") -> Button:
        return Button(label, Press(action, self.turn, value).encode())

    def _options(self, question: Question) -> Keyboard:
        """One button for each option that fits; what has none can be answered in words."""
        as_numbers = listed(question)
        buttons = []
        for number, option in enumerate(question.options[:BUTTONS], 1):
            label = " ".join(sendable(option.label).split())[:_LONGEST_LABEL]
            button = self._button(str(number) if as_numbers or not label else label, Action.ANSWER, option.id)
            if len(button.data.encode()) <= CALLBACK_BYTES:
                buttons.append(button)
        if as_numbers:
            width = BUTTONS_IN_A_ROW
        else:
            width = _IN_A_ROW if all(len(button.label) <= _SHORT_LABEL for button in buttons) else 1
        return tuple(tuple(buttons[at : at + width]) for at in range(0, len(buttons), width))
