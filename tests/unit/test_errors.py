"""Errors travel: to another process, through a pool, into a copy. They arrive as they were raised."""

from __future__ import annotations

import copy
import importlib
import multiprocessing
import pickle
import pkgutil
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

import astyqueue
from astyqueue import errors, journal_errors
from astyqueue.cli.errors import ExitCode, Failure
from astyqueue.spark.errors import HistoryGone
from astyqueue.spark.pipeline.folder_lock import FolderInUse
from astyqueue.spark.pipeline.manifest import BadManifest
from astyqueue.spark.pipeline.parquet_store import FilesLost
from astyqueue.spark.pipeline.schemas import SchemaDiffers
from astyqueue.spark.session import NoJava as NoJavaForSpark
from astyqueue.testing.cassandra import errors as cassandra

_NO_MAVEN: Final = cassandra.NoMaven("5.0.8")
#: One of each class that makes its message of facts.
SAMPLES: Final = (
    errors.BadExpression("0 9 * *", "hour", "there is no such hour"),
    errors.ScheduleTaken("digest"),
    errors.LayoutDiffers("emails", [("priorities", 1, 3)]),
    errors.UnknownTrigger("tides"),
    errors.KeyTaken("ada", "emails:home:0/0/1", "in_flight"),
    errors.LeaseLost([f"receipt-{number}" for number in range(159)]),
    errors.AlreadySettled("receipt", "acked"),
    errors.Undecodable("emails:0:0", "its header", "format 9"),
    errors.NoTransactions("emails", "cassandra:shop"),
    errors.HandlersStuck(2, 8, ["jobs.slow"]),
    errors.HandlersStuck(60, 8, ["jobs.deaf", "jobs.slow"], held=2),
    errors.ThreadsDied("emails", 11, "MemoryError"),
    errors.HandlerFailed("LookupError", "no such address", "Traceback ..."),
    errors.ChildDied("it was killed by SIGSEGV"),
    journal_errors.JournalInUse("journal", "spool/journal.lock", "process 7"),
    journal_errors.JournalFull("spool", "its cap of 64 MiB", appended=3),
    journal_errors.SpoolFull("spool", "emails", "its cap of 64 MiB", appended=3),
    journal_errors.JournalFailed("spool", "Input/output error"),
    journal_errors.UndecodableRecord(7, "ValueError"),
    errors.Retry("10m", reason="mailbox full"),
    errors.Retry(),
    errors.Reject("no such address"),
    errors.Snooze(datetime(2026, 11, 21, 9, tzinfo=UTC)),
    errors.QueueNameExists("emails", 5, 10),
    errors.QueueDoesNotExist("emails"),
    errors.QueueFull("emails", counted=100, limit=100, waited=30_000_000, sent=7),
    Failure("no such queue", ExitCode.BAD_INPUT),
    NoJavaForSpark({"/usr/lib/jvm/java-11": "it is Java 11"}),
    BadManifest(Path("lake"), "it is no JSON"),
    FolderInUse(Path("lake"), "process 7 on db1"),
    FilesLost(Path("lake/_staged/batch/1")),
    HistoryGone("emails", read=0, oldest=10**15, kept=3_600_000_000),
    SchemaDiffers("messages", "lake", ["no column age"], lasting=True),
    cassandra.NoJava("17", ["java 11"]),
    _NO_MAVEN,
    cassandra.JarsNotFetched("5.0.8", "no network"),
    cassandra.OtherJars("5.0.8", ["guava-32.jar"]),
    cassandra.AddressesTaken(["127.0.1", "127.0.2"], [9042, 7000]),
    cassandra.NoContainer("no engine answers"),
    cassandra.NothingProvided(_NO_MAVEN, cassandra.NoContainer("no engine answers")),
    cassandra.NodeNotReady("127.0.0.1", exit_code=None, log_tail="out of memory"),
    cassandra.NodetoolFailed("127.0.0.1", ["status"], "refused"),
)


