"""What Slack has accepted after the outcome of a call. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from adapters.slack.failures import NoStream, Outside, StillStreaming, Uneditable, Unstoppable, Unthreadable
from adapters.slack.files import advance_files
from adapters.slack.ops import Append, Delete, FileOp, Find, PageOp, Post, Stop
from adapters.slack.shown import LAST_LEVEL, Page, ResponseShown, SlackShown
from channels.adapter import (
    Closed,
    Failure,
    Forbidden,
    Gone,
    Intent,
    Op,
    Outcome,
    Receipt,
    Refused,
    StoppedByUser,
    TooLarge,
    Unknown,
)
from channels.shapes import as_list, as_text

_MOST_HALVINGS = 5
_MOST_GONE = 6
_MOST_CLOSED = 3
_LOOKED: Mapping[str, object] = MappingProxyType({"cursor": "", "candidates": ()})
"""A page that is not looked for any more, or not yet."""


def advance(shown: SlackShown, op: Op, outcome: Outcome, now: float) -> SlackShown:
    """See `channels.adapter.Surface.advance`."""
    if isinstance(outcome, Forbidden):
        return shown.model_copy(update={"given_up": True})
    if isinstance(op, FileOp):
        return advance_files(shown, op, outcome, now)
    assert isinstance(op, PageOp)
    match outcome:
        case Intent():
            asked = op.page.model_copy(update={"asked_at": now})
            return shown.model_copy(update={"pages": (*shown.pages, asked), "parts": shown.parts + 1})
        case Receipt():
            return _accepted(shown, op, outcome, now)
        case Failure():
            return _failed(shown, op, outcome, now)


def _accepted(shown: SlackShown, op: PageOp, receipt: Receipt, now: float) -> SlackShown:
    if isinstance(op, Delete):
        return _without(shown, op.index)
    if isinstance(op, Find):
        return _found(shown, op, receipt, now)
    update: dict[str, object] = {"touched": now}
    if op.creates:
        update |= {"ts": receipt.id, "at": now}
    if isinstance(op, Stop) and op.page.uncertain and not shown.pages[op.index].uncertain:
        # Stopped because its text had changed. Where that goes on, edits cope with it and streams do not.
        shown = _ended_early(shown)
    return _with(shown, op.index, op.page.model_copy(update=update))


def _ended_early(shown: SlackShown) -> SlackShown:
    closed = shown.closed + 1
    return shown.model_copy(update={"closed": closed, "streams": shown.streams and closed < _MOST_CLOSED})


def _found(shown: SlackShown, op: Find, receipt: Receipt, now: float) -> SlackShown:
    if cursor := as_text(receipt.extra.get("cursor")):
        candidates = tuple(as_text(ts) for ts in as_list(receipt.extra.get("candidates")))
        return _changed(shown, op.index, cursor=cursor, candidates=candidates)
    if receipt.id is None:
        return _without(shown, op.index)
    page = op.page.model_copy(update=_LOOKED)
    update: dict[str, object] = {"ts": receipt.id, "at": min(page.asked_at, now), "touched": now}
    if page.streamed and receipt.extra.get("marked"):
        update |= {"open": False, "uncertain": True}  # it was ended, which is when it got its mark
    return _with(shown, op.index, page.model_copy(update=update))


def _failed(shown: SlackShown, op: PageOp, failure: Failure, now: float) -> SlackShown:
    is_refusal = isinstance(failure, Gone | Refused | Closed | TooLarge)
    if isinstance(op, Find):
        # Where nothing can be looked up, or the thread is gone, the message counts as not sent.
        return _without(shown, op.index) if is_refusal else shown
    if isinstance(op, Delete) and is_refusal:
        return _without(shown, op.index)  # what cannot be deleted is left alone
    if isinstance(failure, Unknown):
        if op.creates:
            return _with(shown, op.index, shown.pages[op.index].model_copy(update={"asked_at": now}))
        tasks = {**shown.pages[op.index].tasks, **op.page.tasks}
        return _changed(shown, op.index, uncertain=True, tasks=tasks)
    if op.creates:
        shown = _without(shown, op.index)
    match failure:
        case Outside():
            return shown.model_copy(update={"response": ResponseShown()})
        case _ if isinstance(op, Post) and op.gives_up and is_refusal:
            return shown.model_copy(update={"given_up": True})
        case NoStream():
            return shown.model_copy(update={"streams": False})
        case Unthreadable() if op.creates and not shown.detached:
            return shown.model_copy(update={"detached": True, "streams": False})
        case StoppedByUser():
            return shown.model_copy(update={"halted": True})
        case Gone():
            if not op.creates:
                shown = _without(shown, op.index)
            gone = shown.gone + 1
            level = shown.level if gone <= _MOST_GONE else LAST_LEVEL + 1
            return shown.model_copy(update={"gone": gone, "level": level})
        case Uneditable() if not op.creates:
            return _changed(shown, op.index, stuck=True, open=False)
        case Closed():
            return _closed(shown, op, failure)
        case TooLarge() | Refused() if isinstance(op, Stop) and _is_about_the_end(op, failure):
            return _not_ended(shown, op, failure)
        case TooLarge() if shown.shrunk < _MOST_HALVINGS:
            return shown.model_copy(update={"shrunk": shown.shrunk + 1})
        case TooLarge() | Refused():
            return _degraded(shown)
        case _:
            return shown


def _is_about_the_end(op: Stop, failure: Failure) -> bool:
    """Whether Slack refuses the end of a stream, and not what comes with it."""
    return isinstance(failure, Unstoppable) or not (op.appends or op.blocks)


def _not_ended(shown: SlackShown, op: Stop, failure: Failure) -> SlackShown:
    ending = _changed(shown, op.index, endless=True)
    if not isinstance(failure, Unstoppable):
        return _closed(ending, op, failure)  # an edit shows whether it has ended by itself
    if op.appends:
        return ending.model_copy(update={"streams": False})
    left = op.page.model_copy(update={"endless": True, "stuck": True, "dress": ""})
    return _with(shown, op.index, left).model_copy(update={"streams": False})


def _closed(shown: SlackShown, op: PageOp, failure: Failure) -> SlackShown:
    """A stream has ended by itself (or, for an edit, has not ended yet)."""
    if op.creates:
        return _degraded(shown)
    page = shown.pages[op.index]
    if page.endless and isinstance(failure, StillStreaming):
        return _changed(shown, op.index, stuck=True)
    is_stream = isinstance(op, Append | Stop)
    changed = _changed(shown, op.index, open=not is_stream, uncertain=True)
    if not (page.uncertain and is_stream):
        changed = _ended_early(changed)
    if changed.closed > 2 * _MOST_CLOSED and not is_stream:
        # Slack takes the message neither for streaming nor for finished; a new one says it all.
        changed = _without(changed, op.index)
    return changed


def _degraded(shown: SlackShown) -> SlackShown:
    return shown.model_copy(update={"level": shown.level + 1})


def _with(shown: SlackShown, index: int, page: Page) -> SlackShown:
    pages = (*shown.pages[:index], page, *shown.pages[index + 1 :])
    return shown.model_copy(update={"pages": pages})


def _changed(shown: SlackShown, index: int, **update: object) -> SlackShown:
    return _with(shown, index, shown.pages[index].model_copy(update=update))


def _without(shown: SlackShown, index: int) -> SlackShown:
    return shown.model_copy(update={"pages": (*shown.pages[:index], *shown.pages[index + 1 :])})


def restored(shown: SlackShown) -> SlackShown:
    """After a crash: what was accepted since is not known, but for messages that were finished. What is looked for is
    looked for from the beginning."""
    pages = tuple(
        page.model_copy(update={"uncertain": page.uncertain or page.open or not page.finished, **_LOOKED})
        for page in shown.pages
    )
    files = tuple(state.model_copy(update={"cursor": "", "away_since": None}) for state in shown.files)
    return shown.model_copy(update={"pages": pages, "files": files})
