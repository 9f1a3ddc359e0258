"""Whether a broker may act as master by itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from rocketq.broker.admin.settings import Settings
from rocketq.broker.config import BrokerConfig
from rocketq.broker.ha.master_lease import MasterLease
from rocketq.protocol.bodies.queues import DataVersion
from rocketq.runtime.clock import ManualClock
from rocketq.store import StoreConfig


@dataclass
class Candidate:
    is_leading: bool = False
    lease_to_ms: int = 0

    def has_lease(self, now_ms: int) -> bool:
        return now_ms < self.lease_to_ms


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def lease(tmp_path: Path, clock: ManualClock) -> MasterLease:
    config = BrokerConfig(name="b")
    settings = Settings(config, StoreConfig(root=tmp_path), tmp_path / "kept", version=DataVersion())
    return MasterLease(settings, clock)


def test_a_broker_without_election_needs_no_lease(lease: MasterLease) -> None:
    assert lease.is_valid()


def test_a_replica_needs_both_the_lead_and_an_unexpired_lease(lease: MasterLease, clock: ManualClock) -> None:
    """Goal: neither an old master whose lease lasts nor a new one without a lease delivers."""
    candidate = Candidate(lease_to_ms=clock.monotonic_ms() + 10)
    lease.depend_on(candidate)
    assert not lease.is_valid()
    candidate.is_leading = True
    assert lease.is_valid()
    clock.advance(10)
    assert not lease.is_valid()


def test_each_change_of_a_leader_is_logged_once(
    lease: MasterLease, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: an operator sees when work stops and resumes, however often it is asked about."""
    caplog.set_level("INFO")
    candidate = Candidate()
    lease.depend_on(candidate)
    lease.is_valid()
    assert caplog.messages == []
    candidate.is_leading = True
    for _ in range(3):
        lease.is_valid()
    candidate.lease_to_ms = clock.monotonic_ms() + 1
    for _ in range(3):
        lease.is_valid()
    assert [message.split(":")[0] for message in caplog.messages] == [
        "broker b has no valid lease",
        "lease of broker b is valid again",
    ]
