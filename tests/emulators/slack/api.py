"""The door of the Web API: reads a request, checks token, rates, scopes and planned faults, and answers like Slack."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from aiohttp import web

from tests.emulators.journal import Call, Fault, FaultKind, Faults
from tests.emulators.slack import rules
from tests.emulators.slack.blocks import JsonObject
from tests.emulators.slack.budgets import Budgets, Verdict
from tests.emulators.slack.core import ApiCall, Args, Core, Handler
from tests.emulators.slack.errors import Refusal
from tests.emulators.slack.world import SCOPE_PREFIX, Workspace


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose token it is. An app-level token belongs to no workspace; the first one stands in for it."""

    kind: str
    workspace: Workspace
    scopes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: object


class WebApi:
    def __init__(
        self,
        core: Core,
        faults: Faults,
        budgets: Budgets,
        handlers: Mapping[str, Handler],
        app_tokens: Mapping[str, frozenset[str]],
    ) -> None:
        self._core = core
        self._faults = faults
        self._budgets = budgets
        self._handlers = handlers
        self._app_tokens = app_tokens

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """`/api/{method}`."""
        method = request.match_info["method"]
        fault: Fault | None = None
        args: Mapping[str, object] = {}
        try:
            args = await self._read(request, method)
            caller = self._authenticate(request, args, method)
            verdict = self._penalty(method, args, caller)
            if verdict is not None:
                return self._answer(method, args, self._limited(verdict))
            fault = self._faults.take(method)
            if fault is not None and fault.kind is not FaultKind.DROP_AFTER:
                planned = await self._suffer(fault, method, args, caller)
                if planned is not None:
                    return self._answer(method, args, planned)
                if fault.kind is FaultKind.DROP_BEFORE:
                    return self._drop(request, method, args)
            answer = self._perform(method, args, caller)
        except Refusal as refusal:
            answer = self._refused(refusal)
        if fault is not None and fault.kind is FaultKind.DROP_AFTER:
            return self._drop(request, method, args, answer)
        return self._answer(method, args, answer)

    # --- reading -------------------------------------------------------------------------------------------------

    async def _read(self, request: web.Request, method: str) -> dict[str, object]:
        args: dict[str, object] = dict(request.query)
        if "token" in args:
            del args["token"]
            raise Refusal("not_authed", broken="a token in the address of a request")
        if request.content_type == "application/json" and request.can_read_body:
            known = rules.METHODS.get(method)
            if known is not None and not known.takes_json:
                raise Refusal("invalid_arguments", broken=f"{method} does not read JSON")
            try:
                body = json.loads(await request.read())
            except ValueError:
                raise Refusal("invalid_json", broken="a body that is not JSON") from None
            if not isinstance(body, dict):
                raise Refusal("json_not_object", broken="a JSON body that is no object")
            args |= body
        elif request.can_read_body:
            args |= {name: value for name, value in (await request.post()).items() if isinstance(value, str)}
        return args

    def _authenticate(self, request: web.Request, args: Mapping[str, object], method: str) -> Caller:
        header = request.headers.get("Authorization", "")
        token = header.removeprefix("Bearer ").strip() if header.startswith("Bearer ") else str(args.get("token", ""))
        if not token:
            raise Refusal("not_authed")
        workspaces = self._core.world.workspaces
        if token in self._app_tokens:
            caller = Caller("app", next(iter(workspaces.values())), self._app_tokens[token])
        else:
            owner = next((w for w in workspaces.values() if w.bot_token == token), None)
            if owner is None:
                raise Refusal("invalid_auth")
            if owner.refuse:
                raise Refusal(owner.refuse)
            caller = Caller("bot", owner, frozenset(owner.scopes))
        known = rules.METHODS.get(method)
        if known is None or method not in self._handlers:
            raise Refusal("unknown_method", broken=f"a method that this emulator does not know: {method}")
        if known.token not in (caller.kind, "any"):
            raise Refusal("not_allowed_token_type", broken=f"{method} with a token of the {caller.kind}")
        return caller

    # --- refusing ------------------------------------------------------------------------------------------------

    def _penalty(self, method: str, args: Mapping[str, object], caller: Caller) -> Verdict | None:
        now = self._core.clock.now()
        return self._budgets.penalty(method, caller.workspace.id, _conversation(args), _target(args), now)

    def _limited(self, verdict: Verdict) -> Answer:
        if verdict.broken:
            self._core.break_rule(verdict.broken)
        return Answer(429, {"Retry-After": str(verdict.retry_after)}, {"ok": False, "error": "ratelimited"})

    def _refused(self, refusal: Refusal) -> Answer:
        if refusal.broken:
            self._core.break_rule(f"{refusal.error}: {refusal.broken}")
        body: JsonObject = {"ok": False, "error": refusal.error, **refusal.extra}
        if refusal.messages:
            body["response_metadata"] = {"messages": refusal.messages}
        return Answer(refusal.status, refusal.headers, body)

    async def _suffer(self, fault: Fault, method: str, args: Mapping[str, object], caller: Caller) -> Answer | None:
        """The answer that a planned fault gives; None when the work goes on, or nobody gets an answer."""
        if fault.kind is FaultKind.DELAY:
            await self._core.clock.sleep(fault.seconds)
        if fault.kind is not FaultKind.ANSWER:
            return None
        headers = {name.lower(): value for name, value in fault.headers.items()}
        if fault.status == 429:
            seconds = float(headers.setdefault("retry-after", "1"))
            scope = self._budgets.scopes(method, caller.workspace.id, _conversation(args))[-1]
            self._budgets.close(scope, _target(args), self._core.clock.now(), seconds)
            return Answer(429, headers, fault.body or {"ok": False, "error": "ratelimited"})
        return Answer(fault.status, headers, fault.body)

    def _check_scope(self, method: str, call: ApiCall, caller: Caller) -> None:
        needed = rules.METHODS[method].scopes
        if not needed:
            return
        if any(scope.startswith(rules.CHANNEL_KIND_SCOPE) for scope in needed):
            channel = self._core.world.channels.get(call.args.text("channel"))
            if channel is None:
                raise Refusal("channel_not_found")
            needed = tuple(s.replace(rules.CHANNEL_KIND_SCOPE, SCOPE_PREFIX[channel.kind]) for s in needed)
        if not caller.scopes.intersection(needed):
            provided = ",".join(sorted(caller.scopes))
            raise Refusal("missing_scope", extra={"needed": ",".join(needed), "provided": provided})

    # --- answering -----------------------------------------------------------------------------------------------

    def _perform(self, method: str, args: Mapping[str, object], caller: Caller) -> Answer:
        now = self._core.clock.now()
        verdict = self._budgets.admit(method, caller.workspace.id, _conversation(args), _target(args), now)
        if verdict is not None:
            return self._limited(verdict)
        headers = {
            "x-oauth-scopes": ",".join(sorted(caller.scopes)),
            "x-accepted-oauth-scopes": ",".join(rules.METHODS[method].scopes),
        }
        call = ApiCall(method, Args(args), caller.workspace, now, caller.kind)
        try:
            self._check_scope(method, call, caller)
            body = {"ok": True, **self._handlers[method](call)}
        except Refusal as refusal:
            refused = self._refused(refusal)
            return Answer(refused.status, {**headers, **refused.headers}, refused.body)
        return Answer(200, headers, body)

    def _answer(self, method: str, args: Mapping[str, object], answer: Answer) -> web.Response:
        self._record(method, args, answer)
        if isinstance(answer.body, str):
            content_type = answer.headers.get("content-type", "text/html")
            headers = {name: value for name, value in answer.headers.items() if name != "content-type"}
            return web.Response(status=answer.status, text=answer.body, headers=headers, content_type=content_type)
        return web.json_response(answer.body, status=answer.status, headers=answer.headers)

    def _drop(
        self, request: web.Request, method: str, args: Mapping[str, object], answer: Answer | None = None
    ) -> web.Response:
        """Cut the connection; `answer` is what was done and never told."""
        self._record(method, args, answer or Answer(0, {}, None), told=False)
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=503)

    def _record(self, method: str, args: Mapping[str, object], answer: Answer, *, told: bool = True) -> None:
        kept = {name: value for name, value in args.items() if name != "token"}
        status = answer.status if told else 0
        self._core.journal.calls.append(Call(self._core.clock.now(), method, kept, status, answer.body))
        self._core.world.bell.ring()


def _conversation(args: Mapping[str, object]) -> str:
    return str(args.get("channel") or args.get("channel_id") or "")


def _target(args: Mapping[str, object]) -> str:
    """What a call is about: the conversation with the message, or with the thread, that it names."""
    return f"{_conversation(args)}/{args.get('ts') or args.get('thread_ts') or ''}"
