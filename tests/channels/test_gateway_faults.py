"""The fault matrix: every kind of gateway under every fault of network and server gives the whole answer, exactly."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypedDict

import httpx
import pytest

from adapters.embedded.gateway import EmbeddedGateway
from channels.gateway import Gateway
from channels.model import Phase, StepState, View
from tests.emulators.fault_proxy import Damage, Fault, FaultProxy
from tests.emulators.gateway import Fail, GatewayEmulator, Hold, Kind, Manner, Say, Step, ToolAnswers, pieces_of
from tests.gateway.agent import BEFORE_TOOLS
from tests.gateway.turns import ANSWER, SPEED, Seen, gateway_at, new_thread, run_turn

SCRIPT: tuple[Step, ...] = (
    Say((BEFORE_TOOLS,), calls=("look",)),
    ToolAnswers("look", "call_look"),
    Say(tuple(pieces_of(ANSWER))),
)
HELD: tuple[Step, ...] = (*SCRIPT[:2], Say(tuple(pieces_of(ANSWER)), hold_at=100))
"""The run is alive until its stream is joined, well after the bytes at which connections break here."""

EMBEDDED = "embedded"
SERVERS = (*(kind.value for kind in Kind), EMBEDDED)
GRAPH = Path(__file__).parents[1] / "gateway" / "agent.py"


IDLE = 45.0 / SPEED
"""So long may a stream be silent, in real seconds."""


@dataclass(slots=True)
class Site:
    """One gateway behind one damaging proxy. `emulator` is None for the embedded gateway."""

    gateway: Gateway
    proxy: FaultProxy
    emulator: GatewayEmulator | None
    writing: asyncio.Event = field(default_factory=asyncio.Event)

    async def ask(self, asked: str, meanwhile: Callable[[str, str], Awaitable[None]] | None = None) -> Seen:
        """Ask. `meanwhile` runs beside it, with the ids of the thread and of the run."""
        thread = new_thread()
        others: list[asyncio.Task[None]] = []

        def started(run: str) -> None:
            if meanwhile is not None:
                others.append(asyncio.ensure_future(meanwhile(thread, run)))

        def viewed(view: View) -> None:
            if len(view.text) > 60:
                self.writing.set()

        async with asyncio.timeout(25):
            seen = await run_turn(self.gateway, asked, thread=thread, on_started=started, on_view=viewed)
            await asyncio.gather(*others)
        return seen


class Kept(TypedDict):
    retain_events: int
    retain_seconds: float


def kept(manner: Manner) -> Kept:
    return {"retain_events": manner.retain or 256, "retain_seconds": 0.0 if manner.forgets_after_end else 60.0}


@asynccontextmanager
async def site(server: str, folder: Path, manner: Manner, script: Sequence[Step] = SCRIPT) -> AsyncIterator[Site]:
    emulator: GatewayEmulator | None = None
    embedded: EmbeddedGateway | None = None
    if server == EMBEDDED:
        embedded = EmbeddedGateway(folder, f"{GRAPH}:graph", heartbeat=0.2, **kept(manner))
        upstream = await embedded.start()
    else:
        emulator = GatewayEmulator(Kind(server), script, manner)
        upstream = await emulator.start()
    proxy = FaultProxy(upstream)
    gateway = gateway_at(await proxy.start())
    try:
        yield Site(gateway, proxy, emulator)
    finally:
        await gateway.aclose()
        await proxy.stop()
        if emulator is not None:
            await emulator.stop()
        if embedded is not None:
            await embedded.stop()


def assert_whole(seen: Seen) -> None:
    view = seen.end.view
    assert view.phase is Phase.DONE, (view.notice, seen.end.note)
    assert [segment.text for segment in view.body] == [BEFORE_TOOLS, ANSWER]
    assert [segment.is_answer for segment in view.body] == [False, True]
    assert [step.state for step in view.steps] == [StepState.DONE]
    assert len(seen.started) == 1
    assert all(ANSWER.startswith(seen_view.body[-1].text) for seen_view in seen.views if len(seen_view.body) == 2)


def cut(at: int) -> Fault:
    return Fault(Damage.CUT, at)


@dataclass(frozen=True, slots=True)
class Cell:
    """One fault. `faults` are the damages of the first streams; `expect` are counters that must have risen.

    `manner` is how the emulators behave; `embedded` makes the proxy do the same to the embedded gateway's streams, and
    `away` is for how many real seconds that one cannot be reached after a cut. `alive`: the emulators wait until the
    run is joined again.
    """

    faults: tuple[Fault, ...] = ()
    manner: Callable[[], Manner] = Manner
    expect: tuple[str, ...] = ()
    alive: bool = False
    embedded: Callable[[FaultProxy], None] | None = None
    away: float = 0.0

    @property
    def script(self) -> tuple[Step, ...]:
        return HELD if self.alive else SCRIPT


def rewinding(proxy: FaultProxy) -> None:
    proxy.rewinds = True


def refusing(proxy: FaultProxy) -> None:
    proxy.refuses_streams = 501


def gap_without_latest(proxy: FaultProxy) -> None:
    def rewrite(name: str, data: object) -> tuple[str, object]:
        return name, {**data, "latest_available_event_id": None} if name == "gap" and isinstance(data, dict) else data

    proxy.rewrite = rewrite


def endless(proxy: FaultProxy) -> None:
    proxy.rewrite = lambda name, data: None if name == "end" else (name, data)


def bare(proxy: FaultProxy) -> None:
    def rewrite(name: str, data: object) -> tuple[str, object]:
        return name, data[0] if name == "messages" and isinstance(data, list) else data

    proxy.rewrite = rewrite


def cumulative(proxy: FaultProxy) -> None:
    said: dict[str, str] = defaultdict(str)

    def rewrite(name: str, data: object) -> tuple[str, object]:
        if name != "messages" or not isinstance(data, list) or data[0]["type"] != "AIMessageChunk":
            return name, data
        said[data[0]["id"]] += data[0]["content"]
        return name, [{**data[0], "content": said[data[0]["id"]]}, data[1]]

    proxy.rewrite = rewrite


_random = random.Random(20261130)
CELLS = {
    "clean": Cell(),
    "drop before the first byte": Cell((Fault(Damage.CUT_BEFORE),), expect=("lookups",)),
    "drop before the first byte of a live run": Cell((Fault(Damage.CUT_BEFORE),), alive=True, expect=("lookups",)),
    "drop with headers only": Cell((cut(0),), alive=True),
    **{
        f"drop at byte {at}": Cell((cut(at), cut(_random.randrange(1, 4000))), alive=True)
        for at in (_random.randrange(1, 12_000) for _ in range(4))
    },
    **{
        f"drop inside a character after byte {at}": Cell((Fault(Damage.CUT, at, inside_character=True),), alive=True)
        for at in (1500, 6000)
    },
    "three drops in a row": Cell((cut(3000), cut(1), cut(5000)), alive=True),
    "replay from the start": Cell((cut(6000),), lambda: Manner(ignores_cursor=True), alive=True, embedded=rewinding),
    "gap": Cell((cut(3000),), lambda: Manner(retain=5), ("gaps",), alive=True, away=0.15),
    "gap with null": Cell(
        (cut(3000),),
        lambda: Manner(retain=5, gap_latest_null=True),
        ("gaps",),
        alive=True,
        embedded=gap_without_latest,
        away=0.15,
    ),
    "busy": Cell((Fault(Damage.REFUSE, status=409), Fault(Damage.REFUSE, status=409))),
    "5xx before": Cell((Fault(Damage.REFUSE, status=503), Fault(Damage.REFUSE, status=500)), expect=("lookups",)),
    "5xx after": Cell((Fault(Damage.REFUSE_AFTER, status=502),), expect=("lookups",)),
    "429 with Retry-After": Cell((Fault(Damage.REFUSE, status=429, headers={"retry-after": "2"}),)),
    "5xx on the join": Cell((cut(3000), Fault(Damage.REFUSE, status=503)), alive=True),
    "429 on the join": Cell((cut(3000), Fault(Damage.REFUSE, status=429)), alive=True),
    "idle death": Cell((Fault(Damage.HANG, 3000),), alive=True, expect=("idle_deaths",)),
    "idle death before a byte": Cell((Fault(Damage.HANG, 0),), alive=True, expect=("idle_deaths",)),
    "one byte at a time": Cell((Fault(Damage.DRIP, 8000),)),
    "malformed event": Cell((Fault(Damage.SPOIL, 2500),), expect=("malformed_events",)),
    "no end event": Cell((), lambda: Manner(sends_end=False), embedded=endless),
    "an end event": Cell((), lambda: Manner(sends_end=True)),
    "ends cleanly in the middle": Cell((Fault(Damage.CLOSE, 4000),), alive=True),
    "cumulative": Cell((), lambda: Manner(cumulative=True), embedded=cumulative),
    "bare messages": Cell((), lambda: Manner(bare_messages=True), embedded=bare),
    "finished while away": Cell((cut(2500),), lambda: Manner(forgets_after_end=True), ("state_reads",), away=0.6),
    "streams refused": Cell((), lambda: Manner(stream_status=501, pause=0.002), ("polled_turns",), embedded=refusing),
}


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("server", SERVERS)
async def test_the_answer_is_whole_and_shown_once(server: str, name: str, tmp_path: Path) -> None:
    cell = CELLS[name]
    async with site(server, tmp_path, cell.manner(), cell.script) as place:
        proxy = place.proxy
        faults = list(cell.faults)
        if place.emulator is None:
            if cell.embedded is not None:
                cell.embedded(proxy)
            if cell.away:
                faults = [replace(fault, on_cut=lambda: proxy.go_away(cell.away)) for fault in faults]
        proxy.plan(*faults)
        seen = await place.ask(f"tools {ANSWER}")
        assert_whole(seen)
        counted = place.gateway.stats.as_mapping()
        assert all(counted[counter] > 0 for counter in cell.expect), counted
        if place.emulator is not None:
            assert len(place.emulator.runs) == 1
            assert not cell.alive or counted["rejoins"] + counted["lookups"] > 0


@pytest.mark.parametrize("server", SERVERS)
async def test_heartbeats_keep_a_silent_run_connected(server: str, tmp_path: Path) -> None:
    script = (*SCRIPT[:2], Hold(), Say(tuple(pieces_of(ANSWER))))
    async with site(server, tmp_path, Manner(), script) as place:
        if place.emulator is not None:
            emulator = place.emulator
            asyncio.get_running_loop().call_later(1.3 * IDLE, lambda: emulator.run.go_on.set())
        began = asyncio.get_running_loop().time()
        seen = await place.ask(f"slow-tools {ANSWER}")
        assert_whole(seen)
        assert asyncio.get_running_loop().time() - began > IDLE
        assert place.gateway.stats.idle_deaths == 0
        assert place.gateway.stats.rejoins == 0


@pytest.mark.parametrize(
    "fault", [None, Fault(Damage.CUT, 2500), Fault(Damage.CLOSE, 2500)], ids=["clean", "cut", "closed"]
)
@pytest.mark.parametrize("server", SERVERS)
async def test_a_failed_run_keeps_its_text_and_says_that_it_failed(
    server: str, fault: Fault | None, tmp_path: Path
) -> None:
    script = (Say((BEFORE_TOOLS,), calls=("look",)), ToolAnswers("look", "call_look"), Fail())
    async with site(server, tmp_path, Manner(), script) as place:
        place.proxy.plan(fault)
        seen = await place.ask("fail " + ANSWER)
        view = seen.end.view
        assert view.phase is Phase.FAILED
        assert "/retry" in view.notice
        assert view.text.startswith(BEFORE_TOOLS if place.emulator else ANSWER[:8])
        assert "hunter2" not in str(view)
        assert "broke" in seen.end.note or server == Kind.AEGRA or fault is not None


@pytest.mark.parametrize("server", SERVERS)
async def test_a_run_cancelled_elsewhere_is_shown_as_stopped_with_its_text(server: str, tmp_path: Path) -> None:
    script = (*SCRIPT[:2], Say(tuple(pieces_of(ANSWER)), hold_at=60))
    async with site(server, tmp_path, Manner(), script) as place:

        async def cancel_soon(thread: str, run: str) -> None:
            await place.writing.wait()
            async with httpx.AsyncClient(verify=False) as other:
                await other.post(f"{place.proxy.url}/threads/{thread}/runs/{run}/cancel?action=interrupt")

        seen = await place.ask(f"slowly {ANSWER}", meanwhile=cancel_soon)
        view = seen.end.view
        assert view.phase is Phase.STOPPED
        assert "elsewhere" in view.notice
        assert view.body
        assert ANSWER.startswith(view.body[-1].text)
