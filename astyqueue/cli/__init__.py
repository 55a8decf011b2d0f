"""The command line: `astyqueue --help`. A command imports its dependencies when it runs, so that help is fast.

- `main`: the group of all commands, and the order of help. It finds a command, imports its module, and runs it.
- `commands`: the commands themselves. `worker`: the processes around `astyqueue worker`.
- `config`: options that are not on the command line: variables, and the file of the current directory.
- `params`: the types of options. `context`: what commands share, such as `on_store`, `--json` and `--yes`.
- `output`: what a command prints on stdout. `errors`: how it fails, and its exit codes.
- `streams`: standard streams that are closed, or whose reader goes away. `logging`: the log lines of a worker.

How a command runs, all of it in the main thread: `Commands.__call__` of `main` opens closed streams; `make_context`
reads the options file as defaults, which `config` checks; `resolve_command` imports the module of the command, and
`params` reads the options. `on_store` opens the store and gives the command a `Session`: a connection, and the `Output`
to print to. An error becomes one line on stderr and an exit code in `errors.errors_in_one_line`. The commands but
`worker` start no threads and processes themselves; the driver of Cassandra, a spool and Spark have their own.

docs/reference/cli.md lists all commands, options and exit codes; docs/decisions/0030 says what a file may set.
"""

from __future__ import annotations

import sys

try:
    from astyqueue.cli.main import Commands
except KeyboardInterrupt:  # no command runs yet that would end in one line
    sys.exit(130)

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
