"""What clients may send. Fields that this gateway does not know are ignored, as LangGraph's server does; an option that
it knows but cannot honour is refused by name rather than silently dropped."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import orjson
from pydantic import BaseModel, BeforeValidator, Field, ValidationError, model_validator
from starlette.exceptions import HTTPException
from starlette.requests import Request

if TYPE_CHECKING:
    from langgraph.types import StreamMode

# LangGraph API stream mode → langgraph's own. The names differ in one place only, and a client that mixes the two up
# sees nothing until the end.
STREAM_MODES: dict[str, StreamMode] = {
    "messages-tuple": "messages",
    "values": "values",
    "updates": "updates",
    "custom": "custom",
    "tasks": "tasks",
    "checkpoints": "checkpoints",
    "debug": "debug",
}

# langgraph and this gateway put their own entries into `configurable`; a client must not.
_RESERVED_PREFIX = "__"
_RESERVED = frozenset({"thread_id", "checkpoint_id", "checkpoint_ns", "checkpoint_map", "run_id"})

# What the checkpointer's tables can address.
Name = Annotated[str, Field(max_length=512)]
Metadata = dict[str, Any]


def _stream_modes(value: Any) -> list[str]:
    modes = [value] if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else None
    if modes is None or not all(isinstance(mode, str) for mode in modes):
        raise ValueError("must be a stream mode or a list of stream modes")
    for mode in modes:
        if mode not in STREAM_MODES:
            raise ValueError(f"stream mode {mode!r} is not supported; supported are {', '.join(STREAM_MODES)}")
    return list(dict.fromkeys(modes)) or ["values"]


StreamModes = Annotated[list[str], BeforeValidator(_stream_modes)]
Nodes = Literal["*"] | list[str] | None


class ConfigBody(BaseModel):
    tags: list[str] = []
    recursion_limit: int | None = Field(default=None, ge=1, le=10_000)
    max_concurrency: int | None = Field(default=None, ge=1)
    configurable: dict[str, Any] = {}
    metadata: Metadata = {}

    def limits(self) -> dict[str, Any]:
        """The settings that langgraph understands, as far as they are given."""
        return {
            name: value for name in ("tags", "recursion_limit", "max_concurrency") if (value := getattr(self, name))
        }

    def own_configurable(self) -> dict[str, Any]:
        """The client's entries without the reserved ones."""
        return {
            key: value
            for key, value in self.configurable.items()
            if key not in _RESERVED and not key.startswith(_RESERVED_PREFIX)
        }


class CheckpointBody(BaseModel):
    checkpoint_id: Name | None = None
    checkpoint_ns: Name = ""


class SendBody(BaseModel):
    node: str
    input: Any = None


class CommandBody(BaseModel):
    resume: Any = None
    update: dict[str, Any] | list[tuple[str, Any]] | None = None
    goto: str | SendBody | list[str | SendBody] | None = None

    def given(self) -> dict[str, Any]:
        return {name: value for name in ("resume", "update") if (value := getattr(self, name)) is not None} | (
            {"goto": self.model_dump()["goto"]} if self.goto is not None else {}
        )


class RunBody(BaseModel):
    """The body of the endpoints that start a run."""

    assistant_id: str
    input: Any = None
    command: CommandBody | None = None
    config: ConfigBody = ConfigBody()
    context: dict[str, Any] | None = None
    metadata: Metadata = {}
    stream_mode: StreamModes = ["values"]
    stream_subgraphs: bool = False
    stream_resumable: bool = False
    interrupt_before: Nodes = None
    interrupt_after: Nodes = None
    checkpoint: CheckpointBody | None = None
    checkpoint_id: Name | None = None
    multitask_strategy: Literal["reject", "interrupt", "rollback", "enqueue"] = "enqueue"
    if_not_exists: Literal["create", "reject"] = "reject"
    on_disconnect: Literal["cancel", "continue"] = "continue"
    on_completion: Literal["delete", "keep"] = "delete"
    durability: Literal["sync", "async", "exit"] | None = None
    webhook: None = None
    feedback_keys: None = None
    after_seconds: Literal[0] | None = None

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, value: Any) -> Any:
        # A client that spells out its defaults sends null for "not given".
        return {key: item for key, item in value.items() if item is not None} if isinstance(value, dict) else value

    def kwargs(self, *, temporary: bool) -> dict[str, Any]:
        """What is stored with the run and read by the worker."""
        context = self.context or {}
        return {
            "input": self.input,
            "command": self.command.given() if self.command else None,
            "config": {**self.config.limits(), "configurable": {**self.config.own_configurable(), **context}},
            "context": self.context,
            "stream_mode": self.stream_mode,
            "subgraphs": self.stream_subgraphs,
            "resumable": True,
            "interrupt_before": self.interrupt_before,
            "interrupt_after": self.interrupt_after,
            "checkpoint_id": self.checkpoint_id or (self.checkpoint.checkpoint_id if self.checkpoint else None),
            "durability": self.durability,
            "temporary": temporary,
            "keep": temporary and self.on_completion == "keep",
        }


