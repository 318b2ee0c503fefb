"""What Slack has accepted after the outcome of a call. Pure."""

from __future__ import annotations

from adapters.slack.failures import NoStream, Outside, StillStreaming, Uneditable
from adapters.slack.ops import (
    Append,
    Delete,
    FileOp,
    Find,
    FindFile,
    PageOp,
    Share,
    Stop,
    Upload,
)
from adapters.slack.shown import Page, ResponseShown, SlackShown
from channels.adapter import (
    Closed,
    Failure,
    FileAway,
    FileGone,
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

_LAST_LEVEL = 4
_MOST_HALVINGS = 5
_MOST_GONE = 6
_MOST_CLOSED = 3
_FILE_TRIES = 6
_REFUSED_TRIES = 2
"""So many of a file's tries does a refusal take, also a file that is gone: it may pass, but hardly. What the gateway
does not hand out is asked for more often, after ever longer pauses: in half a minute it is back after a restart."""


def advance(shown: SlackShown, op: Op, outcome: Outcome, now: float) -> SlackShown:
    """See `channels.adapter.Surface.advance`."""
    if isinstance(outcome, Forbidden):
        return shown.model_copy(update={"given_up": True})
    if isinstance(op, FileOp):
        return _file_advanced(shown, op, outcome, now)
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
    if receipt.id is None:
        return _without(shown, op.index)
    page = op.page
    update: dict[str, object] = {"ts": receipt.id, "at": min(page.asked_at, now), "touched": now}
    if page.streamed and receipt.extra.get("marked"):
        update |= {"open": False, "uncertain": True}  # it was ended, which is when it got its mark
    return _with(shown, op.index, page.model_copy(update=update))


def _failed(shown: SlackShown, op: PageOp, failure: Failure, now: float) -> SlackShown:
    if isinstance(op, Find):
        # Where nothing can be looked up, or the thread is gone, the message counts as not sent.
        return _without(shown, op.index) if isinstance(failure, Gone | Refused | Closed | TooLarge) else shown
    if isinstance(failure, Unknown):
        if op.creates:
            return _with(shown, op.index, shown.pages[op.index].model_copy(update={"asked_at": now}))
        tasks = {**shown.pages[op.index].tasks, **op.page.tasks}
        return _changed(shown, op.index, uncertain=True, tasks=tasks)
    if op.creates:
        shown = _without(shown, op.index)
    match failure:
        case NoStream():
            return shown.model_copy(update={"streams": False})
        case Outside():
            return shown.model_copy(update={"response": ResponseShown()})
        case StoppedByUser():
            return shown.model_copy(update={"halted": True})
        case Gone():
            if not op.creates:
                shown = _without(shown, op.index)
            gone = shown.gone + 1
            return shown.model_copy(update={"gone": gone, "given_up": gone > _MOST_GONE})
        case Uneditable() if not op.creates:
            return _changed(shown, op.index, stuck=True, open=False)
        case Closed():
            return _closed(shown, op, failure)
        case TooLarge() if shown.shrunk < _MOST_HALVINGS:
            return shown.model_copy(update={"shrunk": shown.shrunk + 1})
        case TooLarge() | Refused():
            return _degraded(shown)
        case _:
            return shown


def _closed(shown: SlackShown, op: PageOp, failure: Closed) -> SlackShown:
    """A stream has ended by itself (or, for an edit, has not ended yet)."""
    if op.creates:
        return _degraded(shown)
    page = shown.pages[op.index]
    is_stream = isinstance(op, Append | Stop)
    changed = _changed(shown, op.index, open=not is_stream, uncertain=True)
    if not page.uncertain or isinstance(failure, StillStreaming):
        changed = _ended_early(changed)
    if changed.closed > 2 * _MOST_CLOSED and not is_stream:
        # Slack takes the message neither for streaming nor for finished; a new one says it all.
        changed = _without(changed, op.index)
    return changed


def _degraded(shown: SlackShown) -> SlackShown:
    level = shown.level + 1
    return shown.model_copy(update={"level": level, "given_up": level > _LAST_LEVEL})


def _with(shown: SlackShown, index: int, page: Page) -> SlackShown:
    pages = (*shown.pages[:index], page, *shown.pages[index + 1 :])
    return shown.model_copy(update={"pages": pages})


def _changed(shown: SlackShown, index: int, **update: object) -> SlackShown:
    return _with(shown, index, shown.pages[index].model_copy(update=update))


def _without(shown: SlackShown, index: int) -> SlackShown:
    return shown.model_copy(update={"pages": (*shown.pages[:index], *shown.pages[index + 1 :])})


# ---------------------------------------------------------------- files


def _file_advanced(shown: SlackShown, op: FileOp, outcome: Outcome, now: float) -> SlackShown:
    state = op.state
    update: dict[str, object] = {}
    match op, outcome:
        case Upload(), Receipt():
            update = {"file": outcome.id or "", "asked_at": None}
        case Share(), Intent():
            update = {"asked_at": now}
        case Share(), Receipt():
            update = {"shared": True}
        case Share(), Unknown():
            update = {"asked_at": now, "failures": state.failures + _REFUSED_TRIES}
        case FindFile(), Receipt():
            # Not there: it is uploaded anew, because a file can be shared only once.
            update = {"shared": True} if outcome.id else {"file": "", "asked_at": None}
        case Upload(), FileGone():
            update = {"failures": _FILE_TRIES}
        case _, Gone() | Refused() | TooLarge() | Closed():
            update = {"failures": state.failures + _REFUSED_TRIES, "file": "", "asked_at": None}
        case Upload(), Unknown():
            update = {"failures": state.failures + _REFUSED_TRIES}
        case Upload(), FileAway():
            update = {"failures": state.failures + 1}
        case Share(), _:
            update = {"asked_at": None}
    changed = state.model_copy(update=update)
    if changed.failures >= _FILE_TRIES and not changed.shared and changed.asked_at is None:
        changed = changed.model_copy(update={"failed": True})
    others = tuple(other for other in shown.files if other.id != state.id)
    return shown.model_copy(update={"files": (*others, changed)})


def restored(shown: SlackShown) -> SlackShown:
    """After a crash: what was accepted since is not known, but for messages that were finished."""
    pages = tuple(
        page if page.finished and not page.open else page.model_copy(update={"uncertain": True}) for page in shown.pages
    )
    return shown.model_copy(update={"pages": pages})
