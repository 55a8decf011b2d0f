"""A store in one SQLite file, for many threads and many processes of one machine.

- `store`: `SQLiteStore`, the verbs of the port; a commit is one transaction that checks its expectations first.
- `database`: how the file is opened, created and recognized. `schema`, `sql`: its tables and statements.
- `connection`: a connection for each thread, with a cache of its last answer; threads that write take turns.
- `transaction`: a transaction of a caller's own statements and those of a queue.
- `filesystems`, `admin`: checks of the file, its log and its disk. `errors`: SQLite's errors as ours, with remedies.

Threads and processes share the file through SQLite's write-ahead log, so it must be on a local disk.
docs/explanation/files.md explains what is synced when, and how to back it up.
"""

from __future__ import annotations

from astyqueue.stores.sqlite.store import SQLiteStore, opened

__all__ = ["SQLiteStore", "opened"]
