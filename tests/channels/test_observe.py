"""No secret comes out, whichever way it is logged."""

from __future__ import annotations

import io
import json
import logging
import sys
import traceback
from collections.abc import Iterator
from urllib.parse import quote

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from channels.observe import Metrics, Redactor, configure_logging, redact

SECRETS = {
    "telegram": "123456789:AAbbCCddEEffGGhhIIjjKKllMMnnOOppQQr",
    "slack": "xoxb-1234567890-abcdefghij",
    "password": 'p@ss"word/with\\odd chars',
    "plain": "correct-horse-battery",
}


class Carrier:
    """An object whose repr gives a secret away, as many libraries' do."""

    def __init__(self, secret: str) -> None:
        self.secret = secret

    def __repr__(self) -> str:
        return f"Carrier({self.secret!r})"


@pytest.fixture(params=[False, True], ids=["text", "json"])
def output(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before = root.handlers, root.level, logging.getLogRecordFactory(), sys.excepthook, structlog.get_config()
    stream = io.StringIO()
    redact.learn(SECRETS.values())
    configure_logging(json_lines=request.param, level=logging.DEBUG, stream=stream)
    yield stream
    root.handlers, root.level = before[0], before[1]
    logging.setLogRecordFactory(before[2])
    sys.excepthook = before[3]
    structlog.configure(**before[4])


def fail_with(secret: str) -> None:
    try:
        raise ConnectionError(f"https://example.test/bot{secret}/getMe")
    except ConnectionError as error:
        raise RuntimeError("outer") from error


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS.keys())
def test_every_way_of_logging_masks_every_configured_secret(output: io.StringIO, secret: str) -> None:
    std, struct = logging.getLogger("some.library"), structlog.get_logger("ours")
    foreign = io.StringIO()
    own_handler = logging.StreamHandler(foreign)  # what a library does that brings its own handler
    std.addHandler(own_handler)
    try:
        std.info("message %s", secret)
        std.warning(f"message {secret}")
        std.error("dict %(token)s", {"token": secret})
        std.info("object %r in %s", Carrier(secret), [secret, {"k": secret}])
        std.info(Carrier(secret))
        struct.info("event", token=secret, nested={"list": [secret]}, carrier=Carrier(secret))
        struct.warning(f"event {secret}")
        struct.bind(bound=secret).error("bound")
        with structlog.contextvars.bound_contextvars(context=secret):
            struct.info("context")
        try:
            fail_with(secret)
        except RuntimeError:
            std.exception("failed")
            struct.exception("failed")
            std.error("failed", exc_info=True)
            sys.excepthook(*sys.exc_info())
        std.info("quoted %s escaped %s", quote(secret, safe=""), json.dumps(secret))
    finally:
        std.removeHandler(own_handler)
    for text in (output.getvalue(), foreign.getvalue()):
        assert text
        for form in (secret, quote(secret, safe=""), json.dumps(secret)[1:-1], repr(secret)[1:-1]):
            assert form not in text
    assert "ConnectionError" in output.getvalue()


def test_json_lines_are_json_also_with_exceptions(output: io.StringIO, request: pytest.FixtureRequest) -> None:
    try:
        fail_with("x")
    except RuntimeError:
        logging.getLogger("library").exception("failed")
        structlog.get_logger().exception("failed")
    if "json" in request.node.callspec.id:
        events = [json.loads(line) for line in output.getvalue().splitlines()]
        assert all("RuntimeError" in event["exception"] for event in events)
        assert len(events) == 2
    else:
        assert output.getvalue().count("RuntimeError: outer") == 2


@pytest.mark.parametrize(
    "text",
    [
        "GET https://api.telegram.org/bot987654321:ZZbbCCddEEffGGhhIIjjKKllMMnnOOppQQr/getUpdates",
        "GET https://api.telegram.org/file/bot987654321%3AZZbbCCddEEffGGhhIIjjKKllMMnnOOppQQr/x.png",
        "wss://example.test/ws?device_id=1&access_key=abcdef123456&ticket=zyxwvu98",
        "Authorization: Bearer eyJhbGciOi.JIUzI1",
        "{'authorization': 'Bearer xoxb-999999-secretsecret'}",
        "postgresql://bridge:hunter2@db.example.test/bridge",
        "xapp-1-A0123-456-abcdef",
    ],
)
def test_what_has_the_shape_of_a_token_is_masked_although_nobody_told(text: str) -> None:
    masked = Redactor()(text)
    for secret in ("ZZbb", "abcdef", "zyxwvu98", "eyJhb", "secretsecret", "hunter2"):
        assert secret not in masked


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=60))
def test_text_without_secrets_is_left_as_it_is_and_masking_twice_changes_nothing(text: str) -> None:
    redactor = Redactor()
    redactor.learn(["a-very-secret-value"])
    once = redactor(text)
    assert redactor(once) == once


def test_metrics_carry_no_secret() -> None:
    redact.learn(SECRETS.values())
    metrics = Metrics()
    metrics.inbounds.labels(SECRETS["plain"], "taken").inc()
    assert SECRETS["plain"] not in metrics.render().decode()


def test_tracebacks_of_redacted_errors_still_name_the_place(output: io.StringIO) -> None:
    try:
        fail_with(SECRETS["plain"])
    except RuntimeError as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        logging.getLogger("library").exception("failed")
    assert frame.name in output.getvalue()
