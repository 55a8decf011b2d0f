"""Real worker processes, started with the usual command; none is left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from examples.stdlib_index.jobs import FOLDER_VARIABLE, QUEUE, URL_VARIABLE

COMMAND: Final = ("astyqueue", "worker", "examples.stdlib_index.jobs:app", "-Q", QUEUE, "-c", "2")
#: Seconds after SIGTERM until a worker is killed.
_PATIENCE: Final = 10


class Worker:
    """One worker process; its output goes to a file."""

    def __init__(self, number: int, folder: Path, url: str) -> None:
        """Start the process."""
        self.number = number
        self.log = folder / f"worker-{number}.log"
        # Some files of the library cause warnings when they are parsed, which would fill the log.
        environment = {**os.environ, FOLDER_VARIABLE: str(folder), URL_VARIABLE: url, "PYTHONWARNINGS": "ignore"}
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *COMMAND],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
            )

    def __str__(self) -> str:
        """The name on the screen."""
        return f"worker {self.number}"

    @property
    def process(self) -> int:
        """The process id."""
        return self._process.pid

    def ended_within(self, seconds: float) -> bool:
        """Wait at most this number of seconds; returns whether the process has ended."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """Send SIGKILL: as at a power cut, the process cannot clean up."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def leave(self) -> None:
        """Send SIGTERM, as a supervisor does; the worker finishes its tasks."""
        self._process.terminate()

    def last_words(self) -> str:
        """The last lines of its log, at most 12."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-12:])


class Workers:
    """The workers of the demo; all have ended when the block is left, also by an error."""

    def __init__(self, folder: Path, url: str) -> None:
        """Workers will use the store at this URL; none is started yet."""
        self._folder = folder
        self._url = url
        self._started: list[Worker] = []

    def start(self) -> Worker:
        """Start a further worker."""
        worker = Worker(len(self._started) + 1, self._folder, self._url)
        self._started.append(worker)
        return worker

    def named(self, process: int) -> str:
        """The name on the screen of the worker with this process id."""
        return next((str(worker) for worker in self._started if worker.process == process), f"process {process}")

    def __enter__(self) -> Self:
        """Begin the block at whose end all workers are stopped."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Send SIGTERM to all, then SIGKILL to those that still run; ignore Ctrl-C meanwhile, at most 10 s a worker."""
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        alive = [worker for worker in self._started if not worker.ended_within(0)]
        for worker in alive:
            worker.leave()
        for worker in alive:
            if not worker.ended_within(_PATIENCE):
                worker.kill()
        signal.signal(signal.SIGINT, before)
