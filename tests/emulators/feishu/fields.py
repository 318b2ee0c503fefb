"""Reading the fields of a request, refusing what the gateway would refuse."""

from __future__ import annotations

from tests.emulators.feishu.refusals import Json, Refusal


class Fields:
    """Typed access to the arguments of one call."""

    def __init__(self, args: Json) -> None:
        self._args = args

    def text(self, name: str, longest: int | None = None) -> str:
        """A required, non-empty string of at most `longest` characters."""
        value = self._args.get(name)
        if not isinstance(value, str) or not value:
            raise Refusal(99992402, f"{name} is required, a non-empty string")
        if longest is not None and len(value) > longest:
            raise Refusal(99992402, f"{name} has {len(value)} characters, {longest} are allowed")
        return value

    def optional_text(self, name: str, longest: int) -> str | None:
        return None if self._args.get(name) in (None, "") else self.text(name, longest)

    def number(self, name: str, least: int, most: int) -> int:
        value = self._args.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise Refusal(99992402, f"{name} is required, an integer from {least} to {most}, not {value!r}")
        return value

    def object(self, name: str) -> Json:
        value = self._args.get(name)
        if not isinstance(value, dict):
            raise Refusal(99992402, f"{name} is required, an object")
        return value

    def objects(self, name: str) -> list[Json]:
        value = self._args.get(name)
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise Refusal(99992402, f"{name} is required, a list of objects")
        return value
