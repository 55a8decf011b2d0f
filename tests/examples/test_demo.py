"""The demo itself: it loses nothing although it kills a worker, and leaves no process behind, however it ends."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
#: A job that a shell runs in the background ignores interrupts, and so would all that it starts.
_HEARING: Final = [
    sys.executable,
    "-c",
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])",
]
_READY: Final = re.compile(r"\bready worker=[^ :]+:(\d+):")
_BALANCE: Final = re.compile(r"^sent (\d+), done (\d+), dead (\d+), lost (\d+), delivered twice (\d+)$", re.MULTILINE)


@pytest.fixture(scope="module", params=["modules", pytest.param("library", marks=pytest.mark.full)])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is indexed: the modules of the library and one file that cannot be parsed, or in the full run all of it."""
    whole = Path(sysconfig.get_path("stdlib"))
    if request.param == "library":
        return whole
    some = tmp_path_factory.mktemp("library")
    for module in whole.glob("*.py"):
        shutil.copy(module, some)
    some.joinpath("unfinished.py").write_text("def half(")
    return some


def demo(folder: Path, *words: str, library: Path | None = None) -> subprocess.Popen[str]:
    environment = {**os.environ, "STDLIB_INDEX_FOLDER": str(folder), "PYTHONIOENCODING": "ascii"}
    if library is not None:
        environment["STDLIB_INDEX_LIBRARY"] = str(library)
    command = [*_HEARING, sys.executable, "-m", "examples.stdlib_index", *words]
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def workers(folder: Path) -> list[int]:
    """The processes of all workers that came so far as to say that they are ready."""
    return [
        int(_READY.findall(log.read_text())[0]) for log in folder.glob("worker-*.log") if _READY.search(log.read_text())
    ]


def is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_demo_loses_nothing_although_a_worker_is_killed_while_it_runs_a_task(tmp_path: Path, library: Path) -> None:
    with demo(tmp_path, library=library) as running:
        said, _ = running.communicate(timeout=110)
    assert running.returncode == 0, said
    [(sent, done, dead, lost, twice)] = [tuple(map(int, numbers)) for numbers in _BALANCE.findall(said)]
    assert (sent, lost) == (done + dead, 0)
    assert sent > 100
    assert dead >= 1
    assert twice >= 1
    assert re.search(r"worker \d was killed \(SIGKILL\) while it ran \S+\.py", said)
    assert re.search(r"its lease has ended: worker 1 takes over \S+\.py", said)
    assert "\x1b" not in said  # nothing moves where there is no terminal
    assert len(workers(tmp_path)) >= 2
    assert not any(map(is_there, workers(tmp_path)))
    printed = tried(said, tmp_path, library)
    assert "ast.py" in printed  # sent, and seen by peek


def tried(said: str, folder: Path, library: Path) -> str:
    """What the commands on the last screen print, all of which must work."""
    commands = re.findall(r"^  (\S.*)$", said.partition("Try next:")[2], re.MULTILINE)
    assert len(commands) == 6
    environment = {**os.environ, "STDLIB_INDEX_FOLDER": str(folder), "STDLIB_INDEX_LIBRARY": str(library)}
    script = ["bash", "-euc", "\n".join(commands)]
    ran = subprocess.run(script, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.full
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_demo_leaves_no_worker_behind_when_it_is_interrupted(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    with demo(tmp_path) as running:
        assert running.stdout is not None
        assert any("% done" in line for line in running.stdout)  # read only so far
        running.send_signal(number)
        said, _ = running.communicate(timeout=60)
    assert running.returncode == code, said
    assert len(workers(tmp_path)) >= 2
    assert not any(map(is_there, workers(tmp_path)))
