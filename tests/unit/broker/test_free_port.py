"""Free ports are looked for where the environment says."""

from __future__ import annotations

import itertools

import pytest

from rocketq.broker.free_port import RANGE_VARIABLE, REPLICATION_STEP, VIP_STEP, pick_port
from rocketq.errors import ConfigError


def test_a_port_and_its_neighbours_are_in_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RANGE_VARIABLE, "19000-19020")
    ports = [pick_port("127.0.0.1") for _ in range(3)]
    assert min(ports) + VIP_STEP >= 19_000
    assert max(ports) + REPLICATION_STEP <= 19_020


def test_a_port_is_not_given_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: two that ask before either has bound its port do not get each other's, nor its neighbours."""
    monkeypatch.setenv(RANGE_VARIABLE, "18000-19000")
    ports = sorted(pick_port("127.0.0.1") for _ in range(50))
    assert all(later - earlier > REPLICATION_STEP - VIP_STEP for earlier, later in itertools.pairwise(ports))


@pytest.mark.parametrize("text", ["", "20000-32000"])
def test_without_one_the_usual_range_counts(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(RANGE_VARIABLE, text)
    assert 20_000 <= pick_port("127.0.0.1") < 32_000


@pytest.mark.parametrize("text", ["20000", "a-b", "20010-20001", "20000-20005", "-1-9", "60000-70000", "80-1000"])
def test_a_bad_range_is_told(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(RANGE_VARIABLE, text)
    with pytest.raises(ConfigError, match="not a range of at least ten ports, like 20000-32000"):
        pick_port("127.0.0.1")
