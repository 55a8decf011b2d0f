from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import pytest

import astyqueue
from astyqueue import aio
from astyqueue.schedules import Schedules
from astyqueue.tasks import Task
from astyqueue.tasks.batched_call import CallInBatch

#: What `aio` names, and what it is for threads.
PAIRS: Final[dict[str, tuple[Callable[..., object], Callable[..., object]]]] = {
    "App": (astyqueue.App, aio.App),
    "BatchedCall": (CallInBatch, CallInBatch),  # one class, with deliveries of either kind
    "Connection": (astyqueue.Connection, aio.Connection),
    "Delivery": (astyqueue.Delivery, aio.Delivery),
    "Dispatcher": (astyqueue.Dispatcher, aio.Dispatcher),
    "MessageQueue": (astyqueue.MessageQueue, aio.MessageQueue),
    "Received": (astyqueue.Received, aio.Received),
    "Schedules": (Schedules, aio.Schedules),
    "Task": (Task, aio.Task),
    "connect": (astyqueue.connect, aio.connect),
    "current_delivery": (astyqueue.current_delivery, aio.current_delivery),
}
#: Docstrings that differ, and why.
OTHER_WORDS: Final = {
    "App": "its sends are awaited",
    "App.worker": "its dispatcher runs coroutines in the loop of the caller",
    "Connection.__init__": "`connect` is awaited",
    "MessageQueue": "it is for tasks",
    "Dispatcher": "it runs coroutines in the loop of the caller",
    "Dispatcher.builder": "what `build` returns is awaited",
    "Dispatcher.drain": "a task may wait for it, and be cancelled",
    "Dispatcher.run": "a task that is cancelled stops it",
    "Dispatcher.start": "the loop of the caller runs coroutines",
    "current_delivery": "it is for `async def` tasks alone",
    "MessageQueue.__init__": "`connect` is awaited",
    "MessageQueue.builder": "what `build` returns is awaited",
    "MessageQueue.deliveries": "nothing awaits at the end of a loop that was left: an event loop does, later",
    "MessageQueue.send_many": "it takes async generators too",
    "MessageQueue.run": "it is a task that carries out steps",
    "Schedules": "its methods are awaited",
    "Task": "its sends are awaited",
}
#: Methods whose result differs besides being awaited, and why.
OTHER_RESULTS: Final = {
    "Dispatcher.builder": "what `build` returns is awaited",
    "MessageQueue.builder": "what `build` returns is awaited",
    "MessageQueue.deliveries": "an async iterator",
    "MessageQueue.browse": "an async iterator",
    "MessageQueue.history": "an async iterator",
}
#: Parameters that take more, and why.
OTHER_PARAMETERS: Final = {
    "Dispatcher.__init__": "it has a dispatcher for threads",
    "Dispatcher.add_queue": "it takes queues of both packages",
    "Dispatcher.remove_queue": "it takes queues of both packages",
    "MessageQueue.send_many": "it takes async generators too",
    "Task.__init__": "it has its task for threads",
}
#: Methods that tasks do not have, and why.
FOR_THREADS: Final = {
    "Dispatcher.when_finished": "tasks wait in `run` and `drain`",
    "MessageQueue.transaction": "it keeps all others from writing, and must not wait for a loop",
}
#: Attributes that threads do not need.
FOR_TASKS: Final = {"Connection.blocking", "MessageQueue.blocking"}
ASYNC_NAMES: Final = {"__enter__": "__aenter__", "__exit__": "__aexit__"}


class Twins(NamedTuple):
    """One function or class, for threads and for tasks."""

    name: str
    threads: Callable[..., object]
    tasks: Callable[..., object]


def public(kind: object) -> dict[str, object]:
    """The public attributes of a class, and the methods for Python that are written in Python, by name."""
    found = {name: inspect.getattr_static(kind, name) for name in dir(kind)}
    return {
        name: attribute
        for name, attribute in found.items()
        if not name.startswith("_") or (name.startswith("__") and inspect.isfunction(attribute))
    }


def called(attribute: object) -> Callable[..., object] | None:
    """The function behind a method or a property."""
    if isinstance(attribute, property):
        return attribute.fget
    if isinstance(attribute, staticmethod | classmethod):
        return attribute.__func__
    return attribute if inspect.isfunction(attribute) else None


def methods(name: str, threads: object, tasks: object) -> Iterator[Twins]:
    """What is written twice in two classes: what both inherit from one class is one function."""
    theirs = public(tasks)
    for each, attribute in public(threads).items():
        one, other = called(attribute), called(theirs.get(ASYNC_NAMES.get(each, each)))
        if one and other and one is not other:
            yield Twins(f"{name}.{each}", one, other)


def twins() -> Iterator[Twins]:
    for name, (threads, tasks) in PAIRS.items():
        yield Twins(name, threads, tasks)
        if inspect.isclass(threads):
            yield from methods(name, threads, tasks)


def functions() -> list[Twins]:
    return [one for one in twins() if inspect.isfunction(one.threads)]


def parameters(function: Callable[..., object]) -> list[tuple[object, ...]]:
    """Each parameter by name, kind, type and default; a default that is a function by its code."""
    return [
        (
            each.name,
            each.kind,
            each.annotation,
            code.co_code if (code := getattr(each.default, "__code__", None)) else each.default,
        )
        for each in inspect.signature(function).parameters.values()
    ]


def test_every_name_of_aio_is_compared() -> None:
    assert sorted(PAIRS) == sorted(aio.__all__)


@pytest.mark.parametrize("name", [name for name, pair in PAIRS.items() if inspect.isclass(pair[0])])
def test_both_classes_have_the_same_public_methods(name: str) -> None:
    threads, tasks = map(public, PAIRS[name])
    both = [each for each in threads if f"{name}.{each}" not in FOR_THREADS]
    assert sorted(ASYNC_NAMES.get(each, each) for each in both) == [
        each for each in sorted(tasks) if f"{name}.{each}" not in FOR_TASKS
    ]


@pytest.mark.parametrize("pair", functions(), ids=lambda pair: pair.name)
def test_both_take_the_same_parameters_with_the_same_defaults(pair: Twins) -> None:
    same = parameters(pair.threads) == parameters(pair.tasks)
    assert same is (pair.name not in OTHER_PARAMETERS)


@pytest.mark.parametrize("pair", functions(), ids=lambda pair: pair.name)
def test_both_have_the_same_result_but_for_the_declared_differences(pair: Twins) -> None:
    same = pair.threads.__annotations__["return"] == pair.tasks.__annotations__["return"]
    assert same is (pair.name not in OTHER_RESULTS)


@pytest.mark.parametrize("pair", list(twins()), ids=lambda pair: pair.name)
def test_both_have_the_same_docstring_but_for_the_declared_differences(pair: Twins) -> None:
    assert pair.threads.__doc__
    assert (pair.threads.__doc__ == pair.tasks.__doc__) is (pair.name not in OTHER_WORDS)


def test_every_declared_difference_is_of_something_that_exists() -> None:
    names = {pair.name for pair in twins()}
    assert {*OTHER_WORDS, *OTHER_RESULTS, *OTHER_PARAMETERS} - names == set()
