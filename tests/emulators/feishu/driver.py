"""A small client for the emulator's own tests: Open API calls over httpx, and one end of the long connection."""

from __future__ import annotations

import base64
import itertools
import json
from typing import Any, Self

import aiohttp
import httpx

from tests.emulators.feishu.emulator import FeishuEmulator
from tests.emulators.feishu.frames import CONTROL, DATA, Frame, decode
from tests.emulators.feishu.refusals import Json

MARKDOWN: Json = {"tag": "markdown", "element_id": "md", "content": "…"}


def card(*elements: Json, streaming: bool = False, **config: Any) -> Json:
    """A card JSON 2.0 with these elements (one markdown element "md" when there are none)."""
    return {
        "schema": "2.0",
        "config": {"streaming_mode": streaming, "update_multi": True, **config},
        "body": {"elements": list(elements) or [dict(MARKDOWN)]},
    }


class Driver:
    """Calls the Open API with its own token; answers are the JSON bodies, `status` and `headers` the last one's."""

    def __init__(self, emulator: FeishuEmulator) -> None:
        self.emulator = emulator
        self.token = ""
        self.status = 0
        self.headers: httpx.Headers = httpx.Headers()
        self.content = b""
        self._client = httpx.AsyncClient(base_url=emulator.url, trust_env=False, timeout=20)
        self._sequences = itertools.count(1)

    async def __aenter__(self) -> Self:
        await self.login()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def login(self, secret: str | None = None) -> Json:
        body = {"app_id": self.emulator.app_id, "app_secret": secret or self.emulator.app_secret}
        answer = await self.call("POST", "auth/v3/tenant_access_token/internal", body)
        self.token = answer.get("tenant_access_token", self.token)
        return answer

    async def call(self, verb: str, path: str, body: Json | None = None, **kwargs: Any) -> Json:
        """One call; `path` goes after /open-apis/."""
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        answer = await self._client.request(verb, f"/open-apis/{path}", json=body, headers=headers, **kwargs)
        self.status, self.headers, self.content = answer.status_code, answer.headers, answer.content
        return answer.json() if "json" in answer.headers.get("content-type", "") else {}

    # -- messages

    async def send(self, chat_id: str, msg_type: str, content: Json | str, **more: Any) -> Json:
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        body = {"receive_id": chat_id, "msg_type": msg_type, "content": text, **more}
        return await self.call("POST", "im/v1/messages?receive_id_type=chat_id", body)

    async def reply(self, message_id: str, msg_type: str, content: Json, **more: Any) -> Json:
        body = {"msg_type": msg_type, "content": json.dumps(content, ensure_ascii=False), **more}
        return await self.call("POST", f"im/v1/messages/{message_id}/reply", body)

    async def patch(self, message_id: str, content: Json) -> Json:
        body = {"content": json.dumps(content, ensure_ascii=False)}
        return await self.call("PATCH", f"im/v1/messages/{message_id}", body)

    # -- cards

    async def create_card(self, content: Json | str) -> Json:
        data = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        return await self.call("POST", "cardkit/v1/cards", {"type": "card_json", "data": data})

    async def shown_card(self, chat_id: str, content: Json) -> str:
        """A card entity, created and sent; its id."""
        card_id: str = (await self.create_card(content))["data"]["card_id"]
        answer = await self.send(chat_id, "interactive", {"type": "card", "data": {"card_id": card_id}})
        assert answer["code"] == 0, answer
        return card_id

    async def operate(self, verb: str, path: str, **body: Any) -> Json:
        """A card operation; the sequence rises by itself unless one is given."""
        body.setdefault("sequence", next(self._sequences))
        return await self.call(verb, f"cardkit/v1/cards/{path}", body)

    async def write(self, card_id: str, content: str, element_id: str = "md", **more: Any) -> Json:
        return await self.operate("PUT", f"{card_id}/elements/{element_id}/content", content=content, **more)

    async def settings(self, card_id: str, settings: Json, **more: Any) -> Json:
        return await self.operate("PATCH", f"{card_id}/settings", settings=json.dumps(settings), **more)

    async def set_streaming(self, card_id: str, on: bool) -> Json:
        return await self.settings(card_id, {"config": {"streaming_mode": on}})

    # -- the long connection

    async def negotiate(self, secret: str | None = None) -> Json:
        body = {"AppID": self.emulator.app_id, "AppSecret": secret or self.emulator.app_secret}
        answer = await self._client.post("/callback/ws/endpoint", json=body, headers={"locale": "zh"})
        self.status, self.headers = answer.status_code, answer.headers
        return answer.json() if "json" in answer.headers.get("content-type", "") else {}

    async def connect(self) -> Socket:
        return await Socket.open((await self.negotiate())["data"]["URL"])


class Socket:
    """A client's end of a long connection."""

    def __init__(self, session: aiohttp.ClientSession, socket: aiohttp.ClientWebSocketResponse, service: int) -> None:
        self._session = session
        self._socket = socket
        self._service = service

    @classmethod
    async def open(cls, url: str) -> Self:
        session = aiohttp.ClientSession()
        try:
            socket = await session.ws_connect(url, autoping=False)
        except BaseException:
            await session.close()
            raise
        return cls(session, socket, int(url.split("service_id=")[1].split("&")[0]))

    async def close(self) -> None:
        await self._socket.close()
        await self._session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def send(self, frame: Frame) -> None:
        await self._socket.send_bytes(frame.encode())

    async def ping(self) -> None:
        await self.send(Frame(0, 0, self._service, CONTROL, (("type", "ping"),)))

    async def frame(self, timeout: float = 5.0) -> Frame:
        """The next frame; `EOFError` when the server has closed, `TimeoutError` when nothing comes."""
        message = await self._socket.receive(timeout)
        if message.type is not aiohttp.WSMsgType.BINARY:
            raise EOFError(f"{message.type} {message.data}")
        return decode(message.data)

    async def event(self, timeout: float = 5.0) -> tuple[Frame, Json]:
        """The next event (of all its parts), and the last frame of it, not yet acked."""
        parts: dict[int, bytes] = {}
        while True:
            frame = await self.frame(timeout)
            if frame.method == DATA:
                parts[int(frame.header("seq") or 0)] = frame.payload
                if len(parts) == int(frame.header("sum") or 1):
                    return frame, json.loads(b"".join(parts[number] for number in sorted(parts)))

    async def ack(self, frame: Frame, code: int = 200, data: Json | None = None) -> None:
        payload: Json = {"code": code}
        if data is not None:
            payload["data"] = base64.b64encode(json.dumps(data).encode()).decode()
        await self.send(answer_to(frame, payload))

    async def take(self) -> Json:
        """The next event, acked."""
        frame, event = await self.event()
        await self.ack(frame)
        return event


def answer_to(frame: Frame, payload: Json) -> Frame:
    """The ack of a frame: the same frame with one header more and another payload."""
    return Frame(
        frame.seq_id,
        frame.log_id,
        frame.service,
        frame.method,
        (*frame.headers, ("biz_rt", "1")),
        frame.payload_encoding,
        frame.payload_type,
        json.dumps(payload).encode(),
    )
