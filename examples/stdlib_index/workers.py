"""Real worker processes, started the way anybody starts them, and none left behind."""

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
#: A worker that was asked to leave and has not after so many seconds is made to.
_PATIENCE: Final = 10


class Worker:
    """One worker process; what it says goes to a file."""

    def __init__(self, number: int, folder: Path, url: str) -> None:
        """It starts at once."""
        self.number = number
        self.log = folder / f"worker-{number}.log"
        # Some files of the library are written to raise warnings; they are not what the log is for.
        environment = {**os.environ, FOLDER_VARIABLE: str(folder), URL_VARIABLE: url, "PYTHONWARNINGS": "ignore"}
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *COMMAND], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment
            )

    def __str__(self) -> str:
        """What it is called on screen."""
        return f"worker {self.number}"

    @property
    def process(self) -> int:
        """Its process id."""
        return self._process.pid

    def ended_within(self, seconds: float) -> bool:
        """Wait so long at most; whether it has ended."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """End it as a power cut would: it learns nothing of it, and can put nothing in order."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def leave(self) -> None:
        """Ask it to leave, as any supervisor does."""
        self._process.terminate()

    def last_words(self) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-12:])


class Workers:
    """The workers of the demo; on leaving the block, however that comes about, none is left."""

    def __init__(self, folder: Path, url: str) -> None:
        """None yet; they will work on the store at this URL."""
        self._folder = folder
        self._url = url
        self._started: list[Worker] = []

    def start(self) -> Worker:
        """One more."""
        worker = Worker(len(self._started) + 1, self._folder, self._url)
        self._started.append(worker)
        return worker

    def named(self, process: int) -> str:
        """What the worker with this process id is called."""
        return next((str(worker) for worker in self._started if worker.process == process), f"process {process}")

    def __enter__(self) -> Self:
        """See that none is left."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Ask all to leave, then insist; another Ctrl-C changes nothing, for this takes a moment only."""
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        alive = [worker for worker in self._started if not worker.ended_within(0)]
        for worker in alive:
            worker.leave()
        for worker in alive:
            if not worker.ended_within(_PATIENCE):
                worker.kill()
        signal.signal(signal.SIGINT, before)
