"""Says in the words of a configuration file what pydantic found wrong with it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from config.settings import ChannelConfig, Settings

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

KeyPath = tuple[str | int, ...]

PLATFORMS: Mapping[str, type[BaseModel]] = MappingProxyType(
    {str(model.model_fields["platform"].default): model for model in get_args(get_args(ChannelConfig)[0])}
)

_EXPECTED: Mapping[str, str] = MappingProxyType(
    {
        "missing": "is missing",
        "union_tag_invalid": f"needs `platform:`, one of {', '.join(sorted(PLATFORMS))}",
        "union_tag_not_found": f"needs `platform:`, one of {', '.join(sorted(PLATFORMS))}",
        "tuple_type": "expected a list, such as [a, b]",
        "string_type": "expected a text; put numbers and the like in quotes",
        "int_type": "expected a whole number",
        "int_parsing": "expected a whole number",
        "int_from_float": "expected a whole number",
        "float_type": "expected a number",
        "float_parsing": "expected a number",
        "finite_number": "expected a number",
        "bool_type": "expected true or false",
        "bool_parsing": "expected true or false",
    }
)
"""By pydantic's name of the mistake."""

_BY_LIMIT: Mapping[str, Callable[[Mapping[str, object]], str]] = MappingProxyType(
    {
        "enum": lambda limit: f"expected {limit['expected']}",
        "literal_error": lambda limit: f"expected {limit['expected']}",
        "greater_than": lambda limit: f"expected more than {limit['gt']}",
        "greater_than_equal": lambda limit: f"expected at least {limit['ge']}",
        "less_than": lambda limit: f"expected less than {limit['lt']}",
        "less_than_equal": lambda limit: f"expected at most {limit['le']}",
        "too_long": lambda limit: f"expected at most {limit['max_length']} entries",
        "string_too_long": lambda limit: f"expected at most {limit['max_length']} characters",
    }
)


def place_of(detail: ErrorDetails) -> KeyPath:
    """The keys that lead to the mistake; without what pydantic adds to say which platform's settings it tried."""
    location = detail["loc"]
    if location[:1] == ("channels",):
        location = (*location[:2], *(part for part in location[2:3] if part not in PLATFORMS), *location[3:])
    return tuple(part for part in location if part != "[key]")


def explain(detail: ErrorDetails) -> str:
    """What is expected instead, without the value that is there."""
    kind, limit = detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        location = place_of(detail)
        near = difflib.get_close_matches(str(location[-1]), _keys_beside(location), n=1)
        return "unknown key" + (f"; did you mean `{near[0]}`?" if near else "")
    if kind in ("dict_type", "model_type", "model_attributes_type"):
        return _expected_keys(place_of(detail))
    if kind == "string_too_short":
        return "is empty" if limit["min_length"] == 1 else f"expected at least {limit['min_length']} characters"
    if kind in _BY_LIMIT:
        return _BY_LIMIT[kind](limit)
    message = detail["msg"].removeprefix("Value error, ")
    return _EXPECTED.get(kind, message.replace("Input should be", "expected"))


def _expected_keys(location: KeyPath) -> str:
    if location == ("channels",):
        return "expected the names of channels below it, or {} for none"
    if location[:-1] == ("channels",):
        return _EXPECTED["union_tag_not_found"]
    keys = _keys_beside((*location, ""))
    return f"expected keys below it{f', such as `{keys[0]}:`' if keys else ''}; without any, leave it out"


def _keys_beside(location: KeyPath) -> list[str]:
    """The keys that are allowed beside the one at `location`."""
    models: list[type[BaseModel]] = [Settings]
    for part in location[:-1]:
        models = [inner for model in models for inner in _inner_models(model, part)]
    return list(dict.fromkeys(name for model in models for name in model.model_fields))


def _inner_models(model: type[BaseModel], part: str | int) -> list[type[BaseModel]]:
    if model is Settings and part == "channels":
        return [_AnyChannel]
    if model is _AnyChannel:
        return list(PLATFORMS.values())
    field: FieldInfo | None = model.model_fields.get(str(part))
    annotation = field.annotation if field else None
    candidates = [annotation, *get_args(annotation)]
    return [kind for kind in candidates if isinstance(kind, type) and issubclass(kind, BaseModel)]


class _AnyChannel(BaseModel):
    """Stands for the level of channel names."""
