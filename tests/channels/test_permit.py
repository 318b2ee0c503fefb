"""A call goes on only while it is permitted, however long the process stood still inside it."""

from __future__ import annotations

import asyncio

import pytest

from channels.permit import permitted


class Permit:
    """Refuses once `over` is set."""

    def __init__(self) -> None:
        self.over = False

    def __call__(self) -> None:
        if self.over:
            raise LookupError("no longer")


async def test_a_permitted_call_returns_and_raises_what_it_does_by_itself() -> None:
    async def call(fails: bool) -> str:
        await asyncio.sleep(0)
        async with asyncio.timeout(5):
            await asyncio.sleep(0.001)
        if fails:
            raise ValueError("its own")
        return "done"

    assert await permitted(call(False), Permit()) == "done"
    with pytest.raises(ValueError, match="its own"):
        await permitted(call(True), Permit())


async def test_a_call_that_may_not_begin_does_nothing() -> None:
    permit, done = Permit(), []
    permit.over = True

    async def call() -> None:
        done.append("begun")

    with pytest.raises(LookupError):
        await permitted(call(), permit)
    assert done == []


async def test_a_call_is_broken_off_at_the_step_at_which_the_permission_is_gone() -> None:
    permit, done = Permit(), list[str]()
    connected = asyncio.Event()

    async def call() -> None:
        try:
            done.append("connecting")
            await connected.wait()
            done.append("sent")
        finally:
            await asyncio.sleep(0)
            done.append("closed")

    task = asyncio.create_task(permitted(call(), permit))
    await asyncio.sleep(0)
    permit.over = True
    connected.set()
    with pytest.raises(LookupError, match="no longer"):
        await task
    assert done == ["connecting", "closed"]


async def test_a_call_that_ends_well_all_the_same_is_refused_too() -> None:
    permit = Permit()
    go_on = asyncio.Event()

    async def call() -> str:
        try:
            await go_on.wait()
        except asyncio.CancelledError:
            return "swallowed"
        return "done"

    task = asyncio.create_task(permitted(call(), permit))
    await asyncio.sleep(0)
    permit.over = True
    go_on.set()
    with pytest.raises(LookupError):
        await task


async def test_cancelling_reaches_the_call() -> None:
    cleaned = asyncio.Event()

    async def call() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    task = asyncio.create_task(permitted(call(), Permit()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned.is_set()


async def test_a_time_limit_inside_the_call_still_works() -> None:
    async def call() -> str:
        try:
            async with asyncio.timeout(0.001):
                await asyncio.Event().wait()
        except TimeoutError:
            return "timed out"
        return "never"

    assert await permitted(call(), Permit()) == "timed out"
