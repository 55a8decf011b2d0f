"""The view `readable`, for people with the sqlite3 shell: names taken apart, ids as UUIDs, times as text."""

from __future__ import annotations

from typing import Final

_DIGITS: Final = "0123456789ABCDEF"
#: The same digits with their top bit turned round, which is how the second half of an id is kept.
_TURNED: Final = "89ABCDEF01234567"


def _digits(first: int, count: int = 1) -> str:
    """Hexadecimal digits of a name, counted from one."""
    return f"substr(hex(name), {first}, {count})"


def _byte(first: int) -> str:
    high, low = (f"(instr('{_DIGITS}', {_digits(at)}) - 1)" for at in (first, first + 1))
    return f"(16 * {high} + {low})"


def _turned_byte(first: int) -> str:
    return f"substr('{_TURNED}', instr('{_DIGITS}', {_digits(first)}), 1) || {_digits(first + 1)}"


def _time(column: str) -> str:
    return f"strftime('%Y-%m-%dT%H:%M:%fZ', {column} / 1000000.0, 'unixepoch')"


def _uuid() -> str:
    """A time-based UUID: the low, middle and high part of the time (an id has them the other way round), then the rest."""
    rest = [_turned_byte(first) for first in range(21, 37, 2)]
    parts = (_digits(13, 8), _digits(9, 4), f"'1' || {_digits(6, 3)}", " || ".join(rest[:2]), " || ".join(rest[2:]))
    return "lower(" + " || '-' || ".join(parts) + ")"


READABLE: Final = f"""
    CREATE VIEW readable AS SELECT
        row,
        {_byte(1)} AS type,
        255 - {_byte(3)} AS priority,
        {_uuid()} AS id,
        {_byte(37)} AS state,
        length(value) AS bytes,
        {_time("stamp")} AS written,
        {_time("expires")} AS expires
    FROM entries
"""  # noqa: S608 - made of the constants above
