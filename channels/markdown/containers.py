"""The marks that put a line inside block quotes and list items."""

from __future__ import annotations

from channels.markdown.blocks import Container, Containers


def line_prefix(containers: Containers) -> str:
    """What a further line inside `containers` starts with."""
    return "".join(" " * container.width if container.width else "> " for container in containers)


def needs_opening(containers: Containers, *, is_text: bool) -> bool:
    """Whether what is taken out of `containers` reads differently unless they are opened again before it.

    Items of a list whose content starts less than four columns in need nothing, mostly: their lines read the same
    without them. But after a paragraph's text (`is_text`) the next number of an ordered list would be text too.
    """
    return any(not container.width for container in containers) or _wants_marks(containers, 0, is_text)


def opening_prefix(containers: Containers, *, indent: int = 0, is_text: bool = False) -> str:
    """Marks that open `containers` anew, for the first line of a text whose further lines go on inside them.

    List items become items again where spaces would not do; the content, which is `indent` columns in, keeps its
    column.
    """
    parts: list[str] = []
    items: Containers = ()
    for container in containers:
        if container.width:
            items += (container,)
        else:
            parts += [_open_items(items, 0, is_text=False), "> "]
            items = ()
    parts.append(_open_items(items, indent, is_text=is_text))
    return "".join(parts)


def _wants_marks(items: Containers, indent: int, is_text: bool) -> bool:
    return sum(item.width for item in items) + indent >= 4 or (
        is_text and any(item.number is not None for item in items)
    )


def _open_items(items: Containers, indent: int, *, is_text: bool) -> str:
    if _wants_marks(items, indent, is_text):
        return "".join(map(_open_item, items))
    return line_prefix(items)


def _open_item(item: Container) -> str:
    number = f"{item.number}." if item.number is not None else ""
    if number and 1 <= item.width - len(number) <= 4:
        return number.ljust(item.width)
    return _bullet(item.width)


def _bullet(width: int) -> str:
    """A bullet, or more of them, whose content starts after `width` columns (2 or more)."""
    if width <= 5:
        return "-".ljust(width)
    if width <= 8:
        return " " * (width - 5) + "-    "
    first = 8 if width >= 10 else 4
    return _bullet(first) + _bullet(width - first)
