"""What the bridge itself says to a reader when something is not as it should be: short, and what they can do."""

from __future__ import annotations

import re

RETRY = "/retry asks again."
AFRESH = "If that happens again, /new starts a fresh conversation."

UNREACHABLE = "The agent cannot be reached at the moment. I keep trying."
RECONNECTING = "The connection to the agent is interrupted. I keep trying."
WAITING_FOR_THREAD = "Another answer in this conversation is still being written. Yours follows."
BUSY = f"The agent is still busy in this conversation. When it has finished, {RETRY}"
STILL_UNREACHABLE = f"The agent could not be reached. {RETRY}"
STARTS_ANEW = "The agent no longer had this conversation, so it starts anew."
QUESTION_LOST = "The agent no longer has this conversation or its question, so it starts anew. Please ask again."
DENIED = "The agent refused the connection: the bridge's key is not accepted. Please tell whoever runs this bot."
REFUSED = "The agent could not take this question. Try to put it differently, or start over with /new."
TOO_LARGE = "This is too large for the agent. Please send less or smaller files."
UNKNOWN_ASSISTANT = "The agent this bot is set up for does not exist. Please tell whoever runs this bot."
LOST = f"The agent lost this question. {RETRY}"
UNREAD = f"Not all of the answer could be read. {RETRY}"
STOPPED = "Stopped."
STOPPED_ELSEWHERE = f"The answer was stopped from elsewhere. {RETRY}"
NO_ANSWER = "The agent has finished without an answer."
CUT_AT_LENGTH = "The model stopped at its length limit. Ask it to go on."
CUT_BY_FILTER = "The model's content filter stopped the answer. Try to put the question differently."
NOTHING_MORE = "The agent has nothing more to say to that."

_FAILED = f"The agent failed while answering. {RETRY} {AFRESH}"
_CODE = r"(?:\w*code|status|response|error)[\W_]{1,3}"
_BY_CAUSE = (
    (rf"\w*RateLimit(?:Error|Exceeded)?|\w*rate[ _-]limit\w*|{_CODE}429|429 too many requests|overloaded(?:_?error)?|"
     r"(?:\w+_)?quota(?:_?exceeded)?|ResourceExhausted",
     f"The model is over its limit. Later, {RETRY}"),
    (r"GraphRecursionError|recursion[ _]limit",
     "The agent needed too many steps and gave up. A narrower question may help."),
    (r"\w*context[ _]?length\w*|\w*context[ _]?window\w*|too many tokens|maximum context|prompt is too long",
     "This conversation has become too long for the model. /new starts a fresh one."),
    (r"\w*timeout(?:_?error|exception)?|timed out", f"The agent took too long. {RETRY}"),
    (rf"AuthenticationError|PermissionDeniedError|authentication_error|(?:invalid|incorrect)[ _]api[ _]key|{_CODE}401",
     "The agent could not use its model: its key is not accepted. Please tell whoever runs this bot."),
    (r"\w*content[ _]?filter\w*|\w*content[ _]policy\w*", f"The model declined to answer this. {AFRESH}"),
)  # fmt: skip
"""What model providers call these, as whole words: an order number or a tool's own trouble is none of it."""


def run_failed(cause: str) -> str:
    """The sentence for a run that ended with an error. `cause` decides which; none of it is shown."""
    for words, sentence in _BY_CAUSE:
        if re.search(rf"\b(?:{words})\b", cause, re.IGNORECASE | re.ASCII):
            return sentence
    return _FAILED


def timed_out(seconds: float) -> str:
    """The sentence for a run that took longer than it may."""
    length = f"{round(seconds / 60)} minutes" if seconds >= 120 else f"{round(seconds)} seconds"
    return f"The answer took longer than {length} and was stopped. {RETRY}"