@pytest.mark.parametrize(
    ("until", "told"),
    [("1h", "for 1h"), (datetime(2026, 11, 21, 9, tzinfo=UTC), "until 2026-11-21 09:00:00+00:00")],
)
def test_a_snooze_says_for_how_long_or_until_when(until: datetime | str, told: str) -> None:
    assert str(errors.Snooze(until)) == told


def test_ports_of_nodes_that_are_taken_can_all_be_chosen() -> None:
    told = str(cassandra.AddressesTaken(["127.0.1", "127.0.2"], [9042, 7000, 7199]))
    assert told.endswith("or choose others with port=, storage_port= and management_port=")


def _classes() -> list[type[BaseException]]:
    """Every exception class of astyqueue, those of Spark and of the test kit too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other packages warn as they are imported
        for module in pkgutil.walk_packages(astyqueue.__path__, "astyqueue."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    return [
        found
        for found in _below(BaseException)
        if found.__module__.startswith("astyqueue.") and not found.__name__.startswith("_")
    ]


def _below(parent: type[BaseException]) -> Iterator[type[BaseException]]:
    for child in dict.fromkeys(type.__subclasses__(parent)):
        yield child
        yield from _below(child)


def _own(kind: type[BaseException]) -> list[type]:
    """A class and those of its parents that are astyqueue's."""
    return [parent for parent in kind.__mro__ if parent.__module__.startswith("astyqueue.")]


def _same(error: object, other: object) -> bool:
    """Whether an error is as another was: class, text, arguments and facts, and likewise the errors among these."""
    if not isinstance(error, BaseException):
        return error == other
    assert isinstance(other, BaseException)
    facts, others = vars(error), vars(other)
    return (
        (type(error), str(error), error.args) == (type(other), str(other), other.args)
        and facts.keys() == others.keys()
        and all(_same(facts[name], others[name]) for name in facts)
    )


def test_each_class_that_makes_its_own_message_is_tried() -> None:
    assert {found for found in _classes() if "__init__" in vars(found)} == {type(sample) for sample in SAMPLES}


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_made_of_facts_comes_back_as_it_was(error: BaseException) -> None:
    error.add_note("seen in the warehouse")
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert _same(pickle.loads(pickle.dumps(error, protocol)), error)  # noqa: S301 - what was pickled is right here
    assert _same(copy.copy(error), error)
    assert _same(copy.deepcopy(error), error)


def test_an_error_with_a_plain_message_comes_back_as_it_was() -> None:
    plain = [kind for kind in _classes() if not any("__init__" in vars(parent) for parent in _own(kind))]
    assert errors.BadInput in plain
    assert errors.StoreUnavailable in plain
    for kind in plain:
        error = kind("the store is gone")
        assert _same(pickle.loads(pickle.dumps(error)), error)  # noqa: S301 - what was pickled is right here
        assert _same(copy.copy(error), error)


@pytest.mark.parametrize(
    "error",
    [sample for sample in SAMPLES if isinstance(sample, errors.AstyqueueError)],
    ids=lambda error: type(error).__name__,
)
def test_an_error_that_says_how_far_the_operation_came_keeps_its_facts(error: errors.AstyqueueError) -> None:
    with pytest.raises(type(error)) as raised, errors.saying_how_far(lambda: "Two were done"):
        raise error
    assert str(raised.value) == f"{str(error).rstrip('.')}. Two were done"
    assert vars(raised.value) == vars(error)
    with pytest.raises(type(error)) as unchanged, errors.saying_how_far(str):
        raise error
    assert unchanged.value is error


def lose_a_lease() -> None:
    raise SAMPLES[5]


def misread_an_expression() -> None:
    raise SAMPLES[0]


def test_a_pool_of_processes_hands_errors_on_and_stays_whole() -> None:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        with pytest.raises(
            errors.BadExpression, match=r"cron expression '0 9 \* \*', hour: there is no such hour$"
        ) as told:
            pool.submit(misread_an_expression).result()
        assert told.value.field == "hour"
        with pytest.raises(errors.LeaseLost, match="receipt-0, receipt-1, receipt-2 and 156 more") as lost:
            pool.submit(lose_a_lease).result()
        assert len(lost.value.receipts) == 159
