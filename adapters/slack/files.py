"""The files of an answer: each is uploaded, then shared under it; one that cannot be is named in the answer. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from adapters.slack import limits
from adapters.slack.failures import Barred
from adapters.slack.ops import FileOp, FindFile, Share, Upload
from adapters.slack.shown import FileShown, SlackShown
from adapters.slack.spot import Spot
from channels.adapter import (
    Closed,
    Draw,
    FileAway,
    FileGone,
    Gone,
    Intent,
    Outcome,
    Receipt,
    Refused,
    TooLarge,
    Unknown,
    Urgency,
    away_since,
)
from channels.model import View
from channels.shapes import as_text

_MOST_REFUSALS = 3


def plan_files(view: View, shown: SlackShown, spot: Spot) -> Sequence[FileOp]:
    """What the next file needs; empty when all are shared or given up."""
    states = {state.id: state for state in shown.files}
    for index, file in enumerate(view.files):
        state = states.get(file.id) or FileShown(id=file.id)
        if state.failed or state.shared:
            continue
        if not state.file:
            draws = (Draw(limits.UPLOAD),)
            return (Upload(urgency=Urgency.FINAL, draws=draws, keeps=True, index=index, state=state, file=file),)
        if state.asked_at is None:
            return (
                Share(
                    urgency=Urgency.FINAL,
                    draws=(Draw(limits.SHARE),),
                    creates=True,
                    index=index,
                    state=state,
                    file=file,
                    root=spot.root,
                ),
            )
        return (
            FindFile(
                urgency=Urgency.FINAL,
                draws=(limits.look_up(spot.root),),
                keeps=True,
                not_before=state.asked_at + limits.LOOK_AGAIN,
                index=index,
                state=state,
                file=file,
                root=spot.root,
            ),
        )
    return ()


def advance_files(shown: SlackShown, op: FileOp, outcome: Outcome, now: float) -> SlackShown:
    """What is known of the files after a call about one of them."""
    state = op.state
    update: dict[str, object] = {}
    match op, outcome:
        case Upload(), Receipt():
            update = {"file": outcome.id or "", "asked_at": None, "away_since": None}
        case Share(), Intent():
            update = {"asked_at": now, "cursor": ""}
        case Share(), Receipt():
            update = {"shared": True}
        case Share(), Unknown():
            update = {"asked_at": now, "refusals": state.refusals + 1}
        case FindFile(), Receipt():
            update = _looked_for(outcome)
        case _, FileGone() | Barred():
            update = {"failed": True}
        case _, Gone() | Refused() | TooLarge() | Closed():
            update = {"refusals": state.refusals + 1, "file": "", "asked_at": None}
        case Upload(), Unknown():
            update = {"refusals": state.refusals + 1, "away_since": None}
        case Upload(), FileAway():
            since = away_since(state.away_since, now)
            update = {"away_since": since, "failed": since is None}
        case Upload(), Intent():
            pass
        case Upload(), _:
            update = {"away_since": None}  # the gateway handed it out
        case Share(), _:
            update = {"asked_at": None}
    changed = state.model_copy(update=update)
    if changed.refusals >= _MOST_REFUSALS and not changed.shared and changed.asked_at is None:
        changed = changed.model_copy(update={"failed": True})
    others = tuple(other for other in shown.files if other.id != state.id)
    return shown.model_copy(update={"files": (*others, changed)})


def _looked_for(receipt: Receipt) -> dict[str, object]:
    if cursor := as_text(receipt.extra.get("cursor")):
        return {"cursor": cursor}
    # Not there: it is uploaded anew, because a file can be shared only once.
    return {"shared": True} if receipt.id else {"file": "", "asked_at": None}
