"""Calls that go on only while this process may act: asked before every step of a call, not only before its start.

A process can be paused anywhere: inside a call, its request not sent yet. When it wakes, another owner may have taken
over long ago, and the rest of the call must not happen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Generic, TypeVar

T = TypeVar("T")


async def permitted(call: Coroutine[object, None, T], permit: Callable[[], None]) -> T:
    """Await `call`, asking `permit` before each of its steps in this task.

    Once `permit` raises, the call is cancelled and, when it has ended, what `permit` raised is raised. Tasks and
    threads that the call started are not asked for.
    """
    return await _Steps(call, permit)


class _Steps(Generic[T]):
    def __init__(self, call: Coroutine[object, None, T], permit: Callable[[], None]) -> None:
        self._call = call
        self._permit = permit

    def __await__(self) -> Generator[object, None, T]:
        refusal: Exception | None = None
        thrown: BaseException | None = None
        while True:
            if refusal is None and thrown is None:
                try:
                    self._permit()
                except Exception as error:  # noqa: BLE001 - whatever it is, it is raised when the call has ended
                    refusal, thrown = error, asyncio.CancelledError()
            try:
                waits_for = self._call.send(None) if thrown is None else self._call.throw(thrown)
            except StopIteration as end:
                if refusal is not None:
                    raise refusal from None
                result: T = end.value
                return result
            except asyncio.CancelledError:
                if refusal is not None:
                    raise refusal from None
                raise
            thrown = None
            try:
                yield waits_for
            except BaseException as error:  # noqa: BLE001 - it is the call's to deal with
                thrown = error
