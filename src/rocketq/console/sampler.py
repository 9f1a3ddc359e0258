"""The one sampler of a cluster: rounds of bulk requests, shared by all pages, alerts and users."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Final

from rocketq.client.admin.overview import AsyncOverview
from rocketq.client.core.overview import ClusterOverview
from rocketq.console.history import History
from rocketq.console.rates import ClusterFigures, Finding, RateKeeper, findings, is_users
from rocketq.errors import RocketQError

log = logging.getLogger(__name__)

ASKED_MAX: Final = 32
"""Topics and groups that are asked for one by one in a round, in turn: what pages show first, then dead letters."""
QUEUES_PER_S: Final = 1_000
SMALL_TOPICS: Final = 1_000
WATCHED_TABLES_EVERY: Final = 6
IDLE_TABLES_EVERY: Final = 10
"""From 1,000 topics on their tables are requested in every sixth round only, without an open page in every tenth."""
_INTEREST_S: Final = 60.0
_WATCHED_S: Final = 30.0
_LOG_AGAIN_S: Final = 60.0

Listener = Callable[["Sampler"], None]


class Sampler:
    """Has the newest overview, or the reason why there is none."""

    def __init__(
        self, cluster: str, source: AsyncOverview, history: History, *, sample_s: float, idle_s: float
    ) -> None:
        self.cluster = cluster
        self.overview: ClusterOverview | None = None
        self.figures: ClusterFigures | None = None
        self.findings: tuple[Finding, ...] = ()
        self.error: str | None = None
        self.rounds = 0
        self.always_fast = False
        """Whether alerts need every period, also while no page is open."""
        self._source = source
        self._history = history
        self._sample_s = sample_s
        self._idle_s = idle_s
        self._keeper = RateKeeper()
        self._listeners: list[Listener] = []
        self._topics: dict[str, float] = {}
        self._groups: dict[str, float] = {}
        self._touched_s = 0.0
        self._tables_wanted = True
        self._logged_s = 0.0
        self._wake = asyncio.Event()
        self._round_done = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def source(self) -> AsyncOverview:
        return self._source

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"rocketq-sampler-{self.cluster}")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def add_listener(self, listener: Listener) -> None:
        """Called after each round, on the event loop."""
        self._listeners.append(listener)

    def touch(self) -> None:
        """A page is open: sample at the fast period for 30 s, and now if the last sample is old."""
        was_idle = not self._is_watched()
        self._touched_s = time.monotonic()
        if was_idle:
            self._wake.set()

    def show(self, *, topics: Iterable[str] = (), groups: Iterable[str] = ()) -> None:
        """Request these in the next rounds: a page shows them."""
        now = time.monotonic()
        self._topics.update(dict.fromkeys(topics, now))
        self._groups.update(dict.fromkeys(groups, now))

    async def refresh(self) -> None:
        """One round now, after a change or for a page that shows what was never asked for."""
        self._round_done.clear()
        self._tables_wanted = True
        self._wake.set()
        try:
            async with asyncio.timeout(10):
                await self._round_done.wait()
        except TimeoutError:
            log.warning("cluster=%s no round ended within 10 s", self.cluster)

    async def first(self, wait_s: float = 4.0) -> None:
        """Wait for the first round, for a page that is opened right after the start."""
        if self.overview is None and self.error is None:
            try:
                async with asyncio.timeout(wait_s):
                    await self._round_done.wait()
            except TimeoutError:
                return

    def _watched_period_s(self) -> float:
        """Longer where brokers have many committed queues: a round costs them 10 us each, and must stay under 1 %."""
        queues = sum(len(progress.queues) for one in self._source.answers for progress in (one.progress or {}).values())
        brokers = max(1, len(self._source.answers))
        return min(self._idle_s, max(self._sample_s, queues / brokers / QUEUES_PER_S))

    def _is_watched(self) -> bool:
        return self.always_fast or time.monotonic() - self._touched_s < _WATCHED_S

    async def _run(self) -> None:
        while True:
            began = time.monotonic()
            self._wake.clear()
            await self._round()
            self._round_done.set()
            for listener in self._listeners:
                listener(self)
            period_s = self._watched_period_s() if self._is_watched() else self._idle_s
            try:
                async with asyncio.timeout(max(0.05, began + period_s - time.monotonic())):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _round(self) -> None:
        topics, groups = self._next_asked()
        try:
            every = WATCHED_TABLES_EVERY if self._is_watched() else IDLE_TABLES_EVERY
            is_small = self.overview is None or len(self.overview.topics) < SMALL_TOPICS
            with_tables = self._tables_wanted or is_small or self.rounds % every == 0
            self._tables_wanted = False
            overview = await self._source.take(topics_asked=topics, groups_asked=groups, with_tables=with_tables)
            overview, figures = await asyncio.to_thread(self._keeper.update, overview)
        except RocketQError as error:
            self.error = str(error)
            if time.monotonic() - self._logged_s > _LOG_AGAIN_S:
                self._logged_s = time.monotonic()
                log.warning("cluster=%s sampling failed: %s", self.cluster, error)
            return
        except Exception:  # the sampler must survive any answer of a broker
            self.error = "the sampler failed: see the log of the console"
            log.exception("cluster=%s sampling failed", self.cluster)
            return
        self.error = None
        self.rounds += 1
        self.overview, self.figures = overview, figures
        new_dead = self._keeper.new_dead_letters(overview.taken_ms, figures.dead_letters)
        self.findings = tuple(findings(overview, figures, new_dead))
        try:
            await self._history.add(overview.taken_ms // 1000, self._series(overview, figures))
        except Exception:  # a full disk must not stop the live view
            log.exception("cluster=%s the history was not written", self.cluster)

    def _next_asked(self) -> tuple[list[str], list[str]]:
        """What pages show, then dead letters and groups with lag, then those with the oldest figures."""
        horizon = time.monotonic() - _INTEREST_S
        self._topics = {name: at for name, at in self._topics.items() if at > horizon}
        self._groups = {name: at for name, at in self._groups.items() if at > horizon}
        topics, groups = dict.fromkeys(list(self._topics)[:100]), dict.fromkeys(list(self._groups)[:100])
        if self.overview is not None and self._is_watched():  # no page shows these while none is open
            by_age = sorted(self.overview.topics, key=lambda one: (one.kind != "dlq", one.asked_ms or 0))
            rest = [one.name for one in by_age if one.kind not in ("system", "retry")]
            topics.update(dict.fromkeys(rest[: max(0, ASKED_MAX - len(topics))]))
            ordered = sorted(self.overview.groups, key=lambda one: (not one.lag_known, one.asked_ms or 0))
            names = [one.name for one in ordered if is_users(one)]
            groups.update(dict.fromkeys(names[: max(0, ASKED_MAX - len(groups))]))
        return list(topics), list(groups)

    def _series(self, overview: ClusterOverview, figures: ClusterFigures) -> dict[str, float]:
        prefix = self.cluster
        values: dict[str, float | None] = {
            f"{prefix}/in": figures.in_tps,
            f"{prefix}/out": figures.out_tps,
            f"{prefix}/lag": figures.lag,
            f"{prefix}/dead": figures.dead_letters,
            f"{prefix}/disk": figures.disk_ratio,
            f"{prefix}/p99": figures.put_p99_ms,
        }
        for group in overview.groups:
            if is_users(group) and group.topics:
                values[f"{prefix}/group/{group.name}/lag"] = group.lag
        for topic in overview.topics:
            if topic.in_tps is not None and topic.asked_ms is not None and topic.asked_ms >= overview.taken_ms - 5_000:
                values[f"{prefix}/topic/{topic.name}/in"] = topic.in_tps
        for broker in overview.brokers:
            values[f"{prefix}/broker/{broker.name}/disk"] = broker.disk_ratio
            values[f"{prefix}/broker/{broker.name}/in"] = broker.in_tps
            values[f"{prefix}/broker/{broker.name}/out"] = broker.out_tps
        return {name: float(value) for name, value in values.items() if value is not None}
