"""A store in one SQLite file, for many threads and many processes of one machine."""

from __future__ import annotations

from astyqueue.stores.sqlite.store import SQLiteStore, opened

__all__ = ["SQLiteStore", "opened"]
