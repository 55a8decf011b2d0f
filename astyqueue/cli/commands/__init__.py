"""The commands of `astyqueue`, one module for each group of them, imported when one is used.

- `worker` runs an app; `astyqueue.cli.worker` is what surrounds it. `workers` lists those of a store.
- `send`, `messages`, `history`, `rescan`, `dead` and `schedules` work on the messages of a queue, `queues` on queues.
- `admin`: `migrate`, `verify` and `doctor`.
- `journal` and `spool` work on folders of this machine.
- `spark` and `pipeline` need the extra `spark`.

`astyqueue.cli.main` has the list of commands. A new one is a function there, decorated with `on_store` of
`astyqueue.cli.context` if it opens a store, and imports what it needs when it runs. docs/reference/cli.md shows all of
them; it is written from their help.
"""
