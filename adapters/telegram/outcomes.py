"""What Telegram has accepted after each outcome of a call. Pure.

Every chain of failures ends somewhere: a refusal makes the reply plainer and finally gives it up, a message too large
gets smaller, a vanished one is sent anew, and one that may have been sent is sent again a few times only.
"""

from __future__ import annotations

from adapters.telegram.digests import text_digest
from adapters.telegram.ops import (
    MOST_UNKNOWNS,
    Delete,
    Draft,
    Edit,
    FileForm,
    Moved,
    Plainness,
    Send,
    SendFile,
    ShownDraft,
    ShownFile,
    ShownMessage,
    Start,
    TelegramShown,
    Write,
)
from channels.adapter import (
    Closed,
    FileAway,
    FileGone,
    Forbidden,
    Gone,
    Intent,
    Op,
    Outcome,
    Receipt,
    Refused,
    TooLarge,
    Unknown,
    away_since,
)

_MOST_REFUSALS = 12  # in a row; by then nothing is left to leave out
_MOST_UPLOADS = 2  # of one file, when nobody can say of any whether it has arrived: each may be one copy more
_SMALLEST_SIZE = 256  # UTF-16 units
_SHRINK = 0.75

_AFTER = {
    FileForm.PHOTO: FileForm.DOCUMENT,
    FileForm.DOCUMENT: FileForm.SENTENCE,
    FileForm.SENTENCE: FileForm.NOTHING,
    FileForm.NOTHING: FileForm.NOTHING,
}


def advanced(shown: TelegramShown, op: Op, outcome: Outcome, now: float) -> TelegramShown:
    """What is shown after the outcome of `op`."""
    if isinstance(outcome, Forbidden):
        return shown.model_copy(update={"given_up": True})
    match op:
        case Write():
            return _written(shown, op, outcome)
        case Draft():
            return _drafted(shown, op, outcome, now)
        case Delete():
            return _deleted(shown, op, outcome)
        case SendFile():
            return _file_sent(shown, op, outcome, now)
        case _:
            raise TypeError(f"no call of this surface: {type(op).__name__}")


# ---------------------------------------------------------------- messages


def _written(shown: TelegramShown, op: Write, outcome: Outcome) -> TelegramShown:
    known = shown.messages[op.index] if op.index < len(shown.messages) else None
    match outcome:
        case Receipt():
            number = op.id if isinstance(op, Edit) else int(outcome.id or 0)
            message = ShownMessage(
                chat=op.where.chat,
                id=number,
                digest=op.digest,
                start=op.start,
                covers=op.covers,
                mark=op.mark,
                next=op.next,
            )
            return _with_message(shown, op.index, message).model_copy(update={"refusals": 0})
        case Intent():
            unknowns = known.unknowns if known is not None else 0
            return _with_message(shown, op.index, _uncertain(op, unknowns))
        case Unknown() if isinstance(op, Send):
            unknowns = (known.unknowns if known is not None else 0) + 1
            return _with_message(shown, op.index, _uncertain(op, unknowns))
        case Unknown() if known is not None:
            return _with_message(shown, op.index, known.model_copy(update={"digest": ""}))
        case _:
            pass
    shown = _without_intent(shown, op) if isinstance(op, Send) else shown
    return _after_refusal(shown, op, outcome)


def _after_refusal(shown: TelegramShown, op: Write, outcome: Outcome) -> TelegramShown:
    """After a failure that left everything as it was."""
    match outcome:
        case Moved():
            shown = shown.model_copy(update={"chat": outcome.chat})
            return _without_message(shown, op.index) if isinstance(op, Edit) else shown
        case Refused() | TooLarge() | Closed() if op.content.rich is not None:
            return shown.model_copy(update={"rich_refused": True})
        case Gone() | Closed() if isinstance(op, Edit):
            return _without_message(shown, op.index).model_copy(update={"lost": shown.lost + 1})
        case TooLarge() if op.size > _SMALLEST_SIZE:
            smaller = min(outcome.limit or op.size, int(op.size * _SHRINK))
            return shown.model_copy(update={"size": max(_SMALLEST_SIZE, smaller)})
        case Refused() | TooLarge() | Gone() | Closed():
            plainness = Plainness.UNSTYLED if shown.plainness is Plainness.STYLED else Plainness.BARE
            refusals = shown.refusals + 1
            return shown.model_copy(
                update={"plainness": plainness, "refusals": refusals, "given_up": refusals >= _MOST_REFUSALS}
            )
        case _:
            return shown


