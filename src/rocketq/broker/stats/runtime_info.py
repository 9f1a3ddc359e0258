"""Runtime info of a broker (request 28), under the names that admin tools read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from rocketq import __version__
from rocketq.broker.admin.settings import Settings
from rocketq.broker.stats.broker_stats import BrokerStats
from rocketq.protocol.names import SETTLES_ONCE
from rocketq.protocol.versions import OUR_VERSION, version_name
from rocketq.runtime.clock import Clock
from rocketq.store import StoreReader

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_NO_POOL: Final = "2147483647"


class RuntimeInfo:
    """Builds the runtime table. There are no thread pools: the pull pool's queue size is the number of held pulls."""

    def __init__(
        self,
        settings: Settings,
        stats: BrokerStats,
        store: StoreReader,
        clock: Clock,
        held_pulls: Callable[[], int],
        delays: Callable[[], Mapping[int, tuple[int, int]]],
    ) -> None:
        self._settings = settings
        self._stats = stats
        self._store = store
        self._clock = clock
        self._held_pulls = held_pulls
        self._delays = delays

    def table(self) -> dict[str, str]:
        return dict(sorted((self._identity() | self._rates() | self._disk() | self._queues()).items()))

    def _identity(self) -> dict[str, str]:
        started_ms = self._stats.totals.started_ms
        return {
            "bootTimestamp": str(started_ms),
            "brokerActive": "true",
            "brokerVersion": str(OUR_VERSION),
            "brokerVersionDesc": version_name(OUR_VERSION),
            SETTLES_ONCE: "true",
            "product": "RocketQ",
            "rocketqVersion": __version__,
            "runtime": _duration(max(0, self._clock.now_ms() - started_ms)),
            "startAcceptSendRequestTimeStamp": str(self._settings.config.accept_sends_from_ms),
        }

    def _rates(self) -> dict[str, str]:
        totals = self._stats.totals
        put, transferred = totals.now.put, totals.rates("transferred")
        return {
            "putTps": totals.rates("put"),
            "getFoundTps": totals.rates("found"),
            "getMissTps": totals.rates("missed"),
            "getTotalTps": totals.rates("found", "missed"),
            "getTransferedTps": transferred,
            "getTransferredTps": transferred,
            "putMessageTimesTotal": str(put),
            "putMessageSizeTotal": str(totals.now.put_bytes),
            "putMessageFailedTimes": str(totals.now.put_failed),
            "putMessageAverageSize": str(totals.now.put_bytes / put if put else 0.0),
            "putMessageEntireTimeMax": str(totals.put_ms_max),
            "getMessageEntireTimeMax": str(totals.get_ms_max),
            "putMessageDistributeTime": totals.distribution(),
            **totals.day_totals(),
        }

    def _disk(self) -> dict[str, str]:
        store = self._store
        log_usage = store.disk_usage(store.config.log_dir)
        queue_usage = store.disk_usage(store.config.root)
        free = f"Total : {_size(log_usage.total_bytes)}, Free : {_size(log_usage.usable_bytes)}."
        return {
            "commitLogDirCapacity": free,
            "commitLogDiskRatio": f"{log_usage.used_ratio:.4f}",
            f"commitLogDiskRatio_{store.config.log_dir}": f"{log_usage.used_ratio:.4f}",
            "consumeQueueDiskRatio": f"{queue_usage.used_ratio:.4f}",
            "commitLogMinOffset": str(store.log_start),
            "commitLogMaxOffset": str(store.log_end),
            "dispatchBehindBytes": "0",
            "dispatchMaxBuffer": "0",
            "earliestMessageTimeStamp": str(store.earliest_store_ms()),
            "pageCacheLockTimeMills": "0",
            "remainHowManyDataToFlush": _size(max(0, store.log_end - store.flushed_to)),
            "remainTransientStoreBufferNumbs": _NO_POOL,
        }

    def _queues(self) -> dict[str, str]:
        config = self._settings.config
        waits = {f"{pool}ThreadPoolQueueHeadWaitTimeMills": "0" for pool in ("send", "pull", "query", "litePull")}
        waits |= {
            f"scheduleMessageOffset_{level}": f"{offset},{end}" for level, (offset, end) in self._delays().items()
        }
        return waits | {
            "sendThreadPoolQueueSize": "0",
            "sendThreadPoolQueueCapacity": str(config.sends_waiting_max),
            "pullThreadPoolQueueSize": str(self._held_pulls()),
            "pullThreadPoolQueueCapacity": str(config.held_pulls_max),
            "litePullThreadPoolQueueSize": "0",
            "litePullThreadPoolQueueCapacity": str(config.held_pulls_max),
            "queryThreadPoolQueueSize": "0",
            "queryThreadPoolQueueCapacity": "20000",
            "EndTransactionQueueSize": "0",
            "EndTransactionThreadPoolQueueCapacity": "100000",
        }


def _duration(span_ms: int) -> str:
    minutes, seconds = divmod(span_ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _size(count: float) -> str:
    for unit in _UNITS[:-1]:
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} {_UNITS[-1]}"
