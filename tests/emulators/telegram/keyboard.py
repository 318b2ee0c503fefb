"""Rules of inline keyboards."""

from __future__ import annotations

from dataclasses import dataclass

from tests.emulators.telegram.errors import ApiError, bad_request
from tests.emulators.telegram.limits import Limits
from tests.emulators.telegram.wire import Json, Params

_OTHER_ACTIONS = (
    "web_app", "login_url", "switch_inline_query", "switch_inline_query_current_chat",
    "switch_inline_query_chosen_chat", "copy_text", "callback_game", "pay",
)  # fmt: skip
_OTHER_MARKUPS = ("keyboard", "remove_keyboard", "force_reply")


@dataclass(frozen=True, slots=True)
class Button:
    """A button under a message: what it says, and what pressing it sends (callback data) or opens (url)."""

    text: str
    data: str | None = None
    url: str | None = None

    def to_json(self) -> Json:
        shown: Json = {"text": self.text}
        if self.data is not None:
            shown["callback_data"] = self.data
        if self.url is not None:
            shown["url"] = self.url
        return shown


Keyboard = tuple[tuple[Button, ...], ...]


def keyboard_json(keyboard: Keyboard) -> Json:
    return {"inline_keyboard": [[button.to_json() for button in row] for row in keyboard]}


def read_keyboard(params: Params, limits: Limits, *, inline_only: bool = False) -> Keyboard:
    """The inline keyboard of `reply_markup`; empty when there is none. Raises 400 for one the vendor refuses."""
    markup = params.json_object("reply_markup")
    if markup is None or markup == {}:
        return ()
    if "inline_keyboard" not in markup:
        if not inline_only and any(name in markup for name in _OTHER_MARKUPS):
            return ()
        raise bad_request("inline keyboard expected", rule="reply_markup is no inline keyboard")
    rows = markup["inline_keyboard"]
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise bad_request(
            "can't parse inline keyboard: expected an Array of Arrays", rule="inline_keyboard is not a list of rows"
        )
    keyboard = tuple(tuple(_button(item, limits) for item in row) for row in rows if row)
    count = sum(len(row) for row in keyboard)
    if count > limits.keyboard_buttons:
        raise bad_request("reply markup is too long", rule=f"{count} inline buttons (limit {limits.keyboard_buttons})")
    widest = max((len(row) for row in keyboard), default=0)
    if widest > limits.keyboard_row:
        raise bad_request(
            "REPLY_MARKUP_INVALID", rule=f"{widest} inline buttons in a row (limit {limits.keyboard_row})"
        )
    return keyboard


def _button(item: object, limits: Limits) -> Button:
    if not isinstance(item, dict):
        raise _malformed("expected an Object")
    text = item.get("text")
    if not isinstance(text, str):
        raise _malformed('Field "text" must be of type String')
    if not text.strip():
        raise _malformed("Button text must be non-empty")
    if "callback_data" in item:
        data = str(item["callback_data"])
        size = len(data.encode())
        if not 1 <= size <= limits.callback_data_bytes:
            raise bad_request(
                "BUTTON_DATA_INVALID", rule=f"callback_data of {size} bytes (1 to {limits.callback_data_bytes})"
            )
        return Button(text, data=data)
    if "url" in item:
        url = str(item["url"])
        if not url.startswith(("http://", "https://", "tg://")):
            raise bad_request("BUTTON_URL_INVALID", rule=f"button url {url!r}")
        return Button(text, url=url)
    if any(name in item for name in _OTHER_ACTIONS):
        return Button(text)
    raise _malformed("Text buttons are unallowed in the inline keyboard")


def _malformed(reason: str) -> ApiError:
    return bad_request(f"can't parse inline keyboard button: {reason}", rule=f"inline button: {reason}")
