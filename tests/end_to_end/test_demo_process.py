"""`channel-bridge demo` as somebody starts it, tries it and ends it."""

from __future__ import annotations

import re
import signal
import socket
import time
from pathlib import Path

from tests.adapters.embedded.test_demo import _completion, model_server
from tests.demo import BridgeProcess
from tests.end_to_end.visitor import visiting

_GREETING = re.compile(r"\s*Channel Bridge demo:  (http://127\.0\.0\.1:(\d+))\s+Open it in a browser and type\. .*\s*")
_STARTING = "Starting the demo…\n"


async def test_it_says_where_it_is_answers_and_ends_in_silence_while_an_answer_is_read(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with BridgeProcess("demo", "--port", str(port), folder=tmp_path) as demo:
            greeting = _GREETING.fullmatch(demo.output.read_text())
            assert greeting is not None
            assert greeting[1] == demo.url
            assert greeting[2] != str(port), "somebody else has this one"
            async with visiting(demo.url) as visitor, visiting(demo.url) as other:
                await visitor.say("weather in Paris and Tokyo")
                assert "It is warmest in Tokyo" in await visitor.answered()
                await visitor.say("tell me a long story")
                await visitor.until(lambda: "river" in visitor.newest)
                assert other.replies == []
                began = time.monotonic()
                demo.send(signal.SIGINT)
                assert await demo.wait() == 0
                assert time.monotonic() - began < 5
            assert demo.output.read_text() == greeting[0]
            assert demo.log.read_text() == _STARTING


async def test_a_second_one_in_the_same_folder_says_what_to_do(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    async with BridgeProcess("demo", "--port", "0", "--data", data, folder=tmp_path / "first"):
        second = BridgeProcess("demo", "--port", "0", "--data", data, folder=tmp_path / "second")
        try:
            await second.begin()
            assert await second.wait() == 1
        finally:
            await second.kill()
        assert second.output.read_text() == ""
        said = second.log.read_text()
        assert "in use" in said
        assert "--data FOLDER" in said
        assert "Traceback" not in said


async def test_with_a_key_a_model_answers_through_the_same_page(tmp_path: Path) -> None:
    answer = _completion({"role": "assistant", "content": "Hello from a mod"}, {"content": "el."})
    async with model_server(answer) as (url, requests):
        environment = {"OPENAI_API_KEY": "sk-secret-of-the-test", "OPENAI_BASE_URL": url, "OPENAI_MODEL": "my-model"}
        async with (
            BridgeProcess("demo", "--port", "0", "--verbose", folder=tmp_path, environment=environment) as demo,
            visiting(demo.url) as visitor,
        ):
            await visitor.say("Hello there")
            assert (await visitor.answered(60)).strip() == "Hello from a model."
            assert "sk-secret" not in demo.log.read_text()
        assert requests[0]["model"] == "my-model"
        assert requests[0]["messages"][-1]["content"] == "Hello there"
