"""Redriving the dead letters that a Spark SQL condition selects.

Spark only selects them. They are put back in place, by their ids, and not sent again: a message keeps its id, its key
and its history. One that another process redrove or deleted in the meantime is skipped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import count, lit, unix_micros
from pyspark.sql.types import TimestampType

from astyqueue.clock import SystemClock, instant
from astyqueue.errors import BadInput
from astyqueue.files import for_owner
from astyqueue.model.envelope import MessageId
from astyqueue.model.views import RedriveReport
from astyqueue.queue.admin.dead_letters import redrive_page
from astyqueue.spark.connections import Pace, open_for_sending
from astyqueue.spark.errors import reason_of
from astyqueue.spark.options import Place, everywhere
from astyqueue.spark.schemas import DEAD
from astyqueue.text import exact

#: Dead letters in one commit; with a rate at most a tenth of a second's worth, so that the rate is even.
_PAGE: Final = 100
#: Dead letters that a dry run shows.
SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class Chosen:
    """The dead letters that a query selects: their number by kind, and the SHOWN oldest of them as Spark reads them."""

    kinds: dict[str, int]
    sample: list[dict[str, object]]

    @property
    def total(self) -> int:
        """The number of dead letters of all kinds."""
        return sum(self.kinds.values())


class RedriveByQuery:
    """The dead letters of one queue for which a condition holds."""

    def __init__(self, spark: SparkSession, url: str, queue: str, *, where: str) -> None:
        """Select with a Spark SQL condition over the table `dead`; BadInput if Spark rejects it.

        Spark SQL can call Java: pass no text from people who may not run programs on this machine.
        """
        self.where = where
        self._place = Place(everywhere(url), queue)
        letters = spark.read.format("astyqueue").options(url=self._place.url, queue=queue, table=DEAD).load()
        try:
            self._letters: DataFrame = letters.where(where)
        except AnalysisException as error:
            reason = reason_of(error)[1].rstrip(".")
            columns = ", ".join(letters.columns)
            message = f"{where!r} is not a condition over dead letters: {reason}; their columns are {columns}"
            raise BadInput(message) from error

    def look(self) -> Chosen:
        """A dry run: what the query selects now. Nothing is changed."""
        kinds = self._letters.groupBy("kind").agg(count(lit(1)).alias("letters")).collect()
        moments = [field.name for field in self._letters.schema if isinstance(field.dataType, TimestampType)]
        sample = (
            self._letters.orderBy("died")
            .limit(SHOWN)
            .withColumns({name: unix_micros(name) for name in moments})
            .collect()
        )
        return Chosen({row["kind"]: row["letters"] for row in kinds}, [_letter(row, moments) for row in sample])

    def carry_out(
        self,
        audit: Path,
        *,
        rate: float | None = None,
        force: bool = False,
        progress: Callable[[RedriveReport], None] = lambda _: None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> RedriveReport:
        """Redrive the dead letters that the query selects, at most `rate` a second; no limit without a rate.

        Each page of ids is appended to `audit` (JSON lines) before it is redriven, and the result of it afterwards, so
        the file shows the intent even if this process dies in between. Messages that would die again at once are left,
        unless `force`d. `cancelled` is called before each page and while it waits; pages that were redriven until then
        stay redriven.
        """
        queue = open_for_sending(self._place, create=False)
        pace, report, record = Pace(rate), RedriveReport(), _Audit(audit, self._place.queue, self.where)
        for page in self._pages(_PAGE if rate is None else max(1, int(min(_PAGE, rate / 10)))):
            pace.keep(len(page), cancelled)
            if cancelled():
                break
            record.write("redriving", ids=list(map(str, page)))
            done = queue.run(redrive_page(queue.core, page, force=force, dry_run=False))
            record.write("redriven", put_back=done.redriven, left=done.left, gone=len(page) - done.redriven - done.left)
            report += done
            progress(report)
        return report

    def _pages(self, size: int) -> Iterator[list[MessageId]]:
        """The ids, `size` at a time; all selected before the first is redriven, so none that dies again comes twice."""
        ids = iter([MessageId.parse(row["id"]) for row in self._letters.select("id").collect()])
        while page := list(islice(ids, size)):
            yield page


def _letter(row: Row, moments: Collection[str]) -> dict[str, object]:
    """A row with aware datetimes; those that Spark collects have no time zone."""
    values: dict[str, object] = row.asDict()
    return values | {name: None if row[name] is None else instant(row[name]) for name in moments}


class _Audit:
    """A file of JSON lines, only appended to. A new one is readable by its owner only; a symbolic link is refused."""

    def __init__(self, path: Path, queue: str, where: str) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._facts = {"queue": queue, "where": where}
        self._clock = SystemClock()

    def write(self, what: str, **facts: object) -> None:
        line = {"at": exact(instant(self._clock.now())), "what": what, **self._facts, **facts}
        with open(self._path, "a", encoding="utf-8", opener=for_owner) as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
