"""A process with a service of its own on a directory of queues: `push DIRECTORY NAME` or `pull DIRECTORY`."""

from __future__ import annotations

import sys

from astyqueue.queue_service import FileQueueService
from tests.queue_service.test_concurrency import END, push_all


def main(role: str, directory: str, *pusher: str) -> None:
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
