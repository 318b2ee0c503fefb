"""Reads a configuration file: YAML, with `$NAME` taken from the environment and `file:PATH` from a file.

Every mistake becomes one `Problem` that names the file, the line, the key and what is expected. Values never appear
in a problem: they may be secrets.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import yaml
from pydantic import BaseModel, JsonValue, ValidationError
from pydantic.fields import FieldInfo

from config.settings import ChannelConfig, Settings

_VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
KeyPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in a configuration file."""

    file: str
    key: str
    message: str
    line: int | None = None

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        return f"{where}: {self.key}: {self.message}" if self.key else f"{where}: {self.message}"


class ConfigError(Exception):
    """The configuration cannot be used. `problems` holds every mistake found."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class _Document:
    """A parsed file: plain values, and the line of every key."""

    value: JsonValue
    lines: Mapping[KeyPath, int]


def load_settings(path: Path, environment: Mapping[str, str] | None = None) -> Settings:
    """The settings in `path`. Raises `ConfigError` with every mistake found."""
    environment = os.environ if environment is None else environment
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a UTF-8 text file"
        raise ConfigError([Problem(str(path), "", f"cannot be read: {reason}")]) from None
    return parse_settings(text, str(path), path.parent, environment)


def parse_settings(text: str, file: str, folder: Path, environment: Mapping[str, str]) -> Settings:
    """The settings in `text`; `file` names it in problems, `file:` values are relative to `folder`."""
    problems: list[Problem] = []
    document = _parse_yaml(text, file, problems)
    if problems:
        raise ConfigError(problems)
    value = document.value if document.value is not None else {}
    if not isinstance(value, dict):
        raise ConfigError([Problem(file, "", "expected keys such as `gateway:` and `channels:`")])
    report = _Reporter(file, document.lines, problems)
    resolved = _resolve(_without_idle_channels(value, folder, environment), (), folder, environment, report)
    try:
        settings = Settings.model_validate(resolved)
    except ValidationError as error:
        already = {problem.key for problem in problems}
        for detail in error.errors(include_url=False, include_input=False):
            location = tuple(part for part in detail["loc"] if not _is_union_tag(part, detail["loc"]))
            if _dotted(location) not in already:
                report(location, _explain(detail["type"], detail["msg"], location))
        raise ConfigError(problems) from None
    if problems:
        raise ConfigError(problems)
    return settings


class _Reporter:
    def __init__(self, file: str, lines: Mapping[KeyPath, int], problems: list[Problem]) -> None:
        self._file = file
        self._lines = lines
        self._problems = problems

    def __call__(self, location: KeyPath, message: str) -> None:
        line = next(
            (self._lines[location[:n]] for n in range(len(location), 0, -1) if location[:n] in self._lines), None
        )
        self._problems.append(Problem(self._file, _dotted(location), message, line))


def _parse_yaml(text: str, file: str, problems: list[Problem]) -> _Document:
    lines: dict[KeyPath, int] = {}
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if node is not None:
            for path, line, duplicate in _keys(node, ()):
                if duplicate:
                    problems.append(Problem(file, _dotted(path), "appears twice; keep one", line))
                lines[path] = line
        return _Document(yaml.safe_load(text), lines)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        problems.append(
            Problem(file, "", f"not valid YAML: {error.problem or 'cannot be parsed'}", mark.line + 1 if mark else None)
        )
    except yaml.YAMLError:
        problems.append(Problem(file, "", "not valid YAML"))
    return _Document(None, lines)


def _keys(node: yaml.Node, path: KeyPath) -> Iterator[tuple[KeyPath, int, bool]]:
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            child = (*path, str(key.value))
            yield child, key.start_mark.line + 1, key.value in seen
            seen.add(key.value)
            yield from _keys(value, child)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield (*path, index), item.start_mark.line + 1, False
            yield from _keys(item, (*path, index))


def _resolve(
    value: JsonValue, path: KeyPath, folder: Path, environment: Mapping[str, str], report: _Reporter
) -> JsonValue:
    if isinstance(value, dict):
        return {str(key): _resolve(item, (*path, str(key)), folder, environment, report) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolve(item, (*path, index), folder, environment, report) for index, item in enumerate(value)]
    if not isinstance(value, str):
        return value
    if value.startswith("$$"):
        return value[1:]
    if match := _VARIABLE.fullmatch(value):
        name = match.group(1)
        found = environment.get(name)
        if not found:
            report(path, f"the environment variable {name} is {'empty' if found == '' else 'not set'}")
        return found or ""
    if value.startswith("file:"):
        secret = folder / value.removeprefix("file:")
        try:
            return secret.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not a UTF-8 text file"
            report(path, f"the file {secret} cannot be read: {reason}")
            return ""
    return value


def _without_idle_channels(value: dict[str, JsonValue], folder: Path, environment: Mapping[str, str]) -> JsonValue:
    """The document without the channels that are switched off and whose secrets are not there."""
    channels = value.get("channels")
    if not isinstance(channels, dict):
        return value
    kept = {
        name: channel
        for name, channel in channels.items()
        if not (isinstance(channel, dict) and channel.get("enabled") is False)
        or _is_resolvable(channel, folder, environment)
    }
    return {**value, "channels": kept}


def _is_resolvable(value: JsonValue, folder: Path, environment: Mapping[str, str]) -> bool:
    problems: list[Problem] = []
    _resolve(value, (), folder, environment, _Reporter("", {}, problems))
    return not problems


def _is_union_tag(part: str | int, location: KeyPath) -> bool:
    """Whether pydantic added this part to say which platform's settings it tried."""
    return part in _PLATFORMS and location[:1] == ("channels",) and len(location) > 2 and location[2] == part


def _models() -> dict[str, type[BaseModel]]:
    union = get_args(ChannelConfig)[0]
    return {str(model.model_fields["platform"].default): model for model in get_args(union)}


_PLATFORMS = _models()


def _explain(kind: str, message: str, location: KeyPath) -> str:
    match kind:
        case "missing":
            return "is missing"
        case "extra_forbidden":
            near = difflib.get_close_matches(str(location[-1]), _known_keys(location), n=1)
            return "unknown key" + (f"; did you mean `{near[0]}`?" if near else "")
        case "union_tag_invalid" | "union_tag_not_found":
            return f"needs `platform:`, one of {', '.join(sorted(_PLATFORMS))}"
        case _:
            return message.removeprefix("Value error, ")


def _known_keys(location: KeyPath) -> list[str]:
    """The keys that are allowed beside the one at `location`."""
    models: list[type[BaseModel]] = [Settings]
    for part in location[:-1]:
        models = [inner for model in models for inner in _inner_models(model, part)]
    return sorted({name for model in models for name in model.model_fields})


def _inner_models(model: type[BaseModel], part: str | int) -> list[type[BaseModel]]:
    if model is Settings and part == "channels":
        return [_AnyChannel]
    if model is _AnyChannel:
        return list(_PLATFORMS.values())
    field: FieldInfo | None = model.model_fields.get(str(part))
    annotation = field.annotation if field else None
    candidates = [annotation, *get_args(annotation)]
    return [kind for kind in candidates if isinstance(kind, type) and issubclass(kind, BaseModel)]


class _AnyChannel(BaseModel):
    """Stands for the level of channel names."""


def _dotted(location: KeyPath) -> str:
    return ".".join(str(part) for part in location)
