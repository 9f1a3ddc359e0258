"""A Spark session that needs nothing but pip install: Java found or supplied, workers on this Python, quiet."""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import socket
import sys
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rocketq.spark.errors import AwayError, OptionError, SparkError
from rocketq.spark.java import find_java
from rocketq.spark.notebooks import Interrupts, make_active, shell_of_notebook
from rocketq.spark.worker_python import worker_conf, worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


log = logging.getLogger(__name__)

LOCAL_MASTER: Final = "local[*,4]"
"""All cores, and a task is tried four times, as on a cluster."""

SQL_CONF: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
"""Spark's pushdown of filters into Python sources stays off: up to 4.3 an option must ask for it as well."""
_REMOTE_CONF: Final = {
    "spark.sql.connect.serverStacktrace.enabled": "false",  # a hundred frames of the server behind our line
}
_LOCAL_CONF: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.python.authenticate.socketTimeout": "120s",  # a machine with much to do starts Python late
}
_LOG4J: Final = """\
rootLogger.level = off
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex{3}
logger.python.name = org.apache.spark.api.python
logger.python.level = off
logger.scheduler.name = org.apache.spark.scheduler
logger.scheduler.level = off
logger.executor.name = org.apache.spark.executor
logger.executor.level = off
logger.v2.name = org.apache.spark.sql.execution.datasources.v2
logger.v2.level = off
logger.streaming.name = org.apache.spark.sql.execution.streaming
logger.streaming.level = off
logger.util.name = org.apache.spark.util
logger.util.level = off
"""
"""Failures are raised in Python, and Spark would print them several times more. Logging is off, which also avoids
three start lines about log levels; spark.log.level enables it."""

_interrupts: Final = Interrupts()


