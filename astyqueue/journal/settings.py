"""The settings of a journal, checked: sizes, durations, durability and what happens when it is full."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeVar

from astyqueue.durations import Duration, as_microseconds
from astyqueue.errors import BadInput, BadSetting
from astyqueue.journal.format import OVERHEAD, RECORDS_AT, TOTAL

_E = TypeVar("_E", bound=StrEnum)

#: A size as callers may pass it: bytes, or text such as "16MiB".
Size = int | str

_UNITS: Final[dict[str, int]] = {
    "": 1,
    "b": 1,
    **{f"{letter}ib": 1 << (10 * power) for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
}
_SIZE: Final = re.compile(r"([0-9]{1,15})\s*([a-z]*)", re.IGNORECASE)
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}")

SMALLEST_PAGE: Final = RECORDS_AT + 2 * OVERHEAD
#: Lengths in a page have four bytes.
LARGEST_PAGE: Final = 1 << 30


class Durability(StrEnum):
    """When a record reaches the disk.

    EACH: before the call of `append` returns. BATCH: with others, after `batch_records` of them or the time
    `batch_delay`, whichever comes first. NONE: when the system writes it back; it gets the record within `batch_delay`.
    """

    NONE = "none"
    BATCH = "batch"
    EACH = "each"


class WhenFull(StrEnum):
    """What an append does when the cap or the disk leaves no room.

    BLOCK: it waits until a page is reclaimed or the disk has room. RAISE: it raises `JournalFull`. DROP_OLDEST: it
    drops the oldest page, whether it was read or not.
    """

    BLOCK = "block"
    RAISE = "raise"
    DROP_OLDEST = "drop_oldest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one open journal. Durations are microseconds, sizes are bytes."""

    page_size: int
    durability: Durability
    batch_records: int
    batch_delay_us: int
    cap: int | None
    when_full: WhenFull
    retain_us: int | None


def checked_settings(
    *,
    page_size: Size,
    durability: str,
    batch_records: int,
    batch_delay: Duration,
    cap: Size | None,
    when_full: str,
    retain: Duration | None,
) -> Settings:
    """The settings, or BadSetting that names the wrong one."""
    page = as_bytes(page_size, "page_size")
    if not SMALLEST_PAGE <= page <= LARGEST_PAGE:
        message = f"page_size is {page} bytes: give from {SMALLEST_PAGE} bytes to 1GiB"
        raise BadSetting(message)
    if isinstance(batch_records, bool) or not isinstance(batch_records, int) or batch_records < 1:
        message = f"batch_records is {batch_records!r}: give the number of records, at least 1"
        raise BadSetting(message)
    return Settings(
        page_size=page,
        durability=chosen(Durability, durability, "durability"),
        batch_records=batch_records,
        batch_delay_us=microseconds(batch_delay, "batch_delay"),
        cap=None if cap is None else as_bytes(cap, "cap"),
        when_full=chosen(WhenFull, when_full, "when_full"),
        retain_us=None if retain is None else microseconds(retain, "retain"),
    )


def with_page_size(settings: Settings, stored: int | None) -> Settings:
    """The settings with the page size of a stored journal; BadSetting if fewer than two of its pages are in the cap."""
    page_size = stored or settings.page_size
    if settings.cap is not None and settings.cap < 2 * page_size:
        message = f"cap is {settings.cap} bytes: give at least two pages, which have {page_size} bytes each"
        raise BadSetting(message)
    return replace(settings, page_size=page_size)


def check_fits(payloads: Sequence[bytes], settings: Settings) -> None:
    """BadInput for a record that can never fit under the cap."""
    if settings.cap is None:
        return
    in_page = settings.page_size - RECORDS_AT - OVERHEAD
    allowed = max((settings.cap // settings.page_size - 1) * in_page - TOTAL.size, in_page)
    longest = max(map(len, payloads), default=0)
    if longest > allowed:
        message = f"a record has {longest} bytes, under this cap at most {allowed} fit: raise the cap"
        raise BadInput(message)


def least_cap(size: int, page_size: int) -> int:
    """A cap, in bytes, under which a record of `size` bytes fits beside one page of others."""
    in_page = page_size - RECORDS_AT - OVERHEAD
    return page_size * (1 + max(1, -(-(size + TOTAL.size) // in_page)))


def as_bytes(size: Size, name: str) -> int:
    """A number of bytes; BadSetting for anything else."""
    if isinstance(size, int) and not isinstance(size, bool) and size >= 0:
        return size
    parts = _SIZE.fullmatch(size.strip()) if isinstance(size, str) else None
    if parts is None or parts[2].lower() not in _UNITS:
        message = f'{name} is {size!r:.60}: give bytes, or text such as "16MiB", "512KiB" or "2GB"'
        raise BadSetting(message)
    return int(parts[1]) * _UNITS[parts[2].lower()]


def checked_name(name: str, what: str) -> str:
    """A name that may be part of a file's name; BadSetting otherwise."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        message = f"{name!r:.120} is not a name of a {what}: give 1 to 100 letters, digits, '_' or '-'"
        raise BadSetting(message)
    return name


def microseconds(duration: Duration, name: str) -> int:
    """A duration in microseconds; BadSetting, which calls it `name`, for anything else."""
    try:
        return as_microseconds(duration)
    except BadInput as error:
        message = f"{name}: {error}"
        raise BadSetting(message) from error


def chosen(choices: type[_E], given: str, name: str) -> _E:
    """The choice that has this text; BadSetting, which calls it `name` and lists all of them, for anything else."""
    try:
        return choices(given)
    except ValueError:
        message = f"{name} is {given!r:.60}: give {', '.join(repr(choice.value) for choice in choices)}"
        raise BadSetting(message) from None
