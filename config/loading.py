"""Reads a configuration file: YAML, with `$NAME` taken from the environment and `file:PATH` from a file.

Every mistake becomes one `Problem` that names the file, the line, the key and what is expected. Values never appear
in a problem: they may be secrets.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic import JsonValue, ValidationError

from config.explaining import KeyPath, explain, place_of
from config.review import clashes, doubts
from config.settings import Settings

_VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_OTHER_VARIABLE = re.compile(r"\$\{[A-Za-z_]|\$[A-Z][A-Z0-9_]+")
"""What looks like a variable to a shell and to other programs, wherever it stands."""
_FOR_PEOPLE = frozenset({"title", "greeting", "suggestions", "home_text", "suggested_prompts", "run"})
"""Texts for readers and for the agent: they may well speak of $NAMES."""


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


def load_settings(path: Path, environment: Mapping[str, str] | None = None) -> Settings:
    """The settings in `path`. Raises `ConfigError` with every mistake found."""
    return review_settings(path, environment)[0]


def review_settings(path: Path, environment: Mapping[str, str] | None = None) -> tuple[Settings, list[Problem]]:
    """The settings in `path`, and why some of its channels will be of no use. Raises `ConfigError`."""
    environment = os.environ if environment is None else environment
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([Problem(str(path), "", f"cannot be read: {_reason(error)}")]) from None
    settings, report = _read(text, str(path), path.parent, environment)
    for location, message in doubts(settings):
        report(location, message)
    return settings, report.problems


def parse_settings(text: str, file: str, folder: Path, environment: Mapping[str, str]) -> Settings:
    """The settings in `text`; `file` names it in problems, `file:` values are relative to `folder`."""
    return _read(text, file, folder, environment)[0]


class _Reporter:
    """Collects problems, each with the line of its key, or of the nearest key around it."""

    def __init__(self, file: str) -> None:
        self._file = file
        self.lines: dict[KeyPath, int] = {}
        self.problems: list[Problem] = []

    def __call__(self, location: KeyPath, message: str) -> None:
        line = next((self.lines[location[:n]] for n in range(len(location), 0, -1) if location[:n] in self.lines), None)
        self.problems.append(Problem(self._file, _dotted(location), message, line))

    def about_yaml(self, message: str, line: int | None = None) -> None:
        self.problems.append(Problem(self._file, "", message, line))

    def raise_any(self) -> None:
        if self.problems:
            raise ConfigError(self.problems)


def _read(text: str, file: str, folder: Path, environment: Mapping[str, str]) -> tuple[Settings, _Reporter]:
    report = _Reporter(file)
    document = _parse_yaml(text, report)
    report.raise_any()
    value = document if document is not None else {}
    if not isinstance(value, dict):
        raise ConfigError([Problem(file, "", "expected keys such as `gateway:` and `channels:`")])
    resolve = _Resolver(folder, environment, report)
    resolved = resolve(_without_idle_channels(value, folder, environment), ())
    try:
        settings = Settings.model_validate(resolved)
    except ValidationError as error:
        already = {problem.key for problem in report.problems}
        for detail in error.errors(include_url=False, include_input=False):
            location = place_of(detail)
            if _dotted(location) not in already:
                report(location, explain(detail))
        raise ConfigError(report.problems) from None
    for location, message in clashes(settings):
        report(location, message)
    report.raise_any()
    return settings, report


# ---------------------------------------------------------------- YAML


class _Loader(yaml.SafeLoader):
    """Reads what looks like a date as the text that it is: no setting is a date."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, shape) for tag, shape in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _parse_yaml(text: str, report: _Reporter) -> JsonValue:
    try:
        node = yaml.compose(text, Loader=_Loader)
        if node is not None:
            _note_keys(node, (), report)
        if report.problems:
            return None
        value: JsonValue = yaml.load(text, Loader=_Loader)
        return value
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        reason = error.problem or "cannot be parsed"
        report.about_yaml(f"not valid YAML: {reason}", mark.line + 1 if mark else None)
    except yaml.reader.ReaderError as error:
        report.about_yaml(f"not valid YAML: {error.reason}", text.count("\n", 0, error.position) + 1)
    except RecursionError:
        report.about_yaml("not valid YAML: nested too deeply")
    except (yaml.YAMLError, ValueError):
        report.about_yaml("not valid YAML: a value is not what its tag says")
    return None


def _note_keys(node: yaml.Node, path: KeyPath, report: _Reporter) -> None:
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                report.lines.setdefault(path, line)
                report(path, "a key has to be a word; fill in templates such as {{ NAME }}, or put the text in quotes")
                continue
            child = (*path, str(key.value))
            report.lines[child] = line
            if key.value in seen:
                report(child, "appears twice; keep one")
            seen.add(key.value)
            _note_keys(value, child, report)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            report.lines[*path, index] = item.start_mark.line + 1
            _note_keys(item, (*path, index), report)


# ---------------------------------------------------------------- the environment and files


@dataclass(frozen=True, slots=True)
class _Resolver:
    """Puts the values of variables and files in the place of what names them."""

    folder: Path
    environment: Mapping[str, str]
    report: Callable[[KeyPath, str], None]

    def __call__(self, value: JsonValue, path: KeyPath) -> JsonValue:
        if isinstance(value, dict):
            return {str(key): self(item, (*path, str(key))) for key, item in value.items()}
        if isinstance(value, list):
            return [self(item, (*path, index)) for index, item in enumerate(value)]
        return self._text(value, path) if isinstance(value, str) else value

    def _text(self, value: str, path: KeyPath) -> str:
        if value.startswith("$$"):
            return value[1:]
        if match := _VARIABLE.fullmatch(value):
            return self._variable(match.group(1), path)
        if value.startswith("file:"):
            return self._file(value.removeprefix("file:"), path)
        if _OTHER_VARIABLE.search(value) and not _FOR_PEOPLE.intersection(path[2:]):
            self.report(
                path, "write $NAME alone, without braces: a variable is filled in only where it is the whole value"
            )
        return value

    def _variable(self, name: str, path: KeyPath) -> str:
        found = self.environment.get(name)
        if not found:
            self.report(path, f"the environment variable {name} is {'empty' if found == '' else 'not set'}")
        return found or ""

    def _file(self, name: str, path: KeyPath) -> str:
        file = self.folder / name
        try:
            found = file.read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            self.report(path, f"the file {file} cannot be read: {_reason(error)}")
            return ""
        if not found:
            self.report(path, f"the file {file} is empty")
        return found


def _without_idle_channels(value: dict[str, JsonValue], folder: Path, environment: Mapping[str, str]) -> JsonValue:
    """The document without the channels that are switched off and whose secrets are not there."""
    channels = value.get("channels")
    if not isinstance(channels, dict):
        return value
    kept = {
        name: channel
        for name, channel in channels.items()
        if not (isinstance(channel, dict) and channel.get("enabled") is False)
        or _is_complete(channel, folder, environment)
    }
    return {**value, "channels": kept}


def _is_complete(channel: dict[str, JsonValue], folder: Path, environment: Mapping[str, str]) -> bool:
    report = _Reporter("")
    resolved = _Resolver(folder, environment, report)(channel, ())
    return not report.problems and isinstance(resolved, dict) and "" not in resolved.values()


def _reason(error: Exception) -> str:
    return str(error.strerror) if isinstance(error, OSError) else "not a UTF-8 text file"


def _dotted(location: KeyPath) -> str:
    return ".".join(str(part) for part in location)
