"""Of the files that people send along a model gets what it takes; whatever else there is does no harm."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from pydantic import JsonValue

from channels.gateway.enclosures import message_blocks, remark_on
from channels.inputs import FILE_TYPES, InputFile

PNG = b"\x89PNG\r\n\x1a\n...."
WEBP = b"RIFF\x10\0\0\0WEBPVP8 "
OGG = b"OggS\0\2\0\0..\xff"


def blocks(name: str, mime: str, data: bytes, types: tuple[str, ...] = FILE_TYPES, text: str = "Look") -> list[Any]:
    words, *others = message_blocks(text, [InputFile(name, mime, data)], types)
    assert words == {"type": "text", "text": text}
    return others


@pytest.mark.parametrize(
    ("name", "mime", "data", "found"),
    [
        ("a.png", "image/png", PNG, "image/png"),
        ("a.png", "application/octet-stream", PNG, "image/png"),
        ("a.jpg", "image/jpeg; x=y", b"\xff\xd8\xff\xe0", "image/jpeg"),
        ("a.jpg", "image/jpeg", PNG, "image/png"),
        ("a.webp", "image/webp", WEBP, "image/webp"),
        ("a.gif", "image/gif", b"GIF89a", "image/gif"),
    ],
)
def test_pictures_are_given_as_what_they_are(name: str, mime: str, data: bytes, found: str) -> None:
    encoded = base64.b64encode(data).decode()
    assert blocks(name, mime, data) == [{"type": "image_url", "image_url": {"url": f"data:{found};base64,{encoded}"}}]


def test_a_pdf_is_given_as_it_is() -> None:
    (block,) = blocks("a.pdf", "", b"%PDF-1.7\0")
    assert (block["type"], block["mime_type"], block["extras"]) == ("file", "application/pdf", {"filename": "a.pdf"})


@pytest.mark.parametrize(
    ("name", "mime", "data", "found"),
    [
        ("a.csv", "text/csv", "ä;1".encode(), "ä;1"),
        ("a.ts", "video/mp2t", b"const a = 1", "const a = 1"),
        ("a.svg", "image/svg+xml", b"<svg/>", "<svg/>"),
        ("notes.md", "application/octet-stream", "# é".encode(), "# é"),
        ("a.csv", "text/csv", "Name;Ort\nMüller;Köln\n".encode("cp1252"), "Müller;Köln"),
        ("a.txt", "text/plain", "谢谢你的帮助，这是一个表格".encode("gb18030"), "谢谢你的帮助，这是一个表格"),
        ("a.txt", "text/plain", "Müller".encode("utf-16"), "Müller"),
        ("a.txt", "text/plain", b"\xef\xbb\xbfhi", ":\n\nhi"),
        ("a.txt", "text/plain", b"", "a.txt"),
    ],
)
def test_whatever_is_text_is_given_as_text(name: str, mime: str, data: bytes, found: str) -> None:
    (block,) = blocks(name, mime, data)
    assert block["type"] == "text"
    assert name in block["text"]
    assert found in block["text"]
    assert not {"\0", "\ufeff", "\ufffd"} & set(block["text"])
    assert remark_on([InputFile(name, mime, data)], FILE_TYPES) == ""


@pytest.mark.parametrize(
    ("name", "mime", "data"),
    [
        ("voice.ogg", "audio/ogg", OGG),
        ("a.docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document", b"PK\3\4\0"),
        ("a.heic", "image/heic", b"\0\0\0\x18ftypheic"),
        ("a.bin", "", b"\xff\xfe\xfd\xfc"[1:]),
    ],
)
def test_what_a_model_does_not_take_is_named_to_it_and_to_who_has_sent_it(name: str, mime: str, data: bytes) -> None:
    (block,) = blocks(name, mime, data)
    assert block["type"] == "text"
    assert name in block["text"]
    assert remark_on([InputFile(name, mime, data)], FILE_TYPES) == (
        f"The agent cannot read {name} and was only told the name."
    )


@pytest.mark.parametrize("types", [("audio/ogg",), ("audio/*",)])
def test_an_operator_may_say_that_the_model_takes_more(types: tuple[str, ...]) -> None:
    (block,) = blocks("voice.ogg", "audio/ogg", OGG, types)
    assert (block["type"], block["mime_type"]) == ("audio", "audio/ogg")
    assert remark_on([InputFile("voice.ogg", "audio/ogg", OGG)], types) == ""


@pytest.mark.parametrize("letter", ["a", "é", "谢", "😀"])
def test_of_a_long_text_the_beginning_is_given_and_everybody_told(letter: str) -> None:
    data = (letter * 150_000).encode()
    (block,) = blocks("big.txt", "text/plain", data)
    assert block["text"].count(letter) > 99_000
    assert "\ufffd" not in block["text"]
    assert len(block["text"]) < 101_000
    assert f"{len(data):,} bytes" in block["text"]
    assert remark_on([InputFile("big.txt", "text/plain", data)], FILE_TYPES) == (
        "The agent got only the beginning of big.txt."
    )


@pytest.mark.parametrize("text", ["", "  \n"])
def test_files_without_words_come_with_some(text: str) -> None:
    files = [InputFile("a.png", "image/png", PNG), InputFile("b.pdf", "application/pdf", b"%PDF-")]
    words: JsonValue = message_blocks(text, files, FILE_TYPES)[0]
    assert words == {"type": "text", "text": "(Sent without words: a.png, b.pdf)"}
