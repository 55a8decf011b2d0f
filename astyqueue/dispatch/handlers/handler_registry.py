"""The handlers of one queue: one for each task, one for all other messages, and those that a factory makes."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Final

from astyqueue.dispatch.handlers.handler import TASK, Batch, Call, Factory, Handler, Kind, LineKey
from astyqueue.dispatch.handlers.middleware import HandlerWrapping
from astyqueue.errors import BadSetting
from astyqueue.queue.delivery.delivery import Delivery

#: The most handlers of a factory that are cached: producers choose the names, so their number is unbounded.
_MADE: Final = 1_000


@dataclass(slots=True)
class GivenHandlers:
    """The handlers of one queue as they were given; each dispatcher that is built of them wraps them for itself.

    `names` are the tasks known to be handled. `timeout` (microseconds) and `max_attempts` apply to plain functions that
    the factory returns.
    """

    general: Handler | None = None
    named: dict[str, Handler] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    factory: Factory | None = None
    timeout: int | None = None
    max_attempts: int | None = None

    @property
    def kinds(self) -> set[Kind | None]:
        """The kinds of the handlers that were given, besides those of the factory."""
        return {handler.kind for handler in (self.general, *self.named.values()) if handler is not None}

    @property
    def empty(self) -> bool:
        """Whether there is neither a handler nor a factory."""
        return self.general is None and self.factory is None and not self.named

    def add(self, handler: Handler, task: str | None) -> None:
        """Add the handler of a task, or of all messages without another handler. BadSetting for a second one."""
        if (self.general is not None) if task is None else (task in self.named):
            handled = "all messages" if task is None else f"the task {task!r}"
            message = f"there are two handlers for {handled} of one queue: give one"
            raise BadSetting(message)
        if task is None:
            self.general = handler
        else:
            self.named[task] = handler
            self.names.add(task)

    def set_factory(self, factory: Factory, *, timeout: int | None, max_attempts: int | None) -> None:
        """Set the factory; the options apply to plain functions that it returns. BadSetting for a second one."""
        if self.factory is not None:
            message = "there are two factories of handlers for one queue: give one"
            raise BadSetting(message)
        self.factory, self.timeout, self.max_attempts = factory, timeout, max_attempts


class HandlerRegistry:
    """Finds the handler of a message: by its task, from the factory, or else the handler of all messages."""

    def __init__(self, given: GivenHandlers, wrapping: HandlerWrapping) -> None:
        """Wrap every handler, also those that the factory makes: now those of tasks known in advance, others later.

        BadSetting for a handler that cannot run.
        """
        self.names = frozenset(given.names)
        self._wrapping = wrapping
        self._general = wrapping.wrapped(given.general) if given.general else None
        self._named = {task: wrapping.wrapped(handler) for task, handler in given.named.items()}
        self._factory, self._timeout, self._max_attempts = given.factory, given.timeout, given.max_attempts
        self._made: dict[str, Handler] = {}
        self._learned: dict[str, Handler] = {}
        self._batches: dict[LineKey, Batch] = {}
        self._making = threading.Lock()
        #: The lines of all handlers that are known, and the one line if there is only one.
        self.lines: tuple[LineKey, ...] = ()
        self.only_line: LineKey | None = None
        #: The lines of `async def` handlers, also those that get batches.
        self.awaited_lines: frozenset[LineKey] = frozenset()
        for task in self.names - self._named.keys():
            self._know_in_advance(task)
        self._find_lines()

    def learn(self, task: str | None, handler: Handler) -> None:
        """Note the line of the handler that the messages of a task get, which was not known before it was made."""
        if task is not None and handler.line is not Kind.THREAD:
            with self._making:
                if len(self._learned) >= _MADE:
                    del self._learned[next(iter(self._learned))]
                self._learned[task] = handler
            self._find_lines()

    def _find_lines(self) -> None:
        with self._making:
            learned = [*self._learned.values()]
        named = [handler for handler in (self._general, *self._named.values()) if handler is not None]
        lines: dict[LineKey, None] = {handler.line: None for handler in named}
        if self._factory is not None:
            lines |= dict.fromkeys((Kind.THREAD, *(handler.line for handler in learned)))
        self.lines = tuple(lines)
        self.only_line = self.lines[0] if len(lines) == 1 else None
        known = [*named, *learned]
        # The batches of tasks that were forgotten stay: some of their messages may be in this process.
        self._batches |= {handler.line: handler.batch for handler in known if handler.batch is not None}
        self.awaited_lines |= {handler.line for handler in known if handler.kind is Kind.ASYNCIO}

    def line_of(self, task: str | None) -> LineKey:
        """The line of the messages of a task, as far as it is known without asking the factory."""
        if task is None:
            return self._general.line if self._general else Kind.THREAD
        if (handler := self._named.get(task)) is not None:
            return handler.line
        if self._factory is None:
            return self._general.line if self._general else Kind.THREAD
        learned = self._learned.get(task)
        return Kind.THREAD if learned is None else learned.line

    def batch_of(self, line: LineKey) -> Batch | None:
        """The size and time of batches in this line, if it is that of a batch handler."""
        return self._batches.get(line)

    def find(self, delivery: Delivery) -> Handler | None:
        """The handler of a message; None if its task is unknown here, or it names none and no handler takes all."""
        if not self._named and self._factory is None:
            return self._general
        task = delivery.headers.get(TASK)
        if task is None:
            return self._general
        return self._named.get(task) or self._made.get(task) or self._make(task) or self._general

    def _make(self, task: str) -> Handler | None:
        """The handler that the factory makes for a name; an error of the factory counts as the attempt's."""
        try:
            return self._made_for(task)
        except Exception as error:  # noqa: BLE001 - a factory's error is reported as the attempt's
            return Handler(task, _raising(error))

    def _know_in_advance(self, task: str) -> None:
        try:
            self._made_for(task)
        except BadSetting:
            raise
        except Exception as error:  # noqa: BLE001 - another error of a factory is that of each attempt
            del error

    def _made_for(self, task: str) -> Handler | None:
        if self._factory is None or (made := self._factory(task)) is None:
            return None
        handler = made if isinstance(made, Handler) else Handler(task, made, self._timeout, self._max_attempts)
        wrapped = self._wrapping.wrapped(handler)
        with self._making:
            if len(self._made) >= _MADE:
                del self._made[next(iter(self._made))]
            self._made[task] = wrapped
        self.learn(task, wrapped)
        return wrapped


def _raising(error: Exception) -> Call:
    def fail(_: Delivery) -> object:
        raise error

    return fail
