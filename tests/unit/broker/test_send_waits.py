"""A send that waited too long for its turn, and one whose disk never comes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.unit.store.kit import open_store

from rocketq.broker.admin.settings import Settings
from rocketq.broker.config import BrokerConfig
from rocketq.broker.groups.consumer_groups import ConsumerGroups
from rocketq.broker.groups.table import GroupTable
from rocketq.broker.ha.durability import is_durable
from rocketq.broker.pipeline.access import OpenAccess
from rocketq.broker.pipeline.admission import AdmissionTables
from rocketq.broker.pipeline.answer_templates import SendAnswers
from rocketq.broker.pipeline.quotas import Quotas
from rocketq.broker.send.handlers import DurableSend, SendPlan, SendPorts
from rocketq.broker.stats.broker_stats import BrokerStats
from rocketq.broker.topics.table import TopicTable
from rocketq.model import NewMessage
from rocketq.protocol.bodies.queues import DataVersion
from rocketq.remoting import Reply, RequestRejected
from rocketq.runtime.clock import ManualClock
from rocketq.store import FlushType, Store

MESSAGE = NewMessage(topic="T", queue_id=0, body=b"b")
PLAN = SendPlan(MESSAGE, 0, is_batch=False, waits=True, transaction_id=None)


def ports(store: Store, clock: ManualClock, folder: Path, **given: object) -> SendPorts:
    config = BrokerConfig(name="b", **given)  # type: ignore[arg-type]
    settings = Settings(config, store.config, folder / "broker.conf", version=DataVersion())
    topics, groups = TopicTable(), GroupTable()
    admission = AdmissionTables(settings, topics, groups, ConsumerGroups(), OpenAccess(), Quotas())
    stats, answers = BrokerStats("C", 0), SendAnswers(settings)
    return SendPorts(admission, settings, topics, groups, store, stats, clock, lambda count: 0, answers)


async def awaited(answer: DurableSend) -> Reply:
    return await answer


def test_a_request_that_waited_too_long_is_told_so_and_not_stored(tmp_path: Path) -> None:
    clock = ManualClock()
    with open_store(tmp_path / "store", flush_type=FlushType.SYNC_FLUSH) as store:
        mine = ports(store, clock, tmp_path)
        clock.advance(201)
        with pytest.raises(RequestRejected) as refused:
            asyncio.run(awaited(DurableSend(PLAN, mine, 0)))
        assert refused.value.code == 2
        assert refused.value.remark.startswith("[TIMEOUT_CLEAN_QUEUE]")
        assert store.max_offset("T", 0) == 0
        patient = ports(store, clock, tmp_path, fast_failure=False)
        assert asyncio.run(awaited(DurableSend(PLAN, patient, 0))).code == 0
        assert store.max_offset("T", 0) == 1


def test_waiting_for_the_disk_ends_with_the_gate_or_the_time(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", sync_flush_timeout_ms=20) as store:
        assert asyncio.run(is_durable(store, store.gate.position))
        assert not asyncio.run(is_durable(store, store.gate.position + 1))

        async def shut() -> bool:
            waiting = asyncio.create_task(is_durable(store, store.gate.position + 1))
            await asyncio.sleep(0)
            store.gate.shut()
            return await waiting

        assert not asyncio.run(shut())
