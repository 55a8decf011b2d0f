"""The command line: `astyqueue --help`. A command imports its dependencies when it runs, so that help is fast."""

from __future__ import annotations

from astyqueue.cli.main import Commands

main = Commands(
    name="astyqueue",
    help="Message queues and tasks: run workers, inspect queues, retry dead letters.",
    epilog=(
        "Commands take the store's URL from --url or ASTYQUEUE_URL; a worker takes it from its app if the app has one. "
        "Any other option can be set by a variable ASTYQUEUE_<COMMAND>_<OPTION>, such as ASTYQUEUE_WORKER_CONCURRENCY. "
        "Options set by neither are read from astyqueue.toml, or [tool.astyqueue] in pyproject.toml, in the current "
        "directory."
    ),
)
