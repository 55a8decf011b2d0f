"""What each policy comes to: `python -m tests.unit.protocol.policy_model` plays it and writes it into the guide."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from astyqueue.triggers import Every
from astyqueue.units import SECOND
from tests.unit.protocol.schedule_table import Timetable

PAGE: Final = Path(__file__).parents[3] / "docs/how-to/schedules.md"
MISFIRES: Final = ("once", "latest", "all", "all 3", "skip", "skip 10m", "within 25m")
OVERLAPS: Final = ("allow", "skip", "queue one", "queue all", "cancel running")
_HOUR: Final = 3_600 * SECOND
#: What the tables stand below.
_LATE: Final = "| misfire | asleep for two days | the clock jumps an hour ahead |"
_MET: Final = "| overlap | sent, at |"


def misfires() -> list[str]:
    """A line for each misfire policy."""
    return [
        _LATE,
        "|---|---|---|",
        *(f"| `{misfire}` | {_slept(misfire)} | {_jumped(misfire)} |" for misfire in MISFIRES),
    ]


def overlaps() -> list[str]:
    """A line for each overlap policy."""
    return [_MET, "|---|---|", *(f"| `{overlap}` | {_met(overlap)} |" for overlap in OVERLAPS)]


def _every_ten_minutes(misfire: str) -> Timetable:
    """Occurrences at 0:00, 0:10 and so on; the first was fired, and it is 0:05."""
    table = Timetable()
    table.make(trigger=Every("10m"), misfire=misfire)
    table.fire()
    table.clock.advance("5m")
    return table


def _slept(misfire: str) -> str:
    table = _every_ten_minutes(misfire)
    table.clock.advance("2d")
    return _told(table)


def _jumped(misfire: str) -> str:
    table = _every_ten_minutes(misfire)
    table.clock.set(table.clock.now() + _HOUR)
    return _told(table)


def _told(table: Timetable) -> str:
    occurrences: list[int] = []
    while found := table.fire():
        occurrences += found
    times = [_time(table, occurrence) for occurrence in occurrences]
    if not times:
        return "nothing"
    shown = ", ".join(times) if len(times) <= 3 else f"{times[0]}, {times[1]}, … {times[-1]}"
    return f"{len(times)} message{'s' * (len(times) > 1)}: {shown}"


def _time(table: Timetable, occurrence: int) -> str:
    days, minutes = divmod((occurrence - table.anchored) // (60 * SECOND), 24 * 60)
    return f"{f'day {days + 1}, ' * (days > 0)}{minutes // 60}:{minutes % 60:02}"


def _met(overlap: str) -> str:
    """Occurrences at each minute; the run of the first goes on until 0:03:30, all others are done at once."""
    table = Timetable()
    table.make(trigger=Every("1m", delay="1m", count=5), overlap=overlap)
    table.clock.advance("1m")
    sent = [f"{_time(table, occurrence)}" for occurrence in table.fire()]
    [running] = table.do("eve", lease=_HOUR).claims
    for half in range(3, 15):
        table.clock.advance("30s")
        if half == 7:
            table.acked(running)
        _work_off(table, f"0:{half // 2:02}:{half % 2 * 30:02}", sent)
    return ", ".join(sent)


def _work_off(table: Timetable, now: str, sent: list[str]) -> None:
    while occurrences := table.fire():
        sent += [
            time if f"{time}:00" == now else f"{time} at {now}"
            for time in (_time(table, occurrence) for occurrence in occurrences)
        ]
        if table.there().run and "cancel" not in table.there().policies.overlap:
            table.work()


def written(page: str, table: list[str]) -> str:
    """The page with this table in the place of the one that has the same head."""
    before, _, behind = page.partition(table[0])
    rest = behind.split("\n\n", 1)[1]
    return before + "\n".join([*table, "", rest])


TABLES: Final[tuple[Callable[[], list[str]], ...]] = (misfires, overlaps)

if __name__ == "__main__":
    text = PAGE.read_text()
    for make in TABLES:
        text = written(text, make())
    PAGE.write_text(text)
