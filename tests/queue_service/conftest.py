"""The three flavours of the queue service, each with a way to let time pass and to open a second service."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar, Final

import boto3
import pytest
from botocore.config import Config

from astyqueue.queue_service import FileQueueService, MemoryQueueService, QueueService, SQSQueueService
from astyqueue.testing import TimeMachine
from tests.support.sqs_server import SQSServer

REGION: Final = "eu-west-1"


class Flavour(ABC):
    """One flavour in a test. What SQS, or the server in its place, does otherwise is said by attributes."""

    #: Messages come in the order in which they were pushed. SQS promises none; its test server keeps it.
    ordered: ClassVar[bool] = True
    #: An earlier receipt changes nothing. SQS documents that; its test server deletes and hides by any receipt.
    fenced: ClassVar[bool] = True

    @abstractmethod
    def open(self) -> QueueService:
        """A service. All that are opened here have the same queues, but for those in memory."""

    @abstractmethod
    def advance(self, seconds: int) -> None:
        """Let time pass for all services of this flavour."""

    @abstractmethod
    def when_waiting(self) -> None:
        """Return when a pull waits, as far as that can be seen from here."""


class Memory(Flavour):
    def __init__(self, clock: TimeMachine, held: ExitStack) -> None:
        self.clock = clock
        self._held = held

    def open(self) -> QueueService:
        return self._held.enter_context(MemoryQueueService(clock=self.clock))

    def advance(self, seconds: int) -> None:
        self.clock.advance(seconds)

    def when_waiting(self) -> None:
        self.clock.when_waiting()


class File(Memory):
    def __init__(self, clock: TimeMachine, held: ExitStack, directory: Path) -> None:
        super().__init__(clock, held)
        self.directory = directory

    def open(self) -> QueueService:
        return self._held.enter_context(FileQueueService(self.directory, clock=self.clock))


class SQS(Flavour):
    fenced = False

    def __init__(self, server: SQSServer, held: ExitStack) -> None:
        self.server = server
        self._held = held

    def open(self) -> QueueService:
        return self._held.enter_context(SQSQueueService(client_of(self.server.url)))

    def advance(self, seconds: int) -> None:
        self.server.advance(seconds)

    def when_waiting(self) -> None:
        """Nothing: a request that comes after the event that it is to wait for finds it."""


def client_of(url: str) -> Any:  # noqa: ANN401 - boto3 makes the classes of its clients at run time
    """A client of the server at this URL, with invented credentials."""
    return boto3.client(
        "sqs",
        endpoint_url=url,
        region_name=REGION,
        aws_access_key_id="invented",
        aws_secret_access_key="invented",  # noqa: S106 - the test server checks none
        config=Config(connect_timeout=5, read_timeout=40, retries={"total_max_attempts": 1}, proxies={}),
    )


@pytest.fixture(autouse=True)
def _no_configuration_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test sees the AWS configuration, the home directory or a proxy of the user who runs it."""
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no-aws-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "no-aws-credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture(scope="session")
def sqs_server() -> Iterator[SQSServer]:
    with SQSServer() as server:
        yield server


@pytest.fixture
def clock() -> TimeMachine:
    return TimeMachine()


@pytest.fixture
def held() -> Iterator[ExitStack]:
    """What is open until the test ends."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def memory(clock: TimeMachine, held: ExitStack) -> Memory:
    return Memory(clock, held)


@pytest.fixture
def file(clock: TimeMachine, held: ExitStack, tmp_path: Path) -> File:
    return File(clock, held, tmp_path / "queues")


@pytest.fixture
def sqs(sqs_server: SQSServer, held: ExitStack) -> SQS:
    sqs_server.reset()
    return SQS(sqs_server, held)


@pytest.fixture(params=["memory", "file", "sqs"])
def flavour(request: pytest.FixtureRequest) -> Flavour:
    chosen: Flavour = request.getfixturevalue(request.param)
    return chosen


@pytest.fixture
def service(flavour: Flavour) -> QueueService:
    return flavour.open()


@pytest.fixture
def in_real_time(flavour: Flavour, held: ExitStack) -> Callable[[], QueueService]:
    """Opens services of the same flavour whose time passes by itself."""
    if isinstance(flavour, File):
        return lambda: held.enter_context(FileQueueService(flavour.directory))
    if isinstance(flavour, Memory):
        return lambda: held.enter_context(MemoryQueueService())
    return flavour.open
