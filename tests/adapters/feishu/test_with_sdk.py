"""The parts that stand in for the vendor's SDK, held against the SDK itself."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC
from cryptography.hazmat.primitives.padding import PKCS7

from adapters.feishu.api import Json
from adapters.feishu.events import CardPressed, MessageReceived, read_event
from adapters.feishu.frames import DATA, BadFrame, Frame, ping
from adapters.feishu.webhook import Forged, decrypted, signed

ROOT = Path(__file__).parents[3]
KEY = "the encrypt key"
FRAME = Frame(
    3,
    2**40,
    7,
    DATA,
    (("type", "event"), ("message_id", "谢谢"), ("sum", "2")),
    "utf-8",
    "json",
    b'{"a":1}\x00\xff',
    "log",
)

SDK = """
import base64, json, sys
from lark_oapi.core.utils.decryptor import AESCipher
from lark_oapi.api.im.v1 import P2ImMessageReceiveV1
from lark_oapi.core.json import JSON
from lark_oapi.event.callback.model.p2_card_action_trigger import P2CardActionTrigger
from lark_oapi.ws.pb.pbbp2_pb2 import Frame
given = json.load(sys.stdin)
frame = Frame()
frame.ParseFromString(base64.b64decode(given["frame"]))
back = Frame()
back.CopyFrom(frame)
message = JSON.unmarshal(given["message"], P2ImMessageReceiveV1).event
press = JSON.unmarshal(given["press"], P2CardActionTrigger).event
print(json.dumps({
    "fields": [frame.SeqID, frame.LogID, frame.service, frame.method, frame.payload_encoding, frame.payload_type,
               base64.b64encode(frame.payload).decode(), frame.LogIDNew],
    "headers": [[h.key, h.value] for h in frame.headers],
    "again": base64.b64encode(back.SerializeToString()).decode(),
    "decrypted": AESCipher(given["key"]).decrypt_str(given["encrypted"]),
    "message": [message.message.message_id, message.message.root_id, message.sender.sender_id.open_id,
                message.message.mentions[0].id.open_id],
    "press": [press.operator.open_id, press.action.value, press.action.form_value, press.context.open_chat_id],
}))
"""
MESSAGE: Json = {
    "schema": "2.0",
    "header": {"event_id": "e", "event_type": "im.message.receive_v1", "token": "t"},
    "event": {
        "sender": {"sender_id": {"open_id": "ou_1"}, "sender_type": "user"},
        "message": {
            "message_id": "om_1",
            "root_id": "om_0",
            "chat_id": "oc_1",
            "chat_type": "group",
            "message_type": "text",
            "content": '{"text":"@_user_1 hi"}',
            "mentions": [{"key": "@_user_1", "id": {"open_id": "ou_bot"}, "name": "Bot"}],
        },
    },
}
PRESS: Json = {
    "schema": "2.0",
    "header": {"event_id": "p", "event_type": "card.action.trigger", "token": "t"},
    "event": {
        "operator": {"open_id": "ou_1"},
        "action": {"tag": "button", "value": {"press": "s:1:"}, "form_value": {"reply_text": "x"}},
        "context": {"open_message_id": "om_1", "open_chat_id": "oc_1"},
    },
}


def encrypted(plain: bytes) -> str:
    padder = PKCS7(128).padder()
    encryptor = Cipher(AES(hashlib.sha256(KEY.encode()).digest()), CBC(bytes(16))).encryptor()
    return base64.b64encode(
        bytes(16) + encryptor.update(padder.update(plain) + padder.finalize()) + encryptor.finalize()
    ).decode()


def test_frames_events_and_encryption_are_read_as_the_sdk_reads_them() -> None:
    given = {
        "frame": base64.b64encode(FRAME.encode()).decode(),
        "message": json.dumps(MESSAGE),
        "press": json.dumps(PRESS),
        "key": KEY,
        "encrypted": encrypted("谢谢 {}".encode()),
    }
    done = subprocess.run(
        [sys.executable, "-c", SDK], input=json.dumps(given), cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    payload = base64.b64encode(FRAME.payload).decode()
    assert found["fields"] == [3, 2**40, 7, DATA, "utf-8", "json", payload, "log"]
    assert [tuple(header) for header in found["headers"]] == list(FRAME.headers)
    assert Frame.decode(base64.b64decode(found["again"])) == FRAME
    assert found["decrypted"] == "谢谢 {}"
    message = read_event("im.message.receive_v1", MESSAGE)
    assert isinstance(message, MessageReceived)
    own = [
        message.message.message_id,
        message.message.root_id,
        message.sender.sender_id.open_id,
        message.message.mentions[0].id.open_id,
    ]
    assert found["message"] == own
    press = read_event("card.action.trigger", PRESS)
    assert isinstance(press, CardPressed)
    own_press = [press.operator.open_id, press.action.value, press.action.form_value, press.context.open_chat_id]
    assert found["press"] == own_press


def test_a_frame_survives_the_way_and_an_ack_repeats_it() -> None:
    assert Frame.decode(FRAME.encode()) == FRAME
    ack = Frame.decode(FRAME.answered(b'{"code":200}', 12).encode())
    assert ack.headers == (*FRAME.headers, ("biz_rt", "12"))
    assert (ack.seq_id, ack.log_id, ack.payload) == (3, 2**40, b'{"code":200}')
    assert Frame.decode(ping(7)).header("type") == "ping"


@pytest.mark.parametrize("data", [b"\x08", b"\x0a\xff", b"\x0b\x00", b"\xff" * 20])
def test_bytes_that_are_no_frame_are_refused(data: bytes) -> None:
    with pytest.raises(BadFrame):
        Frame.decode(data)


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b'{"encrypt": 1}', b'{"encrypt": "AAAA"}', b'{"encrypt": "%"}', b"[" * 20_000 + b"]" * 20_000],
    ids=lambda body: str(body[:20]),
)
def test_what_is_not_encrypted_with_the_key_is_forged(body: bytes) -> None:
    with pytest.raises(Forged):
        decrypted(body, KEY)


def test_the_signature_is_the_documented_hash() -> None:
    assert signed("1", "n", "k", b"{}") == hashlib.sha256(b"1nk{}").hexdigest()


def test_the_channel_runs_without_the_sdk() -> None:
    code = "import adapters.feishu.adapter, sys; print('lark_oapi' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "False"
