"""Putting back dead letters that Spark SQL chooses.

They are put back in place, by their ids, and not sent anew: a message keeps its id, its key and its history, and one that
somebody else put back or deleted meanwhile is passed over. Spark only says which.
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
from astyqueue.model.message import MessageId
from astyqueue.model.moments import exact
from astyqueue.model.views import RedriveReport
from astyqueue.queue.orders import Orders
from astyqueue.spark.failing import reason_of
from astyqueue.spark.opening import Pace, sending
from astyqueue.spark.options import Place, everywhere
from astyqueue.spark.tables import DEAD

#: Dead letters in one commit; fewer where a rate is to be even.
_PAGE: Final = 100
#: Dead letters that a dry run shows.
SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a query chose: how many dead letters of each kind and task, and the first of them as Spark has them."""

    kinds: dict[str, int]
    sample: list[dict[str, object]]

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.kinds.values())


class RedriveByQuery:
    """A choice of dead letters of one queue."""

    def __init__(self, spark: SparkSession, url: str, queue: str, *, where: str) -> None:
        """Choose with a condition of Spark SQL over the table `dead`; BadInput if Spark cannot make sense of it.

        Spark SQL can call Java: hand in no text of people who may not run programs here.
        """
        self.where = where
        self._place = Place(everywhere(url), queue)
        letters = spark.read.format("astyqueue").options(url=self._place.url, queue=queue, table=DEAD).load()
        try:
            self._letters: DataFrame = letters.where(where)
        except AnalysisException as error:
            _, told = reason_of(error)
            message = f"{where!r} is no condition over dead letters: {told.rstrip('.')}; their columns are {', '.join(letters.columns)}"
            raise BadInput(message) from error

    def look(self) -> Chosen:
        """A dry run: what the query chooses now. Nothing is changed."""
        kinds = self._letters.groupBy("kind").agg(count(lit(1)).alias("letters")).collect()
        moments = [field.name for field in self._letters.schema if isinstance(field.dataType, TimestampType)]
        sample = self._letters.orderBy("died").limit(SHOWN).withColumns({name: unix_micros(name) for name in moments}).collect()
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
        """Put back what the query chooses, at most `rate` a second.

        Each page of ids is written to the end of `audit` (JSON lines) before it is put back, and what became of it after that,
        so the file tells what was meant even if this dies in between. What would die again at once is left, unless `force`d.
        `cancelled` is asked before each page; what was put back until then stays so.
        """
        queue = sending(self._place, create=False)
        orders = Orders(queue.core.process, queue.core.claimer.history)
        pace, report, record = Pace(rate), RedriveReport(), _Audit(audit, self._place.queue, self.where)
        for page in self._pages(_PAGE if rate is None else max(1, min(_PAGE, int(rate / 10)))):
            if cancelled():
                break
            pace.keep(len(page))
            record.write("redriving", ids=list(map(str, page)))
            done = queue.run(orders.redrive(page, force=force, dry_run=False))
            record.write("redriven", put_back=done.redriven, left=done.left, gone=len(page) - done.redriven - done.left)
            queue.run(queue.core.rounds.survey.doorbell.ring(list({id_.row for id_ in page})))
            report += done
            progress(report)
        return report

    def _pages(self, size: int) -> Iterator[list[MessageId]]:
        """The ids, so many at a time: all are chosen before the first is put back, so that what dies anew meanwhile is not chosen again."""
        ids = iter([MessageId.parse(row["id"]) for row in self._letters.select("id").collect()])
        while page := list(islice(ids, size)):
            yield page


def _letter(row: Row, moments: Collection[str]) -> dict[str, object]:
    """A row with moments as they are everywhere else; Spark's own forget of which zone they are."""
    told: dict[str, object] = row.asDict()
    return told | {name: None if row[name] is None else instant(row[name]) for name in moments}


class _Audit:
    """A file of JSON lines that is only added to; its owner's alone, if it is new, and no other that a link leads to."""

    def __init__(self, path: Path, queue: str, where: str) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._facts = {"queue": queue, "where": where}
        self._clock = SystemClock()

    def write(self, what: str, **facts: object) -> None:
        line = {"at": exact(instant(self._clock.now())), "what": what, **self._facts, **facts}
        with open(self._path, "a", encoding="utf-8", opener=for_owner) as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
