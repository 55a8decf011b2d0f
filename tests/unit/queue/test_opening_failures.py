"""A queue that cannot be opened leaves nothing open, and makes nothing that it need not."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import pytest

from astyqueue import MessageQueue, aio
from astyqueue.errors import BadInput, LayoutDiffers
from astyqueue.queue.builder import QueueBuilder
from astyqueue.store import Store
from astyqueue.stores import open_store
from astyqueue.testing import TimeMachine

#: More files than a test has open.
_FILES: Final = 1024
Q = TypeVar("Q")
Opens = Callable[[str, str | None, int], object]


def wanted(builder: QueueBuilder[Q], url: str, name: str | None, priorities: int) -> QueueBuilder[Q]:
    builder.store(url).priorities(priorities)
    return builder if name is None else builder.name(name)


def for_threads(url: str, name: str | None, priorities: int) -> MessageQueue:
    return wanted(MessageQueue.builder(), url, name, priorities).build()


def for_tasks(url: str, name: str | None, priorities: int) -> aio.MessageQueue:
    async def opened() -> aio.MessageQueue:
        return await wanted(aio.MessageQueue.builder(), url, name, priorities).build()

    return asyncio.run(opened())


def times_open(file: Path) -> int:
    """How many descriptors of this process are this file."""
    wanted, count = file.stat(), 0
    for descriptor in range(_FILES):
        try:
            count += os.path.samestat(os.fstat(descriptor), wanted)
        except OSError:
            continue
    return count


@pytest.mark.parametrize("opens", [for_threads, for_tasks])
def test_a_store_that_was_opened_for_a_queue_is_closed_when_that_cannot_be(tmp_path: Path, opens: Opens) -> None:
    file = tmp_path / "work.db"
    for_threads(f"sqlite:///{file}", "emails", 1).close()
    with pytest.raises(LayoutDiffers) as told:
        opens(f"sqlite:///{file}", "emails", 3)
    assert times_open(file) == 0, told


def test_a_store_that_was_lent_stays_open(clock: TimeMachine) -> None:
    store: Store = open_store("memory://", clock=clock)
    MessageQueue.builder().store(store).name("emails").build()
    with pytest.raises(LayoutDiffers):
        MessageQueue.builder().store(store).name("emails").priorities(3).build()
    assert MessageQueue.builder().store(store).name("emails").build().counts().total == 0


@pytest.mark.parametrize("name", [None, "a:b"])
@pytest.mark.parametrize("opens", [for_threads, for_tasks])
def test_a_queue_without_a_good_name_opens_no_store(tmp_path: Path, name: str | None, opens: Opens) -> None:
    with pytest.raises(BadInput, match=r"has no name|a:b"):
        opens(f"sqlite:///{tmp_path}/work.db", name, 1)
    assert list(tmp_path.iterdir()) == []
