"""Limits of a server that refuse what astyqueue asks: which of its settings they are, and from what value on they do."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from astyqueue.clock import SECOND
from astyqueue.findings import Severity
from astyqueue.stores.cassandra.requests import NAMES, PAGE

#: A send is stamped an hour before it is made, and its repetitions as it was; so old a stamp must at least be allowed.
STAMPS_BACK: Final = 2 * 3600 * SECOND
_DURATION: Final = re.compile(r"(\d+)\s*([a-zµ]+)")
_MICROSECONDS: Final = {"us": 1, "µs": 1, "ms": 1_000, "s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND, "d": 86_400 * SECOND}


class Guardrail(NamedTuple):
    """A setting of the server; `refuses` tells by its value whether it is too strict."""

    setting: str
    refuses: Callable[[str], bool]
    reason: str
    remedy: str
    severity: Severity = Severity.PROBLEM


def _fewer_than(least: int) -> Callable[[str], bool]:
    """Whether a limit allows fewer; one that is not above nought is no limit."""
    return lambda value: value.isdecimal() and 0 < int(value) < least


def _is_recent(value: str) -> bool:
    """Whether stamps must be younger than ours may be."""
    found = _DURATION.fullmatch(value)
    return found is not None and 0 < int(found[1]) * _MICROSECONDS.get(found[2], SECOND) < STAMPS_BACK


def _is_off(value: str) -> bool:
    return value.lower() == "false"


GUARDRAILS: Final = (
    Guardrail(
        "user_timestamps_enabled",
        _is_off,
        "every send carries a write time of its own, so all sends are refused",
        "set 'user_timestamps_enabled: true' in the cassandra.yaml of every node",
    ),
    Guardrail(
        "minimum_timestamp_fail_threshold",
        _is_recent,
        "every send carries a write time of an hour ago; Cassandra 5.0 lets batches pass, a release that does not refuses all sends",
        "raise 'minimum_timestamp_fail_threshold' to two hours or more on every node, or leave it out",
        Severity.WARNING,
    ),
    Guardrail(
        "in_select_cartesian_product_fail_threshold",
        _fewer_than(NAMES),
        f"reads ask for up to {NAMES} columns by name, and fail",
        f"raise 'in_select_cartesian_product_fail_threshold' to {NAMES} or more on every node, or leave it out",
    ),
    Guardrail(
        "page_size_fail_threshold",
        _fewer_than(PAGE),
        f"reads take pages of {PAGE} columns, and fail",
        f"raise 'page_size_fail_threshold' to {PAGE} or more on every node, or leave it out",
    ),
)
