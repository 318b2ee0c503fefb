"""Loads the graph that the gateway serves from its name."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from adapters.embedded.errors import GraphLoadError

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.graph.state import StateGraph
    from langgraph.pregel import Pregel

    Graph = Pregel[Any, Any, Any, Any]
    Builder = StateGraph[Any, Any, Any, Any]


async def load(name: str, checkpointer: BaseCheckpointSaver[str]) -> Graph:
    """The graph called `name`, ready to run and keeping its state in `checkpointer`.

    `name` is `module:attribute` or `path/to/file.py:attribute`; modules are looked for in the working directory too.
    The attribute is a compiled graph, a StateGraph, or a function (plain or async, taking nothing or a config) that
    returns one of them; a function is called once. A checkpointer that the graph was compiled with is replaced.

    Raises:
        GraphLoadError: the name is malformed, cannot be imported, or is no graph.
    """
    value = await asyncio.to_thread(_attribute, name)
    if inspect.isfunction(value) or inspect.ismethod(value):
        try:
            value = value({"configurable": {}}) if inspect.signature(value).parameters else value()
            if inspect.isawaitable(value):
                value = await value
        except Exception as error:
            raise GraphLoadError(f"graph {name!r}: calling the function failed: {_reason(error)}") from error
    return _with_checkpointer(name, value, checkpointer)


def _with_checkpointer(name: str, value: object, checkpointer: BaseCheckpointSaver[str]) -> Graph:
    from langgraph.graph.state import StateGraph
    from langgraph.pregel import Pregel

    if isinstance(value, Pregel):
        return value.copy({"checkpointer": checkpointer})
    if isinstance(value, StateGraph):
        try:
            return value.compile(checkpointer=checkpointer)
        except ValueError as error:
            raise GraphLoadError(f"graph {name!r} does not compile: {_reason(error)}") from error
    raise GraphLoadError(
        f"graph {name!r} is a {type(value).__name__}; expected a compiled graph, a StateGraph, or a function that "
        "returns one of them"
    )


def _attribute(name: str) -> object:
    source, colon, attribute = name.rpartition(":")
    if not colon or not source or not attribute:
        raise GraphLoadError(f"graph {name!r}: expected module:attribute or path/to/file.py:attribute")
    try:
        module = _file(Path(source)) if source.endswith(".py") else _module(source)
    except GraphLoadError:
        raise
    except Exception as error:
        raise GraphLoadError(f"graph {name!r}: importing {source} failed: {_reason(error)}") from error
    value: object = module
    for part in attribute.split("."):
        if not hasattr(value, part):
            raise GraphLoadError(f"graph {name!r}: {source} has no attribute {attribute!r}")
        value = getattr(value, part)
    return value


def _module(source: str) -> ModuleType:
    _importable(os.getcwd())
    return importlib.import_module(source)


def _file(path: Path) -> ModuleType:
    path = path.expanduser().resolve()
    if not path.is_file():
        raise GraphLoadError(f"graph file {path} does not exist")
    _importable(str(path.parent))  # the modules beside it
    name = f"channel_bridge_graph_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise GraphLoadError(f"graph file {path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pydantic look their module up while it is being executed
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _importable(folder: str) -> None:
    # At the end: a file of the user's must not take the place of an installed package.
    if folder not in sys.path:
        sys.path.append(folder)


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
