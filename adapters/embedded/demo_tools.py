"""The demo agent's tools. They need no network."""

from __future__ import annotations

import ast
import asyncio
import math
import operator
import os
import re
from collections.abc import Callable

from langchain_core.tools import BaseTool, tool

from adapters.embedded.demo_texts import HELP_PAGES

_DEFAULT_PACE = 0.028  # about 35 pieces a second


def pace() -> float:
    """Seconds between two pieces of text: CHANNEL_BRIDGE_DEMO_PACE; 0 also takes the waiting out of slow tools."""
    try:
        return max(0.0, float(os.environ.get("CHANNEL_BRIDGE_DEMO_PACE", _DEFAULT_PACE)))
    except ValueError:
        return _DEFAULT_PACE


# City: sky, temperature in °C, wind in km/h. Invented.
WEATHER: dict[str, tuple[str, int, int]] = {
    "Amsterdam": ("🌧️ light rain", 14, 24),
    "Beijing": ("☀️ clear", 21, 11),
    "Berlin": ("⛅ partly cloudy", 17, 15),
    "Cairo": ("☀️ clear", 31, 9),
    "Lisbon": ("☀️ clear", 24, 18),
    "London": ("🌫️ misty", 13, 8),
    "Nairobi": ("⛅ partly cloudy", 22, 12),
    "New York": ("🌤️ mostly sunny", 19, 20),
    "Paris": ("🌦️ showers", 16, 17),
    "Reykjavik": ("🌬️ windy", 6, 41),
    "San Francisco": ("🌁 fog", 15, 22),
    "São Paulo": ("⛈️ thunderstorm", 26, 14),
    "Shanghai": ("⛅ partly cloudy", 23, 16),
    "Singapore": ("⛈️ thunderstorm", 30, 10),
    "Tokyo": ("🌤️ mostly sunny", 20, 13),
}
CITY_NAMES: dict[str, str] = {city.lower(): city for city in WEATHER} | {
    "北京": "Beijing",
    "上海": "Shanghai",
    "东京": "Tokyo",
    "東京": "Tokyo",
    "巴黎": "Paris",
    "sao paulo": "São Paulo",
}

_Number = int | float
_BINARY: dict[type[ast.operator], Callable[[_Number, _Number], _Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_LARGEST = 10**30
_LONGEST = 200


def calculate(expression: str) -> str:
    """The value of an arithmetic expression. Raises ValueError when it is not one, or too large."""
    text = expression.strip().replace("^", "**").replace("×", "*").replace("÷", "/")
    if len(text) > _LONGEST:
        raise ValueError("that expression is too long")
    try:
        value = _value(ast.parse(text, mode="eval").body)
    except ZeroDivisionError:
        raise ValueError("division by zero") from None
    except (SyntaxError, OverflowError, RecursionError):
        raise ValueError(f"cannot calculate {expression!r}") from None
    return f"{value:,}" if isinstance(value, int) else f"{value:,.10g}"


def _value(node: ast.expr) -> _Number:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            result = number
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            result = -_value(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            result = _value(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            result = _power(_value(left), _value(right))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            result = _BINARY[type(op)](_value(left), _value(right))
        case _:
            raise ValueError("only numbers and + - * / % ^ ( ) can be calculated")
    if not math.isfinite(result) or abs(result) > _LARGEST:
        raise ValueError("that number is too large")
    return result


def _power(base: _Number, exponent: _Number) -> _Number:
    if abs(exponent) > 100 or (base < 0 and exponent != int(exponent)):
        raise ValueError("that power is too large")
    result: _Number = base**exponent
    return result


@tool
def calculator(expression: str) -> str:
    """Calculate an arithmetic expression, such as (3 + 4) * 5."""
    return calculate(expression)


@tool
def weather(city: str) -> str:
    """The weather in a city, now."""
    known = CITY_NAMES.get(city.strip().lower())
    if known is None:
        raise ValueError(f"no weather for {city!r}; known are {', '.join(WEATHER)}")
    sky, degrees, wind = WEATHER[known]
    return f"{known}: {sky}, {degrees} °C, wind {wind} km/h"


@tool
def search_help(query: str) -> str:
    """Search the help of Channel Bridge: commands, settings, models."""
    words = {word for word in re.findall(r"\w+", query.lower()) if len(word) > 2}
    ranked = sorted(HELP_PAGES, key=lambda page: -len(words & set(re.findall(r"\w+", " ".join(page).lower()))))
    return "\n".join(f"{title}: {text}" for title, text in ranked[:2])


@tool
async def run_job(name: str, seconds: float = 6.0) -> str:
    """Run a job that takes a while and says nothing meanwhile."""
    await asyncio.sleep(min(seconds, 30.0) if pace() > 0 else 0)
    return f"The job “{name}” is done."


@tool
def ask_user(question: str, options: list[str] | None = None) -> str:
    """Ask the user a question when something is unclear, with answers to choose from, and wait for the answer."""
    raise RuntimeError("answered by the graph's own node")


@tool
def task(description: str) -> str:
    """Give a piece of research to a sub-agent and get its report."""
    raise RuntimeError("done by the graph's sub-agent")


# Run by the `tool` node; `ask_user` and `task` have nodes of their own.
PLAIN_TOOLS: dict[str, BaseTool] = {each.name: each for each in (calculator, weather, search_help, run_job)}
ALL_TOOLS: tuple[BaseTool, ...] = (*PLAIN_TOOLS.values(), ask_user, task)
