"""Chaos: replicas, database, gateway and platforms fail at random while hundreds of people talk. Nothing may be lost.

`CHAOS_SECONDS` makes it longer by hand, `CHAOS_SEED` repeats a run's dice (not its timing).
"""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from tests.databases import running_postgres
from tests.recovery.chaos import Chaos
from tests.recovery.cluster import Cluster, Taken, eventually
from tests.recovery.crowds import CROWDS, Crowd
from tests.recovery.verdicts import Verdict, judge

CHANNELS = 9
CONVERSATIONS = 200
REPLICAS = ("one", "two", "three")
SECONDS = float(os.environ.get("CHAOS_SECONDS", "40"))
SEED = int(os.environ.get("CHAOS_SEED", "20250601"))
ASKED_TWICE = 0.25
"""The part of the people who ask a second question, often before the first is answered."""
# What two shared cores carry beside the rest of the tests: 250 answers of two to four seconds.
WORDS = (8, 16)
PACE = 0.2
TAKEOVER = 15.0
COMMIT = 1.0
"""Seconds that the commit of a question may take, during which nobody sees that it waits."""


class Person:
    """One conversation."""

    def __init__(self, crowd: Crowd, number: int, dice: random.Random) -> None:
        self.crowd = crowd
        self.key = crowd.person()
        count = 2 if dice.random() < ASKED_TWICE else 1
        self.questions = [f"c{number}q{turn} {dice.randint(*WORDS)}" for turn in range(count)]
        self.moments = sorted(dice.uniform(0.0, SECONDS) for _ in self.questions)

    async def talk(self) -> None:
        waited = 0.0
        for question, moment in zip(self.questions, self.moments, strict=True):
            await asyncio.sleep(max(0.0, moment - waited))
            waited = moment
            await self.crowd.ask(self.key, question)

    async def verdict(self, taken: Mapping[str, Taken]) -> Verdict:
        """Answers have to stand in the order in which the questions were taken up; that one is judged by itself."""
        in_turn = sorted(self.questions, key=lambda question: taken[question].turn if question in taken else 0)
        return judge(in_turn, await self.crowd.messages(self.key))

    def overtaken(self, taken: Mapping[str, Taken]) -> list[str]:
        """Questions that waited while a later one was taken up before them."""
        known = [taken[question] for question in self.questions if question in taken]
        return [
            f"{self.questions} as {earlier} and {later}"
            for earlier, later in itertools.combinations(known, 2)
            if earlier.turn > later.turn and earlier.accepted_at + COMMIT < later.claimed_at
        ]

    def came_late(self, taken: Mapping[str, Taken]) -> int:
        """How many times the platform brought a question only after a later one had been taken up."""
        turns = [taken[question].turn for question in self.questions if question in taken]
        return sum(earlier > later for earlier, later in itertools.combinations(turns, 2))