class ThreadBody(BaseModel):
    thread_id: str | None = None
    metadata: Metadata | None = None
    if_exists: Literal["raise", "do_nothing"] = "raise"
    ttl: None = None
    supersteps: None = None


class ThreadPatchBody(BaseModel):
    metadata: Metadata = {}
    ttl: None = None


class ThreadSearchBody(BaseModel):
    metadata: Metadata | None = None
    status: Literal["idle", "busy", "interrupted", "error"] | None = None
    ids: list[str] | None = None
    values: None = None
    extract: None = None
    select: list[str] | None = None
    sort_by: Literal["thread_id", "status", "created_at", "updated_at", "state_updated_at"] = "updated_at"
    sort_order: Literal["asc", "desc"] = "desc"
    limit: int = Field(default=10, ge=1, le=1000)
    offset: int = Field(default=0, ge=0)


class StateUpdateBody(BaseModel):
    values: dict[str, Any] | list[Any] | None = None
    as_node: str | None = None
    checkpoint: CheckpointBody | None = None
    checkpoint_id: Name | None = None


class StateBody(BaseModel):
    checkpoint: CheckpointBody
    subgraphs: bool = False
    select: list[str] | None = None


class HistoryBody(BaseModel):
    limit: int = Field(default=10, ge=1, le=1000)
    before: CheckpointBody | Name | None = None
    metadata: Metadata | None = None
    checkpoint: CheckpointBody | None = None
    select: list[str] | None = None


class AssistantSearchBody(BaseModel):
    metadata: Metadata | None = None
    graph_id: str | None = None
    name: str | None = None
    select: list[str] | None = None
    limit: int = Field(default=10, ge=1, le=1000)
    offset: int = Field(default=0, ge=0)


class StateQuery(BaseModel):
    subgraphs: bool = False
    select: list[str] = []


RunField = Literal[
    "run_id",
    "thread_id",
    "assistant_id",
    "metadata",
    "status",
    "kwargs",
    "multitask_strategy",
    "created_at",
    "updated_at",
]


class RunsQuery(BaseModel):
    status: Literal["pending", "running", "success", "error", "timeout", "interrupted"] | None = None
    select: list[RunField] = []
    limit: int = Field(default=10, ge=0, le=1000)
    offset: int = Field(default=0, ge=0)

    @property
    def wants_kwargs(self) -> bool:
        return not self.select or "kwargs" in self.select


class CancelQuery(BaseModel):
    action: Literal["interrupt", "rollback"] = "interrupt"
    wait: bool = False


class JoinQuery(BaseModel):
    cancel_on_disconnect: bool = False


Body = TypeVar("Body", bound=BaseModel)


async def read(request: Request, model: type[Body], limit: int, *, may_be_empty: bool = False) -> Body:
    """The request's JSON body. Raises HTTPException: 413 above `limit` bytes, 422 when it is not what is expected."""
    raw = bytearray()
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > limit:
            raise HTTPException(413, f"The request body is larger than {limit} bytes")
    if not raw and may_be_empty:
        return parsed(model, {})
    try:
        return parsed(model, orjson.loads(raw))
    except orjson.JSONDecodeError:
        raise HTTPException(422, "Invalid JSON in request body") from None


def query(request: Request, model: type[Body]) -> Body:
    """The query parameters; `select` may be repeated. Raises HTTPException 422."""
    given: dict[str, object] = dict(request.query_params)
    if "select" in given:
        given["select"] = request.query_params.getlist("select")
    return parsed(model, given)


def parsed(model: type[Body], value: object) -> Body:
    """`value` as a `model`. Raises HTTPException 422 with one sentence per mistake, without what was sent."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
        raise HTTPException(422, "; ".join(_sentence(dict(problem)) for problem in problems)) from None


def path_id(request: Request, kind: Literal["thread", "run"]) -> str:
    """The id in the path. Raises HTTPException 422."""
    return valid_id(request.path_params[f"{kind}_id"], kind)


def valid_id(text: str, kind: str) -> str:
    """`text` as the canonical form of a UUID. Raises HTTPException 422."""
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise HTTPException(422, f"Invalid {kind} ID: must be a UUID") from None


def join_modes(request: Request) -> set[str] | None:
    """The modes a joining reader limits itself to. They may be repeated parameters or a JSON list; None: all.

    An unknown mode is no mistake here: it only means that none of its events will come.
    """
    given = request.query_params.getlist("stream_mode")
    names = [name for text in given for name in text.strip("[] ").replace('"', "").split(",") if name.strip()]
    return {STREAM_MODES.get(name.strip(), name.strip()) for name in names} or None


def _sentence(problem: dict[str, Any]) -> str:
    where = ".".join(str(part) for part in problem["loc"]) or "body"
    if problem["type"] == "none_required":
        return f"{where}: this option is not supported"
    return f"{where}: {str(problem['msg']).removeprefix('Value error, ')}"
