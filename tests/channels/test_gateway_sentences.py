"""Which sentence a reader gets for a run that failed: by what model providers call it, not by what looks alike."""

from __future__ import annotations

import pytest

from channels.gateway.sentences import run_failed

OTHER = run_failed("")


@pytest.mark.parametrize(
    ("words", "causes"),
    [
        (
            "over its limit",
            [
                "RateLimitError Error code: 429 - {'error': {'message': 'Rate limit reached'}}",
                "openai.RateLimitError insufficient_quota",
                "ResourceExhausted 429 You exceeded your current quota",
                "OverloadedError",
                "APIStatusError {'type': 'overloaded_error'}",
                "HTTPStatusError Client error '429 Too Many Requests'",
                "ModelError status_code=429",
            ],
        ),
        ("too many steps", ["GraphRecursionError Recursion limit of 25 reached without hitting a stop condition"]),
        (
            "too long for the model",
            [
                "BadRequestError context_length_exceeded",
                "BadRequestError This model's maximum context length is 8192 tokens",
                "ContextWindowExceededError",
            ],
        ),
        ("took too long", ["timeout", "APITimeoutError Request timed out.", "ReadTimeout", "asyncio.TimeoutError"]),
        (
            "key is not accepted",
            [
                "AuthenticationError Error code: 401 - {'error': …}",
                "PermissionDeniedError Error code: 403",
                "APIError Incorrect API key provided: sk-…",
                "ResponseError unauthorized (status code: 401)",
            ],
        ),
        ("declined", ["BadRequestError content_filter", "ContentFilterFinishReasonError"]),
    ],
)
def test_what_a_model_provider_says_becomes_a_sentence_that_helps(words: str, causes: list[str]) -> None:
    for cause in causes:
        assert words in run_failed(cause), cause


@pytest.mark.parametrize(
    "cause",
    [
        "ValueError order 14015 is unknown",
        "ValueError order 401 is unknown",
        "ValueError there are 429 rows",
        "KeyError quotation",
        "ToolError PermissionDenied: /srv/reports",
        "SMTPAuthenticationError 535",
        "RecursionError maximum recursion depth exceeded",
        "ValueError the timeouts table is empty",
    ],
)
def test_words_and_numbers_that_only_look_alike_blame_nobody(cause: str) -> None:
    assert run_failed(cause) == OTHER
