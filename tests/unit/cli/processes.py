"""Commands as processes of their own, in the current directory."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

#: Seconds within which a process must end; only a failing test takes so long.
DEADLINE: Final = 60


def run(*words: str, closed: str = "", out: int = subprocess.PIPE, err: int = subprocess.PIPE) -> tuple[int, str, str]:
    """Run a command with the descriptors `closed` as a shell closes them; its exit code, stdout and stderr."""
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "astyqueue", *words]
    done = subprocess.run(command, stdout=out, stderr=err, text=True, timeout=DEADLINE, check=False)
    return done.returncode, done.stdout or "", done.stderr or ""
