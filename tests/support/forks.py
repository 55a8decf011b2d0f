"""What a child process does with objects of its parent."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

#: Newer Pythons warn of forks beside threads; that there are some is what is tried here.
beside_threads = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def in_a_fork(act: Callable[[], bool]) -> bool:
    """Whether `act` was true in a child process."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    held = False
    try:
        held = act()
    finally:
        os._exit(0 if held else 1)
