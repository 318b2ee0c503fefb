"""No secret comes out, whichever way it is logged."""

from __future__ import annotations

import gc
import io
import json
import logging
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
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
    hooks = threading.excepthook, sys.unraisablehook
    stream = io.StringIO()
    redact.learn(SECRETS.values())
    configure_logging(json_lines=request.param, level=logging.DEBUG, stream=stream)
    yield stream
    root.handlers, root.level = before[0], before[1]
    logging.setLogRecordFactory(before[2])
    sys.excepthook = before[3]
    threading.excepthook, sys.unraisablehook = hooks
    logging.captureWarnings(False)
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


class Dying:
    """An object that fails where nobody can catch it."""

    def __init__(self, secret: str) -> None:
        self.secret = secret

    def __repr__(self) -> str:
        return f"Dying({self.secret!r})"

    def __del__(self) -> None:
        fail_with(self.secret)


def in_a_thread(secret: str) -> None:
    thread = threading.Thread(target=fail_with, args=(secret,))
    thread.start()
    thread.join()


def in_a_finalizer(secret: str) -> None:
    Dying(secret)
    gc.collect()


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS.keys())
@pytest.mark.parametrize("fail", [in_a_thread, in_a_finalizer])
def test_an_error_that_nobody_can_catch_is_logged_and_masked(
    output: io.StringIO, capfd: pytest.CaptureFixture[str], fail: Callable[[str], None], secret: str
) -> None:
    fail(secret)
    assert capfd.readouterr() == ("", ""), "Python must not write it by itself"
    assert "RuntimeError: outer" in output.getvalue()
    for form in (secret, quote(secret, safe=""), json.dumps(secret)[1:-1], repr(secret)[1:-1]):
        assert form not in output.getvalue()


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS.keys())
def test_a_warning_is_logged_and_masked(output: io.StringIO, secret: str) -> None:
    logging.captureWarnings(False)
    with warnings.catch_warnings():  # pytest's own way of showing them is put back afterwards
        warnings.simplefilter("always")
        configure_logging(json_lines=True, stream=output)
        warnings.warn(f"the url has {secret}", stacklevel=1)
    assert "UserWarning: the url has" in output.getvalue()
    assert secret not in output.getvalue()


def test_a_stack_that_is_logged_is_masked(output: io.StringIO) -> None:
    logging.getLogger("library").error("failed", stack_info=True)  # on a line that holds correct-horse-battery
    assert "Stack (most recent call last)" in output.getvalue()
    assert SECRETS["plain"] not in output.getvalue()


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
        "redis://:hunter2@cache.example.test/0",
        "xapp-1-A0123-456-abcdef",
        "Incorrect API key provided: sk-secretsecretsecretsecret. You can find your key at …",
        "Incorrect API key provided: sk-abcdef********************secret.",
        "sk-proj-secretsecret_abcdef-123456",
        "sk-ant-api03-secretsecret-AA",
        "LANGSMITH lsv2_pt_abcdef0123456789_abcdef",
        "cookie: eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2VjcmV0c2VjcmV0",
        "x-api-key: hunter2",
        "{'X-Api-Key': 'hunter2'}",
        "[(b'x-api-key', b'hunter2'), (b'authorization', b'Bearer secretsecret')]",
        "X-Goog-Api-Key=hunter2",
        "AUTHORIZATION: basic abcdef",
        '{"app_secret": "hunter2", "x": 1}',
        "{'bot_token': 'hunter2'}",
        "client_secret=hunter2&x=1",
        "POST https://hooks.slack.com/services/T0001/B0001/secretsecret failed",
        "POST https://hooks.slack.com/actions/T0001/1/secretsecret",
        "https://open.feishu.cn/open-apis/bot/v2/hook/secretsecret-1",
        "ghp_abcdef0123456789abcdef",
    ],
)
def test_what_has_the_shape_of_a_token_is_masked_although_nobody_told(text: str) -> None:
    masked = Redactor()(text)
    for secret in ("ZZbb", "abcdef", "zyxwvu98", "eyJhb", "secretsecret", "hunter2"):
        assert secret not in masked
    assert Redactor()(masked) == masked, "what passes twice is not masked twice"


@pytest.mark.parametrize(
    "text",
    [
        "unauthorised: the token is not accepted",
        "channels.a.bot_token: is missing",
        "the risk-averse-desk-abcdefghijklmnop has 400 tokens, max_tokens=500, event_key=abc",
        "asked with hf_hub_download_of_everything",
        "https://hooks.example.com/services/T1/B1/abc",
    ],
)
def test_what_only_speaks_of_tokens_stays(text: str) -> None:
    assert Redactor()(text) == text


def test_a_long_line_is_masked_in_no_time() -> None:
    started = time.process_time()
    for piece in ("a", "x-", "'a", "://a", "a_", "eyJ", "authorization: "):
        Redactor()(piece * (100_000 // len(piece)))
    assert time.process_time() - started < 3


def test_secrets_in_the_environment_are_known_by_their_names() -> None:
    redactor = Redactor()
    redactor.learn_environment(
        {
            "OPENAI_API_KEY": "a-key-without-any-shape",
            "PGPASSWORD": "correct-horse-1",
            "LANG": "a-language-of-its-own",
            "LOCAL_MODEL_KEY": "none",
        }
    )
    told = "with a-key-without-any-shape and correct-horse-1, none in a-language-of-its-own"
    assert redactor(told) == "with [redacted] and [redacted], none in a-language-of-its-own"


def test_logging_masks_what_the_environment_holds(output: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL_API_KEY", "a-key-without-any-shape-2")
    configure_logging(json_lines=True, stream=output)
    logging.getLogger("graph").error("the model refused a-key-without-any-shape-2")
    assert "the model refused [redacted]" in output.getvalue()


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
