"""One interface, with the semantics of Amazon SQS, to queues in memory, in a file, and in SQS itself.

Code takes a `QueueService`, and the code that starts the program chooses which one. So code that runs on SQS runs in
tests without a server, and the time in them is that of a clock that the test moves.

- `service`: the interface, its messages, and the rules for names, bodies and durations, which are the same everywhere.
- `local`: `MemoryQueueService` and `FileQueueService`, on queues of astyqueue.
- `local_receipts`: what a receipt of those two allows, as steps.
- `sqs`: `SQSQueueService`, through boto3, which the extra `sqs` installs.

docs/how-to/hermetic.md shows how to use it, and what differs between the flavours.
"""

from typing import TYPE_CHECKING, Final

from astyqueue.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from astyqueue.queue_service.local import FileQueueService, MemoryQueueService
    from astyqueue.queue_service.service import PulledMessage, QueueService
    from astyqueue.queue_service.sqs import SQSQueueService

__all__ = ["FileQueueService", "MemoryQueueService", "PulledMessage", "QueueService", "SQSQueueService"]

_HOMES: Final = {
    "FileQueueService": "local",
    "MemoryQueueService": "local",
    "PulledMessage": "service",
    "QueueService": "service",
    "SQSQueueService": "sqs",
}


__getattr__ = lazy_imports(globals(), _HOMES)
