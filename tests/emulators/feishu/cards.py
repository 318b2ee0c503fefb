"""Card JSON 2.0: what the platform accepts, and how to find one's way in it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from tests.emulators.feishu.limits import Limits
from tests.emulators.feishu.markdown import images_in, people_in, tables_in
from tests.emulators.feishu.refusals import CardFault, Json

_COMMON = {"tag", "element_id", "margin"}
_LAYOUT = {"direction", "padding", "horizontal_spacing", "horizontal_align", "vertical_spacing", "vertical_align"}
_INPUT = {"disabled", "disabled_tips", "behaviors", "confirm", "name", "required", "value", "width"}

# The properties of each component; the platform refuses a card with any other. None: not checked here.
PROPERTIES: dict[str, set[str] | None] = {
    "markdown": _COMMON | {"content", "text_align", "text_size", "icon", "i18n_content"},
    "div": _COMMON | {"text", "icon", "width"},
    "hr": _COMMON,
    "img": _COMMON
    | {"img_key", "alt", "title", "corner_radius", "scale_type", "size", "transparent", "preview", "i18n_img_key"},
    "button": _COMMON | _INPUT | {"type", "size", "text", "icon", "hover_tips", "form_action_type", "action_type"},
    "input": _COMMON
    | _INPUT
    | {"placeholder", "default_value", "max_length", "input_type", "rows", "auto_resize", "max_rows", "show_icon"}
    | {"label", "label_position"},
    "form": _COMMON | _LAYOUT | {"name", "elements"},
    "collapsible_panel": _COMMON | _LAYOUT | {"expanded", "background_color", "header", "border", "elements"},
    "column_set": _COMMON
    | {"horizontal_spacing", "horizontal_align", "flex_mode", "background_style", "action", "columns"},
    "column": _COMMON | _LAYOUT | {"background_style", "width", "weight", "elements", "action"},
    "interactive_container": _COMMON
    | _LAYOUT
    | {"elements", "width", "height", "background_style", "has_border", "border_color", "corner_radius", "behaviors"}
    | {"hover_tips", "disabled", "disabled_tips", "confirm"},
    "table": _COMMON
    | {"page_size", "row_height", "row_max_height", "freeze_first_column", "header_style", "columns", "rows"},
    "img_combination": None,
    "person": None,
    "person_list": None,
    "chart": None,
    "audio": None,
    "overflow": None,
    "select_static": None,
    "multi_select_static": None,
    "select_person": None,
    "multi_select_person": None,
    "date_picker": None,
    "picker_time": None,
    "picker_datetime": None,
    "select_img": None,
    "checker": None,
}
_GONE_IN_V2 = {"note", "action"}
_TEXT = {"tag", "element_id", "content", "i18n_content", "text_size", "text_align", "text_color", "lines"}
_ROOT = {"schema", "config", "card_link", "header", "body"}
_CONFIG = {
    *{"streaming_mode", "streaming_config", "summary", "locales", "enable_forward", "update_multi", "width_mode"},
    *{"use_custom_translation", "enable_forward_interaction", "style"},
}
_HEADER = {"title", "subtitle", "text_tag_list", "i18n_text_tag_list", "template", "icon", "padding"}
_INTERACTIVE = {tag for tag in PROPERTIES if tag.startswith(("select", "multi_select", "picker"))} | {
    *{"button", "input", "date_picker", "checker", "overflow"}
}
_ELEMENT_ID = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,19}")
_OPAQUE = {"behaviors", "value", "rows", "chart_spec", "config"}
TEXT_TAGS = ("markdown", "plain_text", "lark_md")


class Known(Protocol):
    """What the platform can look up while it checks a card."""

    def knows_user(self, user_id: str) -> bool: ...

    def knows_image(self, image_key: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class TextPart:
    """One text a reader can see in a card's body; `panel` names the collapsible panel it is folded into."""

    key: str
    text: str
    panel: str | None


def parse(text: str) -> Json:
    """The card in a JSON string."""
    if not text.strip():
        raise CardFault(300307, "card is empty")
    try:
        card = json.loads(text)
    except ValueError:
        raise CardFault(200220, "not JSON") from None
    if not isinstance(card, dict) or not card:
        raise CardFault(300307, "card is empty")
    return card


def size_of(card: Json) -> int:
    """Bytes of the card as UTF-8 JSON."""
    return len(json.dumps(card, ensure_ascii=False, separators=(",", ":")).encode())


def nodes(part: Any) -> Iterator[Json]:
    """Every element and text in a card or a part of it, outermost first."""
    if isinstance(part, list):
        for item in part:
            yield from nodes(item)
    elif isinstance(part, dict):
        if "tag" in part:
            yield part
        for key, value in part.items():
            if key not in _OPAQUE:
                yield from nodes(value)


def find(card: Json, element_id: str) -> Json | None:
    return next((node for node in nodes(card) if node.get("element_id") == element_id), None)


