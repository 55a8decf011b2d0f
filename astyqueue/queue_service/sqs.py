"""The flavour in Amazon SQS, through boto3, which the extra `sqs` installs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from astyqueue.errors import (
    AstyqueueError,
    OutcomeUnknown,
    QueueDoesNotExist,
    QueueNameExists,
    StoreError,
    StoreUnavailable,
    saying_how_far,
)
from astyqueue.queue_service.service import BODY_MOST, PulledMessage, QueueService, how_far, not_a_receipt

try:
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
except ModuleNotFoundError as error:
    message = f"SQSQueueService needs {error.name}: pip install '.[sqs]' in a clone of astyqueue"
    raise ModuleNotFoundError(message, name=error.name) from error

#: Messages in one request, a limit of SQS.
_BATCH: Final = 10
_VISIBILITY: Final = "VisibilityTimeout"
_RECEIVE_COUNT: Final = "ApproximateReceiveCount"
#: Error codes of SQS, in its older and its newer protocol, without the prefix that the older one has.
_PREFIX: Final = "AWS.SimpleQueueService."
_UNKNOWN_QUEUE: Final = {"NonExistentQueue", "QueueDoesNotExist"}
_NAME_EXISTS: Final = {"QueueAlreadyExists", "QueueNameExists"}
#: What SQS answers to a change of visibility by a receipt that is not current, by code or by reason.
_NOT_IN_FLIGHT: Final = "MessageNotInflight"
_NOT_HIDDEN: Final = "not available for visibility timeout change"
_BAD_RECEIPT: Final = "ReceiptHandleIsInvalid"
_SERVER_FAULT: Final = 500


class SQSQueueService(QueueService):
    """Standard queues of Amazon SQS, in the account and region of a client.

    SQS promises no order, and may deliver a message again although it is hidden or deleted.
    """

    def __init__(self, client: Any = None) -> None:  # noqa: ANN401 - boto3 makes the classes of its clients at run time
        """Use this client, from `boto3.client("sqs", ...)`; default: one by the AWS configuration of the user."""
        self._client = boto3.client("sqs") if client is None else client
        self._urls: dict[str, str] = {}

    def queues(self) -> list[str]:
        """The names of all queues, in alphabetical order."""
        with _errors(""):
            pages = self._client.get_paginator("list_queues").paginate(PaginationConfig={"PageSize": 1_000})
            return sorted(url.rpartition("/")[2] for page in pages for url in page.get("QueueUrls", ()))

    def close(self) -> None:
        """Close the client."""
        self._client.close()

    def _create(self, name: str, visibility: int) -> str:
        with _errors(name):
            try:
                made = self._client.create_queue(QueueName=name, Attributes={_VISIBILITY: str(visibility)})
            except ClientError as error:
                if _code(error) in _NAME_EXISTS:
                    raise QueueNameExists(name, self._visibility(name), visibility) from error
                raise
        self._urls[name] = str(made["QueueUrl"])
        return self._urls[name]

    def _visibility(self, name: str) -> int:
        with self._queue(name) as url:
            found = self._client.get_queue_attributes(QueueUrl=url, AttributeNames=[_VISIBILITY])
        return int(found["Attributes"][_VISIBILITY])

    def _push(self, name: str, bodies: list[str]) -> list[str]:
        ids: list[str] = []
        with self._queue(name) as url:
            for batch in _batches(bodies):
                entries = [{"Id": str(place), "MessageBody": body} for place, body in enumerate(batch)]
                with saying_how_far(partial(how_far, len(ids), len(bodies))), _errors(name):
                    answer = self._client.send_message_batch(QueueUrl=url, Entries=entries)
                if failed := answer.get("Failed"):
                    message = f"queue {name!r}: SQS refused {_refused(failed, len(ids), len(batch), len(bodies))}"
                    raise StoreError(message)
                sent = {int(one["Id"]): str(one["MessageId"]) for one in answer["Successful"]}
                ids += [sent[place] for place in range(len(batch))]
        return ids

    def _pull(self, name: str, wait: int) -> PulledMessage | None:
        with self._queue(name) as url:
            answer = self._client.receive_message(
                QueueUrl=url,
                MaxNumberOfMessages=1,
                WaitTimeSeconds=wait,
                MessageSystemAttributeNames=[_RECEIVE_COUNT],
            )
        for message in answer.get("Messages", ()):
            received = int(message["Attributes"][_RECEIVE_COUNT])
            return PulledMessage(message["MessageId"], message["Body"], message["ReceiptHandle"], received)
        return None

    def _delete(self, name: str, receipt: str) -> None:
        with self._queue(name, receipt) as url:
            self._client.delete_message(QueueUrl=url, ReceiptHandle=receipt)

    def _change_visibility(self, name: str, receipt: str, visibility: int) -> bool:
        with self._queue(name, receipt) as url:
            try:
                self._client.change_message_visibility(
                    QueueUrl=url, ReceiptHandle=receipt, VisibilityTimeout=visibility
                )
            except ClientError as error:
                if _code(error) != _NOT_IN_FLIGHT and _NOT_HIDDEN not in str(error):
                    raise
                return False
        return True

    def _purge(self, name: str) -> None:
        with self._queue(name) as url:
            self._client.purge_queue(QueueUrl=url)

    def _delete_queue(self, name: str) -> None:
        with self._queue(name) as url:
            self._client.delete_queue(QueueUrl=url)

    @contextmanager
    def _queue(self, name: str, receipt: str = "") -> Iterator[str]:
        """The URL of a queue, for requests whose errors are translated; that of an unknown queue is not kept."""
        try:
            with _errors(name, receipt):
                if name not in self._urls:
                    self._urls[name] = str(self._client.get_queue_url(QueueName=name)["QueueUrl"])
                yield self._urls[name]
        except QueueDoesNotExist:
            self._urls.pop(name, None)
            raise


@contextmanager
def _errors(name: str, receipt: str = "") -> Iterator[None]:
    """Raise errors of boto3, about this queue and receipt, as those that every flavour raises."""
    try:
        yield
    except ClientError as error:
        raise _translated(error, name, receipt) from error
    except HTTPClientError as error:
        message = f"SQS did not answer, so the request may or may not have been carried out: {error}"
        raise OutcomeUnknown(message) from error
    except BotoCoreError as error:
        message = f"SQS cannot be reached: {error}"
        raise StoreUnavailable(message) from error


def _translated(error: ClientError, name: str, receipt: str) -> AstyqueueError:
    code = _code(error)
    if code in _UNKNOWN_QUEUE:
        return QueueDoesNotExist(name)
    if code == _BAD_RECEIPT:
        return not_a_receipt(receipt)
    if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= _SERVER_FAULT:
        return OutcomeUnknown(f"SQS failed, so the request may or may not have been carried out: {error}")
    return StoreError(f"SQS refused the request: {error}")


def _refused(failed: list[dict[str, Any]], before: int, batch: int, total: int) -> str:
    """Which messages of a batch SQS refused and why, which were pushed, and which to push again.

    `before` messages were pushed before this batch, and those of the `total` behind it were not tried.
    """
    reason = ": ".join(filter(None, (failed[0].get("Code"), failed[0].get("Message"))))
    if total == 1:
        return f"the message ({reason})"
    tried = before + batch
    again = f"number {', '.join(str(before + 1 + place) for place in sorted(int(one['Id']) for one in failed))}"
    came = f"{tried - len(failed)} of {total} were pushed"
    if tried < total:
        again += f" and all from number {tried + 1} on"
        came += f", {total - tried} were not tried"
    return f"{len(failed)} of the {batch} messages of a batch ({reason}); {came}: push {again} again"


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", "")).removeprefix(_PREFIX)


def _batches(bodies: list[str]) -> Iterator[list[str]]:
    """The bodies in order, in as few requests as SQS allows: ten bodies, together no larger than the largest body."""
    batch: list[str] = []
    size = 0
    for body in bodies:
        more = len(body.encode())
        if len(batch) == _BATCH or (batch and size + more > BODY_MOST):
            yield batch
            batch, size = [], 0
        batch.append(body)
        size += more
    if batch:
        yield batch
