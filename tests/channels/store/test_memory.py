"""A channel remembers small values."""

from __future__ import annotations

import pytest
from pydantic import JsonValue

from channels.store import Store
from tests.channels.store.conftest import OpenStore
from tests.clock import ManualClock


@pytest.mark.parametrize("value", [0, "", [], False, {"offset": 7, "nested": [None, 1.5, "\0"]}])
async def test_a_value_is_remembered_as_it_was(store: Store, value: JsonValue) -> None:
    await store.remember("team", "key", value)
    assert await store.recall("team", "key") == value


async def test_the_newest_value_counts_for_each_channel_and_key(store: Store) -> None:
    await store.remember("team", "offset", 1)
    await store.remember("team", "offset", 2)
    await store.remember("other", "offset", 3)
    assert await store.recall("team", "offset") == 2
    assert await store.recall("other", "offset") == 3
    assert await store.recall("team", "other") is None


async def test_none_forgets(store: Store) -> None:
    await store.remember("team", "key", 1)
    await store.remember("team", "key", None)
    assert await store.recall("team", "key") is None


async def test_a_value_with_a_time_to_live_is_forgotten_after_it(store: Store, clock: ManualClock) -> None:
    await store.remember("team", "key", 1, ttl=10.0)
    await clock.advance(9.9)
    assert await store.recall("team", "key") == 1
    await clock.advance(0.2)
    assert await store.recall("team", "key") is None
    await store.remember("team", "key", 2)
    await clock.advance(1e6)
    assert await store.recall("team", "key") == 2


async def test_values_outlive_a_restart(open_store: OpenStore) -> None:
    first = await open_store()
    await first.remember("team", "key", "kept")
    await first.close()
    assert await (await open_store()).recall("team", "key") == "kept"
