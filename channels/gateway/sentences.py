"""What the bridge itself says to a reader when something is not as it should be: short, and what they can do."""

from __future__ import annotations

RETRY = "/retry asks again."

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
STOPPED = "Stopped."
STOPPED_ELSEWHERE = f"The answer was stopped from elsewhere. {RETRY}"
NO_ANSWER = "The agent has finished without an answer."
NOTHING_MORE = "The agent has nothing more to say to that."

_FAILED = f"The agent failed while answering. {RETRY}"
_BY_CAUSE = (
    (("ratelimit", "rate_limit", "429", "overloaded", "quota"), f"The model is over its limit. Later, {RETRY}"),
    (("recursion",), "The agent needed too many steps and gave up. A narrower question may help."),
    (("contextlength", "context_length", "context window", "too many tokens", "maximum context"),
     "This conversation has become too long for the model. /new starts a fresh one."),
    (("timeout", "timed out"), f"The agent took too long. {RETRY}"),
    (("authentication", "permissiondenied", "invalid api key", "401"),
     "The agent could not use its model: its key is not accepted. Please tell whoever runs this bot."),
    (("content_filter", "contentfilter", "content policy"), "The model declined to answer this."),
)  # fmt: skip


def run_failed(cause: str) -> str:
    """The sentence for a run that ended with an error. `cause` decides which; none of it is shown."""
    said = cause.casefold()
    for marks, sentence in _BY_CAUSE:
        if any(mark in said for mark in marks):
            return sentence
    return _FAILED


def timed_out(seconds: float) -> str:
    """The sentence for a run that took longer than it may."""
    length = f"{round(seconds / 60)} minutes" if seconds >= 120 else f"{round(seconds)} seconds"
    return f"The answer took longer than {length} and was stopped. {RETRY}"
