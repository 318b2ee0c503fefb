"""A look at a database says whether a start could use it, and leaves everything as it was."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from channels.store import Store
from channels.store.database import Database, create_engine, parse_url
from channels.store.migrate import STORE
from channels.store.probe import probe, trouble_with_folder
from channels.store.records import StoreError
from tests.channels.store.conftest import OpenStore
from tests.clock import ManualClock


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below the folder."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def closed_store(url: str) -> None:
    await (await Store.open(url, ManualClock())).close()


async def test_what_is_not_there_is_not_made(tmp_path: Path) -> None:
    assert await probe(f"sqlite:///{tmp_path}/data/deep/bridge.db") == "will be made"
    assert not (tmp_path / "data").exists()


async def test_a_database_at_rest_is_not_touched(tmp_path: Path) -> None:
    await closed_store(f"sqlite:///{tmp_path}/bridge.db")
    before = contents(tmp_path)
    assert await probe(f"sqlite:///{tmp_path}/bridge.db") == "can be used"
    assert contents(tmp_path) == before


async def test_a_database_can_be_looked_at_while_the_bridge_uses_it(open_store: OpenStore, database_url: str) -> None:
    store = await open_store()
    await store.remember("team", "key", 1)
    assert await probe(database_url) == "can be used"
    assert await store.recall("team", "key") == 1


async def test_an_empty_database_is_to_be_filled(empty_database_url: str) -> None:
    with create_engine(parse_url(empty_database_url)).connect():
        pass  # which makes the file, on SQLite
    assert await probe(empty_database_url) == "can be used; its tables will be brought up to date"


async def test_a_database_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/bridge.db"
    await closed_store(url)
    with create_engine(parse_url(url)).begin() as connection:
        connection.execute(sa.table(STORE.noted_in, sa.column("version_num")).update().values(version_num="9999"))
    with pytest.raises(StoreError, match="newer version"):
        await probe(url)


async def test_memory_is_always_there() -> None:
    assert await probe("sqlite://") == "in memory only"


async def refusal(url: str) -> str:
    with pytest.raises(StoreError) as caught:
        await probe(url)
    return str(caught.value)


async def test_what_is_in_the_way_is_named_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "folder").mkdir()
    assert f"{tmp_path}/file is not a folder" in await refusal(f"sqlite:///{tmp_path}/file/bridge.db")
    assert f"sqlite:///{tmp_path}/file: DatabaseError: file is not" in await refusal(f"sqlite:///{tmp_path}/file")
    assert f"sqlite:///{tmp_path}/folder: " in await refusal(f"sqlite:///{tmp_path}/folder")


async def test_a_server_that_is_away_is_named_without_its_password() -> None:
    said = await refusal("postgresql://bridge:hunter2@127.0.0.1:9/db")
    assert said.startswith("postgresql://bridge:***@127.0.0.1:9/db: ")
    assert "hunter2" not in said


@pytest.mark.parametrize("name", ["file", "folder"])
async def test_a_start_names_the_place_of_what_is_no_database(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way" * 1000)
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreError, match=f"sqlite:///{tmp_path}/{name}: "):
        await Store.open(f"sqlite:///{tmp_path}/{name}", ManualClock())


def test_a_start_names_the_folder_that_it_cannot_make(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match=f"sqlite:///{tmp_path}/file/x/bridge.db: the folder cannot be made"):
        Database(f"sqlite:///{tmp_path}/file/x/bridge.db", ManualClock())


def test_a_folder_that_is_yet_to_be_made_is_judged_by_the_nearest_one(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert trouble_with_folder(tmp_path / "a" / "b") == ""
    assert trouble_with_folder(tmp_path / "file" / "b") == f"{tmp_path}/file is not a folder"
