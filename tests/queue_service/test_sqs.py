"""The flavour in SQS: its client, its requests, and errors of the server and of the way to it."""

from __future__ import annotations

import hashlib
import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from astyqueue import queue_service
from astyqueue.errors import OutcomeUnknown, QueueDoesNotExist, StoreError, StoreUnavailable
from astyqueue.queue_service import QueueService, SQSQueueService
from tests.queue_service.conftest import REGION, SQS, client_of

#: From the verb and the request to the status and the body of the answer.
Answers = Callable[[str, dict[str, Any]], tuple[int, dict[str, Any]]]


def test_the_url_is_that_of_the_server_and_two_clients_share_its_queues(sqs: SQS) -> None:
    first, second = sqs.open(), sqs.open()
    url = first.create("orders")
    assert url.startswith(sqs.server.url)
    assert url.endswith("/orders")
    first.push("orders", "a book")
    message = second.pull("orders")
    assert message is not None
    first.delete("orders", message.receipt)


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    monkeypatch.delitem(sys.modules, "astyqueue.queue_service.sqs")
    monkeypatch.delitem(vars(queue_service), "SQSQueueService")
    with pytest.raises(ModuleNotFoundError, match=r"needs boto3.* pip install '\.\[sqs\]' in a clone of astyqueue"):
        _ = queue_service.SQSQueueService


def test_a_service_without_a_client_follows_the_configuration_of_the_user(
    sqs: SQS, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "AWS_ENDPOINT_URL_SQS": sqs.server.url,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ACCESS_KEY_ID": "invented",
        "AWS_SECRET_ACCESS_KEY": "invented",
    }.items():
        monkeypatch.setenv(name, value)
    with SQSQueueService() as service:
        service.create("orders")
        assert service.queues() == ["orders"]


def test_more_queues_than_one_page_has_are_listed() -> None:
    pages: dict[str | None, dict[str, Any]] = {
        None: {"QueueUrls": ["http://sqs/b"], "NextToken": "more"},
        "more": {"QueueUrls": ["http://sqs/a"]},
    }
    with answering(lambda _, request: (200, pages[request.get("NextToken")])) as service:
        assert service.queues() == ["a", "b"]


def test_a_queue_that_another_client_deleted_is_unknown_until_it_is_created_again(sqs: SQS) -> None:
    first, second = sqs.open(), sqs.open()
    first.create("orders")
    first.push("orders", "a book")
    second.delete_queue("orders")
    with pytest.raises(QueueDoesNotExist):
        first.push("orders", "a letter")
    second.create("orders")
    first.push("orders", "a letter")


def test_a_server_that_is_not_there_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with SQSQueueService(client_of(f"http://127.0.0.1:{port}")) as service, pytest.raises(StoreUnavailable):
        service.create("orders")


ANSWERS = [
    (400, "com.amazonaws.sqs#QueueDoesNotExist", "The specified queue does not exist.", QueueDoesNotExist),
    (403, "AccessDeniedException", "not yours", StoreError),
    (503, "ServiceUnavailable", "later", OutcomeUnknown),
    (0, "", "closes the connection", OutcomeUnknown),
]


@pytest.mark.parametrize(("status", "code", "text", "error"), ANSWERS)
def test_an_error_of_the_server_is_one_of_ours(status: int, code: str, text: str, error: type[StoreError]) -> None:
    with answering(failing(status, code, text)) as service, pytest.raises(error) as raised:
        service.push("orders", "a book")
    assert type(raised.value) is error
    assert raised.value.__cause__ is not None


def batches(count: int, *, refuses: int = 0, fails_at: int = 0) -> Answers:
    """A queue that refuses message `refuses` of `count`, and fails at request `fails_at`; both count from 1."""
    seen: list[dict[str, Any]] = []

    def answer(verb: str, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if verb == "GetQueueUrl":
            return 200, {"QueueUrl": "http://sqs/orders"}
        seen.append(request)
        if len(seen) == fails_at:
            return 403, {"__type": "AccessDeniedException", "message": "not yours"}
        refused = [entry for entry in request["Entries"] if entry["MessageBody"] == f"body {refuses} of {count}"]
        return 200, {
            "Successful": [
                {
                    **entry,
                    "MessageId": "m",
                    "MD5OfMessageBody": hashlib.md5(entry["MessageBody"].encode(), usedforsecurity=False).hexdigest(),
                }
                for entry in request["Entries"]
                if entry not in refused
            ],
            "Failed": [
                {"Id": one["Id"], "Code": "InternalError", "Message": "try later", "SenderFault": False}
                for one in refused
            ],
        }

    return answer


def bodies(count: int) -> list[str]:
    return [f"body {number} of {count}" for number in range(1, count + 1)]


@pytest.mark.parametrize(
    ("count", "refused", "told"),
    [
        (35, 14, "19 of 35 were pushed, 15 were not tried: push number 14 and all from number 21 on again"),
        (35, 33, "34 of 35 were pushed: push number 33 again"),
        (1, 1, "SQS refused the message (InternalError: try later)"),
    ],
)
def test_an_error_says_which_messages_were_refused_and_which_were_not_tried(
    count: int, refused: int, told: str
) -> None:
    with answering(batches(count, refuses=refused)) as service, pytest.raises(StoreError) as raised:
        service.push_many("orders", bodies(count))
    assert str(raised.value).endswith(told)


@pytest.mark.parametrize(
    ("fails_at", "told"), [(1, "not yours"), (3, "The first 20 of 35 messages were pushed before that")]
)
def test_an_error_of_a_request_says_how_many_messages_were_pushed_before(fails_at: int, told: str) -> None:
    with answering(batches(35, fails_at=fails_at)) as service, pytest.raises(StoreError) as raised:
        service.push_many("orders", bodies(35))
    assert str(raised.value).endswith(told)


NOT_HIDDEN = "Reason: Message does not exist or is not available for visibility timeout change."
NOT_CURRENT = [
    ("com.amazonaws.sqs#MessageNotInflight", "The message referred to is not in flight."),
    ("InvalidParameterValue", f"Value x for parameter ReceiptHandle is invalid. {NOT_HIDDEN}"),
]


@pytest.mark.parametrize(("code", "text"), NOT_CURRENT)
def test_what_sqs_says_of_a_receipt_that_hides_nothing_is_no_error(code: str, text: str) -> None:
    with answering(failing(400, code, text)) as service:
        assert not service.change_visibility("orders", "a receipt", 5)


def failing(status: int, code: str, text: str) -> Answers:
    """Give the URL of a queue, and answer all else with this error."""
    return lambda verb, _: (
        (200, {"QueueUrl": "http://sqs/orders"})
        if verb == "GetQueueUrl"
        else (status, {"__type": code, "message": text})
    )


@contextmanager
def answering(answers: Answers) -> Iterator[QueueService]:
    """A service whose server answers by this function; with a status of zero it closes the connection instead."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, body = answers(self.headers["X-Amz-Target"].rpartition(".")[2], request)
            if not status:
                return
            encoded = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.0")
            self.send_header("Content-Length", str(len(encoded)))
            self.end_headers()
            self.wfile.write(encoded)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with SQSQueueService(client_of(f"http://127.0.0.1:{server.server_port}")) as service:
                yield service
        finally:
            server.shutdown()
            thread.join()
