"""The command line: `astyqueue --help`. A command imports what it needs when it runs, so that help is quick."""

from __future__ import annotations

from astyqueue.cli.commands import Commands

main = Commands(
    name="astyqueue",
    help="Message queues and tasks: run workers, look into queues, mend what failed.",
    epilog=(
        "Commands take their store from --url or ASTYQUEUE_URL, a worker from its app if that names one. Any other option is an "
        "environment variable too: ASTYQUEUE_<COMMAND>_<OPTION>, for example ASTYQUEUE_WORKER_CONCURRENCY. What neither says is read from "
        "astyqueue.toml, or [tool.astyqueue] in pyproject.toml, in the current directory."
    ),
)
