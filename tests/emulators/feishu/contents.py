"""The content of a message that the bot sends: what each message type may hold."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.emulators.feishu.limits import Limits
from tests.emulators.feishu.markdown import without_code
from tests.emulators.feishu.refusals import Json, Refusal
from tests.emulators.feishu.world import World

TYPES = ("text", "post", "image", "file", "audio", "media", "interactive", "share_chat", "share_user", "sticker")
_POST_TAGS = {"text", "a", "at", "img", "media", "emotion", "hr", "code_block", "md"}
_ALONE = {"img", "media", "md", "hr", "code_block"}
_AT_ALL = re.compile(r"<at\s+user_id\s*=\s*[\"']?all[\"']?\s*>", re.IGNORECASE)
_AT_TAG = re.compile(r"<at\s+user_id\s*=\s*[\"']?([^\"'\s>]+)[\"']?\s*>([^<]*)</at>", re.IGNORECASE)


def read_content(text: str, msg_type: str, limits: Limits) -> Json:
    """The content's JSON, if its size is allowed."""
    longest = limits.text_bytes if msg_type == "text" else limits.rich_bytes
    if (size := len(text.encode())) > longest:
        raise Refusal(230025, f"{msg_type} of {size} bytes, {longest} are allowed")
    try:
        content = json.loads(text)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise Refusal(230001, f"content of a {msg_type} is not the JSON of an object: {text[:80]}")
    return content


def check_text(content: Json) -> bool:
    """Refuse a malformed text; True when it mentions everybody."""
    text = content.get("text")
    if not isinstance(text, str) or not text:
        raise Refusal(230001, "a text message without text")
    return bool(_AT_ALL.search(text))


def check_post(content: Json, world: World) -> bool:
    """Refuse a malformed post; True when it mentions everybody."""
    bodies = [body for body in content.values() if isinstance(body, dict)]
    if not bodies or len(bodies) != len(content):
        raise Refusal(230001, "a post needs at least one language, such as zh_cn, with title and content")
    everybody = False
    for body in bodies:
        paragraphs = body.get("content")
        if not isinstance(paragraphs, list) or not paragraphs:
            raise Refusal(230001, "a post's content is a list of paragraphs")
        for paragraph in paragraphs:
            everybody |= _check_paragraph(paragraph, world)
    return everybody


def _check_paragraph(paragraph: Any, world: World) -> bool:
    if not isinstance(paragraph, list) or not all(isinstance(node, dict) for node in paragraph):
        raise Refusal(230001, "a post's paragraph is a list of nodes")
    tags = [str(node.get("tag")) for node in paragraph]
    if unknown := set(tags) - _POST_TAGS:
        raise Refusal(230001, f"unknown post tags {sorted(unknown)}")
    if len(tags) > 1 and _ALONE & set(tags):
        raise Refusal(230001, f"{sorted(_ALONE & set(tags))} must be alone in their paragraph")
    everybody = False
    for node in paragraph:
        if node["tag"] in ("text", "md", "code_block") and not isinstance(node.get("text"), str):
            raise Refusal(230001, f"a {node['tag']} node without text")
        if node["tag"] == "a" and not str(node.get("href", "")).startswith(("http://", "https://", "mailto:")):
            raise Refusal(230001, f"a link to {node.get('href')!r}")
        if node["tag"] == "img" and not world.knows_image(str(node.get("image_key"))):
            raise Refusal(230001, f"unknown image_key {node.get('image_key')}")
        everybody |= node["tag"] == "at" and node.get("user_id") == "all"
        everybody |= node["tag"] == "md" and bool(_AT_ALL.search(without_code(node["text"])))
        if node["tag"] == "at" and node.get("user_id") != "all" and not world.knows_user(str(node.get("user_id"))):
            raise Refusal(230001, f"a mention of an unknown user {node.get('user_id')}")
    return everybody


def check_media(content: Json, msg_type: str, world: World) -> None:
    """Refuse a picture or file that the bot did not upload, or uploaded as something else."""
    key = content.get("image_key" if msg_type == "image" else "file_key")
    blob = world.blobs.get(str(key))
    if blob is None or not blob.by_bot:
        raise Refusal(230017, f"{msg_type} with key {key}, which the bot did not upload")
    wanted = {"image": "image", "opus": "audio", "mp4": "media"}.get(blob.kind, "file")
    if wanted != msg_type:
        raise Refusal(230055, f"{blob.name} was uploaded as {blob.kind}: send it as {wanted}, not as {msg_type}")


def readable(msg_type: str, content: Json, mentions: list[Json]) -> str:
    """A message as a line of text that a reader of a test's dump understands."""
    match msg_type:
        case "text":
            text = _AT_TAG.sub(lambda tag: f"@{tag.group(2) or tag.group(1)}", str(content.get("text", "")))
        case "post":
            body = content if "content" in content else next(iter(content.values()), {})
            lines = ["".join(_node(node) for node in paragraph) for paragraph in body.get("content", [])]
            text = "\n".join([*([body["title"]] if body.get("title") else []), *lines])
        case _:
            text = f"[{msg_type}] {content.get('file_name') or ''}".strip()
    for mention in mentions:
        text = text.replace(mention["key"], f"@{mention['name']}")
    return text


def _node(node: Json) -> str:
    match node.get("tag"):
        case "at":
            return str(node.get("user_name") or node.get("user_id"))
        case "img" | "media" | "emotion":
            return f"[{node['tag']}]"
        case "hr":
            return "---"
        case _:
            return str(node.get("text", ""))