def siblings(card: Any, element_id: str) -> tuple[list[Json], int] | None:
    """The list that holds an element, and its place in it."""
    if isinstance(card, list):
        for index, item in enumerate(card):
            if isinstance(item, dict) and item.get("element_id") == element_id:
                return card, index
    parts = card if isinstance(card, list) else card.values() if isinstance(card, dict) else ()
    for part in parts:
        if (found := siblings(part, element_id)) is not None:
            return found
    return None


def texts(card: Json) -> list[TextPart]:
    """The texts of the body, in reading order, without those on buttons and inputs."""
    parts: list[TextPart] = []

    def visit(elements: Any, path: str, panel: str | None) -> None:
        for index, element in enumerate(elements or []):
            key = str(element.get("element_id") or f"{path}.{index}")
            match element.get("tag"):
                case "markdown":
                    parts.append(TextPart(key, str(element.get("content", "")), panel))
                case "div":
                    text = element.get("text") or {}
                    parts.append(TextPart(str(text.get("element_id") or key), str(text.get("content", "")), panel))
                case "collapsible_panel":
                    visit(element.get("elements"), key, key)
                case "column_set":
                    visit(element.get("columns"), key, panel)
                case _:
                    visit(element.get("elements"), key, panel)

    visit((card.get("body") or {}).get("elements"), "body", None)
    return parts


def check(card: Json, known: Known, limits: Limits, *, count_tables: bool = True) -> None:
    """Raise `CardFault` for the first thing the platform would refuse. The size is the caller's to check."""
    if str(card.get("schema")) != "2.0":
        raise CardFault(300303, "schema is not 2.0", str(card.get("schema")))
    _only(card, _ROOT, "card")
    config = card.get("config") or {}
    check_config(config)
    header = card.get("header") or {}
    _only(header, _HEADER, "header")
    if header:
        _check_title(header, "header", ("plain_text", "lark_md"))
    body = card.get("body") or {}
    _only(body, _LAYOUT | {"elements"}, "body")
    names: set[str] = set()
    for element in _list(body.get("elements", []), "body.elements"):
        _check_element(element, 0, None, names, limits)
    found = list(nodes(card))
    _check_ids(found)
    if len(found) > limits.card_elements:
        raise CardFault(300305, "element exceeds the limit", str(len(found)))
    markdowns = [str(n.get("content", "")) for n in found if n["tag"] in ("markdown", "lark_md")]
    tables = sum(1 for n in found if n["tag"] == "table") + sum(map(tables_in, markdowns))
    if count_tables and tables > limits.card_tables:
        raise CardFault(11310, "card table number over limit", "table")
    _check_people(found, markdowns, known)
    keys = [key for text in markdowns for key in images_in(text)]
    keys += [str(n["img_key"]) for n in found if n.get("img_key") and n["tag"] in ("img", "custom_icon")]
    for key in keys:
        if not known.knows_image(key):
            raise CardFault(200570, "card contains invalid image keys", f"image key {key}")


def check_config(config: Json) -> None:
    _only(config, _CONFIG, "config")
    if config.get("update_multi") is False:
        raise CardFault(300302, "update_multi is false")
    streaming = config.get("streaming_config") or {}
    _only(streaming, {"print_frequency_ms", "print_step", "print_strategy"}, "streaming_config")
    for key in ("print_frequency_ms", "print_step"):
        value = streaming.get(key)
        if value is not None and not (isinstance(value, dict) and _positive(value.get("default"))):
            raise CardFault(200220, f"streaming_config.{key} needs a number in default", str(value))
    if streaming.get("print_strategy", "fast") not in ("fast", "delay"):
        raise CardFault(200220, "print_strategy is fast or delay", str(streaming["print_strategy"]))


def mentions_everybody(card: Json) -> bool:
    return any(
        "all" in people_in(str(n.get("content", ""))) for n in nodes(card) if n["tag"] in ("markdown", "lark_md")
    )


def _check_people(found: list[Json], markdowns: list[str], known: Known) -> None:
    ids = [user_id for text in markdowns for user_id in people_in(text)]
    ids += [str(n.get("user_id")) for n in found if n["tag"] == "person"]
    for user_id in ids:
        if user_id != "all" and not known.knows_user(user_id):
            raise CardFault(100290, "There is an invalid user resource(at/person) in your card", user_id)


def _check_ids(found: list[Json]) -> None:
    seen: set[str] = set()
    for node in found:
        element_id = node.get("element_id")
        if element_id is None:
            continue
        if not isinstance(element_id, str) or not _ELEMENT_ID.fullmatch(element_id):
            raise CardFault(300301, "element_id: a letter, then letters, digits and _, 20 at most", str(element_id))
        if element_id in seen:
            raise CardFault(300301, "element_id occurs twice", element_id)
        seen.add(element_id)


