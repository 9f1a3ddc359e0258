"""A whole cluster inside the test process: a NameServer and brokers, on free ports, with small files.

    with EmbeddedCluster() as cluster:
        producer = Producer(cluster.name_server_addr)

It starts within a second and leaves nothing behind.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from rocketq.broker import Broker, BrokerConfig
from rocketq.broker.app import kept_settings_path
from rocketq.nameserver import NameServer, NameServerConfig
from rocketq.protocol.config_text import parse_config
from rocketq.runtime.clock import Clock
from rocketq.store import StoreConfig
from rocketq.testing.loop_thread import LoopThread

SMALL_FILES: Final[Mapping[str, str]] = {
    "mappedFileSizeCommitLog": str(16 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 5_000),
    "maxHashSlotNum": "5000",
    "maxIndexNum": "20000",
    "diskMaxUsedSpaceRatio": "95",
    "diskSpaceWarningLevelRatio": "0.99",
    "diskSpaceCleanForciblyRatio": "0.98",
}


class EmbeddedCluster:
    """Everything runs on one thread beside the caller's. `settings` are keys of Apache's broker.conf."""

    def __init__(
        self,
        *,
        brokers: int = 1,
        settings: Mapping[str, str] | None = None,
        data_dir: Path | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._brokers_count = brokers
        self._settings = {**SMALL_FILES, **(settings or {})}
        self._temporary = tempfile.TemporaryDirectory(prefix="rocketq-") if data_dir is None else None
        self._data_dir = Path(self._temporary.name) if self._temporary is not None else Path(data_dir or ".")
        self._clock = clock
        self._thread: LoopThread | None = None
        self._name_server: NameServer | None = None
        self.brokers: list[Broker] = []

    # where things are

    @property
    def name_server_addr(self) -> str:
        assert self._name_server is not None, "the cluster is not started"
        return self._name_server.addr

    @property
    def broker_addrs(self) -> list[str]:
        return [broker.addr for broker in self.brokers]

    @property
    def broker_addr(self) -> str:
        """Of the first broker."""
        return self.brokers[0].addr

    @property
    def data_dir(self) -> Path:
        return self._data_dir

    def store_dir(self, index: int = 0) -> Path:
        return self._data_dir / f"broker-{index}"

    # starting and stopping

    def start(self) -> Self:
        self._thread = LoopThread("rocketq-cluster")
        try:
            self._start_name_server()
            for index in range(self._brokers_count):
                self.brokers.append(self._make_broker(index, port=0))
                self.thread.run(self.brokers[index].start())
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        if self._thread is None:
            return
        for broker in self.brokers:
            self.thread.run(broker.stop(drain_ms=1_000))
        if self._name_server is not None:
            self.thread.run(self._name_server.stop(drain_ms=1_000))
        self._thread.close()
        self._thread = None
        if self._temporary is not None:
            self._temporary.cleanup()

    def stop_broker(self, index: int = 0) -> None:
        self.thread.run(self.brokers[index].stop(drain_ms=1_000))

    def start_broker(self, index: int = 0) -> None:
        """Again, at the same port and on the same directory."""
        self.brokers[index] = self._make_broker(index, port=self.brokers[index].config.port)
        self.thread.run(self.brokers[index].start())

    def restart_broker(self, index: int = 0) -> None:
        self.stop_broker(index)
        self.start_broker(index)

    def stop_name_server(self) -> None:
        assert self._name_server is not None
        self.thread.run(self._name_server.stop(drain_ms=1_000))

    def start_name_server(self) -> None:
        """Again, at the same port."""
        assert self._name_server is not None
        self._start_name_server(self._name_server.port)

    @property
    def thread(self) -> LoopThread:
        """Where everything of the cluster runs; nothing of it may be touched elsewhere."""
        assert self._thread is not None, "the cluster is not started"
        return self._thread

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start_name_server(self, port: int = 0) -> None:
        folder = self._data_dir / "namesrv"
        config = NameServerConfig(
            port=port, kv_path=folder / "kvConfig.json", config_path=folder / "namesrv.properties"
        )
        self._name_server = NameServer(config)
        self.thread.run(self._name_server.start())

    def _make_broker(self, index: int, *, port: int) -> Broker:
        root = self.store_dir(index)
        kept = kept_settings_path(root)
        settings = {**self._settings, **(parse_config(kept.read_text()) if kept.exists() else {})}
        config = BrokerConfig.from_java(settings, port=port, name_servers=self.name_server_addr)
        if "brokerName" not in settings:
            config = replace(config, name=f"broker-{index}")
        return Broker(config, StoreConfig.from_java(settings, root=root), clock=self._clock)