@pytest.mark.timeout(SECONDS + 300)
async def test_nothing_is_lost_whatever_fails(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    dice = random.Random(SEED)
    crowds = [CROWDS[number % len(CROWDS)](f"c{number}") for number in range(CHANNELS)]
    with running_postgres() as server:
        cluster = Cluster(tmp_path, server, crowds, REPLICAS, pace=PACE)
        try:
            await cluster.start()
            await asyncio.gather(*(cluster.start_replica(name) for name in REPLICAS))
            await cluster.shared_out()
            people = [Person(crowds[number % CHANNELS], number, dice) for number in range(CONVERSATIONS)]
            chaos = Chaos(cluster, dice)
            async with asyncio.TaskGroup() as group:
                for person in people:
                    group.create_task(person.talk())
                group.create_task(chaos.run(SECONDS))
            quiet = await eventually(lambda: nothing_unfinished(cluster), 120.0, 0.5)
            await judge_all(cluster, chaos, people, quiet, record_property)
        finally:
            await cluster.stop()


async def nothing_unfinished(cluster: Cluster) -> bool:
    confirmed = all(crowd.unconfirmed == 0 for crowd in cluster.crowds.values())
    return confirmed and await cluster.unfinished() == 0


async def judge_all(
    cluster: Cluster,
    chaos: Chaos,
    people: Sequence[Person],
    quiet: float,
    record_property: Callable[[str, object], None],
) -> None:
    asked = sum(len(person.questions) for person in people)
    wrong: list[str] = []
    found: Counter[str] = Counter()
    taken = await cluster.taken()
    for person in people:
        verdict = await person.verdict(taken)
        wrong += [f"overtaken in {person.crowd.name}: {case}" for case in person.overtaken(taken)]
        found["late"] += person.came_late(taken)
        allowed = person.crowd.sends_may_double
        for kind in ("lost", "incomplete", "disordered", "doubled", "foreign"):
            cases: list[str] = getattr(verdict, kind)
            found[kind] += len(cases)
            if cases and not (allowed and kind == "doubled"):
                read = await person.crowd.messages(person.key)
                wrong.append(f"{kind} in {person.crowd.name} ({person.crowd.platform}): {cases}, who reads {read}")
        left_open = await person.crowd.left_open(person.key)
        if left_open and not (allowed and verdict.doubled):
            wrong.append(f"left open in {person.crowd.name}: {left_open}")
    stored, dead = await cluster.stored(), await cluster.dead_letters()
    broken = [rule for crowd in cluster.crowds.values() for rule in crowd.broken_rules()]
    runs = await cluster.count_runs()
    record = chaos.record
    for line in summary(cluster, chaos, found, asked=asked, stored=stored, runs=runs, quiet=quiet):
        record_property("chaos", line)
    assert not wrong, "\n".join([*wrong, *record.story, cluster.logs()])
    assert (stored, dead) == (asked, 0)
    assert runs == asked, "each question had one run"
    assert record.late_writes == []
    assert broken == []
    assert found["doubled"] <= strikes(chaos), "a send is doubled by a kill, not by itself"
    assert {takeover.cause for takeover in record.takeovers} == {"killed", "paused"}
    slowest = max(record.takeovers, key=lambda takeover: takeover.acted)
    p99 = percentile([takeover.acted - takeover.stalled for takeover in record.takeovers], 0.99)
    assert p99 <= TAKEOVER, "\n".join([str(slowest), *record.story, cluster.logs()])


def strikes(chaos: Chaos) -> int:
    """How many sends may have been under way when their process was struck: one for each person who just asked."""
    return sum(count for kind, count in chaos.record.counts.items() if "replica" in kind) * 3


def summary(
    cluster: Cluster, chaos: Chaos, found: Counter[str], *, asked: int, stored: int, runs: int, quiet: float
) -> list[str]:
    """What is printed at the end of the test run."""
    platforms = Counter(crowd.platform for crowd in cluster.crowds.values())
    record = chaos.record
    lines = [
        f"{CONVERSATIONS} conversations, {asked} questions, {len(REPLICAS)} replicas, channels: "
        + ", ".join(f"{count} {platform}" for platform, count in sorted(platforms.items())),
        f"{SECONDS:g} s with seed {SEED}, quiet {quiet:.1f} s after it",
        *(f"  {count:>3} x {kind}" for kind, count in sorted(record.counts.items())),
        f"inbounds stored {stored}, runs {runs}, answers lost {found['lost']}, incomplete {found['incomplete']}, "
        f"out of order {found['disordered']} (questions that the platform brought late {found['late']}), "
        f"sends doubled {found['doubled']}, "
        f"writes of paused owners {len(record.late_writes)}",
        f"{'takeover, s':<14}{'channels':>9}{'lease p50':>11}{'lease max':>11}{'act p50':>9}{'act p99':>9}{'stall':>7}",
    ]
    for cause in ("killed", "paused"):
        of_cause = [takeover for takeover in record.takeovers if takeover.cause == cause]
        if of_cause:
            acquired = [takeover.acquired for takeover in of_cause]
            acted = [takeover.acted for takeover in of_cause]
            lines.append(
                f"{cause:<14}{len(of_cause):>9}{percentile(acquired, 0.5):>11.1f}{max(acquired):>11.1f}"
                f"{percentile(acted, 0.5):>9.1f}{percentile(acted, 0.99):>9.1f}"
                f"{max(takeover.stalled for takeover in of_cause):>7.1f}"
            )
    return lines


def percentile(values: Sequence[float], part: float) -> float:
    """The smallest value that so large a part of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)] if ordered else 0.0
