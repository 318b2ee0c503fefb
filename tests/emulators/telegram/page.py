"""The page to play with by hand: all chats as people see them now, and a line to write in each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape

from tests.emulators.telegram.picture import SeenChat, SeenDraft, SeenMessage
from tests.emulators.telegram.text import Entity, utf16_length

_TAGS = {
    "bold": "b", "italic": "i", "underline": "u", "strikethrough": "s", "spoiler": "mark", "code": "code", "pre": "pre",
    "blockquote": "blockquote", "expandable_blockquote": "blockquote", "bot_command": "em", "mention": "em",
}  # fmt: skip

_STYLE = """
body { font: 15px/1.4 system-ui, sans-serif; margin: 1rem; background: #dfe7ee; color: #111 }
section { background: #fff; border-radius: 10px; padding: .6rem 1rem; margin: 0 0 1rem; max-width: 52rem }
article { margin: .4rem 0; padding: .4rem .7rem; border-radius: 8px; background: #eef2f5; white-space: pre-wrap }
article.bot { background: #e3f4dc } article.draft { opacity: .65; border: 1px dashed #888 }
article small { color: #667; display: block } pre { margin: 0; overflow-x: auto }
blockquote { margin: 0; padding-left: .6rem; border-left: 3px solid #7aa }
form { display: flex; gap: .5rem; margin-top: .5rem } input { flex: 1; padding: .4rem }
.broken { color: #a00 }
"""

_SCRIPT = """
const act = (name, body) => fetch('/_control/' + name,
  {method: 'POST', headers: {'Content-Type': 'application/json'}, body: JSON.stringify(body)});
document.addEventListener('submit', event => {
  event.preventDefault();
  const form = event.target, thread = form.thread.value;
  act('say', {chat_id: Number(form.chat.value), text: form.text.value, ...(thread && {thread_id: Number(thread)})});
  form.text.value = '';
});
document.addEventListener('click', event => {
  const press = event.target.dataset.press;
  if (press) act('press', JSON.parse(press));
  const stop = event.target.dataset.stop;
  if (stop) act('stop_draft', JSON.parse(stop));
});
setInterval(async () => {
  document.getElementById('now').innerHTML = await (await fetch('/_control/page')).text();
}, 500);
"""


def page(chats: Sequence[SeenChat]) -> str:
    """The whole page; what changes in it is fetched again twice a second."""
    forms = "".join(_form(chat) for chat in chats)
    return (
        "<!doctype html><meta charset=utf-8><title>Telegram emulator</title>"
        f"<style>{_STYLE}</style><h1>Telegram emulator</h1><section>{forms}</section>"
        f"<div id=now>{pictures(chats, ())}</div><script>{_SCRIPT}</script>"
    )


def pictures(chats: Sequence[SeenChat], broken: Sequence[str]) -> str:
    rules = "".join(f"<li>{escape(rule)}</li>" for rule in broken)
    warning = f"<section class=broken><h2>Broken rules</h2><ul>{rules}</ul></section>" if rules else ""
    return warning + "".join(_chat(chat) for chat in chats)


def _form(chat: SeenChat) -> str:
    return (
        f"<form><input type=hidden name=chat value={chat.id}>"
        f'<input name=text autocomplete=off placeholder="to {escape(chat.title, quote=True)} ({escape(chat.type)})">'
        "<input name=thread placeholder=topic style='flex: 0 0 5rem'><button>Send</button></form>"
    )


def _chat(chat: SeenChat) -> str:
    action = f" <em>{escape(chat.action)}…</em>" if chat.action else ""
    messages = "".join(_message(chat, message) for message in chat.messages)
    drafts = "".join(_draft(chat, draft) for draft in chat.drafts)
    return f"<section><h2>{escape(chat.title)}{action}</h2>{messages}{drafts}</section>"


def _message(chat: SeenChat, message: SeenMessage) -> str:
    place = f" · topic {message.thread_id}" if message.thread_id is not None else ""
    file = f"<div>📎 {escape(message.file)}</div>" if message.file else ""
    buttons = "".join(
        f"<button data-press='{_data(chat_id=chat.id, message_id=message.id, button=button.text)}'>"
        f"{escape(button.text)}</button> "
        for row in message.buttons
        for button in row
    )
    reactions = f" {escape(' '.join(message.reactions))}" if message.reactions else ""
    return (
        f"<article class={'bot' if message.from_bot else 'person'}><small>#{message.id} {escape(message.sender)}{place}"
        f"{reactions}</small>{file}{marked_up(message.text, message.entities)}<div>{buttons}</div></article>"
    )


def _draft(chat: SeenChat, draft: SeenDraft) -> str:
    stop = f"<button data-stop='{_data(chat_id=chat.id, draft_id=draft.id)}'>Stop</button>" if draft.can_stop else ""
    return f"<article class='bot draft'><small>draft</small>{escape(draft.text or 'Thinking…')} {stop}</article>"


def _data(**values: int | str) -> str:
    return escape(json.dumps(values), quote=True)


def marked_up(text: str, entities: Sequence[Entity]) -> str:
    """The text as HTML, its entities as tags."""
    opening: dict[int, list[str]] = {}
    closing: dict[int, list[str]] = {}
    for entity in sorted(entities, key=lambda item: (item.offset, -item.length)):
        url = entity.details.get("url")
        tag = f'a href="{escape(str(url), quote=True)}"' if url else _TAGS.get(entity.type)
        if tag is None:
            continue
        opening.setdefault(entity.offset, []).append(f"<{tag}>")
        closing.setdefault(entity.end, []).insert(0, f"</{tag.split()[0]}>")
    parts = []
    position = 0
    for character in text:
        parts += closing.pop(position, [])
        parts += opening.get(position, [])
        parts.append(escape(character))
        position += utf16_length(character)
    for tags in closing.values():
        parts += tags
    return "".join(parts)