def session(
    app_name: str = "rocketq",
    *,
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """A new session, or the existing one.

    Without `master` it runs here, on all cores. `master` is any that Spark knows (local[2], local-cluster[2,1,1024],
    spark://host:7077, yarn, k8s://...); `remote` is a Spark Connect server (sc://host:15002). `conf` overrides the
    defaults. SparkError names in one line what is missing: Java, or a master that answers.
    """
    wanted = {key: str(value) for key, value in (conf or {}).items()}
    if master is not None and remote is not None:
        raise SparkError("master and remote exclude each other: a remote session runs where its server does")
    _require_pyspark()
    if remote is not None:
        return _remote_session(app_name, remote, wanted)
    return _own_session(app_name, master or wanted.pop("spark.master", None), wanted)


def _own_session(app_name: str, master: str | None, conf: dict[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession  # noqa: PLC0415 - late: Spark is heavy

    chosen = master or LOCAL_MASTER
    require_master(chosen)
    running = _running()
    if running is not None:  # a notebook's, or our own from before: settings of the JVM cannot change any more
        _set_late(running, master, conf)
        return _in_notebook(running)
    prepare_environment(here=is_local(chosen))
    builder = SparkSession.builder.master(chosen).appName(app_name)
    for key, value in {**SQL_CONF, **(_local_conf(conf) if is_local(chosen) else {}), **conf}.items():
        builder = builder.config(key, value)
    return _in_notebook(_started(builder, f"Spark did not start on {chosen}"))


def _running() -> SparkSession | None:
    """The session of this process, active in this thread too. Threads that did not make it have none, nor has the one
    that did after an interrupt; and then Spark finds no Python source to stream into."""
    from pyspark.sql import SparkSession  # noqa: PLC0415

    active = SparkSession.getActiveSession()
    if active is not None or not _has_context():
        return active
    found = SparkSession.builder.getOrCreate()
    make_active(found)
    return found


def _set_late(running: SparkSession, master: str | None, conf: Mapping[str, str]) -> None:
    """Apply settings that can still change; warn that the others have no effect."""
    left = {} if master is None else {"spark.master": master}
    for key, value in {**SQL_CONF, **conf}.items():
        try:
            running.conf.set(key, value)
        except Exception:  # any Spark exception: a setting that is fixed at start
            left[key] = value
    if runs_here(running):
        started = running.sparkContext.getConf()
        if other := [key for key, value in left.items() if started.get(key) != value]:
            log.warning("a session runs already: %s would count after spark.stop() only", ", ".join(other))
    else:
        hide_secrets(running)


def _in_notebook(session: SparkSession) -> SparkSession:
    shell = shell_of_notebook()
    if shell is not None and runs_here(session):  # sessions of Spark Connect end their work themselves
        _interrupts.watch(shell, session)
    return session


def _has_context() -> bool:
    from pyspark import SparkContext  # noqa: PLC0415

    return SparkContext._active_spark_context is not None


def runs_here(session: SparkSession) -> bool:
    """Whether it is no session of Spark Connect, whose server may be in this very process."""
    return not type(session).__module__.startswith("pyspark.sql.connect.")


def _remote_session(app_name: str, remote: str, conf: dict[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession  # noqa: PLC0415

    require_remote(remote)
    if is_local(remote):
        prepare_environment()
    builder = SparkSession.builder.remote(remote).appName(app_name)
    for key, value in {**SQL_CONF, **_REMOTE_CONF, **(_local_conf(conf) if is_local(remote) else {}), **conf}.items():
        builder = builder.config(key, value)
    made = _started(builder, f"no session at {remote}")
    hide_secrets(made)
    return made


def _started(builder: SparkSession.Builder, what: str) -> SparkSession:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return builder.getOrCreate()
    except Exception as error:  # any error of the JVM or the server, in one line
        first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise SparkError(f"{what}: {first.strip()}") from None


def prepare_environment(*, here: bool = True) -> None:
    """JAVA_HOME and the Python of the workers, as the JVM to be started will see them. Not `here`: workers run on other
    machines, where the same interpreter is looked for."""
    java = find_java(os.environ)
    if java.home is not None:
        os.environ["JAVA_HOME"] = str(java.home)
    python = worker_python(os.environ)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", python)  # of what plans tasks
    os.environ.setdefault("PYSPARK_PYTHON", python if here else sys.executable)


def _local_conf(given: Mapping[str, str]) -> dict[str, str]:
    folder = Path(tempfile.mkdtemp(prefix="rocketq-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    conf = dict(_LOCAL_CONF)
    if os.environ.get("PYSPARK_PYTHON") == worker_python(os.environ):  # others print a line of each that is left early
        conf |= worker_conf(folder)
    if "spark.driver.extraJavaOptions" not in given:
        (folder / "log4j2.properties").write_text(_LOG4J)
        options = f"-Dlog4j2.configurationFile=file:{folder}/log4j2.properties -Dderby.system.home={folder}"
        conf["spark.driver.extraJavaOptions"] = options
        conf["spark.sql.warehouse.dir"] = str(folder / "warehouse")
        del conf["spark.log.level"]  # Spark would print that it is set
    return conf


def _require_pyspark() -> None:
    try:
        import pyspark  # noqa: F401, PLC0415
    except ImportError:
        raise SparkError("PySpark is not installed: pip install 'rocketq[spark]'") from None


FORMS: Final = "local[N], local-cluster[N,cores,MB], spark://host:port, yarn or k8s://url"
_LOCAL: Final = re.compile(r"local(\[(\*|\d+)(\s*,\s*\d+)?\])?$")
_LOCAL_CLUSTER: Final = re.compile(r"local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]$")
_STANDALONE: Final = re.compile(r"spark://([^,/\s]+:\d+(,[^,/\s]+:\d+)*)$")
_CONNECT: Final = re.compile(r"sc://([^:/;\s]+|\[[0-9a-fA-F:]+\])(:\d+)?(/.*)?$")
_CONNECT_PORT: Final = 15002
_YARN_FOLDERS: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_SECONDS: Final = 5.0


def is_local(master: str) -> bool:
    return master.startswith("local")


def require_master(master: str) -> None:
    """OptionError for a master URL that Spark does not know, AwayError if it does not answer."""
    if master == "yarn" and not any(os.environ.get(name) for name in _YARN_FOLDERS):
        raise OptionError(f"master yarn needs {' or '.join(_YARN_FOLDERS)}: the folder of the cluster's settings")
    if _LOCAL.match(master) or _LOCAL_CLUSTER.match(master) or master == "yarn" or master.startswith("k8s://"):
        return
    found = _STANDALONE.match(master)
    if found is None:
        raise OptionError(f"master {master!r} is none that Spark knows: {FORMS}")
    addrs = found.group(1).split(",")
    if not any(_answers(addr) for addr in addrs):
        raise AwayError(f"no Spark master answers at {' or '.join(addrs)}")


def require_remote(remote: str) -> None:
    """The same for Spark Connect."""
    if is_local(remote):
        require_master(remote)
        return
    found = _CONNECT.match(remote)
    if found is None:
        raise OptionError(f"remote {remote!r} is no address of Spark Connect: sc://host:port")
    addr = found.group(1) + (found.group(2) or f":{_CONNECT_PORT}")
    if not _answers(addr):
        raise AwayError(f"no Spark Connect server answers at {addr}")


def _answers(addr: str) -> bool:
    host, _, port = addr.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_SECONDS):
            return True
    except (OSError, OverflowError):
        return False


SETTING: Final = "spark.sql.redaction.string.regex"
SECRETS: Final = (
    r"(?i)(?:accessKey|secretKey|securityToken|keyPassword)"
    r"""(?:"\s+value: "(?:[^"\\]|\\.)*"|[`"'\\]*[\s=]*\\?['"][^'"\\]*\\?['"])"""
)
"""As an option of a plan's text, and in SQL."""


def hide_secrets(session: SparkSession) -> None:
    """Unless the session or its server sets another pattern."""
    if not session.conf.get(SETTING, ""):
        session.conf.set(SETTING, SECRETS)
