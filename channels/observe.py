"""What an operator sees: structured logs, metrics, and the redactor that every text passes on its way out."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
import traceback
from collections.abc import Iterable, Mapping
from typing import IO
from urllib.parse import quote

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_MASK = "[redacted]"
_SHORTEST_SECRET = 4  # masking shorter values would garble ordinary text and protect nothing

# They log every call they make, or what says nothing to an operator.
_TALKATIVE = (
    "aiohttp.access",
    "alembic",
    "httpcore",
    "httpx",
    "slack_bolt",
    "slack_sdk",
    "uvicorn.access",
    "uvicorn.error",
)

_MASKED_EXCEPTION = "masked_exception"

_NAMES = r"\w{0,40}(?i:access_?key|ticket|api_?key|token|secret|password|signature)"
_SHAPES = re.compile(
    # a value is known by what stands before it; one that is masked already stays as it is
    r"(?P<keep>"
    r"(?:bot(?=\d{5,}(?::|%3A)))"  # Telegram puts the token into the path
    rf"|(?:\b{_NAMES}=)"
    rf"|(?:(?P<quote>['\"]){_NAMES}(?P=quote)\s*[:,]\s*b?['\"])"
    r"|(?:\b(?i:authorization)['\"]?\s*[:=,]\s*+(?:b?['\"])?+(?i:Bearer|Basic)\s+)"
    r"|(?:\b(?i:x-[\w-]{0,30}(?:key|token|secret))['\"]?\s*[:=,]\s*+(?:b?['\"])?+)"
    r"|(?:://[^/\s:@]*:(?=[^/\s@]+@))"
    r")(?!\[redacted\])(?P<drop>[^\s&'\"<>@,;)\]}/]+)"
    # an address that lets in whoever knows it: the web hooks of Slack and Feishu
    r"|(?:(?<=\bhooks\.slack\.com/)|(?<=/open-apis/bot/v2/hook/))[^\s'\"<>,;)\]}\[]+"
    # a value is known by how it looks
    r"|\b(?:xox[a-z]|xapp|xoxe\.xox[a-z])-[A-Za-z0-9-]{6,}"
    r"|\b\d{6,}:[A-Za-z0-9_-]{30,}"  # Telegram
    r"|\bsk-[A-Za-z0-9_*-]{16,}"  # OpenAI, Anthropic, and those who copy them
    r"|\blsv2_[A-Za-z0-9_]{8,}"  # LangSmith
    r"|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?"  # JSON web tokens
    r"|\b(?:gh[opsur]_|github_pat_|hf_|gsk_|AIza|AKIA)[A-Za-z0-9]{16,}[A-Za-z0-9_-]*"
)

_SECRET_VARIABLE = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD)$", re.IGNORECASE)
_SHORTEST_IN_ENVIRONMENT = 12  # such a variable may well hold "none" or "true"


class Redactor:
    """Masks secrets in text: every value it was told, however encoded, and whatever has the shape of a token."""

    def __init__(self) -> None:
        self._values: re.Pattern[str] | None = None
        self._known: set[str] = set()

    def learn(self, secrets: Iterable[str]) -> None:
        """From now on mask these values, also in their URL-quoted and JSON-escaped forms."""
        for secret in secrets:
            if len(secret) >= _SHORTEST_SECRET:
                self._known |= {
                    secret,
                    quote(secret, safe=""),
                    quote(secret),
                    json.dumps(secret)[1:-1],
                    repr(secret)[1:-1],
                }
        longest_first = sorted(self._known, key=len, reverse=True)
        self._values = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def learn_environment(self, environment: Mapping[str, str]) -> None:
        """Mask what the variables hold whose names say that it is a secret, `OPENAI_API_KEY` say."""
        self.learn(
            value
            for name, value in environment.items()
            if _SECRET_VARIABLE.search(name) and len(value) >= _SHORTEST_IN_ENVIRONMENT
        )

    def __call__(self, text: str) -> str:
        if self._values is not None:
            text = self._values.sub(_MASK, text)
        return _SHAPES.sub(lambda match: (match["keep"] or "") + _MASK, text)

    def deep(self, value: object) -> object:
        """The value with every text in it masked; objects become their masked repr."""
        match value:
            case str():
                return self(value)
            case bool() | int() | float() | None:
                return value
            case Mapping():
                return {self(str(key)): self.deep(item) for key, item in value.items()}
            case list() | tuple() | set() | frozenset():
                return [self.deep(item) for item in value]
            case _:
                return self(repr(value))


redact = Redactor()
"""The process's redactor. Settings teach it their secrets as soon as they are read."""


