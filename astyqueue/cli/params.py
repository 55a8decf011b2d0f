"""The types of options: durations, moments, sizes, addresses, queues with weights or limits, settings of a queue.

Each turns text from the command line, a variable or a file into what commands work with. What is wrong is an error of
usage, which names the option.
"""

from __future__ import annotations

from abc import abstractmethod
from datetime import datetime, timedelta
from typing import Any, Final, Generic, TypeVar

import click

from astyqueue.errors import BadInput

T = TypeVar("T")
_MICROSECOND: Final = timedelta(microseconds=1)
_PORTS: Final = range(65_536)
_LOOPBACK: Final = "127.0.0.1"
_YES_OR_NO: Final = {
    "yes": True,
    "true": True,
    "on": True,
    "1": True,
    "no": False,
    "false": False,
    "off": False,
    "0": False,
}


class _Type(click.ParamType, Generic[T]):  # type: ignore[type-arg]  # only newer versions of click have one
    """A type whose values are read from text or, in a file, from a number."""

    @abstractmethod
    def read(self, given: Any) -> T:  # noqa: ANN401 - a file may have a value of any type
        """The value; BadInput if this is none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> T:  # noqa: ANN401 - click's signature
        """The value; an error of usage if this is none."""
        try:
            return self.read(value)
        except BadInput as error:
            self.fail(str(error), param, ctx)


class DurationText(_Type[timedelta]):
    """A duration such as 90, 10m or 1h30m."""

    name = "duration"

    def __init__(self, *, least: str = "") -> None:
        """`least` is the shortest one that is accepted."""
        self._least = least

    def read(self, given: Any) -> timedelta:  # noqa: ANN401 - a file may have a value of any type
        """The duration; BadInput if it is too short."""
        from astyqueue.durations import as_microseconds

        found = as_microseconds(given)
        if self._least and found < as_microseconds(self._least):
            message = f"{given} is too short: give at least {self._least}"
            raise BadInput(message)
        return found * _MICROSECOND


class Moment(_Type[datetime]):
    """A moment such as 2026-11-21T09:00:00Z; with `ages` also an age: 2h is two hours ago."""

    name = "moment"

    def __init__(self, *, ages: bool = False) -> None:
        """Ages are for what has happened."""
        self._ages = ages

    def read(self, given: Any) -> datetime:  # noqa: ANN401 - a file may have a value of any type
        """The moment, which has a time zone."""
        from astyqueue.clock import SystemClock, instant
        from astyqueue.durations import instant_of, parsed_moment, parsed_past

        if isinstance(given, datetime):  # a file may have one
            return instant(instant_of(given))
        text = str(given)
        return instant(parsed_past(text, SystemClock().now())) if self._ages else parsed_moment(text)


class ByteSize(_Type[int]):
    """A number of bytes: 1000000, 512KiB or 2GB."""

    name = "size"

    def read(self, given: Any) -> int:  # noqa: ANN401 - a file may have a value of any type
        """The bytes."""
        from astyqueue.journal.settings import as_bytes

        return as_bytes(given, "the size")


class Address(_Type[tuple[str, int]]):
    """A host and a port to listen at: HOST:PORT, :PORT or PORT. Default host: this machine's loopback."""

    name = "address"

    def read(self, given: Any) -> tuple[str, int]:  # noqa: ANN401 - a file may have a value of any type
        """The host and the port."""
        host, _, port = str(given).rpartition(":")
        if not port.isdecimal() or int(port) not in _PORTS:
            message = f"invalid address {given!r}: give HOST:PORT or PORT, such as 127.0.0.1:8080"
            raise BadInput(message)
        return host.strip("[]") or _LOOPBACK, int(port)


class Weights(_Type[dict[str, int]]):
    """Queues or patterns with their weights: emails:3,'mail.*'. Default weight: 1."""

    name = "weights"

    def read(self, given: Any) -> dict[str, int]:  # noqa: ANN401 - a file may have a value of any type
        """The weight of each queue."""
        weights: dict[str, int] = {}
        for part in str(given).split(","):
            name, separator, weight = part.strip().partition(":")
            if not name or name in weights or (separator and not weight.isdecimal()):
                message = (
                    f"invalid queues {given!r}: name each queue once, optionally with a weight, as in emails:3,default"
                )
                raise BadInput(message)
            weights[name] = int(weight or 1)
        return weights


class Limits(_Type[dict[str, int]]):
    """Queues or patterns with their limits: mail=5,'sms.*=2'."""

    name = "limits"

    def read(self, given: Any) -> dict[str, int]:  # noqa: ANN401 - a file may have a value of any type
        """The limit of each queue."""
        limits: dict[str, int] = {}
        for part in str(given).split(","):
            name, _, limit = part.strip().partition("=")
            if not name or name in limits or not limit.isdecimal() or not int(limit):
                message = f"invalid limits {given!r}: name each queue once, with a number from 1 up, as in mail=5,sms=2"
                raise BadInput(message)
            limits[name] = int(limit)
        return limits


class QueueSetting(_Type[tuple[str, object]]):
    """A setting of a queue: lease=5m."""

    name = "setting"
    _truths = frozenset({"paused", "last_value"})
    #: These are text even if they look like a number.
    _texts = frozenset({"overflow_to", "sort_header", "sort_classes"})

    def read(self, given: Any) -> tuple[str, object]:  # noqa: ANN401 - a file may have a value of any type
        """The name and the value, which the queue checks."""
        name, separator, value = str(given).partition("=")
        name = name.replace("-", "_")
        if not separator or not name or not (value or name in self._texts):
            message = f"invalid setting {given!r}: write NAME=VALUE, as in lease=5m"
            raise BadInput(message)
        if name in self._truths:
            return name, self._truth(name, value)
        return name, int(value) if value.isdecimal() and name not in self._texts else value

    @staticmethod
    def _truth(name: str, value: str) -> bool:
        if value.lower() not in _YES_OR_NO:
            message = f"invalid value {value!r} for {name}: write yes or no"
            raise BadInput(message)
        return _YES_OR_NO[value.lower()]
