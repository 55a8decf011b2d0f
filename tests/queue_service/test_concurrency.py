"""Threads and processes that push and pull at the same time: nothing is lost, and nothing comes twice while hidden."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from astyqueue.queue_service import FileQueueService, PulledMessage, QueueService

PUSHERS: Final = 10
EACH: Final = 10
ALL: Final = sorted(f"{pusher}/{number}" for pusher in range(PUSHERS) for number in range(EACH))
#: A visibility timeout that does not end during a test, in seconds.
HUGE: Final = 43_200
END: Final = "no more"


def push_all(service: QueueService, pusher: int) -> None:
    for number in range(EACH):
        service.push("orders", f"{pusher}/{number}")


def test_what_ten_threads_pushed_is_drained_by_several_without_loss_or_duplicate(
    in_real_time: Callable[[], QueueService],
) -> None:
    service = in_real_time()
    service.create("orders", HUGE)
    with ThreadPoolExecutor(PUSHERS) as threads:
        list(threads.map(lambda pusher: push_all(service, pusher), range(PUSHERS)))
    with ThreadPoolExecutor(4) as threads:
        drains = [threads.submit(lambda: list(iter(lambda: service.pull("orders"), None))) for _ in range(4)]
        messages = [message for drain in drains for message in drain.result(timeout=60)]
    assert sorted(message.body for message in messages) == ALL
    assert len({message.id for message in messages}) == len({message.receipt for message in messages}) == len(ALL)
    assert {message.receive_count for message in messages} == {1}


def test_pushers_and_pullers_that_run_at_the_same_time_balance_to_zero(
    in_real_time: Callable[[], QueueService],
) -> None:
    service = in_real_time()
    service.create("orders", HUGE)
    messages: list[PulledMessage] = []
    lock = threading.Lock()

    def pull_until_all_came() -> None:
        while True:
            with lock:
                if len(messages) >= len(ALL):
                    return
            message = service.pull("orders", wait=1)
            if message is not None:
                service.delete("orders", message.receipt)
                with lock:
                    messages.append(message)

    with ThreadPoolExecutor(PUSHERS + 4) as threads:
        pulls = [threads.submit(pull_until_all_came) for _ in range(4)]
        pushes = [threads.submit(push_all, service, pusher) for pusher in range(PUSHERS)]
        for each in (*pushes, *pulls):
            each.result(timeout=60)
    assert sorted(message.body for message in messages) == ALL
    assert service.pull("orders") is None
    service.purge("orders")


def test_processes_on_one_directory_share_its_queues(tmp_path: Path) -> None:
    with FileQueueService(tmp_path) as service:
        service.create("orders", HUGE)
        pullers = [started("pull", tmp_path) for _ in range(2)]
        pushers = [started("push", tmp_path, str(number)) for number in range(2)]
        for each in pushers:
            each.communicate(timeout=60)
        service.push_many("orders", [END, END])
        pulled = [body for each in pullers for body in each.communicate(timeout=60)[0].splitlines()]
        # What a process stored after a later id of another one was pulled is found within half a second.
        left = [message.body for message in iter(lambda: service.pull("orders", wait=1), None)]
    assert [each.returncode for each in (*pushers, *pullers)] == [0] * 4
    assert sorted(pulled + left) == sorted(f"{pusher}/{number}" for pusher in range(2) for number in range(EACH))


def started(*arguments: str | Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.queue_service.test_concurrency", *map(str, arguments)]
    return subprocess.Popen(command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True)


def main(role: str, directory: str, *pusher: str) -> None:
    """What a process does: `push DIRECTORY NUMBER` or `pull DIRECTORY`, with a service of its own."""
    with FileQueueService(directory) as service:
        if role == "push":
            push_all(service, int(pusher[0]))
            return
        while (message := service.pull("orders", wait=20)) is not None:
            service.delete("orders", message.receipt)
            if message.body == END:
                return
            sys.stdout.write(f"{message.body}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
