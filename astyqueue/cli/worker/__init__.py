"""What surrounds the dispatcher of `astyqueue worker`: its processes, signals, health checks, and limits of memory.

The command is `astyqueue.cli.commands.worker`: it finds the app, and starts either of these in the main thread.

- `supervisor`: with `-p` or `--reload`, starts processes and those again that die, and passes signals on. It imports no
  app. `supervised_process`: one of the processes, as the supervisor sees it.
- `run`: one dispatcher until its work is done, with what watches it. This is all there is without `-p`.

Between the two, and around the second:

- `process_pipes`: the pipes of a supervisor and a process: requests one way, each second a status the other way.
- `signals`: TERM, INT and HUP drain and then stop, USR1 logs stacks, USR2 makes quiet. The requests of a supervisor do
  the same, so a signal that reaches both counts once.
- `health_server`: answers probes over HTTP, of one process or for all of a supervisor.
- `until_empty`: with `--burst`, drains the dispatcher once its queues are empty.

The main thread of a process is in `Dispatcher.run`, where signals interrupt it. Its threads besides those of the
dispatcher are astyqueue:requests and astyqueue:status for the pipes, astyqueue:health for probes, astyqueue:memory for
`--max-rss`, and astyqueue:burst. They only read the state of the dispatcher, or call its `drain`, `stop` and the like,
which any thread may. The main thread of a supervisor waits for signals, and looks at its processes each second.

docs/how-to/workers.md shows all of this in use; docs/decisions/0045 says why there are pipes.
"""
