"""The options of a spool, checked when a queue is built."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from astyqueue.durations import Duration
from astyqueue.errors import BadSetting
from astyqueue.journal.disk import Disk, LocalDisk
from astyqueue.journal.settings import (
    LARGEST_PAGE,
    SMALLEST_PAGE,
    Durability,
    Size,
    WhenFull,
    as_bytes,
    chosen,
    microseconds,
)
from astyqueue.units import SECOND

_USUAL_PAGE: Final = 16 << 20
#: A cap holds at least this number of pages, because room comes back a page at a time.
_PAGES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolOptions:
    """A folder for what is sent, and how to use it: `SpoolOptions.of("/var/spool/shop", cap="4GiB")`.

    `cap`: the most bytes of one process for one queue. `when_full`: a send waits ("block"), raises SpoolFull ("raise"),
    or drops the oldest ("drop_oldest"). `durability`: "each", "batch", "none", as for a journal. `drain`: how long a
    close forwards. The fields have checked values: sizes in bytes, durations in microseconds.
    """

    directory: Path
    cap: int | None
    when_full: WhenFull
    durability: Durability
    batch_delay_us: int
    drain_us: int
    disk: Disk

    @classmethod
    def of(
        cls,
        directory: str | os.PathLike[str],
        *,
        cap: Size | None = "1GiB",
        when_full: str = "block",
        durability: str = "batch",
        batch_delay: Duration = "10ms",
        drain: Duration = "5s",
        disk: Disk | None = None,
    ) -> SpoolOptions:
        """The options as users write them; BadSetting names the wrong one."""
        size = None if cap is None else as_bytes(cap, "cap")
        if size is not None and size < _PAGES * SMALLEST_PAGE:
            message = f"cap is {size} bytes: give at least {_PAGES * SMALLEST_PAGE}, or None for no cap"
            raise BadSetting(message)
        if not os.fspath(directory):
            message = "the folder of the spool is empty: name a folder, such as /var/spool/shop"
            raise BadSetting(message)
        # Absolute, because the process may change its directory: it opens journals again, and those of dead processes.
        if (folder := Path(directory).absolute()).exists() and not folder.is_dir():
            message = f"the spool needs a folder, and {folder} is a file: name another one"
            raise BadSetting(message)
        return cls(
            directory=folder,
            cap=size,
            when_full=chosen(WhenFull, when_full, "when_full"),
            durability=chosen(Durability, durability, "durability"),
            batch_delay_us=microseconds(batch_delay, "batch_delay"),
            drain_us=microseconds(drain, "drain"),
            disk=disk or LocalDisk(),
        )

    @classmethod
    def given(cls, spool: GivenSpool) -> SpoolOptions:
        """These options, or the usual ones for a folder."""
        return spool if isinstance(spool, SpoolOptions) else cls.of(spool)

    @property
    def drops_oldest(self) -> bool:
        """Whether the oldest messages make room for later ones."""
        return self.when_full is WhenFull.DROP_OLDEST

    @property
    def waits_for_room(self) -> bool:
        """Whether a send waits while the spool is full."""
        return self.when_full is WhenFull.BLOCK

    @property
    def of_journal(self) -> dict[str, Any]:
        """The options of the journal of one process; its appends never wait for room: that is for the sends to do."""
        page = _USUAL_PAGE if self.cap is None else min(_USUAL_PAGE, self.cap // _PAGES, LARGEST_PAGE)
        return {
            "page_size": page,
            "cap": self.cap,
            "when_full": WhenFull.RAISE if self.waits_for_room else self.when_full,
            "durability": self.durability,
            "batch_delay": self.batch_delay_us / SECOND,
            "disk": self.disk,
        }

    @property
    def of_refused(self) -> dict[str, Any]:
        """The options of the journal of refused messages: on the disk at once, never dropped, never waited for."""
        return self.of_journal | {"durability": Durability.EACH, "when_full": WhenFull.RAISE}


#: A spool as users name it: its folder, or that with options.
GivenSpool: TypeAlias = str | os.PathLike[str] | SpoolOptions
