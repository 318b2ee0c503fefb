"""What is shown after the outcome of an op: every failure leads to another try, another way, or an end. Pure."""

from __future__ import annotations

from adapters.feishu.errors import CardGone, CardsUnavailable, NoTopics, OutOfSequence, SentBefore
from adapters.feishu.ops import (
    MESSAGE_EDITS,
    SMALLEST_TEXT,
    CreateCard,
    Detail,
    EditMessage,
    Face,
    FeishuShown,
    Format,
    Leftover,
    LookFor,
    OpenStreaming,
    PatchCard,
    Send,
    SendFile,
    SentFile,
    Sheet,
    SheetOp,
    TakeBack,
    UpdateCard,
    UploadFile,
    WriteText,
)
from channels.adapter import (
    Closed,
    Failure,
    FileAway,
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

SEQUENCE_LEAP = 10_000
"""More operations than one card sees between two times that its state is stored."""
_MOST_LOST = 6
_MOST_TRIES = 4  # for one file
_NEXT_DETAIL = {Detail.FULL: Detail.FENCED, Detail.FENCED: Detail.BARE}
_NEXT_FORMAT = {
    Format.CARD: Format.PATCH,
    Format.PATCH: Format.POST,
    Format.POST: Format.TEXT,
    Format.TEXT: Format.NOTE,
}
_SEQUENCED = (WriteText, UpdateCard, OpenStreaming)
_CHANGES = (WriteText, UpdateCard, PatchCard, EditMessage)


def new_sheet(shown: FeishuShown, start: int = 0, opening: str = "") -> Sheet:
    """The next message of the reply, in the form that is in use."""
    return Sheet(key=str(shown.made), format=shown.format, start=start, opening=opening)


def advanced(shown: FeishuShown, op: Op, outcome: Outcome, now: float, *, room: int) -> FeishuShown:
    """`room`: the bytes of text in one message that the op was planned with."""
    if isinstance(outcome, Forbidden):
        return shown.model_copy(update={"given_up": True})
    match op:
        case SheetOp():
            return _after_sheet_op(shown, op, outcome, now, room)
        case TakeBack():
            return _after_take_back(shown, op.leftover, outcome)
        case UploadFile():
            return _after_upload(shown, op, outcome, now)
        case SendFile():
            return _after_file(shown, op, outcome)
        case _:
            raise AssertionError(f"not an op of this surface: {type(op).__name__}")


def restored(shown: FeishuShown) -> FeishuShown:
    """After a crash: operations that were not stored may have been made since."""
    sheets = []
    for sheet in shown.sheets:
        changes: dict[str, object] = {}
        if sheet.card:
            changes |= {"sequence": sheet.sequence + SEQUENCE_LEAP, "leapt": True}
        if sheet.sent and not sheet.complete:
            changes |= {"torn": sheet.format is Format.CARD, "uncertain": True, "streaming": False}
        sheets.append(sheet.model_copy(update=changes))
    leftovers = tuple(left.model_copy(update={"sequence": left.sequence + SEQUENCE_LEAP}) for left in shown.leftovers)
    files = tuple(file.model_copy(update={"away_since": None}) for file in shown.files)
    return shown.model_copy(update={"sheets": tuple(sheets), "leftovers": leftovers, "files": files})


# ---------------------------------------------------------------- messages


def _after_sheet_op(shown: FeishuShown, op: SheetOp, outcome: Outcome, now: float, room: int) -> FeishuShown:
    sheet = op.sheet
    if isinstance(op, _SEQUENCED):
        # A refused operation has used up its sequence as well.
        leaps = isinstance(outcome, OutOfSequence)
        sequence = sheet.sequence + (SEQUENCE_LEAP if leaps else 1)
        sheet = sheet.model_copy(update={"sequence": sequence, "leapt": leaps})
    if isinstance(op, Send):
        sheet = sheet.model_copy(update={"sending": True, "placeheld": op.face is None})
    match outcome:
        case Intent():
            return _put(shown, op.index, sheet)
        case Receipt():
            return _accepted(shown, op, sheet, outcome, now)
        case SentBefore() if isinstance(op, Send):
            return _accepted(shown, op, sheet, Receipt(), now)
        case Unknown():
            return _put(shown, op.index, _doubtful(op, sheet))
        case Closed():
            closed = {"streaming": False, "closings": sheet.closings + isinstance(op, _SEQUENCED)}
            return _put(shown, op.index, sheet.model_copy(update=closed))
        case Gone():
            return _gone(shown, op, sheet, outcome)
        case NoTopics() if isinstance(op, Send) and op.in_thread:
            return _sent_elsewhere(shown, op.index, sheet, {"without_topic": True})
        case TooLarge() if not isinstance(op, LookFor | OpenStreaming) and room > SMALLEST_TEXT:
            smaller = min(room, outcome.limit or room) * 3 // 4
            return _refused_as_it_is(shown, op, sheet, {"room": max(SMALLEST_TEXT, smaller)})
        case TooLarge() | Refused():
            return _refused(shown, op, sheet, outcome)
        case _:
            return _put(shown, op.index, sheet)


def _accepted(shown: FeishuShown, op: SheetOp, sheet: Sheet, receipt: Receipt, now: float) -> FeishuShown:
    match op:
        case CreateCard():
            made = {"card": receipt.id or "", "streaming": op.streaming, "opened_at": now}
            return _faced(shown, op.index, sheet.model_copy(update=made), op.face, now)
        case Send():
            done = {"sent": True, "sending": False, "placeheld": False}
            sent = {**done, "message": receipt.id or "", "sent_at": now, "stored_at": now}
            sheet = sheet.model_copy(update=sent)
            if op.face is None:
                return _put(shown, op.index, sheet)
            # An earlier try may have worked, with what was to be said then.
            sheet = sheet.model_copy(update={"uncertain": op.sheet.sending})
            return _faced(shown, op.index, sheet, op.face, now, uncertain=op.sheet.sending)
        case WriteText():
            return _faced(shown, op.index, sheet.model_copy(update={"closings": 0}), op.face, now)
        case UpdateCard():
            return _faced(shown, op.index, sheet.model_copy(update={"streaming": op.streaming}), op.face, now)
        case PatchCard():
            return _faced(shown, op.index, sheet, op.face, now)
        case EditMessage():
            edited = sheet.model_copy(update={"edits": sheet.edits + 1})
            return _faced(shown, op.index, edited, op.face, now)
        case OpenStreaming():
            opened = {"streaming": True, "opened_at": now, "stored_at": now}
            return _put(shown, op.index, sheet.model_copy(update=opened))
        case _:
            return _put(shown, op.index, sheet.model_copy(update={"found": True}))


def _faced(
    shown: FeishuShown, index: int, sheet: Sheet, face: Face, now: float, *, uncertain: bool = False
) -> FeishuShown:
    """The sheet looks like this now; the row after it follows from where its text ends."""
    is_new_frame = sheet.frame != face.frame or face.complete
    sheet = sheet.model_copy(
        update={
            "text": face.text,
            "length": face.length,
            "covered": face.covered,
            "frame": face.frame,
            "detail": face.detail,
            "complete": face.complete and not uncertain,
            "end": face.ends,
            "source": face.source,
            "uncertain": uncertain,
            "torn": False,
            "text_at": now,
            "frame_at": now if is_new_frame else sheet.frame_at,
            "stored_at": now if face.complete else sheet.stored_at,
        }
    )
    shown = _put(shown, index, sheet)
    after = shown.sheets[index + 1 :]
    if face.ends is None:
        shown = shown.model_copy(update={"sheets": shown.sheets[: index + 1]})
        return _left_over(shown, after)
    if after:
        moved = after[0].model_copy(update={"start": face.ends, "opening": face.opening})
        return _put(shown, index + 1, moved)
    return _put(shown, index + 1, new_sheet(shown, face.ends, face.opening))


def _doubtful(op: SheetOp, sheet: Sheet) -> Sheet:
    """The op may have been accepted."""
    if isinstance(op, LookFor):
        return sheet.model_copy(update={"found": True})
    changes: dict[str, object] = {}
    if isinstance(op, _CHANGES):
        changes = {"uncertain": True, "complete": False}
    if isinstance(op, WriteText) or (isinstance(op, UpdateCard) and op.streaming):
        # Whatever comes next has to go on from here: a reader may have seen it.
        face = op.face
        changes |= {"text": face.text, "length": face.length, "covered": face.covered}
        if isinstance(op, UpdateCard):
            changes["frame"] = ""
    elif isinstance(op, UpdateCard):
        changes |= {"torn": True, "streaming": False}
    return sheet.model_copy(update=changes)


def _gone(shown: FeishuShown, op: SheetOp, sheet: Sheet, outcome: Gone) -> FeishuShown:
    if isinstance(op, _CHANGES) and op.sheet.complete:
        return _let_be(shown, op, sheet)
    if isinstance(op, Send) and op.answers is not None and not isinstance(outcome, CardGone):
        return _sent_elsewhere(shown, op.index, sheet, {"detached": True})
    shown = shown.model_copy(update={"lost": shown.lost + 1, "given_up": shown.lost + 1 >= _MOST_LOST})
    if shown.lost > _MOST_LOST // 2 and shown.format is not Format.TEXT:  # no content was refused: a note says nothing
        shown = shown.model_copy(update={"format": _NEXT_FORMAT.get(shown.format, shown.format)})
    return _begin_anew(shown, op.index, sheet, take_back=isinstance(outcome, CardGone))


def _sent_elsewhere(shown: FeishuShown, index: int, sheet: Sheet, changes: dict[str, object]) -> FeishuShown:
    """The same message, to be sent to another place under a key of its own."""
    shown = shown.model_copy(update=changes)
    renewed = sheet.model_copy(update={"key": str(shown.made), "sending": False})
    return _put(shown, index, renewed, begun=index < len(shown.sheets))


def _refused(shown: FeishuShown, op: SheetOp, sheet: Sheet, outcome: Failure) -> FeishuShown:
    """The content is rejected: first less of it is trusted to be markup, then the message takes a simpler form, and at
    last a note takes its place."""
    match op:
        case LookFor():
            return _put(shown, op.index, sheet.model_copy(update={"found": True}))
        case OpenStreaming():
            never = {"closings": NEVER_STREAMS, "streaming": False, "opened_at": 0.0}
            return _put(shown, op.index, sheet.model_copy(update=never))
        case EditMessage():
            return _put(shown, op.index, sheet.model_copy(update={"edits": MESSAGE_EDITS, "complete": True}))
        case _ if isinstance(op, _CHANGES) and op.sheet.complete:
            return _let_be(shown, op, sheet)
        case _:
            pass
    is_card = sheet.format in (Format.CARD, Format.PATCH)
    if is_card and shown.detail in _NEXT_DETAIL and not isinstance(outcome, CardsUnavailable):
        return _refused_as_it_is(shown, op, sheet, {"detail": _NEXT_DETAIL[shown.detail]})
    simpler = _NEXT_FORMAT.get(sheet.format)
    if simpler is not None:
        shown = shown.model_copy(update={"format": simpler})
        return _begin_anew(shown, op.index, sheet, take_back=True)
    if isinstance(op, Send) and op.answers is not None:
        # Not even the note is taken as an answer to the question: it is not what is said that is refused.
        afresh = {"detached": True, "format": Format.PATCH, "detail": Detail.FULL}
        return _begin_anew(shown.model_copy(update=afresh), op.index, sheet, take_back=False)
    return shown.model_copy(update={"given_up": True})


def _refused_as_it_is(shown: FeishuShown, op: SheetOp, sheet: Sheet, changes: dict[str, object]) -> FeishuShown:
    """Try again with other content: in the same message if there is one."""
    shown = shown.model_copy(update=changes)
    if isinstance(op, _CHANGES) and op.sheet.complete:
        return _let_be(shown, op, sheet)
    if isinstance(op, CreateCard | Send):
        return _begin_anew(shown, op.index, sheet, take_back=False)
    return _put(shown, op.index, sheet.model_copy(update={"uncertain": True}))


def _let_be(shown: FeishuShown, op: SheetOp, sheet: Sheet) -> FeishuShown:
    """A finished message that cannot be changed any more stays as it is; the reader has had the answer."""
    assert isinstance(op, WriteText | UpdateCard | PatchCard | EditMessage)
    return _faced(shown, op.index, sheet, op.face, sheet.frame_at)


def _begin_anew(shown: FeishuShown, index: int, sheet: Sheet, *, take_back: bool) -> FeishuShown:
    """Another message in place of this one, from the same text on."""
    fresh = new_sheet(shown, sheet.start, sheet.opening)
    shown = _put(shown, index, fresh, begun=index < len(shown.sheets))
    return _left_over(shown, (sheet,)) if take_back else shown


# ---------------------------------------------------------------- the row of messages


def _put(shown: FeishuShown, index: int, sheet: Sheet, *, begun: bool = False) -> FeishuShown:
    """Replace a message of the row, or add one at its end. `begun`: it has a key that none had before."""
    is_new = index >= len(shown.sheets)
    sheets = (*shown.sheets[:index], sheet, *shown.sheets[index + 1 :])
    return shown.model_copy(update={"sheets": sheets, "made": shown.made + (is_new or begun)})


def _left_over(shown: FeishuShown, sheets: tuple[Sheet, ...]) -> FeishuShown:
    """These messages are to be taken back, as far as anybody can see them."""
    visible = tuple(
        Leftover(
            message=sheet.message,
            format=sheet.format,
            card=sheet.card,
            sequence=sheet.sequence,
            kept=not sheet.message,  # a card of which only the entity is known
        )
        for sheet in sheets
        if sheet.message or (sheet.sent and sheet.card)
    )
    return shown.model_copy(update={"leftovers": (*shown.leftovers, *visible)}) if visible else shown


NEVER_STREAMS = 1_000
"""As a number of closings: this card cannot stream."""


def _after_take_back(shown: FeishuShown, left: Leftover, outcome: Outcome) -> FeishuShown:
    rest = tuple(one for one in shown.leftovers if (one.message, one.card) != (left.message, left.card))
    match outcome:
        case Intent():
            return shown
        case Receipt():
            return shown.model_copy(update={"leftovers": rest})
        case Gone() if not isinstance(outcome, CardGone):
            return shown.model_copy(update={"leftovers": rest})
        case Refused() | TooLarge() | Closed() | Gone() if left.format in (Format.CARD, Format.PATCH) and not left.kept:
            kept = left.model_copy(update={"kept": True, "sequence": left.sequence + 1})
            return shown.model_copy(update={"leftovers": (kept, *rest)})
        case Refused() | TooLarge() | Closed() | Gone():
            return shown.model_copy(update={"leftovers": rest})
        case OutOfSequence():
            leapt = left.model_copy(update={"sequence": left.sequence + SEQUENCE_LEAP})
            return shown.model_copy(update={"leftovers": (leapt, *rest)})
        case _:
            again = left.model_copy(update={"sequence": left.sequence + 1})
            return shown.model_copy(update={"leftovers": (again, *rest)})


# ---------------------------------------------------------------- files


def _after_upload(shown: FeishuShown, op: UploadFile, outcome: Outcome, now: float) -> FeishuShown:
    known = next((file for file in shown.files if file.id == op.file.id), SentFile(id=op.file.id))
    tries = known.tries + 1
    match outcome:
        case Receipt():
            file = known.model_copy(update={"key": outcome.id or "", "kind": str(outcome.extra.get("kind", "file"))})
        case TooLarge():
            file = known.model_copy(update={"trouble": "it is larger than may be sent here"})
        case Refused() | Gone() | Closed():
            file = known.model_copy(update={"trouble": "it could not be sent"})
        case FileAway() if (since := away_since(known.away_since, now)) is not None:
            file = known.model_copy(update={"away_since": since})
        case Unknown() if tries < _MOST_TRIES:
            file = known.model_copy(update={"tries": tries, "away_since": None})
        case FileAway() | Unknown():
            file = known.model_copy(update={"trouble": "it could not be sent"})
        case Intent():
            return shown
        case _:
            file = known.model_copy(update={"away_since": None})  # the gateway handed it out
    return _put_file(shown, file)


def _after_file(shown: FeishuShown, op: SendFile, outcome: Outcome) -> FeishuShown:
    match outcome:
        case Intent():
            return _put_file(shown, op.file.model_copy(update={"sending": True}))
        case Receipt():
            return _put_file(shown, op.file.model_copy(update={"message": outcome.id or "", "done": True}))
        case NoTopics() if op.in_thread:
            shown = shown.model_copy(update={"without_topic": True})
            return _put_file(shown, op.file.model_copy(update={"sending": False}))
        case Gone() if op.answers is not None:
            return _file_moved(shown, op.file)
        case Refused() | TooLarge() | Gone() | Closed() if not op.file.trouble:
            trouble = {"trouble": "it could not be sent", "sending": False}
            return _put_file(shown, op.file.model_copy(update=trouble))
        case Refused() | TooLarge() | Closed() if op.answers is not None:
            # Not even a word is taken as an answer to the question: it is not the file that is refused.
            return _file_moved(shown, op.file.model_copy(update={"trouble": "" if op.file.key else op.file.trouble}))
        case Refused() | TooLarge() | Gone() | Closed():
            return _put_file(shown, op.file.model_copy(update={"done": True}))
        case _:
            return shown


def _file_moved(shown: FeishuShown, file: SentFile) -> FeishuShown:
    """It goes to the chat, as everything does from now on."""
    shown = shown.model_copy(update={"detached": True})
    return _put_file(shown, file.model_copy(update={"sending": False, "moved": True}))


def _put_file(shown: FeishuShown, file: SentFile) -> FeishuShown:
    others = tuple(one for one in shown.files if one.id != file.id)
    return shown.model_copy(update={"files": (*others, file)})
