"""Looks whether a database could be used, without making or changing anything."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from pathlib import Path
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.engine import URL, Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from channels.store.database import as_store_error, create_engine, is_in_memory, parse_url
from channels.store.migrate import STORE, Schema, revision
from channels.store.records import StoreError


async def probe(url: str, schema: Schema = STORE) -> str:
    """What a start would meet at `url`, in a few words. Raises `StoreError` when it could not use it."""
    parsed = parse_url(url)
    try:
        return await asyncio.to_thread(_probe, parsed, schema)
    except (SQLAlchemyError, OSError) as error:
        raise as_store_error(error, parsed) from None


def trouble_with_folder(folder: Path) -> str:
    """Why no file can be made in the folder, or in one that is yet to be made; empty: it can."""
    folder = folder.absolute()
    nearest = next(parent for parent in (folder, *folder.parents) if os.path.exists(parent))
    if not nearest.is_dir():
        return f"{nearest} is not a folder"
    return "" if os.access(nearest, os.W_OK | os.X_OK) else f"the folder {nearest} cannot be written to"


def _probe(url: URL, schema: Schema) -> str:
    if is_in_memory(url) and url.get_backend_name() == "sqlite":
        return "in memory only"
    if url.get_backend_name() == "postgresql":
        return _look(create_engine(url), schema)
    file = Path(str(url.database))
    if trouble := trouble_with_folder(file.parent):
        raise StoreError(trouble)
    if not file.exists():
        return "will be made"
    if not os.access(file, os.R_OK | os.W_OK):
        raise StoreError(f"the file {file} cannot be written to")
    return _look(sa.create_engine("sqlite://", creator=lambda: _open_untouched(file), poolclass=NullPool), schema)


def _open_untouched(file: Path) -> sqlite3.Connection:
    # Beside a file with a log somebody may be working; without one nobody is, and SQLite need not make one to read.
    mode = "mode=ro" if Path(f"{file}-wal").exists() else "immutable=1"
    return sqlite3.connect(f"file:{quote(str(file))}?{mode}", uri=True)


def _look(engine: Engine, schema: Schema) -> str:
    try:
        with engine.connect() as connection:
            connection.execute(sa.text("SELECT 1")).scalar()
            if engine.dialect.name == "sqlite":
                connection.execute(sa.text("SELECT count(*) FROM sqlite_master")).scalar()
        noted = revision(engine, schema)
    finally:
        engine.dispose()
    if noted is not None and noted > schema.head:
        raise StoreError("the database was made by a newer version of the bridge")
    return "can be used" if noted == schema.head else "can be used; its tables will be brought up to date"