def _uncertain(op: Write, unknowns: int) -> ShownMessage:
    """A message that may have been sent. After some tries it counts as sent, and what follows goes into another one."""
    following = op.next
    if following is None and unknowns >= MOST_UNKNOWNS:
        following = Start(offset=op.covers, steps=op.start.steps, reasoning=op.start.reasoning)
    return ShownMessage(
        chat=op.where.chat,
        start=op.start,
        covers=op.covers,
        mark=op.mark,
        next=following if unknowns >= MOST_UNKNOWNS else None,
        unknowns=unknowns,
    )


def _without_intent(shown: TelegramShown, op: Send) -> TelegramShown:
    """The call was surely not carried out; an earlier one with an unknown outcome still counts."""
    known = shown.messages[op.index] if op.index < len(shown.messages) else None
    if known is None or known.id is not None or known.unknowns:
        return shown
    return _without_message(shown, op.index)


def _with_message(shown: TelegramShown, index: int, message: ShownMessage) -> TelegramShown:
    messages = (*shown.messages[:index], message, *shown.messages[index + 1 :])
    return shown.model_copy(update={"messages": messages})


def _without_message(shown: TelegramShown, index: int) -> TelegramShown:
    return shown.model_copy(update={"messages": (*shown.messages[:index], *shown.messages[index + 1 :])})


def _deleted(shown: TelegramShown, op: Delete, outcome: Outcome) -> TelegramShown:
    match outcome:
        case Receipt() | Gone() | Closed() | Refused() | TooLarge():
            return _without_message(shown, op.index)  # one that cannot be deleted has to stay
        case _:
            return shown


# ---------------------------------------------------------------- drafts


def _drafted(shown: TelegramShown, op: Draft, outcome: Outcome, now: float) -> TelegramShown:
    draft = shown.draft if shown.draft is not None and shown.draft.index == op.index else ShownDraft(index=op.index)
    match outcome:
        case Receipt():
            draft = ShownDraft(
                index=op.index,
                length=len(op.body.text),
                text=text_digest(op.body.text),
                digest=op.digest,
                at=now,
                beats=draft.beats + 1 if op.digest == draft.digest else 0,
                is_done=op.is_last,
            )
            return shown.model_copy(update={"draft": draft, "refusals": 0})
        case Closed() | Gone():
            return shown.model_copy(update={"drafts_refused": True})
        case Refused() | TooLarge():
            # One refused frame is no reason to give up drafts, which cost less than edits; the same one again is.
            refused = shown.plainness is not Plainness.STYLED
            return shown.model_copy(update={"plainness": Plainness.UNSTYLED, "drafts_refused": refused})
        case Intent():
            return shown
        case _:
            # A last frame is cosmetic: the message does not wait for it.
            done = draft.model_copy(update={"is_done": True})
            return shown.model_copy(update={"draft": done}) if op.is_last else shown


# ---------------------------------------------------------------- files


def unsure(file: ShownFile) -> ShownFile:
    """The file after a try of which nobody can say whether it has worked: the next try is made, or the reader told."""
    is_upload = file.form is not FileForm.SENTENCE
    unknowns = file.unknowns + 1
    if unknowns < (_MOST_UPLOADS if is_upload else MOST_UNKNOWNS):
        return file.model_copy(update={"unknowns": unknowns, "sending": False, "away_since": None})
    following = FileForm.SENTENCE if is_upload else FileForm.NOTHING
    return ShownFile(id=file.id, form=following, in_doubt=True)


def _file_sent(shown: TelegramShown, op: SendFile, outcome: Outcome, now: float) -> TelegramShown:
    known = next((file for file in shown.files if file.id == op.file.id), ShownFile(id=op.file.id, form=op.form))
    file = known.model_copy(update={"sending": isinstance(outcome, Intent)})
    match outcome:
        case Receipt():
            file = file.model_copy(update={"sent": True, "message": int(outcome.id or 0) or None, "form": op.form})
        case Unknown():
            file = unsure(file)
        case FileAway() if (since := away_since(file.away_since, now)) is not None:
            file = file.model_copy(update={"away_since": since})
        case Moved():
            shown = shown.model_copy(update={"chat": outcome.chat})
        case Refused() | TooLarge() | Gone() | Closed() | FileAway():
            following = FileForm.SENTENCE if isinstance(outcome, FileAway | FileGone) else _AFTER[op.form]
            file = file.model_copy(update={"form": following, "in_doubt": file.unknowns > 0})
        case Intent():
            pass
        case _:
            file = file.model_copy(update={"away_since": None})  # the gateway handed it out
    return shown.model_copy(update={"files": (*(f for f in shown.files if f.id != op.file.id), file)})
