"""A slave's copies of its master's tables: topics, groups, consumer offsets and delivery progress."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from rocketq.access.sealing import SEALED_PREFIX
from rocketq.access.service import AccessService
from rocketq.broker.groups.offsets import OffsetTable
from rocketq.broker.groups.table import GroupTable
from rocketq.broker.topics.deleted_topics import DeletedTopics, PushedTables
from rocketq.broker.topics.table import TopicTable
from rocketq.errors import RocketQError, StoreError
from rocketq.protocol.acl import Credentials
from rocketq.protocol.bodies.groups import GroupConfigTable
from rocketq.protocol.bodies.json_body import Body
from rocketq.protocol.bodies.offsets import ConsumerOffsets, DelayOffsets
from rocketq.protocol.bodies.queues import KeyValues
from rocketq.protocol.bodies.topics import TopicConfig, TopicConfigTable
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.command import Command
from rocketq.protocol.headers.admin import ListUsersRequest
from rocketq.protocol.requests import make_request
from rocketq.remoting import ClientTls, ConnectionPool
from rocketq.replication.epochs import EpochList
from rocketq.runtime.slices import finish
from rocketq.store import StateFiles, StoreWriter
from rocketq.store.timer_files import TimerPoint

TIMEOUT_MS: Final = 3_000
_Table = TypeVar("_Table", bound=Body)


@dataclass(frozen=True, slots=True)
class CopyPorts:
    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    files: StateFiles
    store: StoreWriter
    access: AccessService | None = None
    """Users and policies, which are copied, too."""
    credentials: Credentials | None = None
    """What requests to the master are signed with."""
    tls: ClientTls | None = None
    """None: connections to the master are plain."""


class MasterTables:
    """Copies one table after the other; failed ones are copied in the next round."""

    def __init__(self, ports: CopyPorts, epochs: Callable[[], EpochList] | None = None) -> None:
        """`epochs` returns the log's epochs in a fenced group."""
        self._ports = ports
        self._epochs = epochs
        self._fenced = epochs is not None
        self._pool = ConnectionPool(credentials=ports.credentials, tls=ports.tls)
        self._saved_delays: dict[int, int] | None = None
        self._log_ends = deque([0], maxlen=3)
        self.timer_point: tuple[TimerPoint, int] | None = None
        """Position of the master's timer wheel, and this log's end shortly before."""
        self._pushed: PushedTables | None = None
        self._drops_at = 0
        self._deleted = DeletedTopics()

    async def close(self) -> None:
        await self._pool.close()

    async def copy(self, addr: str) -> str | None:
        """Copy all tables from the master at `addr`; None or the error. A fenced master sends topics and groups in its
        stream instead, because another process may answer at this address."""
        ports = self._ports
        try:
            if not self._fenced:
                topics = await self._ask(addr, RequestCode.GET_ALL_TOPIC_CONFIG, TopicConfigTable)
                if topics.data_version != ports.topics.data_version:
                    ports.topics.replace(topics)
            ports.offsets.take_over(await self._ask(addr, RequestCode.GET_ALL_CONSUMER_OFFSET, ConsumerOffsets))
            await self._save_delays(await self._ask(addr, RequestCode.GET_ALL_DELAY_OFFSET, DelayOffsets))
            if self._fenced:
                await self._ask_timers(addr)
                if self._drops_at and ports.store.log_end >= self._drops_at:
                    await self.drop_queues()
            else:
                groups = await self._ask(addr, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, GroupConfigTable)
                if groups.data_version != ports.groups.data_version:
                    ports.groups.replace(groups)
                await self._copy_users(addr)
        except (RocketQError, OSError) as error:
            return f"{addr}: {error}"
        return None

    async def _copy_users(self, addr: str) -> None:
        """A master without users, or of Apache, has none to copy."""
        access = self._ports.access
        if access is None or access.users is None or access.inner is None:
            return
        question = make_request(ListUsersRequest(sealed=True), opaque=0)
        answer = await self._pool.invoke(addr, question, TIMEOUT_MS)
        if answer.code == ResponseCode.SUCCESS and answer.body.startswith(SEALED_PREFIX.encode()):
            await access.take_sealed_users(answer.body.decode())

    async def _ask_timers(self, addr: str) -> None:
        """Copy the timer position; a master without a timer wheel has none."""
        log_end = self._ports.store.log_end
        answer = await self._pool.invoke(addr, Command(code=RequestCode.GET_TIMER_CHECK_POINT), TIMEOUT_MS)
        point = TimerPoint.decode(answer.body) if answer.code == ResponseCode.SUCCESS else None
        self.timer_point = (point, min(self._log_ends)) if point is not None else None
        self._log_ends.append(log_end)

    async def take(self, pushed: PushedTables) -> None:
        """Apply the tables that the master sent. Topics it deleted are deleted here with their queues, because a topic
        that is created again starts at 0. The next tables complete an interrupted deletion."""
        ports, known = self._ports, set(self._ports.topics.names())
        if pushed.topics.data_version != ports.topics.data_version:
            ports.topics.replace(pushed.topics)
        if pushed.groups.data_version != ports.groups.data_version:
            ports.groups.replace(pushed.groups)
        if pushed.users is not None and ports.access is not None:
            await ports.access.take_sealed_users(pushed.users)
        for topic in sorted(known - pushed.topics.topics.keys()):
            ports.offsets.forget_topic(topic)
        self._pushed, self._drops_at = pushed, pushed.log_end
        await self.drop_queues()

    async def drop_queues(self) -> None:
        """Delete queues of topics that the master had deleted when it sent its tables. Their messages may arrive after
        the tables, so this runs again when all have arrived. Later messages are kept."""
        if self._pushed is None or self._epochs is None:
            return
        store, pushed = self._ports.store, self._pushed
        reached = store.log_end
        drops = pushed.drops(set(store.topics()), self._ports.topics.is_system, self._epochs())
        for topic, log_end in drops.items():
            if store.queue_ids(topic):
                await asyncio.to_thread(store.delete_topic, topic, log_end=log_end)
        if self._pushed is pushed and reached >= pushed.log_end:
            self._drops_at = 0

    async def begin_mastership(self) -> list[TopicConfig]:
        """Complete pending deletions; the topics to create because their messages arrived before their settings."""
        await self.drop_queues()
        ports, counts = self._ports, dict[str, int]()
        self._pushed, self._drops_at = None, 0
        for topic in ports.store.topics():
            if topic not in ports.topics:
                counts[topic] = ports.store.queue_ids(topic)[-1] + 1
        self._deleted = DeletedTopics({*ports.topics.names(), *counts})
        return [
            TopicConfig(topic=topic, read_queue_count=count, write_queue_count=count) for topic, count in counts.items()
        ]

    def record_deletions(self) -> None:
        """Record deleted topics of a master."""
        self._deleted.look(self._ports.topics.names(), self._ports.store.log_end)

    def snapshot(self, epoch: int) -> PushedTables:
        """The tables to send to slaves."""
        topics, store = self._ports.topics, self._ports.store
        queued = set(store.topics())
        return PushedTables(
            topics=topics.snapshot(),
            groups=self._ports.groups.snapshot(),
            log_end=store.log_end,
            unlisted=tuple(sorted(each for each in queued if each not in topics and not topics.is_being_deleted(each))),
            deleted=dict(self._deleted.ends),
            epoch=epoch,
            users=None if self._ports.access is None else self._ports.access.sealed_users(),
        )

    async def find_divergence(self, addr: str) -> str | None:
        """Why this log must not follow the master: the classic stream does not detect that a master lost its last
        messages, so compare log ends first. None when the master does not answer."""
        before = self._ports.store.log_end
        try:
            table = (await self._ask(addr, RequestCode.GET_BROKER_RUNTIME_INFO, KeyValues)).table
        except RocketQError:
            return None
        end = table.get("commitLogMaxOffset", "")
        if not end.isdecimal() or before <= int(end):
            return None
        return f"this log ends at {before}, the master's at {end}: copy one store to the other"

    async def _save_delays(self, table: DelayOffsets) -> None:
        """Unused on a slave; needed when it becomes master."""
        if table.offsets != self._saved_delays:
            await asyncio.to_thread(self._ports.files.delay_offsets.save, DelayOffsets(offsets=table.offsets))
            self._saved_delays = table.offsets

    async def _ask(self, addr: str, code: RequestCode, kind: type[_Table]) -> _Table:
        answer = await self._pool.invoke(addr, Command(code=code), TIMEOUT_MS)
        if answer.code != ResponseCode.SUCCESS:
            raise StoreError(f"answered {answer.code} {answer.remark} to request {int(code)}")
        return await finish(kind.decode_steps(answer.body))
