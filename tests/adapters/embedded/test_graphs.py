"""Which graphs can be served, what is said about those that cannot, and what an import costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from adapters.embedded import EmbeddedGateway, GraphLoadError
from tests.adapters.embedded.conftest import SAMPLES, Start
from tests.adapters.embedded.talking import text_of


@pytest.mark.parametrize("attribute", ["chat", "chat_builder", "chat_factory", "chat_async_factory"])
async def test_compiled_graphs_builders_and_functions_are_served(start: Start, attribute: str) -> None:
    talk = await (await start(attribute)).conversation()
    assert text_of(await talk.ask("hi")) == "re: hi"
    assert await talk.messages() == [("human", "hi"), ("ai", "re: hi")]


async def test_a_graph_in_a_file_is_served_with_the_modules_beside_it(start: Start, tmp_path: Path) -> None:
    (tmp_path / "words_of_my_agent.py").write_text("GREETING = 'from a file'\n")
    (tmp_path / "my agent.py").write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from langgraph.graph import START, StateGraph\n"
        "from words_of_my_agent import GREETING\n"
        "@dataclass\n"
        "class State:\n"
        "    text: str = ''\n"
        "class Holder:\n"
        "    builder = StateGraph(State)\n"
        "Holder.builder.add_node('n', lambda state: {'text': GREETING})\n"
        "Holder.builder.add_edge(START, 'n')\n"
    )
    running = await start(f"{tmp_path / 'my agent.py'}:Holder.builder")
    values = await running.client.runs.wait(None, "agent", input={})
    assert values == {"text": "from a file"}


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("chat", "graph 'chat': expected module:attribute or path/to/file.py:attribute"),
        (":chat", "expected module:attribute"),
        ("no_such_module_anywhere:graph", "importing no_such_module_anywhere failed: ModuleNotFoundError"),
        ("tests.adapters.embedded.broken_module:graph", "broken_module failed: KeyError: 'missing setting'"),
        (f"{SAMPLES}:missing", f"{SAMPLES} has no attribute 'missing'"),
        (f"{SAMPLES}:not_a_graph", "not_a_graph' is a dict; expected a compiled graph, a StateGraph, or a function"),
        (f"{SAMPLES}:broken_factory", "calling the function failed: OSError: no licence"),
        (f"{SAMPLES}:unfinished_builder", "does not compile: ValueError"),
        ("/no/such/file.py:graph", "/no/such/file.py does not exist"),
    ],
)
async def test_a_graph_that_cannot_be_served_is_named_with_the_reason(
    tmp_path: Path, name: str, complaint: str
) -> None:
    gateway = EmbeddedGateway(tmp_path, name)
    with pytest.raises(GraphLoadError) as error:
        await gateway.start()
    assert complaint in str(error.value)


def test_importing_the_package_imports_neither_langgraph_nor_a_web_server() -> None:
    program = (
        "import sys, pathlib\n"
        "from adapters.embedded import EmbeddedGateway\n"
        "EmbeddedGateway(pathlib.Path('x'))\n"
        "heavy = {'langgraph', 'langchain_core', 'starlette', 'uvicorn', 'pydantic', 'aiosqlite', 'orjson'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.strip() == "[]"
