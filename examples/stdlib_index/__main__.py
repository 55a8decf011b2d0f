"""`python -m examples.stdlib_index [--cassandra] [--history]`, or `make demo` and `make demo-cassandra`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from astyqueue.clock import SystemClock
from astyqueue.queue.queue import MessageQueue
from astyqueue.stores.admin import administer
from astyqueue.testing import LocalCassandra
from astyqueue.testing.cassandra import CannotRunHere, NodeNotReady
from examples.stdlib_index.facts import LIBRARY, sources
from examples.stdlib_index.findings import Balance, explain_twice, show_balance, show_dead, show_found
from examples.stdlib_index.jobs import FOLDER, QUEUE, app, index, index_file
from examples.stdlib_index.screen import Screen, plain
from examples.stdlib_index.story import Stopped, Story
from examples.stdlib_index.workers import Workers

_ON_CASSANDRA: Final = "--cassandra"
#: Keep the whole history of the queue, for queries after the demo.
_WITH_HISTORY: Final = "--history"


KEYSPACE: Final = "stdlib_index"


@contextmanager
def local_node(screen: Screen) -> Iterator[str]:
    """The URL of an empty store on a new node; leaving the block, also by an error, ends it and deletes its data."""
    screen.event("a Cassandra node starts on this machine (the first time, Maven fetches 70 MB)")
    with LocalCassandra() as node:
        with administer(node.url(KEYSPACE), clock=SystemClock()) as administration:
            administration.migrate()
        points = ", ".join(node.contact_points)
        screen.event(f"it takes requests at {points}, and has the table of the queue in keyspace {KEYSPACE}")
        yield node.url(KEYSPACE)
    screen.event("the node has ended, and its data is deleted")


def main(words: list[str]) -> int:
    """Run the demo in a file or on a new Cassandra node; returns 0 if nothing was lost although a worker was killed."""
    if unknown := set(words) - {_ON_CASSANDRA, _WITH_HISTORY}:
        sys.stderr.write(f"unknown: {', '.join(sorted(unknown))}; options are {_ON_CASSANDRA} and {_WITH_HISTORY}\n")
        return 2
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _: sys.exit(128 + received))
    screen = Screen()
    _start_afresh(FOLDER)
    try:
        run = _on_node if _ON_CASSANDRA in words else _in_file
        return run(screen, history=_WITH_HISTORY in words)
    except (Stopped, CannotRunHere, NodeNotReady) as error:
        screen.say(f"\n[red]The demo stopped: {plain(error)}[/]")
        return 1
    except KeyboardInterrupt:
        screen.say(
            "\nInterrupted. The workers have ended; the rest of the messages "
            + ("went with the node." if words else "is still in the queue.")
        )
        return 130


def _in_file(screen: Screen, *, history: bool) -> int:
    """Run with the queue in a file, which stays afterwards."""
    with app:
        return _run(screen, _opened(history=history), stays=True)


def _on_node(screen: Screen, *, history: bool) -> int:
    """Run with the queue on a Cassandra node, which is ended afterwards."""
    with local_node(screen) as app.url, app:
        return _run(screen, _opened(history=history), stays=False)


def _opened(*, history: bool) -> MessageQueue:
    """The queue, which keeps all of its history, or only failures."""
    queue = app.open(QUEUE)
    queue.configure(history="all" if history else "failures")
    return queue


def _run(screen: Screen, queue: MessageQueue, *, stays: bool) -> int:
    """Send, run the workers, and show the result; `stays`: the store is there afterwards."""
    version = ".".join(map(str, sys.version_info[:3]))
    screen.say(f"\n[bold]The library of Python {version}, indexed by two workers, one of which will be killed[/]\n")
    sent = index_file.send_many(index_file.call(path) for path in sources()).sent
    screen.event(f"sent {sent:,} messages, one for each source file in {plain(LIBRARY)}")
    with Workers(FOLDER, app.url or "") as workers, screen:
        story = Story(queue, workers, screen=screen, sent=sent)
        story.go_on()
    screen.event("all done: the workers were sent SIGTERM, and have ended")
    screen.say()
    letters = queue.dead_letters(limit=sent)
    show_found(screen, index)
    show_dead(screen, letters)
    twice = index.started_twice()
    balance = Balance(sent=sent, on_disk=len(sources()), done=index.files(), dead=len(letters), twice=len(twice))
    show_balance(screen, balance)
    if not balance.good:
        screen.say(f"[red]Failed: messages were lost, or none was delivered twice.[/] Logs are in {plain(FOLDER)}.")
        return 1
    killed = sum(process in story.killed for process in twice.values())
    explain_twice(screen, caught=len(story.caught), killed=killed, twice=len(twice))
    (_what_next if stays else _where_next)(screen)
    return 0


def _what_next(screen: Screen) -> None:
    """Show commands to try on the store that the demo leaves."""
    command = Path(sys.executable).with_name("astyqueue")
    command = command.relative_to(Path.cwd()) if command.is_relative_to(Path.cwd()) else command
    screen.say("Everything is still there. Try next:\n")
    for line in (
        f"export ASTYQUEUE_URL={app.url}",
        f"{command} counts",
        f"{command} dead list {QUEUE}",
        f"{command} send {QUEUE} --task {index_file.name} '[\"ast.py\"]'",
        f"{command} peek {QUEUE}",
        f"{command} worker examples.stdlib_index.jobs:app -Q {QUEUE} --burst",
    ):
        screen.command(line)
    screen.say("\nREADME.md has a ten-line program; docs/index.md, the design and the guarantees.")


def _where_next(screen: Screen) -> None:
    """Show how to start a node that stays."""
    screen.say("The node ends now, and its data is deleted. To start one that runs until Ctrl-C and prints its URL:\n")
    screen.command(f"{sys.executable} -m astyqueue.testing.cassandra up")
    screen.say("\nThe same program runs on SQLite: make demo. Design and guarantees: docs/index.md.")


def _start_afresh(folder: Path) -> None:
    """Remove the databases and logs of an earlier run, and create an empty index."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in (*folder.glob("*.db*"), *folder.glob("worker-*.log")):
        old.unlink()
    index.create()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
