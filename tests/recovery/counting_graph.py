"""A graph whose answer can be checked to the last word: `w1 w2 … w60 end`, streamed slowly enough to be killed in.

Asked for a file, it adds one.
"""

from __future__ import annotations

import base64

from langchain_core.messages import AIMessage, BaseMessage

from tests.recovery.speaking import SpeakingModel, graph_of

PIECES = [*(f"w{number} " for number in range(1, 61)), "end"]
FILE, CONTENT = "count.txt", b"all that was counted"


def _with_file(question: str, reply: BaseMessage) -> BaseMessage:
    if "file" not in question:
        return reply
    file = {
        "type": "file",
        "mime_type": "text/plain",
        "base64": base64.b64encode(CONTENT).decode(),
        "filename": FILE,
    }
    return AIMessage(id=reply.id, content=[{"type": "text", "text": str(reply.text)}, file])


graph = graph_of(SpeakingModel(pieces=lambda _: PIECES, pace=0.02), completed=_with_file)
