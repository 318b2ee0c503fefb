"""Stores on new databases, on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from channels.store import Store
from tests.clock import ManualClock
from tests.databases import (
    database_url,
    empty_database_url,
    empty_postgres_url,
    postgres,
    postgres_url,
    shared_database,
    sqlite_file,
)

__all__ = [
    "database_url",
    "empty_database_url",
    "empty_postgres_url",
    "postgres",
    "postgres_url",
    "shared_database",
    "sqlite_file",
]

OpenStore = Callable[[], Awaitable[Store]]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def open_store(database_url: str, clock: ManualClock) -> AsyncIterator[OpenStore]:
    """Opens the test's database once more, as another process would; leases go by the test's clock."""
    opened: list[Store] = []

    async def open_one() -> Store:
        store = await Store.open(database_url, clock, lease_clock=clock)
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        await store.close()


@pytest.fixture
async def store(open_store: OpenStore) -> Store:
    return await open_store()
