"""What commands that use Spark have in common: a session, and that what goes wrong there is told in a sentence, not in pages of trace."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from astyqueue.cli.failures import ExitCode, Failure, code_of, is_verbose, trace_if_verbose

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Options of the data source, which the command has by another name.
_OPTION: Final = re.compile(r"\boption (\w+)=")
#: A logger of PySpark that prints the whole of an error, although it is raised as well.
_REPEATING: Final = "SQLQueryContextLogger"


@contextmanager
def told_plainly() -> Iterator[None]:
    """Turn what Spark raises into the sentence that matters; without Spark, say how to install it."""
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        from astyqueue.spark.failing import reason_of
    except ImportError as error:
        message = "this needs Spark: pip install '.[spark]' in a clone of astyqueue"
        raise Failure(message, ExitCode.BAD_INPUT) from error
    try:
        with paths_told_plainly():
            yield
    except (PySparkException, Py4JError) as error:
        trace_if_verbose()
        kind, told = reason_of(error)
        raise Failure(": ".join([*_notes(error), _OPTION.sub(_as_typed, told)]), code_of(kind)) from error


@contextmanager
def paths_told_plainly() -> Iterator[None]:
    """Turn what the system says of a file or a folder that was named into a sentence."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            raise
        trace_if_verbose()
        message = f"{error.filename}: {error.strerror}"
        raise Failure(message, ExitCode.BAD_INPUT) from error


def _notes(error: BaseException) -> list[str]:
    """What was added on the way: which file was being sent."""
    return list(getattr(error, "__notes__", ()))


def _as_typed(found: re.Match[str]) -> str:
    return f"--{found[1].replace('_', '-')}="


@contextmanager
def spark_session(
    master: str | None, *, name: str = "astyqueue", level: str = "FATAL", settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session that ends with the block, unless this process had one before; what fails in it is told plainly.

    Spark's own lines are shown from `level` up: what fails is told once, and not by Spark. With `-v` all its warnings are.
    """
    with told_plainly(), _opened(master, name=name, settings=settings) as spark:
        _hush(spark, "WARN" if is_verbose() else level)
        yield spark


@contextmanager
def _opened(master: str | None, *, name: str, settings: Mapping[str, str] | None) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    from astyqueue.spark import session

    before = SparkSession.getActiveSession()
    spark = session(master, name=name, settings=settings, quiet=not is_verbose())
    try:
        yield spark
    finally:
        if before is None:
            spark.stop()


def _hush(spark: SparkSession, level: str) -> None:
    from pyspark.logger import PySparkLogger

    from astyqueue.spark.session import is_elsewhere

    PySparkLogger.getLogger(_REPEATING).disabled = not is_verbose()
    if not is_elsewhere(spark):  # a server there has a log of its own
        spark.sparkContext.setLogLevel(level)
