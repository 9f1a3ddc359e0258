"""One Spark session and one cluster for all tests here: give each test its own topics, groups and folders."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rocketq.spark.worker_python import worker_conf, worker_python
from rocketq.testing import EmbeddedCluster
from tests.spark.class_archive import java_options
from tests.spark.filling import Filler

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SESSION_CONF = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.streaming.stopTimeout": "30s",
    "spark.log.level": "ERROR",
    "spark.python.authenticate.socketTimeout": "120s",
}
CLUSTER_SETTINGS = {"enablePropertyFilter": "true", "traceTopicEnable": "true"}
QUIET_LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex{3}
logger.python.name = org.apache.spark.api.python
logger.python.level = off
logger.task.name = org.apache.spark.scheduler
logger.task.level = off
logger.executor.name = org.apache.spark.executor
logger.executor.level = off
logger.v2.name = org.apache.spark.sql.execution.datasources.v2
logger.v2.level = off
logger.stream.name = org.apache.spark.sql.execution.streaming
logger.stream.level = off
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sockets between Python and the JVM are closed when garbage is collected, in the middle of any test of ours."""
    harmless = pytest.mark.filterwarnings(
        "ignore:unclosed <socket:ResourceWarning",
        r"ignore:.*unclosed <socket:pytest.PytestUnraisableExceptionWarning",
    )
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(harmless)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Tasks are tried four times, as on a cluster; the source is found by its name, as after an installation."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - only who names the fixture pays

    folder = tmp_path_factory.mktemp("spark")
    log4j = folder / "log4j2.properties"
    log4j.write_text(QUIET_LOG4J)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = worker_python(os.environ)
    builder = SparkSession.builder.master("local[2,4]").appName("rocketq-tests")
    options = {
        **SESSION_CONF,
        **worker_conf(folder),
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.extraJavaOptions": (
            f"{java_options()} -Dlog4j2.configurationFile=file:{log4j} -Dderby.system.home={folder}"
        ),
    }
    for key, value in options.items():
        builder = builder.config(key, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = builder.getOrCreate()
    logging.getLogger("pyspark").setLevel(logging.CRITICAL)
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def cluster() -> Iterator[EmbeddedCluster]:
    """A NameServer and two brokers, broker-0 and broker-1, that all tests share."""
    with EmbeddedCluster(brokers=2, settings=CLUSTER_SETTINGS) as running:
        yield running


@pytest.fixture(scope="session")
def filler(cluster: EmbeddedCluster) -> Iterator[Filler]:
    made = Filler(cluster)
    yield made
    made.close()