def _check_element(element: Any, depth: int, inside: str | None, names: set[str], limits: Limits) -> None:
    """`inside`: None at the root, "form" anywhere in a form, else the tag of the container."""
    tag = element.get("tag") if isinstance(element, dict) else None
    if tag in _GONE_IN_V2:
        raise CardFault(200861, "cards of schema V2 no longer support this capability", f"unsupported tag {tag}")
    if tag not in PROPERTIES or (tag == "column") != (inside == "column_set" or inside == "form:column_set"):
        raise CardFault(200621, "parse card json err, unknown or misplaced tag", str(tag))
    if tag in ("table", "form") and inside is not None:
        raise CardFault(200621, f"parse card json err, {tag} is allowed at the card's root only", f"in {inside}")
    if depth > limits.card_depth:
        raise CardFault(200621, f"parse card json err, containers nested deeper than {limits.card_depth}", tag)
    allowed = PROPERTIES[tag]
    if allowed is not None:
        _only(element, allowed, tag)
    in_form = inside is not None and inside.startswith("form")
    if in_form and tag in _INTERACTIVE:
        _check_form_name(element, names)
    _check_parts(element, tag)
    _check_children(element, tag, depth, in_form, names, limits)


def _check_children(element: Json, tag: str, depth: int, in_form: bool, names: set[str], limits: Limits) -> None:
    if tag == "form":
        _check_form_name(element, names)
        if not any(
            n.get("form_action_type") == "submit" or n.get("action_type") == "form_submit"
            for n in nodes(element.get("elements"))
        ):
            raise CardFault(200621, "parse card json err, a form needs a button that submits it", str(element["name"]))
    where = f"form:{tag}" if in_form or tag == "form" else tag
    children = element.get("columns") if tag == "column_set" else element.get("elements", [])
    if tag in ("form", "column", "column_set", "collapsible_panel", "interactive_container"):
        for child in _list(children, tag):
            _check_element(child, depth + (tag != "column"), where, names, limits)


def _check_form_name(element: Json, names: set[str]) -> None:
    name = element.get("name")
    if not isinstance(name, str) or not name or name in names:
        raise CardFault(200621, "parse card json err, everything in a form needs a name of its own", str(name))
    names.add(name)


def _check_parts(element: Json, tag: str) -> None:
    """The texts, headers and behaviours of one element."""
    if tag == "markdown" and not isinstance(element.get("content"), str):
        raise CardFault(200621, "parse card json err, markdown needs content", str(element.get("content")))
    if tag == "div" and "text" not in element:
        raise CardFault(200621, "parse card json err, div needs a text")
    if tag == "img" and not element.get("img_key"):
        raise CardFault(200621, "parse card json err, img needs an img_key")
    if tag == "collapsible_panel":
        if not isinstance(element.get("header"), dict):
            raise CardFault(200621, "parse card json err, collapsible_panel needs a header")
        _check_title(element["header"], tag, TEXT_TAGS)
    if tag == "table" and not isinstance(element.get("columns"), list):
        raise CardFault(200621, "parse card json err, table needs columns")
    for key in ("text", "placeholder", "label", "hover_tips", "disabled_tips"):
        text = element.get(key)
        if text is None:
            continue
        if not isinstance(text, dict) or text.get("tag") not in ("plain_text", "lark_md"):
            raise CardFault(200621, f"parse card json err, {tag}.{key} is not a text", str(text)[:80])
        _only(text, _TEXT, f"{tag}.{key}")
        if tag in ("button", "input") and len(str(text.get("content", ""))) > 100:
            raise CardFault(200621, f"parse card json err, {tag}.{key} has more than 100 characters")
    for behavior in (
        _list(element.get("behaviors", []), f"{tag}.behaviors")
        if tag in _INTERACTIVE or tag == "interactive_container"
        else ()
    ):
        if behavior.get("type") not in ("callback", "open_url", "form_action"):
            raise CardFault(200621, "parse card json err, unknown behavior", str(behavior.get("type")))
        if behavior["type"] == "callback" and not isinstance(behavior.get("value"), dict):
            raise CardFault(200621, "parse card json err, a callback's value is an object", str(behavior.get("value")))


def _check_title(header: Json, where: str, tags: tuple[str, ...]) -> None:
    title = header.get("title")
    if not isinstance(title, dict) or title.get("tag") not in tags:
        raise CardFault(200621, f"parse card json err, the header of {where} needs a title", str(title)[:80])


def _only(part: Any, allowed: set[str], where: str) -> None:
    if not isinstance(part, dict):
        raise CardFault(200621, f"parse card json err, {where} is not an object", str(part)[:80])
    if unknown := sorted(set(part) - allowed):
        raise CardFault(200621, f"parse card json err, {where} has unknown properties", ", ".join(unknown))


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise CardFault(200621, f"parse card json err, {where} is not a list of objects", str(value)[:80])
    return value


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0
