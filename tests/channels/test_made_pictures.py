"""Pictures and other files that an agent's model makes, in every form in which providers' packages leave them."""

from __future__ import annotations

import base64

import httpx
import pytest
import respx
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from channels.gateway import GatewayError
from channels.model import Phase, View
from channels.transcript.file_blocks import file_base64, file_block, file_link
from tests.channels.test_gateway_http import URL, gateway
from tests.channels.test_transcript import NOW, Json, fed, streamed, updated, whole

PICTURE = b"\x89PNG\r\n\x1a\n and so on"
PNG = base64.b64encode(PICTURE).decode()

FORMS: dict[str, tuple[Json, str]] = {
    "LangChain": ({"type": "image", "base64": PNG, "mime_type": "image/png"}, "image/png"),
    "LangChain before": (
        {"type": "image", "source_type": "base64", "data": PNG, "mime_type": "image/webp"},
        "image/webp",
    ),
    "LangChain with an address": ({"type": "image", "url": f"data:image/gif;base64,{PNG}"}, "image/gif"),
    "Google": ({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}, "image/png"),
    "Google in short": ({"type": "image_url", "image_url": f"data:image/jpeg;base64,{PNG}"}, "image/jpeg"),
    "Google's media": ({"type": "media", "data": PNG, "mime_type": "audio/wav"}, "audio/wav"),
    "OpenAI": ({"type": "image_generation_call", "result": PNG, "status": "completed"}, "image/png"),
    "OpenAI, other format": ({"type": "image_generation_call", "result": PNG, "output_format": "jpeg"}, "image/jpeg"),
    "Anthropic": (
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        "image/png",
    ),
    "with parameters": ({"type": "file", "url": f"data:text/csv;charset=utf-8;base64,{PNG}"}, "text/csv"),
    "without a type": ({"type": "image", "url": f"data:;base64,{PNG}"}, "application/octet-stream"),
}


def ended(content: JsonValue) -> View:
    return fed(streamed(""), updated(whole(content))).finish(Phase.DONE, NOW)


@pytest.mark.parametrize(("block", "mime"), FORMS.values(), ids=FORMS)
async def test_a_picture_is_shown_and_handed_out_whole(block: Json, mime: str, respx_mock: respx.MockRouter) -> None:
    content: JsonValue = [{"type": "text", "text": "Here: "}, block]
    view = ended(content)
    (file,) = view.files
    assert (view.text, file.mime) == ("Here: ", mime)
    state: JsonValue = {"values": {"messages": [{"type": "ai", "id": "m1", "content": content}]}}
    respx_mock.get(url__startswith=URL).mock(return_value=httpx.Response(200, json=state))
    assert await gateway().open_file(file) == PICTURE


@pytest.mark.parametrize(("block", "mime"), FORMS.values(), ids=FORMS)
async def test_a_picture_that_is_too_large_is_not_handed_out(
    block: Json, mime: str, respx_mock: respx.MockRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file,) = ended([block]).files
    assert file.mime == mime
    monkeypatch.setattr("channels.gateway.client.MAX_FILE_BYTES", 3)
    state: JsonValue = {"values": {"messages": [{"type": "ai", "id": "m1", "content": [block]}]}}
    respx_mock.get(url__startswith=URL).mock(return_value=httpx.Response(200, json=state))
    with pytest.raises(GatewayError, match="larger"):
        await gateway().open_file(file)


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "url": "https://img.example/a.png"},
        {"type": "image", "source_type": "url", "url": "https://img.example/a.png"},
        {"type": "image", "source": {"type": "url", "url": "https://img.example/a.png"}},
        {"type": "image_url", "image_url": {"url": "https://img.example/a.png", "detail": "auto"}},
    ],
)
def test_a_picture_elsewhere_is_a_link(block: Json) -> None:
    view = ended(["See ", block, "and tell."])
    assert view.text == "See \n\n[Picture](https://img.example/a.png)\n\nand tell."
    assert not view.files


@pytest.mark.parametrize(
    "address",
    [
        "",
        "data:image/png,raw",
        "data:image/png;base64,",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "https://a.example/ b",
        "https://a.example/\n[x](y)",
        "https://a.example/<b>",
        "gs://bucket/a.png",
    ],
)
def test_an_address_that_leads_nowhere_is_neither_a_file_nor_a_link(address: str) -> None:
    view = ended([{"type": "image", "url": address}])
    assert (view.text, view.files) == ("", ())


def test_an_address_cannot_end_its_link() -> None:
    block: Json = {"type": "image", "url": "https://a.example/x)y(z?q=%20[1]&r=ä"}
    assert file_link(block) == "[Picture](https://a.example/x%29y%28z?q=%20[1]&r=%C3%A4)"


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image_generation_call", "result": None, "status": "generating"},
        {"type": "image", "base64": ""},
        {"type": "image", "file_id": "f1"},
        {"type": "image", "source": {"type": "file", "data": PNG}},
        {"type": "text", "text": "", "base64": PNG},
        {"type": "tool_use", "id": "t", "input": {"url": "https://a.example"}},
    ],
)
def test_a_block_without_a_file_is_none(block: Json) -> None:
    view = ended([block])
    assert (view.text, view.files, file_base64(block)) == ("", (), "")


JSON: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.integers() | st.sampled_from(["base64", "url", PNG, "https://a.example", "data:;base64,aGk="]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["url", "type", "data"]), inner),
    max_leaves=4,
)


@given(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["image", "image_url", "file", "media", "image_generation_call"])},
        optional=dict.fromkeys(("url", "image_url", "source", "data", "base64", "result", "mime_type"), JSON),
    )
)
def test_a_file_is_promised_exactly_where_there_are_bytes(block: Json) -> None:
    assert (file_block(0, block) is not None) == bool(file_base64(block))
