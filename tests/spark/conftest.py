"""One Spark session for all tests here: starting one takes longer than any of them."""

from __future__ import annotations

import logging
import os
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import pytest
from pyspark.logger import PySparkLogger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.frames import Frames
    from tests.support.places import Place

#: Two tasks at a time, each tried four times. A small machine compiles less and starts sooner.
MASTER: Final = "local[2,4]"
SETTINGS: Final = {
    "spark.driver.memory": "768m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.python.authenticate.socketTimeout": "120s",
}
#: Tests have few rows, so compiling a query takes longer than running it. With `--all-stores` Spark compiles, as it
#: does for users.
_INTERPRETED: Final = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
_TOLD: Final = pytest.StashKey[str]()
_SECONDS: Final = 300
#: Where a report of the pipeline is looked at.
_BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")
_NO_BROWSER: Final = pytest.StashKey[str]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first of these tests starts the session, which takes a while on a busy machine.

    With several processes they go first: one process runs them all, and the others would wait for it at the end.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: Path(__file__).parent not in item.path.parents)
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(_SECONDS))
            item.add_marker(
                pytest.mark.filterwarnings(
                    "ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"
                )
            )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was not tested: without Java nothing about Spark, without a browser little about the report."""
    if told := config.stash.get(_TOLD, ""):
        terminalreporter.section("Spark")
        terminalreporter.write_line(told)
    if told := config.stash.get(_NO_BROWSER, ""):
        terminalreporter.section("report")
        terminalreporter.write_line(told)


@pytest.fixture(autouse=True)
def lines_of_the_log_stay_as_they_are(pytestconfig: pytest.Config) -> Iterator[None]:
    """Take back the format that loggers of PySpark give to the handlers of pytest.

    They give their own format to every handler they get, and pytest adds its handlers to all loggers that do not
    propagate.
    """
    yield
    for logger in logging.getLogger().manager.loggerDict.values():
        if isinstance(logger, PySparkLogger):
            logger.propagate = True
    plugin = pytestconfig.pluginmanager.get_plugin("logging-plugin")
    assert plugin is not None
    for handler in (plugin.caplog_handler, plugin.report_handler):
        handler.setFormatter(plugin.formatter)


def _lacking(config: pytest.Config, told: pytest.StashKey[str], reason: str) -> NoReturn:
    """Skip this test for lack of a program, which the last lines of the run then name; with CI=true, fail it."""
    config.stash[told] = reason
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def java(pytestconfig: pytest.Config) -> Path:
    """The home of a Java that Spark runs on; without one these tests are skipped, and with CI=true they fail."""
    from astyqueue.spark.session import NoJava, java_home  # noqa: PLC0415 - whoever runs no test on Spark need not load it

    try:
        return java_home()
    except NoJava as error:
        reason = f"NOT TESTED on Spark: {error}"
    _lacking(pytestconfig, _TOLD, reason)


@pytest.fixture(scope="session")
def spark(java: Path, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[SparkSession]:
    """The session."""
    from astyqueue.spark import session  # noqa: PLC0415 - as above

    os.environ["JAVA_HOME"] = str(java)
    kept = {
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.local.dir": str(tmp_path_factory.mktemp("local")),
    }
    with warnings.catch_warnings(action="ignore"):
        compiled = {} if pytestconfig.getoption("--all-stores") else _INTERPRETED
        made = session(MASTER, name="astyqueue-tests", settings=SETTINGS | compiled | kept)
    made.sparkContext.setLogLevel("ERROR")
    yield made
    made.stop()


@pytest.fixture
def frames(spark: SparkSession, place: Place) -> Iterator[Frames]:
    """Reads from and writes to the store of this test."""
    from tests.spark.frames import Frames  # noqa: PLC0415 - as above

    made = Frames(spark, place.url)
    yield made
    made.close()


@pytest.fixture(scope="session")
def browser(pytestconfig: pytest.Config) -> str:
    """A browser on this machine; without one its tests are skipped, as the last lines say; with CI=true they fail."""
    for name in _BROWSERS:
        if path := shutil.which(name):
            return path
    reason = (
        f"NOT TESTED in a browser: the report was not opened in any of {', '.join(_BROWSERS)}; "
        "install chromium to have it looked at"
    )
    _lacking(pytestconfig, _NO_BROWSER, reason)


@pytest.fixture
def starts_asked_for(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The moments at which `pipeline stream` has its streams begin, in place of which nothing runs."""
    asked: list[int] = []

    class Asked:
        def __init__(self, *_: object, **__: object) -> None:
            """As Stream, which this stands in for."""

        def start(self, *_: object, since: int, **__: object) -> list[object]:
            asked.append(since)
            return []

    monkeypatch.setattr("astyqueue.spark.pipeline.streaming.Stream", Asked)
    return asked