def configure_logging(*, json_lines: bool, level: int = logging.INFO, stream: IO[str] | None = None) -> None:
    """Send every log record of the process, our own and any library's, through the redactor to `stream` (stderr).

    Records are masked when they are made, so a handler that a library adds for itself gets masked text as well. What
    Python writes to stderr by itself becomes a record too: errors that nobody catches, in whichever thread, errors in
    places that cannot raise (`__del__`, callbacks from C), and warnings.
    """
    redact.learn_environment(os.environ)
    logging.setLogRecordFactory(_masked_record)
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer(ensure_ascii=False)
        if json_lines
        else structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    )
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[_take_exception_text, structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))
    sys.excepthook = _log_uncaught
    threading.excepthook = _log_uncaught_in_thread
    sys.unraisablehook = _log_unraisable
    logging.captureWarnings(True)


def _masked_record(*args: object, **kwargs: object) -> logging.LogRecord:
    record = logging.LogRecord(*args, **kwargs)  # type: ignore[arg-type]
    if isinstance(record.msg, dict):
        record.msg = redact.deep(record.msg)
    else:
        try:
            text = record.getMessage()
        except (TypeError, ValueError):
            text = f"{record.msg} {record.args}"
        record.msg, record.args = redact(text), ()
    if record.exc_info:
        record.exc_text = redact("".join(traceback.format_exception(*record.exc_info)).rstrip())
        setattr(record, _MASKED_EXCEPTION, record.exc_text)  # our formatter clears `exc_text` before it asks us
        record.exc_info = None
    if record.stack_info:
        record.stack_info = redact(record.stack_info)
    return record


def _take_exception_text(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    text = getattr(event.get("_record"), _MASKED_EXCEPTION, None)
    if text is not None:
        event["exception"] = text
    return event


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: object) -> None:
    if issubclass(kind, KeyboardInterrupt):
        return
    logging.getLogger("channels").critical("uncaught error", exc_info=error)


def _log_uncaught_in_thread(uncaught: threading.ExceptHookArgs) -> None:
    if issubclass(uncaught.exc_type, SystemExit):
        return  # a thread may end itself this way
    name = uncaught.thread.name if uncaught.thread else "unknown"
    logging.getLogger("channels").critical("uncaught error in thread %s", name, exc_info=uncaught.exc_value)


def _log_unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    where = unraisable.err_msg or "Exception ignored in"
    logging.getLogger("channels").error("%s: %r", where, unraisable.object, exc_info=unraisable.exc_value)


class Metrics:
    """The numbers of one bridge, for Prometheus. Labels hold channel names and kinds, never ids or texts."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.inbounds = self._counter("inbounds", "Things people did, by what became of them.", "channel", "result")
        self.turns = self._counter("turns", "Finished turns, by the phase they ended in.", "channel", "phase")
        self.ops = self._counter("ops", "Platform calls, by kind and outcome.", "channel", "op", "outcome")
        self.op_seconds = self._histogram("op_seconds", "How long platform calls took.", "channel", "op")
        self.first_text_seconds = self._histogram(
            "first_text_seconds", "From the accepted question to the first text on the platform.", "channel"
        )
        self.turn_seconds = self._histogram(
            "turn_seconds", "From the accepted question to the settled reply.", "channel"
        )
        self.feedback = self._counter("feedback", "Judgements of answers by readers.", "channel", "value")
        self.live_replies = self._gauge("live_replies", "Replies that are being kept in step now.", "channel")
        self.owned = self._gauge("owned", "1 for a channel that this replica owns.", "channel")
        self.waiting = self._gauge("inbounds_waiting", "Accepted inbounds that no turn has claimed yet.", "channel")
        self.open_turns = self._gauge("turns_open", "Turns that somebody still works on.", "channel")
        self.dead_letters = self._gauge("dead_letters", "Turns that were given up.", "channel")
        self.gateway_events = self._gauge("gateway_events", "What the gateway's streams brought, by kind.", "kind")

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"channel_bridge_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"channel_bridge_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, *labels: str) -> Histogram:
        buckets = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3600)
        return Histogram(f"channel_bridge_{name}", text, labels, registry=self.registry, buckets=buckets)

    def render(self) -> bytes:
        """The exposition text."""
        return redact(generate_latest(self.registry).decode()).encode()
