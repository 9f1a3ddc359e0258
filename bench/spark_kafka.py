"""Kafka beside us: its broker and Spark's connector, resolved by Maven once into a cache."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.interop.cache import Unavailable, cache_root, fetch, found, made_once

BROKER_VERSION = "4.2.0"
CLIENTS_VERSION = "3.9.1"
CONNECTOR_VERSIONS = (("4.3.0", "4.3.0"), ("4.2.0", "4.2.0"), ("4.2.0", "4.0.0"))
"""Of the connector and of its token provider (not used here), the first pair that can be had: not every repository
has every version of them."""
FETCH_SECONDS_MAX = 300
START_SECONDS_MAX = 60.0
_HEAD = '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
_ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


def connector_jars() -> list[Path]:
    """What Spark needs for format("kafka"); Unavailable says why it cannot be had."""
    reason = Unavailable("no version was tried")
    for connector, tokens in CONNECTOR_VERSIONS:
        wanted = [
            ("org.apache.spark", "spark-sql-kafka-0-10_2.13", connector),
            ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", tokens),
            ("org.apache.kafka", "kafka-clients", CLIENTS_VERSION),
            ("org.apache.commons", "commons-pool2", "2.12.1"),
        ]
        try:
            return sorted(_fetched(f"spark-kafka-{connector}-{tokens}", wanted, alone=True).glob("*.jar"))
        except Unavailable as error:
            reason = error
    raise reason


def broker_jars() -> Path:
    wanted = [("org.apache.kafka", "kafka_2.13", BROKER_VERSION)]
    return _fetched(f"kafka-{BROKER_VERSION}", wanted, alone=False)


def _fetched(name: str, wanted: list[tuple[str, str, str]], *, alone: bool) -> Path:
    """`alone`: just these, without what they name in turn (Spark brings it along)."""
    root = cache_root() / name
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        f"{_ALONE if alone else ''}</dependency>"
        for group, artifact, version in wanted
    )

    def make(target: Path) -> None:
        names = "<groupId>rocketq.bench</groupId><artifactId>kafka</artifactId><version>1</version>"
        pom = f"{_HEAD}{names}<dependencies>{dependencies}</dependencies></project>"
        (root / "pom.xml").write_text(pom, encoding="utf-8")
        command = [found("mvn"), "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={target}"]
        fetch(name, command, cwd=root, seconds_max=FETCH_SECONDS_MAX)

    return made_once(root / "lib", make)


class KafkaBroker:
    """One node that is broker and controller, in a folder that goes with it."""

    def __init__(self, *, partitions: int) -> None:
        self._jars = broker_jars()
        self._partitions = partitions
        self._root = Path(tempfile.mkdtemp(prefix="kafka-bench-"))
        self._process: subprocess.Popen[bytes] | None = None
        self.addr = ""

    @property
    def pids(self) -> list[int]:
        return [] if self._process is None else [self._process.pid]

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _start(self) -> None:
        port, controller = _free_port(), _free_port()
        self.addr = f"127.0.0.1:{port}"
        config = self._root / "server.properties"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://{self.addr},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self._root / "logs"),
            "num.partitions": str(self._partitions),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "broker.session.timeout.ms": "120000",  # on a busy machine heartbeats come late
        }
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        java = [found("java"), "-Xmx1g", "-cp", f"{self._jars}/*"]
        format_log = [*java, "kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", str(config)]
        with (self._root / "log").open("wb") as log:
            formatted = subprocess.run(format_log, stdout=log, stderr=log, check=False, timeout=START_SECONDS_MAX)
            if formatted.returncode:
                raise Unavailable(f"Kafka's storage could not be made: {self._said()}")
            self._process = subprocess.Popen([*java, "kafka.Kafka", str(config)], stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS_MAX
        while not _answers(port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise Unavailable(f"Kafka did not start: {self._said()}")
            time.sleep(0.1)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._root, ignore_errors=True)

    def _said(self) -> str:
        return " ".join((self._root / "log").read_text(errors="replace")[-500:].split())


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _answers(port: int) -> bool:
    with closing(socket.socket()) as line:
        return line.connect_ex(("127.0.0.1", port)) == 0
