"""`python -m examples.stdlib_index`, or `make demo`."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from astyqueue.queue.queue import MessageQueue
from examples.stdlib_index.findings import Balance, show_dead, show_found
from examples.stdlib_index.jobs import FOLDER, QUEUE, URL, app, index, index_file
from examples.stdlib_index.library import LIBRARY, sources
from examples.stdlib_index.screen import Screen, plain
from examples.stdlib_index.story import Stopped, Story
from examples.stdlib_index.workers import COMMAND, Workers


def main() -> int:
    """Run the demo; 0 if nothing was lost although a worker was killed while it ran a task."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    screen = Screen()
    _start_afresh(FOLDER)
    try:
        with app:
            return _run(screen, app.open(QUEUE))
    except Stopped as error:
        screen.say(f"\n[red]The demo stopped: {plain(str(error))}[/]")
        return 1
    except KeyboardInterrupt:
        screen.say("\nInterrupted. Both workers have left; what they had not done is still in the queue.")
        return 130


def _run(screen: Screen, queue: MessageQueue) -> int:
    files = sources()
    version = ".".join(map(str, sys.version_info[:3]))
    screen.say(f"\n[bold]The library of Python {version}, indexed by two workers, one of which will be killed[/]\n")
    sent = index_file.send_many(index_file.call(path) for path in files).sent
    screen.event(f"sent {sent:,} messages, one for each source file in {plain(str(LIBRARY))}")
    with Workers(FOLDER) as workers, screen:
        story = Story(queue, workers, screen=screen, sent=sent)
        screen.event("worker 1 and worker 2 start, two processes of", f"[bold]{' '.join(COMMAND)}[/]")
        story.go_on()
    screen.event("every message is settled; the workers were asked to leave, and have left\n")
    return _conclude(screen, queue, files)


def _conclude(screen: Screen, queue: MessageQueue, files: list[str]) -> int:
    letters = queue.dead_letters(limit=len(files))
    show_found(screen, index)
    show_dead(screen, letters)
    [(done,)] = index.database.execute("SELECT count(*) FROM files")
    balance = Balance(sent=len(files), on_disk=len(sources()), done=done, dead=len(letters), twice=index.started_twice())
    screen.say(f"[bold {'green' if balance.good else 'red'}]{balance}[/]\n")
    if not balance.good:
        screen.say("[red]That is not what was promised.[/] The logs of the workers are in " + plain(str(FOLDER)))
        return 1
    _what_next(screen)
    return 0


def _what_next(screen: Screen) -> None:
    """Commands that work on what the demo left behind."""
    screen.say(f"Everything is still there, in {plain(str(FOLDER))}. Try next:\n")
    command = "astyqueue" if Path(sys.prefix) == Path(sys.base_prefix) else f"{Path(sys.prefix).name}/bin/astyqueue"
    for line in (
        f"export ASTYQUEUE_URL={URL}",
        f"{command} counts",
        f"{command} dead list {QUEUE}",
        f"{command} dead redrive {QUEUE} --dry-run",
        f"{command} send {QUEUE} --task {index_file.name} '[\"ast.py\"]'",
        f"{command} peek {QUEUE}",
    ):
        screen.say(f"  {plain(line)}")
    screen.say("\nREADME.md has the ten-line program; docs/index.md says how it works and what it promises.")


def _start_afresh(folder: Path) -> None:
    """Begin with empty databases, whatever an earlier run left."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in (*folder.glob("*.db*"), *folder.glob("worker-*.log")):
        old.unlink()
    index.create()


if __name__ == "__main__":
    sys.exit(main())
